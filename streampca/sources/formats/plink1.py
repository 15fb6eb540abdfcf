"""PLINK 1 files: .bed (packed genotypes, variant after variant), .bim (variants), .fam (samples)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.genotypes import TEXT, GenotypeSource, check_duplicates, packed_width
from streampca.sources.registry import OpenOptions, register
from streampca.sources.scratch import scratch

MAGIC = b"\x6c\x1b\x01"
MOST_COUNTED = 1000  # columns of one line; more are not counted
FAM_COLUMNS = ("FID", "IID", "father", "mother", "sex", "phenotype")
BIM_COLUMNS = ("chromosome", "id", "cM", "position", "A1", "A2")


@register(suffixes=(".bed",), genotypes=True)
def open_bed(path: Path, options: OpenOptions) -> BedSource:
    """Open a .bed file with its .bim and .fam."""
    check_no_variable(path, options)
    return BedSource(path)


def check_no_variable(path: Path, options: OpenOptions) -> None:
    """Raise if a variable is given for a file that has none."""
    if options.variable is not None:
        raise InputError(f"{path}: PLINK files have no variables; remove variable={options.variable!r}")


class BedSource(GenotypeSource):
    """A .bed file in variant-major mode, with a .bim and a .fam of the same name."""

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
                f"{self._path}: does not start with the magic bytes of a .bed file (6c 1b); check the file"
            )
        if head[2:] != MAGIC[2:]:
            raise InputError(
                f"{self._path}: is in individual-major mode, which is not supported; "
                "rewrite it with plink --bfile OLD --make-bed --out NEW"
            )
        n, m = self.shape
        expected = len(MAGIC) + m * self._width
        if size != expected:
            raise InputError(
                f"{self._path}: has {size} bytes, but {n} samples in {fam.name} and {m} variants in {bim.name} take "
                f"{expected}; the file is {'truncated' if size < expected else 'too long'}, or not from the same set"
            )

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a range of variants into a scratch buffer."""
        out = scratch("packed", (stop - start, self._width), np.uint8)
        with open_binary(self._path) as file:
            file.seek(len(MAGIC) + start * self._width)
            if file.readinto(out.data) != out.nbytes:
                raise InputError(f"{self._path}: was truncated while it was read; restore it and run again")
        return out, out.nbytes

    def stamp(self) -> tuple[object, ...]:
        """Return sizes and times of the three files."""
        stats = [self._path.with_suffix(suffix).stat() for suffix in (".bed", ".bim", ".fam")]
        return ("plink1", *((stat.st_size, stat.st_mtime_ns) for stat in stats))


def open_binary(path: Path) -> Any:
    """Open a file for unbuffered reading."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path and the permissions") from error


def _read_columns(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Read a table without header, with fields separated by blanks or tabs; returns its columns."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); it must be next to the .bed file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text ({error.reason} at byte {error.start}); check the file") from error
    text = text.rstrip()
    if not text:
        raise InputError(f"{path}: is empty; expected one line per {'sample' if 'FID' in columns else 'variant'}")
    for number, line in enumerate(text.split("\n"), start=1):
        # Counting blanks is much cheaper than splitting, and usually enough.
        if line.count(" ") + line.count("\t") + 1 != len(columns):
            # A very long line would take far more memory as fields than as text.
            count = len(line.split(maxsplit=MOST_COUNTED))
            if count != len(columns):
                shown = count if count <= MOST_COUNTED else f"more than {MOST_COUNTED}"
                raise InputError(
                    f"{path}: line {number} has {shown} columns, expected {len(columns)} ({' '.join(columns)})"
                )
    fields = text.split()
    if len(fields) != len(columns) * (text.count("\n") + 1):
        raise InputError(f"{path}: a line has an empty column, expected {len(columns)} ({' '.join(columns)})")
    return [tuple(fields[i :: len(columns)]) for i in range(len(columns))]


def read_fam(path: Path) -> dict[str, Array]:
    """Read the samples' labels."""
    fid, iid, *_ = _read_columns(path, FAM_COLUMNS)
    check_duplicates(str(path), "sample", list(zip(fid, iid, strict=True)))
    return {"fid": np.array(fid, TEXT), "iid": np.array(iid, TEXT)}


def read_bim(path: Path) -> dict[str, Array]:
    """Read the variants' labels; an id may occur again with other alleles."""
    chromosomes, ids, _, positions, a1, a2 = _read_columns(path, BIM_COLUMNS)
    if len(set(ids)) < len(ids):
        named = [None if i == "." else " ".join((i, *sorted(ab))) for i, *ab in zip(ids, a1, a2, strict=True)]
        check_duplicates(str(path), "variant", named)
    try:
        position = np.array(positions, np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: positions must be integers ({error}); check column 4") from error
    return {
        "chromosome": np.array(chromosomes, TEXT),
        "position": position,
        "variant_id": np.array(ids, TEXT),
        "allele_1": np.array(a1, TEXT),
        "allele_2": np.array(a2, TEXT),
    }
