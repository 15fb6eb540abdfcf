"""Sources made from other sources: a cache, a float64 view, and a view with held-out values."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np

from streampca._typing import Array
from streampca.errors import MissingValuesError
from streampca.sources.arrays import DaskSource
from streampca.sources.base import Axis, Source, digest

STRIP_VALUES = 1 << 20  # values whose random numbers are in memory at a time


def _forwarded(name: str) -> Any:
    """Return a property: the attribute or method of this name of the wrapped source."""
    return property(attrgetter(f"source.{name}"))


class Wrapper(Source):
    """A source that forwards everything it does not change to another one. Parts of it are not wrapped."""

    def __init__(self, source: Source):
        self.source = source
        for name in Source.__annotations__:
            setattr(self, name, getattr(source, name))

    item_bytes, n_bytes, preferred_axis = map(_forwarded, ("item_bytes", "n_bytes", "preferred_axis"))
    read_block, read_packed, delayed = map(_forwarded, ("read_block", "read_packed", "delayed"))
    take, cut, reading_bytes = map(_forwarded, ("take", "cut", "reading_bytes"))
    fingerprint, stamp, watch, explaining = map(_forwarded, ("fingerprint", "stamp", "watch", "explaining"))

    def uncached(self) -> Source:
        """Return the same view of a source without values in memory."""
        return self._of(self.source.uncached())

    def bare(self) -> Source:
        """Return the same view of a source without labels."""
        return self._of(self.source.bare())

    def _of(self, source: Source) -> Self:
        same = copy(self)
        same.source, same.samples, same.features = source, source.samples, source.features
        return same


class Cached(Wrapper):
    """A source that keeps what it reads, up to a number of bytes; in another process it starts empty."""

    def __init__(self, source: Source, capacity_bytes: int):
        super().__init__(source)
        self.keeps_reads = True
        self._left = capacity_bytes
        self._kept: dict[tuple[int, ...], Array] = {}
        self._lock = threading.Lock()

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read from memory, or from the source and keep the values if they fit."""
        key = (outer_samples.start, outer_samples.stop, outer_features.start, outer_features.stop)
        return self._cached(key, lambda: self.source.read_block(outer_samples, outer_features))

    def read_packed(self, start: int, stop: int) -> tuple[Array, int]:
        """Read from memory, or from the source and keep the packed genotypes if they fit."""
        return self._cached((start, stop), lambda: self.source.read_packed(start, stop))

    def _cached(self, key: tuple[int, ...], read: Callable[[], tuple[Array, int]]) -> tuple[Array, int]:
        kept = self._kept.get(key)
        if kept is not None:
            return kept, 0
        block, n_bytes = read()
        with self._lock:
            fits = self._left >= block.nbytes
            if fits:
                self._left -= block.nbytes
        if fits:
            self._kept[key] = np.array(block)
        return block, n_bytes

    def uncached(self) -> Source:
        """Return the source itself."""
        return self.source.uncached()

    def bare(self) -> Source:
        """Return the source without labels; it keeps nothing."""
        return self.source.bare()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}, "_left": 0, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


class Converted(Wrapper):
    """A source whose values are read one by one and changed: neither packed nor blocks of a Dask graph."""

    def __init__(self, source: Source, dtype: np.dtype[Any]):
        super().__init__(source)
        self.dtype = dtype
        self.packed = self.is_graph = False

    item_bytes, n_bytes = Source.item_bytes, Source.n_bytes
    cut, reading_bytes, delayed = Source.cut, Source.reading_bytes, Source.delayed


class Float64View(Converted):
    """A source whose values are read as float64."""

    def __init__(self, source: Source):
        super().__init__(source, np.dtype(np.float64))

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read and convert."""
        block, n_bytes = self.source.read_block(outer_samples, outer_features)
        return block.astype(np.float64), n_bytes


def as_float64(source: Source) -> Source:
    """Return a source with values of float64."""
    if not isinstance(source, DaskSource):
        return Float64View(source)
    converted = DaskSource(source.array.astype(np.float64), (source.samples, source.features), source.origin)
    converted.name = source.name
    return converted


class Present(Converted):
    """A source without features that are missing in every sample, such as land; values there are an error.

    Parameters
    ----------
    source : floats.
    kept : the other features, in order.
    """

    def __init__(self, source: Source, kept: Array):
        super().__init__(source, source.dtype)
        self.features = replace(source.features, kept=kept)
        self.chunks = source.chunks[0], max(1, source.chunks[1] * len(kept) // source.shape[1])
        self.overhead = source.overhead + 1.0
        self.notes = (*source.notes, absent_note(source, kept))

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read a range of the features that are kept, and check that those between them are missing."""
        kept, inner = self._kept, math.prod(self.samples.sizes[1:])
        rows = slice(outer_samples.start * inner, outer_samples.stop * inner)
        start = int(kept[outer_features.start]) if outer_features.start else 0
        stop = int(kept[outer_features.stop]) if outer_features.stop < len(kept) else self.source.shape[1]
        block, n_bytes = self.source.read(rows, slice(start, stop))
        absent = np.ones(stop - start, bool)
        absent[kept[outer_features] - start] = False
        check_absent(block, absent, self.source, start)
        return np.ascontiguousarray(block[:, ~absent]), n_bytes

    @property
    def _kept(self) -> Array:
        assert self.features.kept is not None
        return self.features.kept

    def _of(self, source: Source) -> Self:
        same = super()._of(source)
        same.features = replace(source.features, kept=self._kept)
        return same


