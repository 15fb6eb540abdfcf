"""Regions of chromosomes: the long-range linkage disequilibrium that principal components of man pick up, by build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streampca.errors import InputError
from streampca.sources.base import Array
from streampca.sources.genotypes import chromosome


@dataclass(frozen=True)
class Region:
    """Positions first to last of a chromosome, both within it."""

    chromosome: str
    first: int
    last: int
    name: str = ""


LONG_RANGE_LD: dict[str, tuple[Region, ...]] = {}


def named_regions(regions: str | Path) -> tuple[Region, ...]:
    """Return the regions of a build ("GRCh37", "GRCh38"), or those that a file lists."""
    raise InputError(f"{regions}: not there yet")


def in_regions(chromosomes: Array, positions: Array, regions: tuple[Region, ...]) -> Array:
    """Tell which variants lie in any of the regions."""
    bare = {str(code): chromosome(str(code)) for code in np.unique(chromosomes)}
    inside = np.zeros(len(positions), bool)
    for region in regions:
        codes = [code for code, name in bare.items() if name == region.chromosome]
        here = np.isin(chromosomes, np.array(codes, chromosomes.dtype)) if codes else False
        inside |= here & (positions >= region.first) & (positions <= region.last)
    return inside
