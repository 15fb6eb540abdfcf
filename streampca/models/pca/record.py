"""The fitted record of PCA, and what follows from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.models.record import Fitted
from streampca.sources import Axis, Source
from streampca.sweep.scaling import Scaling

MOST_NOTES = 2  # more groups of components that are not distinguishable are reported in one note


@dataclass(frozen=True, kw_only=True)
class PCAFit(Fitted):
    """Fitted principal components.

    Attributes
    ----------
    components : (k, d), orthonormal rows, the largest entry of each positive.
    explained_variance, certificate : (k,).
    certificate_method : how rounding was measured: "probe" or "exact"; "none" if `certificate` is an estimate.
    total_variance : trace of the covariance (n - 1).
    mean, scale : (d,); scale is None if features are not scaled.
    squares : (d,) sum of squared deviations of each feature from its mean, scaled.
    used : (d,) mask of the features that passed the filter; None if all did. Other arrays have only these.
    following : the next eigenvalue, if known.
    sample_missing : (n,) missing calls of each sample, for genotypes.
    scores : (n, k) if the fit computed them without another sweep, else None.
    scatter : (d, d) unscaled scatter matrix, if requested and formed.
    probe, chain : (d, p) its product with random vectors in float64 if it was formed in float32, and the length of its
        sums.
    others : as for `Fitted`.
    """

    components: Array
    explained_variance: Array
    certificate: Array
    total_variance: float
    mean: Array
    scale: Array | None
    solver: str
    warm_seconds: float
    squares: Array | None = None
    used: Array | None = None
    following: float | None = None
    sample_missing: Array | None = None
    scores: Array | None = None
    scatter: Array | None = None
    probe: Array | None = None
    chain: int = 0
    certificate_method: str = "exact"

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return len(self.components)

    @property
    def scaling(self) -> Scaling:
        """Centre and scale of the features."""
        return Scaling(self.mean, self.scale)

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the total variance of each component."""
        return self.explained_variance / self.total_variance

    @property
    def singular_values(self) -> Array:
        """Singular values of the centred and scaled data."""
        return np.asarray(np.sqrt(self.explained_variance * (self.n_samples - 1)))

    @property
    def genotype_eigenvalue(self) -> Array:
        """Eigenvalues of X X' / m for m features (variants), as plink and GCTA define them."""
        return np.asarray(self.explained_variance * (self.n_samples - 1) / len(self.mean))

    @property
    def noise_variance(self) -> float:
        """Mean of the other eigenvalues, from the trace; there are min(n, d) - k of them, as in scikit-learn."""
        left = min(self.n_samples, len(self.mean)) - len(self.explained_variance)
        return max(0.0, self.total_variance - float(self.explained_variance.sum())) / left if left else 0.0

    @property
    def typical_distance(self) -> float:
        """Root mean square distance of the fitted samples from the components: sqrt((n - 1) / n (total - sum l_i))."""
        left = max(0.0, self.total_variance - float(self.explained_variance.sum()))
        return float(np.sqrt((self.n_samples - 1) / self.n_samples * left))

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and the used features of the source that was swept."""
        return source.samples, source.features if self.used is None else source.features.take(self.used)

    def leading(self, count: int) -> PCAFit:
        """Return the first `count` components."""
        return replace(
            self, components=self.components[:count], explained_variance=self.explained_variance[:count],
            certificate=self.certificate[:count], scores=None if self.scores is None else self.scores[:, :count],
            following=float(self.explained_variance[count]) if count < len(self.components) else self.following,
        )  # fmt: skip


def also_spent(fitted: Any, seconds: Sequence[float], bytes_read: int) -> Any:
    """Return a fitted record that includes the sweeps before the fit was restarted."""
    return replace(fitted, sweep_seconds=(*seconds, *fitted.sweep_seconds), bytes_read=bytes_read + fitted.bytes_read)


def not_distinguishable(fitted: PCAFit) -> tuple[str, ...]:
    """Return notes on components whose eigenvalues are too close to separate, by North's rule of thumb.

    An eigenvalue has the sampling error lambda sqrt(2 / N) for N independent replicates: the samples, or the variants
    of genotypes. Components whose eigenvalues are closer than that are mixtures of each other, which another sample
    would mix differently.

    References: North, Bell, Cahalan & Moeng (1982), Mon. Weather Rev. 110, 699.
    """
    replicates = len(fitted.mean) if fitted.genotypes else fitted.n_samples
    values = np.append(fitted.explained_variance, [] if fitted.following is None else [fitted.following])
    close = -np.diff(values) < values[:-1] * np.sqrt(2 / replicates)
    k, why = len(fitted.explained_variance), "eigenvalues differ by less than their sampling error"
    alike, notes = [], []
    for first, last in _runs(close):
        end = min(last, k - 1)
        which = f"PC {first + 1}"
        if end > first:
            which = f"PCs {first + 1} {'and' if end == first + 1 else 'to'} {end + 1}"
        if last < k:
            alike.append(which)
        elif end == first:
            notes.append(f"{which} is not distinguishable from those that follow it: the {why}")
        else:
            notes.append(f"{which}, and those that follow them, are not distinguishable: their {why}")
    if len(alike) > MOST_NOTES:
        alike = [f"PCs {', '.join(which.removeprefix('PCs ') for which in alike)}"]
    first_notes = (f"{which} are not distinguishable: their {why}; read them as one plane or space" for which in alike)
    return (*first_notes, *notes)


def _runs(mask: Array) -> list[tuple[int, int]]:
    """Return the start and stop of each run of true entries."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def signed(components: Array) -> Array:
    """Return the rows with signs that make the largest entry of each positive, as scikit-learn does."""
    return components * signs_of(components)[:, None]


