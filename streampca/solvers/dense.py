"""`covariance` and `gram`: form the N x N matrix S in one sweep, then `eigh`.

Cut along samples, S is the covariance of d features; cut along features, it is the Gram matrix of n samples (the N < d
trick: when samples are fewer than features, the small side holds the same eigenvalues).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streampca.accumulators import Scatter, symmetric
from streampca.solvers.base import (
    Solution,
    Wanted,
    certify,
    cure_of,
    far_means,
    is_null,
    know_scaling,
    learn_moments,
    null_advice,
    rounding,
    shortfall,
    use_float64,
)
from streampca.sweeps import Sweeps

Array = NDArray[Any]


@dataclass(frozen=True)
class Dense:
    """Eigenpairs of the whole matrix S; `keep_scatter` hands A'A on, so that results can be merged later."""

    keep_scatter: bool = False

    def solve(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        """Return the leading eigenpairs wanted, after one sweep (two where float32 cannot certify them)."""
        solution = self._attempt(sweeps, wanted)
        if not solution.converged and use_float64(sweeps, wanted.tol):
            solution = self._attempt(sweeps, wanted)
        return solution

    def _attempt(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        early = learn_moments(sweeps, folds_scale=True)
        # Tiles that are centred by their own mean along the way are not scaled yet.
        scaled = not sweeps.matrix.merges_means
        scatter, moments = sweeps.run(Scatter(), "covariance" if sweeps.matrix.axis == 0 else "Gram matrix")
        moments = early or moments
        assert moments is not None
        trace = know_scaling(sweeps, moments)
        matrix, scaling = sweeps.matrix, sweeps.matrix.scaling
        assert scaling is not None
        S = symmetric(scatter)
        keep = self.keep_scatter and matrix.axis == 0
        kept = S.copy() if keep and not scaled else None
        # Entry by entry, scaling afterwards loses no digits.
        if scaling.scale is not None and not scaled:
            S /= scaling.scale[:, None]
            S /= scaling.scale[None, :]
        if keep and scaled:
            # A feature that is not used does not vary: its row of S is zero.
            scale = np.ones(len(S)) if scaling.scale is None else scaling.scale
            scale = np.where(np.isfinite(scale), scale, 1.0)
            kept = S * scale[:, None] * scale[None, :]
        S /= matrix.source.shape[0] - 1
        values, vectors, following = leading_pairs(S, wanted, trace)
        largest = float(values[0])
        floor = rounding(sweeps, Scatter(), dense=True) + far_means(sweeps.matrix.scaling, largest)
        certificate = certify(values, np.zeros_like(values), floor)
        null = is_null(values, len(S)) & (matrix.dtype == np.float64)
        cure = "the eigenvalue is too small beside the largest for double precision; ask for fewer components"
        advice = shortfall(certificate, null, wanted, cure_of(sweeps, largest, wanted, cure))
        return Solution(
            values, vectors, certificate, trace, moments, scaling,
            converged=not advice, advice=advice or null_advice(null), following=following, scatter=kept,
        )  # fmt: skip


def leading_pairs(S: Array, wanted: Wanted, trace: float) -> tuple[Array, Array, float | None]:
    """Return as many leading eigenpairs of S as are wanted, descending, and the next value; S may be destroyed.

    For a fraction of the variance, the number asked for grows until their sum reaches it: only the trace is needed.
    """
    from scipy.linalg import eigh

    N = len(S)
    k = min(N, wanted.n_components + 1 if wanted.n_components else 16)
    while True:
        final = wanted.n_components is not None
        # SciPy brings a BLAS of its own, maybe only now.
        with threadpool_limits(1, user_api="blas"):
            values, vectors = eigh(S, subset_by_index=(N - k, N - 1), overwrite_a=final, check_finite=False)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        count = wanted.count(values, trace) or (k if k == N else None)
        if count is not None:
            return values[:count], vectors[:, :count], float(values[count]) if count < len(values) else None
        k = min(N, 4 * k)
