"""Kernel PCA as plain data: what is asked for, what was found, and its scores. `kernel_fit` has the fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, RidgeMap, Scores
from streampca.progress import Progress, silent
from streampca.solvers.kernel.kernels import KERNELS, MOVABLE, FourierMap, Kernel, LandmarkMap
from streampca.solvers.kernel.nystrom import KernelSolution
from streampca.sources import Source
from streampca.sweep.matrix import FeatureMap, Matrix
from streampca.sweep.memory import cut, footprint, memory_limit, process_bytes, thread_count, threads_that_fit
from streampca.sweep.scaling import MISSING, Scaling, check_choice
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps

LANDMARKS = ("uniform", "kmeans", "leverage", "fourier")
DEFAULT_LANDMARKS = 1000
DEFAULT_TARGET = 0.95
# "auto" begins with so many landmarks.
FIRST_LANDMARKS = 64
CURE = "fill them (PPCA can: `impute`), or use missing='mean'"


@dataclass(frozen=True)
class KernelRequest:
    """What is asked for: checked before anything is read. Parameters are those of `KernelPCA`."""

    n_components: int | None = None
    kernel: str | Callable[[Array, Array], Array] = "rbf"
    gamma: float | str | None = "scale"
    degree: float = 3.0
    coef0: float = 1.0
    n_landmarks: int | str = DEFAULT_LANDMARKS
    landmarks: str = "uniform"
    target: float = DEFAULT_TARGET
    scale: str | None = None
    missing: str = "error"
    fit_inverse: bool = False
    alpha: float = 0.1
    memory: str | int | float | None = None
    seed: int = 0
    progress: Progress = field(default=silent, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, KERNELS)
        check_choice("landmarks", self.landmarks, LANDMARKS)
        check_choice("scale", self.scale, (None, "unit"))
        check_choice("missing", self.missing, MISSING)
        if isinstance(self.gamma, str):
            check_choice("gamma", self.gamma, ("scale", "median"))
            if self.gamma == "median" and self.name in ("poly", "sigmoid"):
                raise InputError(f"gamma='median' is for distances, not for kernel={self.name!r}; use 'scale'")
        elif self.gamma is not None and not (_is_number(self.gamma) and 0 < self.gamma < np.inf):
            raise InputError(f"gamma={self.gamma!r} cannot be used: give a positive number, 'scale', 'median' or None")
        whole = isinstance(self.n_landmarks, (int, np.integer)) and not isinstance(self.n_landmarks, bool)
        if self.n_landmarks != "auto" and not (whole and int(self.n_landmarks) >= 2):
            raise InputError(
                f"n_landmarks={self.n_landmarks!r} cannot be used: give a whole number from 2 on, or 'auto'"
            )
        if self.landmarks == "fourier" and self.n_landmarks == "auto":
            raise InputError("landmarks='fourier' has no share of the trace to grow by; give n_landmarks as a number")
        if self.landmarks == "fourier" and self.name not in ("rbf", "laplacian"):
            raise InputError(f"landmarks='fourier' is for kernel='rbf' or 'laplacian', not {self.name!r}")
        for name, low, high in (("degree", 0.0, 100.0), ("target", 0.0, 1.0), ("alpha", 0.0, np.inf)):
            value = getattr(self, name)
            if not (_is_number(value) and low < value < high):
                raise InputError(f"{name}={value!r} cannot be used: give a number between {low:g} and {high:g}")
        if not (_is_number(self.coef0) and np.isfinite(self.coef0)):
            raise InputError(f"coef0={self.coef0!r} cannot be used: give a number")

    @property
    def name(self) -> str:
        """Name of the kernel; that of the function, if it is one."""
        return f"function {getattr(self.kernel, '__name__', '')}".strip() if callable(self.kernel) else self.kernel

    def with_gamma(self, gamma: float) -> Kernel:
        """Return the kernel with all its parameters."""
        function = self.kernel if callable(self.kernel) else None
        return Kernel(self.name, gamma, float(self.degree), float(self.coef0), function)

    @property
    def learns_moments(self) -> bool:
        """Tell whether means and deviations of all samples are needed, which take a sweep."""
        return self.scale is not None or self.missing == "mean"

    def check(self, source: Source) -> None:
        """Refuse data that kernel PCA is not for."""
        n, _ = source.shape
        if source.is_genotypes:
            raise InputError(
                f"{source.name}: kernel PCA takes samples one by one, which genotypes are not stored by; fit it to "
                "their scores: `streampca pca` first, then `streampca kpca NAME.pca.zarr/scores`"
            )
        if n < 2:
            raise InputError(f"{source.name}: variance needs 2 samples or more, got n_samples = {n}")
        most = n if self.n_landmarks == "auto" else min(n, self.first_count(n))
        k = self.n_components
        whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
        if k is not None and not (whole and 1 <= k <= most):
            raise InputError(
                f"n_components={k!r} cannot be used: give a whole number from 1 to {most} (the smaller of {n} samples "
                "and n_landmarks), or None for all"
            )
        if self.missing == "mean" and self.scale is None and self.name not in MOVABLE:
            raise InputError(
                f"missing='mean' needs scale='unit' for kernel={self.name!r}, or fill the missing values first"
            )

    def first_count(self, n: int) -> int:
        """Return how many features there are of n samples, to begin with; Fourier features are pairs."""
        if self.landmarks == "fourier":
            return 2 * -(-int(self.n_landmarks) // 2)
        return min(n, FIRST_LANDMARKS if self.n_landmarks == "auto" else int(self.n_landmarks))

    def count(self, n: int, m: int) -> int:
        """Return the number of components, for n samples and m features."""
        return min(n, m) if self.n_components is None else int(self.n_components)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


@dataclass(frozen=True)
class KernelPCAFit:
    """Components in feature space, with all that is known of them.

    Attributes
    ----------
    kernel : with its parameters as numbers.
    points : (m, d) landmarks, or (m / 2, d) random frequencies, centred and scaled as the inputs are.
    fourier : whether points are frequencies.
    solution : weights, eigenvalues, certificates.
    scaling : of the inputs.
    missing : (d,) missing values of each feature.
    missed : largest variance along any one direction that the landmarks miss, estimated by a sample.
    ridge : map from scores back to samples, if asked for.
    """

    kernel: Kernel
    points: Array
    fourier: bool
    solution: KernelSolution
    scaling: Scaling
    missing: Array
    n_samples: int
    tile_dtype: str
    sweep_seconds: tuple[float, ...]
    bytes_read: int
    seconds: float
    advice: str
    method: str
    missed: float = 0.0
    ridge: RidgeMap | None = None
    notes: tuple[str, ...] = ()
    converged: bool = True
    genotypes: bool = False

    @property
    def map(self) -> FeatureMap:
        """What makes features of samples."""
        return FourierMap(self.points) if self.fourier else LandmarkMap(self.kernel, self.points)

    @property
    def mean(self) -> Array:
        """Centre of the inputs."""
        return self.scaling.mean

    @property
    def explained_variance(self) -> Array:
        """Eigenvalues of the covariance in feature space (n - 1)."""
        return self.solution.values

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalues of the centred kernel matrix of all samples, as scikit-learn gives them."""
        return self.solution.values * (self.n_samples - 1)

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the variance in feature space of each component, at least."""
        return self.solution.values / self.solution.total

    @property
    def certificate(self) -> Array:
        """Bound on |C v - lambda v| / lambda of each component."""
        return self.solution.certificate

    @property
    def kept_variance(self) -> float:
        """Share of the variance in feature space that the landmarks keep, at least."""
        return 1 - self.solution.lost / self.solution.total

    @property
    def estimated_error(self) -> Array:
        """How far an exact eigenvalue may be above the one found, as a share of it; estimated by a sample."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.solution.values > 0, self.missed / self.solution.values, np.inf)

    @property
    def total_variance(self) -> float:
        """Variance in feature space, at most."""
        return self.solution.total

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data."""
        return len(self.sweep_seconds)


@dataclass(frozen=True)
class _Checked:
    """A sink that refuses what is no number."""

    sink: Callable[[int, Array], None]

    def __call__(self, start: int, rows: Array) -> None:
        self.sink(start, finite_scores(rows))


def kernel_scores(
    found: KernelPCAFit, sweeps: Sweeps, check: bool = False, sink: Callable[[int, Array], None] | None = None
) -> Array:
    """Sweep for the scores of the samples of a matrix of inputs; into the sink, if given."""
    dtype = sweeps.matrix.dtype
    scores = Scores.of(found.map, found.solution, dtype)
    pieces, _ = sweeps.run(RowsOf(scores, sink and _Checked(sink), RESTORED_ROWS), "scores", check)
    return finite_scores(np.concatenate(pieces)) if pieces else np.empty((0, len(found.solution.values)), dtype)


def finite_scores(scores: Array) -> Array:
    """Return scores, or refuse those that overflow."""
    if not np.isfinite(scores).all():
        raise InputError("the kernel overflows on some of these samples, much larger than those fitted; leave them out")
    return scores


def kernel_sweeps(
    source: Source, found: KernelPCAFit, missing: str, memory: Any, progress: Progress, what: str, held: int = 0
) -> Sweeps:
    """Plan a sweep over new samples, whose tiles become features, then scores or samples again.

    Parameters
    ----------
    held : numbers of each sample that come to the driver.
    """
    n, d = source.shape
    if d != len(found.mean):
        raise InputError(
            f"{source.name}: X has {d} features, but the components were fitted on {len(found.mean)} features; give "
            "the same features in the same order"
        )
    m, k = found.solution.weights.shape
    planned = cut(source, 0, 0, widening=max(1.0, m / d))
    dtype = np.dtype(found.tile_dtype)
    rows = max(stop - start for start, stop in planned.partitions)
    # Features, weights and the kernel of a few rows; and what a partition hands on, in two copies.
    tile = dtype.itemsize * RESTORED_ROWS * (6 * m + 4 * d + k) + 2 * dtype.itemsize * rows * (d + k)
    need = footprint(source, planned, tile, 0, 8 * (3 * n * held + 2 * m * (d + k)), process_bytes())
    threads = threads_that_fit(need, memory_limit(memory), min(thread_count(), len(planned.partitions)), what)
    matrix = Matrix(source, 0, dtype, missing, None, found.scaling, planned.partitions, planned.slab_length)
    return Sweeps(matrix, threads, progress)
