"""The fitted record of PCA, and what follows from it alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from streampca._typing import Array
from streampca.genetics.matching import Match
from streampca.models.record import Attribute, LinearFit, Variable
from streampca.solvers.noise import NoiseTest, is_noise
from streampca.sources import Axis, Source

NOISE_TEST = ("tracy_widom", "p_value", "n_effective", "squared_cosine")
SHRUNK = 0.05  # shrinkage of scores, relative to that of most samples, that is reported
MOST_NOTES = 2  # more groups of components that are not distinguishable are reported in one note


@dataclass(frozen=True, kw_only=True)
class PCAFit(LinearFit):
    """Fitted principal components.

    Attributes
    ----------
    components : (k, d), orthonormal rows, the largest entry of each positive.
    explained_variance : (k,).
    total_variance : trace of the covariance (n - 1).
    squares : (d,) sum of squared deviations of each feature from its mean, scaled.
    used : (d,) mask of the features that passed the filter; None if all did. Other arrays have only these.
    following : the next eigenvalue, if known.
    tracy_widom, p_value, n_effective, squared_cosine : (k,) test of each component against noise; see `solvers.noise`.
    noise_edge : largest eigenvalue that is expected of noise.
    scores : (n, k) of the fitted samples, if known.
    scatter : (d, d) unscaled scatter matrix, if requested and formed.
    probe, chain : (d, p) its product with random vectors in float64 if it was formed in float32, and the length of its
        sums.
    others : as for `LinearFit`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *LinearFit.VARIABLES,
        Variable("tracy_widom", "component", "Tracy-Widom statistic of the eigenvalue, without those before it"),
        Variable("p_value", "component", "probability of a larger statistic in noise"),
        Variable("n_effective", "component", "degrees of freedom of the noise: the effective number of markers"),
        Variable("squared_cosine", "component", "estimated squared cosine with the component of the population"),
        Variable("scores", "S component"),
    )
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *LinearFit.ATTRIBUTES,
        Attribute("solver", str),
        Attribute("noise_variance"),
        Attribute("noise_edge"),
        Attribute("warm_start_seconds"),
    )

    components: Array
    explained_variance: Array
    total_variance: float
    certificate_method: str | None = "exact"
    solver: str
    warm_start_seconds: float = 0.0
    squares: Array | None = None
    used: Array | None = None
    following: float | None = None
    tracy_widom: Array | None = None
    p_value: Array | None = None
    n_effective: Array | None = None
    squared_cosine: Array | None = None
    noise_edge: float | None = None
    scores: Array | None = None
    scatter: Array | None = None
    probe: Array | None = None
    chain: int = 0

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the total variance of each component."""
        return self.explained_variance / self.total_variance

    @property
    def singular_values(self) -> Array:
        """Singular values of the centred and scaled data."""
        return np.asarray(np.sqrt(self.explained_variance * (self.n_samples - 1)))

    @property
    def eigenvalue(self) -> Array | None:
        """Eigenvalues of X X' / m for m variants, as plink and GCTA define them; None without genotypes."""
        return self.explained_variance * (self.n_samples - 1) / self.n_features if self.genotypes else None

    @property
    def noise(self) -> Array | None:
        """Mask of the components that cannot be distinguished from noise; None if they were not tested."""
        return None if self.p_value is None else is_noise(self.p_value)

    @property
    def noise_variance(self) -> float:
        """Mean of the other eigenvalues, from the trace; there are min(n, d) - k of them, as in scikit-learn."""
        left = min(self.n_samples, self.n_features) - self.n_components
        return self.unexplained_variance / left if left else 0.0

    @property
    def unexplained_variance(self) -> float:
        """Sum of the other eigenvalues."""
        return max(0.0, self.total_variance - float(self.explained_variance.sum()))

    @property
    def typical_distance(self) -> float:
        """Root mean square distance of the fitted samples from the components: sqrt((n - 1) / n (total - sum l_i))."""
        return float(np.sqrt((self.n_samples - 1) / self.n_samples * self.unexplained_variance))

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and the used features of the source that was swept."""
        return source.samples, source.features if self.used is None else source.features.take(self.used)

    def leading(self, count: int) -> Self:
        """Return the first `count` components."""
        per_component: dict[str, Any] = {name: getattr(self, name) for name in ("error", *NOISE_TEST)}
        changes: dict[str, Any] = {
            name: values if values is None else values[:count] for name, values in per_component.items()
        }
        return replace(
            self, components=self.components[:count], explained_variance=self.explained_variance[:count],
            scores=None if self.scores is None else self.scores[:, :count], **changes,
            following=float(self.explained_variance[count]) if count < len(self.components) else self.following,
        )  # fmt: skip

    def matching(self, match: Match) -> Self:
        """Return the components of the variants that match, for the alleles that the new data count."""
        components = self.components[:, match.fitted] * np.where(match.flipped, -1.0, 1.0)
        return replace(self, components=components, scaling=self.matching_scaling(match), used=None)


def noise_fields(test: NoiseTest | None) -> dict[str, Any]:
    """Return the fields of the test against noise."""
    if test is None:
        return {}
    return {
        "tracy_widom": test.statistic,
        "p_value": test.p_value,
        "n_effective": test.n_effective,
        "squared_cosine": test.squared_cosine,
        "noise_edge": test.edge,
    }


def not_distinguishable(fitted: PCAFit, noise: int | None = None) -> tuple[str, ...]:
    """Return notes on components before `noise` whose eigenvalues are too close to separate, by North's rule of thumb.

    An eigenvalue has the sampling error lambda sqrt(2 / N) for N independent replicates: the samples, or the variants
    of genotypes. Components whose eigenvalues are closer than that are mixtures of each other, which another sample
    would mix differently.

    References: North, Bell, Cahalan & Moeng (1982), Mon. Weather Rev. 110, 699.
    """
    replicates = fitted.n_features if fitted.genotypes else fitted.n_samples
    values = np.append(fitted.explained_variance, [] if fitted.following is None else [fitted.following])
    close = -np.diff(values) < values[:-1] * np.sqrt(2 / replicates)
    k, why = fitted.n_components, "eigenvalues differ by less than their sampling error"
    alike, notes = [], []
    for first, last in _runs(close[:noise]):
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


def shrunk_samples(fitted: PCAFit) -> tuple[str, ...]:
    """Return a note on samples that have many more missing calls than others, if calls are replaced by the mean.

    The scores of a sample with the share f of its calls missing are about 1 - f of those of the complete sample.
    """
    if fitted.sample_missing is None or not fitted.n_missing:
        return ()
    present = 1 - fitted.sample_missing / fitted.n_features
    relative = present / max(float(np.median(present)), 1 / fitted.n_features)
    shrunk = relative < 1 - SHRUNK
    if not shrunk.any():
        return ()
    least, most = (f"{float(shrinkage):.0%}" for shrinkage in (1 - relative[shrunk].max(), 1 - relative.min()))
    by = most if least == most else f"{least} to {most}"
    which = "1 sample has" if shrunk.sum() == 1 else f"{int(shrunk.sum())} samples have"
    return (
        f"{which} more missing calls than most: replaced by the mean, these move scores towards the centre, by about "
        f"{by}; fit with --missing lsq, or with ppca",
    )


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
    d, k = fitted.n_features, fitted.n_components
    l, s2 = fitted.explained_variance, fitted.noise_variance
    z2 = scores.astype(np.float64) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (z2 / l).sum(axis=1)
        if k == d:
            return np.asarray(-0.5 * (d * np.log(2 * np.pi) + np.log(l).sum() + inside))
        outside = np.maximum(squares.astype(np.float64) - z2.sum(axis=1), 0.0) / s2
        logdet = np.log(l).sum() + (d - k) * np.log(s2)
    return np.asarray(-0.5 * (d * np.log(2 * np.pi) + logdet + inside + outside))
