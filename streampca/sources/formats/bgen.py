"""BGEN files, version 1.2 and 1.3 (layout 2): dosages from genotype probabilities, with or without a .sample file.

    header    offset, number of variants and samples, compression, layout, whether sample ids follow
    variant   ids, chromosome, position, alleles, then its probabilities, compressed:
              n samples, ploidy and missingness of each (one byte), phased or not, B bits, probabilities in units of
              1 / (2^B - 1), without the last one of each sample

The counted allele, A1, is the second one; at multiallelic sites all alleles but the first count as one. A haploid call
counts double, as in PLINK. Values are the expected number of copies of A1, NaN where missing.

Reference: Band & Marchini (2018), BGEN: a binary file format for imputed genotype and haplotype data, bioRxiv 308296.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from functools import cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numcodecs import zstd

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.base import file_stamp
from streampca.sources.formats.plink1 import check_no_variable, open_binary, sample_labels, variant_labels
from streampca.sources.genotypes import CHUNK, VariantSource
from streampca.sources.registry import OpenOptions, register
from streampca.sources.scratch import scratch

MAGIC = (b"bgen", b"\0\0\0\0")
NONE, ZLIB, ZSTD = 0, 1, 2
MISSING = 0x80  # bit of the ploidy byte
MOST_ALLELES = 255
MOST_PLOIDY = 2
# Bytes that a variant may take per sample once decompressed: two probabilities of 32 bits for each of ten genotypes.
MOST_SAMPLE_BYTES = 80


@register(suffixes=(".bgen",), genotypes=True)
class BgenSource(VariantSource):
    """Dosages of a BGEN file."""

    costly = True
    warm_starts = True

    def __init__(self, path: Path, options: OpenOptions | None = None):
        check_no_variable(path, options)
        self._path = path
        with io.BufferedReader(open_binary(path)) as file:
            header = _Header(path, file)
            table = _sample_table(path)
            # An id without a family has the family 0, as in PLINK.
            ids = [("0", one) for one in header.samples] if table is None else _read_sample_table(table)
            if len(ids) != header.n_samples:
                raise InputError(f"{table or path}: has {len(ids)} samples, {path} has {header.n_samples}")
            self._starts, self._lengths, variants = _index(header, file)
        self._compression, self._files = header.compression, (path, *([table] if table else []))
        super().__init__(str(path), sample_labels(path, *zip(*ids, strict=True)), variants)
        self._opened = self.stamp()

    @property
    def chunks(self) -> tuple[int, int]:  # type: ignore[override]
        """All samples of some variants."""
        return len(self.samples), max(1, min(CHUNK, len(self.features)))

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of one variant compressed, decompressed and decoded, and of its index."""
        largest = int(self._lengths.max(initial=0))
        one = largest + self._n_stored * 24
        index = self._starts.nbytes * 2
        return (one + index) / (math.prod(self.chunks) * self.item_bytes)

    def stamp(self) -> tuple[object, ...]:
        """Return sizes and times of the files."""
        return ("bgen", *map(file_stamp, self._files))

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read and decode a range of variants, one at a time; returns samples x variants."""
        rows = np.arange(len(self._starts)) if self._variants is None else self._variants
        rows = rows[outer_features]
        columns = np.arange(self._n_stored) if self._samples is None else self._samples
        columns = columns[outer_samples]
        everyone = len(columns) == self._n_stored and self._samples is None
        out = scratch("dosages", (len(rows), len(columns)), np.float32)
        n_bytes = 0
        with open_binary(self._path) as file:
            for place, row in enumerate(rows):
                file.seek(self._starts[row])
                packed = file.read(self._lengths[row])
                n_bytes += len(packed)
                try:
                    values = dosages(self._unpacked(packed), self._n_stored)
                except (ValueError, RuntimeError, zlib.error, struct.error) as error:
                    raise InputError(
                        f"{self._path}: variant {row + 1} cannot be read ({error}); restore the file from a copy"
                    ) from error
                out[place] = values if everyone else values[columns]
        return out.T, n_bytes

    def _unpacked(self, packed: bytes) -> bytes:
        """Decompress the probabilities of one variant."""
        if self._compression == NONE:
            return packed
        (size,) = struct.unpack_from("<I", packed)
        if size > 10 + self._n_stored * MOST_SAMPLE_BYTES:
            raise ValueError(f"{size} bytes for {self._n_stored} samples")
        if self._compression == ZSTD:
            data = bytes(zstd.decompress(packed[4:]))
        else:
            data = zlib.decompressobj().decompress(packed[4:], size + 1)
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes decompressed, expected {size}")
        return data


def dosages(data: bytes, n_samples: int) -> Array:
    """Return the expected copies of all alleles but the first (n_samples,), from the probabilities of one variant."""
    n, n_alleles, _, most = struct.unpack_from("<IHBB", data)
    if n != n_samples:
        raise ValueError(f"{n} samples, expected {n_samples}")
    if not 1 <= n_alleles <= MOST_ALLELES or most > MOST_PLOIDY:
        raise ValueError(f"{n_alleles} alleles and ploidy {most} are not supported")
    flags = np.frombuffer(data, np.uint8, n, 8)
    phased, bits = data[8 + n], data[9 + n]
    if phased > 1 or not 1 <= bits <= 32:
        raise ValueError(f"phased {phased} and {bits} bits are not valid")
    codes = np.flatnonzero(np.bincount(flags, minlength=256))
    ploidies = {int(code) & ~MISSING for code in codes}
    if not ploidies <= {1, 2}:
        raise ValueError(f"ploidy {max(ploidies)} is not supported")
    if ploidies == {2} and n_alleles == 2 and bits == 8:
        # Two bytes for each sample.
        values = _pairs(bool(phased))[_stored(data, 10 + n, n, 16)]
    else:
        values = _weighted(
            data, flags & ~np.uint8(MISSING), bits, {own: _weights(n_alleles, own, bool(phased)) for own in ploidies}
        )
    if codes[-1] >= MISSING:
        values[flags >= MISSING] = np.nan
    return values


def _weighted(data: bytes, ploidy: Array, bits: int, weights: dict[int, Array]) -> Array:
    """Return 2 minus the copies of the first allele, from the weight of each stored probability, by ploidy."""
    n = len(ploidy)
    counts = np.array([0, *(len(weights.get(own, ())) for own in (1, 2))])[ploidy]
    probabilities = _numbers(data, 10 + n, int(counts.sum()), bits)
    if len(weights) == 1:
        ((own, weight),) = weights.items()
        return np.asarray(2 - (2 // own) * (probabilities.reshape(n, len(weight)) @ weight), np.float32)
    starts, values = np.cumsum(counts) - counts, np.empty(n, np.float32)
    for own, weight in weights.items():
        who = np.flatnonzero(ploidy == own)
        values[who] = 2 - (2 // own) * (probabilities[starts[who, None] + np.arange(len(weight))] @ weight)
    return values


@cache
def _pairs(phased: bool) -> Array:
    """Return the copies of the second allele for two bytes: probabilities of genotypes, or of haplotypes."""
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    weights = _weights(2, 2, phased)
    return np.asarray((2 - (weights[0] * first + weights[1] * second) / 255).astype(np.float32))


@cache
def _weights(n_alleles: int, ploidy: int, phased: bool) -> Array:
    """Return the copies of the first allele that each stored probability stands for; the last one is not stored."""
    if phased:
        copies = [int(allele == 0) for _ in range(ploidy) for allele in range(n_alleles - 1)]
    else:
        # In colexicographic order, as the format has them: by the largest allele first.
        genotypes = sorted(combinations_with_replacement(range(n_alleles), ploidy), key=lambda one: one[::-1])
        copies = [genotype.count(0) for genotype in genotypes[:-1]]
    return np.array(copies, np.float32)


def _numbers(data: bytes, start: int, count: int, bits: int) -> Array:
    """Return unsigned numbers of some bits, as shares of the largest one."""
    unit = 1 / (2.0**bits - 1)
    if bits in (8, 16, 32):
        return np.asarray((_stored(data, start, count, bits) * unit).astype(np.float32))
    n_bytes = -(-count * bits // 8)
    each = np.unpackbits(_stored(data, start, n_bytes, 8), count=count * bits, bitorder="little")
    return np.asarray((each.reshape(count, bits) @ 2.0 ** np.arange(bits) * unit).astype(np.float32))


def _stored(data: bytes, start: int, count: int, bits: int) -> Array:
    """Return unsigned integers; raise if there are too few."""
    if len(data) - start < count * bits // 8:
        raise ValueError(f"{len(data) - start} bytes of probabilities, expected {count * bits // 8}")
    return np.frombuffer(data, np.dtype(f"<u{bits // 8}"), count, start)


class _Header:
    """The header of a BGEN file; the file is left at the first variant."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path = path
        head = file.read(24)
        if len(head) < 24 or head[16:20] not in MAGIC:
            raise InputError(f"{path}: is not a BGEN file; check the path")
        offset, length, self.n_variants, self.n_samples = struct.unpack("<4I", head[:16])
        if not 20 <= length <= offset:
            raise self.damaged("the header has an invalid length")
        if not self.n_samples or not self.n_variants:
            raise InputError(f"{path}: has {self.n_samples} samples and {self.n_variants} variants; check the file")
        size = path.stat().st_size
        if offset + 4 > size or self.n_samples > size or self.n_variants > size:
            raise self.damaged("it is shorter than its header says")
        file.seek(length)
        (flags,) = struct.unpack("<I", file.read(4))
        self.compression, layout = flags & 3, (flags >> 2) & 15
        if layout != 2 or self.compression > ZSTD:
            raise InputError(
                f"{path}: has layout {layout} and compression {self.compression}; write it again as BGEN 1.2: "
                "qctool, or plink2 --export bgen-1.2"
            )
        self.samples = self._read_samples(file, offset) if flags >> 31 else self._numbered()
        file.seek(offset + 4)

    def damaged(self, reason: str) -> InputError:
        return InputError(f"{self.path}: {reason}; restore the file from a copy")

    def _numbered(self) -> list[str]:
        """Return ids for a file that has none."""
        return [f"sample_{i}" for i in range(1, self.n_samples + 1)]

    def _read_samples(self, file: BinaryIO, offset: int) -> list[str]:
        start = file.tell()
        data = file.read(max(0, offset + 4 - start))
        ids, place = [], 8
        try:
            (count,) = struct.unpack_from("<I", data, 4)
            for _ in range(count):
                (length,) = struct.unpack_from("<H", data, place)
                if place + 2 + length > len(data):
                    raise self.damaged("the sample ids are truncated")
                ids.append(data[place + 2 : place + 2 + length].decode())
                place += 2 + length
        except (struct.error, UnicodeDecodeError) as error:
            raise self.damaged("the sample ids cannot be read") from error
        return ids


