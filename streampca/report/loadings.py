"""Select the loadings to draw: along the genome, along a coordinate, or by feature."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from streampca._typing import Array

if TYPE_CHECKING:
    import xarray

BINS = 1500  # bins along the axis; the largest loading of each is shown
MAX_COMPONENTS = 30
NAMED = 20  # largest loadings of a component, always shown
MAX_BARS = 60  # up to this many features each have a bar
BLOCK = 1 << 17  # features in memory at a time
GAP = 0.004  # between chromosomes
SEX_AND_MT = {"X": 0, "Y": 1, "XY": 2, "MT": 3, "M": 3}


@dataclass(frozen=True)
class Loadings:
    """The features to show and their loadings, as multiples of the root mean square of the component.

    Attributes
    ----------
    form : "genome", "line" or "bars".
    labels : of the features shown.
    x : (shown,) their positions from 0 to 1.
    picks : for each component, indices of the features shown, in the order of x, and their loadings.
    chromosomes : name, start and end of each, for "genome".
    span : smallest and largest coordinate, for "line".
    axis : name of that coordinate.
    complete : whether all features are shown.
    """

    form: str
    labels: list[str]
    x: Array
    picks: list[tuple[Array, Array]]
    chromosomes: list[tuple[str, float, float]]
    span: tuple[float, float] | None = None
    axis: str = ""
    complete: bool = False

    def texts(self) -> dict[str, Any]:
        """Return labels, and for each component the labels and values in the order in which they are drawn."""
        picks = [[which.tolist(), [float(f"{v:.5g}") for v in values.tolist()]] for which, values in self.picks]
        return {"labels": self.labels, "picks": picks}

    def top(self, component: int, count: int = 10) -> list[tuple[str, float]]:
        """Return the features with the largest loadings of a component."""
        which, values = self.picks[component]
        order = np.argsort(-np.abs(values), kind="stable")[:count]
        return [(self.labels[int(which[i])], float(values[i])) for i in order]


def loadings_of(result: xarray.Dataset) -> Loadings | None:
    """Select the loadings of a result to draw; None if it has none."""
    if "components" not in result:
        return None
    given = result["components"]
    rows = [dim for dim in ("cluster", "component") if dim in given.dims]
    dims = tuple(dim for dim in given.dims if dim not in rows)
    components = given.stack(_row=rows, _feature=dims, create_index=False).transpose("_row", "_feature")
    size = components.shape[1]
    span: tuple[float, float] | None = None
    chromosomes: list[tuple[str, float, float]] = []
    genome = {"chromosome", "position"} <= set(result.coords) and result["chromosome"].dims == dims
    if genome:
        form, (x, chromosomes) = "genome", _genome_positions(result)
    else:
        x, span = _positions(result, dims, size)
        form = "line" if span is not None and size > MAX_BARS else "bars"
    n_bins = 0 if form == "bars" and size > MAX_BARS else min(BINS, size)
    picks = _largest(components, x, min(components.shape[0], MAX_COMPONENTS), n_bins)
    shown = np.unique(np.concatenate([which for which, _ in picks]))
    labels = _variant_labels(result, shown) if genome else _feature_labels(result, dims, shown)
    drawn = []
    for which, values in picks:
        order = np.argsort(x[which], kind="stable")
        drawn.append((np.searchsorted(shown, which[order]), values[order]))
    axis = str(dims[0]) if len(dims) == 1 else ""
    return Loadings(form, labels, x[shown], drawn, chromosomes, span, axis, len(shown) == size)


def _largest(components: Any, x: Array, count: int, n_bins: int) -> list[tuple[Array, Array]]:
    """Return, for each component, the largest loading of each bin and the largest of all, over their RMS.

    Reads the components once, a block of features at a time.
    """
    size = components.shape[1]
    bin_of = np.minimum((x * n_bins).astype(np.int64), n_bins - 1)
    kept: list[tuple[Array, Array]] = [(np.empty(0, np.int64), np.empty(0))] * count
    squares = np.zeros(count)
    for start in range(0, size, BLOCK):
        block = np.asarray(components[:count, start : start + BLOCK].values, np.float64)
        block = np.where(np.isfinite(block), block, 0.0)
        squares += (block**2).sum(axis=1)
        stop = start + block.shape[1]
        best = pandas.DataFrame(np.abs(block).T).groupby(bin_of[start:stop]).idxmax().to_numpy() if n_bins else None
        for i, values in enumerate(block):
            largest = np.argpartition(-np.abs(values), min(NAMED, len(values) - 1))[:NAMED]
            here = largest if best is None else np.concatenate([best[:, i], largest])
            features = np.concatenate([kept[i][0], start + here])
            kept[i] = features, np.concatenate([kept[i][1], values[here]])
    rms = np.sqrt(squares / max(size, 1))
    picks = []
    for (features, values), scale in zip(kept, rms, strict=True):
        # Of the candidates of all blocks, those of the whole.
        loadings = pandas.Series(values, features).groupby(level=0).first()
        sizes = loadings.abs()
        of_bins = sizes.groupby(bin_of[sizes.index]).idxmax() if n_bins else ()
        chosen = loadings[sorted({*of_bins, *sizes.nlargest(NAMED).index})]
        picks.append((chosen.index.to_numpy(), chosen.to_numpy() / (scale or 1.0)))
    return picks


def _natural(name: str) -> tuple[int, int, str]:
    """Sort key: 2 before 10, and both before X, Y and MT."""
    plain = re.sub("^chr", "", name, flags=re.IGNORECASE)
    return (0, int(plain), "") if plain.isdigit() else (1, SEX_AND_MT.get(plain.upper(), 4), plain)


def _genome_positions(result: xarray.Dataset) -> tuple[Array, list[tuple[str, float, float]]]:
    """Return the position of each variant along the genome from 0 to 1, and start and end of the chromosomes."""
    positions = result["position"].values.astype(np.float64)
    code: dict[str, int] = {}
    codes = np.empty(len(positions), np.int32)
    for start in range(0, len(positions), BLOCK):
        names = result["chromosome"][start : start + BLOCK].values.tolist()
        codes[start : start + len(names)] = [code.setdefault(str(name), len(code)) for name in names]
    order = sorted(code, key=_natural)
    lengths = np.array([max(1.0, float(positions[codes == code[name]].max())) for name in order])
    gap = GAP if len(order) < 100 else 0.0
    widths = lengths / lengths.sum() * (1 - gap * (len(order) - 1))
    starts = np.concatenate([[0.0], np.cumsum(widths + gap)[:-1]])
    x = np.empty(len(positions))
    for name, start, width in zip(order, starts, widths, strict=True):
        here = codes == code[name]
        # Without positions, variants are spread evenly in their order.
        at = positions[here] if positions[here].any() else np.arange(1, here.sum() + 1, dtype=float)
        x[here] = start + width * np.clip(at / at.max(), 0, 1)
    spans = zip(order, starts.tolist(), (starts + widths).tolist(), strict=True)
    return x, [(name, round(a, 5), round(b, 5)) for name, a, b in spans]


def _variant_labels(result: xarray.Dataset, shown: Array) -> list[str]:
    """Return id, position and alleles of the variants shown."""
    names = ("variant_id", "chromosome", "position", "allele_1", "allele_2")
    columns = [[str(v) for v in result[name][shown].values.tolist()] for name in names if name in result]
    if len(columns) < len(names):
        return [" ".join(cells) for cells in zip(*columns, strict=True)]
    return [f"{v}  {c}:{int(p):,}  {a}/{b}" for v, c, p, a, b in zip(*columns, strict=True)]


def _positions(result: xarray.Dataset, dims: tuple[Any, ...], size: int) -> tuple[Array, tuple[float, float] | None]:
    """Return positions from 0 to 1 along the coordinate of the features, and its range; None for names."""
    even = (np.arange(size) + 0.5) / size
    if len(dims) > 1 or (dims[0] not in result.coords and _text_coordinates(result, dims[0])):
        return even, None
    if dims[0] not in result.coords:
        return even, (0.0, size - 1.0)
    values = result[dims[0]].values
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all() or np.ptp(values) == 0:
        return even, None
    low, high = float(values.min()), float(values.max())
    # A few features are bars at equal distances.
    return even if size <= MAX_BARS else (values - low) / (high - low), (low, high)


def _text_coordinates(result: xarray.Dataset, dim: Any) -> list[str]:
    return [str(n) for n, c in result.coords.items() if c.dims == (dim,) and c.dtype.kind in "OTUS"]


def _feature_labels(result: xarray.Dataset, dims: tuple[Any, ...], shown: Array) -> list[str]:
    """Return the names of the features shown: their coordinates, else dimension and index."""
    indices = np.unravel_index(shown, [result.sizes[dim] for dim in dims])
    parts = []
    for dim, at in zip(dims, indices, strict=True):
        names = [str(dim)] if dim in result.coords else _text_coordinates(result, dim)
        prefix = f"{dim} " if len(dims) > 1 or not names else ""
        values: Array = result[names[0]].values[at] if names else at
        if values.dtype.kind == "M":
            values = np.datetime_as_string(values, unit="auto")
        parts.append([f"{prefix}{v:g}" if isinstance(v, float) else f"{prefix}{v}" for v in values.tolist()])
    return [", ".join(cells) for cells in zip(*parts, strict=True)]
