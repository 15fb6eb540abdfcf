"""Kernels k(x, y) between rows of two tiles, and feature maps that approximate them: plain NumPy.

linear x'y      poly (g x'y + c)^p      rbf exp(-g |x - y|^2)      laplacian exp(-g |x - y|_1)
cosine x'y / |x||y|      sigmoid tanh(g x'y + c)      or any function of two tiles
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.scratch import scratch

KERNELS = ("linear", "poly", "rbf", "laplacian", "cosine", "sigmoid")
OF_DIFFERENCES = ("rbf", "laplacian")  # kernels of the difference of two points
# Kernels whose components do not change if all points are shifted; of a linear kernel because features are centred.
MOVABLE = (*OF_DIFFERENCES, "linear")
WITHOUT_GAMMA = ("linear", "cosine")
PAIRS = 16  # rows of which k(x, x) is computed at a time, for a function that returns all pairs
STRIP_BYTES = 1 << 20  # of kernel values that are computed at a time, in the cache


def strips(n_rows: int, width: int, dtype: np.dtype[Any]) -> Iterator[slice]:
    """Yield ranges of rows whose values, `width` in each row, fit the cache."""
    length = max(64, STRIP_BYTES // max(1, width * dtype.itemsize))
    for i in range(0, n_rows, length):
        yield slice(i, min(i + length, n_rows))


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters; `function` of two tiles (t x d, m x d) returns all pairs (t x m)."""

    name: str
    gamma: float = 1.0
    degree: float = 3.0
    coef0: float = 1.0
    function: Callable[[Array, Array], Array] | None = None

    @property
    def of_differences(self) -> bool:
        """Whether it depends only on x - y."""
        return self.name in OF_DIFFERENCES

    @property
    def movable(self) -> bool:
        """Whether all points may be shifted."""
        return self.name in MOVABLE

    def values(self, X: Array, Y: Array) -> Array:
        """Return k(x, y) of all pairs of rows, (len(X), len(Y)), in the type of X."""
        return self.with_prepared(X, self.prepared(Y, X.dtype), np.empty((len(X), len(Y)), X.dtype))

    def prepared(self, Y: Array, dtype: Any) -> Array:
        """Return Y in the form that `with_prepared` needs for X of a type."""
        if self.name == "rbf":
            return _rbf_columns(Y, self.gamma, dtype)
        if self.name == "laplacian":
            return Y.astype(np.float64, copy=False)
        return (_unit_rows(Y) if self.name == "cosine" else Y).astype(dtype, copy=False)

    def with_prepared(self, X: Array, Y: Array, K: Array) -> Array:
        """Write k(x, y) of all pairs of rows to K, for Y as prepared."""
        if self.function is not None:
            values = np.asarray(self.function(X, Y))
            if values.shape != K.shape:
                raise InputError(
                    f"the kernel returned an array of shape {values.shape} for {len(X)} and {len(Y)} rows; "
                    f"it must return all pairs, {K.shape}"
                )
            K[:] = values
            return K
        if self.name == "rbf":
            return _rbf(X, Y, self.gamma, K)
        if self.name == "laplacian":
            # SciPy is slow to load, and other kernels do without it.
            from scipy.spatial.distance import cdist

            np.multiply(cdist(X, Y, "cityblock"), -self.gamma, out=K, casting="unsafe")
            return np.exp(K, out=K)
        np.matmul(_unit_rows(X) if self.name == "cosine" else X, Y.T, out=K)
        return self._of_products(K)

    def _of_products(self, products: Array) -> Array:
        """Replace products x'y by values of the kernel."""
        if self.name in ("poly", "sigmoid"):
            products *= products.dtype.type(self.gamma)
            products += products.dtype.type(self.coef0)
            if self.name == "poly":
                np.power(products, self.degree, out=products)
            else:
                np.tanh(products, out=products)
        return products

    def diagonal(self, X: Array) -> Array:
        """Return k(x, x) of each row, (len(X),)."""
        if self.function is not None:
            parts = [X[i : i + PAIRS] for i in range(0, len(X), PAIRS)]
            return np.concatenate([np.diagonal(self.values(part, part)) for part in parts])
        if self.of_differences:
            return np.ones(len(X), X.dtype)
        if self.name == "cosine":
            return X.any(axis=1).astype(X.dtype)
        return self._of_products(np.einsum("ij,ij->i", X, X))


def _rbf_columns(Y: Array, gamma: float, dtype: Any) -> Array:
    """Return 2 g y, 1 and -g |y|^2 in each row."""
    m, d = Y.shape
    right = np.empty((m, d + 2), dtype)
    np.multiply(Y, 2 * gamma, out=right[:, :d], casting="unsafe")
    right[:, d] = 1
    right[:, d + 1] = -gamma * np.einsum("ij,ij->i", Y, Y, dtype=np.float64)
    return right


