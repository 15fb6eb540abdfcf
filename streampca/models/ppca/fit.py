"""Probabilistic PCA and factor analysis as plain functions: fit, infer, choose k."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MemoryLimitError, MissingValuesError, curing_gaps
from streampca.models.genotypes import Match
from streampca.models.pca.fit import (
    DEFAULT_TOL,
    PCAFit,
    Request,
    also_spent,
    fit_pca,
    not_distinguishable,
)
from streampca.models.ppca.choose import Choice, bic, closed_likelihood, evidence, simplest
from streampca.models.ppca.plan import latent_sweeps, plan_em, process_before
from streampca.progress import Progress, logger, silent
from streampca.solvers.choose import Plan
from streampca.solvers.em.factors import Factors, Known, Posterior
from streampca.solvers.em.loop import EM, LEAST_NOISE, ROUNDING, ByFeatures, BySamples, ByScatter, Fit, least_noise
from streampca.solvers.em.statistics import infer, infer_all
from streampca.sources import Axis, Source
from streampca.sources.wrappers import HeldOut, as_float64
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Cut, Footprint
from streampca.sweep.scaling import SCALES, Scaling, check_choice
from streampca.sweep.sweep import Sweeps, active_client, one_blas_thread

METHODS = ("auto", "closed", "em")
MISSING = ("model", "error")
CRITERIA = ("auto", "evidence", "bic", "heldout")
# Components that are looked at to choose from; of held-out values, the search ends when so many more were no better.
MOST_CANDIDATES = 50
PATIENCE = 2
HELD_OUT = 0.05
# Below this share of the variance, noise is a difference that float32 products do not give well enough.
FLOAT32_NOISE = 1e-3
# What to do about missing values.
CURE = "fill them, or use missing='model'"
DEFAULT_ITERATIONS = 200
# Iterations of EM that a plan counts on.
EM_SWEEPS = 6


@dataclass(frozen=True)
class LatentRequest:
    """What is asked for: checked before anything is read.

    Parameters
    ----------
    n_components : a number; "auto" to choose it by `criterion`; None: 10 of genotypes, else min(n, d) - 1.
    method : "closed" from eigenvalues, "em", or "auto": closed for complete data, EM for data with gaps.
    own_noise : whether each feature has noise of its own: factor analysis.
    scale : as for `Request`.
    missing : "model" to leave missing values out of the likelihood, "error" to refuse them.
    criterion : "evidence" (Minka), "bic", "heldout" (values left out), or "auto": "evidence" for complete data of more
        samples than features, else "heldout".
    solver, tol, memory, seed, progress : as for `Request`; of EM, tol is the sine of the angle that an iteration may
        still turn the subspace by.
    max_iter : iterations of EM.
    accelerate : whether EM takes longer steps.
    """

    n_components: int | str | None = None
    method: str = "auto"
    own_noise: bool = False
    scale: str | None = "auto"
    missing: str = "model"
    criterion: str = "auto"
    solver: str = "auto"
    tol: float = DEFAULT_TOL
    max_iter: int = DEFAULT_ITERATIONS
    accelerate: bool = True
    memory: str | int | float | None = None
    seed: int | None = 0
    progress: Progress = field(default=silent, compare=False)

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("missing", self.missing, MISSING)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("scale", self.scale, ("auto", *SCALES))
        if not (isinstance(self.max_iter, (int, np.integer)) and self.max_iter >= 1):
            raise InputError(f"max_iter={self.max_iter!r} cannot be used: give a whole number, 1 or more")
        if self.own_noise and self.criterion in ("evidence", "bic"):
            raise InputError(
                f"criterion={self.criterion!r} is for probabilistic PCA; use 'heldout' for factor analysis"
            )
        if self.method == "closed" and self.own_noise:
            raise InputError("method='closed' is not for factor analysis, which has no closed form; use 'auto' or 'em'")

    def components(self, missing: str, count: int) -> Request:
        """Return the request for principal components to start from."""
        return Request(
            count, self.scale, missing, self.solver, self.tol, self.memory, self.seed, keep_scatter=self.own_noise,
            progress=self.progress,
        )  # fmt: skip

    def fit(self, source: Source) -> tuple[PPCAFit, Sweeps]:
        """Fit the model to a source."""
        return fit_ppca(source, self)

    def plan(self, source: Source, extra_sweeps: int = 0) -> Plan:
        """Plan the principal components that the fit starts from, and EM after them, without reading.

        Iterations are as many as data give reason to: their number is a guess.
        """
        k, k_auto = self.most(source), self.n_components == "auto"
        planned = self.components("mean", k).plan(source, extra_sweeps)
        _, need, threads = self.check_memory(source)
        if self.method == "closed":
            return planned
        each = f"EM, where it is needed, one sweep an iteration, here taken for {EM_SWEEPS}"
        more = " for each number of components tried" if k_auto else ""
        return replace(
            planned, peak_bytes=max(planned.peak_bytes, need.peak(threads)), sweeps=planned.sweeps + EM_SWEEPS,
            reason=f"{planned.reason}; {each}{more}",
        )  # fmt: skip

    def check_memory(self, source: Source) -> tuple[Cut, Footprint, int]:
        """Refuse what EM could not do under the memory limit, before anything is read; returns how it would be done."""
        holds_out = self.n_components == "auto" and self.criterion in ("auto", "heldout")
        gaps = holds_out or (self.missing == "model" and self.method != "closed" and source.dtype.kind == "f")
        try:
            return plan_em(source, self.most(source), gaps, tile_dtype(source.dtype).itemsize, self.memory)
        except MemoryLimitError as error:
            if not gaps or source.is_genotypes:
                raise
            raise MemoryLimitError(f"{error}; if no values are missing, missing='error' needs less") from None

    def most(self, source: Source) -> int:
        """Return how many components to find: those asked for, or those to choose from."""
        n, d = source.shape
        largest = min(n, d) - 1
        if largest < 1:
            raise InputError(
                f"{source.name}: n_samples = {n} and n_features = {d} leave no component beside the noise; "
                "give 2 of each or more"
            )
        k = self.n_components
        if k == "auto":
            return min(largest, MOST_CANDIDATES)
        if k is None:
            return min(source.default_components or largest, largest)
        if isinstance(k, (int, np.integer)) and not isinstance(k, bool) and 1 <= k <= largest:
            return int(k)
        raise InputError(
            f"n_components={k!r} cannot be used: give a whole number from 1 to {largest} (one less than the smaller of "
            f"{n} samples and {d} features), 'auto' to choose it, or None for as many as there "
            "can be"
        )


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


def fit_ppca(source: Source, request: LatentRequest) -> tuple[PPCAFit, Sweeps]:
    """Fit probabilistic PCA or factor analysis; returns the model, and the sweeps over the data to go on with."""
    started = time.monotonic()
    most = request.most(source)
    request.check_memory(source)
    process = process_before(request.missing == "model" and source.dtype.kind == "f")
    spent = Spent()
    found, sweeps = _components(source, request, most, spent)
    spent.add(found.sweep_seconds, found.bytes_read)
    gaps = bool(found.missing.any())
    if len(found.components) >= len(found.mean):
        few = f"{source.name}: {len(found.mean)} features are left to use, and {most} components leave no noise of them"
        cure = f"ask for {len(found.mean) - 1} or fewer" if len(found.mean) > 1 else "give more that vary"
        raise InputError(f"{few}; {cure}")
    source, scaling = _used_part(found, sweeps), found.scaling
    del sweeps
    choice = choose(source, found, request, spent) if request.n_components == "auto" else None
    if choice is not None:
        found = found.leading(choice.best)
    own = request.own_noise
    start = closed_form(found, own)
    dtype = np.dtype(found.tile_dtype)
    if not gaps and _too_little(start, dtype, source):
        return _fit_in_float64(source, request, spent)
    method = "em" if gaps or own or request.method == "em" else "closed"
    start, scaling, squares = _observed_units(found, start, scaling, request)
    swept = latent_sweeps(source, start.n_components, gaps, scaling, dtype, request.memory, request.progress, process)
    if method == "closed":
        value = closed_likelihood(*_likely(found), found.n_samples, len(found.mean))
        fit = Fit(start, _shrunk(found, start), (value,), 0.0, 0, found.converged)
        factors, posterior, advice = start, fit.posterior, found.advice
    else:
        fit = _fit_em(swept, start, found, squares, gaps, request)
        if _too_little(fit.factors, dtype, source):
            spent.add(swept.seconds, swept.bytes_read)
            # What was kept of the data goes before the next fit plans its memory.
            del swept, fit, found
            return _fit_in_float64(source, request, spent)
        with one_blas_thread:
            factors, R = fit.factors.rotated()
            posterior = None if fit.posterior is None else fit.posterior.rotated(R)
        advice = "" if fit.converged else _not_converged(fit, request)
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


def _components(source: Source, request: LatentRequest, count: int, spent: Spent) -> tuple[PCAFit, Sweeps]:
    """Return principal components with missing values at the mean; complete data need no sweep to know the mean."""
    if request.missing == "error" or request.method == "closed":
        complete = "method='closed' is for complete data: fill them, or use method='em' or 'auto'"
        with curing_gaps(CURE if request.missing == "error" else complete):
            return fit_pca(source, request.components("error", count))
    if not source.is_genotypes:
        try:
            return fit_pca(source, request.components("error", count))
        except MissingValuesError as error:
            spent.add(error.seconds, error.bytes_read)
            logger.info("there are missing values: they are left out of the likelihood")
    return fit_pca(source, request.components("mean", count))


def _fit_in_float64(source: Source, request: LatentRequest, spent: Spent) -> tuple[PPCAFit, Sweeps]:
    """Begin again, since float32 products do not tell so little noise from rounding."""
    logger.info("there is too little noise for float32 tiles; beginning again in float64")
    latent, sweeps = fit_ppca(as_float64(source), request)
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


def _observed_units(
    found: PCAFit, start: Factors, scaling: Scaling, request: LatentRequest
) -> tuple[Factors, Scaling, Array]:
    """Return start, scaling and squares in units of the deviation of the observed values, if that is the unit.

    Components with missing values at the mean divide by the deviation of all values, those at the mean included.
    """
    assert found.squares is not None
    if request.scale != "unit" or scaling.scale is None or not found.missing.any():
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


def _fit_em(sweeps: Sweeps, start: Factors, found: PCAFit, squares: Array, gaps: bool, request: LatentRequest) -> Fit:
    """Iterate: without a sweep where the scatter is at hand, else by the cut of the sweeps."""
    least = least_noise(squares, found.n_samples - found.missing)
    iteration: Any
    if found.scatter is not None and not gaps and request.method == "auto":
        scale = 1.0 if found.scale is None else found.scale
        scatter = found.scatter / scale / np.reshape(scale, (-1, 1))
        iteration = ByScatter(scatter, found.n_samples, request.accelerate, least)
    else:
        way = BySamples if sweeps.matrix.axis == 0 else ByFeatures
        iteration = way(sweeps, squares, gaps, request.accelerate, least)

    def tell(note: str) -> None:
        sweeps.note = note

    n_values = int((found.n_samples - found.missing).sum())
    em = EM(iteration, n_values, request.tol, request.max_iter, request.accelerate, ROUNDING[sweeps.matrix.dtype], tell)
    with sweeps:
        return em.fit(start)


def _not_converged(fit: Fit, request: LatentRequest) -> str:
    return (
        f"EM stopped after {request.max_iter} iterations, before likelihood and subspace came to rest; the last turned "
        f"the subspace by {math.sqrt(fit.change):.1e} (sine), tol is {request.tol:g}: raise max_iter or tol, or ask "
        "for fewer components"
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
    sweeps = latent_sweeps(source, latent.n_components, gaps, latent.scaling, dtype, memory, progress)
    with curing_gaps(CURE), sweeps:
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


def choose(source: Source, found: PCAFit, request: LatentRequest, spent: Spent) -> Choice:
    """Choose the number of components."""
    n, d = source.shape
    gaps = bool(found.missing.any())
    criterion = request.criterion
    if criterion == "auto":
        criterion = "heldout" if gaps or request.own_noise or n <= d else "evidence"
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


def choose_by_held_out(source: Source, request: LatentRequest, most: int, spent: Spent) -> Choice:
    """Choose k by the likelihood of values left out at random, given those of the same sample that are left in.

    log p(left out | left in) = log p(all) - log p(left in): a fit on what is left in, and two more sweeps. Candidates
    are 1, 2, ... until two in a row are no better than one before; of those that are as good as the best within the
    standard error of the difference, the smallest is taken.
    """
    if source.is_graph and active_client() is not None:
        raise InputError(
            f"{source.name}: values of a Dask array cannot be held out on a cluster; write it to Zarr first"
        )
    held = HeldOut(source, HELD_OUT, request.seed or 0)
    asked = replace(request.components("mean", most), scale=Request(scale=request.scale).of(source).scale)
    found, sweeps = fit_pca(held, replace(asked, keep_scatter=False))
    spent.add(found.sweep_seconds, found.bytes_read)
    del sweeps
    curve: list[Array] = []
    for k in range(1, most + 1):
        part = found.leading(k)
        start, scaling, squares = _observed_units(part, closed_form(part, request.own_noise), part.scaling, request)
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
