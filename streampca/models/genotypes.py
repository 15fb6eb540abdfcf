"""Fits of genotypes: without outliers, with notes on regions and samples; and projection of new samples on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.genetics.matching import Match
from streampca.genetics.outliers import describe_outliers, few_samples_note, outliers, region_notes
from streampca.genetics.projection import (
    PROJECTIONS,
    Projected,
    check_weights,
    own_scores,
    project_filled,
    project_observed_calls,
)
from streampca.models.pca.fit import project, project_observed
from streampca.models.pca.record import PCAFit
from streampca.progress import Progress, logger, silent
from streampca.sources import Axis, Source
from streampca.sources.genotypes import packed_loops
from streampca.sweep.scaling import check_choice
from streampca.sweep.sweep import Sweeps

Fit = TypeVar("Fit", bound=Any)  # PCAFit or PPCAFit

OUTLIERS = ("report", "remove")


def fit_genotypes(
    source: Source, fit: Callable[[Source], tuple[Fit, Sweeps]], *, find_outliers: str | None = None,
    rounds: int = 5,
) -> tuple[Fit, Sweeps, Array | None]:  # fmt: skip
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
        fitted, sweeps = fit(source)
        fitted = fitted.after(seconds, n_bytes)
        swept = sweeps.matrix.source.uncached()
        mask = None if find_outliers is None else outliers(np.asarray(fitted.scores))
        if mask is None or not mask.any() or find_outliers == "report" or left == 0:
            break
        left, seconds, n_bytes = left - 1, list(fitted.sweep_seconds), fitted.bytes_read
        description = describe_outliers(swept, mask)
        logger.info("%s; fitting again without them", description)
        source = swept.take(samples=~mask, note=f"samples excluded: {description}")
        # Data kept in memory go before the next fit plans its own.
        del fitted, sweeps, swept
    features = fitted.axes(swept)[1]
    labels = (np.asarray(features.coords[name][1]) for name in ("chromosome", "position"))
    notes = fitted.notes + region_notes(fitted.components, *labels)
    if fitted.scores is not None:
        notes += few_samples_note(swept, np.asarray(fitted.scores))
    if mask is not None and mask.any():
        notes += (f"{describe_outliers(swept, mask)}; see the variable outlier",)
    return replace(fitted, notes=notes), sweeps, mask


def placed_genotypes(
    source: Source, fitted: PCAFit, match: Match, *, projection: str = "oadp", places: Array | None = None,
    memory: Any = None, progress: Progress = silent,
) -> Projected:  # fmt: skip
    """Return the scores of new samples and their distances from the components, in one sweep.

    Parameters
    ----------
    projection : "simple": products with the components, missing calls at the mean; "lsq": least squares over the calls
        that a sample has; "oadp": the same, corrected for shrinkage.
    places : (n,) place among the fitted samples of those that have the id of one, else -1. With projection "oadp" they
        keep the scores of the fit, if their calls are the same.
    """
    check_choice("projection", projection, PROJECTIONS)
    part = fitted.matching(match)
    weights = check_weights(source.name, part.components, match)
    more, matching = fitted.n_features / part.n_features, source.take(features=match.new)
    if projection == "simple":
        return project_filled(*project(matching, part, "mean", memory, progress), weights, more)
    placed = project_observed(matching, part, memory, progress)
    projected = project_observed_calls(placed, more, fitted.singular_values, projection)
    if places is None or fitted.scores is None or projection != "oadp":
        return projected
    stored = np.where(places[:, None] >= 0, fitted.scores[places].astype(np.float64), np.nan)
    error = np.zeros(fitted.n_components) if fitted.error is None else fitted.error
    tolerance = 4 * error * np.sqrt(fitted.explained_variance)
    own = own_scores(stored, tolerance, placed, weights, more)
    return projected._replace(scores=np.where(own[:, None], stored, projected.scores), fitted=own)


def with_relatives(
    fitted: PCAFit, swept: Source, everyone: Source, relatives: Array, *, memory: Any = None,
    progress: Progress = silent,
) -> tuple[PCAFit, Axis, Array]:  # fmt: skip
    """Project samples that were not fitted; return the fit with the scores of all, and all samples.

    Samples have the order of `everyone`; also returns which of them are projected. Their scores are those of
    `placed_genotypes`.

    Parameters
    ----------
    swept : the fitted samples.
    everyone : more samples, with the same variants.
    relatives : mask of those that are projected.
    """
    used = np.arange(everyone.shape[1]) if fitted.used is None else np.flatnonzero(fitted.used)
    new = everyone.take(samples=relatives)
    own = np.arange(len(used))
    match = Match(own, used, np.zeros(len(used), bool), 0, 0, 0)
    scores = placed_genotypes(new, fitted, match, memory=memory, progress=progress).scores
    ids = [list(zip(source.label("fid"), source.label("iid"), strict=True)) for source in (everyone, swept)]
    places = {pair: place for place, pair in enumerate(ids[0])}
    at = np.concatenate([np.array([places[pair] for pair in ids[1]], int), np.flatnonzero(relatives)])
    order = np.argsort(at)
    assert fitted.scores is not None
    changes: dict[str, Any] = {"scores": np.concatenate([fitted.scores, scores.astype(fitted.scores.dtype)])[order]}
    if fitted.sample_missing is not None:
        missing = _missing_calls(new.take(features=used)).astype(fitted.sample_missing.dtype)
        changes["sample_missing"] = np.concatenate([fitted.sample_missing, missing])[order]
    return replace(fitted, **changes), everyone.samples.take(at[order]), relatives[at[order]]


def _missing_calls(source: Source) -> Array:
    """Return the number of missing calls of each sample; one read."""
    n_samples, n_variants = source.shape
    totals, step = np.zeros(n_samples, np.int64), source.chunks[1]
    for start in range(0, n_variants, step):
        packed_loops(source.small).count_missing(source.read_packed(start, min(start + step, n_variants))[0], totals)
    return totals
