"""Base classes of genotypes: selection of samples and variants, their labels, and reading of packed rows.

A genotype counts copies of the first allele (A1): 0, 1, 2, or missing. Sources are cut along variants and return packed
rows, four samples to a byte, from which tiles are decoded directly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Self

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources import base
from streampca.sources.base import Axis, Cut, Source, digest, regular_cut
from streampca.sources.scratch import scratch
from streampca.sources.thresholds import Thresholds

TEXT = np.dtypes.StringDType()
CHUNK = 128  # variants of one read, by default
GAP_BYTES = 64 << 10  # selected variants with a shorter gap between them are read at once,
READ_BYTES = 4 << 20  # up to this size
SMALL = 1 << 21  # genotypes of a file that NumPy decodes in less time than it takes to load numba,
SMALL_BYTES = 4 * SMALL  # with temporaries of a few bytes per genotype
COMPILED_BYTES = 128 << 20  # numba, with the loops compiled for the first time
LAST_HUMAN_CODE = 26  # PLINK codes X, Y, XY and MT as 23 to 26


class VariantSource(Source):
    """Samples x variants with labels, a selection of both, and a filter.

    Parameters
    ----------
    name : path.
    samples, variants : labels of all samples and variants in the file.
    dtype : of the values.
    """

    is_genotypes = True
    cut_axes = (1,)
    default_scale = "patterson"
    default_missing = "mean"
    default_components = 10
    filter: Thresholds

    def __init__(self, name: str, samples: Mapping[str, Array], variants: Mapping[str, Array], dtype: Any = np.float32):
        self.name = name
        self.samples = _axis("sample", samples)
        self.features = _axis("variant", variants)
        self.dtype = np.dtype(dtype)
        self.filter = Thresholds()
        self._n_stored = len(self.samples)
        self._samples: Array | None = None
        self._variants: Array | None = None
        self.small = len(self.samples) * len(self.features) <= SMALL
        if self.packed:
            # Loaded now, not by the first read, so that plans count it.
            packed_loops(self.small)

    def take(
        self, *, samples: Array | None = None, features: Array | None = None, filter: Thresholds | None = None,
        note: str = "",
    ) -> Self:  # fmt: skip
        """Return the source of some samples and variants, each given as an index or a mask."""
        chosen = object.__new__(type(self))
        chosen.__dict__.update(self.__dict__)
        if samples is not None:
            chosen.samples = self.samples.take(samples)
            chosen._samples = _chosen(self._samples, self._n_stored, samples)
        if features is not None:
            chosen.features = self.features.take(features)
            chosen._variants = _chosen(self._variants, len(self.features), features)
        chosen.filter = filter or self.filter
        chosen.notes = (*self.notes, note) if note else self.notes
        return chosen

    @abstractmethod
    def stamp(self) -> tuple[object, ...]:
        """Return a value that changes when the files do."""

    def fingerprint(self) -> str:
        """Return a hash of the files' stamp, the selection and the filter."""
        chosen = (b"all" if index is None else index.tobytes() for index in (self._samples, self._variants))
        return digest(*self.stamp(), *chosen, self.filter)

    def bare(self) -> Self:
        """Return the source without labels, which may be large, and are not needed for reading."""
        chosen = self.take()
        chosen.samples, chosen.features = replace(self.samples, coords={}), replace(self.features, coords={})
        return chosen


