"""What principal components of genotypes need beside: projection of new samples, outliers, loadings of one region."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.pca.fit import PCAFit, also_spent, project
from streampca.progress import Progress, logger, silent
from streampca.sources import Source
from streampca.sources.genotypes import chromosome
from streampca.sources.regions import LONG_RANGE_LD, in_regions
from streampca.sweep.scaling import check_choice
from streampca.sweep.sweep import Sweeps

# A PCAFit or PPCAFit: both have scores, notes and sweep_seconds.
Fitted = TypeVar("Fitted", bound=Any)

PROJECTIONS = ("oadp", "simple")
OUTLIERS = ("report", "remove")
VARIANT_LABELS = ("variant_id", "allele_1", "allele_2", "chromosome", "position")
COMPLEMENT = str.maketrans("ACGT", "TGCA")
# Neighbours that a sample's distance is measured to, and how many robust standard deviations make an outlier.
NEIGHBOURS = 10
OUTLIER_DEVIATIONS = 6.0
# Share of the squared loadings of any direction among the components that the variants of new data must hold.
LEAST_WEIGHT = 0.01
# A component that has this share of its squared loadings within so many bases is one region's, not the genome's.
REGION_SHARE = 0.25
REGION_BASES = 10_000_000


def fit_genotypes(
    source: Source, fit: Callable[[Source], tuple[Fitted, Sweeps]], *, find_outliers: str | None = None,
    rounds: int = 5,
) -> tuple[Fitted, Sweeps, Array | None]:  # fmt: skip
    """Fit a model to genotypes and add notes; return the fit, the sweeps, and which samples are outliers.

    Parameters
    ----------
    fit : `fit_pca` or `fit_ppca` with its options; called again if samples are removed.
    find_outliers : "report" to flag outliers, "remove" to fit again without them, at most `rounds` times; None to skip
        the search.
    """
    check_choice("outliers", find_outliers, (None, *OUTLIERS))
    left = rounds
    seconds: list[float] = []
    n_bytes = 0
    while True:
        found, sweeps = fit(source)
        found = also_spent(found, seconds, n_bytes)
        swept = sweeps.matrix.source.uncached()
        apart = None if find_outliers is None else outliers(np.asarray(found.scores))
        if apart is None or not apart.any() or find_outliers == "report" or left == 0:
            break
        left, seconds, n_bytes = left - 1, list(found.sweep_seconds), found.bytes_read
        who = named(swept, apart)
        logger.info("%s; fitting again without them", who)
        source = swept.take(samples=~apart, note=f"samples left out: {who}")
        # What was kept of the data goes before the next fit plans its memory.
        del found, sweeps, swept
    features = found.axes(swept)[1]
    labels = (np.asarray(features.coords[name][1]) for name in ("chromosome", "position"))
    notes = found.notes + region_notes(found.components, *labels)
    if apart is not None and apart.any():
        notes += (f"{named(swept, apart)}; see the variable outlier",)
    return replace(found, notes=notes), sweeps, apart


def named(source: Source, apart: Array) -> str:
    """Say how many outliers there are, and who the first ones are."""
    who = [f"{fid} {iid}" for fid, iid in zip(source.label("fid")[apart], source.label("iid")[apart], strict=True)]
    what = "outlier" if len(who) == 1 else "outliers"
    return f"{len(who)} {what} on the components ({', '.join(who[:5])}{', ...' if len(who) > 5 else ''})"


@dataclass(frozen=True)
class Match:
    """Which variants of new data are those of a fit.

    Attributes
    ----------
    fitted, new : places of the variants that match, among those fitted and among the new ones.
    flipped : where the new data count the other allele.
    absent, other_alleles, ambiguous : how many fitted variants are not there, have other alleles, or were left out for
        being the same on both strands.
    """

    fitted: Array
    new: Array
    flipped: Array
    absent: int
    other_alleles: int
    ambiguous: int

    @property
    def note(self) -> str:
        """Say how many match, and how."""
        total = len(self.fitted) + self.absent + self.other_alleles + self.ambiguous
        parts = [f"{len(self.fitted)} of {total} variants found"]
        for count, what in (
            (int(self.flipped.sum()), "of these with the alleles the other way round"),
            (self.absent, "not there"),
            (self.other_alleles, "with other alleles"),
            (self.ambiguous, "left out as the same on both strands"),
        ):
            if count:
                parts.append(f"{count} {what}")
        return ", ".join(parts)


def match_variants(fitted: dict[str, Array], source: Source, *, drop_ambiguous: bool = False) -> Match:
    """Match the variants of a fit to those of new data by id and alleles, on either strand, in either order.

    Variants without an id (".") go by chromosome and position.
    """
    places: dict[str, list[tuple[int, str, str]]] = {}
    for j, (name, a, b) in enumerate(_named_alleles({x: source.label(x) for x in VARIANT_LABELS})):
        places.setdefault(name, []).append((j, a, b))
    here, there, flipped = [], [], []
    absent = other = ambiguous = 0
    for i, (name, a, b) in enumerate(_named_alleles(fitted)):
        if drop_ambiguous and a.translate(COMPLEMENT) == b:
            ambiguous += 1
            continue
        candidates = places.get(name, [])
        turns = [(j, turn) for j, *found in candidates if (turn := _turn((a, b), tuple(found))) is not None]
        if not turns:
            absent, other = absent + (not candidates), other + bool(candidates)
            continue
        if len(turns) > 1:
            raise InputError(f"{source.name}: variant {name} {a} {b} is there twice; leave one of them out")
        here.append(i)
        there.append(turns[0][0])
        flipped.append(turns[0][1])
    if not here:
        raise InputError(f"{source.name}: has none of the {len(fitted['variant_id'])} variants fitted; check the ids")
    order = np.argsort(there)
    return Match(
        np.array(here)[order], np.array(there)[order], np.array(flipped)[order], absent, other, ambiguous
    )  # fmt: skip


def _named_alleles(labels: Mapping[str, Array]) -> Iterator[tuple[str, str, str]]:
    """Yield what each variant goes by, and its alleles."""
    columns = (labels[name].tolist() for name in VARIANT_LABELS)
    for name, a, b, code, position in zip(*columns, strict=True):
        yield f"{chromosome(code)}:{position}" if name == "." else name, a.upper(), b.upper()


def _turn(fitted: tuple[str, str], found: tuple[str, ...]) -> bool | None:
    """Tell whether the alleles found are those fitted the other way round; None if they are others.

    An allele that nobody has is "0" in PLINK 1 files, and may be either.
    """
    for a, b in (fitted, tuple(allele.translate(COMPLEMENT) for allele in fitted)):
        for turned, pair in ((False, (a, b)), (True, (b, a))):
            if all(one in (other, "0") for one, other in zip(found, pair, strict=True)):
                return turned
    return None


def matching_part(found: PCAFit, match: Match) -> PCAFit:
    """Return the components of the variants that match, for data that count the alleles as the new ones do."""
    assert found.scale is not None
    sign = np.where(match.flipped, -1.0, 1.0)
    mean = np.where(match.flipped, 2 - found.mean[match.fitted], found.mean[match.fitted])
    components = found.components[:, match.fitted] * sign
    return replace(found, components=components, mean=mean, scale=found.scale[match.fitted], used=None)


def project_genotypes(
    source: Source, found: PCAFit, match: Match, *, projection: str = "oadp", memory: Any = None,
    progress: Progress = silent,
) -> Array:  # fmt: skip
    """Return the scores of new samples, as `placed_genotypes` does."""
    return placed_genotypes(source, found, match, projection=projection, memory=memory, progress=progress)[0]


def placed_genotypes(
    source: Source, found: PCAFit, match: Match, *, projection: str = "oadp", memory: Any = None,
    progress: Progress = silent,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the scores of new samples, and how far each is from the space of the components; one sweep.

    Distances go by the variants that match, as if the others were like these: |x - V V'x| sqrt(all / matching). A
    missing call stands at the mean and adds nothing to the distance of its sample.

    Parameters
    ----------
    projection : "simple", X V; or "oadp", which undoes the shrinkage of that. Where variants are not there, V is that
        of the others, and scores are by least squares.
    """
    check_choice("projection", projection, PROJECTIONS)
    part = matching_part(found, match)
    weights = part.components @ part.components.T
    least = float(np.linalg.eigvalsh(weights)[0])
    if least < LEAST_WEIGHT:
        raise InputError(
            f"{source.name}: {match.note}, with {max(least, 0.0):.1%} of the weight of a component: too few to tell "
            f"the {len(weights)} components apart; give data with more of the variants, or fit fewer components"
        )
    XV, squares = project(source.take(features=match.new), part, "mean", memory, progress)
    XV = XV.astype(np.float64)
    simple, more = XV, len(found.mean) / len(match.fitted)
    if len(match.fitted) < len(found.mean):
        simple = np.linalg.solve(weights, XV.T).T
    outside = squares.astype(np.float64) - np.einsum("ij,ij->i", XV, simple)
    distance = np.sqrt(np.maximum(outside, 0.0) * more)
    if projection == "simple":
        return simple, distance
    lengths = np.sqrt(found.explained_variance * (found.n_samples - 1))
    return augmented(simple, squares * more, lengths), distance


