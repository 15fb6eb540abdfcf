"""PLINK 1 files: .bed (packed genotypes, variant after variant), .bim (variants), .fam (samples)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.sources.base import file_stamp
from streampca.sources.genotypes import TEXT, GenotypeSource, check_duplicates, packed_width
from streampca.sources.registry import OpenOptions, register
from streampca.sources.scratch import scratch

MAGIC = b"\x6c\x1b\x01"
MOST_COUNTED = 1000  # columns of one line; more are not counted
OTHER_BLANKS = re.compile(r"[^\S \t\n]")  # that separate fields, such as the no-break space
CHECKED_VARIANTS = 1000  # whose bits after the last sample must be zero
FAM_COLUMNS = ("FID", "IID", "father", "mother", "sex", "phenotype")
BIM_COLUMNS = ("chromosome", "id", "cM", "position", "A1", "A2")


@register(suffixes=(".bed",), genotypes=True)
class BedSource(GenotypeSource):
    """A .bed file in variant-major mode, with a .bim and a .fam of the same name."""

    def __init__(self, path: Path, options: OpenOptions | None = None):
        check_no_variable(path, options)
        bim, fam = path.with_suffix(".bim"), path.with_suffix(".fam")
        self._path, self._files = path, (path, bim, fam)
        super().__init__(str(path), read_fam(fam), read_bim(bim))
        self._width = packed_width(len(self.samples))
        self._check_size(fam, bim)
        self._opened = self.stamp()

    def _check_size(self, fam: Path, bim: Path) -> None:
        with open_binary(self._path) as file:
            head = file.read(len(MAGIC) + CHECKED_VARIANTS * self._width)
            size = file.seek(0, os.SEEK_END)
        head, first = head[: len(MAGIC)], np.frombuffer(head[len(MAGIC) :], np.uint8)
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
        if n % 4 and (first.reshape(-1, self._width)[:, -1] >> 2 * (n % 4)).any():
            # Some programs leave bits there that mean nothing.
            note = (
                f"{self._path.name} has bits after the {n} samples of {fam.name}: check that no line is missing there"
            )
            self.notes = (note,)

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
        return ("plink1", *map(file_stamp, self._files))


def check_no_variable(path: Path, options: OpenOptions | None) -> None:
    """Raise if a variable is given for a file that has none."""
    if options is not None and options.variable is not None:
        raise InputError(f"{path}: PLINK files have no variables; remove variable={options.variable!r}")


def open_binary(path: Path) -> Any:
    """Open a file for unbuffered reading."""
    with reading(path, "check the path and the permissions"):
        return path.open("rb", buffering=0)


def read_columns(path: Path, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Read a table without header, with fields separated by blanks or tabs; returns its columns."""
    with reading(path, "it must be a text file next to the genotypes"):
        text = path.read_text().rstrip()
    if not text:
        raise InputError(
            f"{path}: is empty; expected one line per {'variant' if 'chromosome' in columns else 'sample'}"
        )
    # A line with another separator could make up for one with an empty column, and move the fields between them.
    unusual = OTHER_BLANKS.search(text) is not None
    for number, line in enumerate(text.split("\n"), start=1):
        # Counting blanks is much cheaper than splitting, and usually enough.
        if unusual or line.count(" ") + line.count("\t") + 1 != len(columns):
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
    fid, iid, *_ = read_columns(path, FAM_COLUMNS)
    return sample_labels(path, fid, iid)


def sample_labels(path: Path, fid: Sequence[str], iid: Sequence[str]) -> dict[str, Array]:
    """Return the samples' labels as arrays; raise if they are not unique."""
    check_duplicates(str(path), "sample", list(zip(fid, iid, strict=True)))
    return {"fid": np.array(fid, TEXT), "iid": np.array(iid, TEXT)}


def read_bim(path: Path) -> dict[str, Array]:
    """Read the variants' labels."""
    chromosomes, ids, _, positions, a1, a2 = read_columns(path, BIM_COLUMNS)
    return variant_labels(path, chromosomes, positions, ids, a1, a2)


def variant_labels(path: Path, chromosomes: Any, positions: Any, ids: Any, a1: Any, a2: Any) -> dict[str, Array]:
    """Return the variants' labels as arrays; raise if positions are not integers."""
    try:
        position = np.array(positions, np.int64)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: positions must be integers ({error}); correct them") from error
    texts = {"variant_id": ids, "allele_1": a1, "allele_2": a2}
    labels = {name: np.array(values, TEXT) for name, values in texts.items()}
    return {"chromosome": np.array(chromosomes, TEXT), "position": position, **labels}
