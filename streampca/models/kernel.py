"""Kernel PCA as plain functions: plan, fit, scores. The estimator and the commands call these."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import STRIP, Projection, Scatter
from streampca.budget import (
    Cut,
    Footprint,
    cut,
    footprint,
    memory_limit,
    process_bytes,
    thread_count,
    threads_that_fit,
)
from streampca.errors import InputError, MemoryLimitError, curing_gaps
from streampca.kernels import (
    KERNELS,
    WITHOUT_GAMMA,
    FeatureMap,
    FourierMap,
    Kernel,
    LandmarkMap,
    draw_frequencies,
    gamma_of,
)
from streampca.matrix import FeatureMatrix, Matrix, feature_tile_length, tile_dtype
from streampca.models.components import signed
from streampca.models.preimages import MOST_ANCHORS, RESTORED_ROWS, RidgeMap, fit_ridge
from streampca.progress import Progress, logger, silent
from streampca.scaling import MISSING, Scaling, check_choice
from streampca.solvers.base import Wanted, know_scaling
from streampca.solvers.dense import Dense
from streampca.solvers.krylov import Krylov
from streampca.solvers.landmarks import draw_rows, kmeans_landmarks, leverage_landmarks, sample_rows, seed_centres
from streampca.solvers.nystrom import KernelSolution, Span, joined, kernel_matrix, solve_exact, solve_nystrom
from streampca.solvers.plan import Plan, block_size
from streampca.sources import Axis, Source
from streampca.sources.genotypes import VariantSource
from streampca.sweeps import Sweeps, one_blas_thread

Array = NDArray[Any]

LANDMARKS = ("uniform", "kmeans", "leverage", "fourier")
DEFAULT_LANDMARKS = 1000
DEFAULT_TARGET = 0.95
# Rows that gamma, the centre and the type of the tiles are chosen by.
SAMPLE = 1000
# Rows, as a multiple of the landmarks, that these are chosen from before all data are looked at.
FROM_SAMPLE = {"uniform": 1, "kmeans": 4, "leverage": 8, "fourier": 0}
# "auto" begins with so many landmarks, takes half as many again until the target is reached, and no more than the last.
FIRST_LANDMARKS, MORE, MOST_LANDMARKS = 64, 1.5, 16_384
# Above this many features their covariance is not formed.
LARGEST_COVARIANCE = 6_000
# Float32 is used where it gives the exponents of the kernel to this.
EXPONENT = 1e-5
# Below this share of the trace the landmarks are said to be too few.
FEW = 0.5
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
        return str(getattr(self.kernel, "__name__", "function")) if callable(self.kernel) else self.kernel

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
        if isinstance(source, VariantSource):
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
        if self.missing == "mean" and self.scale is None and self.name not in ("rbf", "laplacian"):
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

    def plan(self, source: Source, extra_sweeps: int = 0) -> Plan:
        """Count the cost, without reading; of "auto" that of the default number of landmarks."""
        self.check(source)
        n, d = source.shape
        m = min(n, DEFAULT_LANDMARKS) if self.n_landmarks == "auto" else self.first_count(n)
        limit = memory_limit(self.memory)
        planned, need, threads = plan_kernel(source, self, m, limit)
        sweeps = (
            1
            + extra_sweeps
            + int(self.learns_moments)
            + int(self.fit_inverse)
            + (self.landmarks in ("kmeans", "leverage"))
        )
        exact = m == n and self.landmarks != "fourier"
        what = f"{m} Fourier features" if self.landmarks == "fourier" else f"{m} landmarks ({self.landmarks})"
        work = n * (m * (m + 4.0 * d + 100) if not exact else 4.0 * d + 100)
        return Plan(
            solver=Dense(), name="kernel PCA", reason="all samples, exactly" if exact else what, cut=planned,
            dtype=tile_dtype(source.dtype), threads=threads, peak_bytes=need.peak(threads), limit_bytes=limit,
            resident_bytes=0, sweep_bytes=source.n_bytes, sweeps=sweeps, seconds=work / 5e10 / threads,
        )  # fmt: skip

    def fit(self, source: Source) -> tuple[KernelComponents, Sweeps]:
        """Fit kernel PCA to a source."""
        return fit_kernel(source, self)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


@dataclass(frozen=True)
class KernelComponents:
    """Components in feature space, with all that is known of them.

    Attributes
    ----------
    kernel : with its parameters as numbers.
    points : (m, d) landmarks, or (m / 2, d) random frequencies, centred and scaled as the inputs are.
    fourier : whether points are frequencies.
    solution : weights, eigenvalues, certificates.
    scaling : of the inputs.
    missing : (d,) missing values of each feature.
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
    def total_variance(self) -> float:
        """Variance in feature space, at most."""
        return self.solution.total

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data."""
        return len(self.sweep_seconds)

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return samples and features."""
        return source.samples, source.features


