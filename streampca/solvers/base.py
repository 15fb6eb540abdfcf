"""What solvers share: the problem, the answer, and the first sweep.

Every solver finds leading eigenpairs of S = A'A / (n - 1), where A is the centred and scaled matrix with its rows
along the block axis: S is the covariance of the features (cut along samples), or the Gram matrix of the samples over
n - 1 (cut along features). Both have the same non-zero eigenvalues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.solvers.certificate import Errors, Probe, RowProbe, far_means, probe_of, reachable, with_probes
from streampca.sources.filters import Filter
from streampca.sweep.scaling import Scaling, scale_of
from streampca.sweep.statistics import Moments, Statistic
from streampca.sweep.sweep import Sweeps

logger = logging.getLogger("streampca")
Result = TypeVar("Result")


# A tolerance below this is certified by float64 products: the margin of a probe would be too wide.
PROBE_TOL = 1e-5
TOO_SMALL = "the eigenvalue is too small relative to the largest for double precision; ask for fewer components"


@dataclass(frozen=True)
class Wanted:
    """Number of components, or share of the variance that they explain; each to a tolerance.

    Attributes
    ----------
    certificate : "probe" to measure the rounding of float32 products by random vectors, "exact" to end with float64
        products, "none" for estimates that exclude rounding.
    """

    n_components: int | None
    fraction: float | None
    tol: float
    certificate: str = "probe"

    @property
    def certified(self) -> bool:
        """Whether rounding is measured."""
        return self.certificate != "none"

    @property
    def probes(self) -> bool:
        """Whether float32 products come with probes."""
        return self.certificate == "probe" and self.tol >= PROBE_TOL

    def count(self, values: Array, trace: float) -> int | None:
        """Return how many of these leading eigenvalues are wanted; None if there are too few of them yet."""
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
    errors : bounds on ||S u - theta u||, rounding included, unless estimates were asked for.
    trace : sum of all eigenvalues, the total variance.
    moments, scaling : of the features.
    converged : whether every certificate is within the tolerance.
    advice : what to know or do, in words; empty where all is well.
    following : the next eigenvalue, as far as it is known; it tells whether the last one wanted stands apart.
    scatter : A'A where the solver formed it about the features' mean, unscaled; it merges.
    probe : A'A G in float64, where the scatter is a sum of float32 products; it merges.
    chain : length of the sums in the scatter.
    rows : A U (rows of A x k) for the eigenvectors U, where the solver kept it.
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

    def leading(self, count: int) -> Solution:
        """Return the first `count` pairs alone."""
        return replace(
            self, values=self.values[:count], vectors=self.vectors[:, :count], errors=self.errors.leading(count),
            rows=None if self.rows is None else self.rows[:, :count],
        )  # fmt: skip


def finish(
    sweeps: Sweeps, wanted: Wanted, errors: Errors, vectors: Array, trace: float, moments: Moments, hint: str,
    too_few: str = "", **more: Any,
) -> Solution:  # fmt: skip
    """Return the solution, converged if every certificate is within the tolerance.

    Parameters
    ----------
    hint : what to do about certificates above the tolerance.
    too_few : advice if the pairs are fewer than wanted.
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
    """Sweep for means and scales beforehand where they cannot be had along with the first product.

    Cut along features, each tile has its features whole. Cut along samples, values about part means merge exactly,
    but not if missing entries are to stand at the mean, nor if products need the scale (`folds_scale` is false).
    """
    matrix = sweeps.matrix
    if matrix.axis == 1 or not (matrix.fills or (matrix.scale is not None and not folds_scale)):
        return None
    moments = sweeps.moments()
    know_scaling(sweeps, moments)
    return moments


class NeedsFloat64(Exception):  # noqa: N818
    """The data are too small or too large for products in float32."""


class SamplesLeftOut(Exception):  # noqa: N818
    """Samples have more missing calls than the filter allows; the caller restarts with those that are `full`.

    Attributes
    ----------
    full : mask of the samples to keep.
    seconds, bytes_read : of the sweeps so far.
    """

    def __init__(self, full: Array, seconds: list[float], bytes_read: int):
        super().__init__()
        self.full, self.seconds, self.bytes_read = full, seconds, bytes_read


def in_float64_if_needed(sweeps: Sweeps, attempt: Callable[[], Result]) -> Result:
    """Return attempt(); if values are out of the range of float32 tiles, switch to float64 and try again."""
    try:
        return attempt()
    except NeedsFloat64:
        logger.info("values are out of the range of float32 tiles; restarting in float64")
        sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64), scaling=None)
    return attempt()


def left_out(filter: Filter | None, moments: Moments) -> str:
    """Report how many variants are excluded, and why."""
    missing = moments.missing / np.maximum(moments.count + moments.missing, 1)
    reasons = (filter or Filter()).reasons(moments.mean / 2, missing)
    return ", ".join(f"{int(mask.sum())} {why}" for why, mask in reasons.items() if mask.any())


# The total variance for which products of tiles, and squares of these products, keep all their digits in each type.
VARIANCES = {"float32": (1e-30, 1e30), "float64": (1e-130, 1e130)}
# The variance of each feature that may be scaled by it: sums of its squares keep theirs.
SCALED_VARIANCES = {"float32": (1e-30, 1e30), "float64": (1e-280, 1e280)}