def present(source: Source, kept: Array | None) -> Source:
    """Return a source of some features; all others must be missing. None keeps all."""
    if kept is None or kept[-1] >= source.shape[1]:
        return source
    if not isinstance(source, DaskSource):
        return Present(source, kept)
    absent = np.ones(source.shape[1], bool)
    absent[kept] = False
    labels = Labels(source.name, source.samples, source.features)
    checked = source.array.map_blocks(partial(_checked_block, absent=absent, labels=labels), dtype=source.dtype)
    part = DaskSource(checked[:, kept], (source.samples, replace(source.features, kept=kept)), source.origin)
    part.name, part.notes = source.name, (*source.notes, absent_note(source, kept))
    return part


class Labels(NamedTuple):
    """Name and axes of a source, for messages."""

    name: str
    samples: Axis
    features: Axis


def _checked_block(block: Array, absent: Array, labels: Labels, block_info: Any = None) -> Array:
    """Return a block of a Dask array, whose features in `absent` must be missing."""
    start, stop = block_info[0]["array-location"][1]
    check_absent(block, absent[start:stop], labels, start)
    return block


def check_absent(block: Array, absent: Array, source: Source | Labels, start: int) -> None:
    """Raise if a block, whose first feature is `start`, has values of features that the first sample does not have."""
    known = ~np.isnan(block[:, absent]).all(axis=0)
    if known.any():
        feature = start + int(np.flatnonzero(absent)[known.argmax()])
        where = "; ".join(filter(None, (source.samples.place(0), source.features.place(feature))))
        raise MissingValuesError(
            f"{source.name}: sample 0, feature {feature} (counted from 0; {where}) is missing, and not in every sample",
            "fill missing values, or use missing='mean'",
        )


def absent_note(source: Source, kept: Array) -> str:
    """Return how many features are excluded, in words."""
    d = source.shape[1]
    return f"features excluded: {d - len(kept):,} of {d:,} are missing in every sample; they are NaN in the result"


def without_absent(source: Source) -> Source:
    """Return a source of labelled floats without the features that are missing in its first sample.

    Reading raises if they have values in other samples.
    """
    if source.dtype.kind != "f" or source.is_genotypes or not source.features.coords or source.shape[0] < 2:
        return source
    step, d = max(source.chunks[1], STRIP_VALUES), source.shape[1]
    parts = (source.read(slice(0, 1), slice(start, min(start + step, d)))[0] for start in range(0, d, step))
    kept = np.flatnonzero(np.concatenate([~np.isnan(part[0]) for part in parts]))
    return source if len(kept) in (0, d) else present(source, kept)


class HeldOut(Converted):
    """A source with a random share of its values missing, the same ones however it is read.

    Parameters
    ----------
    source : floats or integers; its filter has been applied already.
    share : of the values that are held out.
    seed : of the random choice.
    """

    def __init__(self, source: Source, share: float, seed: int):
        exact = source.dtype.kind in "biu" and source.dtype.itemsize <= 2
        super().__init__(source, source.dtype if source.dtype.kind == "f" else np.dtype("f4" if exact else "f8"))
        self.share, self.seed = share, seed
        self.overhead = source.overhead + 1.0
        self.costly, self.filter = False, None

    def read(self, rows: slice, columns: slice) -> tuple[Array, int]:
        """Read a range, with NaN for held-out values."""
        stored, n_bytes = self.source.read(rows, columns)
        values = np.array(stored, self.dtype, order="K")
        step = max(1, STRIP_VALUES // max(1, values.shape[1]))
        for start in range(0, len(values), step):
            part = values[start : start + step]
            i = np.arange(rows.start + start, rows.start + start + len(part), dtype=np.uint64)[:, None]
            j = np.arange(columns.start, columns.stop, dtype=np.uint64)[None, :]
            part[uniform(i * np.uint64(self.shape[1]) + j, self.seed) < self.share] = np.nan
        return values, n_bytes

    def fingerprint(self) -> str:
        """Return a hash of the source's fingerprint, the share and the seed."""
        return digest(self.source.fingerprint(), self.share, self.seed)


def uniform(counter: Any, seed: int) -> Array:
    """Return numbers in [0, 1), each a function of its counter (SplitMix64; Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        x = counter + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return np.asarray(x >> np.uint64(11), np.float64) * 2.0**-53
