"""Samples that are outliers on the components, and components that show one region of the genome."""

from __future__ import annotations

import numpy as np

from streampca._typing import Array
from streampca.sources.base import Source
from streampca.sources.genotypes import chromosome
from streampca.sources.regions import BUILDS, chromosome_runs, in_regions, read_regions

NEIGHBOURS = 10  # to which the distance of a sample is measured
OUTLIER_DEVIATIONS = 6.0  # robust standard deviations
REGION_SHARE = 0.25  # of the squared loadings of a component, within REGION_BASES
REGION_BASES = 10_000_000
DRIVING_SHARE = 1 / 40  # of the samples, or fewer: they drive a component if they have half of its variance,
MOST_DRIVING = 20  # and are too few to be a population
SHOWN = 5  # samples named in a note


def outliers(scores: Array) -> Array:
    """Return the mask of the samples that are outliers on the components, for any clusters of the others.

    Samples without scores (NaN) are no outliers.

    The distance of a sample to its nearest neighbours is compared with that of these neighbours to theirs: samples of a
    small population are no outliers, a sample between or beyond populations is one. The logarithm of the ratio is
    compared with its median, in units of the median absolute deviation.

    References: after Prive et al. (2020), Bioinformatics 36, 4449, section 2.4.
    """
    # scipy.spatial is slow to import, and few fits search for outliers.
    from scipy.spatial import cKDTree

    known = np.isfinite(scores).all(axis=1)
    if not known.all():
        mask = np.zeros(len(scores), bool)
        mask[known] = outliers(scores[known])
        return mask
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
    places = np.flatnonzero(mask)
    what = "outlier" if len(places) == 1 else "outliers"
    return f"{len(places)} {what} on the components ({_first_ids(source, places)})"


def _first_ids(source: Source, places: Array) -> str:
    """Return the ids of the first of some samples."""
    first = places[:SHOWN]
    ids = [f"{fid} {iid}" for fid, iid in zip(source.label("fid")[first], source.label("iid")[first], strict=True)]
    return f"{', '.join(ids)}{', ...' if len(places) > SHOWN else ''}"


def few_samples_note(source: Source, scores: Array) -> tuple[str, ...]:
    """Return a note if few samples drive components: those that have half of the variance of their scores.

    Of normal scores an eighth of the samples have half of the variance, and of populations more than a quarter of them.
    """
    squares = np.nan_to_num(scores.astype(np.float64)) ** 2
    order = np.argsort(-squares, axis=0, kind="stable")
    shares = np.cumsum(np.take_along_axis(squares, order, axis=0), axis=0) / np.maximum(squares.sum(axis=0), 1e-300)
    counts = (shares < 0.5).sum(axis=0) + 1
    driven = np.flatnonzero(counts <= min(MOST_DRIVING, int(len(scores) * DRIVING_SHARE)))
    if not driven.size:
        return ()
    first = int(driven[0])
    count = int(counts[first])
    others = "" if driven.size == 1 else f", and few samples that of PC {', '.join(str(i + 1) for i in driven[1:])}"
    return (
        f"{count} of {len(scores)} samples hold {shares[count - 1, first]:.0%} of the variance of PC {first + 1} "
        f"({_first_ids(source, order[:count, first])}){others}; they may be relatives or duplicates: fit without them "
        "(--unrelated 0.0884)",
    )


def region_notes(components: Array, chromosomes: Array, positions: Array) -> tuple[str, ...]:
    """Return a note for each component with much of its squared loadings in one region, which shows its linkage."""
    notes = []
    order = np.lexsort((positions, chromosomes))
    codes, place = chromosomes[order], positions[order]
    # For each variant, the end of the window that starts with it.
    ends = np.empty(len(codes), int)
    for start, stop in chromosome_runs(codes):
        run = place[start:stop]
        ends[start:stop] = start + np.searchsorted(run, run + REGION_BASES, "right")
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
    for build in BUILDS:
        for region in read_regions(build):
            if in_regions(chromosomes, positions, (region,)).mean() > 0.5:
                return f" ({region.name})" if region.name else " (a known region of long-range linkage)"
    return ""
