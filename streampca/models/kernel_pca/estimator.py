"""The `KernelPCA` estimator: nonlinear components by landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.models.base import Transformer, is_labelled, samples_like, scaled_block
from streampca.models.kernel_pca.fit import MISSING_HINT, fit_kernel_pca
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, KernelDenoiser, Scores, pre_images
from streampca.models.kernel_pca.record import (
    KernelPCAFit,
    finite_scores,
    kernel_scores,
    kernel_sweeps,
    with_kernel_scores,
)
from streampca.progress import Progress
from streampca.sources import Source
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps, one_blas_thread


@dataclass(repr=False, eq=False)
class KernelPCA(Transformer[KernelPCAFit]):
    """Kernel principal component analysis by Nystrom landmarks, for data that need not fit in memory.

    PCA of phi(x) = K^(-1/2) k(x) for the kernel k(x) with m landmarks and K among them: mean and m x m covariance in
    one sweep, then `eigh`. The matrix of all pairs of samples is never formed. The result is exact if all samples are
    landmarks.

    Components have unit length in feature space; scores are centred projections on them. The same sweep measures what
    the landmarks miss: `kept_trace_`, and a certificate for each component.

    Parameters
    ----------
    n_components : int or None
        Number of components, or None for all min(n_samples, n_landmarks).
    kernel : "rbf", "linear", "poly", "laplacian", "cosine", "sigmoid" or callable
        exp(-g |x - y|^2), x'y, (g x'y + c)^p, exp(-g |x - y|_1), x'y / |x||y|, tanh(g x'y + c); or a function of two
        arrays (t x d, m x d) that returns the kernel of all pairs (t x m). A cluster needs one that can be pickled.
    gamma : float, "scale", "median" or None
        "scale" is 1 / (n_features * variance of all values). "median" is 1 / (2 s^2), s the median distance of two
        samples (1 / s for laplacian). None is 1 / n_features. The first two use up to 1,000 random samples.
    degree, coef0 : float
        p and c of poly and sigmoid.
    n_landmarks : int or "auto"
        Number of landmarks m. "auto" chooses enough to keep `target_trace` of the kernel's trace, as memory allows.
    landmarks : "uniform", "kmeans", "leverage" or "fourier"
        "uniform": random samples; only their chunks are read. "kmeans": centres of mini-batch k-means, one sweep (three
        for few partitions). "leverage": samples drawn by their ridge leverage scores, recursively, one sweep.
        "fourier": m random Fourier features instead, for rbf and laplacian, if an m x m matrix would be too large.
    target_trace : float
        Share of the trace to keep, for n_landmarks="auto".
    scale : None or "unit"
        "unit" standardises each feature first; one more sweep.
    missing : "error" or "mean"
        Missing values (NaN): raise an error, or replace them by the mean of the feature, with one more sweep.
    fit_inverse_transform : bool
        Learn the map from scores back to samples by ridge regression; one more sweep. Without it `inverse_transform`
        supports linear and rbf kernels.
    alpha : float
        Penalty of the ridge regression.
    memory_limit : str, int or None
        Limit on the memory that streampca adds to the process, as "600MB" or in bytes; half of the available memory by
        default.
    random_state : int, RandomState or None
        Seed of the landmarks.
    progress : callable or None
        Called with a `streampca.progress.Step` when a partition is done.

    Attributes
    ----------
    eigenvalues_ : (n_components,) of the centred kernel matrix of all samples, as in scikit-learn: never larger than
        the exact ones, except for Fourier features.
    explained_variance_ : eigenvalues_ / (n_samples - 1).
    explained_variance_ratio_ : share of the variance in feature space, at least.
    kept_trace_, kept_variance_ : share of the sum of k(x, x), and least share of the variance in feature space, that
        the landmarks keep. 1 if exact; NaN for Fourier features.
    certificate_ : (n_components,) bounds on |C v - lambda v| / lambda for the covariance C in feature space; for
        Fourier features, of their own covariance.
    estimated_error_ : (n_components,) relative distance of the exact eigenvalues above these, estimated from up to
        1,000 samples: usually much smaller than the certificate, but blind to groups that are too rare to be among
        these samples. NaN for Fourier features.
    landmarks_ : (n_landmarks_, n_features) in units of the data; for Fourier features the frequencies.
    weights_ : (n_landmarks_, n_components), v_i = sum_l weights_[l, i] phi(l).
    gamma_ : value of gamma.
    mean_, scale_ : (n_features,) of the inputs; scale_ is None without scaling.
    converged_, advice_, notes_ : as for `PCA`.
    n_components_, n_samples_ : number of components and samples.
    n_sweeps_ : reads of all the data, without those of random samples.
    result_ : xarray.Dataset of all this; includes scores after `fit_transform`.

    References
    ----------
    Schoelkopf, Smola & Mueller (1998), Neural Comput. 10, 1299. Williams & Seeger (2001), NIPS 13.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> angle = np.random.default_rng(0).uniform(0, 7, size=2000)
    >>> X = np.c_[np.cos(angle), np.sin(angle)] * np.repeat([1, 3], 1000)[:, None]     # two circles
    >>> model = streampca.KernelPCA(2, gamma=1, n_landmarks=200)
    >>> Z = model.fit_transform(X)
    >>> bool(model.kept_trace_ > 0.999)
    True
    """

    _options = KernelPCAOptions
    _record = KernelPCAFit
    _shown = (
        "eigenvalues", "explained_variance", "explained_variance_ratio", "certificate", "estimated_error",
        "kept_trace", "kept_variance", "landmarks", "weights", "n_landmarks", "gamma",
    )  # fmt: skip

    n_components: int | None = None
    _: KW_ONLY
    kernel: str | Callable[[Array, Array], Array] = "rbf"
    gamma: float | str | None = "scale"
    degree: float = 3
    coef0: float = 1
    n_landmarks: int | str = 1000
    landmarks: str = "uniform"
    target_trace: float = 0.95
    scale: str | None = None
    missing: str = "error"
    fit_inverse_transform: bool = False
    alpha: float = 0.1
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def _fit(self, source: Source) -> Sweeps:
        fitted, sweeps = fit_kernel_pca(source, self._checked_options(), **self._how)
        self._keep(fitted, source, source)
        return sweeps

    def _fitted_scores(self, sweeps: Sweeps, source: Source) -> Array:  # noqa: ARG002
        self._fitted = with_kernel_scores(self._fitted, sweeps)
        self._set_attributes()
        assert self._fitted.scores is not None
        return self._fitted.scores

    def _scores_of(self, source: Source) -> Array:
        sweeps = kernel_sweeps(source, self._fitted, self.missing, **self._how, held=True)
        with hint_for_missing(MISSING_HINT):
            return kernel_scores(self._fitted, sweeps, check=True)

    def _block_scores(self) -> Callable[[Array], Array]:
        return partial(_block_scores, fitted=replace(self._fitted, scores=None), missing=self.missing)

    def _dtype(self, source: Source) -> np.dtype[Any]:  # noqa: ARG002
        return np.dtype(self._fitted.tile_dtype)

    def inverse_transform(self, X: Any) -> Any:
        """Map scores back to samples: by the ridge map if learnt, else exactly (linear) or by fixed point (rbf).

        Parameters
        ----------
        X : samples x components, as `transform` returns them.
        """
        check_is_fitted(self)
        if is_labelled(X):
            return self._labelled(X, lambda scores: self._restored(scores.reshape(-1, scores.shape[-1])))
        return self._restored(np.asarray(X))

    def _restored(self, scores: Array) -> Array:
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(f"scores must be samples x {self.n_components_} components, got shape {scores.shape}")
        dtype = np.result_type(scores.dtype, np.float32)
        samples = np.empty((len(scores), len(self._fitted.mean)), dtype)
        with one_blas_thread:
            for i in range(0, len(scores), RESTORED_ROWS):
                part = pre_images(self._fitted, scores[i : i + RESTORED_ROWS].astype(dtype))
                samples[i : i + RESTORED_ROWS] = self._fitted.scaling.restore(part)
        return samples

    def denoise(self, X: Any) -> Any:
        """Return samples denoised: pre-images of their projections on the components; one sweep.

        The fixed point iteration starts from the sample itself. `streampca denoise` writes to a store instead.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        sweeps = kernel_sweeps(source, fitted, self.missing, **self._how, restores=True, held=True)
        denoiser = KernelDenoiser.of(fitted, sweeps.matrix.dtype)
        with hint_for_missing(MISSING_HINT):
            pieces, _ = sweeps.run(RowsOf(denoiser, most=RESTORED_ROWS), "denoising", check=True)
        return samples_like(X, np.concatenate(pieces), source)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: float32 becomes float64 if the kernel needs it."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def _block_scores(block: Array, *, fitted: KernelPCAFit, missing: str) -> Array:
    """Return the scores of one block of a lazy array."""
    T = scaled_block(block, fitted.scaling, fitted.tile_dtype, missing)
    scores = Scores.of(fitted.map, fitted, T.dtype)
    rows = [scores(T[i : i + RESTORED_ROWS]) for i in range(0, len(T), RESTORED_ROWS)]
    return finite_scores(np.concatenate(rows) if rows else np.empty((0, scores.weights.shape[1]), T.dtype))
