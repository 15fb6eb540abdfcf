"""Sources with a shape only, for plans; reads return made-up values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source, digest, plain_axes
from streampca.sources.filters import Filter
from streampca.sources.genotypes import GenotypeSource, packed_width
from streampca.sources.registry import genotype_suffixes
from streampca.sources.scratch import scratch

MADE_UP_BYTES = 8 << 20  # repeated


class _ShapeOnly:
    """Made-up values are not pickled."""

    _made: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


class PaperGenotypes(_ShapeOnly, GenotypeSource):
    """Made-up packed genotypes."""

    def __init__(self, name: str, shape: tuple[int, int], filter: Filter | None = None):
        # Labels that take no memory.
        n, d = (np.broadcast_to(np.uint8(0), size) for size in shape)
        super().__init__(name, {"sample": n}, {"variant": d})
        self.samples, self.features = replace(self.samples, coords={}), replace(self.features, coords={})
        self.filter = filter or Filter()

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Copy made-up values to a scratch buffer, as if they were read."""
        if self._made is None:
            self._made = _made_up_codes(self.shape[0])
        out = scratch("packed", (stop - start, self._made.shape[1]), np.uint8)
        for i in range(0, len(out), len(self._made)):
            part = out[i : i + len(self._made)]
            part[:] = self._made[: len(part)]
        return out, out.nbytes

    def stamp(self) -> tuple[object, ...]:
        """Return the shape."""
        return ("paper", self.shape)


def _made_up_codes(n_samples: int) -> Array:
    """Return a few packed variants, with 0.5% missing calls."""
    rng = np.random.default_rng(0)
    codes = rng.choice(4, (256, 4), p=(0.09, 0.005, 0.42, 0.485)).astype(np.uint8)
    table = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=1).astype(np.uint8)
    width = packed_width(n_samples)
    return np.asarray(table[rng.integers(256, size=(max(1, MADE_UP_BYTES // width), width), dtype=np.uint8)])


class PaperArray(_ShapeOnly, Source):
    """A made-up float32 array in chunks of about 8 MB, complete along the shorter side."""

    def __init__(self, name: str, shape: tuple[int, int]):
        self.name, self.dtype = name, np.dtype(np.float32)
        self.samples, self.features = plain_axes(shape)
        short = int(shape[1] > shape[0])
        length = max(1, min(shape[short], MADE_UP_BYTES // (4 * shape[1 - short])))
        self.chunks = (length, shape[1]) if short == 0 else (shape[0], length)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Copy made-up values to a scratch buffer, as if they were read."""
        if self._made is None:
            self._made = np.random.default_rng(0).standard_normal(MADE_UP_BYTES // 4 + 1, np.float32)
        shape = outer_samples.stop - outer_samples.start, outer_features.stop - outer_features.start
        out = scratch("slab", shape, np.float32)
        flat = out.reshape(-1)
        for i in range(0, flat.size, self._made.size):
            part = flat[i : i + self._made.size]
            part[:] = self._made[: part.size]
        return out, out.nbytes

    def fingerprint(self) -> str:
        """Return a hash of the shape."""
        return digest("paper", self.shape)


def like(source: Source, shape: tuple[int, int]) -> Source:
    """Return made-up data of this shape, of the same kind as a source."""
    return PaperGenotypes(source.name, shape) if source.packed else PaperArray(source.name, shape)


def on_paper(path: str, shape: tuple[int, int], filter: Filter | None = None) -> Source:
    """Return a source of this shape: genotypes if the suffix is theirs, else float32."""
    genotypes = path.endswith(genotype_suffixes())
    return PaperGenotypes(path, shape, filter) if genotypes else PaperArray(path, shape)
