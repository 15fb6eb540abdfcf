"""The places of axes and marks in an SVG drawing; the template chart.html draws them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.report.charts import Axis, Chart, Mark, Panel

LEFT, RIGHT, TOP, BOTTOM, GAP = 52.0, 14.0, 16.0, 40.0, 20.0
CHARACTER = 6.4  # width of a character of a tick label


@dataclass(frozen=True)
class Frame:
    """A panel and its place in the drawing."""

    panel: Panel
    left: float
    top: float
    right: float
    bottom: float

    def x(self, values: Any) -> Any:
        """Return where values of the x axis are."""
        return _scaled(values, self.panel.x, self.left, self.right)

    def y(self, values: Any) -> Any:
        """Return where values of the y axis are."""
        return _scaled(values, self.panel.y, self.bottom, self.top)

    def places(self, x: Array, y: Array) -> list[tuple[float, float]]:
        """Return where points are."""
        return list(zip(self.x(x).round(1).tolist(), self.y(y).round(1).tolist(), strict=True))

    def boxes(self, mark: Mark) -> list[tuple[float, ...]]:
        """Return left, top, width and height of bars that stand on the x axis, or lie to the right or left of x = 0."""
        x, y = self.x(mark.x), self.y(mark.y)
        if mark.shape == "rows":
            start, height = self.x(0.0), 0.7 * (self.y(0.0) - self.y(1.0))
            sizes = np.minimum(x, start), y - height / 2, np.abs(x - start), np.full(len(x), height)
        else:
            step, tops = self.x(1.0) - self.x(0.0), np.minimum(y, self.bottom)
            width = step * (0.72 if step > 3 else 1)
            sizes = x - width / 2, tops, np.full(len(x), width), self.bottom - tops
        return list(zip(*(size.round(2).tolist() for size in sizes), strict=True))

    def label(self, text: str) -> str:
        """Return a tick label of the y axis, cut if it is too long for the margin."""
        room = int((self.left - 20) / CHARACTER)
        return f"{text[: room - 1]}\u2026" if len(text) > room else text


def frames(chart: Chart) -> list[Frame]:
    """Return the panels of a chart with their places, one below the other."""
    longest = max((len(text) for panel in chart.panels for _, text in panel.y.ticks), default=0)
    left = min(max(LEFT, 26 + CHARACTER * longest), 0.36 * chart.width)
    height = (chart.height - TOP - BOTTOM - GAP * (len(chart.panels) - 1)) / len(chart.panels)
    tops = [TOP + i * (height + GAP) for i in range(len(chart.panels))]
    return [
        Frame(panel, left, top, chart.width - RIGHT, top + height)
        for panel, top in zip(chart.panels, tops, strict=True)
    ]


def _scaled(values: Any, axis: Axis, start: float, end: float) -> Any:
    return start + (values - axis.low) / (axis.high - axis.low) * (end - start)