def signs_of(components: Array) -> Array:
    """Return the sign of the largest entry of each row."""
    # Row by row: the magnitudes of all rows would be another copy of the components.
    signs = np.array([np.sign(row[np.abs(row).argmax()]) for row in components])
    return np.where(signs == 0, 1.0, signs)


def distances(scores: Array, squares: Array) -> Array:
    """Return the distances of samples from the components: |a - V V'a| = sqrt(|a|^2 - |z|^2), in scaled units.

    A missing value at the mean adds nothing. Scores in float32 resolve distances down to about 1e-3 |a|, in float64
    down to 1e-7 |a|: smaller differences are rounding, and may be 0.

    Parameters
    ----------
    scores, squares : (n, k) and (n,), as `project` returns them.

    References: Turk & Pentland (1991), J. Cogn. Neurosci. 3, 71 ("distance from face space").
    """
    inside = np.einsum("ij,ij->i", scores, scores, dtype=np.float64)
    return np.asarray(np.sqrt(np.maximum(squares.astype(np.float64) - inside, 0.0)))


def log_likelihood(scores: Array, squares: Array, fitted: PCAFit) -> Array:
    """Log-likelihood of each sample under the probabilistic PCA model with these components.

    log N(x; mean, C),  C = V diag(l - s2) V' + s2 I,   x'C^-1 x = (|x|^2 - |z|^2) / s2 + sum z_i^2 / l_i

    which needs only the scores z and the length of x, not the d x d matrix.

    References: Tipping & Bishop (1999), J. R. Stat. Soc. B 61, 611.
    """
    d, k = len(fitted.mean), len(fitted.components)
    l, s2 = fitted.explained_variance, fitted.noise_variance
    z2 = scores.astype(np.float64) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (z2 / l).sum(axis=1)
        if k == d:
            return np.asarray(-0.5 * (d * np.log(2 * np.pi) + np.log(l).sum() + inside))
        outside = np.maximum(squares.astype(np.float64) - z2.sum(axis=1), 0.0) / s2
        logdet = np.log(l).sum() + (d - k) * np.log(s2)
    return np.asarray(-0.5 * (d * np.log(2 * np.pi) + logdet + inside + outside))
