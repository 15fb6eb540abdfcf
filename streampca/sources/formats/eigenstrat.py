"""EIGENSOFT files: .geno (genotypes, as text or packed), .snp (variants), .ind (samples).

    EIGENSTRAT            one line per variant, one character per sample: copies of the reference allele, 9 missing
    PACKEDANCESTRYMAP     a header of one record, then one record per variant: two bits per sample, highest bits first,
                          3 missing; records have at least 48 bytes

The counted allele, A1, is the reference allele, which .snp lists first.

Reference: the documentation of convertf in EIGENSOFT.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.base import file_stamp
from streampca.sources.formats.plink1 import (
    check_no_variable,
    open_binary,
    read_columns,
    sample_labels,
    variant_labels,
)
from streampca.sources.genotypes import GenotypeSource, packed_loops, packed_width
from streampca.sources.registry import OpenOptions, register
from streampca.sources.scratch import scratch

LEAST_RECORD = 48  # bytes
SNP_COLUMNS = ("id", "chromosome", "morgans", "position", "reference", "variant")
IND_COLUMNS = ("id", "sex", "population")
# PLINK's code of 0, 1 and 2 copies of A1, and of a missing call.
CODES = np.array([3, 2, 0, 1], np.uint8)
# The packed byte of PLINK, lowest bits first, for each packed byte, highest bits first.
REPACKED = sum(
    CODES[(np.arange(256) >> (6 - 2 * place)) & 3].astype(np.uint8) << np.uint8(2 * place) for place in range(4)
)


@register(suffixes=(".geno",), genotypes=True)
class EigenstratSource(GenotypeSource):
    """A .geno file, with a .snp and an .ind of the same name."""

    def __init__(self, path: Path, options: OpenOptions | None = None):
        check_no_variable(path, options)
        snp, ind = path.with_suffix(".snp"), path.with_suffix(".ind")
        self._path, self._files = path, (path, snp, ind)
        ids, _, populations = read_columns(ind, IND_COLUMNS)
        names, chromosomes, _, positions, reference, variant = read_columns(snp, SNP_COLUMNS)
        # EIGENSOFT has no families; its files name a population instead.
        samples = sample_labels(ind, ["0"] * len(ids), ids) | {
            "population": np.array(populations, np.dtypes.StringDType())
        }
        super().__init__(str(path), samples, variant_labels(snp, chromosomes, positions, names, reference, variant))
        self._packed, self._record = self._layout()
        self._opened = self.stamp()

    def _layout(self) -> tuple[bool, int]:
        """Return whether genotypes are packed, and the bytes of a variant, after checks of the header and the size."""
        n, m = self.shape
        with open_binary(self._path) as file:
            head = file.read(max(LEAST_RECORD, n + 2))
            size = file.seek(0, os.SEEK_END)
        if head.startswith(b"TGENO"):
            raise InputError(
                f"{self._path}: is transposed (TGENO), which is not supported; write it again with convertf and "
                "outputformat: PACKEDANCESTRYMAP"
            )
        if head.startswith(b"GENO"):
            fields = head[:LEAST_RECORD].split(b"\0")[0].split()
            if [int(field) if field.isdigit() else -1 for field in fields[1:3]] != [n, m]:
                raise InputError(
                    f"{self._path}: its header has {b' x '.join(fields[1:3]).decode(errors='replace')} samples and "
                    f"variants, but {self._files[2].name} has {n} and {self._files[1].name} {m}; the files are not "
                    "from the same set"
                )
            packed, record, expected = (
                True,
                max(LEAST_RECORD, packed_width(n)),
                (m + 1) * max(LEAST_RECORD, packed_width(n)),
            )
        else:
            record = n + (2 if head[n : n + 2] == b"\r\n" else 1)
            packed, expected = False, m * record
            # The last line may have no end.
            expected = size if expected - record + n <= size <= expected else expected
        if size != expected:
            raise InputError(
                f"{self._path}: has {size} bytes, but {n} samples and {m} variants take {expected}; the file is "
                f"{'truncated' if size < expected else 'too long'}, or not from the same set"
            )
        return packed, record

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a range of variants, and pack them as PLINK does."""
        n, count = self._n_stored, stop - start
        rows = scratch("records", (count, self._record), np.uint8)
        with open_binary(self._path) as file:
            file.seek((start + self._packed) * self._record)
            read = file.readinto(rows.data)
        out = scratch("packed", (count, packed_width(n)), np.uint8)
        if read < (count - 1) * self._record + (self._record if self._packed else n):
            raise InputError(f"{self._path}: was truncated while it was read; restore it and run again")
        if self._packed:
            np.take(REPACKED, rows[:, : packed_width(n)], out=out)
            return out, read
        calls = rows[:, :n] - np.uint8(ord("0"))
        wrong = (calls > 2) & (calls != 9)
        if wrong.any():
            row, column = (int(one) for one in np.argwhere(wrong)[0])
            raise InputError(
                f"{self._path}: line {start + row + 1}, column {column + 1} is {chr(rows[row, column])!r}; "
                "expected 0, 1, 2 or 9"
            )
        calls[calls == 9] = 3
        packed_loops(self.small).pack(calls.view(np.int8), out)
        return out, read

    def stamp(self) -> tuple[object, ...]:
        """Return sizes and times of the three files."""
        return ("eigenstrat", *map(file_stamp, self._files))
