"""Conversion of a table of numbers as text (.csv, .tsv, .txt) to one Zarr array."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from streampca.errors import DAMAGED, InputError
from streampca.models.dataset import FORMAT_VERSION, Variables
from streampca.progress import Progress, Step
from streampca.results.write import resumable_array, save
from streampca.sources.genotypes import TEXT

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": r"\s+"}
CHUNK_BYTES = 6 << 20


def write_number_table(path: Path, store: Path, progress: Progress) -> None:
    """Write the numbers of a table as `values` (sample, feature), in chunks of rows.

    The first line has the names of the features, unless all its cells are numbers. A first column of text has the
    ids of the samples, a last one their labels. Empty cells and NA are missing.
    """
    header = None if _is_numeric(next(_parts(path, None, 1))[1]).all() else 0
    _, first = next(_parts(path, header, 100))
    text = [name for name, numeric in _is_numeric(first).items() if not numeric]
    ends = [name for name in (first.columns[0], first.columns[-1]) if name in text and len(text) <= 2]
    names = [name for name in first.columns if name not in ends]
    if not names:
        raise InputError(f"{path}: has no column of numbers; give one sample per line, with numbers in columns")
    rows = max(1, CHUNK_BYTES // (8 * len(names)))
    array = resumable_array(store, "values", (0, len(names)), (rows, len(names)), "float64", ("sample", "feature"), 0)
    labels: dict[str, list[str]] = {name: [] for name in ends}
    began, size = time.monotonic(), path.stat().st_size
    for place, part in _parts(path, header, rows):
        start = array.shape[0]
        values = _numbers(path, part[names], start + (header is not None) + 1)
        array.resize((start + len(values), len(names)))
        array[start:] = values
        for name in ends:
            labels[name] += part[name].fillna("").astype(str).tolist()
        done, total = 1 + place // CHUNK_BYTES, 1 + size // CHUNK_BYTES
        progress(Step(0, "converting", done, total, time.monotonic() - began))
    coords: Variables = {} if header is None else {"feature": (("feature",), np.array(names, TEXT))}
    for name, values in labels.items():
        coords["sample" if name == first.columns[0] else "label"] = (("sample",), np.array(values, TEXT))
    save({}, coords, {"kind": "table", "format_version": FORMAT_VERSION, "source": str(path)}, store)


def _parts(path: Path, header: int | None, rows: int) -> Iterator[tuple[int, Any]]:
    """Yield the table in parts of this many rows, each with the number of bytes that are read."""
    try:
        with (
            path.open("rb") as file,
            pandas.read_csv(
                file, sep=SEPARATORS[path.suffix], header=header, chunksize=rows, dtype=str, encoding="utf-8-sig"
            ) as parts,
        ):
            for part in parts:
                yield file.tell(), part.rename(columns=str)
    except DAMAGED as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: cannot be read as a table ({problem}); give UTF-8 text with equal columns"
        ) from error


def _is_numeric(part: Any) -> Any:
    """Return, by column, whether all its cells are numbers or missing."""
    return (part.apply(pandas.to_numeric, errors="coerce").notna() | part.isna()).all()


def _numbers(path: Path, part: Any, line: int) -> Any:
    """Return the cells of a part as numbers; raise for the first that is not one.

    Parameters
    ----------
    line : number of the first line of the part, counted from 1.
    """
    values = part.apply(pandas.to_numeric, errors="coerce").to_numpy(np.float64)
    wrong = np.argwhere(np.isnan(values) & part.notna().to_numpy())
    if wrong.size:
        i, j = wrong[0]
        cell = f"{part.iat[i, j]!r} in column {part.columns[j]}, line {line + i}"
        raise InputError(f"{path}: {cell} is not a number; correct it, leave it empty, or remove the column")
    return values
