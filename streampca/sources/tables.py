"""Tables about samples: populations, traits, labels of any kind, joined to samples of a result or source by id."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.base import Axis

if TYPE_CHECKING:
    import xarray


ABSENT = frozenset({"", "NA", "N/A", "na", "n/a", "NaN", "nan", "."})
# How tables call the column of ids, without # and in small letters.
ID_NAMES = frozenset({"iid", "id", "sample", "sample_id", "sampleid", "name", "individual", "path", "file"})
FAMILY_NAMES = frozenset({"fid", "family", "family_id"})
# Whole numbers of so few kinds are codes of groups, as sexes are, not amounts.
MOST_CODES = 12
LONGEST_LINE = 4 << 20
# Dates as ISO 8601 writes them, with a time or without.
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,3})?)?Z?)?")
# Lines by which the column of ids is found.
LOOKED_AT = 20_000


@dataclass(frozen=True)
class Ids:
    """What samples are called, in order; those of genotypes have families too."""

    names: list[str]
    families: list[str] | None = None


def source_ids(samples: Axis) -> Ids:
    """Return the ids of samples: IID, their own coordinate, text that tells them apart, or their numbers from 0."""
    return _ids({name: (dims, np.asarray(values)) for name, (dims, values) in samples.coords.items()}, samples)


def ids_of(result: xarray.Dataset) -> Ids:
    """Return the ids of the samples whose scores a result holds."""
    if "scores" not in result:
        raise InputError("the result holds no scores; make it with `streampca pca`, `ppca` or `kpca`")
    dims = tuple(str(dim) for dim in result["scores"].dims if dim != "component")
    coords = {str(name): (tuple(map(str, c.dims)), c.values) for name, c in result.coords.items()}
    return _ids(coords, Axis(dims, tuple(result.sizes[dim] for dim in dims)))


def _ids(coords: Mapping[str, tuple[tuple[str, ...], Array]], samples: Axis) -> Ids:
    if "iid" in coords:
        families = _texts(coords["fid"][1]) if "fid" in coords else None
        return Ids(_texts(coords["iid"][1]), families)
    columns = [_of_dimension(coords, dim, size) for dim, size in zip(samples.dims, samples.sizes, strict=True)]
    if len(columns) == 1:
        return Ids(columns[0])
    grid = np.unravel_index(np.arange(len(samples)), samples.sizes)
    parts = (np.asarray(column)[places].tolist() for column, places in zip(columns, grid, strict=True))
    return Ids([", ".join(cells) for cells in zip(*parts, strict=True)])


def _of_dimension(coords: Mapping[str, tuple[tuple[str, ...], Array]], dim: str, size: int) -> list[str]:
    """Return what the places along one dimension are called."""
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
    cells : name -> text of each sample, "" where there is none.
    found : (n,) whether the table has each sample.
    """

    path: Path
    cells: Mapping[str, Array]
    found: Array

    @property
    def note(self) -> str:
        """Say how many of the samples are there."""
        return f"{int(self.found.sum())} of {len(self.found)} samples are in {self.path.name}"

    @cached_property
    def columns(self) -> dict[str, Array]:
        """Each column as amounts (float64, NaN where missing) if all are numbers and no mere codes, else as text.

        Dates, if all are written as 2001-12-31 or with a time after it, are datetime64, NaT where missing.
        """
        columns = {}
        for name, texts in self.cells.items():
            amounts = _amounts(texts)
            if amounts is None:
                dates = _dates(texts)
                columns[name] = texts if dates is None else dates
            else:
                columns[name] = texts if _is_code(amounts) else amounts
        return columns

    def numbers(self, name: str) -> Array:
        """Return a column as float64, NaN where missing."""
        amounts = _amounts(self._cells(name))
        if amounts is None:
            raise InputError(
                f"{self.path}: column {name!r} holds text, e.g. {self._example(name)!r}; numbers are needed"
            )
        return amounts

    def label(self, name: str | None = None) -> Array:
        """Return a column as text, "" where missing; the last one that is no amount, if none is named."""
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
        return ", ".join(self.cells) or "none beside the ids"

    def _example(self, name: str) -> str:
        return next(str(cell) for cell in self.cells[name] if cell and not _is_number(cell))


def _amounts(texts: Array) -> Array | None:
    """Return numbers, NaN where missing; None if some are none."""
    try:
        return np.array([float(text) if text else np.nan for text in texts.tolist()])
    except ValueError:
        return None


def _dates(texts: Array) -> Array | None:
    """Return dates as datetime64[ms], in UTC; None if some are none."""
    if not all(not text or DATE.fullmatch(text) for text in texts.tolist()):
        return None
    try:
        return np.array([text.removesuffix("Z").replace(" ", "T") or "NaT" for text in texts.tolist()], "M8[ms]")
    except ValueError:
        # There is no 30th of February.
        return None


def _is_code(amounts: Array) -> bool:
    there = np.unique(amounts[~np.isnan(amounts)])
    return bool(there.size <= MOST_CODES and (there == np.round(there)).all())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def split_column(text: str) -> tuple[Path, list[str]]:
    """Split "traits.tsv:height,weight" into the file and its columns; none where the text is the name of a file."""
    path, colon, names = text.rpartition(":")
    if not colon or Path(text).exists():
        return Path(text), []
    return Path(path), [name for name in names.split(",") if name]


