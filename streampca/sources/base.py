"""What every source gives: a matrix of samples x features read in ranges, with its labels and a fingerprint."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError

_NUMBERS = {*(("f", size) for size in (2, 4, 8)), *((kind, size) for kind in "iu" for size in (1, 2, 4, 8)), ("b", 1)}


@dataclass(frozen=True)
class Axis:
    """The samples or the features: one dimension, or several stacked into one, with coordinate labels."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    coords: Mapping[str, tuple[tuple[str, ...], Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return math.prod(self.sizes)

    def take(self, chosen: Array) -> Axis:
        """Return the axis of the chosen places, with their labels: an index or a mask, of one dimension."""
        coords = {name: (dims, np.asarray(values)[chosen]) for name, (dims, values) in self.coords.items()}
        return Axis(self.dims, (int(np.arange(self.sizes[0])[chosen].size),), coords)


class Source(ABC):
    """A matrix of samples x features that lies somewhere.

    Attributes
    ----------
    name : what messages and provenance call it.
    samples, features : the two axes.
    dtype : of the values as stored.
    chunks : (rows, columns) of the smallest range that is cheap to read.
    overhead : bytes that reading one chunk needs for a moment, as a multiple of the chunk.
    costly : whether reading costs much more than memory does, so that what was read is worth keeping.
    """

    name: str
    samples: Axis
    features: Axis
    dtype: np.dtype[Any]
    chunks: tuple[int, int]
    overhead: float = 0.0
    costly: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_features)."""
        return len(self.samples), len(self.features)

    @property
    def item_bytes(self) -> float:
        """Size of one value as it is read."""
        return self.dtype.itemsize

    @property
    def n_bytes(self) -> int:
        """Size of all values as they are read, uncompressed."""
        return int(math.prod(self.shape) * self.item_bytes)

    @abstractmethod
    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read ranges of the outermost sample and feature dimensions, all of the others.

        Returns the values, in the order of the dimensions and maybe in a buffer that the next read reuses,
        and the number of bytes fetched for them.
        """

    def read(self, rows: slice, columns: slice) -> tuple[Array, int]:
        """Read a range of rows x columns; returns it (maybe a view of a reused buffer) and the bytes fetched."""
        outer_rows, inner_rows = _outer_range(rows, self.samples)
        outer_columns, inner_columns = _outer_range(columns, self.features)
        block, n_bytes = self.read_block(outer_rows, outer_columns)
        n_rows = (outer_rows.stop - outer_rows.start) * math.prod(self.samples.sizes[1:])
        return block.reshape(n_rows, -1)[inner_rows, inner_columns], n_bytes

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short text that changes when the data do, as far as can be told without reading them all."""

    # What `stamp` gave when the data were opened.
    _opened: object = None

    def stamp(self) -> object:
        """Return what changes when the files do; None for data in memory."""
        return None

    def watch(self) -> None:
        """Refuse data that have changed since they were opened; called before and after each sweep."""
        try:
            now = self.stamp()
        except OSError as error:
            raise InputError(
                f"{self.name}: cannot be read any more ({error.strerror}); restore it, run again"
            ) from error
        if self._opened is None:
            self._opened = now
        elif now != self._opened:
            raise changed(self.name)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Say what errors mean that come up where this source does not read itself."""
        yield

    def bare(self) -> Source:
        """Return the source as tasks elsewhere need it."""
        return self

    def check(self) -> None:
        """Refuse what no model can use: a type that is not a number, an empty axis."""
        if (self.dtype.kind, self.dtype.itemsize) not in _NUMBERS:
            raise InputError(
                f"{self.name}: values of type {self.dtype} cannot be used; convert them to floats, integers or bool"
            )
        for what, axis in (("samples", self.samples), ("features", self.features)):
            if len(axis) == 0:
                raise InputError(f"{self.name}: there are no {what} (shape {self.shape}); give at least one")


def _outer_range(wanted: slice, axis: Axis) -> tuple[slice, slice]:
    """Split a range of a stacked axis into a range of its outermost dimension and a range within that."""
    inner = math.prod(axis.sizes[1:])
    start = wanted.start // inner
    stop = -(-wanted.stop // inner)
    return slice(start, stop), slice(wanted.start - start * inner, wanted.stop - start * inner)


def changed(where: object) -> InputError:
    """Say that data are no longer what they were."""
    return InputError(f"{where}: has changed since it was opened; let nothing write to it, and run again")


def file_stamp(path: Path) -> tuple[int, int]:
    """Return size and time of a file."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def digest(*parts: object) -> str:
    """Hash of the parts' text or bytes, for fingerprints."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else repr(part).encode())
        h.update(b"\0")
    return h.hexdigest()[:32]


def plain_axes(shape: tuple[int, ...], dims: tuple[str, ...] | None = None) -> tuple[Axis, Axis]:
    """Axes of an array without labels: the first dimension is samples, the rest are features."""
    if dims is None:
        dims = (
            ("sample", "feature") if len(shape) == 2 else ("sample", *(f"feature_{i}" for i in range(len(shape) - 1)))
        )
    return Axis(dims[:1], shape[:1]), Axis(dims[1:], shape[1:])
