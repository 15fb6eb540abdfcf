"""`covariance` and `gram`: form the N x N matrix S in one sweep, then `eigh`.

Cut along samples, S is the covariance of d features; cut along features, it is the Gram matrix of n samples, which has
the same eigenvalues and is smaller if samples are fewer than features (the N < d trick).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from streampca._typing import Array
from streampca.solvers.base import (
    Solution,
    Wanted,
    finish,
    know_scaling,
    learn_moments,
    probed_sweep,
    rank_bound,
    use_float64,
)
from streampca.solvers.certificate import RowProbe, certify_matrix, chain_of, floor_of
from streampca.solvers.cost import EIGH_RATE, SCATTER_RATE, Cost, Problem
from streampca.solvers.krylov import check
from streampca.solvers.noise import Spectrum, noise_test
from streampca.sweep.memory import Needs, show_bytes
from streampca.sweep.statistics import STRIP, Moments, Scatter, symmetric
from streampca.sweep.sweep import Sweeps, one_blas_thread

# Up to this order a float64 scatter costs no more than a float32 one with its probes.
FLOAT64_ORDER = 128
# Up to this order all pairs by NumPy take less time than loading SciPy, which computes the leading ones only.
NUMPY_ORDER = 512
# With more components than this share of N, checking them costs more than a float64 scatter.
CHECK_SHARE = 1 / 8


@dataclass(frozen=True)
class Dense:
    """Eigenpairs of S in memory; `keep_scatter` returns A'A as well, so that results can be merged."""

    keep_scatter: bool = False

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost: one sweep, and one more for the components of a matrix that is cut along features."""
        N, axis = problem.n_full, problem.axis
        partial, k = 8 * N * N, problem.k or N
        problem = replace(problem, wanted=replace(problem.wanted, n_components=k))
        copies = 2 + int(problem.keep_scatter and axis == 0) if NUMPY_ORDER < N > k else 3
        needs = Needs(
            axis, problem.tile_bytes(Scatter(), STRIP), problem.score_bytes, partial,
            driver=8 * N * k + (copies - 1) * partial + problem.components_bytes(), after=problem.after_bytes(),
        )  # fmt: skip
        seconds = problem.read_seconds + problem.n_block * N * N / SCATTER_RATE + 4 / 3 * N**3 / EIGH_RATE
        what = "d x d covariance" if axis == 0 else "n x n Gram matrix (the N < d trick)"
        reason = f"the {what}, {N} x {N}, takes one sweep and {show_bytes(partial)}"
        name = "covariance" if axis == 0 else "gram"
        return Cost(cls(problem.keep_scatter), name, needs, 1 + axis, seconds, reason)

    def solve(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        """Return the leading eigenpairs after one sweep, or more if float32 does not reach the tolerance."""
        single = sweeps.matrix.dtype != np.float64 and not self._needs_float64(sweeps, wanted)
        if not single:
            use_float64(sweeps)
        solution = self._attempt(sweeps, wanted)
        if not single or solution.converged:
            return solution
        moments = solution.moments
        del solution
        use_float64(sweeps)
        return self._attempt(sweeps, wanted, moments)

    def _needs_float64(self, sweeps: Sweeps, wanted: Wanted) -> bool:
        """Whether a float64 scatter is cheaper, or the only one that can be certified."""
        matrix = sweeps.matrix
        if not wanted.certified:
            return wanted.needs_float64
        if matrix.axis == 1:
            many = wanted.n_components is None or wanted.n_components > CHECK_SHARE * matrix.n_full
            return many or not wanted.probes or matrix.n_full <= FLOAT64_ORDER
        # Probes cannot be divided by scales that are known only after the sweep.
        return not wanted.probes or matrix.scale is not None or matrix.n_full <= FLOAT64_ORDER

    def _attempt(self, sweeps: Sweeps, wanted: Wanted, known: Moments | None = None) -> Solution:
        early = known or learn_moments(sweeps, folds_scale=True)
        gram = sweeps.matrix.axis == 1
        probes = wanted.certificate == "probe" and not gram
        scatter, moments, probe = probed_sweep(sweeps, Scatter(), "Gram matrix" if gram else "covariance", probes)
        assert not isinstance(probe, RowProbe)
        # Tiles that were centred by their own mean are not scaled yet.
        scaled = not sweeps.matrix.merges_means
        moments = early or moments
        assert moments is not None
        trace = know_scaling(sweeps, moments)
        matrix = sweeps.matrix
        S, kept = self._covariance(symmetric(scatter), sweeps, scaled)
        values, vectors, following = leading_pairs(S, wanted, trace)
        test = None
        if wanted.resolve is not None:
            second = max(float(np.linalg.norm(S) ** 2 - (values**2).sum()), 0.0)
            other_side = gram != matrix.source.is_genotypes
            order = rank_bound(matrix, moments)
            test = noise_test(values, Spectrum(order=order, trace=trace, second=second, other_side=other_side))
        rows = None
        if gram and wanted.certified and matrix.dtype != np.float64:
            del S, scatter
            vectors, errors, rows = check(sweeps, vectors, trace)
        else:
            floor = floor_of(matrix, Scatter(), trace, float(values[0]))
            errors = certify_matrix(S, values, vectors, floor, probe, gram)
            if probe is None and matrix.dtype != np.float64:
                errors = replace(errors, rounding=np.zeros(len(values)), method="none")
        merging = None if probe is None or kept is None else probe.H * (matrix.source.shape[0] - 1)
        return finish(
            sweeps, wanted, errors, vectors, trace, moments, following=following, scatter=kept,
            probe=merging, chain=chain_of(matrix, Scatter()), rows=rows, noise=test,
        )  # fmt: skip

    def _covariance(self, S: Array, sweeps: Sweeps, scaled: bool) -> tuple[Array, Array | None]:
        """Return S from the scatter, in place, and the scatter of unscaled features if it is kept."""
        scale = sweeps.matrix.known_scaling.scale
        keep = self.keep_scatter and sweeps.matrix.axis == 0
        kept = _unscaled(S, scale if scaled else None) if keep else None
        # Entry by entry, scaling afterwards loses no digits.
        if scale is not None and not scaled:
            S /= scale[:, None]
            S /= scale[None, :]
        S /= sweeps.matrix.source.shape[0] - 1
        return S, kept


def _unscaled(S: Array, scale: Array | None) -> Array:
    """Return a copy of the scatter in the units of the data."""
    if scale is None:
        return S.copy()
    # A feature that is not used does not vary: its row of S is zero.
    scale = np.where(np.isfinite(scale), scale, 1.0)
    return np.asarray(S * scale[:, None] * scale[None, :])


def leading_pairs(S: Array, wanted: Wanted, trace: float) -> tuple[Array, Array, float | None]:
    """Return the leading eigenpairs of S, descending, and the next eigenvalue; S is not changed.

    For a fraction of the variance, the number of pairs grows until their sum reaches it.
    """
    N = len(S)
    k = min(N, wanted.n_components + 1 if wanted.n_components else 16)
    while True:
        values, vectors = _largest_pairs(S, k)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        count = wanted.count(values, trace) or (k if k == N else None)
        if count is not None:
            return values[:count], vectors[:, :count], float(values[count]) if count < len(values) else None
        k = min(N, 4 * k)


def _largest_pairs(S: Array, k: int) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of S, ascending, and their vectors."""
    N = len(S)
    if N <= NUMPY_ORDER:
        with one_blas_thread:
            values, vectors = np.linalg.eigh(S)
        # Column by column, as SciPy returns them: products of components then have the same bits as those of a store.
        return values[N - k :], np.asfortranarray(vectors[:, N - k :])
    # Slow to load: small matrices and other solvers do without SciPy.
    from scipy.linalg import eigh

    # SciPy has its own BLAS, which may have been loaded just now.
    with threadpool_limits(1, user_api="blas"):
        values, vectors = eigh(S, subset_by_index=(N - k, N - 1), check_finite=False)
    return values, vectors
