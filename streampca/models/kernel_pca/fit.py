"""The fit of kernel PCA: plan, landmarks, type of the tiles, components."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MemoryLimitError, hint_for_missing
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.preimages import MOST_ANCHORS, fit_ridge
from streampca.models.kernel_pca.record import KernelPCAFit
from streampca.models.pca.record import signed
from streampca.models.record import swept
from streampca.progress import Progress, logger, silent
from streampca.solvers.base import Wanted, know_scaling
from streampca.solvers.choose import Plan
from streampca.solvers.cost import block_size
from streampca.solvers.dense import Dense
from streampca.solvers.kernel.kernels import MOVABLE, WITHOUT_GAMMA, FourierMap, Kernel, draw_frequencies, gamma_of
from streampca.solvers.kernel.landmarks import (
    draw_rows,
    kmeans_landmarks,
    leverage_landmarks,
    sample_rows,
    seed_centres,
)
from streampca.solvers.kernel.nystrom import (
    KernelSolution,
    Spectrum,
    joined,
    kernel_matrix,
    missed_by,
    needs_float64,
    solve_exact,
    solve_nystrom,
)
from streampca.solvers.krylov import Krylov
from streampca.solvers.restart import with_restarts
from streampca.sources import Source
from streampca.sweep.matrix import FeatureMatrix, feature_tile_length
from streampca.sweep.memory import Budget, Needs, SweepPlan, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import STRIP, Scatter
from streampca.sweep.sweep import Sweeps

FIRST_LANDMARKS = 64  # "auto" starts with these
MISSING_HINT = "fill them (PPCA can: `impute`), or use missing='mean'"
SAMPLE = 1000  # rows that determine gamma and the centre
CHECKED = 1000  # rows that show what float32 tiles lose and what the landmarks miss
SAMPLE_BYTES, LEAST_ROWS = 64 << 20, 50  # size of such a sample of wide rows, and its least length
# Candidates, as a multiple of the number of landmarks, before the first sweep.
FROM_SAMPLE = {"uniform": 1, "kmeans": 4, "leverage": 8, "fourier": 0}
MORE, MOST_LANDMARKS = 1.5, 16_384  # growth and largest number of landmarks of "auto"
PLANNED_LANDMARKS = 1000  # number of landmarks that a plan assumes for "auto"
SKLEARN_BYTES = 80 << 20  # of scikit-learn's k-means, loaded for landmarks="kmeans"
LARGEST_COVARIANCE = 6_000  # the covariance of more Fourier features is not formed
EXPONENT = 1e-5  # error of the kernel's exponents that float32 may have
FEW = 0.5  # landmarks that keep a smaller share of the variance are too few,
NEARLY_ALL = 0.999  # unless they keep this share of the trace: then the kernel hardly differs between samples


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
    return 2 * -(-count // 2) if options.fourier else min(n, count)


def rows_of(count: int, shape: tuple[int, int], least: int = 0) -> int:
    """Return the number of rows to draw, at most `count`; it does not depend on the memory limit."""
    n, d = shape
    return min(n, max(least or LEAST_ROWS, min(count, SAMPLE_BYTES // (8 * d))))


def candidates(options: KernelPCAOptions, shape: tuple[int, int], m: int) -> int:
    """Return the number of candidate rows for m landmarks, before the first sweep."""
    return 0 if options.fourier else rows_of(m * FROM_SAMPLE[options.landmarks], shape, m)


def plan_kernel(source: Source, options: KernelPCAOptions, m: int, budget: Budget) -> SweepPlan:
    """Plan sweeps with m features; raise `MemoryLimitError` if they do not fit."""
    n, d = source.shape
    k, fourier = options.n_components or min(n, m), options.fourier
    forms = not fourier or m <= LARGEST_COVARIANCE
    # The covariance, or a block of vectors; landmarks that move, or samples by anchors.
    partial = 8 * (m + 1) * (block_size(k) if not forms or (m >= n and not fourier) else m + 1)
    if options.landmarks in ("kmeans", "leverage"):
        partial = max(partial, 8 * m * (d + 1))
    anchors = (
        min(MOST_ANCHORS, rows_of(CHECKED, source.shape) if fourier else m) if options.fit_inverse_transform else 0
    )
    partial = max(partial, 8 * anchors * (anchors + d))
    length = feature_tile_length(Scatter().tile_length(m, 4), d, 4)
    # Features, inputs and kernel of a tile, and the temporary of a product in strips.
    tile = 4 * length * (2 * m + 1) + 8 * length * (2 * d + k + 4) + 8 * min(STRIP, m) * m
    # Samples, landmarks and their copy for the kernel, weights; matrices of landmarks and their factors.
    rows = candidates(options, source.shape, m) + rows_of(SAMPLE, source.shape) + rows_of(CHECKED, source.shape)
    driver = 8 * (2 * rows * d + 4 * m * (d + k))
    driver += 8 * (6 * m * m if forms else m * (21 * block_size(k) + 2 * k))
    # Kernel and coordinates of the samples that show what the landmarks miss.
    driver += 0 if fourier else 8 * min(n, CHECKED) * (3 * min(n, CHECKED) + 3 * m)
    if anchors:
        tile += 8 * (anchors * d + length * (d + anchors))
        driver += 8 * anchors * (3 * anchors + 2 * d)
    needs = Needs(
        0, tile, partial=partial, driver=driver, widening=max(1.0, m / d),
        libraries=SKLEARN_BYTES if options.landmarks == "kmeans" else 0,
    )  # fmt: skip
    return plan_sweeps(source, needs, budget, f"kernel PCA with {m} {'features' if fourier else 'landmarks'}")


def plan_kernel_pca(source: Source, options: KernelPCAOptions, *, memory: Any = None, extra_sweeps: int = 0) -> Plan:
    """Predict the cost, without reading any data; "auto" is planned for `PLANNED_LANDMARKS`."""
    check_kernel_data(source, options)
    n, d = source.shape
    m = min(n, PLANNED_LANDMARKS) if options.n_landmarks == "auto" else first_count(options, n)
    planned = plan_kernel(source, options, m, Budget.of(memory))
    also = (options.learns_moments, options.fit_inverse_transform, options.landmarks in ("kmeans", "leverage"))
    sweeps = 1 + extra_sweeps + sum(also)
    exact = m == n and not options.fourier
    what = f"{m} Fourier features" if options.fourier else f"{m} landmarks ({options.landmarks})"
    work = n * (m * (m + 4.0 * d + 100) if not exact else 4.0 * d + 100)
    return Plan(
        **vars(planned), solver=None, name="kernel PCA", reason="all samples, exactly" if exact else what,
        sweep_bytes=source.n_bytes, sweeps=sweeps, seconds=work / 5e10 / planned.threads,
    )  # fmt: skip


def fit_kernel_pca(
    source: Source, options: KernelPCAOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[KernelPCAFit, Sweeps]:
    """Fit kernel PCA; return it, and the sweeps over the inputs to continue with.

    Parameters
    ----------
    source, options : the data and the options of kernel PCA.
    memory, progress : as for `fit_pca`.
    """
    started, budget = time.monotonic(), Budget.of(memory)
    check_kernel_data(source, options)
    n, d = source.shape
    m = first_count(options, n)
    scaling = None if options.learns_moments else Scaling(np.zeros(d))
    planned = plan_kernel(source, options, m, budget)

    def start(part: Source, _: Array | None) -> tuple[SweepPlan, Sweeps]:
        return planned, planned.over(part, options.missing, options.scale, scaling, progress)

    def attempt(_: SweepPlan, sweeps: Sweeps) -> KernelPCAFit:
        return _Fit(sweeps, options, budget).run(m)

    with hint_for_missing(MISSING_HINT):
        fitted, sweeps = with_restarts(source, start, attempt)
    return replace(fitted, seconds=time.monotonic() - started), sweeps


class _Fit:
    """One fit: its sweeps, options and budget, and what becomes known during it."""

    def __init__(self, sweeps: Sweeps, options: KernelPCAOptions, budget: Budget):
        self.sweeps, self.options, self.budget = sweeps, options, budget
        self.n, self.d = sweeps.matrix.source.shape
        self.missing = np.zeros(self.d, np.int64)
        self.kernel: Kernel | None = None
        self.notes: list[str] = []

    def run(self, m: int) -> KernelPCAFit:
        """Learn means and scales, choose the landmarks, compute the components."""
        options = self.options
        if options.learns_moments:
            moments = self.sweeps.moments()
            know_scaling(self.sweeps, moments)
            self.missing = moments.missing
        if options.fourier:
            return self._with_fourier(m)
        if options.n_landmarks != "auto":
            return self._with_landmarks(m)
        m = self._enough(m)
        while True:
            fitted = self._with_landmarks(m)
            more = self._more(m)
            if fitted.kept_trace >= options.target_trace or more == m:
                break
            # The landmarks keep less of all data than of the sample.
            m = more
        if fitted.kept_trace < options.target_trace:
            most = f"{MOST_LANDMARKS} is the largest number of landmarks"
            why = most if m >= MOST_LANDMARKS else "no more fit the memory limit"
            short = f"the landmarks keep less than target_trace={options.target_trace:g}: {why}"
            fitted = replace(fitted, advice=joined(fitted.advice, short))
        return fitted

    def _more(self, m: int) -> int:
        """Return the next number of landmarks to try after m; m itself if no more fit."""
        more = min(self.n, MOST_LANDMARKS, int(np.ceil(m * MORE)))
        try:
            plan_kernel(self.sweeps.matrix.source, self.options, more, self.budget)
        except MemoryLimitError:
            return m
        return more

    def _enough(self, m: int) -> int:
        """Return the number of uniform landmarks that keep the target share of a sample's trace, or as many as fit."""
        m = max(m, min(self.n, self.options.n_components or 1))
        while m < self.n:
            self._cut_for(m)
            kernel, sample, others = self._samples(m)
            share = self._share(kernel, sample[:m], others.astype(np.float64))
            logger.info("%d landmarks keep about %.1f%% of the kernel's trace", m, 100 * share)
            more = self._more(m)
            if share >= self.options.target_trace or more == m:
                break
            m = more
        return m

    def _share(self, kernel: Kernel, landmarks: Array, others: Array) -> float:
        """Return the share of the kernel's trace over other samples that landmarks keep."""
        span = Spectrum.of(kernel_matrix(kernel, landmarks)).span(np.dtype(np.float64), self.n)
        with np.errstate(over="ignore", invalid="ignore"):
            y, r = span.coordinates(kernel, landmarks, others)
            diagonal = kernel.diagonal(others)
            lost = diagonal - 2 * r + span.middle[-1] - np.square(y).sum(axis=1)
            share = 1 - float(lost.sum() / diagonal.sum())
        # The sweep raises an error if the kernel overflows.
        return share if np.isfinite(share) else 1.0

    def _cut_for(self, m: int) -> None:
        """Plan partitions and threads for m features."""
        planned = plan_kernel(self.sweeps.matrix.source, self.options, m, self.budget)
        self.sweeps.threads = planned.threads
        self.sweeps.matrix = replace(
            self.sweeps.matrix, partitions=planned.cut.partitions, slab_length=planned.cut.slab_length
        )

    def _drawn(self, count: int, purpose: int) -> Array:
        """Return `count` uniform random rows in random order; others for each purpose."""
        return draw_rows(self.n, min(self.n, count), [self.options.random_state, purpose])

    def _samples(self, m: int) -> tuple[Kernel, Array, Array]:
        """Read samples; return the kernel, candidates for m landmarks, and other rows to check the landmarks with.

        The candidates are all rows, in order, if m is their number. The first call chooses gamma, from rows of its own.
        """
        options, shape = self.options, (self.n, self.d)
        exact = m >= self.n and not options.fourier
        chosen = np.arange(self.n) if exact else self._drawn(candidates(options, shape, m), 0)
        others = np.setdiff1d(self._drawn(rows_of(CHECKED, shape), 1), chosen[:m] if exact or self._uniform else [])
        some = np.sort(self._drawn(rows_of(SAMPLE, shape), 2))
        rows = np.unique(np.concatenate([chosen, others, some]))
        samples = sample_rows(self.sweeps, rows)
        groups = [samples[np.searchsorted(rows, group)] for group in (chosen, others, some)]
        del samples
        if self.kernel is None:
            gamma = None if options.gamma == "features" else options.gamma
            gamma, function = gamma_of(gamma, options.kernel_name, groups[2]), options.kernel
            self.kernel = Kernel(
                options.kernel_name, gamma, options.degree, options.coef0, function if callable(function) else None
            )
            if self.kernel.movable and not options.learns_moments:
                # Distances are differences of squares, which lose digits far from the origin.
                centre = groups[2].mean(axis=0, dtype=np.float64)
                self.sweeps.matrix = replace(self.sweeps.matrix, scaling=Scaling(centre))
                groups = [(group - centre).astype(group.dtype) for group in groups]
        if self.kernel.name == "rbf":
            largest = max(float(np.square(group, dtype=np.float64).sum(axis=1).max(initial=0.0)) for group in groups)
            self._use_float64(self.kernel.gamma * largest * float(np.finfo(np.float32).eps) > EXPONENT)
        dtype = self.sweeps.matrix.dtype
        return self.kernel, groups[0].astype(dtype, copy=False), groups[1].astype(dtype, copy=False)

    @property
    def _uniform(self) -> bool:
        return self.options.landmarks == "uniform"

    def _use_float64(self, why: bool) -> None:
        """Change to float64 tiles if `why`."""
        if why and self.sweeps.matrix.dtype != np.float64:
            logger.info("float32 tiles are not precise enough for this kernel; using float64")
            self.sweeps.matrix = replace(self.sweeps.matrix, dtype=np.dtype(np.float64))

    def _with_landmarks(self, m: int) -> KernelPCAFit:
        options = self.options
        self._cut_for(m)
        kernel, sample, others = self._samples(m)
        k = options.n_components or min(self.n, m)
        if m >= self.n:
            self._use_float64(why=True)
            points = sample.astype(np.float64)
            return self._record(kernel, points, solve_exact(kernel_matrix(kernel, points), k), "exact")
        points = self._chosen(sample, kernel, m)
        if not len(points):
            raise InputError(
                f"{self.sweeps.matrix.source.name}: k(x, x) is not positive for any sample, so that there are no "
                "landmarks; use another kernel"
            )
        if len(points) < m:
            self.notes.append(f"{len(points)} landmarks instead of {m}: the samples have no more distinct ones")
            k = min(k, len(points)) if options.n_components is None else k
        spectrum = Spectrum.of(kernel_matrix(kernel, points))
        if self.sweeps.matrix.dtype != np.float64:
            self._use_float64(needs_float64(spectrum, kernel, points, others, k, self.n))
            points = points.astype(self.sweeps.matrix.dtype, copy=False)
        span = spectrum.span(self.sweeps.matrix.dtype, self.n)
        solution = solve_nystrom(self.sweeps, kernel, points, span, k)
        fitted = self._record(kernel, points, solution, options.landmarks)
        # With too few others, assume that all the missed variance is along one direction.
        enough = len(others) >= LEAST_ROWS // 2
        lost = solution.lost_variance
        missed = min(lost, missed_by(span, kernel, points, others)) if enough else lost
        return replace(fitted, missed_variance=missed)

    def _chosen(self, sample: Array, kernel: Kernel, m: int) -> Array:
        """Return the landmarks."""
        options = self.options
        if options.landmarks == "uniform":
            return sample[:m]
        if options.landmarks == "kmeans":
            return kmeans_landmarks(self.sweeps, seed_centres(sample, m, options.random_state), options.random_state)
        return leverage_landmarks(self.sweeps, kernel, sample, m, options.random_state)

    def _with_fourier(self, m: int) -> KernelPCAFit:
        options = self.options
        kernel, _, sample = self._samples(m)
        frequencies = draw_frequencies(kernel, m // 2, self.d, options.random_state)
        phases = float(np.abs(sample[:100] @ frequencies.T.astype(sample.dtype)).max())
        self._use_float64(phases * float(np.finfo(np.float32).eps) > EXPONENT)
        sample = sample.astype(self.sweeps.matrix.dtype, copy=False)
        features = FourierMap(frequencies.astype(self.sweeps.matrix.dtype))
        k = options.n_components or min(self.n, m)
        inputs = self.sweeps.matrix
        self.sweeps.matrix = FeatureMatrix.of(inputs, features)
        solver = (
            Dense()
            if m <= LARGEST_COVARIANCE
            else Krylov(block_size(k), k + 12 * block_size(k), seed=options.random_state)
        )
        wanted = Wanted(k, None, 1e-3)
        try:
            solved = solver.solve(self.sweeps, wanted)
        finally:
            inputs = replace(inputs, dtype=self.sweeps.matrix.dtype)
            self.sweeps.matrix = inputs
        error = _fourier_error(kernel, features, sample)
        self.notes.append(
            f"{m} random Fourier features approximate the kernel with a root mean square error of {error:.2g}"
        )
        solution = KernelSolution(
            weights=solved.vectors, kernel_mean=solved.scaling.mean, explained_variance=solved.values,
            certificate=solved.errors.certificate, total_variance=solved.trace, rank=m, advice=solved.advice,
        )  # fmt: skip
        fitted = self._record(kernel, features.frequencies, solution, "fourier", sample)
        return replace(fitted, converged=solved.converged)

    def _record(
        self, kernel: Kernel, points: Array, solution: KernelSolution, method: str, samples: Array | None = None
    ) -> KernelPCAFit:
        """Return the fitted record, the largest weight of each component positive; `samples` replaces landmarks."""
        sweeps = self.sweeps
        assert sweeps.matrix.scaling is not None
        if self.options.n_components is None:
            solution = solution.without_null()
        advice = joined(solution.advice, _too_few(kernel, solution, method))
        solution = replace(solution, weights=signed(solution.weights.T).T, advice=advice)
        fitted = KernelPCAFit(
            **(vars(solution) | swept(sweeps)),
            kernel=kernel,
            points=points,
            fourier=method == "fourier",
            scaling=sweeps.matrix.scaling,
            method=method,
            missing=self.missing,
            missed_variance=0.0 if method == "exact" else math.nan,
            notes=(*sweeps.matrix.source.notes, *self.notes),
        )
        if self.options.fit_inverse_transform:
            anchors = points if samples is None else samples
            ridge = fit_ridge(sweeps, fitted.map, solution, anchors, self.options.alpha)
            fitted = replace(fitted, **swept(sweeps), ridge=ridge)
        if advice:
            logger.warning("%s", advice)
        return fitted


def _too_few(kernel: Kernel, solution: KernelSolution, method: str) -> str:
    """Return advice if the landmarks keep little, or if the kernel makes all or no samples alike."""
    if method == "fourier":
        return ""
    share, values = 1 - solution.lost_variance / solution.total_variance, solution.explained_variance
    has_gamma = kernel.function is None and kernel.name not in WITHOUT_GAMMA
    if share < FEW and solution.kept_trace > NEARLY_ALL and has_gamma:
        return (
            f"the kernel differs between samples by little more than rounding: gamma={kernel.gamma:.3g} is too small; "
            "use gamma='median'"
        )
    larger = f"; gamma={kernel.gamma:.3g} may be too large" if has_gamma else ""
    if share < FEW:
        return f"the landmarks keep {share:.1%} of the variance: use more landmarks{larger}"
    even = solution.total_variance / max(1, solution.rank - 1)
    if kernel.of_differences and solution.rank > 2 and values[0] < 1.01 * even:
        return f"all components have the same variance: no two samples are similar under this kernel{larger}"
    return ""


def _fourier_error(kernel: Kernel, features: FourierMap, sample: Array) -> float:
    """Return the root mean square error of the kernel by these features, over pairs of samples."""
    half = len(sample) // 2
    left, right = (np.array(features(part)) for part in (sample[:half], sample[half : 2 * half]))
    return float(np.sqrt(np.mean((left @ right.T - kernel.values(sample[:half], sample[half : 2 * half])) ** 2)))
