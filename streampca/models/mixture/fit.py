"""The fit of a mixture of probabilistic PCA."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.models.mixture.options import MixtureOptions
from streampca.models.pca.record import signed
from streampca.models.record import Attribute, Fitted, Variable, swept
from streampca.progress import Progress, silent
from streampca.solvers.base import know_scaling
from streampca.solvers.choose import Plan
from streampca.solvers.mixture.loop import MixtureEM, MixtureFit
from streampca.solvers.mixture.start import CANDIDATES, OVERSAMPLE
from streampca.solvers.mixture.statistics import Flats, Mixture, log_sum
from streampca.solvers.restart import with_restarts
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Budget, Needs, SweepPlan, plan_stages, plan_sweeps
from streampca.sweep.statistics import RowsOf, Statistic
from streampca.sweep.sweep import Sweeps

MISSING_HINT = "fill them (PPCA can: `impute`), or exclude their samples"  # for missing values
PLANNED_SWEEPS = 20  # iterations of EM and the start that a plan counts on


@dataclass(frozen=True, kw_only=True)
class MixtureOfPPCAFit(Fitted):
    """A fitted mixture, clusters by decreasing weight; variances are of maximum likelihood.

    Attributes
    ----------
    weights : (K,) pi_c.
    means : (K, d), in units of the data.
    components : (K, k, d), orthonormal rows, the largest entry of each positive.
    explained_variance : (K, k) variance along each axis, |w|^2 + s2, of the scaled features.
    noise_variance : (K,) s2_c.
    total_variance : of all samples (n - 1).
    log_likelihoods : log-likelihood of all samples before each iteration.
    probability : (n, K) of each cluster given each sample, if known.
    others : as for `Fitted`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *Fitted.VARIABLES,
        Variable("weights", "cluster", "share of each cluster"),
        Variable("means", "cluster F", "mean of each cluster, in units of the data"),
        Variable("components", "cluster component F"),
        Variable(
            "explained_variance", "cluster component",
            "variance of each cluster along each of its components, of maximum likelihood",
        ),
        Variable("noise_variance", "cluster", "variance of each cluster along any other direction"),
        Variable(
            "log_likelihood", "iteration", "log-likelihood of all samples before each iteration of EM",
            "log_likelihoods",
        ),
        Variable("probability", "S cluster", "of each cluster, given the sample"),
    )  # fmt: skip
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *Fitted.ATTRIBUTES,
        Attribute("n_iterations", int, "n_iter"),
        Attribute("total_log_likelihood", of="log_likelihood"),
    )

    weights: Array
    means: Array
    components: Array
    explained_variance: Array
    noise_variance: Array
    total_variance: float
    log_likelihoods: Array
    probability: Array | None = None

    @property
    def n_iter(self) -> int:
        """Number of EM iterations."""
        return len(self.log_likelihoods)

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all samples, before the last iteration."""
        return float(self.log_likelihoods[-1])

    @property
    def mixture(self) -> Mixture:
        """The parameters about the centre of the data, in scaled units."""
        centres = self.means - self.mean
        centres = centres if self.scale is None else centres / self.scale
        lengths = np.sqrt(np.maximum(self.explained_variance - self.noise_variance[:, None], 0.0))
        return Mixture(Flats(centres, self.components), self.weights, lengths, self.noise_variance)


def check_data(source: Source, options: MixtureOptions) -> None:
    """Raise `InputError` for data that the mixture cannot be fitted to."""
    check_no_genotypes(source)
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


def plan_mixture(source: Source, options: MixtureOptions, *, memory: Any = None) -> Plan:
    """Plan the sweeps of a fit, without reading; raise `MemoryLimitError` if they do not fit.

    The number of iterations of EM is a guess.
    """
    check_data(source, options)
    K, d = options.n_clusters, source.shape[1]
    width = min(d, options.n_components + OVERSAMPLE) + 1
    partial = 8 * d * max(K * width, CANDIDATES**2)
    # In the driver: the mixture before and after a step and in the tiles' type, the sums, and a factorisation.
    needs = Needs(0, _tile_bytes(source, K, width), partial=partial, driver=4 * partial + 8 * 4 * d * width)
    budget, what = Budget.of(memory), f"a mixture of {K} models"
    planned, _ = plan_stages(
        lambda: plan_sweeps(source, needs, budget, what, sweeps=options.max_iter + 1),
        lambda: _plan_density(source, K, options.n_components, budget),
    )
    work = 4.0 * source.shape[0] * d * K * width * PLANNED_SWEEPS
    return Plan(
        **vars(planned), solver=None, name="EM", reason=f"{K} clusters, one sweep an iteration",
        sweep_bytes=source.n_bytes, sweeps=PLANNED_SWEEPS, seconds=work / 5e10 / planned.threads,
    )  # fmt: skip


def _plan_density(source: Source, n_clusters: int, k: int, budget: Budget) -> SweepPlan:
    """Plan the sweep for the densities of all samples, which the driver holds."""
    needs = Needs(0, _tile_bytes(source, n_clusters, k), driver=8 * 3 * source.shape[0] * n_clusters)
    return plan_sweeps(source, needs, budget, "the density", dtype=np.dtype(np.float64))


def _tile_bytes(source: Source, n_clusters: int, width: int) -> int:
    """Bytes of a task: a tile and its deviations from one mean, a product, scores and densities, all in float64."""
    d = source.shape[1]
    length = Statistic().tile_length(d, tile_dtype(source.dtype).itemsize)
    return 8 * (2 * length * d + d * width + 3 * length * n_clusters * (width + 3))


def check_no_genotypes(source: Source) -> None:
    """Raise for genotypes, whose samples cannot be read one by one."""
    if source.is_genotypes:
        raise InputError(
            f"{source.name}: a mixture is not for genotypes; fit it to the scores of PCA: `streampca mixture "
            "NAME.pca.zarr/scores`"
        )


def fit_mixture(
    source: Source, options: MixtureOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[MixtureOfPPCAFit, Sweeps]:
    """Fit the mixture to a source; return it, and the sweeps to continue with.

    Parameters
    ----------
    source, options : the data and the options of the mixture.
    memory, progress : as for `fit_pca`.
    """
    started = time.monotonic()
    planned = plan_mixture(source, options, memory=memory)

    def start(part: Source, _: Array | None) -> tuple[Plan, Sweeps]:
        return planned, planned.over(part, "error", options.scale, progress=progress)

    def attempt(_: Plan, sweeps: Sweeps) -> tuple[MixtureFit, float]:
        trace = know_scaling(sweeps, sweeps.moments())
        solver = MixtureEM(
            sweeps, options.n_clusters, options.n_components, trace / sweeps.matrix.n_full, options.tol,
            options.max_iter, options.random_state,
        )  # fmt: skip
        return solver.fit(), trace

    with hint_for_missing(MISSING_HINT):
        (fit, trace), sweeps = with_restarts(source, start, attempt)
    mixture, scaling = fit.mixture.take(np.argsort(-fit.mixture.weights, kind="stable")), sweeps.matrix.scaling
    assert scaling is not None
    slow = (
        f"EM stopped after max_iter={options.max_iter} before it reached tol={options.tol:g}; increase max_iter or tol"
    )
    fitted = MixtureOfPPCAFit(
        **swept(sweeps),
        weights=mixture.weights,
        means=scaling.restore(mixture.flats.centres),
        components=np.stack([signed(axes) for axes in mixture.flats.axes]),
        explained_variance=mixture.variances,
        noise_variance=mixture.noise,
        scaling=scaling,
        total_variance=trace,
        log_likelihoods=np.array(fit.likelihoods),
        missing=np.zeros(source.shape[1], np.int64),
        converged=fit.converged,
        advice="" if fit.converged else slow,
        notes=(*source.notes, *fit.notes),
        seconds=time.monotonic() - started,
    )
    return fitted, sweeps


def fit_with_probabilities(
    source: Source, options: MixtureOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[MixtureOfPPCAFit, Sweeps]:
    """Fit the mixture and compute the probabilities of the fitted samples, in one more sweep."""
    fitted, sweeps = fit_mixture(source, options, memory=memory, progress=progress)
    started = time.monotonic()
    probability = probabilities(log_joint(source, fitted, memory, progress))
    seconds = time.monotonic() - started
    fitted = replace(
        fitted, probability=probability, sweep_seconds=(*fitted.sweep_seconds, seconds),
        bytes_read=sweeps.bytes_read + source.n_bytes,
    )  # fmt: skip
    return fitted, sweeps


def log_joint(source: Source, fitted: MixtureOfPPCAFit, memory: Any = None, progress: Progress = silent) -> Array:
    """Return log pi_c + log N(x; mu_c, C_c) of samples, (n, K), in float64; one sweep."""
    check_no_genotypes(source)
    fitted.check_features(source)
    n_clusters, k = fitted.explained_variance.shape
    planned = _plan_density(source, n_clusters, k, Budget.of(memory))
    sweeps = planned.over(source, "error", None, fitted.scaling, progress)
    with hint_for_missing(MISSING_HINT):
        pieces, _ = sweeps.run(RowsOf(fitted.mixture.log_joint_of), "density", check=True)
    return np.concatenate(pieces)


def probabilities(joint: Array) -> Array:
    """Return the probability of each cluster given each sample, (n, K), from `log_joint`."""
    return np.asarray(np.exp(joint - log_sum(joint)[:, None]))
