"""Kernel PCA: checks of the data, the fitted record, and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, RidgeMap, Scores
from streampca.models.record import Fitted
from streampca.progress import Progress
from streampca.solvers.kernel.kernels import MOVABLE, FourierMap, Kernel, LandmarkMap
from streampca.solvers.kernel.nystrom import KernelSolution
from streampca.sources import Source
from streampca.sweep.matrix import FeatureMap
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps

FIRST_LANDMARKS = 64  # "auto" starts with these
MISSING_HINT = "fill them (PPCA can: `impute`), or use missing='mean'"


def kernel_of(options: KernelPCAOptions, gamma: float) -> Kernel:
    """Return the kernel with all its parameters."""
    function = options.kernel if callable(options.kernel) else None
    return Kernel(options.kernel_name, gamma, options.degree, options.coef0, function)


def learns_moments(options: KernelPCAOptions) -> bool:
    """Whether means and deviations of all samples are needed, which take a sweep."""
    return options.scale is not None or options.missing == "mean"


def check_kernel_data(source: Source, options: KernelPCAOptions) -> None:
    """Raise `InputError` for data that kernel PCA cannot be fitted to."""
    n, _ = source.shape
    if source.is_genotypes:
        raise InputError(
            f"{source.name}: kernel PCA reads samples one by one, but genotypes are stored by variant; fit it to their "
            "scores: `streampca pca` first, then `streampca kpca NAME.pca.zarr/scores`"
        )
    if n < 2:
        raise InputError(f"{source.name}: kernel PCA needs at least 2 samples, got n_samples = {n}")
    most = n if options.n_landmarks == "auto" else min(n, first_count(options, n))
    if options.n_components is not None and options.n_components > most:
        raise InputError(
            f"n_components must be at most {most} (the smaller of {n} samples and n_landmarks), got "
            f"{options.n_components}"
        )
    if options.missing == "mean" and options.scale is None and options.kernel_name not in MOVABLE:
        raise InputError(
            f"missing='mean' needs scale='unit' for kernel={options.kernel_name!r}, or fill the missing values first"
        )


def first_count(options: KernelPCAOptions, n: int) -> int:
    """Return the number of features to start with, for n samples; Fourier features are pairs."""
    count = FIRST_LANDMARKS if options.n_landmarks == "auto" else options.n_landmarks
    return 2 * -(-count // 2) if options.landmarks == "fourier" else min(n, count)


@dataclass(frozen=True, kw_only=True)
class KernelPCAFit(Fitted):
    """Fitted components in feature space.

    Attributes
    ----------
    kernel : with its parameters.
    points : (m, d) landmarks, or (m / 2, d) random frequencies, centred and scaled as the inputs are.
    fourier : whether points are frequencies.
    solution : weights, eigenvalues, certificates.
    scaling : of the inputs.
    missed : largest variance along one direction that the landmarks miss, estimated from a sample.
    ridge : map from scores back to samples, if learnt.
    others : as for `Fitted`.
    """

    kernel: Kernel
    points: Array
    fourier: bool
    solution: KernelSolution
    scaling: Scaling
    method: str
    missed: float = 0.0
    ridge: RidgeMap | None = None

    @property
    def map(self) -> FeatureMap:
        """The map from samples to features."""
        return FourierMap(self.points) if self.fourier else LandmarkMap(self.kernel, self.points)

    @property
    def mean(self) -> Array:
        """Centre of the inputs."""
        return self.scaling.mean

    @property
    def scale(self) -> Array | None:
        """Scale of each feature; None if features are not scaled."""
        return self.scaling.scale

    @property
    def landmarks(self) -> Array:
        """Landmarks in units of the data; for Fourier features the frequencies."""
        points = self.points.astype(np.float64)
        return np.asarray(points if self.fourier else self.scaling.restore(points))

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return len(self.solution.values)

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
    def kept_trace(self) -> float:
        """Share of the sum of k(x, x) that the landmarks keep; NaN for Fourier features."""
        return float("nan") if self.fourier else self.solution.kept

    @property
    def kept_variance(self) -> float:
        """Share of the variance in feature space that the landmarks keep, at least; NaN for Fourier features."""
        return float("nan") if self.fourier else 1 - self.solution.lost / self.solution.total

    @property
    def weights(self) -> Array:
        """(m, k) weights of the features in each component."""
        return self.solution.weights

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks, or of Fourier features."""
        return len(self.solution.weights)

    @property
    def gamma(self) -> float:
        """Coefficient of the kernel."""
        return self.kernel.gamma

    @property
    def estimated_error(self) -> Array:
        """Relative distance of the exact eigenvalues above these, estimated from a sample."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.solution.values > 0, self.missed / self.solution.values, np.inf)

    @property
    def total_variance(self) -> float:
        """Variance in feature space, at most."""
        return self.solution.total


@dataclass(frozen=True)
class _Checked:
    """A sink that checks for overflow."""

    sink: Callable[[int, Array], None]

    def __call__(self, start: int, rows: Array) -> None:
        self.sink(start, finite_scores(rows))


def kernel_scores(
    found: KernelPCAFit, sweeps: Sweeps, check: bool = False, sink: Callable[[int, Array], None] | None = None
) -> Array:
    """Sweep for the scores of samples; into the sink, if given."""
    dtype = sweeps.matrix.dtype
    scores = Scores.of(found.map, found.solution, dtype)
    pieces, _ = sweeps.run(RowsOf(scores, sink and _Checked(sink), RESTORED_ROWS), "scores", check)
    return finite_scores(np.concatenate(pieces)) if pieces else np.empty((0, len(found.solution.values)), dtype)


def finite_scores(scores: Array) -> Array:
    """Return scores; raise `InputError` if they overflow."""
    if not np.isfinite(scores).all():
        raise InputError("the kernel overflows on samples that are much larger than the fitted ones; exclude them")
    return scores


def kernel_sweeps(
    source: Source, found: KernelPCAFit, missing: str, memory: Any, progress: Progress, restores: bool = False,
    held: bool = False,
) -> Sweeps:  # fmt: skip
    """Plan a sweep over new samples, whose tiles become features, then scores or samples again.

    Parameters
    ----------
    restores : whether scores are mapped back to samples.
    held : whether the driver gets the result; else tasks write it.
    """
    n, d = source.shape
    if d != len(found.mean):
        raise InputError(
            f"{source.name}: X has {d} features, but the components were fitted on {len(found.mean)} features; give "
            "the same features in the same order"
        )
    m, k = found.solution.weights.shape
    dtype, width = np.dtype(found.tile_dtype), d if restores else k
    needs = Needs(
        0,
        # Features, weights and the kernel of a few rows; and the result of a partition, joined and written.
        tile=dtype.itemsize * RESTORED_ROWS * (6 * m + 4 * d + k),
        row=(2 + WRITE_COPIES) * dtype.itemsize * width,
        driver=8 * (3 * n * width * held + 2 * m * (d + k)),
        widening=max(1.0, m / d),
    )
    what = "denoising" if restores else "projecting"
    planned = plan_sweeps(source, needs, Budget.of(memory), what, dtype=dtype)
    return planned.over(source, missing, None, found.scaling, progress)
