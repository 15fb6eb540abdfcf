"""Loadings along the genome, along a coordinate, or feature by feature: what a page draws of many numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array

if TYPE_CHECKING:
    import xarray


# Ranges along the axis, of each of which the largest loading is shown; components; the largest, which are named.
BINS, MOST_COMPONENTS, NAMED = 1500, 30, 20
# Features that all have a bar of their own.
BARS = 60
# Features in memory at a time.
BLOCK = 1 << 17
GAP = 0.004


@dataclass(frozen=True)
class Loadings:
    """The features that a page shows, and their loadings.

    Attributes
    ----------
    form : "genome", "line" or "bars".
    labels : of the features shown.
    x : (shown,) their places from 0 to 1.
    picks : of each component which of the features, and their loadings.
    chromosomes : names and places where they begin and end, of genomes.
    span : least and largest coordinate, of lines.
    axis : name of that coordinate.
    whole : all features are shown.
    """

    form: str
    labels: list[str]
    x: Array
    picks: list[tuple[Array, Array]]
    chromosomes: list[tuple[str, float, float]]
    span: tuple[float, float] | None = None
    axis: str = ""
    whole: bool = False

    def facts(self) -> dict[str, Any]:
        """Return all this for a script."""
        return {
            "form": self.form,
            "labels": self.labels,
            "x": np.round(self.x, 5).tolist(),
            "chromosomes": [list(c) for c in self.chromosomes],
            "picks": [[i.tolist(), [float(f"{v:.5g}") for v in values.tolist()]] for i, values in self.picks],
            "span": self.span,
            "axis": self.axis,
            "whole": self.whole,
        }

    def top(self, component: int, count: int = 10) -> list[tuple[str, float]]:
        """Return the features with the largest loadings of a component."""
        where, values = self.picks[component]
        order = np.argsort(-np.abs(values), kind="stable")[:count]
        return [(self.labels[int(where[i])], float(values[i])) for i in order]


def loadings_of(result: xarray.Dataset) -> Loadings | None:
    """Return the loadings that a page shows, as multiples of their root mean square; None if there are none."""
    if "components" not in result or "component" not in result["components"].dims:
        return None
    components = result["components"].transpose("component", ...)
    dims = components.dims[1:]
    count = min(components.shape[0], MOST_COMPONENTS)
    if not dims:
        return None
    if len(dims) > 1:
        components = components.stack(_feature=dims)
    size = components.shape[1]
    genome = {"chromosome", "position"} <= set(result.coords) and result["chromosome"].dims == dims
    span: tuple[float, float] | None = None
    chromosomes: list[tuple[str, float, float]] = []
    axis = str(dims[0]) if len(dims) == 1 else ""
    if genome:
        x, chromosomes = _genome(result)
        form = "genome"
    else:
        x, span = _along(result, dims, size)
        form = "bars" if span is None or size <= BARS else "line"
    if form == "bars" and size <= BARS:
        x = (np.arange(size) + 0.5) / size
    found = _largest(components, x, count, 0 if form == "bars" and size > BARS else min(BINS, size))
    shown = np.unique(np.concatenate([where for where, _ in found]))
    picks = [(np.searchsorted(shown, where), values) for where, values in found]
    labels = _variants(result, shown) if genome else _names(result, dims, shown)
    return Loadings(form, labels, x[shown], picks, chromosomes, span, axis, len(shown) == size)


def _blocks(components: Any, count: int) -> Iterator[tuple[int, Array]]:
    for start in range(0, components.shape[1], BLOCK):
        yield start, np.asarray(components[:count, start : start + BLOCK].values, np.float64)


def _largest(components: Any, x: Array, count: int, bins: int) -> list[tuple[Array, Array]]:
    """Return of each component which features to show, and their loadings by their root mean square.

    The largest in each bin, and the largest of all. One pass over the components, some features at a time.
    """
    size = components.shape[1]
    place = np.minimum((x * bins).astype(np.int64), bins - 1) if bins else None
    best, which = np.zeros((count, max(bins, 1))), np.full((count, max(bins, 1)), -1, np.int64)
    tops: list[tuple[Array, Array]] = [(np.empty(0, np.int64), np.empty(0))] * count
    squares = np.zeros(count)
    for start, block in _blocks(components, count):
        block = np.where(np.isfinite(block), block, 0.0)
        squares += (block**2).sum(axis=1)
        if place is not None:
            _largest_of_bins(block, place[start : start + block.shape[1]], start, best, which)
        for i, values in enumerate(block):
            most = np.argpartition(-np.abs(values), min(NAMED, len(values) - 1))[:NAMED]
            where = np.concatenate([tops[i][0], start + most])
            all_values = np.concatenate([tops[i][1], values[most]])
            kept = np.argsort(-np.abs(all_values), kind="stable")[:NAMED]
            tops[i] = where[kept], all_values[kept]
    rms = np.sqrt(squares / max(size, 1))
    found = []
    for i in range(count):
        there = which[i] >= 0
        where, first = np.unique(np.concatenate([which[i][there], tops[i][0]]), return_index=True)
        found.append((where, np.concatenate([best[i][there], tops[i][1]])[first] / (rms[i] or 1.0)))
    return found


def _largest_of_bins(block: Array, place: Array, start: int, best: Array, which: Array) -> None:
    """Put the largest of each bin, with its sign, into best, and which feature it is, if it is larger than so far."""
    order = np.argsort(place, kind="stable")
    bins, starts = np.unique(place[order], return_index=True)
    values = block[:, order]
    heights = np.abs(values)
    tops = np.maximum.reduceat(heights, starts, axis=1)
    run = np.repeat(np.arange(len(bins)), np.diff(starts, append=len(order)))
    for i in range(len(block)):
        # Of several that are as large, the first.
        highest = np.flatnonzero(heights[i] == tops[i][run])
        at = highest[np.unique(run[highest], return_index=True)[1]]
        larger = (tops[i] > np.abs(best[i, bins])) | (which[i, bins] < 0)
        best[i, bins[larger]] = values[i, at[larger]]
        which[i, bins[larger]] = start + order[at[larger]]


def _natural(name: str) -> tuple[int, int, str]:
    """Return a key that puts 2 before 10, and both before X, Y and MT."""
    plain = re.sub("^chr", "", name, flags=re.IGNORECASE)
    if plain.isdigit():
        return 0, int(plain), ""
    return 1, {"X": 0, "Y": 1, "XY": 2, "MT": 3, "M": 3}.get(plain.upper(), 4), plain


def _genome(result: xarray.Dataset) -> tuple[Array, list[tuple[str, float, float]]]:
    """Return the place of each variant along the genome from 0 to 1, and where chromosomes begin and end."""
    positions = result["position"].values.astype(np.float64)
    code: dict[str, int] = {}
    codes = np.empty(len(positions), np.int32)
    for start in range(0, len(positions), BLOCK):
        names = result["chromosome"][start : start + BLOCK].values.tolist()
        codes[start : start + len(names)] = [code.setdefault(str(name), len(code)) for name in names]
    order = sorted(code, key=_natural)
    lengths = np.array([max(1.0, float(positions[codes == code[name]].max())) for name in order])
    lengths /= lengths.sum()
    wide = lengths * (1 - GAP * (len(order) - 1)) if len(order) < 100 else lengths
    gap = GAP if len(order) < 100 else 0.0
    starts = np.concatenate([[0.0], np.cumsum(wide + gap)[:-1]])
    x = np.empty(len(positions))
    for name, start, width in zip(order, starts, wide, strict=True):
        here = codes == code[name]
        # Variants without a position stand in their order.
        at = positions[here] if positions[here].any() else np.arange(1, here.sum() + 1, dtype=float)
        x[here] = start + width * np.clip(at / at.max(), 0, 1)
    ends = zip(order, starts.tolist(), (starts + wide).tolist(), strict=True)
    return x, [(name, round(a, 5), round(b, 5)) for name, a, b in ends]


def _variants(result: xarray.Dataset, shown: Array) -> list[str]:
    """Return what a variant is called, where it is, and its alleles."""
    names = ("variant_id", "chromosome", "position", "allele_1", "allele_2")
    columns = [[str(v) for v in result[name][shown].values.tolist()] for name in names if name in result]
    if len(columns) < len(names):
        return [" ".join(cells) for cells in zip(*columns, strict=True)]
    return [f"{v}  {c}:{int(p):,}  {a}/{b}" for v, c, p, a, b in zip(*columns, strict=True)]


def _along(result: xarray.Dataset, dims: tuple[Any, ...], size: int) -> tuple[Array, tuple[float, float] | None]:
    """Return places from 0 to 1 along the coordinate of the features, and its range; by their order if it has none."""
    even = (np.arange(size) + 0.5) / size
    coordinate = result[dims[0]].values if len(dims) == 1 and dims[0] in result.coords else None
    if coordinate is None:
        return even, (0.0, size - 1.0) if len(dims) == 1 and not _texts(result, dims[0]) else None
    if coordinate.dtype.kind not in "iuf" or not np.isfinite(coordinate).all() or np.ptp(coordinate) == 0:
        return even, None
    low, high = float(coordinate.min()), float(coordinate.max())
    return (coordinate - low) / (high - low), (low, high)


def _texts(result: xarray.Dataset, dim: Any) -> list[str]:
    """Return coordinates of texts along a dimension."""
    return [str(n) for n, c in result.coords.items() if c.dims == (dim,) and c.dtype.kind in "OTUS"]


def _names(result: xarray.Dataset, dims: tuple[Any, ...], shown: Array) -> list[str]:
    """Return what the features shown are called."""
    places = np.unravel_index(shown, [result.sizes[dim] for dim in dims])
    parts = []
    for dim, at in zip(dims, places, strict=True):
        own = [str(dim)] if dim in result.coords else _texts(result, dim)
        if own:
            values = result[own[0]].values[at]
            texts = np.datetime_as_string(values, unit="auto") if values.dtype.kind == "M" else values
            named = f"{dim} " if len(dims) > 1 else ""
            parts.append([f"{named}{t:g}" if isinstance(t, float) else f"{named}{t}" for t in texts.tolist()])
        else:
            parts.append([f"{dim} {i}" for i in at.tolist()])
    return [", ".join(cells) for cells in zip(*parts, strict=True)]
