"""The fitted record of probabilistic PCA and factor analysis, and what follows from it alone.

In results the noise variance is an attribute of probabilistic PCA and a variable of factor analysis, whose components
are the loadings W'. Probabilistic PCA has unit components, and the loadings in addition, so that no digit is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streampca._typing import Array
from streampca.genetics.matching import Match
from streampca.models.record import Attribute, LinearFit, Variable
from streampca.solvers.em.factors import Factors, Known
from streampca.sweep.scaling import Scaling

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Choice:
    """A number of components, and how it was chosen.

    Attributes
    ----------
    criterion : "evidence", "bic" or "heldout".
    candidates : numbers of components that were compared.
    values : of the criterion, for each; larger is better.
    best : the chosen number.
    """

    criterion: str
    candidates: Array
    values: Array
    best: int

    @property
    def note(self) -> str:
        """The choice in words."""
        names = {"evidence": "Minka's evidence", "bic": "BIC", "heldout": "the likelihood of held-out values"}
        last = self.best == self.candidates[-1]
        more = "; this is the largest candidate, more may be better" if last else ""
        return f"{self.best} components chosen by {names[self.criterion]}{more}"


@dataclass(frozen=True, kw_only=True)
class PPCAFit(LinearFit):
    """A fitted model x = W z + mu + noise, along principal axes; variances are of maximum likelihood (1 / n).

    Attributes
    ----------
    factors : the parameters in units of the scaled features, about the centre of `scaling`.
    log_likelihoods : log-likelihood of all samples after each iteration; one value in closed form.
    change : mean squared sine of the angles by which the last EM iteration turned the subspace; 0 in closed form.
    error : (k,) of the principal components that a closed form uses; None after EM.
    posterior : means and deviations of z for the fitted samples, if the fit computed them.
    choice : how k was chosen, if it was.
    others : as for `LinearFit`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *LinearFit.VARIABLES,
        Variable("loadings", "component F", "W', in units of the scaled features"),
        Variable("explained_variance", "component", "variance of the model along each component (1 / n)"),
        Variable("scaling_mean", "F", "subtracted from the features before scaling", "scaling.mean"),
        Variable(
            "shift", "F", "mean of the model about scaling_mean, in units of the scaled features", "factors.shift"
        ),
        Variable(
            "log_likelihood", "iteration", "log-likelihood of all samples after each iteration of EM", "log_likelihoods"
        ),
        Variable("candidate", "candidate", of="choice.candidates"),
        Variable(
            "criterion", "candidate", "criterion by which the number of components was chosen; larger is better",
            "choice.values",
        ),
        Variable("scores", "S component", "posterior means of z"),
        Variable(
            "score_deviation", "S component",
            "posterior standard deviations of z, given the observed values of each sample", "posterior.deviation",
        ),
    )  # fmt: skip
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *LinearFit.ATTRIBUTES,
        Attribute("method", str),
        Attribute("n_iterations", int),
        Attribute("change"),
        Attribute("total_log_likelihood", of="log_likelihood"),
        Attribute("layout", str),
        Attribute("noise_variance"),
        Attribute("criterion", str, "choice.criterion"),
    )
    # Whether each feature has its own noise variance.
    per_feature_noise: ClassVar[bool] = False

    factors: Factors
    log_likelihoods: Array
    change: float
    method: str
    n_iterations: int
    posterior: Known | None = None
    choice: Choice | None = None

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all samples."""
        return float(self.log_likelihoods[-1])

    @property
    def n_components(self) -> int:
        """Number of latent dimensions, k."""
        return self.factors.n_components

    @property
    def n_iter(self) -> int:
        """Number of iterations, at least 1."""
        return max(1, self.n_iterations)

    @property
    def noise_variance(self) -> Any:
        """Noise variance, of all features or of each."""
        return self.factors.noise

    @property
    def lengths(self) -> Array:
        """Length of each column of W."""
        return np.asarray(np.linalg.norm(self.factors.W, axis=0))

    @property
    def loadings(self) -> Array:
        """W', (k, d)."""
        return self.factors.W.T

    @property
    def components(self) -> Array:
        """Principal axes (k, d), unit rows."""
        return np.asarray(self.loadings / np.maximum(self.lengths, np.finfo(float).tiny)[:, None])

    @property
    def explained_variance(self) -> Array:
        """Variance of the model along each axis, |w|^2 + s2 (1 / n)."""
        return np.asarray(self.lengths**2 + self.factors.noise)

    @property
    def total_variance(self) -> float:
        """Trace of the model's covariance."""
        noise = np.broadcast_to(self.factors.noise, len(self.factors.W))
        return float((self.factors.W**2).sum() + noise.sum())

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the model's variance along each axis."""
        return self.explained_variance / self.total_variance

    @property
    def mean(self) -> Array:
        """Mean of each feature in the model, in units of the data."""
        return np.asarray(self.scaling.restore(self.factors.shift))

    @property
    def scores(self) -> Array | None:
        """Posterior means of the fitted samples, if the fit computed them."""
        return None if self.posterior is None else self.posterior.mean

    @property
    def eigenvalue(self) -> Array | None:
        """Eigenvalues of X X' / m for m variants, as plink and GCTA define them; None without genotypes."""
        return self.explained_variance * self.n_samples / self.n_features if self.genotypes else None

    @property
    def layout(self) -> str:
        """Order of W in memory: products of another order round differently."""
        return "C" if self.factors.W.flags.c_contiguous else "F"

    def expected(self, Z: Any) -> Any:
        """Return samples without noise from latent points, NumPy or Dask: W z + mu, in units of the data."""
        return self.scaling.restore(Z @ self.factors.W.T + self.factors.shift)

    def without_noise(self) -> PPCAFit:
        """Return the limit of no noise, as close as double precision resolves."""
        noise = 1e-10 * float((self.factors.W**2).sum()) * np.ones_like(self.factors.noise)
        factors = replace(self.factors, noise=noise if self.per_feature_noise else float(noise))
        return replace(self, factors=factors, tile_dtype="float64")

    def matching(self, match: Match) -> PPCAFit:
        """Return the model of the variants that match, for the alleles that the new data count."""
        sign = np.where(match.flipped, -1.0, 1.0)
        part = self.factors.part(match.fitted)
        factors = replace(part, W=part.W * sign[:, None], shift=part.shift * sign)
        return replace(self, factors=factors, scaling=self.matching_scaling(match))

    @classmethod
    def fields_in(cls, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return the fields that a Dataset has; results of version 0.7 have no shift."""
        values, k, attrs = super().fields_in(dataset), dataset.sizes["component"], dataset.attrs
        W, noise = cls.weights_in(dataset)
        shift = np.zeros(len(W))
        if "shift" in dataset:
            shift = dataset["shift"].values.ravel()
            values["scaling"] = Scaling(dataset["scaling_mean"].values.ravel(), values["scaling"].scale)
        values["factors"] = Factors(np.asarray(W, order=attrs.get("layout", "F")), shift, noise)
        if {"scores", "score_deviation"} <= set(dataset):
            both = (dataset[name].values.reshape(-1, k) for name in ("scores", "score_deviation"))
            values["posterior"] = Known(*both)
        if "criterion" in dataset:
            candidates, curve = dataset["candidate"].values, dataset["criterion"].values
            values["choice"] = Choice(str(attrs["criterion"]), candidates, curve, k)
        return values

    @classmethod
    def weights_in(cls, dataset: xarray.Dataset) -> tuple[Array, Any]:
        """Return W and the noise variance of a Dataset; results of version 0.7 have no loadings."""
        k, noise = dataset.sizes["component"], float(dataset.attrs["noise_variance"])
        if "loadings" in dataset:
            return dataset["loadings"].values.reshape(k, -1).T, noise
        lengths = np.sqrt(np.maximum(dataset["explained_variance"].values - noise, 0.0))
        return dataset["components"].values.reshape(k, -1).T * lengths, noise


@dataclass(frozen=True, kw_only=True)
class FactorAnalysisFit(PPCAFit):
    """A fitted factor analysis: each feature has its own noise variance, and the components of a result are W'."""

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *(variable for variable in PPCAFit.VARIABLES if variable.name != "loadings"),
        Variable("components", "component F", "loadings W', in units of the scaled features", "loadings"),
        Variable("explained_variance", "component", "sum of squared loadings"),
        Variable("noise_variance", "F", "noise variance of each feature"),
    )
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = tuple(e for e in PPCAFit.ATTRIBUTES if e.name != "noise_variance")
    per_feature_noise: ClassVar[bool] = True

    @property
    def explained_variance(self) -> Array:
        """Sum of the squared loadings of each factor, |w|^2."""
        return np.asarray(self.lengths**2)

    @classmethod
    def weights_in(cls, dataset: xarray.Dataset) -> tuple[Array, Any]:
        """Return W and the noise variances of a Dataset."""
        W = dataset["components"].values.reshape(dataset.sizes["component"], -1).T
        return W, dataset["noise_variance"].values.ravel()
