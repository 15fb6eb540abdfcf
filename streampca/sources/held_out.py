"""Data with some values left out at random, to see how well a model foretells them."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source, digest

# Values whose choice is in memory at a time.
STRIP = 1 << 20


class HeldOut(Source):
    """A source with a share of its values missing, the same ones however it is read.

    Parameters
    ----------
    source : the data, as floats or integers.
    share : of the values that are left out.
    seed : which ones.
    """

    def __init__(self, source: Source, share: float, seed: int):
        self.source, self.share, self.seed = source, share, seed
        self.name, self.chunks, self.overhead = source.name, source.chunks, source.overhead + 1.0
        self.samples, self.features = source.samples, source.features
        exact = source.dtype.kind in "biu" and source.dtype.itemsize <= 2
        self.dtype = source.dtype if source.dtype.kind == "f" else np.dtype(np.float32 if exact else np.float64)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read as the source does; what is left out is left out by `read`."""
        return self.source.read_block(outer_samples, outer_features)

    def read(self, rows: slice, columns: slice) -> tuple[Array, int]:
        """Read a range, with NaN for what is left out."""
        stored, n_bytes = self.source.read(rows, columns)
        values = np.array(stored, self.dtype, order="K")
        step = max(1, STRIP // max(1, values.shape[1]))
        for start in range(0, len(values), step):
            part = values[start : start + step]
            i = np.arange(rows.start + start, rows.start + start + len(part), dtype=np.uint64)[:, None]
            j = np.arange(columns.start, columns.stop, dtype=np.uint64)[None, :]
            part[uniform(i * np.uint64(self.shape[1]) + j, self.seed) < self.share] = np.nan
        return values, n_bytes

    def fingerprint(self) -> str:
        """Hash of the source's, the share and the seed."""
        return digest(self.source.fingerprint(), self.share, self.seed)

    def watch(self) -> None:
        """Watch the source."""
        self.source.watch()


def uniform(counter: Any, seed: int) -> Array:
    """Return numbers in [0, 1), each by its counter alone (SplitMix64; Steele, Lea & Flood 2014)."""
    with np.errstate(over="ignore"):
        x = counter + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return np.asarray(x >> np.uint64(11), np.float64) * 2.0**-53
