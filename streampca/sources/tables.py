"""Tables of samples: populations, traits, labels of any kind, joined to the samples of a result or source by id."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.progress import logger
from streampca.sources.base import Axis

if TYPE_CHECKING:
    import pandas
    import xarray


MISSING_TEXTS = ["NA", "N/A", "na", "n/a", "NaN", "nan", "."]
# Names of the column of ids, without # and in lower case.
ID_NAMES = frozenset({"iid", "id", "sample", "sample_id", "sampleid", "name", "individual", "path", "file"})
FAMILY_NAMES = frozenset({"fid", "family", "family_id"})
MOST_CODES = 12  # a column with at most this many different integers has codes of groups, not amounts
LONGEST_LINE = 4 << 20
MOST_COLUMNS = 10_000
HEAD = 20_000  # lines that are searched for ids before all are
# ISO 8601, with or without a time.
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z?)?")


@dataclass(frozen=True)
class Ids:
    """Ids of samples, in order; those of genotypes have families too."""

    names: list[str]
    families: list[str] | None = None


def source_ids(samples: Axis) -> Ids:
    """Return the ids of samples: IID, their own coordinate, a coordinate of unique texts, or numbers from 0."""
    return _ids({name: (dims, np.asarray(values)) for name, (dims, values) in samples.coords.items()}, samples)


def ids_of(result: xarray.Dataset) -> Ids:
    """Return the ids of the samples whose scores are in a result."""
    if "scores" not in result:
        raise InputError("the result has no scores; make one with `streampca pca`, `ppca` or `kpca`")
    dims = tuple(str(dim) for dim in result["scores"].dims if dim != "component")
    coords = {str(name): (tuple(map(str, c.dims)), c.values) for name, c in result.coords.items()}
    return _ids(coords, Axis(dims, tuple(result.sizes[dim] for dim in dims)))


def _ids(coords: Mapping[str, tuple[tuple[str, ...], Array]], samples: Axis) -> Ids:
    if "iid" in coords:
        families = _texts(coords["fid"][1]) if "fid" in coords else None
        return Ids(_texts(coords["iid"][1]), families)
    columns = [_ids_along(coords, dim, size) for dim, size in zip(samples.dims, samples.sizes, strict=True)]
    if len(columns) == 1:
        return Ids(columns[0])
    grid = np.unravel_index(np.arange(len(samples)), samples.sizes)
    parts = (np.asarray(column)[places].tolist() for column, places in zip(columns, grid, strict=True))
    return Ids([", ".join(cells) for cells in zip(*parts, strict=True)])


def _ids_along(coords: Mapping[str, tuple[tuple[str, ...], Array]], dim: str, size: int) -> list[str]:
    along = {name: values for name, (dims, values) in coords.items() if dims == (dim,)}
    if dim in along:
        return _texts(along[dim])
    for values in along.values():
        if values.dtype.kind in "TUO" and len(set(names := _texts(values))) == size:
            return names
    return [str(i) for i in range(size)]


def _texts(values: Array) -> list[str]:
    if values.dtype.kind == "M":
        values = np.datetime_as_string(values, unit="auto")
    return [str(value) for value in values.tolist()]


@dataclass(frozen=True)
class Table:
    """Columns of a table in the order of some samples.

    Attributes
    ----------
    path : of the table.
    cells : name -> text of each sample, "" if missing.
    found : (n,) whether the table has each sample.
    """

    path: Path
    cells: Mapping[str, Array]
    found: Array

    @property
    def note(self) -> str:
        """The number of samples in the table, in words."""
        return f"{int(self.found.sum())} of {len(self.found)} samples are in {self.path.name}"

    @cached_property
    def columns(self) -> dict[str, Array]:
        """Each column as float64, NaN if missing, if all cells are numbers and not codes; else as dates or text.

        Dates, if all are ISO 8601, are datetime64, NaT if missing.
        """
        return {name: _typed(texts) for name, texts in self.cells.items()}

    def numbers(self, name: str) -> Array:
        """Return a column as float64, NaN if missing."""
        amounts = _amounts(self._cells(name))
        if amounts is None:
            example = next(cell for cell in self.cells[name] if cell and _amounts(np.array([cell], object)) is None)
            raise InputError(
                f"{self.path}: column {name!r} must be numeric, but has text, e.g. {example!r}; choose another"
            )
        return amounts

    def label(self, name: str | None = None) -> Array:
        """Return a column as text, "" if missing; by default the last one that is neither numeric nor dates."""
        if name is None:
            texts = [column for column, values in self.columns.items() if values.dtype.kind not in "fM"]
            if not texts:
                raise InputError(f"{self.path}: has no column of labels; it has {self._listed()}")
            name = texts[-1]
        return self._cells(name)

    def _cells(self, name: str) -> Array:
        if name not in self.cells:
            raise InputError(f"{self.path}: has no column {name!r}; it has {self._listed()}")
        return self.cells[name]

    def _listed(self) -> str:
        return ", ".join(self.cells) or "only ids"


def _typed(texts: Array) -> Array:
    amounts = _amounts(texts)
    if amounts is None:
        dates = _dates(texts)
        return texts if dates is None else dates
    values = np.unique(amounts[~np.isnan(amounts)])
    are_codes = values.size <= MOST_CODES and (values == np.round(values)).all()
    return texts if are_codes else amounts


def _amounts(texts: Array) -> Array | None:
    """Return numbers, NaN if missing; None if some cells are not numbers."""
    try:
        return np.array([float(text) if text else np.nan for text in texts.tolist()])
    except ValueError:
        return None


def _dates(texts: Array) -> Array | None:
    """Return dates as datetime64[ms], in UTC; None if some cells are not dates."""
    if not all(not text or DATE.fullmatch(text) for text in texts.tolist()):
        return None
    try:
        return np.array([text.removesuffix("Z").replace(" ", "T") or "NaT" for text in texts.tolist()], "M8[ms]")
    except ValueError:
        # A day that does not exist, such as February 30.
        return None


def split_column(text: str) -> tuple[Path, list[str]]:
    """Split "traits.tsv:height,weight" into the file and its columns; no columns if the text is the name of a file."""
    path, colon, names = text.rpartition(":")
    if not colon or Path(text).exists():
        return Path(text), []
    return Path(path), [name for name in names.split(",") if name]


def read_labels(text: str | None, ids: Ids) -> tuple[Table | None, list[str]]:
    """Read the sample table that "pops.tsv" or "pops.tsv:pop,sex" names, and return it with the named columns."""
    if text is None:
        return None, []
    path, names = split_column(text)
    table = read_table(path, ids)
    for name in names:
        table.label(name)
    return table, names


def labels_of(result: xarray.Dataset, text: str | None) -> tuple[Table | None, list[str]]:
    """Read the sample table of a result, as `read_labels`; with a warning, nothing if the result has no scores."""
    if text is None:
        return None, []
    if "scores" not in result:
        logger.warning("note: %s colours nothing: the result has no scores", text)
        return None, []
    return read_labels(text, ids_of(result))


def read_table(path: Path, ids: Ids) -> Table:
    """Read a table and put its rows in the order of samples.

    Cells are separated by tabs, commas or blanks, whichever the first line has. The column of ids is the one that
    matches most of the samples; samples whose ids are not unique are distinguished by family. A first line without the
    id of a sample has the names of the columns; else they are called column 1 and so on. Missing cells are "".
    """
    rows = _read_cells(path)
    column = _id_column(path, rows, ids)
    names, rows = _header(rows, column, set(ids.names))
    family = _family_column(names, rows, column, ids)
    by_family = len(set(ids.names)) < len(ids.names)
    if by_family and (family is None or ids.families is None):
        twice = Counter(ids.names).most_common(1)[0][0]
        raise InputError(f"{path}: sample id {twice!r} is not unique and the table has no families; rename them")
    keys = list(map("\x1f".join, zip(ids.families or [], ids.names, strict=True))) if by_family else ids.names
    others = [i for i in range(len(names)) if i not in (column, family)]
    key = rows[family] + "\x1f" + rows[column] if by_family else rows[column]
    listed = key.isin(keys)
    cells = rows.loc[listed, others].replace(MISSING_TEXTS, "").assign(key=key[listed]).drop_duplicates()
    again = cells.index[cells["key"].duplicated()]
    if len(again):
        name = rows.loc[again[0], column]
        raise InputError(f"{path}: line {again[0]} has other values of sample {name!r} than a line before; remove one")
    ordered = cells.set_index("key").reindex(keys, fill_value="")
    present = set(cells["key"])
    found = np.array([key in present for key in keys], bool)
    return Table(path, {names[i]: ordered[i].to_numpy(object) for i in others}, found)


def _read_cells(path: Path) -> pandas.DataFrame:
    """Return the cells of the lines that are not blank as text; the index is the number of the line."""
    # pandas is slow to import, and few commands read tables.
    import pandas

    try:
        with reading(path, "give tab-separated text in UTF-8"), path.open(encoding="utf-8-sig") as file:
            first = ""
            for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE + 1), ""), start=1):
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{path}: line {number} has more than {LONGEST_LINE} characters; check the file")
                if not first and line.strip():
                    first = line.strip("\r\n")
            delimiter = next((mark for mark in "\t," if mark in first), None)
            if (first.count(delimiter) if delimiter else len(first.split(maxsplit=MOST_COLUMNS))) > MOST_COLUMNS - 1:
                raise InputError(f"{path}: the first line has more than {MOST_COLUMNS} cells; check the file")
            width = len(next(csv.reader([first], delimiter=delimiter)) if delimiter else first.split())
            quoting = csv.QUOTE_MINIMAL if delimiter else csv.QUOTE_NONE
            file.seek(0)
            rows = pandas.read_csv(
                file, sep=delimiter or r"\s+", names=range(width + 1), index_col=False, dtype=str, engine="python",
                keep_default_na=False, skip_blank_lines=False, quoting=quoting,
            )  # fmt: skip
    except (csv.Error, pandas.errors.ParserError) as error:
        uneven = re.search(r"in line (\d+), saw (\d+)", str(error))
        if uneven:
            raise _uneven(path, int(uneven[1]), int(uneven[2]), width) from error
        raise InputError(f"{path}: is not a text table ({error}); save it as tab-separated UTF-8") from error
    rows.index += 1
    rows = rows.apply(lambda cells: cells.str.strip())
    rows = rows[(rows.notna() & (rows != "")).any(axis=1)]
    if rows.empty:
        raise InputError(f"{path}: is empty; give a table with one line per sample")
    counts = rows.notna().sum(axis=1)
    if (counts != width).any():
        uneven_line = (counts != width).idxmax()
        raise _uneven(path, uneven_line, counts[uneven_line], width)
    return rows[list(range(width))]


def _uneven(path: Path, line: int, count: int, width: int) -> InputError:
    return InputError(f"{path}: line {line} has {count} cells, the first line {width}; fix the line")


def _id_column(path: Path, rows: pandas.DataFrame, ids: Ids) -> int:
    """Return the column of ids: by its name, or else the one with most samples, each counted once.

    Codes of groups may look like ids, and families often have the name of their only member.
    """
    known, header = set(ids.names), [name.lower().lstrip("#") for name in rows.iloc[0]]
    counts = [len(known.intersection(rows[i].head(HEAD))) for i in rows]
    counts = counts if any(counts) else [len(known.intersection(rows[i])) for i in rows]

    def rank(i: int) -> tuple[Any, ...]:
        name, count = header[i], counts[i]
        return count > 0, name == "iid", count > 0 and name in ID_NAMES, count, name not in FAMILY_NAMES

    best = max(range(len(counts)), key=rank)
    if not counts[best]:
        example = " ".join(rows.iloc[min(1, len(rows) - 1)])
        raise InputError(f"{path}: has no sample id like {ids.names[0]!r}; its lines are like {example!r}; add the ids")
    return best


def _family_column(names: list[str], rows: pandas.DataFrame, column: int, ids: Ids) -> int | None:
    """Return the column of families: by its name, or before the ids if most of its cells are families."""
    named = next((i for i, name in enumerate(names) if name.lower().lstrip("#") in FAMILY_NAMES), None)
    if named is not None or ids.families is None or column == 0:
        return named
    return column - 1 if rows[column - 1].head(HEAD).isin(ids.families).mean() > 0.5 else None


def _header(rows: pandas.DataFrame, column: int, known: set[str]) -> tuple[list[str], pandas.DataFrame]:
    """Return the names of the columns, and the rows below them."""
    first, rest = rows.iloc[0].tolist(), rows.iloc[1:]
    repeated = any((rest[i] == cell).any() for i, cell in enumerate(first) if i != column)
    if first[column].lower().lstrip("#") not in ID_NAMES and (first[column] in known or repeated):
        return [f"column {i + 1}" for i in range(len(first))], rows
    names = [cell or f"column {i + 1}" for i, cell in enumerate(first)]
    twice = Counter(names)
    return [name if twice[name] == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)], rest
