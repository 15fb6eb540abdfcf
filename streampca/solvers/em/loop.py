"""Expectation-maximisation for latent factors, as sweeps: probabilistic PCA, factor analysis, also with missing data.

    x = W z + mu + noise,   z ~ N(0, I),   noise ~ N(0, psi_j) in feature j;  psi_j = s2 in all for probabilistic PCA

    E-step, sample n, over its features j:   M_n = I + sum_j w_j w_j' / psi_j
                                             <z_n> = M_n^-1 sum_j w_j (x_nj - mu_j) / psi_j,   cov(z_n) = M_n^-1
    M-step, feature j, over its samples n:   (w_j, mu_j) = (sum_n <z~ z~'>)^-1 sum_n x_nj <z~_n>,   z~ = (z, 1)

Both steps are small least-squares problems, one for each row of one axis, with sums over the other. A missing entry is
excluded from both sums: the sum over all entries is one matrix, from which that over missing entries is subtracted.
One sweep does one step for the rows of A, and computes the sums for the other step:

    cut along samples:    the E-step of each sample, and the sums for the M-step, which follows in memory
    cut along features:   the M-step of each feature, and the sums for the E-step, which follows in memory

Either way an iteration reads the data once, and is exact. All values are in units of the scaled features, and means are
relative to the centre of the tiles.

Two accelerations save sweeps and do not change the solution. Parameter expansion lets z have any mean and covariance,
and moves both into W and mu. Anderson mixing extrapolates from the last few iterations; a step that decreases the
likelihood is undone.

References: Rubin & Thayer (1982), Psychometrika 47, 69; Roweis (1997), NIPS 10; Tipping & Bishop (1999), J. R. Stat.
Soc. B 61, 611; Liu, Rubin & Wu (1998), Biometrika 85, 755, parameter expansion; Henderson & Varadhan (2019), J. Comput.
Graph. Stat. 28, 834, Anderson mixing of EM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.solvers.em.factors import Factors, Packing, Posterior, Side, dimensions, m_step, second_moments
from streampca.solvers.em.statistics import FeatureStep, SampleStep, e_step_of_all, in_pieces, infer
from streampca.sweep.sweep import Sweeps

MEMORY = 4  # iterations that Anderson mixing uses
# Least noise, as a share of the mean variance of a feature: likelihoods stay finite for data without noise.
LEAST_NOISE = 1e-10
# The iteration stops if the log-likelihood increases by less than this for each value, times the tolerance.
LEAST_GAIN = 1e-4
# A decrease of the likelihood by less than this share is rounding, by type of the tiles.
ROUNDING = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-11}


S = TypeVar("S", Factors, Posterior)
Stepped = tuple[float, Factors, Posterior | None, S]


class Iteration(Generic[S]):
    """One way to iterate: its start, and one step."""

    def begin(self, start: Factors) -> tuple[S, list[float]]:
        """Return the first state, and the log-likelihoods that are known by then."""
        return start, []  # type: ignore[return-value]

    def step(self, state: S) -> Stepped[S]:
        """Return a log-likelihood, its parameters, the posterior if the sweep computed it, and the next state."""
        raise NotImplementedError


@dataclass
class _BySweeps(Iteration[S]):
    sweeps: Sweeps
    squares: Array
    incomplete: bool
    expand: bool
    least: Array


class BySamples(_BySweeps[Factors]):
    """A sweep cut along samples: their E-step, and the M-step in memory."""

    def step(self, factors: Factors) -> Stepped[Factors]:
        """Return the log-likelihood of the parameters, the parameters, and the next ones."""
        side = Side.of_features(factors, self.incomplete, self.sweeps.matrix.dtype)
        sums, _ = self.sweeps.run(SampleStep(side, factors), "EM")

        def piece(rows: slice) -> tuple[Array, Array]:
            return m_step(sums.products[rows], None if sums.off is None else sums.off[rows], sums.total)

        parts = in_pieces(piece, len(sums.products), factors.n_components, self.sweeps.threads)
        both, count = (np.concatenate(side) for side in zip(*parts, strict=True))
        residual = self.squares - (sums.products * both).sum(axis=1)
        noise = _noise(residual, count, self.least, isinstance(factors.noise, np.ndarray))
        if self.expand:
            centre, root = _expansion(sums.total)
            both[:, -1] += both[:, :-1] @ centre
            both[:, :-1] = both[:, :-1] @ root
        return float(sums.numbers[0]), factors, None, Factors(both[:, :-1], both[:, -1], noise)


class ByFeatures(_BySweeps[Posterior]):
    """A sweep cut along features: their M-step, and the E-step in memory."""

    def begin(self, start: Factors) -> tuple[Posterior, list[float]]:
        """Return the posterior of the samples at these parameters, after one sweep."""
        self._own_noise = isinstance(start.noise, np.ndarray)
        posterior, likelihood, _ = infer(self.sweeps, start, self.incomplete, covariances=True)
        return self._expanded(posterior), [float(likelihood.sum())]

    def step(self, posterior: Posterior) -> Stepped[Posterior]:
        """Return the log-likelihood of the next parameters, these parameters, and the posterior of the samples."""
        side = Side.of_samples(posterior, self.incomplete, self.sweeps.matrix.dtype)
        sums, _ = self.sweeps.run(FeatureStep(side, self.squares, self._own_noise, self.least), "EM")
        both, own = (np.concatenate(parts) for parts in zip(*sums.pieces, strict=True))
        residual, observed, distance = sums.numbers
        noise = own if self._own_noise else max(residual / observed, self.least.mean())
        factors = Factors(both[:, :-1], both[:, -1], noise)
        inferred, terms, _ = e_step_of_all(sums, factors, self.sweeps.threads)
        likelihood = 0.5 * (float(terms.sum()) - distance / factors.common)
        return likelihood, factors, inferred, self._expanded(inferred)

    def _expanded(self, posterior: Posterior) -> Posterior:
        """Return the posterior of z, transformed to mean zero and unit covariance over the samples."""
        if not self.expand:
            return posterior
        rows = np.column_stack([posterior.mean, np.ones(len(posterior.mean))])
        moments = second_moments(rows, posterior.covariance).sum(axis=0, dtype=np.float64)
        centre, root = _expansion(np.append(moments, len(rows)))
        inverse = np.linalg.inv(root)
        packing = Packing(len(root))
        turned = inverse @ packing.unpacked(posterior.covariance) @ inverse.T
        return Posterior((posterior.mean - centre) @ inverse.T, packing.packed(turned))


@dataclass
class ByScatter(Iteration[Factors]):
    """No sweeps: the scatter (d x d) about the mean is all that complete data contribute, if it fits in memory."""

    scatter: Array
    n_samples: int
    expand: bool
    least: Array

    def step(self, factors: Factors) -> Stepped[Factors]:
        """Return the log-likelihood of the parameters, the parameters, and the next ones."""
        W, n, k = factors.W, self.n_samples, factors.n_components
        weighted = W * factors.weights[:, None]
        inverse = np.linalg.inv(W.T @ weighted + factors.common * np.eye(k))
        V = weighted @ inverse
        SV = self.scatter @ V / n
        moments = factors.common * inverse + V.T @ SV
        variances = np.diag(self.scatter) / n
        distance = factors.weights @ variances - np.trace(np.linalg.solve(inverse, V.T @ SV))
        logs, unit = factors.logs
        logdet = -np.linalg.slogdet(inverse)[1] - k * np.log(factors.common)
        likelihood = -0.5 * n * (logs.sum() * unit + logdet + distance / factors.common)
        new = np.linalg.solve(moments, SV.T).T
        residual = variances - (new * SV).sum(axis=1)
        noise = _noise(residual, np.ones(len(W)), self.least, isinstance(factors.noise, np.ndarray))
        new = new @ np.linalg.cholesky(moments) if self.expand else new
        return float(likelihood), factors, None, Factors(new, np.zeros(len(W)), noise)


def least_noise(squares: Array, count: Array) -> Array:
    """Return the least noise of each feature, from its sum of squares and its number of values."""
    variances = squares / np.maximum(count, 1)
    return LEAST_NOISE * np.where(variances > 0, variances, variances.mean())


def _noise(residual: Array, count: Array, least: Array, own: bool) -> float | Array:
    """Return the noise of each feature, or the common noise, from residual squares and numbers of values."""
    if own:
        return np.asarray(np.maximum(residual / np.maximum(count, 1), least))
    return float(max(residual.sum() / count.sum(), least.mean()))


def _expansion(total: Array) -> tuple[Array, Array]:
    """Return the mean and the root of the covariance of z over the samples, from sum <z~ z~'> and their number."""
    k = dimensions(total)
    moments = Packing(k + 1).unpacked(total[None, :-1])[0] / total[-1]
    centre = moments[:k, k]
    return centre, np.linalg.cholesky(moments[:k, :k] - np.outer(centre, centre))