def _index(header: _Header, file: BinaryIO) -> tuple[Array, Array, dict[str, Array]]:
    """Return where the probabilities of each variant start, their lengths, and the variants' labels."""
    count, size = header.n_variants, header.path.stat().st_size
    starts, lengths = np.empty(count, np.int64), np.empty(count, np.int64)
    labels = []
    for i in range(count):
        try:
            name, rsid, chromosome = _text(file), _text(file), _text(file)
            position, n_alleles = struct.unpack("<IH", file.read(6))
            alleles = [_text(file, "<I") for _ in range(min(n_alleles, MOST_ALLELES))]
            (length,) = struct.unpack("<I", file.read(4))
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise header.damaged(f"variant {i + 1} of {count} cannot be read") from error
        starts[i], lengths[i] = file.tell(), length
        if starts[i] + length > size:
            raise header.damaged(f"it ends within variant {i + 1} of {count}")
        file.seek(length, 1)
        first, *others = alleles or ["."]
        labels.append((chromosome or "0", position, rsid or name or ".", ",".join(others) or ".", first))
    return starts, lengths, variant_labels(header.path, *zip(*labels, strict=True))


def _text(file: BinaryIO, size: str = "<H") -> str:
    (length,) = struct.unpack(size, file.read(struct.calcsize(size)))
    if length > 1 << 20:
        raise ValueError("a text of more than a megabyte")
    data = file.read(length)
    if len(data) < length:
        raise ValueError("the file ends within a text")
    return data.decode()


def _sample_table(path: Path) -> Path | None:
    """Return the .sample file next to a BGEN file, if there is one."""
    table = path.with_suffix(".sample")
    return table if table.exists() else None


def _read_sample_table(path: Path) -> list[tuple[str, str]]:
    """Return family and individual of an Oxford .sample file: two columns, after two lines of header."""
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); check the file") from error
    if len(lines) < 2 or len(lines[0]) < 2 or not set(lines[1]) <= set("0DCPB"):
        raise InputError(f"{path}: is not a .sample file: the second line must have the types of the columns, as 0 0 0")
    for number, fields in enumerate(lines[2:], start=3):
        if len(fields) < 2:
            raise InputError(f"{path}: line {number} has {len(fields)} columns, expected ID_1 and ID_2")
    return [(fields[0], fields[1]) for fields in lines[2:]]
