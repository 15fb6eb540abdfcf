"""Fits of genotypes: without outliers, with notes on regions; and projection of new samples on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.genetics.matching import Match
from streampca.genetics.outliers import describe_outliers, outliers, region_notes
from streampca.genetics.projection import PROJECTIONS, check_weights, placed
from streampca.models.pca.fit import project
from streampca.models.pca.record import PCAFit, also_spent
from streampca.progress import Progress, logger, silent
from streampca.sources import Source
from streampca.sweep.scaling import check_choice
from streampca.sweep.sweep import Sweeps

# A PCAFit or PPCAFit: both have scores, notes and sweep_seconds.
Fitted = TypeVar("Fitted", bound=Any)

OUTLIERS = ("report", "remove")


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
        mask = None if find_outliers is None else outliers(np.asarray(found.scores))
        if mask is None or not mask.any() or find_outliers == "report" or left == 0:
            break
        left, seconds, n_bytes = left - 1, list(found.sweep_seconds), found.bytes_read
        description = describe_outliers(swept, mask)
        logger.info("%s; fitting again without them", description)
        source = swept.take(samples=~mask, note=f"samples excluded: {description}")
        # Data kept in memory go before the next fit plans its own.
        del found, sweeps, swept
    features = found.axes(swept)[1]
    labels = (np.asarray(features.coords[name][1]) for name in ("chromosome", "position"))
    notes = found.notes + region_notes(found.components, *labels)
    if mask is not None and mask.any():
        notes += (f"{describe_outliers(swept, mask)}; see the variable outlier",)
    return replace(found, notes=notes), sweeps, mask


def matching_part(found: PCAFit, match: Match) -> PCAFit:
    """Return the components of the matching variants, for the alleles that the new data count."""
    assert found.scale is not None
    sign = np.where(match.flipped, -1.0, 1.0)
    mean = np.where(match.flipped, 2 - found.mean[match.fitted], found.mean[match.fitted])
    components = found.components[:, match.fitted] * sign
    return replace(found, components=components, mean=mean, scale=found.scale[match.fitted], used=None)


def placed_genotypes(
    source: Source, found: PCAFit, match: Match, *, projection: str = "oadp", memory: Any = None,
    progress: Progress = silent,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the scores of new samples and their distances from the components, in one sweep: see `placed`."""
    check_choice("projection", projection, PROJECTIONS)
    part = matching_part(found, match)
    weights = check_weights(source.name, part.components, match)
    XV, squares = project(source.take(features=match.new), part, "mean", memory, progress)
    lengths = np.sqrt(found.explained_variance * (found.n_samples - 1))
    return placed(XV, squares, weights, len(found.mean) / len(match.fitted), lengths, projection)
