"""Charts as SVG elements for the page: tag, text and attributes, which the template writes.

Colours are classes of the style sheet, so that a chart follows the theme of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.report.charts import MAX_TITLED_BARS, Axis, Chart, Mark, Panel

LEFT, RIGHT, TOP, BOTTOM, GAP = 52.0, 14.0, 16.0, 40.0, 20.0
CHARACTER = 6.4  # width of a character of a tick label

# Tag, attributes, and text: content of a text element, else shown on hover.
Element = tuple[str, dict[str, Any], str]


@dataclass(frozen=True)
class _Frame:
    """Maps the coordinates of a panel to those of the drawing."""

    panel: Panel
    left: float
    top: float
    right: float
    bottom: float

    def x(self, values: Any) -> Any:
        return _scaled(values, self.panel.x, self.left, self.right)

    def y(self, values: Any) -> Any:
        return _scaled(values, self.panel.y, self.bottom, self.top)


def _scaled(values: Any, axis: Axis, start: float, end: float) -> Any:
    return start + (values - axis.low) / (axis.high - axis.low) * (end - start)


def svg_elements(chart: Chart) -> list[Element]:
    """Return the elements of a chart, in the order in which they are drawn."""
    longest = max((len(text) for panel in chart.panels for _, text in panel.y.ticks), default=0)
    left = min(max(LEFT, 26 + CHARACTER * longest), 0.36 * chart.width)
    height = (chart.height - TOP - BOTTOM - GAP * (len(chart.panels) - 1)) / len(chart.panels)
    elements: list[Element] = []
    for i, panel in enumerate(chart.panels):
        top = TOP + i * (height + GAP)
        frame = _Frame(panel, left, top, chart.width - RIGHT, top + height)
        elements += _y_axis(frame)
        for mark in panel.marks:
            elements += _drawn(frame, mark)
        elements += _x_axis(frame)
    return elements


def _y_axis(f: _Frame) -> Iterator[Element]:
    room = int((f.left - 20) / CHARACTER)
    for place, text in f.panel.y.ticks:
        y = f"{f.y(place):.1f}"
        yield "line", {"x1": f.left, "x2": f.right, "y1": y, "y2": y, "class": "grid"}, ""
        shown = f"{text[: room - 1]}\u2026" if len(text) > room else text
        yield "text", {"x": f.left - 7, "y": y, "class": "tick end"}, shown
    if f.panel.y.title:
        turned = f"translate(11 {(f.top + f.bottom) / 2:.1f}) rotate(-90)"
        yield "text", {"transform": turned, "class": "name"}, f.panel.y.title


def _x_axis(f: _Frame) -> Iterator[Element]:
    # Rows of bars have their axis at 0, others at the bottom.
    upright = any(mark.shape == "rows" for mark in f.panel.marks)
    left, right = (f"{f.x(0.0):.1f}",) * 2 if upright else (f.left, f.right)
    yield "line", {"x1": left, "x2": right, "y1": f.top if upright else f.bottom, "y2": f.bottom, "class": "axis"}, ""
    for place, text in f.panel.x.ticks:
        yield "text", {"x": f"{f.x(place):.1f}", "y": f.bottom + 14, "class": "tick middle"}, text
    if f.panel.x.title:
        yield "text", {"x": (f.left + f.right) / 2, "y": f.bottom + 32, "class": "name"}, f.panel.x.title


def _pairs(x: Array, y: Array) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _drawn(f: _Frame, mark: Mark) -> Iterator[Element]:
    """Yield the elements of a mark."""
    x, y = f.x(mark.x), f.y(mark.y)
    style = f" {mark.style}" if mark.style else ""
    if mark.shape == "line":
        yield "polyline", {"points": _pairs(x, y), "class": "line"}, ""
    elif mark.shape == "area" and mark.base is not None:
        outline = _pairs(np.concatenate([x, x[::-1]]), np.concatenate([y, f.y(mark.base)[::-1]]))
        yield "polygon", {"points": outline, "class": "area"}, ""
    elif mark.shape == "stems":
        path = "".join(f"M{a:.1f} {f.bottom:.1f}V{b:.1f}" for a, b in zip(x, y, strict=True))
        yield "path", {"d": path, "class": mark.style or "stem"}, ""
    elif mark.shape == "points":
        # A line of no length with round ends is a dot, in a fifth of the bytes of a circle.
        yield (
            "path",
            {"d": "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, y, strict=True)), "class": f"points{style}"},
            "",
        )
    elif mark.shape == "dots":
        for a, b, text in zip(x, y, mark.texts, strict=True):
            yield "circle", {"cx": f"{a:.1f}", "cy": f"{b:.1f}", "r": 3, "class": f"dot{style}"}, text
    elif mark.shape == "rule":
        place = float(y[0])
        yield "line", {"x1": f.left, "x2": f.right, "y1": f"{place:.1f}", "y2": f"{place:.1f}", "class": "mark"}, ""
        below = 14 if mark.style == "below" else -5
        yield "text", {"x": f.right, "y": f"{place + below:.1f}", "class": "tick end note"}, mark.texts[0]
    else:
        yield from _bars(f, mark, x, y)


def _bars(f: _Frame, mark: Mark, x: Array, y: Array) -> Iterator[Element]:
    if mark.shape == "rows":
        high = 0.7 * (f.y(0.0) - f.y(1.0))
        left, top, base = np.minimum(x, f.x(0.0)), y - high / 2, f.x(0.0)
        sizes = zip(left, top, np.abs(x - base), np.full(len(x), high), strict=True)
    else:
        step = f.x(1.0) - f.x(0.0)
        wide = step * 0.72 if step > 3 else step
        tops = np.minimum(y, f.bottom)
        sizes = zip(x - wide / 2, tops, np.full(len(x), wide), f.bottom - tops, strict=True)
    if len(x) > MAX_TITLED_BARS:
        path = "".join(f"M{a:.2f} {b + h:.2f}V{b:.2f}h{w:.2f}V{b + h:.2f}Z" for a, b, w, h in sizes)
        yield "path", {"d": path, "class": "bar"}, ""
        return
    for (a, b, w, h), text in zip(sizes, mark.texts, strict=True):
        size = {"x": f"{a:.1f}", "y": f"{b:.1f}", "width": f"{w:.1f}", "height": f"{h:.1f}", "class": "bar"}
        yield "rect", size, text