def sample_count(request: KernelRequest, shape: tuple[int, int], m: int, limit: int) -> int:
    """Return how many rows landmarks and gamma are chosen from: as many as are useful, in an eighth of the memory."""
    n, d = shape
    useful = max(SAMPLE, m * FROM_SAMPLE[request.landmarks])
    least = 2 if request.landmarks == "fourier" else m
    return min(n, max(least, min(useful, limit // (8 * 8 * d))))


def plan_kernel(
    source: Source, request: KernelRequest, m: int, limit: int, process: int | None = None
) -> tuple[Cut, Footprint, int]:
    """Return the cut, what sweeps with m features hold, and how many tasks fit at a time; refuse if none does."""
    n, d = source.shape
    k, fourier = request.count(n, m), request.landmarks == "fourier"
    forms = not fourier or m <= LARGEST_COVARIANCE
    # Of the covariance, or of a block of vectors; of landmarks that move, or of samples by anchors.
    partial = 8 * (m + 1) * (block_size(k) if not forms or (m >= n and not fourier) else m + 1)
    if request.landmarks in ("kmeans", "leverage"):
        partial = max(partial, 8 * m * (d + 1))
    if request.fit_inverse:
        partial = max(partial, 8 * MOST_ANCHORS * (MOST_ANCHORS + d))
    planned = cut(source, 0, partial, widening=max(1.0, m / d))
    length = feature_tile_length(Scatter().tile_length(m, 4), d, 4)
    # Features and inputs of a tile with what the kernel makes of them, and the temporary of a product in strips.
    tile = 4 * length * (2 * m + 1) + 8 * length * (2 * d + k + 4) + 8 * min(STRIP, m) * m
    # Sample, landmarks, weights; matrices of landmarks and their factors.
    driver = 8 * (2 * sample_count(request, source.shape, m, limit) * d + 3 * m * (d + k))
    driver += 8 * (6 * m * m if forms else m * (8 * block_size(k) + 13 * block_size(k) + 2 * k))
    if request.fit_inverse:
        driver += 8 * MOST_ANCHORS * (3 * MOST_ANCHORS + 2 * d)
    need = footprint(source, planned, tile, partial, driver, process or process_bytes())
    what = f"kernel PCA with {m} {'features' if fourier else 'landmarks'}"
    return planned, need, threads_that_fit(need, limit, min(thread_count(), len(planned.partitions)), what)


def fit_kernel(source: Source, request: KernelRequest) -> tuple[KernelComponents, Sweeps]:
    """Fit kernel PCA; returns it, and the sweeps over the inputs to go on with."""
    started = time.monotonic()
    request.check(source)
    limit, process = memory_limit(request.memory), process_bytes()
    n, d = source.shape
    m = request.first_count(n)
    planned, _, threads = plan_kernel(source, request, m, limit, process)
    zero = Scaling(np.zeros(d))
    matrix = Matrix(
        source, 0, tile_dtype(source.dtype), request.missing, request.scale, None if request.learns_moments else zero,
        planned.partitions, planned.slab_length,
    )  # fmt: skip
    fit = _Fit(Sweeps(matrix, threads, request.progress), request, limit, process)
    try:
        with one_blas_thread, curing_gaps(CURE):
            found = fit.run(m)
    finally:
        fit.sweeps.rest()
    return replace(found, seconds=time.monotonic() - started), fit.sweeps


class _Fit:
    """One fit: its sweeps, and what becomes known on the way."""

    def __init__(self, sweeps: Sweeps, request: KernelRequest, limit: int, process: int):
        self.sweeps, self.request, self.limit, self.process = sweeps, request, limit, process
        self.n, self.d = sweeps.matrix.source.shape
        self.missing = np.zeros(self.d, np.int64)
        self.kernel: Kernel | None = None
        self.notes: list[str] = []

    def run(self, m: int) -> KernelComponents:
        """Learn the inputs, choose the features, find the components."""
        request = self.request
        if request.learns_moments:
            moments = self.sweeps.moments()
            know_scaling(self.sweeps, moments)
            self.missing = moments.missing
        if request.landmarks == "fourier":
            return self._with_fourier(m)
        if request.n_landmarks != "auto":
            return self._with_landmarks(m)
        m = self._enough(m)
        while True:
            found = self._with_landmarks(m)
            more = self._more(m)
            if found.solution.kept >= request.target or more == m:
                break
            # The sample promised more than all data keep.
            m = more
        if found.solution.kept < request.target:
            short = f"the target of {request.target:.1%} was not reached: no more landmarks fit the memory limit"
            found = replace(found, advice=joined(found.advice, short))
        return found

    def _more(self, m: int) -> int:
        """Return how many landmarks to try after m; m itself if no more fit."""
        more = min(self.n, MOST_LANDMARKS, int(np.ceil(m * MORE)))
        try:
            plan_kernel(self.sweeps.matrix.source, self.request, more, self.limit, self.process)
        except MemoryLimitError:
            return m
        return more

    def _enough(self, m: int) -> int:
        """Return how many landmarks, drawn evenly, keep the target share of a sample's trace; or as many as fit."""
        m = max(m, min(self.n, self.request.n_components or 1))
        while m < self.n:
            self._cut_for(m)
            sample = self._sample(m + SAMPLE, m)
            kernel = self._kernel(sample)
            landmarks, others = sample[:m], sample[m:].astype(np.float64)
            span = Span.of(kernel_matrix(kernel, landmarks), np.dtype(np.float64))
            phi = kernel.values(others, landmarks.astype(np.float64)) @ span.B
            share = float(np.square(phi).sum() / kernel.diagonal(others).sum())
            logger.info("%d landmarks keep about %.1f%% of the kernel's trace", m, 100 * share)
            more = self._more(m)
            if share >= self.request.target or more == m:
                break
            m = more
        return m

    def _cut_for(self, m: int) -> None:
        """Cut the data for so many features."""
        source = self.sweeps.matrix.source
        planned, _, self.sweeps.threads = plan_kernel(source, self.request, m, self.limit, self.process)
        self.sweeps.matrix = replace(
            self.sweeps.matrix, partitions=planned.partitions, slab_length=planned.slab_length
        )  # fmt: skip

    def _sample(self, count: int, seed: int = 0) -> Array:
        """Return so many rows, drawn evenly, in random order."""
        return sample_rows(self.sweeps, draw_rows(self.n, min(self.n, count), [self.request.seed, seed]))

    def _kernel(self, sample: Array) -> Kernel:
        """Return the kernel, with gamma from the first sample if it is to be found."""
        if self.kernel is None:
            some = sample[draw_rows(len(sample), min(len(sample), SAMPLE), self.request.seed)]
            self.kernel = self.request.with_gamma(gamma_of(self.request.gamma, self.request.name, some))
        return self.kernel

    def _centred(self, sample: Array, kernel: Kernel) -> Array:
        """Let the inputs be centred by a sample, where the kernel allows it, and return the sample so."""
        matrix = self.sweeps.matrix
        assert matrix.scaling is not None
        if not kernel.of_differences or self.request.learns_moments or matrix.scaling.mean.any():
            return sample
        # Distances are differences of squares, which lose digits far from the origin.
        centre = sample.mean(axis=0, dtype=np.float64)
        self.sweeps.matrix = replace(matrix, scaling=Scaling(centre))
        return np.asarray((sample - centre).astype(matrix.dtype))

    def _in_float64(self, sample: Array, why: bool) -> Array:
        """Change to float64 tiles if need be."""
        if why and self.sweeps.matrix.dtype != np.float64:
            logger.info("float32 tiles are not precise enough for this kernel; using float64")
            self.sweeps.matrix = replace(self.sweeps.matrix, dtype=np.dtype(np.float64))
        return sample.astype(self.sweeps.matrix.dtype, copy=False)

    def _with_landmarks(self, m: int) -> KernelComponents:
        request = self.request
        self._cut_for(m)
        if m >= self.n:
            sample = sample_rows(self.sweeps, np.arange(self.n))
        else:
            sample = self._sample(sample_count(request, (self.n, self.d), m, self.limit))
        kernel = self._kernel(sample)
        sample = self._centred(sample, kernel)
        if kernel.name == "rbf":
            largest = kernel.gamma * float(np.square(sample, dtype=np.float64).sum(axis=1).max())
            sample = self._in_float64(sample, largest * float(np.finfo(np.float32).eps) > EXPONENT)
        k = request.count(self.n, m)
        if m >= self.n:
            points = self._in_float64(sample, True)
            K = kernel_matrix(kernel, points)
            return self._found(kernel, points, solve_exact(K, k), "exact")
        points = self._chosen(sample, kernel, m)
        if not len(points):
            raise InputError(
                f"{self.sweeps.matrix.source.name}: k(x, x) is not positive for any sample: there are no "
                "landmarks; use another kernel"
            )
        if len(points) < m:
            self.notes.append(f"{len(points)} landmarks, not {m}: no more different ones were found")
            k = min(k, len(points)) if request.n_components is None else k
        K = kernel_matrix(kernel, points)
        span = Span.of(K, self.sweeps.matrix.dtype)
        if self.sweeps.matrix.dtype != np.float64 and span.needs_float64(K, k):
            points = self._in_float64(points, True)
            span = Span.of(K, self.sweeps.matrix.dtype)
        solution = solve_nystrom(self.sweeps, kernel, points, K, span, k)
        if len(span.values) < len(points) and kernel.name not in ("linear", "cosine"):
            logger.info("%d of %d landmarks' directions are above rounding", len(span.values), len(points))
        return self._found(kernel, points, solution, request.landmarks)

    def _chosen(self, sample: Array, kernel: Kernel, m: int) -> Array:
        """Return the landmarks."""
        request = self.request
        if request.landmarks == "uniform":
            return sample[:m]
        if request.landmarks == "kmeans":
            return kmeans_landmarks(self.sweeps, seed_centres(sample, m, request.seed), request.seed)
        return leverage_landmarks(self.sweeps, kernel, sample, m, request.seed)

    def _with_fourier(self, m: int) -> KernelComponents:
        request = self.request
        sample = self._sample(sample_count(request, (self.n, self.d), m, self.limit))
        kernel = self._kernel(sample)
        sample = self._centred(sample, kernel)
        frequencies = draw_frequencies(kernel, m // 2, self.d, request.seed)
        phases = float(np.abs(sample[:16] @ frequencies.T.astype(sample.dtype)).max())
        sample = self._in_float64(sample, phases * float(np.finfo(np.float32).eps) > EXPONENT)
        features = FourierMap(frequencies.astype(self.sweeps.matrix.dtype))
        k = request.count(self.n, m)
        inputs = self.sweeps.matrix
        self.sweeps.matrix = FeatureMatrix.of(inputs, features)
        solver = (
            Dense() if m <= LARGEST_COVARIANCE else Krylov(block_size(k), k + 12 * block_size(k), seed=request.seed)
        )
        wanted = Wanted(k, None, 1e-3)
        try:
            found = solver.solve(self.sweeps, wanted)
        finally:
            inputs = replace(inputs, dtype=self.sweeps.matrix.dtype)
            self.sweeps.matrix = inputs
        error = _fourier_error(kernel, features, sample)
        self.notes.append(
            f"{m} random Fourier features give the kernel with an error of {error:.2g} (root mean square)"
        )
        solution = KernelSolution(
            found.vectors, found.scaling.mean, None, found.values, found.certificate, found.trace, 0.0, 1.0, m,
            found.advice,
        )  # fmt: skip
        return self._found(kernel, features.frequencies, solution, "fourier", sample)

    def _found(
        self, kernel: Kernel, points: Array, solution: KernelSolution, method: str, samples: Array | None = None
    ) -> KernelComponents:
        """Return the components, the largest weight of each positive; `samples` are some, if points are none."""
        sweeps = self.sweeps
        assert sweeps.matrix.scaling is not None
        solution = replace(solution, weights=signed(solution.weights.T).T)
        advice = joined(solution.advice, _too_few(kernel, solution, method))
        found = KernelComponents(
            kernel, points, method == "fourier", solution, sweeps.matrix.scaling, self.missing, self.n,
            str(sweeps.matrix.dtype), (), 0, 0.0, advice, method, notes=tuple(self.notes),
        )  # fmt: skip
        if self.request.fit_inverse:
            found = replace(
                found,
                ridge=fit_ridge(
                    sweeps, found.map, solution, samples if samples is not None else points, self.request.alpha
                ),
            )
        if advice:
            logger.warning("%s", advice)
        return replace(found, sweep_seconds=tuple(sweeps.seconds), bytes_read=sweeps.bytes_read)


def _too_few(kernel: Kernel, solution: KernelSolution, method: str) -> str:
    """Say if the landmarks keep little, or if this kernel makes all samples alike, or none."""
    if method == "fourier":
        return ""
    share, values = 1 - solution.lost / solution.total, solution.values
    has_gamma = kernel.function is None and kernel.name not in WITHOUT_GAMMA
    if share < FEW <= solution.kept and has_gamma:
        return (
            f"the kernel hardly differs between samples, too little to be told from rounding: gamma={kernel.gamma:.3g} "
            "is too small; try gamma='median'"
        )
    larger = f"; gamma={kernel.gamma:.3g} may be too large" if has_gamma else ""
    if share < FEW:
        return f"the landmarks keep {share:.1%} of the variance: take more of them{larger}"
    even = solution.total / max(1, solution.rank - 1)
    if kernel.of_differences and len(values) > 1 and 0.99 * even < values[-1] <= values[0] < 1.01 * even:
        return f"all components have the same variance: no two samples are alike by this kernel{larger}"
    return ""


def _fourier_error(kernel: Kernel, features: FourierMap, sample: Array) -> float:
    """Return the root mean squared error of the kernel by these features, between pairs of a sample."""
    half = len(sample) // 2
    left, right = (np.array(features(part)) for part in (sample[:half], sample[half : 2 * half]))
    return float(np.sqrt(np.mean((left @ right.T - kernel.values(sample[:half], sample[half : 2 * half])) ** 2)))


def kernel_scores(
    found: KernelComponents, sweeps: Sweeps, check: bool = False, sink: Callable[[int, Array], None] | None = None
) -> Array:
    """Sweep for the scores of the samples of a matrix of inputs; into the sink, if given."""
    inputs = sweeps.matrix
    sweeps.matrix = FeatureMatrix.of(inputs, found.map, Scaling(found.solution.centre))
    k = found.solution.weights.shape[1]
    try:
        pieces, _ = sweeps.run(Projection(found.solution.weights.astype(inputs.dtype), sink), "scores", check)
    finally:
        sweeps.matrix = inputs
        sweeps.rest()
    return np.concatenate(pieces)[:, :-1] if pieces else np.empty((0, k), inputs.dtype)


def kernel_sweeps(
    source: Source, found: KernelComponents, missing: str, memory: Any, progress: Progress, what: str, held: int = 0
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
