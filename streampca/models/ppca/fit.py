"""Probabilistic PCA and factor analysis as plain functions: fit, infer, choose k."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MemoryLimitError, hint_for_missing
from streampca.models.pca.fit import fit_pca, plan_pca, resolve
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, not_distinguishable
from streampca.models.ppca.options import LatentOptions
from streampca.models.ppca.plan import latent_sweeps, plan_em
from streampca.models.ppca.record import Choice, FactorAnalysisFit, PPCAFit
from streampca.models.ppca.spectrum import bic, closed_form, closed_likelihood, evidence, likelihood_units, simplest
from streampca.models.record import swept
from streampca.progress import Progress, logger, silent
from streampca.solvers.choose import Plan
from streampca.solvers.em.factors import Factors, Posterior
from streampca.solvers.em.loop import EM, LEAST_NOISE, ROUNDING, ByFeatures, BySamples, ByScatter, Fit, least_noise
from streampca.solvers.em.statistics import infer
from streampca.sources import Source
from streampca.sources.wrappers import HeldOut, as_float64
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Budget, SweepPlan, plan_stages
from streampca.sweep.scaling import Scaling
from streampca.sweep.sweep import Sweeps, active_client, one_blas_thread

MOST_CANDIDATES = 50  # numbers of components to choose from
PATIENCE = 2  # candidates that are no better, before the search stops
HELD_OUT = 0.05  # share of the values
FLOAT32_NOISE = 1e-3  # float32 products do not resolve a smaller share of the variance
EM_SWEEPS = 6  # iterations that a plan assumes
MISSING_HINT = "fill them, or use missing='model'"


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


def start_options(options: LatentOptions, missing: str, count: int) -> PCAOptions:
    """Return the options of the principal components that the fit starts from."""
    names = ("scale", "solver", "tol", "random_state")
    shared = {name: getattr(options, name) for name in names}
    return PCAOptions.of({**shared, "missing": missing, "n_components": count, "resolve": "all"})


def plan_ppca(source: Source, options: LatentOptions, *, memory: Any = None, extra_sweeps: int = 0) -> Plan:
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


def check_memory(source: Source, options: LatentOptions, memory: Any) -> SweepPlan:
    """Plan the sweeps of EM; raise `MemoryLimitError` if they do not fit."""
    holds_out = options.n_components == "auto" and options.criterion in ("auto", "heldout")
    incomplete = holds_out or (options.missing == "model" and options.method != "closed" and source.dtype.kind == "f")
    count = component_count(options.n_components, source)
    try:
        return plan_em(source, count, incomplete, tile_dtype(source.dtype), Budget.of(memory))
    except MemoryLimitError as error:
        if not incomplete or source.is_genotypes:
            raise
        hint = "if no values are missing, missing='error' needs less"
        raise MemoryLimitError(f"{error}; {hint}", error.needed_bytes) from None


@dataclass
class _Run:
    """One fit: its options, how it runs, and the sweeps that preceded the last attempt."""

    options: LatentOptions
    memory: Budget
    progress: Progress
    seconds: list[float] = field(default_factory=list)
    bytes_read: int = 0

    def spend(self, seconds: Sequence[float], bytes_read: int) -> None:
        """Count sweeps."""
        self.seconds += seconds
        self.bytes_read += bytes_read

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


def fit_ppca(
    source: Source, options: LatentOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[PPCAFit, Sweeps]:
    """Fit probabilistic PCA or factor analysis; return the model, and the sweeps to continue with.

    Parameters
    ----------
    source, options : the data, and the options of the model, which select it.
    memory, progress : as for `fit_pca`.
    """
    started = time.monotonic()
    run = _Run(options, Budget.of(memory), progress)
    result = _attempt(source, run)
    if result is None:
        logger.info("the noise is too small for float32 tiles; restarting in float64")
        result = _attempt(as_float64(source), run)
    assert result is not None
    fitted, sweeps = result
    return replace(fitted, seconds=time.monotonic() - started), sweeps


def _attempt(source: Source, run: _Run) -> tuple[PPCAFit, Sweeps] | None:
    """Fit the model once; return None if float32 products do not resolve the noise."""
    options = run.options
    count = component_count(options.n_components, source)
    plan_ppca(source, options, memory=run.memory)
    pca, sweeps = run.fit_pca(source, count)
    run.spend(pca.sweep_seconds, pca.bytes_read)
    _check_noise_left(source, pca, count)
    source = _used_part(pca, sweeps)
    del sweeps
    choice = choose(source, pca, run) if options.n_components == "auto" else None
    if choice is not None:
        pca = pca.leading(choice.best)
    incomplete, dtype = bool(pca.missing.any()), np.dtype(pca.tile_dtype)
    start = closed_form(pca, options.per_feature_noise)
    if not incomplete and _too_little(start, dtype, source):
        return None
    method = "em" if incomplete or options.per_feature_noise or options.method == "em" else "closed"
    start, scaling, squares = _observed_units(pca, start, pca.scaling, options)
    sweeps = latent_sweeps(source, start.n_components, incomplete, scaling, dtype, run.memory, run.progress)
    if method == "closed":
        fit = _closed(pca, start)
        advice = pca.advice
    else:
        fit = _fit_em(sweeps, start, pca, squares, incomplete, options)
        if _too_little(fit.factors, dtype, source):
            run.spend(sweeps.seconds, sweeps.bytes_read)
            return None
        fit = _rotated(fit)
        advice = "" if fit.converged else _not_converged(fit, options)
    record = FactorAnalysisFit if options.per_feature_noise else PPCAFit
    fitted = record(
        **swept(sweeps),
        factors=fit.factors,
        scaling=scaling,
        log_likelihoods=np.array(fit.likelihoods),
        change=fit.change,
        error=pca.error if method == "closed" else None,
        certificate_method=pca.certificate_method if method == "closed" else None,
        missing=pca.missing,
        converged=fit.converged,
        advice=advice,
        method=method,
        n_iterations=fit.n_steps,
        sample_missing=pca.sample_missing,
        posterior=None if fit.posterior is None else fit.posterior.known(),
        choice=choice,
    ).after(run.seconds, run.bytes_read)
    return replace(fitted, notes=_notes(fitted, pca)), sweeps


def _check_noise_left(source: Source, pca: PCAFit, count: int) -> None:
    d = len(pca.mean)
    if len(pca.components) >= d:
        hint = f"use n_components={d - 1} or less" if d > 1 else "at least 2 features must vary"
        raise InputError(f"{source.name}: {count} components of {d} used features leave no noise; {hint}")


def _closed(pca: PCAFit, factors: Factors) -> Fit:
    """Return the closed form as a fit; the posterior comes from the scores t: <z_i> = w_i t_i / (w_i^2 + s2)."""
    value = closed_likelihood(*likelihood_units(pca), pca.n_samples, len(pca.mean))
    posterior = None
    if pca.scores is not None:
        lengths = np.linalg.norm(factors.W, axis=0)
        variances = lengths**2 + factors.noise
        packed = np.diag(factors.noise / variances)[np.tril_indices(len(lengths))]
        posterior = Posterior(pca.scores.astype(np.float64) * (lengths / variances), packed[None, :])
    return Fit(factors, posterior, (value,), 0.0, 0, pca.converged)


def _rotated(fit: Fit) -> Fit:
    """Return the fit along principal axes."""
    with one_blas_thread:
        factors, R = fit.factors.rotated()
        return replace(fit, factors=factors, posterior=None if fit.posterior is None else fit.posterior.rotated(R))


def _too_little(factors: Factors, dtype: np.dtype[Any], source: Source) -> bool:
    """Whether the noise is a difference that float32 tiles do not resolve; genotypes always have enough."""
    shared = (factors.W**2).sum(axis=1)
    if not isinstance(factors.noise, np.ndarray):
        shared = shared.mean()
    share = float(np.min(factors.noise / (factors.noise + shared)))
    return dtype != np.float64 and not source.is_genotypes and share < FLOAT32_NOISE


def _used_part(pca: PCAFit, sweeps: Sweeps) -> Source:
    """Return the source that was swept, with the used features only."""
    swept = sweeps.matrix.source.uncached()
    return swept if pca.used is None else swept.take(features=pca.used)


def _observed_units(
    pca: PCAFit, start: Factors, scaling: Scaling, options: LatentOptions
) -> tuple[Factors, Scaling, Array]:
    """Return start, scaling and squares in units of the deviation of the observed values, for scale="unit".

    The principal components divide by the deviation of all values, including missing ones at the mean.
    """
    assert pca.squares is not None
    if options.scale != "unit" or scaling.scale is None or not pca.missing.any():
        return start, scaling, pca.squares
    n = pca.n_samples
    count = np.maximum(n - pca.missing, 2)
    ratio = np.where(pca.squares > 0, np.sqrt((n - 1) / (count - 1)), 1.0)
    noise = start.noise / ratio**2 if isinstance(start.noise, np.ndarray) else start.noise
    return (
        Factors(start.W / ratio[:, None], start.shift, noise),
        Scaling(scaling.mean, scaling.scale * ratio),
        pca.squares / ratio**2,
    )


def _fit_em(
    sweeps: Sweeps, start: Factors, pca: PCAFit, squares: Array, incomplete: bool,
    options: LatentOptions,
) -> Fit:  # fmt: skip
    """Run EM: on the scatter matrix if it is available, else with one sweep per iteration."""
    least = least_noise(squares, pca.n_samples - pca.missing)
    iteration: Any
    if pca.scatter is not None and not incomplete and options.method == "auto":
        scale = 1.0 if pca.scale is None else pca.scale
        scatter = pca.scatter / scale / np.reshape(scale, (-1, 1))
        iteration = ByScatter(scatter, pca.n_samples, options.accelerate, least)
    else:
        way = BySamples if sweeps.matrix.axis == 0 else ByFeatures
        iteration = way(sweeps, squares, incomplete, options.accelerate, least)

    def report(note: str) -> None:
        sweeps.note = note

    n_values, rounding = int((pca.n_samples - pca.missing).sum()), ROUNDING[sweeps.matrix.dtype]
    em = EM(iteration, n_values, options.tol, options.max_iter, options.accelerate, rounding, report)
    with sweeps:
        return em.fit(start)


def _not_converged(fit: Fit, options: LatentOptions) -> str:
    return (
        f"EM stopped after max_iter={options.max_iter} before it converged: the last iteration turned the subspace by "
        f"{math.sqrt(fit.change):.1e} (sine), tol={options.tol:g}; increase max_iter or tol, or fit fewer components"
    )


def _notes(fitted: PPCAFit, pca: PCAFit) -> tuple[str, ...]:
    """Return notes: what was excluded, components that are alike, features without values, data without noise."""
    spectrum = replace(
        pca,
        explained_variance=fitted.explained_variance,
        following=None if fitted.method == "em" else pca.following,
    )
    notes = [note for note in pca.notes if "distinguishable" not in note]
    if fitted.per_feature_noise:
        notes += _heywood_note(fitted, pca)
    else:
        notes += not_distinguishable(spectrum)
        if fitted.factors.noise <= 2 * LEAST_NOISE * fitted.total_variance / len(pca.mean):
            notes.append(
                f"the data have no variance beyond {fitted.n_components} components: the noise is zero, and the "
                "likelihood is unbounded; fit fewer components"
            )
    empty = int((pca.missing == pca.n_samples).sum())
    if empty:
        notes.append(f"{empty} feature(s) have no values: their weights are zero, their mean is unknown")
    if fitted.choice is not None:
        notes.append(fitted.choice.note)
    return tuple(notes)


def _heywood_note(fitted: PPCAFit, pca: PCAFit) -> list[str]:
    """Return a note if features have no noise of their own."""
    assert pca.squares is not None
    count = pca.n_samples - pca.missing
    bound = fitted.factors.noise <= 2 * least_noise(pca.squares, count)
    bound &= (count > 0) & (pca.squares > 0)
    what = f"{int(np.sum(bound))} feature(s) have no noise of their own (a Heywood case)"
    return [f"{what}: the likelihood is unbounded there; fit fewer components"] if np.any(bound) else []


def with_posterior(fitted: PPCAFit, sweeps: Sweeps, sink: Callable[[int, Array, Array], None] | None = None) -> PPCAFit:
    """Return the model with the posterior of the fitted samples; one sweep, into the sink if given, if it is unknown.

    Samples without any value are noted.
    """
    posterior, empty, before = fitted.posterior, 0, sweeps.bytes_read
    if posterior is None:
        posterior, _, observed = infer(sweeps, fitted.factors, bool(fitted.missing.any()), sink=sink)
        empty = int((observed == 0).sum())
    elif fitted.missing.any():
        empty = int((posterior.deviation > 1 - 1e-12).all(axis=1).sum())
    notes = fitted.notes
    if empty:
        notes += (f"{empty} sample(s) have no values: their posterior is the prior, with mean zero",)
    swept = sweeps.seconds[-1:] if fitted.posterior is None else []
    kept = None if sink is not None and fitted.posterior is None else posterior
    return replace(
        fitted, posterior=kept, notes=notes, sweep_seconds=(*fitted.sweep_seconds, *swept),
        bytes_read=fitted.bytes_read + sweeps.bytes_read - before,
    )  # fmt: skip


def infer_posterior(
    source: Source, fitted: PPCAFit, missing: str, memory: Any = None, progress: Progress = silent,
    covariances: bool = False,
) -> tuple[Any, Array, Array]:  # fmt: skip
    """Return the posterior of z, the log-likelihood and the number of values of each sample; one sweep.

    The posterior is a `Known`, means and deviations, or a `Posterior`, means and `covariances`.
    """
    fitted.check_features(source)
    incomplete = missing == "model" and source.dtype.kind == "f"
    dtype = np.result_type(tile_dtype(source.dtype), fitted.tile_dtype)
    sweeps = latent_sweeps(source, fitted.n_components, incomplete, fitted.scaling, dtype, Budget.of(memory), progress)
    with hint_for_missing(MISSING_HINT), sweeps:
        return infer(sweeps, fitted.factors, incomplete, covariances=covariances, check=True)


def choose(source: Source, pca: PCAFit, run: _Run) -> Choice:
    """Choose the number of components."""
    n, d = source.shape
    incomplete = bool(pca.missing.any())
    criterion = run.options.criterion
    if criterion == "auto":
        criterion = "heldout" if incomplete or run.options.per_feature_noise or n <= d else "evidence"
    if criterion == "heldout":
        return choose_by_held_out(source, run, len(pca.components))
    if incomplete:
        raise InputError(f"criterion={criterion!r} is for complete data; use criterion='heldout'")
    values, trace = likelihood_units(pca)
    curve = (evidence if criterion == "evidence" else bic)(values, trace, n, d)
    return Choice(criterion, np.arange(1, len(values) + 1), curve, int(np.argmax(curve)) + 1)


def choose_by_held_out(source: Source, run: _Run, most: int) -> Choice:
    """Choose k by the likelihood of values held out at random, given the other values of the same sample.

    log p(held out | others) = log p(all) - log p(others): a fit on the others, and two more sweeps. Candidates are
    1, 2, ... until `PATIENCE` in a row are no better than one before. The choice is the smallest that is as good as the
    best within the standard error of the difference.
    """
    if source.is_graph and active_client() is not None:
        raise InputError(
            f"{source.name}: values of a Dask array cannot be held out on a cluster; write it to Zarr first"
        )
    options, held = run.options, HeldOut(source, HELD_OUT, run.options.random_state)
    # "auto" depends on the source, not on its wrapper.
    asked = resolve(start_options(options, "mean", most), source)
    pca, sweeps = fit_pca(held, asked, memory=run.memory, progress=run.progress)
    run.spend(pca.sweep_seconds, pca.bytes_read)
    del sweeps
    curve: list[Array] = []
    for k in range(1, most + 1):
        part = pca.leading(k)
        start = closed_form(part, options.per_feature_noise)
        start, scaling, squares = _observed_units(part, start, part.scaling, options)
        others, whole = (
            latent_sweeps(data, k, True, scaling, np.dtype(pca.tile_dtype), run.memory, run.progress)
            for data in (held, source)
        )
        others.stage = whole.stage = f"held out, k = {k}"
        fit = _fit_em(others, start, part, squares, True, options)
        curve.append(infer(whole, fit.factors, True)[1] - infer(others, fit.factors, True)[1])
        for sweeps in (others, whole):
            run.spend(sweeps.seconds, sweeps.bytes_read)
        if k - 1 - int(np.argmax(np.sum(curve, axis=1))) >= PATIENCE:
            break
    return Choice("heldout", np.arange(1, len(curve) + 1), np.sum(curve, axis=1), simplest(np.array(curve)))
