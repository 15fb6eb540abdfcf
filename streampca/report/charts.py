"""Charts and tables as plain data: the page draws charts as SVG, and `printing` with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streampca._typing import Array
from streampca.report.loadings import Loadings
from streampca.results.wording import number, percent

MARK = 0.9  # share of the variance that is marked in the scree and in J(m)
MAX_TITLED_BARS = 100  # more bars are one shape, without a text each
MAX_TITLED_DOTS = 60  # longer curves have no dots
MAX_LABELLED_BARS = 30  # features in a bar chart of loadings
WIDE = 900

Ticks = list[tuple[float, str]]


@dataclass(frozen=True)
class Axis:
    """Range, title and ticks of an axis. A logarithmic axis is given as log10, with the powers as tick labels."""

    low: float
    high: float
    title: str = ""
    ticks: Ticks = field(default_factory=list)


@dataclass(frozen=True)
class Mark:
    """Marks of one shape, in the coordinates of the axes.

    Attributes
    ----------
    shape : "bars" (up from the axis), "rows" (bars to the right or left of x = 0), "line", "dots", "points" (many
        dots), "area" (between y and base), "stems" (up from the axis) or "rule" (across, at y).
    texts : one for each bar or dot, shown on hover, or none for many bars; of a rule, its label.
    style : "" or a variant: "chosen" (dots), "mark" (stems), "even" (points), "below" (label of a rule).
    """

    shape: str
    x: Array
    y: Array
    texts: Sequence[str] = ()
    style: str = ""
    base: Array | None = None


@dataclass(frozen=True)
class Panel:
    """A pair of axes with its marks."""

    x: Axis
    y: Axis
    marks: list[Mark]


@dataclass(frozen=True)
class Chart:
    """Panels below each other; `label` describes them in words."""

    label: str
    panels: list[Panel]
    width: int = 400
    height: int = 290


@dataclass(frozen=True)
class Figure:
    """A chart with its title and caption."""

    title: str
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Table:
    """Heads and rows of text; the first cell of a row is its head."""

    heads: list[str]
    rows: list[list[str]]
    note: str = ""

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[str]], note: str = "", most: int | None = None) -> Table:
        """Return a table of columns by their heads, with at most `most` rows."""
        return cls(list(columns), [list(row) for row in zip(*columns.values(), strict=True)][:most], note)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _labelled(places: Sequence[float], text: Callable[[float], str]) -> Ticks:
    return [(place, text(place)) for place in places]


def _share(value: float) -> str:
    return f"{round(100 * value, 10):g}%" if value else "0"


def _decimal(places: Sequence[float]) -> Ticks:
    """Label places with as many decimals as their distance needs."""
    step = places[1] - places[0] if len(places) > 1 else 1.0
    decimals = max(0, min(10, -math.floor(math.log10(abs(step) or 1.0) + 1e-9)))
    return _labelled(places, lambda t: f"{t:,.{decimals}f}".replace("-", "\u2212"))


def _whole(low: float, high: float, count: int = 8) -> Ticks:
    """Return ticks at whole numbers."""
    return _labelled([t for t in ticks(low, high, count) if t == int(t)], lambda t: f"{int(t):,}")


def _component_ticks(k: int) -> Ticks:
    """Return whole numbers from 1 to k, with 1 among them unless the next is too near."""
    places = [(1.0, "1"), *((place, text) for place, text in _whole(0, k) if place > 1)]
    return places[1:] if len(places) > 1 and places[1][0] - 1 < k / 16 else places


def _power(exponent: float) -> str:
    if -4 < exponent < 4:
        return f"{10.0**exponent:g}"
    # Superscript characters need no markup.
    return "10" + f"{exponent:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def scree(share: Array, prefix: str = "PC", edge: float | None = None, p_value: Array | None = None) -> Chart:
    """Describe the cumulative share of the variance, where it reaches 90%, and below it the individual shares.

    Where the noise ends is marked among the individual shares if it is known, in place of 90% if that is not reached.
    """
    k, cumulative = len(share), np.cumsum(share)
    x = np.arange(1, k + 1)
    top = 1.06 * (float(np.nanmax(share, initial=edge or 0.0)) or 1.0)
    p_texts = [""] * k if p_value is None else [f", p = {number(p, 2)}" for p in p_value]
    texts = [f"{prefix}{i + 1}: {percent(share[i])}, cumulative {percent(cumulative[i])}{p_texts[i]}" for i in range(k)]
    reached = int(np.argmax(cumulative >= MARK)) + 1 if (cumulative >= MARK).any() else 0
    label, place = (f"90% by {prefix}{reached}", "below") if reached else ("90%", "")
    upper = [*([_rule(MARK, label, place)] if reached or edge is None else []), Mark("line", x, cumulative)]
    lower = [Mark("bars", x, share, texts if k <= MAX_TITLED_BARS else [])]
    lower += [] if edge is None else [_rule(edge, "edge of noise")]
    if k <= MAX_TITLED_DOTS:
        upper.append(Mark("dots", x, cumulative, texts))
    if reached:
        upper.append(Mark("stems", np.array([reached]), np.array([MARK]), style="mark"))
    halves = [(0.0, "0"), (0.25, ""), (0.5, "50%"), (0.75, ""), (1.0, "100%")]
    across = Axis(0.4, k + 0.6, "component", _component_ticks(k))
    summary = f"90% by component {reached}" if reached else f"all {k} explain {percent(float(cumulative[-1]))}"
    return Chart(
        f"Share of the variance of {k} components; {summary}.",
        [
            Panel(replace(across, title="", ticks=[]), Axis(0.0, 1.0, "cumulative share", halves), upper),
            Panel(across, Axis(0.0, top, "individual share", _labelled(ticks(0, top, 4), _share)), lower),
        ],
    )


def _rule(y: float, label: str, style: str = "") -> Mark:
    return Mark("rule", np.empty(0), np.array([y]), [label], style)


def certificates(values: Array, tolerance: float | None, prefix: str = "PC", title: str = "certificate") -> Chart:
    """Describe the certificate or estimate of each component on a logarithmic axis."""
    known = np.isfinite(values) & (values > 0)
    x, logs = np.arange(1, len(values) + 1)[known], np.log10(values[known])
    limits = [*logs, *([math.log10(tolerance)] if tolerance else [])] or [0.0]
    low, high = math.floor(min(limits) - 0.2), math.ceil(max(limits) + 0.2)
    powers = list(range(low, high + 1, max(1, math.ceil((high - low) / 6))))
    texts = [f"{prefix}{i}: {number(v, 2)}" for i, v in zip(x, values[known], strict=True)]
    marks = [Mark("stems", x, logs), Mark("dots", x, logs, texts)]
    if tolerance:
        marks.append(_rule(math.log10(tolerance), f"tol = {number(tolerance, 1)}"))
    across = Axis(0.4, len(values) + 0.6, "component", _component_ticks(len(values)))
    up = Axis(low, high, title, _labelled(powers, _power))
    return Chart(
        f"{title[:1].upper()}{title[1:]} of each component, on a logarithmic axis.", [Panel(across, up, marks)]
    )


def reconstruction_error(share: Array) -> Chart:
    """Describe J(m) / J(0) = 1 - (lambda_1 + ... + lambda_m) / total for m = 0 .. k."""
    rest = np.clip(1 - np.concatenate([[0.0], np.cumsum(share)]), 0, 1)
    k, m = len(share), np.arange(len(share) + 1)
    marks = [
        Mark("area", m, rest, base=np.zeros(k + 1)),
        Mark("line", m, rest),
        _rule(1 - MARK, "10%", "below" if rest[-1] > 1 - MARK else ""),
    ]
    if k <= MAX_TITLED_DOTS:
        marks.append(Mark("dots", m, rest, [f"{i} components leave {percent(r)}" for i, r in enumerate(rest)]))
    across = Axis(0, max(k, 1), "components kept, m", _whole(0, k))
    up = Axis(0, 1, "J(m) / J(0)", _labelled([0, 0.2, 0.4, 0.6, 0.8, 1], lambda t: f"{100 * t:.0f}%"))
    label = f"Reconstruction error of the first m components; {k} leave {percent(float(rest[-1]))}."
    return Chart(label, [Panel(across, up, marks)])


def curve(
    title: str, caption: str, x: Array, y: Array, x_title: str, y_title: str, *, chosen: float | None = None,
    deviation: Array | None = None,
) -> Figure | None:  # fmt: skip
    """Return y against x, with the chosen point and a band of one standard deviation; None without finite values."""
    known = np.isfinite(y)
    band = np.zeros_like(y) if deviation is None else np.nan_to_num(deviation)
    x, y, band = x[known], y[known], band[known]
    if not len(y):
        return None
    low, high = float((y - band).min()), float((y + band).max())
    # A constant is a line in the middle.
    pad = 0.06 * (high - low) or max(abs(high), 1e-12) * 1e-9
    up = Axis(low - pad, high + pad, y_title, _decimal(ticks(low - pad, high + pad, 4)))
    first, last = float(x.min()), float(x.max())
    across = Axis(first, max(last, first + 1), x_title, _whole(first, max(last, first + 1), 6))
    texts = [f"{number(float(a))}: {b:.8g}" for a, b in zip(x, y, strict=True)]
    marks = [Mark("line", x, y)]
    if deviation is not None:
        marks.insert(0, Mark("area", x, y + band, base=y - band))
    if len(x) <= MAX_TITLED_DOTS:
        marks.append(Mark("dots", x, y, texts))
    marks += [Mark("dots", x[i : i + 1], y[i : i + 1], [texts[i]], "chosen") for i in np.flatnonzero(x == chosen)]
    return Figure(title, caption, Chart(f"{y_title} by {x_title}.", [Panel(across, up, marks)]))


def histogram(counts: Array, total: int, x_title: str, y_title: str) -> Chart:
    """Describe the distribution of counts as shares of `total`, in up to 40 bins; tall ones as log10(1 + height)."""
    largest = max(1, int(counts.max(initial=0)))
    step = -(-(largest + 1) // 40)
    heights = np.bincount(counts.astype(np.int64) // step, minlength=largest // step + 1)
    texts = []
    for i, height in enumerate(heights.tolist()):
        first, last = i * step, min(largest, (i + 1) * step - 1)
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        texts.append(f"{span} missing ({percent(last / total)}): {height:,} {y_title}")
    highest = int(heights.max(initial=0))
    levels: Ticks
    if highest > 50:
        shown = np.log10(1 + heights)
        levels = [(math.log10(1 + m), f"{m:,}") for m in (0, *(10**p for p in range(1, len(str(highest)))))]
    else:
        shown, levels = heights.astype(np.float64), _whole(0, highest, 4)
    places = [(t * total / step - 0.5 + 0.5 / step, _share(t)) for t in ticks(0, largest / total, 4)]
    across = Axis(-0.5, len(heights) - 0.5, x_title, places)
    up = Axis(0.0, 1.05 * float(shown.max(initial=1.0)), y_title, levels)
    label = f"Number of {y_title} by {x_title}; at most {percent(largest / total)}."
    return Chart(label, [Panel(across, up, [Mark("bars", np.arange(len(heights)), shown, texts)])])


def loadings_chart(loadings: Loadings, component: int, name: str) -> Chart:
    """Describe the loadings of a component: along the genome, along a coordinate, or as bars with names."""
    which, values = loadings.picks[component]
    if loadings.form == "bars":
        return _loading_bars(loadings, which, values, name)
    x = loadings.x[which]
    if loadings.form == "genome":
        y, low, title = np.abs(values), 0.0, f"|loading on {name}| / RMS"
        ends = np.searchsorted(x, [end + 1e-5 for _, _, end in loadings.chromosomes])
        parts = zip([0, *ends[:-1]], ends, strict=True)
        marks = [Mark("points", x[a:b], y[a:b], style="even" if i % 2 else "") for i, (a, b) in enumerate(parts)]
        across = Axis(0, 1, "chromosome", _chromosome_ticks(loadings.chromosomes))
    else:
        y, low, title = values, 1.06 * min(0.0, float(values.min())), f"loading on {name} / RMS"
        first, last = loadings.span or (0.0, 1.0)
        places = [((t - first) / ((last - first) or 1.0), text) for t, text in _decimal(ticks(first, last, 7))]
        across, marks = Axis(0, 1, loadings.axis, places), [Mark("line", x, y)]
    high = 1.06 * max(0.0, float(y.max())) or 1.0
    label = f"Loadings on {name} along the {'genome' if loadings.form == 'genome' else 'features'}."
    return Chart(label, [Panel(across, Axis(low, high, title, _decimal(ticks(low, high, 4))), marks)], WIDE, 300)


def _chromosome_ticks(chromosomes: Sequence[tuple[str, float, float]]) -> Ticks:
    """Return names at the middle of chromosomes, without overlaps."""
    places: Ticks = []
    for name, start, end in chromosomes:
        middle = (start + end) / 2
        if not places or (middle - places[-1][0]) * WIDE > 8 + 7 * len(name):
            places.append((middle, name))
    return places


def _loading_bars(loadings: Loadings, which: Array, values: Array, name: str) -> Chart:
    """Describe bars in the order of the features if all are shown and few, else the largest first."""
    order = np.arange(len(values))
    if len(values) > 20 or not loadings.complete:
        order = np.argsort(-np.abs(values), kind="stable")[:MAX_LABELLED_BARS]
    names, shown = [loadings.labels[int(which[i])] for i in order], values[order]
    y = -np.arange(len(order), dtype=np.float64)
    limit = 1.05 * float(np.abs(shown).max(initial=0.0)) or 1.0
    texts = [f"{label}: {value:+.2f}".replace("-", "\u2212") for label, value in zip(names, shown, strict=True)]
    across = Axis(-limit, limit, f"loading on {name} / RMS", _decimal(ticks(-limit, limit, 6)))
    up = Axis(y[-1] - 0.5, 0.5, "", list(zip(y.tolist(), names, strict=True)))
    panel = Panel(across, up, [Mark("rows", shown, y, texts)])
    return Chart(f"The largest loadings on {name}.", [panel], WIDE, 60 + 19 * len(order))
