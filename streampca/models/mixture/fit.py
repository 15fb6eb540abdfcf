"""The fit of a mixture of probabilistic PCA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.models.mixture.options import MixtureOptions
from streampca.progress import Progress, logger, silent
from streampca.solvers.base import NeedsFloat64, know_scaling
from streampca.solvers.mixture.loop import MixtureEM, MixtureFit
from streampca.solvers.mixture.start import CANDIDATES, OVERSAMPLE
from streampca.solvers.mixture.statistics import LogJoint, Mixture
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Budget, Needs, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps

# What to do about missing values.
MISSING_HINT = "fill them (PPCA can: `impute`), or leave their samples out"


def check_data(source: Source, options: MixtureOptions) -> None:
    """Raise `InputError` for data that the mixture cannot be fitted to."""
    refuse_genotypes(source)
    n, d = source.shape
    if options.n_components >= d:
        raise InputError(
            f"{source.name}: n_components={options.n_components} leaves no noise of n_features = {d}: "
            + (f"give 1 to {d - 1}" if d > 1 else "2 features or more are needed")
        )
    least = options.n_clusters * (options.n_components + 2)
    if n < least:
        raise InputError(
            f"{source.name}: n_clusters={options.n_clusters} with n_components={options.n_components} needs {least} "
            f"samples or more (n_components + 2 a cluster), got n_samples = {n}: give fewer clusters or components"
        )


def mixture_sweeps(source: Source, options: MixtureOptions, memory: Any, progress: Progress) -> Sweeps:
    """Plan the sweeps of a fit; raise `MemoryLimitError` if they do not fit."""
    K, d = options.n_clusters, source.shape[1]
    width = min(d, options.n_components + OVERSAMPLE) + 1
    partial = 8 * d * max(K * width, CANDIDATES**2)
    # In the driver: the mixture before and after a step and in the tiles' type, the sums, and a factorisation.
    needs = Needs(0, _tile_bytes(source, K, width), partial=partial, driver=4 * partial + 8 * 4 * d * width)
    planned = plan_sweeps(source, needs, Budget.of(memory), f"a mixture of {K} models", sweeps=options.max_iter + 1)
    return planned.over(source, "error", options.scale, progress=progress)


def _tile_bytes(source: Source, n_clusters: int, width: int) -> int:
    """Bytes of a task: a tile and its deviations from one mean, a product, scores and densities, all in float64."""
    d = source.shape[1]
    length = Statistic().tile_length(d, tile_dtype(source.dtype).itemsize)
    return 8 * (2 * length * d + d * width + 3 * length * n_clusters * (width + 3))


def refuse_genotypes(source: Source) -> None:
    """Refuse genotypes, whose samples are not read one by one."""
    if source.is_genotypes:
        raise InputError(
            f"{source.name}: a mixture is not for genotypes; fit it to their scores: MixtureOfPPCA().fit(scores) for "
            "scores = PCA(n_components=10).fit_transform(...)"
        )


def fit_mixture(
    source: Source, options: MixtureOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[MixtureFit, Sweeps]:
    """Fit the mixture to a source; return it, clusters by decreasing weight, and the sweeps that it took.

    Parameters
    ----------
    source, options : the data and the options of the mixture.
    memory, progress : as for `fit_pca`.
    """
    check_data(source, options)
    sweeps = mixture_sweeps(source, options, memory, progress)
    with sweeps, hint_for_missing(MISSING_HINT):
        variance = _mean_variance(sweeps)
        solver = MixtureEM(
            sweeps, options.n_clusters, options.n_components, variance, options.tol, options.max_iter,
            options.random_state,
        )  # fmt: skip
        fit = solver.fit()
    return replace(fit, mixture=fit.mixture.take(np.argsort(-fit.mixture.weights, kind="stable"))), sweeps


def _mean_variance(sweeps: Sweeps) -> float:
    """Sweep for means and scales, in float64 where float32 does not do; returns the mean variance of a feature."""
    try:
        trace = know_scaling(sweeps, sweeps.moments())
    except NeedsFloat64:
        logger.info("values too small or too large for float32 tiles; beginning again in float64")
        sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64), scaling=None)
        trace = know_scaling(sweeps, sweeps.moments())
    return trace / sweeps.matrix.n_full


def log_joint(
    source: Source, mixture: Mixture, scaling: Scaling, memory: Any = None, progress: Progress = silent
) -> Array:
    """Return log pi_c + log N(x; mu_c, C_c) of samples, (n, K), in float64; one sweep."""
    refuse_genotypes(source)
    (n, d), (K, width) = source.shape, mixture.lengths.shape
    if d != len(scaling.mean):
        raise InputError(
            f"{source.name}: X has {d} features, but the mixture was fitted on {len(scaling.mean)} features; "
            "give the same features in the same order"
        )
    needs = Needs(0, _tile_bytes(source, K, width), driver=8 * 3 * n * K)
    planned = plan_sweeps(source, needs, Budget.of(memory), "the density", dtype=np.dtype(np.float64))
    sweeps = planned.over(source, "error", None, scaling, progress)
    with hint_for_missing(MISSING_HINT):
        pieces, _ = sweeps.run(LogJoint(mixture), "density", check=True)
    return np.concatenate(pieces)
