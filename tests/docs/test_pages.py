"""Every line of the documentation works when typed in order, in an empty directory."""

from __future__ import annotations

import re

import pytest
from pages import ROOT, blocks_of, type_page

DOCS = ROOT / "docs"
WRITTEN = {DOCS / "reference" / name for name in ("commands.md", "configuration.md")}
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts and path not in WRITTEN]
TYPED = [path for path in PAGES if any(block.reason is None for block in blocks_of(path))]


def name_of(path):
    return str(path.relative_to(DOCS))


@pytest.mark.pages
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", TYPED, ids=name_of)
def test_every_line_of_a_page_works_when_typed_in_order(page, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("h5netcdf")
    ran, reasons = type_page(page, tmp_path)
    print(f"{name_of(page)}: {ran} blocks run, {len(reasons)} not run: {reasons}")
    assert ran > 0


def test_blocks_that_are_not_run_are_few():
    reasons = [block.reason for page in PAGES for block in blocks_of(page) if block.reason is not None]
    assert 0 < len(reasons) <= 20
    assert all(len(reason.split()) >= 2 for reason in reasons)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_to_files(page):
    links = re.findall(r"\]\(((?!https?:)[^)#]+)", page.read_text())
    allowed = {path.resolve() for path in WRITTEN}
    targets = [(page.parent / link).resolve() for link in links]
    assert [str(target) for target in targets if not target.exists() and target not in allowed] == []


def test_every_page_is_linked_from_home_or_an_index_that_home_links():
    indexes = [DOCS / "index.md", *DOCS.glob("*/index.md")]
    linked = {
        (index.parent / link).resolve()
        for index in indexes
        for link in re.findall(r"\]\(([^)#:]+\.md)", index.read_text()) + toctree(index)
    }
    assert [name_of(page) for page in PAGES if page.resolve() not in linked and page not in indexes[:1]] == []


def toctree(index):
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), re.S)
    lines = [line for block in blocks for line in block.splitlines() if line and not line.startswith(":")]
    return [f"{line.rpartition('<')[2].rstrip('>')}.md" for line in lines]