def know_scaling(sweeps: Sweeps, moments: Moments) -> float:
    """Let the matrix use these means and scales from now on; returns the total variance of what it then yields."""
    matrix, n_samples = sweeps.matrix, sweeps.matrix.source.shape[0]
    if matrix.filter is not None and sweeps.sample_missing is not None:
        full = sweeps.sample_missing / matrix.source.shape[1] <= matrix.filter.mind
        if not full.all():
            raise SamplesLeftOut(full, sweeps.seconds, sweeps.bytes_read)
    scale = scale_of(moments, matrix.scale, n_samples, matrix.filter, matrix.divisor)
    if matrix.missing == "detect":
        matrix = replace(matrix, missing="mean" if moments.missing.any() else "error")
    sweeps.matrix = matrix.with_scaling(Scaling(moments.mean, scale))
    if scale is not None and np.isinf(scale).all() and np.isfinite(moments.m2).all():
        raise InputError(f"{matrix.source.name}: no variant is left: {left_out(matrix.filter, moments)}")
    return total_variance(moments, scale, n_samples, matrix.dtype, matrix.source.name)


def total_variance(moments: Moments, scale: Array | None, n_samples: int, dtype: np.dtype[Any], name: str) -> float:
    """Return the sum of the features' variances, once scaled, after checking that products of tiles can hold them."""

    def check_range(variance: float, allowed: dict[str, tuple[float, float]], what: str) -> None:
        least, most = allowed[str(dtype)]
        # Not the other way round: NaN is out of range, too.
        if least <= variance <= most:
            return
        if dtype != np.float64:
            raise NeedsFloat64
        size, flow, fix = ("small", "under", "multiply") if variance < least else ("large", "over", "divide")
        raise InputError(
            f"{what}: values are too {size}: the variance {flow}flows, or nearly (it must be {least:g} to {most:g}); "
            f"{fix} them by a large number"
        )

    variance = moments.variance(n_samples)
    if scale is not None:
        least, most = SCALED_VARIANCES[str(dtype)]
        outside = ~((variance >= least) & (variance <= most) | (variance == 0))
        if outside.any():
            worst = int(outside.argmax())
            check_range(float(variance[worst]), SCALED_VARIANCES, f"{name}: feature {worst} (counted from 0)")
        variance = variance / scale**2
    trace = float(np.sum(variance))
    if dtype == np.float64 and trace == 0:
        raise InputError(f"{name}: all samples are equal (the total variance is zero)")
    check_range(trace, VARIANCES, name)
    return trace


def first_sweep(
    sweeps: Sweeps, statistic: Statistic, label: str, probes: bool = False
) -> tuple[Any, Moments, float, Probe | RowProbe | None]:
    """Sweep for a product and, as cheaply as the cut allows, for the moments; returns both, the trace and the probe."""
    early = learn_moments(sweeps, folds_scale=False)
    value, moments, probe = probed_sweep(sweeps, statistic, label, probes)
    moments = early or moments
    assert moments is not None
    return value, moments, know_scaling(sweeps, moments), probe


def probed_sweep(
    sweeps: Sweeps, statistic: Statistic, label: str, probes: bool
) -> tuple[Any, Moments | None, Probe | RowProbe | None]:
    """Sweep for a statistic, with probes if wanted and if tiles are float32; returns its value, moments, the probe."""
    matrix = sweeps.matrix
    probed = probes and matrix.dtype != np.float64
    both = with_probes(statistic, matrix.n_full) if probed else statistic
    value, moments = sweeps.run(both, label)
    if moments is not None and matrix.missing == "detect" and matrix.merges_means and moments.missing.any():
        logger.info("there are missing values: another sweep replaces them by the mean")
        # The first sweep replaced them by the means of tiles; its moments are right.
        know_scaling(sweeps, moments)
        value, _ = sweeps.run(both, label)
    if not probed:
        return value, moments, None
    value, probe = probe_of(value, both, matrix.source.shape[0])
    return value, moments, probe


def is_null(values: Array, n_full: int) -> Array:
    """Whether eigenvalues are zero to double precision: their directions are arbitrary, and no tolerance applies."""
    return np.asarray(values <= max(n_full, 64) * np.finfo(np.float64).eps * values[0])


def use_float64(sweeps: Sweeps) -> None:
    """Switch to float64 tiles."""
    if sweeps.matrix.dtype != np.float64:
        logger.info("switching to float64 tiles")
        sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64))


def shortfall(errors: Errors, null: Array, wanted: Wanted, scaling: Scaling | None, hint: str) -> str:
    """Report which components miss the tolerance, by how much, and what to do; empty if none does."""
    certificate = errors.certificate
    missed = np.flatnonzero((certificate > wanted.tol) & ~null)
    if missed.size == 0:
        return ""
    limit = reachable(errors, null)
    if far_means(scaling, float(errors.values[0])) > wanted.tol:
        hint = "the means are too large for double precision; subtract a constant from each feature first"
    elif limit > wanted.tol:
        hint = f"float64 rounding limits tol to {limit:.1g} here; increase tol, or ask for fewer components"
    first, count = missed[0] + 1, missed.size
    which = f"component {first} misses" if count == 1 else f"{count} components, the first of them {first}, miss"
    kind = "estimate" if errors.method == "none" else "certificate"
    return f"{which} tol={wanted.tol:g}: {kind} {certificate[missed].max():.2g}; {hint}"


def null_advice(null: Array) -> str:
    """Report from which component on the variance is zero."""
    if not null.any():
        return ""
    rank = int((~null).sum())
    return (
        f"eigenvalues after the first {rank} are zero, or below what double precision resolves beside the largest: "
        "their directions are arbitrary (if features are on very different scales, try scale='unit')"
    )
