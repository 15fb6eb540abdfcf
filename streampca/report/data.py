"""What a page holds of the samples: scores to one part in 65,534 of their range, ids, columns, deviations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.report.columns import columns_of, first_colour, quantised
from streampca.report.markup import Html, payload
from streampca.sources.tables import ids_of

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table


# A page is to stay below 25 MB: so much of it for scores and deviations, and for columns. Ids come beside.
SCORE_BYTES, COLUMN_BYTES = 13 << 20, 7 << 20
MOST_AXES = 50
# Rows of scores in memory at a time, beside what is kept of them.
ROWS = 1 << 16


@dataclass(frozen=True)
class Points:
    """The samples of a page: facts for the script, elements that hold the arrays, and what is not in them."""

    facts: dict[str, Any]
    elements: list[Html]
    left_out: list[str]


def points_of(result: xarray.Dataset, table: Table | None, prefix: str, colour: str | None = None) -> Points | None:
    """Return the samples as a page holds them, coloured by a column at first; None for a result without scores."""
    if "scores" not in result or result["scores"].size == 0:
        return None
    ids = ids_of(result).names
    n, k = len(ids), result.sizes["component"]
    deviations = "score_deviation" in result
    # Base64 makes 4 bytes of 3.
    each = n * (3 if deviations else 2) * 4 / 3
    shown = int(max(min(k, 2), min(k, MOST_AXES, SCORE_BYTES // each)))
    scores, low, high = _quantised_scores(result["scores"], shown)
    facts: dict[str, Any] = {
        "n": n,
        "components": [
            {"name": f"{prefix}{i + 1}", "low": a, "high": b}
            for i, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True))
        ],
    }
    elements = [payload("data-scores", scores.tobytes(), squeeze=False)]
    elements.append(payload("data-ids", "\n".join(_one_line(name) for name in ids).encode("utf-8", "replace")))
    if deviations:
        codes, least, ratio = _deviations(result["score_deviation"], shown)
        facts["deviation"] = {"least": least, "ratio": ratio}
        elements.append(payload("data-deviations", codes.tobytes(), squeeze=False))
    left_out = [] if shown == k else [f"scores on components {shown + 1} to {k}"]
    columns, why = columns_of(result, table, n)
    packed, used = [], 0
    for number, column in enumerate(columns):
        about, text = column.packed(f"data-column-{number}")
        if used + len(text) > COLUMN_BYTES:
            why.append(f"{column.name} (too large)")
            continue
        used += len(text)
        packed.append(about)
        elements.append(text)
    facts["columns"] = packed
    facts["colour"] = first_colour([c for c in columns if c.name in {p["name"] for p in packed}], table, colour)
    if why:
        left_out.append("columns " + ", ".join(why))
    return Points(facts, elements, left_out)


def _one_line(name: str) -> str:
    """Return an id without ends of line, which part ids, and other controls."""
    return name if name.isprintable() else "".join(c if c.isprintable() else " " for c in name)


def _blocks(values: xarray.DataArray, shown: int) -> Any:
    """Yield where, and the first components of, some samples at a time; samples of several dimensions as one."""
    values = values.transpose(..., "component")[..., :shown]
    inner = int(np.prod(values.shape[1:-1]))
    rows = max(1, ROWS // max(1, inner))
    for start in range(0, values.shape[0], rows):
        block = values[start : start + rows].values.reshape(-1, shown)
        yield start * inner, block.astype(np.float64, copy=False)


def _quantised_scores(values: xarray.DataArray, shown: int) -> tuple[Array, Array, Array]:
    """Return scores by component (shown, n) as uint16, with the least and the largest of each."""
    low, high = np.full(shown, np.inf), np.full(shown, -np.inf)
    n = 0
    for _, block in _blocks(values, shown):
        n += len(block)
        finite = np.isfinite(block)
        low = np.minimum(low, np.min(block, axis=0, where=finite, initial=np.inf))
        high = np.maximum(high, np.max(block, axis=0, where=finite, initial=-np.inf))
    low, high = (np.where(np.isfinite(limit), limit, 0.0) for limit in (low, high))
    codes = np.empty((shown, n), "<u2")
    for start, block in _blocks(values, shown):
        for i in range(shown):
            codes[i, start : start + len(block)] = quantised(block[:, i], float(low[i]), float(high[i]))
    return codes, low, high


def _deviations(values: xarray.DataArray, shown: int) -> tuple[Array, float, float]:
    """Return deviations as (shown, n) codes c of uint8, which stand for least * ratio**c."""
    parts = [block for _, block in _blocks(values, shown)]
    logs = np.log(np.maximum(np.concatenate(parts), 1e-300))
    least, span = float(logs.min()), float(np.ptp(logs))
    codes = np.rint((logs - least) * (255 / span if span else 0.0)).astype("u1")
    return np.ascontiguousarray(codes.T), float(np.exp(least)), float(np.exp(span / 255))
