"""A mixture of probabilistic PCA models by expectation-maximisation, as sweeps cut along samples.

    x | c ~ N(mu_c, C_c),   C_c = W_c W_c' + s2_c I,   W_c = V_c diag(l_c),   P(c) = pi_c

    E-step, with y = x - mu_c and scores v = V_c'y:
        -2 log N(x; mu_c, C_c) = d log 2 pi + sum log(l^2 + s2) + (d - k) log s2 + sum v^2 / (l^2 + s2) + (|y|^2 - |v|^2) / s2
        r_c = pi_c N(x; mu_c, C_c) / sum of the same over all c
        <z> = v l / (l^2 + s2),   cov(z) = diag(s2 / (l^2 + s2))
    M-step, for each c a regression of y on z~ = (z, 1), both at once:
        (W, shift) = (sum_n r_n y_n <z~_n>') (sum_n r_n <z~ z~'>)^-1,   s2 = what it leaves, per value;   mu <- mu + shift

All sums of the M-step follow from sum r y (v, 1)', sum r |y|^2 and sum r: one sweep per iteration, and no matrix larger
than d x (k + 1) for each component. Each tile is centred by the mean of each component, so that components that are far
apart relative to their width cost no digits. Parameter expansion (z of any mean and covariance, moved into W and mu)
makes steps longer; it is EM of a larger model, so that the likelihood never decreases.

The start: means are drawn by greedy k-means++, about one sweep each. One more sweep assigns each sample to its nearest
mean, and approximates the leading axes of each group at random (Nystrom). All components start with the pooled noise of
the groups, so that a small group is not too narrow to lose samples.

References: Tipping & Bishop (1999), Neural Comput. 11, 443; Arthur & Vassilvitskii (2007), SODA, k-means++; Efraimidis &
Spirakis (2006), Inf. Process. Lett. 97, 181, weighted draws in one pass; Liu, Rubin & Wu (1998), Biometrika 85, 755,
parameter expansion; Halko, Martinsson & Tropp (2011), SIAM Rev. 53, 217, sec. 5.5.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from streampca._typing import Array
from streampca.progress import logger
from streampca.solvers.base import use_float64
from streampca.solvers.mixture.start import SeedDraw, begin, draw_seeds, random_axes
from streampca.solvers.mixture.statistics import ExpectedSums, Flats, Mixture, Sums
from streampca.sweep.sweep import Sweeps

LEAST_NOISE = 1e-10  # as a share of the mean variance of a feature, so that likelihoods stay finite
FLOAT32_NOISE = 1e-3  # float32 products do not resolve noise below this share


def m_step(sums: Sums, mixture: Mixture, c: int, least: float) -> tuple[Array, Array, float, float]:
    """Return the next centre, W as rows (k, d), noise and relative change of component c."""
    V, centre = (part[c].astype(np.float64) for part in (mixture.flats.axes, mixture.flats.centres))
    l, variances, N = mixture.lengths[c], mixture.variances[c], sums.counts[c]
    k, d = V.shape
    gain = np.append(l / variances, 1.0)
    products = sums.products[c] * gain[:, None]
    S = np.empty((k + 1, k + 1))
    second = products @ V.T * gain[:k]
    S[:k, :k] = (second[:k] + second[:k].T) / 2 + N * np.diag(mixture.noise[c] / variances)
    S[k, :k] = S[:k, k] = second[k]
    S[k, k] = N
    both = np.linalg.solve(S, products)
    noise = max(float(sums.squares[c] - (both * products).sum()) / (N * d), least)
    z_mean = S[k, :k] / N
    shift = both[k] + z_mean @ both[:k]
    W = _root(S[:k, :k] / N - np.outer(z_mean, z_mean)) @ both[:k]
    change = _change(W, l[:, None] * V, noise, float(mixture.noise[c]), shift)
    return centre + shift, W, noise, change


def _root(covariance: Array) -> Array:
    """Return the symmetric square root, which is near one if the covariance is."""
    values, R = np.linalg.eigh(covariance)
    return np.asarray((R * np.sqrt(np.maximum(values, 0.0))) @ R.T)


def _change(W: Array, before: Array, noise: float, noise_before: float, shift: Array) -> float:
    """Return the change of the covariance (Frobenius norm) or of the mean (in deviations), whichever is larger.

    W'W - B'B = (D'E + E'D) / 2 for D = W - B, E = W + B: small differences keep their digits.
    """
    k, d = W.shape
    D, E = W - before, W + before
    turned = np.sqrt(max(0.0, 0.5 * float(np.trace(D @ D.T @ E @ E.T) + np.trace(D @ E.T @ D @ E.T))))
    gram = W @ W.T + noise * np.eye(k)
    size = np.sqrt((gram**2).sum() + (d - k) * noise**2)
    covariance = (turned + abs(noise - noise_before) * np.sqrt(d)) / size
    return float(max(covariance, np.linalg.norm(shift) / np.sqrt(np.trace(gram) + (d - k) * noise)))


def next_mixture(sums: Sums, mixture: Mixture, least: float) -> tuple[Mixture, float]:
    """Take the M-step of all components; return the next mixture, and the largest relative change."""
    centres, axes = (np.empty(part.shape) for part in (mixture.flats.centres, mixture.flats.axes))
    lengths, noise = np.empty_like(mixture.lengths), np.empty_like(mixture.noise)
    weights = sums.counts / sums.counts.sum()
    change = float(np.abs(weights - mixture.weights).max())
    for c in range(len(noise)):
        centres[c], W, noise[c], moved = m_step(sums, mixture, c, least)
        _, lengths[c], axes[c] = np.linalg.svd(W, full_matrices=False)
        change = max(change, moved)
    return Mixture(Flats(centres, axes), weights, lengths, noise), change


def emptied(sums: Sums, mixture: Mixture, least: float) -> Array:
    """Whether components have too few samples to estimate their noise.

    A flat of k dimensions contains any k + 1 points, so that k + 2 samples are needed. With fewer than twice as many,
    noise at its floor means that samples occur twice, unless all components have it.
    """
    enough = mixture.lengths.shape[1] + 2
    floored = mixture.noise <= least
    gone = (sums.counts < enough) | (floored & (sums.counts < 2 * enough) & ~floored.all())
    if gone.all():
        gone[sums.counts.argmax()] = False
    return np.asarray(gone)


@dataclass(frozen=True)
class MixtureFit:
    """The result of EM.

    Attributes
    ----------
    mixture : the parameters after the last iteration.
    likelihoods : log-likelihood before each iteration; it decreases only if a component was replaced.
    converged : whether gain and change are within the tolerance.
    notes : on components that were restarted or dropped.
    """

    mixture: Mixture
    likelihoods: tuple[float, ...]
    converged: bool
    notes: tuple[str, ...]


@dataclass
class MixtureEM:
    """Fits the mixture: seeds, start, and EM until neither likelihood nor parameters change.

    Parameters
    ----------
    sweeps : over a matrix cut along samples, whose scaling is known.
    n_clusters, n_components : K and k.
    variance : mean variance of a feature, to which noise is compared.
    tol : largest increase of the mean log-likelihood of a sample, and largest relative change of weights, means and
        covariances, in the last iteration.
    max_iter : limit on the number of iterations.
    seed : of all random numbers.
    """

    sweeps: Sweeps
    n_clusters: int
    n_components: int
    variance: float
    tol: float
    max_iter: int
    seed: int
    _notes: list[str] = field(default_factory=list)
    _replaced: int = 0

    @property
    def least(self) -> float:
        """The least noise."""
        return LEAST_NOISE * self.variance

    def fit(self) -> MixtureFit:
        """Return the parameters of maximum likelihood near a random start."""
        seeds = draw_seeds(self.sweeps, self.n_clusters, self.seed)
        if len(seeds) < self.n_clusters:
            self._tell(f"there are only {len(seeds)} distinct samples: {len(seeds)} components were fitted")
        return self.iterate(begin(self.sweeps, seeds, self.n_components, self.seed, self.least))

    def iterate(self, mixture: Mixture) -> MixtureFit:
        """Continue from a mixture."""
        likelihoods: list[float] = []
        gain, converged = np.inf, False
        while len(likelihoods) < self.max_iter and not converged:
            mixture, likelihood, change, settled = self._step(mixture)
            if likelihoods:
                gain = (likelihood - likelihoods[-1]) / self.sweeps.matrix.n_block
            likelihoods.append(likelihood)
            converged = settled and gain <= self.tol and change <= self.tol
            self.sweeps.note = f"log-likelihood {likelihood:.10g}, changed by {change:.1e}"
            if mixture.noise.min() < FLOAT32_NOISE * self.variance:
                use_float64(self.sweeps)
        return MixtureFit(mixture, tuple(likelihoods), converged, tuple(self._notes))

    def _step(self, mixture: Mixture) -> tuple[Mixture, float, float, bool]:
        """Return the next mixture, the log-likelihood of this one, the change, and whether all components stayed."""
        # Rounded to the type of the tiles first, so that both steps use the same parameters.
        mixture = replace(mixture, flats=mixture.flats.rounded(self.sweeps.matrix.dtype))
        sums, _ = self.sweeps.run(ExpectedSums(mixture.flats, mixture), "EM")
        gone = emptied(sums, mixture, self.least)
        if not gone.any():
            following, change = next_mixture(sums, mixture, self.least)
            return following, sums.likelihood, change, True
        stay = np.flatnonzero(~gone)
        kept = Sums(sums.products[stay], sums.counts[stay], sums.squares[stay])
        following, change = next_mixture(kept, mixture.take(stay), self.least)
        for count in sums.counts[gone]:
            following = self._replace(following, float(count))
        return following, sums.likelihood, change, False

    def _replace(self, mixture: Mixture, count: float) -> Mixture:
        """Replace a component that has too few samples by one at a sample far from all flats, up to K times."""
        what = f"a component has only {count:.1f} samples"
        if self._replaced < self.n_clusters:
            self._replaced += 1
            turn = self.n_clusters + self._replaced
            flats = mixture.flats.rounded(self.sweeps.matrix.dtype)
            draw = SeedDraw(1, self.seed, turn, flats, np.empty((0, flats.centres.shape[1])))
            (drawn,), _ = self.sweeps.run(draw, "new seed")[0]
            if np.isfinite(drawn.times[0]):
                self._tell(f"{what}: it restarts at a sample that the other components fit badly")
                axes = random_axes(self.n_components, drawn.rows.shape[1], self.seed, turn)
                return mixture.joined(drawn.rows[0], axes, 1 / (len(mixture.noise) + 1))
        self._tell(f"{what}: it was dropped; request fewer clusters or components")
        return mixture

    def _tell(self, note: str) -> None:
        logger.warning("%s", note)
        self._notes.append(note)
