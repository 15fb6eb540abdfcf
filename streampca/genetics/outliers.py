"""Samples that are outliers on the components, and components that show one region of the genome."""

from __future__ import annotations

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source
from streampca.sources.genotypes import chromosome
from streampca.sources.regions import LONG_RANGE_LD, in_regions

NEIGHBOURS = 10  # to which the distance of a sample is measured
OUTLIER_DEVIATIONS = 6.0  # robust standard deviations
REGION_SHARE = 0.25  # of the squared loadings of a component, within REGION_BASES
REGION_BASES = 10_000_000
SHOWN = 5  # outliers named in a note


def outliers(scores: Array) -> Array:
    """Return the mask of the samples that are outliers on the components, for any clusters of the others.

    The distance of a sample to its nearest neighbours is compared with that of these neighbours to theirs: samples of a
    small population are no outliers, a sample between or beyond populations is one. The logarithm of the ratio is
    compared with its median, in units of the median absolute deviation.

    References: after Prive et al. (2020), Bioinformatics 36, 4449, section 2.4.
    """
    # scipy.spatial is slow to import, and few fits search for outliers.
    from scipy.spatial import cKDTree

    n = len(scores)
    count = min(NEIGHBOURS, n - 1)
    distances, neighbours = cKDTree(scores).query(scores, k=count + 1)
    own = np.sqrt((distances[:, 1:] ** 2).mean(axis=1))
    around = own[neighbours[:, 1:]].mean(axis=1)
    floor = np.finfo(np.float64).tiny
    ratio = np.log(np.maximum(own, floor)) - 0.5 * np.log(np.maximum(around, floor))
    deviation = 1.4826 * np.median(np.abs(ratio - np.median(ratio)))
    if deviation == 0:
        return np.zeros(n, bool)
    return np.asarray((ratio - np.median(ratio)) / deviation > OUTLIER_DEVIATIONS)


def describe_outliers(source: Source, mask: Array) -> str:
    """Return the number of outliers and the ids of the first ones."""
    ids = [f"{fid} {iid}" for fid, iid in zip(source.label("fid")[mask], source.label("iid")[mask], strict=True)]
    what = "outlier" if len(ids) == 1 else "outliers"
    return f"{len(ids)} {what} on the components ({', '.join(ids[:SHOWN])}{', ...' if len(ids) > SHOWN else ''})"


def region_notes(components: Array, chromosomes: Array, positions: Array) -> tuple[str, ...]:
    """Return a note for each component with much of its squared loadings in one region, which shows its linkage."""
    notes = []
    order = np.lexsort((positions, chromosomes))
    codes, place = chromosomes[order], positions[order]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    stops = np.append(starts[1:], len(codes))
    # For each variant, the end of the window that starts with it.
    ends = np.concatenate(
        [
            a + np.searchsorted(place[a:b], place[a:b] + REGION_BASES, "right")
            for a, b in zip(starts, stops, strict=True)
        ]
    )
    for number, loadings in enumerate(components, start=1):
        running = np.append(0.0, np.cumsum(loadings[order] ** 2))
        share = running[ends] - running[:-1]
        first = int(share.argmax())
        last = ends[first] - 1
        if share[first] < max(REGION_SHARE, 5 * (last + 1 - first) / len(codes)):
            continue
        # The narrowest range with most of it.
        inside = running[first : last + 2] - running[first]
        a = first + int(np.searchsorted(inside, 0.05 * share[first])) - 1
        b = first + int(np.searchsorted(inside, 0.95 * share[first])) - 1
        name = chromosome(str(codes[first]))
        where = f"chromosome {name}, {place[a] / 1e6:.1f} to {place[min(b, last)] / 1e6:.1f} Mb"
        known = _known_region(codes[a : b + 1], place[a : b + 1])
        notes.append(
            f"PC {number} has {share[first]:.0%} of its squared loadings on {where}{known}: it shows the linkage of "
            "that region, not ancestry; exclude the region (--exclude-regions) or prune (--ld-prune 0.2)"
        )
    return tuple(notes)


def _known_region(chromosomes: Array, positions: Array) -> str:
    """Return the name of the region of long-range linkage, of any build, with most of these variants."""
    for regions in LONG_RANGE_LD.values():
        for region in regions:
            if in_regions(chromosomes, positions, (region,)).mean() > 0.5:
                return f" ({region.name})" if region.name else " (a known region of long-range linkage)"
    return ""