@dataclass(frozen=True)
class Fit:
    """The result of EM.

    Attributes
    ----------
    factors : the parameters.
    posterior : of the samples at these parameters, if a sweep computed it.
    likelihoods : log-likelihood after each iteration; it never decreases.
    change : mean squared sine of the angles by which the last iteration rotated the subspace.
    n_steps : number of steps, including those that were undone.
    converged : whether gain and change are within the tolerance.
    """

    factors: Factors
    posterior: Posterior | None
    likelihoods: tuple[float, ...]
    change: float
    n_steps: int
    converged: bool


@dataclass(frozen=True)
class EM(Generic[S]):
    """Repeats a step until neither likelihood nor subspace changes.

    Parameters
    ----------
    iteration : start and step.
    n_values : number of observed values, of all samples.
    tol : the sine of the angle by which the last step may rotate the subspace; the log-likelihood may increase by 1e-4
        of this for each value.
    max_steps : limit on the number of steps.
    mix : whether to extrapolate.
    rounding : a decrease of the likelihood by less than this share is ignored.
    tell : called with the note of each step.
    """

    iteration: Iteration[S]
    n_values: int
    tol: float
    max_steps: int
    mix: bool = True
    rounding: float = 1e-11
    tell: Callable[[str], object] = str

    def fit(self, start: Factors) -> Fit:
        """Return the parameters of maximum likelihood near the start."""
        state, likelihoods = self.iteration.begin(start)
        factors, posterior, change, converged = start, None, np.inf, False
        mixing = _Mixing()
        safe: S | None = None
        n_steps = 0
        while n_steps < self.max_steps and not converged:
            n_steps += 1
            try:
                likelihood, candidate, inferred, image = self.iteration.step(state)
            except np.linalg.LinAlgError:
                if safe is None:
                    raise
                likelihood = -np.inf
            if safe is None and not np.isfinite(likelihood):
                raise InputError("the likelihood overflows; divide the data by a large number, or use scale='unit'")
            gain = likelihood - likelihoods[-1] if likelihoods else np.inf
            if safe is not None and not gain >= -self.rounding * abs(likelihoods[-1]):
                # The extrapolation went too far: continue from the result of the plain step.
                state, safe = safe, None
                mixing = _Mixing()
                continue
            factors, posterior = candidate, inferred
            likelihoods.append(max(likelihood, *likelihoods[-1:]) if likelihoods else likelihood)
            change = _turned(state.directions(), image.directions())
            self.tell(f"log-likelihood {likelihood:.10g}, subspace rotated by {np.sqrt(change):.1e}")
            little = max(LEAST_GAIN * self.tol * self.n_values, self.rounding * abs(likelihood))
            converged = change <= self.tol**2 and gain <= little
            safe = None
            if self.mix and (moved := mixing.next(state.vector(), image.vector())) is not None:
                safe, image = image, image.moved(moved)
            state = image
        return Fit(factors, posterior, tuple(likelihoods), float(change), n_steps, bool(converged))


