"""Probabilistic PCA and factor analysis as plain functions: fit, infer, choose k."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MemoryLimitError, hint_for_missing
from streampca.genetics.matching import Match
from streampca.models.pca.fit import (
    PCAFit,
    also_spent,
    fit_pca,
    not_distinguishable,
    plan_pca,
    resolve,
)
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.choose import Choice, bic, closed_likelihood, evidence, simplest
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.models.ppca.plan import latent_sweeps, plan_em
from streampca.progress import Progress, logger, silent
from streampca.solvers.choose import Plan
from streampca.solvers.em.factors import Factors, Known, Posterior
from streampca.solvers.em.loop import EM, LEAST_NOISE, ROUNDING, ByFeatures, BySamples, ByScatter, Fit, least_noise
from streampca.solvers.em.statistics import infer, infer_all
from streampca.sources import Axis, Source
from streampca.sources.wrappers import HeldOut, as_float64
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Budget, SweepPlan, plan_stages
from streampca.sweep.scaling import Scaling
from streampca.sweep.sweep import Sweeps, active_client, one_blas_thread

# Components that are looked at to choose from; of held-out values, the search ends when so many more were no better.
MOST_CANDIDATES = 50
PATIENCE = 2
HELD_OUT = 0.05
# Below this share of the variance, noise is a difference that float32 products do not give well enough.
FLOAT32_NOISE = 1e-3
# What to do about missing values.
MISSING_HINT = "fill them, or use missing='model'"
# Iterations of EM that a plan counts on.
EM_SWEEPS = 6


def component_count(n_components: int | str | None, source: Source) -> int:
    """Return the number of components to compute: n_components, or the candidates to choose from."""
    n, d = source.shape
    largest = min(n, d) - 1
    if largest < 1:
        raise InputError(
            f"{source.name}: n_samples = {n} and n_features = {d} leave no component next to the noise; at least 2 of "
            "each are needed"
        )
    if n_components == "auto":
        return min(largest, MOST_CANDIDATES)
    if n_components is None:
        return min(source.default_components or largest, largest)
    count = int(n_components)
    if count > largest:
        raise InputError(
            f"n_components must be at most {largest} (min(n_samples, n_features) - 1 for {n} samples and {d} features)"
            f", got {count}"
        )
    return count


def start_options(options: PPCAOptions | FactorAnalysisOptions, missing: str, count: int) -> PCAOptions:
    """Return the options of the principal components that the fit starts from."""
    names = ("scale", "solver", "tol", "random_state")
    shared = {name: getattr(options, name) for name in names}
    return PCAOptions.of({**shared, "missing": missing, "n_components": count})


def plan_ppca(
    source: Source, options: PPCAOptions | FactorAnalysisOptions, *, memory: Any = None, extra_sweeps: int = 0
) -> Plan:
    """Plan the principal components that the fit starts from and the EM sweeps, without reading any data.

    The number of EM iterations depends on the data: the plan assumes `EM_SWEEPS`.
    """
    count, memory = component_count(options.n_components, source), Budget.of(memory)
    start = partial(
        plan_pca, source, start_options(options, "mean", count), memory=memory, extra_sweeps=extra_sweeps,
        keep_scatter=options.per_feature_noise,
    )  # fmt: skip
    planned: Plan
    em: SweepPlan
    planned, em = plan_stages(start, partial(check_memory, source, options, memory))
    if options.method == "closed":
        return planned
    each = f"EM, if needed, one sweep per iteration, {EM_SWEEPS} assumed"
    more = " for each number of components tried" if options.n_components == "auto" else ""
    return replace(
        planned, peak_bytes=max(planned.peak_bytes, em.peak_bytes - em.resident_bytes),
        need=max(planned.need, em.need, key=lambda need: need.peak(planned.threads)), timed=None,
        sweeps=planned.sweeps + EM_SWEEPS, reason=f"{planned.reason}; {each}{more}",
    )  # fmt: skip


def check_memory(source: Source, options: PPCAOptions | FactorAnalysisOptions, memory: Any) -> SweepPlan:
    """Plan the sweeps of EM; raise `MemoryLimitError` if they do not fit."""
    holds_out = options.n_components == "auto" and options.criterion in ("auto", "heldout")
    gaps = holds_out or (options.missing == "model" and options.method != "closed" and source.dtype.kind == "f")
    count = component_count(options.n_components, source)
    try:
        return plan_em(source, count, gaps, tile_dtype(source.dtype), Budget.of(memory))
    except MemoryLimitError as error:
        if not gaps or source.is_genotypes:
            raise
        hint = "if no values are missing, missing='error' needs less"
        raise MemoryLimitError(f"{error}; {hint}", error.needed_bytes) from None


@dataclass(frozen=True)
class PPCAFit:
    """A fitted model x = W z + mu + noise, along principal axes; variances are of maximum likelihood (1 / n).

    Attributes
    ----------
    factors, scaling : the parameters in units of the scaled features, about the centre of `scaling`.
    likelihoods : log-likelihood of all samples after each iteration; one value in closed form.
    change : mean squared sine of the angles of EM's last turn; 0 in closed form.
    certificate, certificate_method : (k,) of the principal components that a closed form uses; None after EM.
    missing : (d,) missing values of each feature.
    posterior : means and deviations of the samples fitted, where the fit gave them.
    choice : how k was chosen, if it was.
    others : as for `PCAFit`.
    """

    factors: Factors
    scaling: Scaling
    likelihoods: tuple[float, ...]
    change: float
    certificate: Array | None
    missing: Array
    n_samples: int
    converged: bool
    advice: str
    method: str
    tile_dtype: str
    sweep_seconds: tuple[float, ...]
    n_iterations: int
    bytes_read: int
    seconds: float
    genotypes: bool
    notes: tuple[str, ...]
    sample_missing: Array | None = None
    posterior: Known | None = None
    choice: Choice | None = None
    certificate_method: str | None = None

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all samples."""
        return self.likelihoods[-1]

    @property
    def n_components(self) -> int:
        """Latent dimensions, k."""
        return self.factors.n_components

    @property
    def lengths(self) -> Array:
        """Length of each column of W."""
        return np.asarray(np.linalg.norm(self.factors.W, axis=0))

    @property
    def components(self) -> Array:
        """Principal axes (k, d), unit rows."""
        return np.asarray(self.factors.W.T / np.maximum(self.lengths, np.finfo(float).tiny)[:, None])

    @property
    def explained_variance(self) -> Array:
        """Variance of the model along each axis, |w|^2 + s2 (1 / n); of factor analysis |w|^2, the squared loadings."""
        own = isinstance(self.factors.noise, np.ndarray)
        return np.asarray(self.lengths**2 + (0.0 if own else self.factors.noise))

    @property
    def total_variance(self) -> float:
        """Trace of the model's covariance."""
        noise = np.broadcast_to(self.factors.noise, len(self.factors.W))
        return float((self.factors.W**2).sum() + noise.sum())

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the model's variance of each of these."""
        return self.explained_variance / self.total_variance

    @property
    def mean(self) -> Array:
        """Mean of each feature by the model, in units of the data."""
        return np.asarray(self.scaling.restore(self.factors.shift))

    def expected(self, Z: Any) -> Any:
        """Return samples without noise from latent points, NumPy or Dask: W z + mu, in units of the data."""
        return self.scaling.restore(Z @ self.factors.W.T + self.factors.shift)

    def without_noise(self) -> PPCAFit:
        """Return the limit of no noise, as near as double precision tells it from none."""
        noise = 1e-10 * float((self.factors.W**2).sum()) * np.ones_like(self.factors.noise)
        own = isinstance(self.factors.noise, np.ndarray)
        return replace(
            self, factors=replace(self.factors, noise=noise if own else float(noise)), tile_dtype="float64"
        )  # fmt: skip

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data."""
        return len(self.sweep_seconds)

    @property
    def scores(self) -> Array | None:
        """Posterior means of the samples fitted, where the fit gave them."""
        return None if self.posterior is None else self.posterior.mean

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and features of the source that was swept, which are those used."""
        return source.samples, source.features


