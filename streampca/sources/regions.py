"""Regions of long-range linkage disequilibrium, which principal components of human genotypes pick up, by build."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.genotypes import chromosome


@dataclass(frozen=True)
class Region:
    """Positions first to last of a chromosome, inclusive."""

    chromosome: str
    first: int
    last: int
    name: str = ""


# The 24 regions of Price et al. (2008, Am. J. Hum. Genet. 83, 132), which Anderson et al. (2010, Nat. Protoc. 5, 1564)
# and the University of Michigan's wiki "Regions of high linkage disequilibrium (LD)" pass on, lifted from build 36;
# most ends as in high-LD-regions-hg19-GRCh37.bed and high-LD-regions-hg38-GRCh38.bed of plinkQC. The inversion of 17q21
# is not among them; its ends are those of pcaSnpFilters in GWASTools. Regions that were lifted to GRCh38 in pieces,
# across centromeres, are one here.
LONG_RANGE_LD: dict[str, tuple[Region, ...]] = {
    "GRCh37": (
        Region("1", 48227413, 52227412),
        Region("2", 86146489, 101133568, "centromere"),
        Region("2", 134783530, 138283530, "LCT"),
        Region("2", 183291755, 190291755),
        Region("3", 47524996, 50024996),
        Region("3", 83417310, 86917310),
        Region("3", 88917310, 96017310, "centromere"),
        Region("5", 44464243, 50464243, "centromere"),
        Region("5", 97972100, 100472101),
        Region("5", 128972101, 131972101),
        Region("5", 135472101, 138472101),
        Region("6", 25392021, 33392022, "HLA"),
        Region("6", 56892041, 63942041, "centromere"),
        Region("6", 139958307, 142458307),
        Region("7", 55032506, 66362565, "centromere"),
        Region("8", 7962590, 11962591, "8p23 inversion"),
        Region("8", 42880843, 49837447, "centromere"),
        Region("8", 111930824, 114930824),
        Region("10", 36959994, 43679994, "centromere"),
        Region("11", 46043424, 57243424, "centromere"),
        Region("11", 87860352, 90860352),
        Region("12", 33108733, 41713733, "centromere"),
        Region("12", 111015617, 113515617, "SH2B3"),
        Region("17", 40546474, 44644684, "17q21 inversion"),
        Region("20", 32536339, 35066586),
    ),
    "GRCh38": (
        Region("1", 47761741, 51761740),
        Region("2", 85919366, 100517106, "centromere"),
        Region("2", 134025960, 137525960, "LCT"),
        Region("2", 182427028, 189427029),
        Region("3", 47483506, 49987563),
        Region("3", 83368159, 86868160),
        Region("3", 88868161, 96298466, "centromere"),
        Region("5", 44464141, 51168409, "centromere"),
        Region("5", 98636396, 101136397),
        Region("5", 129636408, 132636409),
        Region("5", 136136412, 139136412),
        Region("6", 25391793, 33424245, "HLA"),
        Region("6", 57027244, 63232136, "centromere"),
        Region("6", 139637170, 142137170),
        Region("7", 54964813, 66897578, "centromere"),
        Region("8", 8105068, 12105082, "8p23 inversion"),
        Region("8", 43025700, 48924888, "centromere"),
        Region("8", 110918595, 113918595),
        Region("10", 36671066, 43184546, "centromere"),
        Region("11", 46021874, 57475951, "centromere"),
        Region("11", 88127184, 91127184),
        Region("12", 32955799, 41319931, "centromere"),
        Region("12", 110577812, 113077812, "SH2B3"),
        Region("17", 42394456, 46567318, "17q21 inversion"),
        Region("20", 33948533, 36438183),
    ),
}
BUILDS = {"grch37": "GRCh37", "hg19": "GRCh37", "grch38": "GRCh38", "hg38": "GRCh38"}


def named_regions(regions: str | Path) -> tuple[Region, ...]:
    """Return the regions of a build ("GRCh37" or "hg19", "GRCh38" or "hg38") or of a file.

    Lines of a file are chromosome, first and last position, and optionally a name; blank lines and comments after # are
    ignored.
    """
    build = BUILDS.get(str(regions).lower())
    return LONG_RANGE_LD[build] if build else _read(Path(regions))


def _read(path: Path) -> tuple[Region, ...]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: is neither a build nor a file; give GRCh37 (or hg19), GRCh38 (or hg38), or the path of a file "
            "with chromosome, first and last position per line"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(f"{path}: cannot be read ({reason}); give a file of regions") from error
    regions = []
    for number, line in enumerate(lines, start=1):
        fields = line.partition("#")[0].split(maxsplit=3)
        if not fields:
            continue
        if len(fields) < 3 or not all(end.isdecimal() and len(end) < 19 for end in fields[1:3]):
            raise InputError(
                f"{path}: line {number} is {line.strip()!r}; expected chromosome, first and last position, "
                "the positions as integers"
            )
        code, first, last, *name = fields
        if int(first) > int(last):
            raise InputError(f"{path}: line {number} has first position {first} after the last, {last}; swap them")
        regions.append(Region(chromosome(code), int(first), int(last), "".join(name).strip()))
    if not regions:
        raise InputError(f"{path}: has no regions; write chromosome, first and last position per line")
    return tuple(regions)


def in_regions(chromosomes: Array, positions: Array, regions: tuple[Region, ...]) -> Array:
    """Return the mask of the variants in any of the regions."""
    inside = np.zeros(len(positions), bool)
    # Files have few runs of one chromosome; comparing neighbours is cheaper than sorting strings.
    edges = np.flatnonzero(chromosomes[1:] != chromosomes[:-1]) + 1
    for start, stop in pairwise([0, *edges.tolist(), len(positions)]):
        name, run = chromosome(str(chromosomes[start])), positions[start:stop]
        for region in regions:
            if region.chromosome == name:
                inside[start:stop] |= (run >= region.first) & (run <= region.last)
    return inside
