"""Check the internal links of a built site and list the external ones: python docs/links.py HTML."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links, images and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.anchors.add(value)


def broken(folder: Path) -> tuple[list[str], list[str]]:
    """Return the internal links that lead nowhere, and all external ones."""
    pages = {path.resolve(): Page(path.read_text()) for path in folder.rglob("*.html") if "_static" not in path.parts}
    bad, external = [], set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme:
                external.add(link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages.get(target)
            if not target.exists() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
                bad.append(f"{path.relative_to(folder.resolve())}: {link}")
    return sorted(bad), sorted(external)


if __name__ == "__main__":
    wrong, others = broken(Path(sys.argv[1]))
    print(f"{len(others)} external links, not visited:", *others, sep="\n  ")
    if wrong:
        sys.exit("\n  ".join([f"{len(wrong)} broken links:", *wrong]))