class GenotypeSource(VariantSource):
    """Genotypes of samples x variants, packed."""

    packed = True
    warm_starts = True

    @property
    def library_bytes(self) -> int:  # type: ignore[override]
        """Resident size of numba; small files need temporaries of NumPy instead."""
        return SMALL_BYTES if self.small else COMPILED_BYTES

    @property
    def chunks(self) -> tuple[int, int]:  # type: ignore[override]
        """All samples of some variants."""
        return len(self.samples), max(1, min(CHUNK, len(self.features)))

    @property
    def item_bytes(self) -> float:
        """Four values to a byte."""
        return 0.25

    @property
    def n_bytes(self) -> int:
        """Bytes of all variants, each in whole bytes."""
        return len(self.features) * packed_width(len(self.samples))

    @property
    def slab_length(self) -> int:
        """Variants of one read: whole chunks of all stored samples, up to SLAB_BYTES."""
        chunk = self.chunks[1]
        return chunk * max(1, base.SLAB_BYTES // (chunk * packed_width(self._n_stored)))

    def cut(self, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
        """Choose the partitions; one packed byte makes 16 bytes of a tile, much work per byte read."""
        n_block, row_bytes, chunk = self.shape[axis], self.shape[1 - axis] * self.item_bytes, self.chunks[axis]
        total = n_block * row_bytes
        wanted = max(base.PARTITION_BYTES / 16, min(max(base.PARTITION_BYTES / 4, 2 * partial_bytes), total / 16))
        wanted = max(wanted, total / base.MAX_PARTITIONS)
        slab_length = min(self.slab_length, chunk * math.ceil(wanted / (chunk * row_bytes)))
        return regular_cut(axis, n_block, slab_length, wanted / (slab_length * row_bytes))

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes that are read before samples and variants are selected."""
        stored = self.slab_length * packed_width(self._n_stored)
        extra = (self._variants is not None) * (READ_BYTES + stored) + (self._samples is not None) * stored
        return extra / (math.prod(self.chunks) * self.item_bytes)

    @abstractmethod
    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read packed variants of the file, all samples, and return the bytes fetched."""

    def read_packed(self, start: int, stop: int) -> tuple[Array, int]:
        """Read selected samples and variants, packed; maybe in a buffer that the next read reuses."""
        packed, n_bytes = self._read_variants(start, stop)
        if self._samples is None:
            return packed, n_bytes
        out = scratch("samples", (len(packed), packed_width(self._samples.size)), np.uint8)
        packed_loops(self.small).take_samples(packed, self._samples, out)
        return out, n_bytes

    def _read_variants(self, start: int, stop: int) -> tuple[Array, int]:
        """Read selected variants in runs, across short gaps, at most READ_BYTES at a time."""
        if self._variants is None or start == stop:
            return self.read_stored(start, stop)
        rows = self._variants[start:stop]
        order = np.argsort(rows, kind="stable")
        width = packed_width(self._n_stored)
        out = scratch("variants", (len(rows), width), np.uint8)
        n_bytes, longest = 0, max(1, READ_BYTES // width)
        cuts = np.flatnonzero(np.diff(rows[order]) > max(1, GAP_BYTES // width)) + 1
        for run in np.split(order, cuts):
            while run.size:
                first = int(rows[run[0]])
                part, run = np.split(run, [int(np.searchsorted(rows[run], first + longest))])
                block, fetched = self.read_stored(first, int(rows[part[-1]]) + 1)
                out[part] = block[rows[part] - first]
                n_bytes += fetched
        return out, n_bytes

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Return counts of A1 as float32, NaN where missing."""
        packed, n_bytes = self.read_packed(outer_features.start, outer_features.stop)
        values = scratch("slab", (len(packed), len(self.samples)), np.float32)
        loops = packed_loops(self.small)
        table = np.broadcast_to(loops.DOSAGES.astype(np.float32), (len(packed), 4))
        loops.decode(packed, table, values)
        return values.T[outer_samples], n_bytes


def packed_loops(small: bool) -> Any:
    """Return the module of loops on packed genotypes: compiled, or NumPy for small files; numba is slow to import."""
    return import_module(f"streampca.sources.{'packed_numpy' if small else 'packed'}")


def packed_width(n_samples: int) -> int:
    """Bytes of one packed variant."""
    return -(-n_samples // 4)


def _axis(dim: str, labels: Mapping[str, Array]) -> Axis:
    size = len(next(iter(labels.values())))
    return Axis((dim,), (size,), {name: ((dim,), values) for name, values in labels.items()})


def _chosen(before: Array | None, size: int, chosen: Array) -> Array:
    return (np.arange(size) if before is None else before)[chosen]


def chromosome(code: str) -> str:
    """Return the code of a chromosome in upper case, without the prefix chr."""
    bare = code[3:] if code[:3].lower() == "chr" else code
    return bare.upper()


def on_autosomes(chromosomes: Array) -> Array | None:
    """Return the mask of the variants on chromosomes 1 to 22; None if codes are not human, or none is an autosome."""
    # Not np.unique, which imports numpy.ma.
    bare = {code: chromosome(code) for code in sorted(set(chromosomes.tolist()))}
    numbers = {code: int(name) for code, name in bare.items() if name.isdecimal() and len(name) < 10}
    autosomes = [code for code, number in numbers.items() if 1 <= number <= 22]
    if not autosomes or max(numbers.values()) > LAST_HUMAN_CODE:
        return None
    return np.isin(chromosomes, np.array(autosomes, TEXT))


def check_duplicates(path: str, what: str, keys: Sequence[Any]) -> None:
    """Raise if labels are not unique; None may occur again."""
    seen: set[Any] = set()
    for number, key in enumerate(keys, start=1):
        if key in seen and key is not None:
            shown = key if isinstance(key, str) else " ".join(key)
            raise InputError(f"{path}: duplicate {what} {shown}, number {number} of {len(keys)}; make them unique")
        seen.add(key)
