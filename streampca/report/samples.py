"""The samples as the page stores them: scores to one part in 65,534 of their range, ids, columns, deviations."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from streampca._typing import Array
from streampca.sources.tables import ids_of

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

# Bytes of scores with deviations and of columns, so that a page stays below 25 MB; ids are extra.
SCORE_BYTES, COLUMN_BYTES = 13 << 20, 7 << 20
MAX_AXES = 50
MAX_COLUMNS = 40
MAX_CATEGORIES = 1000
MAX_STYLES = 48  # categories with a colour and shape of their own, in the script
EXACT_SAMPLES = 20_000  # numbers of more samples are stored to one part in 65,534
MISSING = 65_535
GZIP_LEVEL = 6  # higher levels take ten times as long for a tenth less


@dataclass(frozen=True)
class Payload:
    """Bytes in the page, as base64 in a script element of a type that browsers do not run."""

    id: str
    type: str
    text: str


def payload(name: str, content: bytes, *, compress: bool = True) -> Payload:
    """Encode bytes for the page."""
    if compress:
        # Without a time stamp, so that the same result gives the same page.
        content = gzip.compress(content, GZIP_LEVEL, mtime=0)
    media = "application/gzip" if compress else "application/octet-stream"
    return Payload(name, media, base64.b64encode(content).decode("ascii"))


@dataclass(frozen=True)
class Points:
    """The samples of a page: facts for the script, arrays, and what the page does not contain."""

    facts: dict[str, Any]
    payloads: list[Payload]
    omitted: list[str]


@dataclass(frozen=True)
class Column:
    """A column in the order of the samples.

    Attributes
    ----------
    values : (n,) float64 with NaN for missing; or codes of categories, 0 for missing.
    categories : texts of the codes from 1 on; None for numbers.
    time : whether the numbers are milliseconds since 1970.
    """

    name: str
    values: Array
    categories: tuple[str, ...] | None = None
    time: bool = False

    def packed(self, where: str) -> tuple[dict[str, Any], Payload]:
        """Return the facts that the script needs, and the values as a payload of this id."""
        facts: dict[str, Any] = {"name": self.name, "id": where}
        if self.categories is not None:
            wide = len(self.categories) > 255
            counts = np.bincount(self.values, minlength=len(self.categories) + 1)
            facts |= {"kinds": list(self.categories), "counts": counts.tolist(), "form": "u16" if wide else "u8"}
            return facts, payload(where, self.values.astype("<u2" if wide else "u1").tobytes())
        low, high = float(np.nanmin(self.values)), float(np.nanmax(self.values))
        facts |= {"low": low, "high": high, "time": self.time}
        if len(self.values) <= EXACT_SAMPLES:
            return facts | {"form": "f64"}, payload(where, self.values.astype("<f8").tobytes())
        return facts | {"form": "u16"}, payload(where, quantised(self.values, low, high).tobytes())


def quantised(values: Array, low: float, high: float) -> Array:
    """Return values from low to high as 0 .. 65,534 (uint16), and 65,535 for those that are not finite."""
    span = (high - low) or 1.0
    with np.errstate(invalid="ignore"):
        steps = np.rint((values.astype(np.float64) - low) * ((MISSING - 1) / span))
    return np.where(np.isfinite(steps), steps, MISSING).astype("<u2")


def points_of(result: xarray.Dataset, table: Table | None, prefix: str, colour: str | None = None) -> Points | None:
    """Return the samples as the page stores them; None for a result without scores."""
    if "scores" not in result or result["scores"].size == 0:
        return None
    ids = ids_of(result).names
    n, k = len(ids), result.sizes["component"]
    deviations = "score_deviation" in result
    # Base64 makes 4 bytes of 3.
    component_bytes = n * (3 if deviations else 2) * 4 / 3
    shown = int(max(min(k, 2), min(k, MAX_AXES, SCORE_BYTES // component_bytes)))
    scores, low, high = _quantised_scores(result["scores"], shown)
    limits = zip(low.tolist(), high.tolist(), strict=True)
    facts: dict[str, Any] = {
        "n": n,
        "components": [{"name": f"{prefix}{i + 1}", "low": a, "high": b} for i, (a, b) in enumerate(limits)],
    }
    payloads = [payload("data-scores", scores.tobytes(), compress=False)]
    payloads.append(payload("data-ids", "\n".join(map(_one_line, ids)).encode("utf-8", "replace")))
    if deviations:
        codes, least, ratio = _deviations(result["score_deviation"], shown)
        facts["deviation"] = {"least": least, "ratio": ratio}
        payloads.append(payload("data-deviations", codes.tobytes(), compress=False))
    omitted = [] if shown == k else [f"scores on components {shown + 1} to {k}"]
    columns, dropped = columns_of(result, table, n)
    packed, kept = [], []
    for i, column in enumerate(columns):
        about, content = column.packed(f"data-column-{i}")
        if sum(len(p.text) for p in payloads if p.id.startswith("data-column")) + len(content.text) > COLUMN_BYTES:
            dropped.append(f"{column.name} (too large)")
            continue
        packed.append(about)
        kept.append(column)
        payloads.append(content)
    facts |= {"columns": packed, "colour": first_colour(kept, table, colour)}
    if dropped:
        omitted.append("columns " + ", ".join(dropped))
    return Points(facts, payloads, omitted)


def columns_of(result: xarray.Dataset, table: Table | None, n_samples: int) -> tuple[list[Column], list[str]]:
    """Return the columns to colour samples by, those of the table first, and which were dropped and why."""
    given = {name: np.asarray(values) for name, values in (table.columns if table is not None else {}).items()}
    for name, values in _result_columns(result).items():
        given[name if name not in given else f"{name} (result)"] = values
    columns: list[Column] = []
    dropped: list[str] = []
    for name, values in given.items():
        if len(values) != n_samples:
            continue
        column = _column(name, values)
        if isinstance(column, Column) and len(columns) < MAX_COLUMNS:
            columns.append(column)
        else:
            dropped.append(f"{name} ({column})" if isinstance(column, str) else name)
    return columns, dropped


def first_colour(columns: list[Column], table: Table | None, wanted: str | None) -> str | None:
    """Return the initial column: the one wanted, else the last label of the table, else any label or number."""
    names = [c.name for c in columns]
    labels = [c.name for c in columns if c.categories is not None and len(c.categories) <= MAX_STYLES]
    of_table = [name for name in labels if table is not None and name in table.columns]
    numbers = [c.name for c in columns if c.categories is None]
    return wanted if wanted in names else next(iter([*of_table[-1:], *labels, *numbers]), None)


def _result_columns(result: xarray.Dataset) -> dict[str, Array]:
    """Return the labels and statistics that a result has for each sample, except their ids."""
    dims = [dim for dim in result["scores"].dims if dim != "component"]
    sizes = {dim: result.sizes[dim] for dim in dims}
    ids = {"iid", *(str(d) for d in dims if d in result.coords and result[d].dtype.kind in "OTUS")}
    names = sorted(name for name in map(str, result.coords) if name not in ids and result[name].dims)
    columns = {name: _flat(result[name], sizes) for name in names if set(result[name].dims) <= set(dims)}
    if "sample_missing" in result:
        # Stores of version 0.7 count calls of variants that were not used, too.
        counts, n_features = _flat(result["sample_missing"], sizes), max(1, int(result.attrs.get("n_features", 1)))
        columns["share missing"] = np.minimum(counts / n_features, 1.0)
    if "outlier" in result:
        outlier = _flat(result["outlier"], sizes).astype(bool)
        columns["outlier"] = np.where(outlier, "outlier", "no outlier").astype(object)
    if "projected" in result:
        projected = _flat(result["projected"], sizes).astype(bool)
        columns["projected"] = np.where(projected, "projected", "fitted").astype(object)
    return columns


def _flat(variable: xarray.DataArray, sizes: dict[Any, int]) -> Array:
    """Return one value per sample; a label along one of several sample dimensions is repeated along the others."""
    values = variable.transpose(*(dim for dim in sizes if dim in variable.dims)).values
    shape = [size if dim in variable.dims else 1 for dim, size in sizes.items()]
    return np.broadcast_to(values.reshape(shape), list(sizes.values())).reshape(-1)


def _column(name: str, values: Array) -> Column | str:
    """Return a column, or the reason why samples cannot be coloured by it."""
    kind = values.dtype.kind
    if kind not in "Miuf":
        return _labels(name, [str(text) for text in values.tolist()])
    if kind == "M":
        amounts = values.astype("datetime64[ms]").astype(np.float64)
        amounts[np.isnat(values)] = np.nan
    else:
        amounts = values.astype(np.float64)
    amounts = np.where(np.isfinite(amounts), amounts, np.nan)
    if not np.isfinite(amounts).any():
        return "no values"
    if np.nanmin(amounts) == np.nanmax(amounts):
        return "constant"
    return Column(name, amounts, time=kind == "M")


def _labels(name: str, texts: list[str]) -> Column | str:
    counts = pandas.Series([text for text in texts if text], dtype=object).value_counts()
    if not len(counts):
        return "no values"
    if len(counts) == 1 and counts.iloc[0] == len(texts):
        return "constant"
    if len(counts) > max(2, min(MAX_CATEGORIES, len(texts) // 2)):
        return f"{len(counts):,} categories"
    # The most frequent categories, which have styles of their own, are first, by name.
    categories = [*sorted(counts.index[:MAX_STYLES]), *counts.index[MAX_STYLES:]]
    return Column(name, pandas.Index(categories).get_indexer(texts) + 1, tuple(categories))


def _one_line(name: str) -> str:
    """Replace control characters, among them line ends, which separate ids."""
    return name if name.isprintable() else "".join(c if c.isprintable() else " " for c in name)


def _by_component(values: xarray.DataArray, shown: int) -> Array:
    """Return the first components of all samples, (shown, n); several sample dimensions as one."""
    return values.transpose("component", ...)[:shown].values.reshape(shown, -1).astype(np.float64)


def _quantised_scores(values: xarray.DataArray, shown: int) -> tuple[Array, Array, Array]:
    """Return scores (shown, n) as uint16, and the smallest and largest of each component."""
    scores = _by_component(values, shown)
    finite = np.isfinite(scores)
    low, high = np.where(finite, scores, np.inf).min(axis=1), np.where(finite, scores, -np.inf).max(axis=1)
    low, high = (np.where(np.isfinite(limit), limit, 0.0) for limit in (low, high))
    return np.stack([quantised(*row) for row in zip(scores, low, high, strict=True)]), low, high


def _deviations(values: xarray.DataArray, shown: int) -> tuple[Array, float, float]:
    """Return deviations (shown, n) as uint8 codes c, which stand for least * ratio**c."""
    logs = np.log(np.maximum(_by_component(values, shown), 1e-300))
    least, span = float(logs.min()), float(np.ptp(logs))
    codes = np.rint((logs - least) * (255 / span if span else 0.0)).astype("u1")
    return codes, float(np.exp(least)), float(np.exp(span / 255))
