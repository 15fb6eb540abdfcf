"""The `KernelPCA` estimator: nonlinear components by landmarks, for data that need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.models.base import Transformer, is_dask, is_labelled, samples_like, scaled_block, scores_like
from streampca.models.kernel_pca import dataset
from streampca.models.kernel_pca.fit import fit_kernel_pca
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, KernelDenoiser, Scores, pre_images
from streampca.models.kernel_pca.record import (
    MISSING_HINT,
    KernelPCAFit,
    finite_scores,
    kernel_scores,
    kernel_sweeps,
)
from streampca.progress import Progress, silent
from streampca.sources import Source
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps, lazy_rows, one_blas_thread


class KernelPCA(Transformer):
    """Kernel principal component analysis by Nystrom landmarks, of data that need not fit in memory.

    PCA of phi(x) = K^(-1/2) k(x) for the kernel k(x) with m landmarks and K among them: mean and m x m covariance in
    one sweep, then `eigh`. The matrix of all pairs of samples never exists. With as many landmarks as
    samples it is exact.

    Components are of unit length in feature space, and scores are projections on them, centred there. What the
    landmarks miss is measured in the same sweep: `kept_trace_`, and a certificate for each component.

    Parameters
    ----------
    n_components : int or None
        Number of components, or None for all min(n_samples, n_landmarks).
    kernel : "rbf", "linear", "poly", "laplacian", "cosine", "sigmoid" or callable
        exp(-g |x - y|^2), x'y, (g x'y + c)^p, exp(-g |x - y|_1), x'y / |x||y|, tanh(g x'y + c); or a function of two
        arrays (t x d, m x d) that gives all pairs (t x m), on a cluster one that can be pickled.
    gamma : float, "scale", "median" or None
        "scale" is 1 / (n_features * variance of all values). "median" is 1 / (2 s^2), s the median distance of two
        samples (1 / s for laplacian). None is 1 / n_features. The first two are of up to 1,000 samples drawn evenly.
    degree, coef0 : float
        p and c of poly and sigmoid.
    n_landmarks : int or "auto"
        Landmarks m. "auto" takes as many as keep `target_trace` of the kernel's trace, as memory allows.
    landmarks : "uniform", "kmeans", "leverage" or "fourier"
        "uniform": samples drawn evenly, only the chunks that hold them are read. "kmeans": centres of k-means by
        mini-batches, a sweep in all (three, where partitions are few). "leverage": samples drawn by their
        ridge leverage, recursively, a sweep.
        "fourier": no landmarks but m random Fourier features, of rbf and laplacian, for m too large for an m x m
        matrix.
    target_trace : float
        Share of the trace that n_landmarks="auto" is to keep.
    scale : None or "unit"
        "unit" takes off the mean of each feature and divides by its standard deviation first; a sweep more.
    missing : "error" or "mean"
        What to do with NaN: refuse, or let it stand at its feature's mean; a sweep more.
    fit_inverse_transform : bool
        Learn the way back from scores to samples by ridge regression; a sweep more. Without it `inverse_transform` is
        for linear and rbf kernels.
    alpha : float
        Penalty of that regression.
    memory_limit : str, int or None
        Limit on the memory that streampca adds to the process, as "600MB" or in bytes; half of the available memory by
        default.
    random_state : int, RandomState or None
        Seed of the landmarks.
    progress : callable or None
        Called with a `streampca.progress.Step` when a partition is done.

    Attributes
    ----------
    eigenvalues_ : (n_components,) of the centred kernel matrix of all samples, as scikit-learn gives them: never more
        than the exact ones, except of Fourier features.
    explained_variance_ : eigenvalues_ / (n_samples - 1).
    explained_variance_ratio_ : share of the variance in feature space, at least.
    kept_trace_, kept_variance_ : share of the sum of k(x, x), and of the variance in feature space, that the landmarks
        keep; of the latter at least. 1 where it is exact; not known for Fourier features (NaN).
    certificate_ : (n_components,) bounds on |C v - lambda v| / lambda for the covariance C in feature space. For
        Fourier features those of their own covariance.
    estimated_error_ : (n_components,) how far exact eigenvalues may be above these, as a share of them, estimated by up
        to 1,000 samples: mostly much less than the certificate says, but groups that are too rare to be among these are
        not seen. Not known for Fourier features (NaN).
    landmarks_ : (n_landmarks_, n_features) in units of the data; for Fourier features the frequencies.
    weights_ : (n_landmarks_, n_components), v_i = sum_l weights_[l, i] phi(l).
    gamma_ : the number that gamma stood for.
    advice_ : what to know or do; empty where all is well.
    n_sweeps_ : reads of all the data that `fit` took, not counting that of landmarks drawn evenly.
    result_ : xarray.Dataset of all this; scores are in it after `fit_transform`.

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

    _dataset = dataset
    _shown = (
        "eigenvalues", "explained_variance", "explained_variance_ratio", "certificate", "estimated_error",
        "kept_trace", "kept_variance", "landmarks", "weights", "n_landmarks", "gamma",
    )  # fmt: skip
    _fitted: KernelPCAFit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str | Callable[[Array, Array], Array] = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        n_landmarks: int | str = 1000,
        landmarks: str = "uniform",
        target_trace: float = 0.95,
        scale: str | None = None,
        missing: str = "error",
        fit_inverse_transform: bool = False,
        alpha: float = 0.1,
        memory_limit: str | int | None = None,
        random_state: Any = 0,
        progress: Progress | None = None,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.target_trace = target_trace
        self.scale = scale
        self.missing = missing
        self.fit_inverse_transform = fit_inverse_transform
        self.alpha = alpha
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> KernelPCA:  # noqa: ARG002
        """Find the components of X: an array, a path, or anything that `open_source` takes but genotypes.

        Parameters
        ----------
        X : samples x features.
        y : ignored.
        sample_dims : dimensions of labelled data that make up the samples; the first one unless given.
        """
        self._fit(self._source(X, sample_dims, reset=True))
        return self

    def fit_transform(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Any:  # noqa: ARG002
        """Find the components and return the scores of X; one sweep more than `fit`.

        Parameters
        ----------
        X, y, sample_dims : as of `fit`.
        """
        source = self._source(X, sample_dims, reset=True)
        sweeps = self._fit(source)
        if is_dask(X):
            return self.transform(X)
        self._scores = kernel_scores(self._fitted, sweeps)
        self.n_sweeps_ = sweeps.n_sweeps
        return scores_like(X, self._scores, source)

    def _fit(self, source: Source) -> Sweeps:
        options = KernelPCAOptions.of(self._parameters())
        fitted, sweeps = fit_kernel_pca(source, options, memory=self.memory_limit, progress=self.progress or silent)
        self._keep(fitted, source, (source.samples, source.features))
        return sweeps

    def transform(self, X: Any) -> Any:
        """Return the scores of samples, new ones or those fitted; one sweep. Dask in, lazy Dask out.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        lazy = is_dask(X)
        sweeps = self._sweeps(source, restores=False, held=not lazy)
        if lazy:
            block = partial(_block_scores, fitted=fitted, missing=self.missing)
            return lazy_rows(X.reshape(source.shape), block, self.n_components_, np.dtype(fitted.tile_dtype))
        with hint_for_missing(MISSING_HINT):
            return scores_like(X, kernel_scores(fitted, sweeps, check=True), source)

    def _sweeps(self, source: Source, restores: bool, held: bool) -> Sweeps:
        progress = self.progress or silent
        return kernel_sweeps(source, self._fitted, self.missing, self.memory_limit, progress, restores, held)

    def inverse_transform(self, X: Any) -> Any:
        """Map scores back to samples: by the ridge map if learnt, else exactly (linear) or by fixed point (rbf).

        Parameters
        ----------
        X : samples x components, as `transform` gives them.
        """
        check_is_fitted(self)
        if is_labelled(X):
            return self._labelled(X, lambda scores: self._restored(scores.reshape(-1, scores.shape[-1])))
        return self._restored(np.asarray(X))

    def _restored(self, scores: Array) -> Array:
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(
                f"scores of shape {scores.shape} cannot be mapped back; give samples x {self.n_components_} components"
            )
        dtype = np.result_type(scores.dtype, np.float32)
        samples = np.empty((len(scores), len(self._fitted.mean)), dtype)
        with one_blas_thread:
            for i in range(0, len(scores), RESTORED_ROWS):
                part = pre_images(self._fitted, scores[i : i + RESTORED_ROWS].astype(dtype))
                samples[i : i + RESTORED_ROWS] = self._fitted.scaling.restore(part)
        return samples

    def denoise(self, X: Any) -> Any:
        """Return samples denoised: pre-images of their projections on the components; one sweep.

        A fixed point is looked for from the sample itself. `streampca denoise` writes them to a store as they come.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        sweeps = self._sweeps(source, restores=True, held=True)
        denoiser = KernelDenoiser.of(fitted, sweeps.matrix.dtype)
        with hint_for_missing(MISSING_HINT):
            pieces, _ = sweeps.run(RowsOf(denoiser, most=RESTORED_ROWS), "denoising", check=True)
        return samples_like(X, np.concatenate(pieces), source)

    def __sklearn_tags__(self) -> Any:
        """Say which types are kept, and whether NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64"]
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


def _block_scores(block: Array, *, fitted: KernelPCAFit, missing: str) -> Array:
    """Return the scores of one block of a lazy array."""
    T = scaled_block(block, fitted.scaling, fitted.tile_dtype, missing)
    scores = Scores.of(fitted.map, fitted.solution, T.dtype)
    rows = [scores(T[i : i + RESTORED_ROWS]) for i in range(0, len(T), RESTORED_ROWS)]
    return finite_scores(np.concatenate(rows) if rows else np.empty((0, scores.weights.shape[1]), T.dtype))
