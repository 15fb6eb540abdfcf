"""What solvers share: what to compute, the solution, and the first sweep.

Every solver computes leading eigenpairs of S = A'A / (n - 1), where A is the centred and scaled matrix with its rows
along the block axis: S is the covariance of the features (cut along samples), or the Gram matrix of the samples divided
by n - 1 (cut along features). Both have the same non-zero eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.solvers.certificate import Errors, Probe, RowProbe, far_means, probe_of, reachable, with_probes
from streampca.solvers.noise import NoiseTest
from streampca.solvers.restart import NeedsFloat64, SamplesExcluded
from streampca.sources.thresholds import Thresholds
from streampca.sweep.matrix import Matrix
from streampca.sweep.scaling import Scaling, scale_of
from streampca.sweep.statistics import Moments, Statistic
from streampca.sweep.sweep import Sweeps

# A tolerance below this is certified by float64 products: the margin of a probe would be too wide.
PROBE_TOL = 1e-5
TOO_SMALL = "the eigenvalue is too small relative to the largest for double precision; request fewer components"


@dataclass(frozen=True)
class Wanted:
    """What to compute: a number of components, or a share of the variance, to a tolerance.

    Attributes
    ----------
    certificate : "probe" to measure the rounding of float32 products by random vectors, "exact" to end with float64
        products, "none" for estimates that exclude rounding.
    resolve : components that must converge to the tolerance: "all", or "signal" for those that can be distinguished
        from noise. None to make no test of noise; all must converge.
    """

    n_components: int | None
    fraction: float | None
    tol: float
    certificate: str = "probe"
    resolve: str | None = None

    @property
    def certified(self) -> bool:
        """Whether rounding is measured."""
        return self.certificate != "none"

    @property
    def needs_float64(self) -> bool:
        """Whether the tolerance is too small for float32 products."""
        return self.tol < PROBE_TOL

    @property
    def probes(self) -> bool:
        """Whether float32 products come with probes."""
        return self.certificate == "probe" and not self.needs_float64

    def count(self, values: Array, trace: float) -> int | None:
        """Return how many of these leading eigenvalues to compute; None if there are too few of them yet."""
        if self.n_components is not None:
            return self.n_components if len(values) >= self.n_components else None
        assert self.fraction is not None
        enough = np.cumsum(values) > self.fraction * trace * (1 - 1e-12)
        return int(enough.argmax()) + 1 if enough.any() else None


@dataclass(frozen=True)
class Solution:
    """Leading eigenpairs of S, each with its certificate.

    Attributes
    ----------
    values, vectors : eigenvalues (k,), descending, and eigenvectors (N x k).
    errors : bounds on ||S u - theta u||, rounding included, or estimates without it.
    trace : sum of all eigenvalues, the total variance.
    moments, scaling : of the features.
    converged : whether every certificate is within the tolerance.
    advice : what to know or do; empty if nothing is wrong.
    following : the next eigenvalue, if known; it shows whether there is a gap after the last component.
    scatter : A'A about the means, unscaled, if the solver formed it; it merges.
    probe : A'A G in float64, if the scatter is a sum of float32 products; it merges.
    chain : length of the sums in the scatter.
    rows : A U (rows of A x k) for the eigenvectors U, if the solver kept it.
    noise : test of each component against noise.
    """

    values: Array
    vectors: Array
    errors: Errors
    trace: float
    moments: Moments
    scaling: Scaling
    converged: bool
    advice: str = ""
    following: float | None = None
    scatter: Array | None = None
    probe: Array | None = None
    chain: int = 0
    rows: Array | None = None
    noise: NoiseTest | None = None

    def leading(self, count: int) -> Solution:
        """Return the first `count` pairs."""
        return replace(
            self, values=self.values[:count], vectors=self.vectors[:, :count], errors=self.errors.leading(count),
            rows=None if self.rows is None else self.rows[:, :count],
            noise=None if self.noise is None else self.noise.leading(count),
        )  # fmt: skip


def finish(
    sweeps: Sweeps, wanted: Wanted, errors: Errors, vectors: Array, trace: float, moments: Moments,
    hint: str = TOO_SMALL, too_few: str = "", **more: Any,
) -> Solution:  # fmt: skip
    """Return the solution, converged if every certificate is within the tolerance.

    Parameters
    ----------
    hint : what to do about certificates above the tolerance.
    too_few : advice if there are too few pairs.
    more : other attributes of the solution.
    """
    matrix = sweeps.matrix
    null = is_null(errors.values, matrix.n_full) & (matrix.dtype == np.float64)
    advice = shortfall(errors, null, wanted, matrix.known_scaling, hint)
    if not advice and wanted.count(errors.values, trace) is None:
        advice = too_few
    return Solution(
        errors.values, vectors, errors, trace, moments, matrix.known_scaling, converged=not advice,
        advice=advice or null_advice(null), **more,
    )  # fmt: skip


def learn_moments(sweeps: Sweeps, folds_scale: bool) -> Moments | None:
    """Sweep for means and scales if the first product cannot compute them; None if it can.

    Cut along features, each tile has all samples. Cut along samples, sums about the means of parts merge exactly, but
    not if missing entries are replaced by the mean, nor if products need the scale (`folds_scale` is false).
    """
    matrix = sweeps.matrix
    if matrix.axis == 1 or not (matrix.fills or (matrix.scale is not None and not folds_scale)):
        return None
    moments = sweeps.moments()
    know_scaling(sweeps, moments)
    return moments


def excluded_variants(filter: Thresholds | None, moments: Moments) -> str:
    """Report how many variants are excluded, and why."""
    missing = moments.missing / np.maximum(moments.count + moments.missing, 1)
    reasons = (filter or Thresholds()).reasons(moments.mean / 2, missing)
    return ", ".join(f"{int(mask.sum())} {why}" for why, mask in reasons.items() if mask.any())


# Total variance for which products of tiles, and squares of these products, keep all their digits, by type.
VARIANCES = {"float32": (1e-30, 1e30), "float64": (1e-130, 1e130)}
# Variance of a feature that may be divided by its deviation: sums of its squares keep all their digits.
SCALED_VARIANCES = {"float32": (1e-30, 1e30), "float64": (1e-280, 1e280)}


def know_scaling(sweeps: Sweeps, moments: Moments) -> float:
    """Let the matrix use these means and scales from now on; return the total variance of the scaled features."""
    matrix, n_samples = sweeps.matrix, sweeps.matrix.source.shape[0]
    if matrix.filter is not None and sweeps.all_missing is not None:
        kept = sweeps.all_missing / matrix.source.shape[1] <= matrix.filter.mind
        if not kept.all():
            raise SamplesExcluded(kept)
    scale = scale_of(moments, matrix.scale, n_samples, matrix.filter, matrix.divisor)
    if matrix.missing == "detect":
        matrix = replace(matrix, missing="mean" if moments.missing.any() else "error")
    sweeps.matrix = replace(matrix, scaling=Scaling(moments.mean, scale))
    if scale is not None and np.isinf(scale).all() and np.isfinite(moments.m2).all():
        raise InputError(f"{matrix.source.name}: no variant is left: {excluded_variants(matrix.filter, moments)}")
    return total_variance(moments, scale, n_samples, matrix.dtype, matrix.source.name)


def total_variance(moments: Moments, scale: Array | None, n_samples: int, dtype: np.dtype[Any], name: str) -> float:
    """Return the sum of the variances of the scaled features; raise if products of tiles cannot represent it."""
    problem = out_of_range(moments, scale, n_samples, dtype)
    if problem and dtype != np.float64:
        raise NeedsFloat64
    if problem:
        raise InputError(f"{name}: {problem}")
    return _trace(moments.variance(n_samples), scale)


def _trace(variance: Array, scale: Array | None) -> float:
    return float(np.sum(variance if scale is None else variance / scale**2))


def out_of_range(moments: Moments, scale: Array | None, n_samples: int, dtype: np.dtype[Any]) -> str:
    """Report a variance that products of tiles of this type cannot represent; empty if there is none."""
    variance, where = moments.variance(n_samples), ""
    least, most = SCALED_VARIANCES[str(dtype)]
    outside = np.flatnonzero(~((variance >= least) & (variance <= most) | (variance == 0)))
    if scale is not None and outside.size:
        value, where = float(variance[outside[0]]), f"feature {outside[0]} (counted from 0): "
    else:
        value, (least, most) = _trace(variance, scale), VARIANCES[str(dtype)]
    # In this form NaN is out of range.
    if least <= value <= most:
        return ""
    if value == 0:
        step = float(np.spacing(np.abs(moments.mean).max()))
        rounded = f"; float64 rounds them to multiples of {step:g}: subtract an offset first" if step > 1 else ""
        return f"all samples are equal (the total variance is zero){rounded or '; check the data'}"
    size, flow, fix = ("small", "under", "multiply") if value < least else ("large", "over", "divide")
    return (
        f"{where}values are too {size}: the variance {flow}flows, or nearly (it must be {least:g} to {most:g}); {fix} "
        "them by a large number"
    )


def first_sweep(
    sweeps: Sweeps, statistic: Statistic, label: str, probes: bool = False
) -> tuple[Any, Moments, float, Probe | RowProbe | None]:
    """Sweep for a product and the moments, in one sweep if possible; return both, the trace and the probe."""
    early = learn_moments(sweeps, folds_scale=False)
    value, moments, probe = probed_sweep(sweeps, statistic, label, probes)
    moments = early or moments
    assert moments is not None
    return value, moments, know_scaling(sweeps, moments), probe


def probed_sweep(
    sweeps: Sweeps, statistic: Statistic, label: str, probes: bool
) -> tuple[Any, Moments | None, Probe | RowProbe | None]:
    """Sweep for a statistic, with probes if tiles are float32; return its value, the moments and the probe."""
    matrix = sweeps.matrix
    probed = probes and matrix.dtype != np.float64
    both = with_probes(statistic, matrix.n_full) if probed else statistic
    value, moments = sweeps.run(both, label)
    if moments is not None and matrix.missing == "detect" and matrix.merges_means and moments.missing.any():
        logger.info("there are missing values: another sweep replaces them by the mean")
        # The first sweep replaced them by the means of tiles; its moments are correct.
        know_scaling(sweeps, moments)
        value, _ = sweeps.run(both, label)
    if not probed:
        return value, moments, None
    value, probe = probe_of(value, both, matrix.source.shape[0])
    return value, moments, probe


def is_null(values: Array, n_full: int) -> Array:
    """Whether eigenvalues are zero to double precision: their directions are arbitrary, and no tolerance applies."""
    return np.asarray(values <= max(n_full, 64) * np.finfo(np.float64).eps * values[0])


def rank_bound(matrix: Matrix, moments: Moments) -> int:
    """Return how many eigenvalues can differ from zero: the features that vary, or one less than samples."""
    scale = matrix.known_scaling.scale
    used = moments.m2 > 0 if scale is None else (moments.m2 > 0) & np.isfinite(scale)
    return min(int(used.sum()), matrix.source.shape[0] - 1)


def use_float64(sweeps: Sweeps) -> None:
    """Switch to float64 tiles."""
    if sweeps.matrix.dtype != np.float64:
        logger.info("switching to float64 tiles")
        sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64))


def shortfall(errors: Errors, null: Array, wanted: Wanted, scaling: Scaling | None, hint: str) -> str:
    """Report which components miss the tolerance, by how much, and what to do; empty if none does."""
    certificate = errors.certificate
    missed = np.flatnonzero(errors.missed(wanted.tol) & ~null)
    if missed.size == 0:
        return ""
    limit = reachable(errors, null)
    if far_means(scaling, float(errors.values[0])) > wanted.tol:
        hint = "the means are too large for double precision; subtract a constant from each feature first"
    elif limit > wanted.tol:
        hint = f"float64 rounding limits tol to {limit:.1g} here; increase tol, or request fewer components"
    first, count = missed[0] + 1, missed.size
    which = f"component {first} misses" if count == 1 else f"{count} components (the first is {first}) miss"
    kind = "estimate" if errors.method == "none" else "certificate"
    return f"{which} tol={wanted.tol:g}: {kind} {certificate[missed].max():.2g}; {hint}"


def null_advice(null: Array) -> str:
    """Report from which component on the variance is zero."""
    if not null.any():
        return ""
    rank = int((~null).sum())
    return (
        f"eigenvalues after the first {rank} are zero, or too small relative to the largest for double precision: "
        "their directions are arbitrary (if features are on very different scales, try scale='unit')"
    )