def read_table(path: Path, ids: Ids) -> Table:
    """Read a table and put its rows in the order of samples.

    Cells are parted by tabs, by commas, or by blanks, whichever the first line has. The column of ids is the one that
    matches most of the samples; samples whose id is not unique are told apart by their family. A first line without a
    sample's id names the columns, or they are called column 1 and so on. What is not in the table is "".
    """
    numbers, rows = _rows(path)
    width = len(rows[0])
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != width:
            raise InputError(f"{path}: line {number} has {len(row)} cells, the first line {width}; mend the line")
    known = set(ids.names)
    unique = len(known) == len(ids.names)
    column = _id_column(path, rows, known, ids)
    names, rows = _header(rows, column, known)
    family = next((i for i, name in enumerate(names) if name.lower().lstrip("#") in FAMILY_NAMES), None)
    if family is None and ids.families is not None and column > 0 and _matches(rows, column - 1, set(ids.families)):
        family = column - 1
    if not unique and (family is None or ids.families is None):
        twice = Counter(ids.names).most_common(1)[0][0]
        raise InputError(f"{path}: sample {twice!r} is there twice, and no family tells the two apart; name them anew")
    by_family = not unique
    keys: Sequence[Any] = list(zip(ids.families or [], ids.names, strict=True)) if by_family else ids.names
    place = {key: i for i, key in enumerate(keys)}
    others = [i for i in range(width) if i not in (column, family)]
    found = np.zeros(len(keys), bool)
    cells = {names[i]: np.full(len(keys), "", object) for i in others}
    for row in rows:
        at = place.get((row[family], row[column]) if by_family and family is not None else row[column])
        if at is None:
            continue
        values = ["" if row[i] in ABSENT else row[i] for i in others]
        if found[at] and [cells[names[i]][at] for i in others] != values:
            raise InputError(f"{path}: sample {row[column]!r} is there twice, with different values; leave one")
        found[at] = True
        for i, value in zip(others, values, strict=True):
            cells[names[i]][at] = value
    return Table(path, cells, found)


def _rows(path: Path) -> tuple[list[int], list[list[str]]]:
    """Return the rows that are not blank, each with the number of the line that it ends on."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            bounded = _bounded(path, file)
            if "\t" in first or "," in first:
                reader = csv.reader(bounded, delimiter="\t" if "\t" in first else ",")
                lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
            else:
                lines = [(number, line.split()) for number, line in enumerate(bounded, start=1)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is not a table of text ({error}); save it as tab-separated UTF-8") from error
    lines = [(number, row) for number, row in lines if any(row)]
    if not lines:
        raise InputError(f"{path}: is empty; give a table with a line for each sample")
    return [number for number, _ in lines], [row for _, row in lines]


def _bounded(path: Path, file: Iterable[str]) -> Iterator[str]:
    """Yield lines, none of them without end: cells take far more memory than their text."""
    for number, line in enumerate(file, start=1):
        if len(line) > LONGEST_LINE:
            raise InputError(f"{path}: line {number} has more than {LONGEST_LINE} characters; check which file it is")
        yield line


def _id_column(path: Path, rows: list[list[str]], known: set[str], ids: Ids) -> int:
    """Return the column of ids: called so, or else the one that has most samples, each counted once.

    Codes of groups may look like ids, and families are often called like their only member.
    """
    header = [name.lower().lstrip("#") for name in rows[0]]
    for looked in (rows[:LOOKED_AT], rows):
        columns = list(zip(*looked, strict=True))
        counts = [len(known.intersection(column)) for column in columns]
        if any(counts):
            break
    named = [count > 0 and name in ID_NAMES for count, name in zip(counts, header, strict=True)]
    best = max(
        range(len(counts)),
        key=lambda i: (counts[i] > 0, header[i] == "iid", named[i], counts[i], header[i] not in FAMILY_NAMES),
    )
    if not counts[best]:
        raise InputError(
            f"{path}: no line has the id of a sample; samples are called {ids.names[0]!r} and so on, the table begins "
            f"with {' '.join(rows[min(1, len(rows) - 1)])!r}"
        )
    return best


def _header(rows: list[list[str]], column: int, known: set[str]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows below them."""
    first = rows[0]
    name = first[column].lower().lstrip("#")
    repeated = any(row[i] == cell for row in rows[1:] for i, cell in enumerate(first) if i != column)
    if name not in ID_NAMES and (first[column] in known or repeated):
        return [f"column {i + 1}" for i in range(len(first))], rows
    names = [cell or f"column {i + 1}" for i, cell in enumerate(first)]
    twice = Counter(names)
    return [name if twice[name] == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)], rows[1:]


def _matches(rows: list[list[str]], column: int, known: set[str]) -> bool:
    """Tell whether most cells of a column are among those known."""
    looked = rows[:LOOKED_AT]
    return 2 * sum(row[column] in known for row in looked) > len(looked)