def augmented(XV: Array, squares: Array, lengths: Array) -> Array:
    """Return scores of new samples by online augmentation, decomposition and Procrustes (OADP).

    Each new sample, of simple scores x'V and squared length |x|^2, is added to the decomposition of the fitted ones,
    which have the singular values `lengths`. The singular value decomposition of

        [ diag(lengths)  0 ]         rows: fitted samples (in their own basis), the new one;
        [ x'V            h ]         h^2 = |x|^2 - |x'V|^2, what of x lies outside the components

    gives new scores of all samples. The rotation and stretch that carry those of the fitted samples back to where they
    were carry the new one to its place among them.

    References: Zhang, Dey & Lee (2020), Bioinformatics 36, 3439; Prive et al. (2020), Bioinformatics 36, 4449.
    """
    k = len(lengths)
    scores = np.empty_like(XV)
    for start in range(0, len(XV), 4096):
        part = slice(start, start + 4096)
        l = XV[part]
        Q = np.zeros((len(l), k + 1, k + 1))
        Q[:, range(k), range(k)] = lengths
        Q[:, k, :k] = l
        Q[:, k, k] = np.sqrt(np.maximum(squares[part] - (l**2).sum(axis=1), 0.0))
        U, s, _ = np.linalg.svd(Q)
        moved = U[:, :, :k] * s[:, None, :k]
        fitted, new = moved[:, :k], moved[:, k]
        # Procrustes: the orthogonal R and the stretch that bring `fitted` back to diag(lengths).
        left, strengths, right = np.linalg.svd(fitted.transpose(0, 2, 1) * lengths)
        stretch = strengths.sum(axis=1) / (fitted**2).sum(axis=(1, 2))
        scores[part] = stretch[:, None] * np.einsum("ni,nij->nj", new, left @ right)
    return scores