@dataclass(frozen=True)
class Run:
    """Options of a fit, and how it runs."""

    options: PPCAOptions | FactorAnalysisOptions
    memory: Budget
    progress: Progress

    def fit_pca(self, source: Source, count: int) -> tuple[PCAFit, Sweeps]:
        """Fit the principal components that EM starts from, with missing values at the mean if they are allowed."""
        complete = self.options.missing == "error" or self.options.method == "closed"
        hint = MISSING_HINT
        if self.options.missing != "error":
            hint = "method='closed' is for complete data: fill them, or use method='em' or 'auto'"
        with hint_for_missing(hint):
            return fit_pca(
                source, start_options(self.options, "error" if complete else "mean", count), memory=self.memory,
                progress=self.progress, keep_scatter=self.options.per_feature_noise,
                detect_missing=not complete and not source.is_genotypes,
            )  # fmt: skip


def closed_form(found: PCAFit, own_noise: bool = False) -> Factors:
    """Return the parameters of maximum likelihood for complete data, from leading eigenvalues and the trace alone.

    s2 = (trace - sum_i lambda_i) / (d - k),   W = V (Lambda - s2 I)^1/2,   eigenvalues with 1 / n

    With noise of its own for each feature this is where EM starts from: psi_j is what W leaves of the variance.

    References: Tipping & Bishop (1999), J. R. Stat. Soc. B 61, 611, eq. 7 and 8.
    """
    n, d, k = found.n_samples, len(found.mean), len(found.components)
    values, trace = _likely(found)
    noise = max((trace - float(values.sum())) / (d - k), LEAST_NOISE * trace / d)
    W = found.components.T * np.sqrt(np.maximum(values - noise, 0.0))
    if not own_noise:
        return Factors(W, np.zeros(d), noise)
    assert found.squares is not None
    variances = found.squares / n
    left = np.maximum(variances - (W**2).sum(axis=1), 0.05 * np.where(variances > 0, variances, noise))
    return Factors(W, np.zeros(d), left)


