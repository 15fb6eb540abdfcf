"""Accumulators that grow batch by batch and merge: what `partial_fit` and `merge` stand on.

While the d x d scatter fits the memory limit it is kept, and all is exact. Beyond that a sketch of l rows is kept,
whose scatter differs from the true one by no more than what was cut off in all; this is added to the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import Moments, Scatter, between_means, centre_by_own_mean, combine_moments, symmetric
from streampca.errors import InputError
from streampca.models.components import Components, Request, signed
from streampca.scaling import SCALES, Scaling, check_choice, scale_of
from streampca.solvers.base import certify, far_means, is_null, null_advice, shortfall, total_variance
from streampca.solvers.dense import leading_pairs
from streampca.sweeps import one_blas_thread

Array = NDArray[Any]


@dataclass(frozen=True)
class Summary:
    """Moments and scatter of the samples seen so far, or a sketch of the scatter.

    Attributes
    ----------
    n_samples, moments : of the samples.
    scatter : (d, d) about their mean, or None where a sketch stands for it.
    sketch : (l, d), whose B'B is the scatter but for `lost`.
    lost : bound on the norm of the scatter minus B'B.
    """

    n_samples: int
    moments: Moments
    scatter: Array | None = None
    sketch: Array | None = None
    lost: float = 0.0

    @property
    def exact(self) -> bool:
        """Tell whether nothing was cut off."""
        return self.scatter is not None


def summarise(X: Array, sketch_rows: int | None) -> Summary:
    """Summarise one batch: exactly, or by a sketch of that many rows."""
    n, d = X.shape
    centred = np.empty((n, d))
    with one_blas_thread:
        moments = centre_by_own_mean(X, centred)
        if sketch_rows is None:
            value = Scatter().zero(d)
            Scatter().update(value, centred, 0)
            return Summary(n, moments, scatter=symmetric(value))
        sketch, lost = _cut(centred, sketch_rows)
    return Summary(n, moments, sketch=sketch, lost=lost)


def combine_summaries(a: Summary, b: Summary) -> Summary:
    """Merge the summaries of disjoint samples; exact if both are."""
    if len(a.moments.mean) != len(b.moments.mean):
        raise InputError(
            f"cannot merge {len(a.moments.mean)} with {len(b.moments.mean)} features; they must be the same"
        )
    if a.exact != b.exact:
        raise InputError("cannot merge an exact accumulator with a sketch; give both the same memory limit")
    n = a.n_samples + b.n_samples
    between = between_means(a.moments, b.moments)
    moments = combine_moments(a.moments, b.moments)
    with one_blas_thread:
        if a.scatter is not None and b.scatter is not None:
            scatter = a.scatter + b.scatter
            Scatter().update(scatter, between, 0)
            return Summary(n, moments, scatter=symmetric(scatter))
        assert a.sketch is not None
        assert b.sketch is not None
        stacked = np.vstack([a.sketch, b.sketch, between])
        sketch, lost = _cut(stacked, max(len(a.sketch), len(b.sketch)))
    return Summary(n, moments, sketch=sketch, lost=a.lost + b.lost + lost)


def _cut(rows: Array, keep: int) -> tuple[Array, float]:
    """Return `keep` rows with nearly the same scatter, and the norm of what that leaves out."""
    if len(rows) <= keep:
        return rows, 0.0
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    lost = float(s[keep] ** 2) if len(s) > keep else 0.0
    return s[:keep, None] * vt[:keep], lost


def components_of(summary: Summary, request: Request) -> Components:
    """Return the principal components of what was summarised."""
    n, d = summary.n_samples, len(summary.moments.mean)
    wanted = request.wanted((n, d))
    check_choice("scale of batches", request.scale, SCALES)
    scale = scale_of(summary.moments, request.scale, n)
    trace = total_variance(summary.moments, scale, n, np.dtype(np.float64), "the batches")
    divide = 1.0 if scale is None else scale
    if summary.scatter is not None:
        S = summary.scatter / (n - 1) / divide / np.reshape(divide, (-1, 1))
        values, vectors, _ = leading_pairs(S, wanted, trace)
    else:
        assert summary.sketch is not None
        _, s, vt = np.linalg.svd(summary.sketch / divide, full_matrices=False)
        values, vectors = s**2 / (n - 1), vt.T
        count = wanted.count(values, trace) or len(values)
        values, vectors = values[:count], vectors[:, :count]
    smallest = 1.0 if scale is None else float(scale.min())
    residuals = np.full(len(values), summary.lost / (n - 1) / smallest**2)
    floor = float(np.finfo(np.float64).eps) * (8 + 2 * np.sqrt(d) + np.sqrt(n))
    floor += far_means(Scaling(summary.moments.mean, scale), float(values[0]))
    certificate = certify(values, residuals, floor)
    null = is_null(values, d)
    advice = shortfall(certificate, null, wanted, "raise memory, so that more of the covariance can be kept")
    return Components(
        components=signed(vectors.T),
        explained_variance=values,
        certificate=certificate,
        total_variance=trace,
        mean=summary.moments.mean,
        scale=scale,
        missing=summary.moments.missing,
        n_samples=n,
        converged=not advice,
        advice=advice or null_advice(null),
        solver="covariance" if summary.exact else "sketch",
        tile_dtype="float64",
        sweep_seconds=(),
        warm_seconds=0.0,
        bytes_read=0,
        seconds=0.0,
    )


def summary_of(found: Components, summary: Summary | None) -> Summary:
    """Return the summary behind fitted components, or say how to get one."""
    if summary is not None:
        return summary
    if found.scatter is None:
        raise InputError(
            f"components found by solver='{found.solver}' keep no accumulator to merge; "
            "fit with solver='covariance', or by partial_fit"
        )
    if found.missing.any():
        raise InputError(
            "these samples had missing values, filled with the mean of their own: that does not merge exactly; "
            "fill them beforehand with the same value everywhere"
        )
    n, d = found.n_samples, len(found.mean)
    m2 = np.diag(found.scatter).copy()
    count = np.full(d, n, np.int64) - found.missing
    return Summary(n, Moments(count, found.mean, m2, found.missing), scatter=found.scatter)
