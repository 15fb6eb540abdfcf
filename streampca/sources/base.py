"""The interface of sources: a matrix of samples x features read in ranges, with labels and a fingerprint."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.thresholds import Thresholds

_NUMBERS = {*(("f", size) for size in (2, 4, 8)), *((kind, size) for kind in "iu" for size in (1, 2, 4, 8)), ("b", 1)}
SLAB_BYTES = 8 << 20  # smaller reads are joined
PARTITION_BYTES = 16 << 20  # smaller partitions are not worth a task
MAX_PARTITIONS = 512
PARTS_OF_CHUNK = 4  # a large chunk of costly rows is read in this many parts, each of which decodes all of it


@dataclass(frozen=True)
class Axis:
    """Samples or features: one dimension, or several stacked into one, with coordinate labels.

    Attributes
    ----------
    dims, sizes, coords : of the grid of the dimensions.
    kept : places in the grid, in order, if it is not complete; None for all.
    """

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    coords: Mapping[str, tuple[tuple[str, ...], Any]] = field(default_factory=dict)
    kept: Array | None = None

    def __len__(self) -> int:
        return math.prod(self.sizes) if self.kept is None else len(self.kept)

    def on_grid(self, values: Array) -> Array:
        """Return values, whose last axis is this one, in its dimensions; NaN where the grid is not complete."""
        if self.kept is not None:
            full = np.full((*values.shape[:-1], math.prod(self.sizes)), np.nan, np.result_type(values, np.float32))
            full[..., self.kept] = values
            values = full
        return values.reshape(*values.shape[:-1], *self.sizes)

    def __str__(self) -> str:
        return f"{', '.join(self.dims)} ({len(self):,})"

    def place(self, index: int) -> str:
        """Return the coordinates of one sample or feature, such as "lat=-10.0, lon=30.0"; empty without labels."""
        found = []
        index = index if self.kept is None else self.kept[index]
        for dim, i in zip(self.dims, np.unravel_index(index, self.sizes), strict=True):
            if dim in self.coords:
                value = np.asarray(self.coords[dim][1])[i]
                text = np.datetime_as_string(value, unit="auto") if isinstance(value, np.datetime64) else value
                found.append(f"{dim}={text}")
        return ", ".join(found)

    def take(self, chosen: Array) -> Axis:
        """Return a part of an axis of one dimension, with its labels; `chosen` is an index or a mask."""
        coords = {name: (dims, np.asarray(values)[chosen]) for name, (dims, values) in self.coords.items()}
        return Axis(self.dims, (int(np.arange(self.sizes[0])[chosen].size),), coords)


@dataclass(frozen=True)
class Cut:
    """How a sweep reads a matrix: the axis it is cut along, the ranges of its partitions, the length of one read."""

    axis: int
    partitions: tuple[tuple[int, int], ...]
    slab_length: int


class Source(ABC):
    """A matrix of samples x features, read in ranges.

    A format is one subclass. Everything that depends on the format is an attribute or a method here, so that no other
    layer needs to know the class.

    Attributes
    ----------
    name : path or short description, for messages and provenance.
    samples, features : the two axes, with labels.
    dtype : of the values as stored.
    chunks : (rows, columns) of the smallest range that is cheap to read.
    overhead : temporary bytes to read one chunk, as a multiple of the chunk.
    library_bytes : resident size of the libraries that only this format loads.
    costly : whether decoded values are worth keeping in memory for the next sweep.
    keeps_reads : whether this source keeps what it reads, by the ranges of the read.
    is_graph : whether values are blocks of a Dask graph, which reach tasks as arguments.
    is_genotypes : whether features are variants, and values copies of an allele.
    packed : whether `read_packed` returns 2-bit genotypes.
    small : whether NumPy decodes them: the file has few, and loading the compiled loops would take longer.
    cut_axes : axes that a sweep can be cut along (0: samples, 1: features), the natural one first.
    default_scale, default_missing, default_components : the meaning of "auto", and of n_components=None.
    warm_starts : whether a subset of the features gives a good start for iterative solvers.
    filter : thresholds for features and samples, applied in the first sweep; None to keep all features.
    notes : what was excluded, in words.
    """

    name: str
    samples: Axis
    features: Axis
    dtype: np.dtype[Any]
    chunks: tuple[int, int]
    overhead: float = 0.0
    library_bytes: int = 0
    costly: bool = False
    keeps_reads: bool = False
    is_graph: bool = False
    is_genotypes: bool = False
    packed: bool = False
    small: bool = False
    cut_axes: tuple[int, ...] = (0, 1)
    default_scale: str | None = None
    default_missing: str = "error"
    default_components: int | None = None
    warm_starts: bool = False
    filter: Thresholds | None = None
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, n_features)."""
        return len(self.samples), len(self.features)

    @property
    def item_bytes(self) -> float:
        """Bytes of one value as it is read."""
        return self.dtype.itemsize

    @property
    def n_bytes(self) -> int:
        """Bytes of all values as they are read, uncompressed."""
        return int(math.prod(self.shape) * self.item_bytes)

    @property
    def preferred_axis(self) -> int:
        """The axis along which a single sweep reads the fewest partial chunks."""
        by_rows = self.chunks[0] * self.shape[1] <= self.shape[0] * self.chunks[1]
        return 0 if by_rows and 0 in self.cut_axes else 1

    @abstractmethod
    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read ranges of the outermost sample and feature dimensions, all of the others.

        Returns the values, in the order of the dimensions and maybe in a buffer that the next read reuses, and the
        number of bytes fetched.
        """

    def read(self, rows: slice, columns: slice) -> tuple[Array, int]:
        """Read a range of rows x columns; returns it (maybe a view of a reused buffer) and the bytes fetched."""
        outer_rows, inner_rows = _outer_range(rows, self.samples)
        outer_columns, inner_columns = _outer_range(columns, self.features)
        block, n_bytes = self.read_block(outer_rows, outer_columns)
        n_rows = (outer_rows.stop - outer_rows.start) * math.prod(self.samples.sizes[1:])
        return block.reshape(n_rows, -1)[inner_rows, inner_columns], n_bytes

    def read_packed(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a range of features of all samples as packed genotypes, and the bytes fetched; see `packed`."""
        raise NotImplementedError

    def delayed(self, axis: int, partitions: Sequence[tuple[int, int]]) -> list[Any] | None:
        """Return one Dask task for each partition if `is_graph`; None if tasks read the source themselves."""
        return None

    def label(self, name: str) -> Array:
        """Return one of the labels of the samples or features."""
        return np.asarray({**self.samples.coords, **self.features.coords}[name][1])

    def take(
        self, *, samples: Array | None = None, features: Array | None = None, filter: Thresholds | None = None,
        note: str = "",
    ) -> Source:  # fmt: skip
        """Return the source of some samples and features, each given as an index or a mask.

        Parameters
        ----------
        samples, features : None for all.
        filter : new thresholds.
        note : what was excluded, added to the notes.
        """
        raise InputError(f"{self.name}: samples and features can be selected from genotypes only")

    def uncached(self) -> Source:
        """Return the source without values that it keeps in memory."""
        return self

    def bare(self) -> Source:
        """Return the source as tasks in other processes need it: without labels."""
        return self

    def cut(self, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
        """Choose the partitions: whole chunks, much larger than the partial that each returns, and not too many.

        Parameters
        ----------
        axis : to cut along.
        partial_bytes : returned by the task of one partition.
        widening : size of a tile relative to the values read. Wider tiles take shorter partitions, which may be a part
            of a chunk.
        """
        n_block, row_bytes = self.shape[axis], self.shape[1 - axis] * self.item_bytes
        chunk = self.chunks[axis]
        slab_length = chunk * max(1, int(SLAB_BYTES // (chunk * row_bytes * widening)))
        wanted = max(max(PARTITION_BYTES, 4 * partial_bytes) / widening, n_block * row_bytes // MAX_PARTITIONS)
        if widening > 1 and chunk * row_bytes > PARTS_OF_CHUNK * wanted:
            slab_length = math.ceil(chunk / PARTS_OF_CHUNK)
        return regular_cut(axis, n_block, slab_length, wanted / (slab_length * row_bytes))

    def reading_bytes(self, cut: Cut) -> int:
        """Bytes in memory during one read."""
        slab = int(cut.slab_length * self.shape[1 - cut.axis] * self.item_bytes)
        chunk = math.prod(self.chunks) * self.item_bytes
        # A slab is assembled from several chunks, or cut out of one.
        copied = int(chunk) if self.overhead and slab != chunk else 0
        return slab + int(self.overhead * chunk) + copied

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short text that changes when the data do, as far as that shows without reading everything."""

    # The result of `stamp` when the data were opened.
    _opened: object = None

    def stamp(self) -> object:
        """Return a value that changes when the files do; None for data in memory."""
        return None

    def watch(self) -> None:
        """Raise if the data have changed since they were opened; called before and after each sweep."""
        try:
            now = self.stamp()
        except OSError as error:
            raise InputError(f"{self.name}: can no longer be read ({error.strerror}); restore it, run again") from error
        if self._opened is None:
            self._opened = now
        elif now != self._opened:
            raise changed(self.name)

    def explaining(self) -> AbstractContextManager[None]:
        """Translate errors of values that Dask reads for this source."""
        return nullcontext()

    def check(self) -> None:
        """Raise if no model can use the data: not numbers, or an empty axis."""
        if (self.dtype.kind, self.dtype.itemsize) not in _NUMBERS:
            raise InputError(
                f"{self.name}: values of type {self.dtype} cannot be used; convert them to floats, integers or bool"
            )
        for what, axis in (("samples", self.samples), ("features", self.features)):
            if len(axis) == 0:
                raise InputError(f"{self.name}: has no {what} (shape {self.shape}); give at least one")


def regular_cut(axis: int, n_block: int, slab_length: int, slabs: float) -> Cut:
    """Cut n_block rows into partitions of at least `slabs` whole slabs each."""
    length = slab_length * max(1, math.ceil(slabs))
    return Cut(axis, tuple((i, min(i + length, n_block)) for i in range(0, n_block, length)), min(slab_length, n_block))


def _outer_range(wanted: slice, axis: Axis) -> tuple[slice, slice]:
    """Split a range of a stacked axis into a range of its outermost dimension and a range within that.

    An axis that is not complete has one dimension here.
    """
    inner = math.prod(axis.sizes[1:]) if axis.kept is None else 1
    start = wanted.start // inner
    stop = -(-wanted.stop // inner)
    return slice(start, stop), slice(wanted.start - start * inner, wanted.stop - start * inner)


def changed(where: object) -> InputError:
    """Return the error for data that were modified during a run."""
    return InputError(f"{where}: has changed since it was opened; run again, with nothing writing to it")


def file_stamp(path: Path) -> tuple[int, int]:
    """Return size and modification time of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def digest(*parts: object) -> str:
    """Return a hash of the parts' text or bytes, for fingerprints."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else repr(part).encode())
        h.update(b"\0")
    return h.hexdigest()[:32]


def plain_axes(shape: tuple[int, ...], dims: tuple[str, ...] | None = None) -> tuple[Axis, Axis]:
    """Return the axes of an array without labels: the first dimension is samples, the others are features."""
    if dims is None:
        dims = (
            ("sample", "feature") if len(shape) == 2 else ("sample", *(f"feature_{i}" for i in range(len(shape) - 1)))
        )
    return Axis(dims[:1], shape[:1]), Axis(dims[1:], shape[1:])
