"""VCF Zarr stores, as bio2zarr and sgkit write them: called genotypes, or dosages.

    call_genotype    variants x samples x ploidy, numbers of alleles: 0 is REF, -1 missing, -2 padding
    call_dosage      variants x samples, expected copies of ALT, NaN missing

References: https://github.com/sgkit-dev/vcf-zarr-spec
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import zarr

from streampca._typing import Array
from streampca.errors import DAMAGED, InputError, opening
from streampca.sources.genotypes import (
    TEXT,
    GenotypeSource,
    VariantSource,
    check_duplicates,
    packed_loops,
    packed_width,
)
from streampca.sources.scratch import scratch
from streampca.sources.zarr_arrays import ZarrArray, ZarrGroup, ZarrSource, check_array, check_size, place_of

CALLS, DOSAGES = "call_genotype", "call_dosage"


class _StoredArray(VariantSource):
    """Variants of one array of a VCF Zarr store, variants x samples (x ploidy)."""

    costly = True
    _values: ZarrSource

    def stamp(self) -> tuple[object, ...]:
        """Return a hash of the metadata, and of sizes and times of chunks."""
        return ("vcf_zarr", self._values.fingerprint())

    def watch(self) -> None:
        """Watch the array."""
        self._values.watch()


class VcfZarrSource(_StoredArray, GenotypeSource):
    """Called genotypes of a VCF Zarr store, packed as they are read.

    A1, the counted allele, is ALT; at multiallelic sites all ALT alleles count as one. A haploid call (ploidy 1, or
    padded by -2) counts double, as in PLINK. A call with a missing allele (0/.) is missing.
    """

    def __init__(self, group: ZarrGroup):
        array = _member(group, CALLS)
        self._values = ZarrSource(array)
        if array.ndim != 3 or array.dtype.kind != "i" or array.shape[2] not in (1, 2):
            raise InputError(
                f"{self._values.name}: {array.dtype} of shape {array.shape} cannot be used; "
                "genotypes are signed integers, variants x samples x ploidy 1 or 2"
            )
        super().__init__(place_of(group), *_labels(group, array.shape))
        # One chunk of the store: variants x samples.
        self._unit = (self._values.chunks[0], self._values.chunks[1] // array.shape[2])

    @property
    def chunks(self) -> tuple[int, int]:  # type: ignore[override]
        """All samples of the variants of one stored chunk."""
        return len(self.samples), min(self._unit[0], len(self.features))

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of a stored chunk compressed, decoded and cut, and of its packed rows."""
        decoded = math.prod(self._values.chunks) * self._values.item_bytes
        packed = self._unit[0] * packed_width(self._n_stored)
        of_chunk = (2 + self._values.overhead) * decoded + packed
        return super().overhead + of_chunk / (math.prod(self.chunks) * self.item_bytes)

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a run of variants."""
        return self._read_rows(np.arange(start, stop))

    def _read_variants(self, start: int, stop: int) -> tuple[Array, int]:
        """Read selected variants, not in runs as the base class: each chunk is decoded once."""
        return self._read_rows(np.arange(start, stop) if self._variants is None else self._variants[start:stop])

    def _read_rows(self, rows: Array) -> tuple[Array, int]:
        width = packed_width(self._n_stored)
        out = scratch("variants", (len(rows), width), np.uint8)
        n_bytes = 0
        for places, first, last in by_chunk(rows, self._unit[0]):
            block = scratch("rows", (last - first, width), np.uint8)
            n_bytes += self._pack(first, last, block)
            out[places] = block[rows[places] - first]
        return out, n_bytes

    def _pack(self, start: int, stop: int, out: Array) -> int:
        """Pack variants of one row of chunks, one chunk in memory at a time; returns the bytes fetched."""
        n_bytes = 0
        for first in range(0, self._n_stored, self._unit[1]):
            last = min(first + self._unit[1], self._n_stored)
            calls, fetched = self._values.read_block(slice(start, stop), slice(first, last))
            calls = calls.astype(calls.dtype.newbyteorder("="), copy=False)
            packed_loops(self.small).pack_alleles(calls, first, out)
            n_bytes += fetched
        return n_bytes


class DosageSource(_StoredArray):
    """Dosages of a VCF Zarr store; NaN where missing."""

    def __init__(self, group: ZarrGroup, variable: str = DOSAGES):
        array = _member(group, variable)
        self._values = ZarrSource(array)
        if array.ndim != 2 or array.dtype.kind != "f":
            raise InputError(
                f"{self._values.name}: {array.dtype} of shape {array.shape} cannot be used; "
                "dosages are floats, variants x samples"
            )
        super().__init__(self._values.name, *_labels(group, array.shape), self._values.dtype)

    @property
    def chunks(self) -> tuple[int, int]:  # type: ignore[override]
        """One stored chunk, or the part of it that is selected."""
        variants, samples = self._values.chunks
        return min(samples, len(self.samples)), min(variants, len(self.features))

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of a stored chunk, decoded and compressed."""
        return (1 + self._values.overhead) * math.prod(self._values.chunks) / math.prod(self.chunks)

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read whole chunks; returns samples x variants."""
        if self._samples is None and self._variants is None:
            block, n_bytes = self._values.read_block(outer_features, outer_samples)
            return block.T, n_bytes
        n_variants, n_samples = self._values.shape
        rows = (np.arange(n_variants) if self._variants is None else self._variants)[outer_features]
        columns = (np.arange(n_samples) if self._samples is None else self._samples)[outer_samples]
        out = scratch("chosen", (len(rows), len(columns)), self.dtype)
        n_bytes, left = 0, int(columns.min(initial=n_samples))
        span = slice(left, int(columns.max(initial=left - 1)) + 1)
        for places, first, last in by_chunk(rows, self._values.chunks[0]):
            block, fetched = self._values.read_block(slice(first, last), span)
            out[places] = block[np.ix_(rows[places] - first, columns - left)]
            n_bytes += fetched
        return out.T, n_bytes


def by_chunk(rows: Array, length: int) -> Iterator[tuple[Array, int, int]]:
    """Group rows by the chunk that they are in; yields their positions, and the range of rows that covers them."""
    chunk = rows // length
    for which in np.unique(chunk):
        places = np.flatnonzero(chunk == which)
        yield places, int(rows[places].min()), int(rows[places].max()) + 1


def _labels(group: ZarrGroup, shape: tuple[int, ...]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the labels of the samples and of the variants."""
    name = place_of(group)
    samples = _text(group, "sample_id", shape[1:2])
    check_duplicates(name, "sample", samples.tolist())
    contigs = _text(group, "contig_id")
    # With one contig all codes are 0, the fill value, and chunks of them may be missing.
    codes = np.zeros(shape[:1], int) if len(contigs) == 1 else _values(group, "variant_contig", shape[:1])
    if codes.dtype.kind not in "iu" or codes.min(initial=0) < 0 or codes.max(initial=0) >= max(1, len(contigs)):
        raise InputError(
            f"{name}: variant_contig must index the {len(contigs)} entries of contig_id; write the store again"
        )
    if _has(group, "variant_id"):
        ids = _text(group, "variant_id", shape[:1])
        ids[ids == ""] = "."
    else:
        ids = np.full(shape[:1], ".", TEXT)
    alleles = _text(group, "variant_allele", shape[:1])
    if alleles.ndim != 2 or alleles.shape[1] < 1:
        raise InputError(f"{name}: variant_allele has the shape {alleles.shape}; expected variants x alleles")
    variants = {
        "chromosome": contigs[codes],
        "position": _values(group, "variant_position", shape[:1]).astype(np.int64),
        "variant_id": ids,
        "allele_1": _joined(alleles[:, 1:]),
        "allele_2": alleles[:, 0],
    }
    # VCF has no families; PLINK 2 writes 0 for these.
    return {"fid": np.full(len(samples), "0", TEXT), "iid": samples}, variants


