"""Sources with a shape only, for plans; reads return made-up values."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source, digest, plain_axes
from streampca.sources.genotypes import GenotypeSource, packed_width
from streampca.sources.registry import genotype_suffixes
from streampca.sources.scratch import scratch
from streampca.sources.thresholds import Thresholds

PATTERN_BYTES = 8 << 20


class _MadeUp:
    """Values that repeat a pattern, which is not pickled."""

    _pattern: Any

    def _repeated(self, name: str, shape: tuple[int, int]) -> tuple[Array, int]:
        """Return a scratch buffer of made-up values, as if they were read, and its bytes."""
        out = scratch(name, shape, self._pattern.dtype)
        flat = out.reshape(-1)
        for start in range(0, flat.size, self._pattern.size):
            part = flat[start : start + self._pattern.size]
            part[:] = self._pattern[: part.size]
        return out, out.nbytes

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pattern"}


class MadeUpGenotypes(_MadeUp, GenotypeSource):
    """Packed genotypes with 0.5% missing calls."""

    def __init__(self, name: str, shape: tuple[int, int], filter: Thresholds | None = None):
        # Labels that take no memory.
        n, d = (np.broadcast_to(np.uint8(0), size) for size in shape)
        super().__init__(name, {"sample": n}, {"variant": d})
        self.samples, self.features = replace(self.samples, coords={}), replace(self.features, coords={})
        self.filter = filter or Thresholds()

    @cached_property
    def _pattern(self) -> Array:
        """A few packed variants."""
        rng = np.random.default_rng(0)
        codes = rng.choice(4, (256, 4), p=(0.09, 0.005, 0.42, 0.485)).astype(np.uint8)
        table = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=1).astype(np.uint8)
        width = packed_width(self.shape[0])
        return np.asarray(table[rng.integers(256, size=max(1, PATTERN_BYTES // width) * width, dtype=np.uint8)])

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Return made-up variants."""
        return self._repeated("packed", (stop - start, packed_width(self.shape[0])))

    def stamp(self) -> tuple[object, ...]:
        """Return the shape."""
        return ("made up", self.shape)


class MadeUpArray(_MadeUp, Source):
    """A float32 array in chunks of about 8 MB, complete along the shorter side."""

    def __init__(self, name: str, shape: tuple[int, int]):
        self.name, self.dtype = name, np.dtype(np.float32)
        self.samples, self.features = plain_axes(shape)
        short = int(shape[1] > shape[0])
        length = max(1, min(shape[short], PATTERN_BYTES // (4 * shape[1 - short])))
        self.chunks = (length, shape[1]) if short == 0 else (shape[0], length)

    @cached_property
    def _pattern(self) -> Array:
        return np.random.default_rng(0).standard_normal(PATTERN_BYTES // 4 + 1, np.float32)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Return made-up values."""
        shape = outer_samples.stop - outer_samples.start, outer_features.stop - outer_features.start
        return self._repeated("slab", shape)

    def fingerprint(self) -> str:
        """Return a hash of the shape."""
        return digest("made up", self.shape)


def made_up_like(source: Source, shape: tuple[int, int]) -> Source:
    """Return made-up data of this shape, of the same kind as a source."""
    return MadeUpGenotypes(source.name, shape) if source.packed else MadeUpArray(source.name, shape)


def made_up(path: str, shape: tuple[int, int], filter: Thresholds | None = None) -> Source:
    """Return made-up data of this shape: genotypes if the suffix is theirs, else float32."""
    genotypes = path.endswith(genotype_suffixes())
    return MadeUpGenotypes(path, shape, filter) if genotypes else MadeUpArray(path, shape)