def _rbf(X: Array, right: Array, gamma: float, K: Array) -> Array:
    """Write exp(-g |x - y|^2) to K: the exponents are one product, with |x|^2 and |y|^2 as additional columns."""
    d, dtype = X.shape[1], X.dtype
    for strip in strips(len(X), len(right), dtype):
        part, rows = K[strip], X[strip]
        left = np.empty((len(rows), d + 2), dtype)
        left[:, :d] = rows
        np.einsum("ij,ij->i", rows, rows, out=left[:, d])
        left[:, d] *= -gamma
        left[:, d + 1] = 1
        np.matmul(left, right.T, out=part)
        np.minimum(part, 0, out=part)
        np.exp(part, out=part)
    return K


def _unit_rows(X: Array) -> Array:
    """Return the rows at unit length; rows of length zero do not change."""
    # Divided by the largest entry first: squares of small entries are zero, those of large ones infinite.
    largest = np.abs(X).max(axis=1, keepdims=True)
    X = X / np.where(largest > 0, largest, 1)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.where(lengths > 0, lengths, 1))


@dataclass(frozen=True)
class LandmarkMap:
    """k(x, l) - r(x) for each landmark l, and r(x), the mean of k(x, l) over them; `with_diagonal`, then k(x, x).

    Without their mean, values of a kernel that hardly differ keep their digits. Landmarks have the type of the tiles.
    """

    kernel: Kernel
    landmarks: Array
    with_diagonal: bool = False

    @cached_property
    def _prepared(self) -> Array:
        return self.kernel.prepared(self.landmarks, self.landmarks.dtype)

    @property
    def n_features(self) -> int:
        """Number of landmarks, one for the mean, and one for the diagonal."""
        return len(self.landmarks) + 1 + self.with_diagonal

    def __call__(self, A: Array) -> Array:
        """Return the kernel of each row with each landmark."""
        m = len(self.landmarks)
        F = scratch("features", (len(A), self.n_features), A.dtype)
        self.kernel.with_prepared(A, self._prepared, F[:, :m])
        for strip in strips(len(A), m, A.dtype):
            part = F[strip]
            np.mean(part[:, :m], axis=1, out=part[:, m])
            part[:, :m] -= part[:, m : m + 1]
        if self.with_diagonal:
            F[:, -1] = self.kernel.diagonal(A)
        return F


@dataclass(frozen=True)
class FourierMap:
    """cos(w'x) and sin(w'x) for random frequencies w (m / 2 x d), over sqrt(m / 2); the mean of their products is k.

    References: Rahimi & Recht (2007), NIPS 20.
    """

    frequencies: Array

    @property
    def n_features(self) -> int:
        """Two for each frequency."""
        return 2 * len(self.frequencies)

    def __call__(self, A: Array) -> Array:
        """Return cosines, then sines, of each row."""
        count = len(self.frequencies)
        F = scratch("features", (len(A), 2 * count), A.dtype)
        scale = A.dtype.type(1 / np.sqrt(count))
        W = self.frequencies.T.astype(A.dtype, copy=False)
        for strip in strips(len(A), 2 * count, A.dtype):
            part = F[strip]
            cosines, sines = part[:, :count], part[:, count:]
            np.matmul(A[strip], W, out=cosines)
            np.sin(cosines, out=sines)
            np.cos(cosines, out=cosines)
            part *= scale
        return F


def draw_frequencies(kernel: Kernel, count: int, d: int, seed: int) -> Array:
    """Return random frequencies (count, d), the mean of whose cosines is a kernel of differences."""
    rng = np.random.default_rng(seed)
    if kernel.name == "rbf":
        return np.asarray(rng.standard_normal((count, d)) * np.sqrt(2 * kernel.gamma))
    if kernel.name == "laplacian":
        return np.asarray(rng.standard_cauchy((count, d)) * kernel.gamma)
    raise InputError(f"Fourier features are for kernel='rbf' or 'laplacian', not {kernel.name!r}; use landmarks")


def gamma_of(gamma: float | str | None, name: str, sample: Array) -> float:
    """Return gamma as a number, from a sample of rows.

    None is 1 / n_features; "scale" is 1 / (n_features * variance of all values); "median" is 1 / (2 s^2) for rbf,
    with s the median distance of two samples, and 1 / s for laplacian.
    """
    if not isinstance(gamma, str) and gamma is not None:
        return float(gamma)
    d = int(sample.shape[1])
    if gamma is None or name in WITHOUT_GAMMA or name not in KERNELS:
        return 1.0 / d
    if gamma == "scale":
        with np.errstate(over="ignore", invalid="ignore"):
            spread, what = float(np.var(sample, dtype=np.float64)) * d, "variance"
    else:
        # SciPy is slow to load, and a gamma that is given needs no distances.
        from scipy.spatial.distance import pdist

        s = float(np.median(pdist(sample, "cityblock" if name == "laplacian" else "euclidean")))
        spread, what = s if name == "laplacian" else 2 * s**2, "median distance"
    if not 0 < spread < np.inf:
        raise InputError(
            f"gamma={gamma!r} cannot be used: the {what} of a sample of the data is {spread:g}; give gamma as a number"
        )
    return 1.0 / spread
