"""Sources made from other sources: a cache, a float64 view, and a view with held-out values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, Self

import numpy as np

from streampca._typing import Array
from streampca.sources.arrays import DaskSource
from streampca.sources.base import Cut, Source, digest
from streampca.sources.filters import Filter

STRIP_VALUES = 1 << 20  # values whose random numbers are in memory at a time


class Wrapper(Source):
    """A source that forwards everything it does not change to another one."""

    def __init__(self, source: Source):
        self.source = source
        for name in Source.__annotations__:
            setattr(self, name, getattr(source, name))

    @property
    def item_bytes(self) -> float:
        """Bytes of one value as it is read."""
        return self.source.item_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of all values as they are read."""
        return self.source.n_bytes

    @property
    def preferred_axis(self) -> int:
        """The axis along which a single sweep reads the fewest partial chunks."""
        return self.source.preferred_axis

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read from the source."""
        return self.source.read_block(outer_samples, outer_features)

    def read_packed(self, start: int, stop: int) -> tuple[Array, int]:
        """Read packed genotypes from the source."""
        return self.source.read_packed(start, stop)

    def delayed(self, axis: int, partitions: Sequence[tuple[int, int]]) -> list[Any] | None:
        """Return the Dask tasks of the source."""
        return self.source.delayed(axis, partitions)

    def take(
        self, *, samples: Array | None = None, features: Array | None = None, filter: Filter | None = None,
        note: str = "",
    ) -> Source:  # fmt: skip
        """Return a part of the source, not wrapped."""
        return self.source.take(samples=samples, features=features, filter=filter, note=note)

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

    def cut(self, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
        """Return the partitions of the source."""
        return self.source.cut(axis, partial_bytes, widening)

    def reading_bytes(self, cut: Cut) -> int:
        """Bytes in memory during one read."""
        return self.source.reading_bytes(cut)

    def fingerprint(self) -> str:
        """Return that of the source."""
        return self.source.fingerprint()

    def stamp(self) -> object:
        """Return that of the source."""
        return self.source.stamp()

    def watch(self) -> None:
        """Watch the source."""
        self.source.watch()

    def explaining(self) -> AbstractContextManager[None]:
        """Translate errors as the source does."""
        return self.source.explaining()


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