def _turned(a: Array, b: Array) -> float:
    """Return the mean squared sine of the angles between two column spaces."""
    Q, P = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    # From the part outside, not 1 minus the part inside: small angles keep their digits.
    return float(np.mean(((P - Q @ (Q.T @ P)) ** 2).sum(axis=0)))


class _Mixing:
    """Anderson mixing: the combination of the last images whose residuals cancel best."""

    def __init__(self) -> None:
        self._before: tuple[Array, Array] | None = None
        self._residuals: list[Array] = []
        self._images: list[Array] = []

    def next(self, x: Array, image: Array) -> Array | None:
        """Return the next iterate, given an iterate and its image; None if there is no earlier one."""
        residual = image - x
        before, self._before = self._before, (residual, image)
        if before is None:
            return None
        # Float32 has enough digits for differences; the unit keeps them from overflowing.
        unit = float(np.abs(residual - before[0]).max()) or 1.0
        self._residuals = [*self._residuals, ((residual - before[0]) / unit).astype(np.float32)][-MEMORY:]
        self._images = [*self._images, ((image - before[1]) / unit).astype(np.float32)][-MEMORY:]
        gram = np.array([[float(np.dot(a, b)) for b in self._residuals] for a in self._residuals])
        right = np.array([float(np.dot(a, residual / unit)) for a in self._residuals])
        share = unit * np.linalg.lstsq(gram, right, rcond=1e-10)[0]
        if not np.isfinite(share).all():
            return None
        return np.asarray(image - sum(s * d for s, d in zip(share, self._images, strict=True)))
