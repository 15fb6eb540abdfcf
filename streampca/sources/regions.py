"""Regions of the genome: those of long-range linkage disequilibrium, which components of human genotypes pick up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.sources.genotypes import chromosome

LONG_RANGE_LD = Path(__file__).parent / "long_range_ld"  # one file per build, with its references
BUILDS = ("GRCh37", "GRCh38")
BUILD_NAMES = {"grch37": "GRCh37", "hg19": "GRCh37", "grch38": "GRCh38", "hg38": "GRCh38"}


@dataclass(frozen=True)
class Region:
    """Positions first to last of a chromosome, inclusive."""

    chromosome: str
    first: int
    last: int
    name: str = ""


def read_regions(regions: str | Path) -> tuple[Region, ...]:
    """Return the regions of long-range LD of a build ("GRCh37" or "hg19", "GRCh38" or "hg38"), or those of a file.

    Lines of a file are chromosome, first and last position, and optionally a name; blank lines and comments after # are
    ignored.
    """
    build = BUILD_NAMES.get(str(regions).lower())
    path = LONG_RANGE_LD / f"{build}.txt" if build else Path(regions)
    with reading(path, "give GRCh37 (or hg19), GRCh38 (or hg38), or a file with chromosome, first and last position"):
        lines = path.read_text().splitlines()
    numbered = ((number, line.partition("#")[0].split(maxsplit=3)) for number, line in enumerate(lines, start=1))
    found = tuple(_region(f"{path}: line {number}", fields) for number, fields in numbered if fields)
    if not found:
        raise InputError(f"{path}: has no regions; write chromosome, first and last position per line")
    return found


def _region(where: str, fields: list[str]) -> Region:
    if len(fields) < 3 or not all(end.isdecimal() and len(end) < 19 for end in fields[1:3]):
        raise InputError(
            f"{where} is {' '.join(fields)!r}; expected chromosome, first and last position, the positions as integers"
        )
    code, first, last, *name = fields
    if int(first) > int(last):
        raise InputError(f"{where} has first position {first} after the last, {last}; swap them")
    return Region(chromosome(code), int(first), int(last), "".join(name).strip())


def chromosome_runs(chromosomes: Array) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive variants of one chromosome.

    Files have few; comparing neighbours is cheaper than sorting strings.
    """
    edges = np.flatnonzero(chromosomes[1:] != chromosomes[:-1]) + 1
    return pairwise([0, *edges.tolist(), len(chromosomes)])


def in_regions(chromosomes: Array, positions: Array, regions: tuple[Region, ...]) -> Array:
    """Return the mask of the variants in any of the regions."""
    inside = np.zeros(len(positions), bool)
    for start, stop in chromosome_runs(chromosomes):
        name, run = chromosome(str(chromosomes[start])), positions[start:stop]
        for region in regions:
            if region.chromosome == name:
                inside[start:stop] |= (run >= region.first) & (run <= region.last)
    return inside
