"""Arrays in memory, in .npy files and in Dask graphs."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from streampca._typing import Array
from streampca.errors import InputError, opening
from streampca.sources import base
from streampca.sources.base import Axis, Cut, Source, digest, file_stamp, plain_axes
from streampca.sources.scratch import scratch

READ_BYTES = 8 << 20  # of one read of an array without chunks
RUN_BYTES = 16 << 10  # contiguous bytes worth a separate read from a file


class ArraySource(Source):
    """A NumPy array, in memory or memory-mapped from a .npy file."""

    def __init__(self, array: Array, axes: tuple[Axis, Axis] | None = None, path: Path | None = None):
        if array.ndim < 2:
            raise InputError(
                f"{path or 'the array'}: expected samples x features, got {array.ndim} dimension(s); "
                "reshape it to two, e.g. x.reshape(-1, 1) for one feature"
            )
        self.name = str(path) if path else "array"
        self.samples, self.features = axes or plain_axes(array.shape)
        self.dtype = array.dtype
        self._array: Array | None = array
        self._path = path
        self.overhead = 0.0 if path is None else 1.0
        self.chunks = self._cheap_chunks(array)
        self._opened = self.stamp()

    def _cheap_chunks(self, array: Array) -> tuple[int, int]:
        n, d = self.shape
        itemsize = array.dtype.itemsize
        rows = max(1, READ_BYTES // max(1, d * itemsize))
        columns = max(1, READ_BYTES // max(1, n * itemsize))
        if self._path is not None and array.flags.c_contiguous:
            columns = max(columns, RUN_BYTES // max(1, itemsize))
        # Reads are whole steps of the outermost dimension.
        rows, columns = (-(-c // i) * i for c, i in ((rows, _inner(self.samples)), (columns, _inner(self.features))))
        return min(rows, max(n, 1)), min(columns, max(d, 1))

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Return a view of an array, or read from the file."""
        assert self._array is not None
        index = (outer_samples, *(slice(None),) * (len(self.samples.dims) - 1), outer_features)
        block = self._array[index]
        if self._path is None:
            return block, block.nbytes
        # By reads, not through the map: mapped pages count as memory of the process, and a map of a truncated file
        # kills the process without a message. Arrays in Fortran order are read as their transpose.
        if self._array.flags.c_contiguous:
            values = _read_runs(self._path, self._array, block)
        else:
            values = _read_runs(self._path, self._array.T, block.T).T
        return values, values.nbytes

    def stamp(self) -> object:
        """Return size and time of the file."""
        return None if self._path is None else file_stamp(self._path)

    def fingerprint(self) -> str:
        """Return a hash of shape and type, and of the file's size and time or some of the values."""
        if self._path is not None:
            return digest("npy", self.shape, self.dtype.str, self.stamp())
        assert self._array is not None
        rows = np.unique(np.linspace(0, len(self._array) - 1, 16).astype(int))
        return digest("array", self.shape, self.dtype.str, np.ascontiguousarray(self._array[rows]).tobytes())

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the path of a file, not its values."""
        return {**self.__dict__, "_array": self._array if self._path is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path is not None:
            self._array = open_memmap(self._path, mode="r")


def _read_runs(path: Path, array: Any, block: Array) -> Array:
    """Read a block of a mapped array in C order into a scratch buffer, in contiguous runs."""
    out = scratch("slab", block.shape, block.dtype)
    if out.size == 0:
        return out
    # The dimensions from here on are contiguous.
    first = next((i for i in range(block.ndim - 1, 0, -1) if block.shape[i] != array.shape[i]), 0)
    start = array.offset + block.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    runs = memoryview(out.reshape(-1).view(np.uint8).data)
    step = math.prod(block.shape[first:]) * out.itemsize
    with open(path, "rb", buffering=0) as file:
        for i, place in enumerate(itertools.product(*map(range, block.shape[:first]))):
            offset = start + sum(p * s for p, s in zip(place, block.strides[:first], strict=True))
            if os.preadv(file.fileno(), [runs[i * step : (i + 1) * step]], offset) != step:
                raise InputError(f"{path}: was truncated while it was read; restore it and run again")
    return out


def _inner(axis: Axis) -> int:
    """Return the number of samples or features in one step of the outermost dimension."""
    return max(1, math.prod(axis.sizes[1:]))


class DaskSource(Source):
    """A Dask array; its blocks are the partitions, computed by the scheduler of the sweep."""

    def __init__(self, array: Any, axes: tuple[Axis, Axis] | None = None, origin: Source | None = None):
        if any(math.isnan(size) for size in array.shape):
            raise InputError("the Dask array has chunks of unknown size; call compute_chunk_sizes() on it first")
        if array.ndim < 2:
            raise InputError(f"the Dask array has {array.ndim} dimension(s); give samples x features")
        self.origin = origin
        self.name = "dask array" if origin is None else origin.name
        self.samples, self.features = axes or plain_axes(array.shape)
        self.dtype = array.dtype
        self.array = array.reshape(self.shape) if array.ndim > 2 else array
        self.chunks = (max(self.array.chunks[0], default=0), max(self.array.chunks[1], default=0))
        self.overhead = 1.0

    is_graph = True

    def delayed(self, axis: int, partitions: Sequence[tuple[int, int]]) -> list[Any]:
        """Return one task of the graph for each partition."""
        lengths = tuple(stop - start for start, stop in partitions)
        # A thinned sweep has only some of the ranges; rechunking once is much less work where they are many.
        if sum(lengths) == self.shape[axis]:
            return list(self.array.rechunk({axis: lengths, 1 - axis: -1}).to_delayed().ravel())
        parts = (self.array[(slice(None),) * axis + (slice(*span),)] for span in partitions)
        return [part.rechunk(part.shape).to_delayed().item() for part in parts]

    def cut(self, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
        """Return the blocks of the array as partitions; many small ones are joined."""
        lengths = [length for length in self.array.chunks[axis] if length]
        row_bytes = max(1, int(self.shape[1 - axis] * self.item_bytes))
        least = base.PARTITION_BYTES // row_bytes if len(lengths) > base.MAX_PARTITIONS else 0
        ranges, start, stop = [], 0, 0
        for length in lengths:
            if stop > start and stop - start + length > least:
                ranges.append((start, stop))
                start = stop
            stop += length
        ranges.append((start, stop))
        return Cut(axis, tuple(ranges), max(b - a for a, b in ranges))

    def reading_bytes(self, cut: Cut) -> int:
        """Bytes of the blocks, and of the same joined."""
        return 2 * int(cut.slab_length * self.shape[1 - cut.axis] * self.item_bytes)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Compute a range in this thread."""
        n_rows, n_columns = _inner(self.samples), _inner(self.features)
        rows = slice(outer_samples.start * n_rows, outer_samples.stop * n_rows)
        columns = slice(outer_features.start * n_columns, outer_features.stop * n_columns)
        with self.explaining():
            block = np.asarray(self.array[rows, columns].compute(scheduler="synchronous"))
        return block, block.nbytes

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the shape only; the blocks reach tasks as arguments."""
        return {**self.__dict__, "array": None, "origin": None}

    def fingerprint(self) -> str:
        """Return a hash of the name of the graph, or of the fingerprint of the source it reads."""
        content = self.array.name if self.origin is None else self.origin.fingerprint()
        return digest("dask", self.shape, self.dtype.str, content)

    def watch(self) -> None:
        """Check the source that the graph reads, all of it each time; Dask's tasks do not."""
        if self.origin is not None:
            self.origin.watch()
            super().watch()

    def explaining(self) -> AbstractContextManager[None]:
        """Translate errors of a store; errors of a user's own graph are raised unchanged."""
        return nullcontext() if self.origin is None else opening(self.name, "read", "check the store against a copy")

    def stamp(self) -> object:
        """Return that of the source that the graph reads."""
        return None if self.origin is None else self.origin.stamp()


def as_numbers(data: Any) -> Array:
    """Return array-like data as a NumPy array; raise if it is not rectangular or not numeric."""
    if "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(data):
        raise InputError("data is a sparse matrix; make it dense, e.g. x.toarray(), or store it in Zarr by chunks")
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise InputError(f"rows differ in length ({error}); give a rectangular array of numbers") from error
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the array contains Python objects ({error}); convert it to numbers") from error
    return array


class BlockSource(ArraySource):
    """A computed block of a larger matrix, read by the indices of that matrix."""

    def __init__(self, block: Array, parent_shape: tuple[int, int], axis: int, start: int):
        super().__init__(block)
        self._offset = (start, 0) if axis == 0 else (0, start)
        self.samples, self.features = plain_axes(parent_shape)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Return a view, with indices relative to the block."""
        rows, columns = self._offset
        return super().read_block(
            slice(outer_samples.start - rows, outer_samples.stop - rows),
            slice(outer_features.start - columns, outer_features.stop - columns),
        )