def fit_ppca(
    source: Source, options: PPCAOptions | FactorAnalysisOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[PPCAFit, Sweeps]:
    """Fit probabilistic PCA or factor analysis; return the model, and the sweeps to continue with.

    Parameters
    ----------
    source, options : the data, and the options of the model, which select it.
    memory, progress : as for `fit_pca`.
    """
    started, memory = time.monotonic(), Budget.of(memory)
    most = component_count(options.n_components, source)
    plan_ppca(source, options, memory=memory)
    request = Run(options, memory, progress)
    spent = Spent()
    found, sweeps = request.fit_pca(source, most)
    spent.add(found.sweep_seconds, found.bytes_read)
    gaps = bool(found.missing.any())
    if len(found.components) >= len(found.mean):
        few = f"{source.name}: {len(found.mean)} features are left to use, and {most} components leave no noise of them"
        cure = f"ask for {len(found.mean) - 1} or fewer" if len(found.mean) > 1 else "give more that vary"
        raise InputError(f"{few}; {cure}")
    source, scaling = _used_part(found, sweeps), found.scaling
    del sweeps
    choice = choose(source, found, request, spent) if request.options.n_components == "auto" else None
    if choice is not None:
        found = found.leading(choice.best)
    own = request.options.per_feature_noise
    start = closed_form(found, own)
    dtype = np.dtype(found.tile_dtype)
    if not gaps and _too_little(start, dtype, source):
        return _fit_in_float64(source, request, spent)
    method = "em" if gaps or own or request.options.method == "em" else "closed"
    start, scaling, squares = _observed_units(found, start, scaling, request)
    swept = latent_sweeps(source, start.n_components, gaps, scaling, dtype, request.memory, request.progress)
    if method == "closed":
        value = closed_likelihood(*_likely(found), found.n_samples, len(found.mean))
        fit = Fit(start, _shrunk(found, start), (value,), 0.0, 0, found.converged)
        factors, posterior, advice = start, fit.posterior, found.advice
    else:
        fit = _fit_em(swept, start, found, squares, gaps, request)
        if _too_little(fit.factors, dtype, source):
            spent.add(swept.seconds, swept.bytes_read)
            # Frees the data that were kept, before the next fit keeps its own.
            del swept, fit, found
            return _fit_in_float64(source, request, spent)
        with one_blas_thread:
            factors, R = fit.factors.rotated()
            posterior = None if fit.posterior is None else fit.posterior.rotated(R)
        advice = "" if fit.converged else _not_converged(fit, options)
    latent = PPCAFit(
        factors=factors,
        scaling=scaling,
        likelihoods=fit.likelihoods,
        change=fit.change,
        certificate=found.certificate if method == "closed" else None,
        missing=found.missing,
        n_samples=found.n_samples,
        converged=fit.converged,
        advice=advice,
        method=method,
        tile_dtype=str(dtype),
        sweep_seconds=(*spent.seconds, *swept.seconds),
        n_iterations=fit.n_steps,
        bytes_read=spent.bytes_read + swept.bytes_read,
        seconds=time.monotonic() - started,
        genotypes=found.genotypes,
        notes=(),
        sample_missing=found.sample_missing,
        posterior=None if posterior is None else posterior.known(),
        choice=choice,
        certificate_method=found.certificate_method if method == "closed" else None,
    )
    return replace(latent, notes=_notes(latent, found)), swept


def _fit_in_float64(source: Source, request: Run, spent: Spent) -> tuple[PPCAFit, Sweeps]:
    """Begin again, since float32 products do not tell so little noise from rounding."""
    logger.info("there is too little noise for float32 tiles; beginning again in float64")
    latent, sweeps = fit_ppca(as_float64(source), request.options, memory=request.memory, progress=request.progress)
    return also_spent(latent, spent.seconds, spent.bytes_read), sweeps


def _too_little(factors: Factors, dtype: np.dtype[Any], source: Source) -> bool:
    """Tell whether the noise is a difference that tiles of float32 do not give; genotypes always have enough."""
    shared = (factors.W**2).sum(axis=1)
    if not isinstance(factors.noise, np.ndarray):
        shared = shared.mean()
    share = float(np.min(factors.noise / (factors.noise + shared)))
    return dtype != np.float64 and not source.is_genotypes and share < FLOAT32_NOISE


def _used_part(found: PCAFit, sweeps: Sweeps) -> Source:
    """Return the source that was swept, without the features left out."""
    swept = sweeps.matrix.source.uncached()
    return swept if found.used is None else swept.take(features=found.used)


def _observed_units(found: PCAFit, start: Factors, scaling: Scaling, request: Run) -> tuple[Factors, Scaling, Array]:
    """Return start, scaling and squares in units of the deviation of the observed values, if that is the unit.

    Components with missing values at the mean divide by the deviation of all values, those at the mean included.
    """
    assert found.squares is not None
    if request.options.scale != "unit" or scaling.scale is None or not found.missing.any():
        return start, scaling, found.squares
    n = found.n_samples
    count = np.maximum(n - found.missing, 2)
    ratio = np.where(found.squares > 0, np.sqrt((n - 1) / (count - 1)), 1.0)
    noise = start.noise / ratio**2 if isinstance(start.noise, np.ndarray) else start.noise
    return (
        Factors(start.W / ratio[:, None], start.shift, noise),
        Scaling(scaling.mean, scaling.scale * ratio),
        found.squares / ratio**2,
    )


def _shrunk(found: PCAFit, factors: Factors) -> Posterior | None:
    """Return the posterior of complete data from scores t of the samples: <z_i> = w_i t_i / (w_i^2 + s2)."""
    if found.scores is None:
        return None
    lengths = np.linalg.norm(factors.W, axis=0)
    variances = lengths**2 + factors.noise
    packed = np.diag(factors.noise / variances)[np.tril_indices(len(lengths))]
    return Posterior(found.scores.astype(np.float64) * (lengths / variances), packed[None, :])


def _fit_em(sweeps: Sweeps, start: Factors, found: PCAFit, squares: Array, gaps: bool, request: Run) -> Fit:
    """Iterate: without a sweep where the scatter is at hand, else by the cut of the sweeps."""
    least = least_noise(squares, found.n_samples - found.missing)
    iteration: Any
    if found.scatter is not None and not gaps and request.options.method == "auto":
        scale = 1.0 if found.scale is None else found.scale
        scatter = found.scatter / scale / np.reshape(scale, (-1, 1))
        iteration = ByScatter(scatter, found.n_samples, request.options.accelerate, least)
    else:
        way = BySamples if sweeps.matrix.axis == 0 else ByFeatures
        iteration = way(sweeps, squares, gaps, request.options.accelerate, least)

    def tell(note: str) -> None:
        sweeps.note = note

    n_values, options = int((found.n_samples - found.missing).sum()), request.options
    rounding = ROUNDING[sweeps.matrix.dtype]
    em = EM(iteration, n_values, options.tol, options.max_iter, options.accelerate, rounding, tell)
    with sweeps:
        return em.fit(start)


def _not_converged(fit: Fit, options: PPCAOptions | FactorAnalysisOptions) -> str:
    return (
        f"EM stopped after max_iter={options.max_iter} before it converged: the last iteration turned the subspace by "
        f"{math.sqrt(fit.change):.1e} (sine), tol={options.tol:g}; increase max_iter or tol, or fit fewer components"
    )


def _notes(latent: PPCAFit, found: PCAFit) -> tuple[str, ...]:
    """Say what to mind: what was left out, components that are alike, features without values, data without noise."""
    spectrum = replace(
        found,
        explained_variance=latent.explained_variance,
        following=None if latent.method == "em" else found.following,
    )
    notes = [note for note in found.notes if "distinguishable" not in note]
    if not isinstance(latent.factors.noise, np.ndarray):
        notes += not_distinguishable(spectrum)
        if latent.factors.noise <= 2 * LEAST_NOISE * latent.total_variance / len(found.mean):
            notes.append(
                f"the data have no variance beyond {latent.n_components} components: the noise is zero, and the "
                "likelihood has no bound; ask for fewer components"
            )
    else:
        count = found.n_samples - found.missing
        bound = latent.factors.noise <= 2 * least_noise(np.asarray(found.squares), count)
        bound &= (count > 0) & (np.asarray(found.squares) > 0)
        if bound.any():
            notes.append(
                f"{int(bound.sum())} feature(s) have no noise of their own (a Heywood case): the likelihood has no "
                "bound there; ask for fewer components"
            )
    empty = int((found.missing == found.n_samples).sum())
    if empty:
        notes.append(f"{empty} feature(s) have no value at all: their weights are zero, their mean is not known")
    if latent.choice is not None:
        notes.append(latent.choice.note)
    return tuple(notes)


def with_posterior(latent: PPCAFit, sweeps: Sweeps, sink: Callable[[int, Array, Array], None] | None = None) -> PPCAFit:
    """Return the model with what is known of the samples fitted; a sweep, into the sink if given, if the fit did not.

    Samples without any value are noted.
    """
    posterior, empty, before = latent.posterior, 0, sweeps.bytes_read
    if posterior is None:
        posterior, _, observed = infer(sweeps, latent.factors, bool(latent.missing.any()), sink)
        empty = int((observed == 0).sum())
    elif latent.missing.any():
        empty = int((posterior.deviation > 1 - 1e-12).all(axis=1).sum())
    notes = latent.notes
    if empty:
        notes += (f"{empty} sample(s) have no value at all: what is known of them is the prior, mean zero",)
    swept = sweeps.seconds[-1:] if latent.posterior is None else []
    kept = None if sink is not None and latent.posterior is None else posterior
    return replace(
        latent, posterior=kept, notes=notes, sweep_seconds=(*latent.sweep_seconds, *swept),
        bytes_read=latent.bytes_read + sweeps.bytes_read - before,
    )  # fmt: skip


def matching_latent(latent: PPCAFit, match: Match) -> PPCAFit:
    """Return the model of the variants that match, for data that count the alleles as the new ones do."""
    sign = np.where(match.flipped, -1.0, 1.0)
    part = latent.factors.part(match.fitted)
    factors = replace(part, W=part.W * sign[:, None], shift=part.shift * sign)
    mean = latent.scaling.mean[match.fitted]
    scaling = replace(latent.scaling.take(match.fitted), mean=np.where(match.flipped, 2 - mean, mean))
    return replace(latent, factors=factors, scaling=scaling)


def infer_latent(
    source: Source, latent: PPCAFit, missing: str, memory: Any = None, progress: Progress = silent
) -> tuple[Known, Array, Array]:
    """Return what is known of z of samples, their log-likelihood, and how many values each has; one sweep."""
    with _inferring(source, latent, missing, memory, progress) as (sweeps, gaps):
        return infer(sweeps, latent.factors, gaps, check=True)


def posteriors_of(
    source: Source, latent: PPCAFit, missing: str, memory: Any = None, progress: Progress = silent
) -> Posterior:
    """Return means and covariances of z of samples; one sweep."""
    with _inferring(source, latent, missing, memory, progress) as (sweeps, gaps):
        return infer_all(sweeps, latent.factors, gaps, check=True)[0]


@contextmanager
def _inferring(
    source: Source, latent: PPCAFit, missing: str, memory: Any, progress: Progress
) -> Iterator[tuple[Sweeps, bool]]:
    """Yield sweeps over new samples, and whether they may have gaps."""
    if source.shape[1] != len(latent.scaling.mean):
        raise InputError(
            f"{source.name}: X has {source.shape[1]} features, but the model was fitted on "
            f"{len(latent.scaling.mean)} features; give the same features in the same order"
        )
    gaps = missing == "model" and source.dtype.kind == "f"
    dtype = np.result_type(tile_dtype(source.dtype), latent.tile_dtype)
    sweeps = latent_sweeps(source, latent.n_components, gaps, latent.scaling, dtype, Budget.of(memory), progress)
    with hint_for_missing(MISSING_HINT), sweeps:
        yield sweeps, gaps


@dataclass
class Spent:
    """What sweeps took beside those of the fit itself."""

    seconds: list[float] = field(default_factory=list)
    bytes_read: int = 0

    def add(self, seconds: Sequence[float], bytes_read: int) -> None:
        """Count some more."""
        self.seconds += seconds
        self.bytes_read += bytes_read


def choose(source: Source, found: PCAFit, request: Run, spent: Spent) -> Choice:
    """Choose the number of components."""
    n, d = source.shape
    gaps = bool(found.missing.any())
    criterion = request.options.criterion
    if criterion == "auto":
        criterion = "heldout" if gaps or request.options.per_feature_noise or n <= d else "evidence"
    if criterion == "heldout":
        return choose_by_held_out(source, request, len(found.components), spent)
    if gaps:
        raise InputError(f"criterion={criterion!r} is for probabilistic PCA of complete data; use criterion='heldout'")
    values, trace = _likely(found)
    curve = (evidence if criterion == "evidence" else bic)(values, trace, n, d)
    return Choice(criterion, np.arange(1, len(values) + 1), curve, int(np.argmax(curve)) + 1)


def _likely(found: PCAFit) -> tuple[Array, float]:
    """Return eigenvalues and trace of maximum likelihood: with 1 / n."""
    shrink = (found.n_samples - 1) / found.n_samples
    return found.explained_variance * shrink, found.total_variance * shrink


def choose_by_held_out(source: Source, request: Run, most: int, spent: Spent) -> Choice:
    """Choose k by the likelihood of values left out at random, given those of the same sample that are left in.

    log p(left out | left in) = log p(all) - log p(left in): a fit on what is left in, and two more sweeps. Candidates
    are 1, 2, ... until two in a row are no better than one before; of those that are as good as the best within the
    standard error of the difference, the smallest is taken.
    """
    if source.is_graph and active_client() is not None:
        raise InputError(
            f"{source.name}: values of a Dask array cannot be held out on a cluster; write it to Zarr first"
        )
    held = HeldOut(source, HELD_OUT, request.options.random_state)
    # "auto" depends on the source, not on its wrapper.
    asked = resolve(start_options(request.options, "mean", most), source)
    found, sweeps = fit_pca(held, asked, memory=request.memory, progress=request.progress)
    spent.add(found.sweep_seconds, found.bytes_read)
    del sweeps
    curve: list[Array] = []
    for k in range(1, most + 1):
        part = found.leading(k)
        start, scaling, squares = _observed_units(
            part, closed_form(part, request.options.per_feature_noise), part.scaling, request
        )
        left_in, whole = (
            latent_sweeps(data, k, True, scaling, np.dtype(found.tile_dtype), request.memory, request.progress)
            for data in (held, source)
        )
        left_in.stage = whole.stage = f"held out, k = {k}"
        fit = _fit_em(left_in, start, part, squares, True, request)
        curve.append(infer(whole, fit.factors, True)[1] - infer(left_in, fit.factors, True)[1])
        for sweeps in (left_in, whole):
            spent.add(sweeps.seconds, sweeps.bytes_read)
        if k - 1 - int(np.argmax(np.sum(curve, axis=1))) >= PATIENCE:
            break
    return Choice("heldout", np.arange(1, len(curve) + 1), np.sum(curve, axis=1), simplest(np.array(curve)))
