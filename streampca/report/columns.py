"""What is known of samples beside their scores: columns of a table, and labels that the result itself carries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.report.markup import Html, payload

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table


# Kinds that a column may have at all; and those that have a look of their own, in the script.
MOST_KINDS, MOST_LOOKS = 1000, 48
# Of more samples than this, numbers are kept to one part in 65,534.
EXACT_SAMPLES = 20_000
MISSING = 65_535
MOST_COLUMNS = 40


@dataclass(frozen=True)
class Column:
    """One column in the order of the samples.

    Attributes
    ----------
    name : as it is shown.
    values : (n,) float64, NaN where missing; or codes, of which 0 is missing, for text.
    kinds : the texts that codes from 1 stand for; None for numbers.
    time : numbers are milliseconds since 1970.
    """

    name: str
    values: Array
    kinds: tuple[str, ...] | None = None
    time: bool = False

    def packed(self, where: str) -> tuple[dict[str, Any], Html]:
        """Return what a script needs to know, and the values as an element of this id."""
        facts: dict[str, Any] = {"name": self.name, "id": where}
        if self.kinds is not None:
            wide = len(self.kinds) > 255
            counts = np.bincount(self.values, minlength=len(self.kinds) + 1)
            facts |= {"kinds": list(self.kinds), "counts": counts.tolist(), "form": "u16" if wide else "u8"}
            return facts, payload(where, self.values.astype("<u2" if wide else "u1").tobytes())
        low, high = float(np.nanmin(self.values)), float(np.nanmax(self.values))
        facts |= {"low": low, "high": high, "time": self.time}
        if len(self.values) <= EXACT_SAMPLES:
            return facts | {"form": "f64"}, payload(where, self.values.astype("<f8").tobytes())
        return facts | {"form": "u16"}, payload(where, quantised(self.values, low, high).tobytes())


def quantised(values: Array, low: float, high: float) -> Array:
    """Return values from low to high as 0 .. 65,534 (uint16), and what is no number as 65,535."""
    span = (high - low) or 1.0
    with np.errstate(invalid="ignore"):
        steps = np.rint((values.astype(np.float64) - low) * ((MISSING - 1) / span))
    return np.where(np.isfinite(steps), steps, MISSING).astype("<u2")


def columns_of(result: xarray.Dataset, table: Table | None, n_samples: int) -> tuple[list[Column], list[str]]:
    """Return the columns that samples may be coloured by, those of the table first; and why others are left out."""
    found: dict[str, tuple[Array, bool]] = {}
    for name, values in (table.columns if table is not None else {}).items():
        found[name] = (np.asarray(values), values.dtype.kind == "M")
    for name, values in _own(result).items():
        shown = name if name not in found else f"{name} (result)"
        found[shown] = (values, values.dtype.kind == "M")
    columns: list[Column] = []
    left: list[str] = []
    for name, (values, time) in found.items():
        if len(values) != n_samples:
            continue
        column = _column(name, values, time)
        if isinstance(column, Column) and len(columns) < MOST_COLUMNS:
            columns.append(column)
        else:
            left.append(f"{name} ({column})" if isinstance(column, str) else name)
    return columns, left


def first_colour(columns: list[Column], table: Table | None, wanted: str | None) -> str | None:
    """Return the column to colour by at first: that wanted, the last label of the table, or whatever there is."""
    if wanted in {c.name for c in columns}:
        return wanted
    of_table = set(table.columns) if table is not None else set()
    labels = [c.name for c in columns if c.kinds is not None and len(c.kinds) <= MOST_LOOKS]
    named = [name for name in labels if name in of_table]
    if named:
        return named[-1]
    numbers = [c.name for c in columns if c.kinds is None]
    return next(iter([*labels, *numbers]), None)


def _own(result: xarray.Dataset) -> dict[str, Array]:
    """Return what a result says of each of its samples, but for their ids."""
    dims = [dim for dim in result["scores"].dims if dim != "component"]
    sizes = {dim: result.sizes[dim] for dim in dims}
    ids = {"iid", *(str(d) for d in dims if d in result.coords and result[d].dtype.kind in "OTUS")}
    names = [name for name in result.coords if str(name) not in ids and result[name].dims]
    names += [name for name in ("sample_missing", "outlier") if name in result and name not in result.coords]
    found: dict[str, Array] = {}
    for name in names:
        variable = result[name]
        if not set(variable.dims) <= set(dims):
            continue
        # Of samples of several dimensions, a label along one of them stands for all places along the others.
        own = variable.transpose(*(dim for dim in dims if dim in variable.dims)).values
        shape = [size if dim in variable.dims else 1 for dim, size in sizes.items()]
        values = np.broadcast_to(own.reshape(shape), list(sizes.values())).reshape(-1)
        if name == "sample_missing":
            found["share missing"] = values / max(1, int(result.attrs.get("n_features", 1)))
        elif name == "outlier":
            found["outlier"] = np.where(values.astype(bool), "outlier", "no outlier").astype(object)
        else:
            found[str(name)] = values
    return found


def _column(name: str, values: Array, time: bool) -> Column | str:
    """Return a column, or why there is none."""
    kind = values.dtype.kind
    if time:
        amounts = values.astype("datetime64[ms]").astype(np.float64)
        amounts[np.isnat(values)] = np.nan
    elif kind in "iuf":
        amounts = values.astype(np.float64)
    else:
        return _labels(name, [str(text) for text in values.tolist()])
    amounts = np.where(np.isfinite(amounts), amounts, np.nan)
    if not np.isfinite(amounts).any():
        return "no values"
    if np.nanmin(amounts) == np.nanmax(amounts):
        return "the same for all"
    return Column(name, amounts, time=time)


def _labels(name: str, texts: list[str]) -> Column | str:
    counts = Counter(texts)
    missing = counts.pop("", 0)
    if not counts:
        return "no values"
    if len(counts) == 1 and not missing:
        return "the same for all"
    if len(counts) > max(2, min(MOST_KINDS, len(texts) // 2)):
        return f"{len(counts):,} different texts"
    # Those that have looks of their own are the frequent ones, in the order of their names.
    frequent = [kind for kind, _ in counts.most_common(MOST_LOOKS)]
    kinds = [*sorted(frequent), *(kind for kind, _ in counts.most_common()[MOST_LOOKS:])]
    code = {kind: i for i, kind in enumerate(kinds, start=1)} | {"": 0}
    return Column(name, np.array([code[text] for text in texts], np.uint16), tuple(kinds))