def outliers(scores: Array) -> Array:
    """Tell which samples lie apart from all others on the components, however these cluster.

    The distance of a sample to its nearest neighbours is compared with that of these neighbours to theirs: a small
    population is not apart, a sample between or beyond populations is. The logarithm of the ratio is judged
    by median and median absolute deviation.

    References: after Prive et al. (2020), Bioinformatics 36, 4449, section 2.4.
    """
    from scipy.spatial import cKDTree

    n = len(scores)
    count = min(NEIGHBOURS, n - 1)
    distances, neighbours = cKDTree(scores).query(scores, k=count + 1)
    own = np.sqrt((distances[:, 1:] ** 2).mean(axis=1))
    around = own[neighbours[:, 1:]].mean(axis=1)
    floor = np.finfo(np.float64).tiny
    apart = np.log(np.maximum(own, floor)) - 0.5 * np.log(np.maximum(around, floor))
    deviation = 1.4826 * np.median(np.abs(apart - np.median(apart)))
    if deviation == 0:
        return np.zeros(n, bool)
    return np.asarray((apart - np.median(apart)) / deviation > OUTLIER_DEVIATIONS)


def region_notes(components: Array, chromosomes: Array, positions: Array) -> tuple[str, ...]:
    """Say which components have much of their squared loadings in one region: its linkage, not descent."""
    said = []
    order = np.lexsort((positions, chromosomes))
    codes, place = chromosomes[order], positions[order]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    stops = np.append(starts[1:], len(codes))
    # For each variant, the end of the window that begins with it.
    ends = np.concatenate(
        [
            a + np.searchsorted(place[a:b], place[a:b] + REGION_BASES, "right")
            for a, b in zip(starts, stops, strict=True)
        ]
    )
    total = np.arange(len(codes))
    for number, loadings in enumerate(components, start=1):
        running = np.append(0.0, np.cumsum(loadings[order] ** 2))
        share = running[ends] - running[total]
        first = int(share.argmax())
        last = ends[first] - 1
        fair = (last + 1 - first) / len(codes)
        if share[first] < max(REGION_SHARE, 5 * fair):
            continue
        # The narrowest range that holds most of it.
        inside = running[first : last + 2] - running[first]
        a = first + int(np.searchsorted(inside, 0.05 * share[first])) - 1
        b = first + int(np.searchsorted(inside, 0.95 * share[first])) - 1
        where = (
            f"chromosome {chromosome(str(codes[first]))}, {place[a] / 1e6:.1f} to {place[min(b, last)] / 1e6:.1f} Mb"
        )
        known = _known_regions(codes[a : b + 1], place[a : b + 1])
        said.append(
            f"PC {number} has {share[first]:.0%} of its squared loadings on {where}{known}: it shows the linkage of "
            "that region, not descent; leave it out (--exclude-regions) or prune (--ld-prune 0.2)"
        )
    return tuple(said)


def _known_regions(chromosomes: Array, positions: Array) -> str:
    """Name the region of long-range linkage, of any build, that most of these variants lie in."""
    for regions in LONG_RANGE_LD.values():
        for region in regions:
            if in_regions(chromosomes, positions, (region,)).mean() > 0.5:
                return f" ({region.name})" if region.name else " (a known region of long-range linkage)"
    return ""
