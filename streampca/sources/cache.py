"""Keeping what was decoded: later sweeps then need not read it again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source


class Resident(Source):
    """A source that keeps ranges once read, up to a number of bytes; shipped to another process, it starts empty."""

    def __init__(self, source: Source, capacity_bytes: int):
        self.source = source
        self._left = capacity_bytes
        self._kept: dict[tuple[int, ...], Array] = {}
        self._lock = threading.Lock()
        self.name, self.dtype, self.chunks, self.overhead = source.name, source.dtype, source.chunks, source.overhead
        self.samples, self.features = source.samples, source.features

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read from memory, or from the source and keep it if there is room."""
        key = (outer_samples.start, outer_samples.stop, outer_features.start, outer_features.stop)
        kept = self._kept.get(key)
        if kept is not None:
            return kept, 0
        block, n_bytes = self.source.read_block(outer_samples, outer_features)
        with self._lock:
            room = self._left >= block.nbytes
            if room:
                self._left -= block.nbytes
        if room:
            self._kept[key] = np.array(block)
        return block, n_bytes

    def bare(self) -> Source:
        """Return the source that keeps nothing."""
        return self.source.bare()

    def fingerprint(self) -> str:
        """Return that of the source."""
        return self.source.fingerprint()

    def watch(self) -> None:
        """Watch the source."""
        self.source.watch()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}, "_left": 0, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
