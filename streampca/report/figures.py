"""Small figures as SVG: they need no script, take their colours from the page, and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.report.markup import Html, element, joined, number, percent

WIDTH, HEIGHT = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40
MARK = 0.9
# More bars than this are one shape, without a text of their own each.
TOLD_BARS = 100


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers from low to high, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def shares(values: Sequence[float]) -> list[str]:
    """Return shares as percentages, all with as many decimals as they need."""
    return [f"{round(100 * value, 10):g}%" if value else "0" for value in values]


@dataclass(frozen=True)
class Frame:
    """A rectangle of a figure with the ranges of its axes; y of a logarithmic one is given as log10."""

    x: tuple[float, float]
    y: tuple[float, float]
    box: tuple[float, float, float, float] = (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)

    def right(self, x: Any) -> Any:
        """Return where x is."""
        return self.box[0] + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.box[2] - self.box[0])

    def up(self, y: Any) -> Any:
        """Return where y is."""
        return self.box[3] - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.box[3] - self.box[1])

    def y_axis(self, places: Sequence[float], labels: Sequence[str], title: str) -> Html:
        """Return fine lines across, and their labels."""
        left, top, right, bottom = self.box
        parts = []
        for place, label in zip(places, labels, strict=True):
            y = f"{self.up(place):.1f}"
            parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
            parts.append(element("text", label, x=left - 7, y=y, class_="tick end"))
        middle = f"translate(11 {(top + bottom) / 2:.1f}) rotate(-90)"
        return joined([*parts, element("text", title, transform=middle, class_="name")])

    def x_axis(self, places: Sequence[float], labels: Sequence[str], title: str = "") -> Html:
        """Return the line at the bottom, and its labels."""
        left, _, right, bottom = self.box
        parts = [element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")]
        for place, label in zip(places, labels, strict=True):
            parts.append(element("text", label, x=f"{self.right(place):.1f}", y=bottom + 14, class_="tick middle"))
        if title:
            parts.append(element("text", title, x=(left + right) / 2, y=bottom + 32, class_="name"))
        return joined(parts)

    def line(self, x: Array, y: Array, kind: str = "line") -> Html:
        """Return a line through points."""
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(self.right(x), self.up(y), strict=True))
        return element("polyline", points=points, class_=kind)

    def dots(self, x: Array, y: Array, texts: Sequence[str], kind: str = "dot") -> Html:
        """Return points, each with a text of its own."""
        places = zip(self.right(x), self.up(y), texts, strict=True)
        return joined(
            element("circle", element("title", text), cx=f"{a:.1f}", cy=f"{b:.1f}", r=3, class_=kind)
            for a, b, text in places
        )

    def across(self, y: float, label: str, *, below: bool = False) -> Html:
        """Return a broken line at a height, with its name above or below."""
        left, _, right, _ = self.box
        place = f"{self.up(y):.1f}"
        return joined(
            [
                element("line", x1=left, x2=right, y1=place, y2=place, class_="mark"),
                element("text", label, x=right, y=f"{self.up(y) + (14 if below else -5):.1f}", class_="tick end note"),
            ]
        )


def bars(frame: Frame, values: Array, texts: Sequence[str], first: float = 1.0, kind: str = "bar") -> Html:
    """Return a bar for each value, at first, first + 1, ..."""
    step = frame.right(1.0) - frame.right(0.0)
    wide = step * 0.72 if step > 3 else step
    at, base = frame.right(first + np.arange(len(values))) - wide / 2, frame.box[3]
    tops = np.minimum(frame.up(values), base)
    if len(values) > TOLD_BARS:
        path = "".join(f"M{x:.2f} {base}V{y:.2f}h{wide:.2f}V{base}Z" for x, y in zip(at, tops, strict=True))
        return element("path", d=path, class_=kind)
    return joined(
        element(
            "rect", element("title", text), x=f"{x:.1f}", y=f"{y:.1f}", width=f"{wide:.1f}", height=f"{base - y:.1f}",
            class_=kind,
        )
        for x, y, text in zip(at, tops, texts, strict=True)
    )  # fmt: skip


def svg(*parts: object, label: str, height: int = HEIGHT) -> Html:
    """Return a figure, with what it shows in words for those who do not see it."""
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label, class_="figure")


def _counts(k: int, first: int = 1) -> tuple[list[float], list[str]]:
    """Return places and labels of whole numbers from first to k."""
    places = [t for t in ticks(0, k, 8) if t == int(t) and t >= first]
    if first == 1 and k >= 1:
        places = sorted({1.0, *places})
        if len(places) > 1 and places[1] - 1 < k / 16:
            places = places[1:]
    return places, [f"{int(t):,}" for t in places]


def scree(share: Array, prefix: str = "PC") -> Html:
    """Draw the share of each component, above it that of all up to it, and where these reach the mark."""
    k, together = len(share), np.cumsum(share)
    span = (0.4, k + 0.6)
    upper = Frame(span, (0.0, 1.0), (LEFT, 18, WIDTH - RIGHT, 122))
    top = float(np.nanmax(share, initial=0.0)) or 1.0
    lower = Frame(span, (0.0, top * 1.06), (LEFT, 142, WIDTH - RIGHT, HEIGHT + 20 - BOTTOM))
    texts = [f"{prefix}{i + 1}: {percent(share[i])}, together {percent(together[i])}" for i in range(k)]
    x = np.arange(1, k + 1)
    reached = int(np.argmax(together >= MARK)) + 1 if (together >= MARK).any() else 0
    halves, heights = [0, 0.25, 0.5, 0.75, 1], ticks(0, top * 1.06, 4)
    parts = [
        upper.y_axis(halves, ["0", "", "50%", "", "100%"], "together"),
        upper.across(MARK, f"90% by {prefix}{reached}" if reached else "90%", below=bool(reached)),
        upper.line(x, together) if k > 1 else "",
        upper.dots(x, together, texts) if k <= 40 else "",
        lower.y_axis(heights, shares(heights), "each"),
        bars(lower, share, texts),
        lower.x_axis(*_counts(k), "component"),
    ]
    if reached:
        place = f"{upper.right(reached):.1f}"
        parts.append(element("line", x1=place, x2=place, y1=upper.up(MARK), y2=upper.box[3], class_="mark"))
    said = f"90% by component {reached}" if reached else f"all {k} explain {percent(float(together[-1]))}"
    return svg(*parts, label=f"Share of the variance of {k} components; {said}.", height=HEIGHT + 20)


def certificates(values: Array, tolerance: float | None, prefix: str = "PC", title: str = "certificate") -> Html:
    """Draw the certificate or estimate of each component, as `title` says, on a logarithmic axis."""
    known = np.isfinite(values) & (values > 0)
    logs = np.log10(values[known]) if known.any() else np.array([0.0])
    shown = [*logs, *([math.log10(tolerance)] if tolerance else [])]
    low, high = math.floor(min(shown) - 0.2), math.ceil(max(shown) + 0.2)
    frame = Frame((0.4, len(values) + 0.6), (low, high), (LEFT, TOP, WIDTH - RIGHT, HEIGHT + 20 - BOTTOM))
    step = max(1, math.ceil((high - low) / 6))
    powers = list(range(low, high + 1, step))
    x = np.arange(1, len(values) + 1)[known]
    texts = [f"{prefix}{i}: {number(v, 2)}" for i, v in zip(x, values[known], strict=True)]
    stems = "".join(
        f"M{a:.1f} {frame.box[3]}V{b:.1f}" for a, b in zip(frame.right(x), frame.up(logs[: len(x)]), strict=True)
    )
    parts = [
        frame.y_axis(powers, [_power(p) for p in powers], title),
        element("path", d=stems, class_="stem"),
        frame.dots(x, logs[: len(x)], texts) if len(x) <= 400 else "",
        frame.x_axis(*_counts(len(values)), "component"),
    ]
    if tolerance:
        parts.append(frame.across(math.log10(tolerance), f"asked for: {number(tolerance, 1)}"))
    label = f"{title.capitalize()} of each component, on a logarithmic axis."
    return svg(*parts, label=label, height=HEIGHT + 20)


def _power(exponent: int) -> str:
    if -4 < exponent < 4:
        return f"{10.0**exponent:g}"
    # Superscripts as characters: they need no markup inside a text.
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def left_out(share: Array) -> Html:
    """Draw J(m) / J(0) = 1 - (lambda_1 + ... + lambda_m) / total for m = 0 .. k."""
    rest = np.clip(1 - np.concatenate([[0.0], np.cumsum(share)]), 0, 1)
    k = len(share)
    frame = Frame((0, max(k, 1)), (0, 1), (LEFT, TOP, WIDTH - RIGHT, HEIGHT + 20 - BOTTOM))
    m = np.arange(k + 1)
    area = f"M{frame.right(0):.1f} {frame.box[3]}" + "".join(
        f"L{a:.1f} {b:.1f}" for a, b in zip(frame.right(m), frame.up(rest), strict=True)
    )
    marks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    texts = [f"{i} components leave {percent(r)}" for i, r in enumerate(rest)]
    return svg(
        frame.y_axis(marks, [f"{100 * t:.0f}%" for t in marks], "J(m) / J(0)"),
        element("path", d=f"{area}V{frame.box[3]}Z", class_="area"),
        frame.line(m, rest),
        frame.dots(m, rest, texts) if k <= 40 else "",
        frame.across(1 - MARK, "10%", below=True),
        frame.x_axis(*_counts(k, 0), "components kept, m"),
        label=f"Variance left out by the first m components; {k} leave {percent(float(rest[-1]))}.",
        height=HEIGHT + 20,
    )


def curve(
    x: Array, y: Array, x_name: str, y_name: str, *, chosen: float | None = None, deviation: Array | None = None
) -> Html:
    """Draw a course of values, with the one chosen marked, and a band of a standard deviation either way."""
    known = np.isfinite(y)
    wide = np.zeros_like(y) if deviation is None else np.nan_to_num(deviation)
    x, y, wide = x[known], y[known], wide[known]
    if not len(y):
        return Html("")
    low, high = float((y - wide).min()), float((y + wide).max())
    # Not less than digits can tell: a course that does not move is a line in the middle.
    pad = 0.06 * (high - low) or max(abs(high), 1e-12) * 1e-9
    levels = ticks(low - pad, high + pad, 4)
    labels = [f"{t:,.{_decimals(levels)}f}".replace("-", "−") for t in levels]
    left = max(LEFT, 26 + 6.4 * max(map(len, labels), default=0))
    first, last = float(x.min()), float(x.max())
    frame = Frame(
        (first, last if last > first else first + 1),
        (low - pad, high + pad),
        (left, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
    )
    whole = [t for t in ticks(*frame.x, 6) if t == int(t)]
    texts = [f"{number(float(a))}: {b:.8g}" for a, b in zip(x, y, strict=True)]
    parts = [
        frame.y_axis(levels, labels, y_name),
        frame.line(x, y) if len(x) > 1 else "",
        frame.dots(x, y, texts) if len(x) <= 60 else "",
        frame.x_axis(whole, [f"{int(t):,}" for t in whole], x_name),
    ]
    if deviation is not None and len(x) > 1:
        places = zip(np.concatenate([x, x[::-1]]), np.concatenate([y + wide, (y - wide)[::-1]]), strict=True)
        band = " ".join(f"{frame.right(a):.1f},{frame.up(b):.1f}" for a, b in places)
        parts.insert(1, element("polygon", points=band, class_="area"))
    if chosen is not None and (x == chosen).any():
        at = int(np.flatnonzero(x == chosen)[0])
        parts.append(frame.dots(x[at : at + 1], y[at : at + 1], [texts[at]], "dot chosen"))
    return svg(*parts, label=f"{y_name} by {x_name}.")


def _decimals(levels: Sequence[float]) -> int:
    step = levels[1] - levels[0] if len(levels) > 1 else 1.0
    return max(0, min(10, -math.floor(math.log10(abs(step) or 1.0) + 1e-9)))


def histogram(counts: Array, of: int, x_name: str, y_name: str) -> Html:
    """Draw how many counts, as shares of a whole, lie in each of up to forty ranges; many by log10(1 + number)."""
    most = max(1, int(counts.max(initial=0)))
    # Counts are whole: each has a bar of its own, or as many as the next.
    step = -(-(most + 1) // 40)
    n_bins = most // step + 1
    heights, texts = np.bincount(counts.astype(np.int64) // step, minlength=n_bins), []
    for i, height in enumerate(heights.tolist()):
        first, last = i * step, min(most, (i + 1) * step - 1)
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        texts.append(f"{span} missing ({percent(last / of)}): {height:,} {y_name}")
    highest = int(heights.max(initial=0))
    if highest > 50:
        marks = [0, *(10**p for p in range(1, len(str(highest))))]
        tall, levels = np.log10(1 + heights), [math.log10(1 + m) for m in marks]
    else:
        marks = [int(t) for t in ticks(0, highest, 4) if t == int(t)]
        tall, levels = heights.astype(np.float64), [float(m) for m in marks]
    frame = Frame((-0.5, n_bins - 0.5), (0.0, float(tall.max(initial=1.0)) * 1.05))
    at = ticks(0, most / of, 4)
    return svg(
        frame.y_axis(levels, [f"{m:,}" for m in marks], y_name),
        bars(frame, tall, texts, first=0.0),
        frame.x_axis([t * of / step - 0.5 + 0.5 / step for t in at], shares(at), x_name),
        label=f"How many {y_name} have which {x_name}; at most {percent(most / of)}.",
    )