def _joined(alleles: Array) -> Array:
    """Return the ALT alleles of each variant separated by commas, "." if it has none; rows are padded with ""."""
    joined: Array = np.full(len(alleles), "", TEXT)
    for column in alleles.T:
        both = (joined != "") & (column != "")
        joined = np.strings.add(np.strings.add(joined, np.where(both, ",", "").astype(TEXT)), column)
    joined[joined == ""] = "."
    return joined


def _text(group: ZarrGroup, name: str, shape: tuple[int, ...] = ()) -> Array:
    return _values(group, name, shape).astype(TEXT)


def _values(group: ZarrGroup, name: str, shape: tuple[int, ...] = ()) -> Array:
    """Read all of an array whose first dimensions must have this shape."""
    array = _member(group, name)
    if array.shape[: len(shape)] != shape:
        raise InputError(
            f"{place_of(group)}: {name} has the shape {array.shape}, the genotypes have {shape[0]}; "
            "write the store again"
        )
    check_size(array)
    with opening(f"{place_of(group)}/{name}", "read", "check the store against a copy"):
        return np.asarray(array[...])


def _member(group: ZarrGroup, name: str) -> ZarrArray:
    """Return an array of a group, after a check of its metadata."""
    where = place_of(group)
    with opening(f"{where}/{name}", "opened"):
        array = group[name] if _has(group, name) else None
    if not isinstance(array, zarr.Array):
        raise InputError(f"{where}: has no array {name}; check that it is a VCF Zarr store")
    check_array(array)
    return array


def _has(group: ZarrGroup, name: str) -> bool:
    """Whether a group has a member, even one that cannot be opened."""
    try:
        return name in group
    except InputError:
        raise
    except DAMAGED:
        return True


def has_genotypes(group: ZarrGroup) -> bool:
    """Whether a group is a VCF Zarr store with genotypes or dosages."""
    return _has(group, "variant_position") and (_has(group, CALLS) or _has(group, DOSAGES))


def open_vcf_zarr(group: ZarrGroup, variable: str | None = None) -> VcfZarrSource | DosageSource:
    """Open the genotypes of a group, or dosages: those named, or the default ones if it has no genotypes."""
    name = variable or (CALLS if _has(group, CALLS) or not _has(group, DOSAGES) else DOSAGES)
    return VcfZarrSource(group) if name == CALLS else DosageSource(group, name)
