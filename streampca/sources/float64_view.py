"""Data as float64, for what float32 does not do."""

from __future__ import annotations

import numpy as np

from streampca._typing import Array
from streampca.sources.arrays import DaskSource
from streampca.sources.base import Source


class Precise(Source):
    """A source whose values are read as float64."""

    def __init__(self, source: Source):
        self.source = source
        self.name, self.chunks, self.overhead, self.costly = source.name, source.chunks, source.overhead, source.costly
        self.samples, self.features = source.samples, source.features
        self.dtype = np.dtype(np.float64)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read, and convert."""
        block, n_bytes = self.source.read_block(outer_samples, outer_features)
        return block.astype(np.float64), n_bytes

    def fingerprint(self) -> str:
        """Return that of the source."""
        return self.source.fingerprint()

    def watch(self) -> None:
        """Watch the source."""
        self.source.watch()


def as_float64(source: Source) -> Source:
    """Return the source with values of float64."""
    if not isinstance(source, DaskSource):
        return Precise(source)
    chosen = DaskSource(source.array.astype(np.float64), (source.samples, source.features), source.origin)
    chosen.name = source.name
    return chosen
