"""Text that is safe in a page: all that comes from data is escaped here, and nowhere else.

A page is plain ASCII, so that no reader can take it for another encoding: letters beyond it are character references
in HTML, and escapes in JSON.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
from collections.abc import Mapping
from typing import Any

# As fast as gzip goes; better levels take ten times as long for a tenth less.
GZIP_LEVEL = 6


class Html(str):
    """Text that is markup already."""


def escaped(value: object) -> Html:
    """Return text as markup that shows it; markup as it is."""
    if isinstance(value, Html):
        return value
    # A NUL, which no document may hold, and other controls show as blanks.
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", str(value))
    return Html(html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii"))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """Return an element; attributes that are None are left out, `class_` is class, and `_` in a name is `-`.

    >>> element("td", "a < b", class_="number")
    '<td class="number">a &lt; b</td>'
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{shown}>{''.join(map(escaped, children))}</{tag}>")


def joined(parts: Any, between: str = "") -> Html:
    """Return pieces of markup, and of text, one after the other."""
    return Html(between.join(map(escaped, parts)))


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with each `{{name}}` replaced; what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def as_json(value: Any) -> str:
    """Return JSON that may stand inside a script element; numbers that JSON has no words for are null."""
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def payload(name: str, content: bytes, *, squeeze: bool = True) -> Html:
    """Return bytes as an element that a script reads and no browser runs."""
    if squeeze:
        # No time stamp: the same result gives the same page.
        content = gzip.compress(content, GZIP_LEVEL, mtime=0)
    form = "application/gzip" if squeeze else "application/octet-stream"
    return element("script", Html(base64.b64encode(content).decode("ascii")), type=form, id=name)


def number(value: float, digits: int = 3) -> str:
    """Return a number as people write it: 0.0123, 14,266, 3.1e-7."""
    if not math.isfinite(value):
        return "not known" if math.isnan(value) else "infinite"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")


def percent(share: float) -> str:
    """Return a share with so many digits that it says something."""
    if not math.isfinite(share):
        return "not known"
    hundredths = 100 * share
    if hundredths and abs(hundredths) < 0.1:
        return f"{hundredths:.2g}%"
    return f"{hundredths:.1f}%" if 99.95 > hundredths > 0 and hundredths < 99.9 else f"{hundredths:.4g}%"
