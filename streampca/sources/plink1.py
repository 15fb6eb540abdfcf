"""PLINK 1 files: .bed (packed genotypes, variant after variant), .bim (variants), .fam (samples)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.genotypes import TEXT, GenotypeSource, packed_width, refuse_duplicates
from streampca.sources.scratch import scratch

MAGIC = b"\x6c\x1b\x01"
# Columns of one line that are counted.
MOST_COUNTED = 1000
FAM_COLUMNS = ("FID", "IID", "father", "mother", "sex", "phenotype")
BIM_COLUMNS = ("chromosome", "id", "cM", "position", "A1", "A2")


class BedSource(GenotypeSource):
    """A .bed file with the .bim and .fam beside it, of variants in file order (SNP-major)."""

    def __init__(self, path: Path):
        fam, bim = path.with_suffix(".fam"), path.with_suffix(".bim")
        samples, variants = read_fam(fam), read_bim(bim)
        super().__init__(str(path), samples, variants)
        self._path = path
        self._width = packed_width(len(self.samples))
        self._check_size(fam, bim)
        self._opened = self.stamp()

    def _check_size(self, fam: Path, bim: Path) -> None:
        with open_binary(self._path) as file:
            head = file.read(3)
            size = file.seek(0, os.SEEK_END)
        if head[:2] != MAGIC[:2]:
            raise InputError(
                f"{self._path}: does not begin with the magic bytes of a .bed file (6c 1b); check which file it is"
            )
        if head[2:] != MAGIC[2:]:
            raise InputError(
                f"{self._path}: is in individual-major mode, which is not read; "
                "rewrite it with plink --bfile OLD --make-bed --out NEW"
            )
        n, m = self.shape
        expected = len(MAGIC) + m * self._width
        if size != expected:
            raise InputError(
                f"{self._path}: has {size} bytes, but {n} samples in {fam.name} and {m} variants in {bim.name} take "
                f"{expected}; the file is {'cut short' if size < expected else 'too long'}, or is not theirs"
            )

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a run of variants straight from the file, into a buffer that is used again."""
        out = scratch("packed", (stop - start, self._width), np.uint8)
        with open_binary(self._path) as file:
            file.seek(len(MAGIC) + start * self._width)
            if file.readinto(out.data) != out.nbytes:
                raise InputError(f"{self._path}: became shorter while it was read; restore it and run again")
        return out, out.nbytes

    def stamp(self) -> tuple[object, ...]:
        """Size and time of the three files."""
        stats = [self._path.with_suffix(suffix).stat() for suffix in (".bed", ".bim", ".fam")]
        return ("plink1", *((stat.st_size, stat.st_mtime_ns) for stat in stats))


def open_binary(path: Path) -> Any:
    """Open a file for unbuffered reading, or say why it cannot be."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and the permissions") from error


def read_table(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Read a table without header, of fields parted by blanks or tabs; returns its columns."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); it must lie beside the .bed file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not text ({error.reason} at byte {error.start}); check which file it is"
        ) from error
    text = text.rstrip()
    if not text:
        raise InputError(
            f"{path}: is empty; there must be a line for each {'sample' if 'FID' in columns else 'variant'}"
        )
    for number, line in enumerate(text.split("\n"), start=1):
        # Counting blanks is much cheaper than splitting, and mostly enough.
        if line.count(" ") + line.count("\t") + 1 != len(columns):
            # A line without end would take far more memory as fields than as text.
            found = len(line.split(maxsplit=MOST_COUNTED))
            if found != len(columns):
                shown = found if found <= MOST_COUNTED else f"more than {MOST_COUNTED}"
                raise InputError(
                    f"{path}: line {number} has {shown} columns, expected {len(columns)} ({' '.join(columns)})"
                )
    fields = text.split()
    if len(fields) != len(columns) * (text.count("\n") + 1):
        raise InputError(f"{path}: a line has an empty column, expected {len(columns)} ({' '.join(columns)})")
    return [tuple(fields[i :: len(columns)]) for i in range(len(columns))]


def read_fam(path: Path) -> dict[str, Array]:
    """Read the samples' labels."""
    fid, iid, *_ = read_table(path, FAM_COLUMNS)
    refuse_duplicates(str(path), "sample", list(zip(fid, iid, strict=True)))
    return {"fid": np.array(fid, TEXT), "iid": np.array(iid, TEXT)}


def read_bim(path: Path) -> dict[str, Array]:
    """Read the variants' labels; the same id may come with other alleles, but not twice with the same ones."""
    chromosomes, ids, _, positions, a1, a2 = read_table(path, BIM_COLUMNS)
    if len(set(ids)) < len(ids):
        named = [None if i == "." else " ".join((i, *sorted(ab))) for i, *ab in zip(ids, a1, a2, strict=True)]
        refuse_duplicates(str(path), "variant", named)
    try:
        position = np.array(positions, np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: a position is not a whole number ({error}); check column 4") from error
    return {
        "chromosome": np.array(chromosomes, TEXT),
        "position": position,
        "variant_id": np.array(ids, TEXT),
        "allele_1": np.array(a1, TEXT),
        "allele_2": np.array(a2, TEXT),
    }
