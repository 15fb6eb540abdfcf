"""`power`: the power method with peeling, as the textbooks give it.

    v <- S v / ||S v||  until  ||S v - theta v|| <= tol theta;   then  S <- S - theta v v'  and the next one

At the end the vectors are rotated within their span, which removes the error that each left in the next. One vector at
a time, one sweep per iteration: for teaching, and to check the other solvers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.solvers.base import Solution, Wanted, finish, first_sweep, use_float64
from streampca.solvers.certificate import certify, floor_of
from streampca.solvers.cost import PRODUCT_RATE, Cost, Problem
from streampca.sweep.memory import Needs
from streampca.sweep.statistics import Moments, Product, Statistic
from streampca.sweep.sweep import Sweeps

SWEEPS = 20  # expected for each component


@dataclass(frozen=True)
class Power:
    """The power method with peeling, on float64 tiles.

    Parameters
    ----------
    seed : of the random start.
    max_sweeps : limit on the number of sweeps.
    """

    seed: int | np.random.SeedSequence | None = 0
    max_sweeps: int = 1000

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost: little memory, many sweeps for each component."""
        N, axis, k = problem.n_full, problem.axis, problem.assumed_k
        driver = 8 * N * (k + 8) + problem.components_bytes()
        needs = Needs(axis, problem.tile_bytes(Statistic(), 1), problem.score_bytes, partial=8 * N, driver=driver)
        sweeps = SWEEPS * k + axis
        seconds = sweeps * (problem.read_seconds + 8.0 * problem.n_block * N / PRODUCT_RATE)
        # It needs the least memory and by far the most sweeps.
        return Cost(cls(problem.seed), "power", needs, sweeps, seconds, "power method with peeling", on_request=True)

    def solve(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        """Return the leading eigenpairs, computed one after the other."""
        use_float64(sweeps)
        rng = np.random.default_rng(self.seed)
        N, n_samples = sweeps.matrix.n_full, sweeps.matrix.source.shape[0]
        V, SV, values = np.empty((N, 0)), np.empty((N, 0)), np.empty(0)
        v = _start(rng, V)
        Sv, moments, trace, _ = first_sweep(sweeps, Product(v[:, None]), "power")
        while True:
            Sv = Sv[:, 0] / (n_samples - 1)
            theta = float(v @ Sv)
            # The part along earlier vectors is their error, not that of v.
            rest = Sv - theta * v
            residual = float(np.linalg.norm(rest - V @ (V.T @ rest)))
            floor = floor_of(sweeps.matrix, Statistic(), trace, max(theta, *map(float, values), 0.0))
            exhausted = sweeps.n_sweeps >= self.max_sweeps
            sweeps.note = f"component {len(values) + 1}, certificate {(residual + floor) / max(theta, 1e-300):.1e}"
            if residual + floor > wanted.tol * theta / 2 and residual > floor and not exhausted:
                v = _peel(Sv, values, V, v)
            else:
                values, V, SV = np.append(values, max(theta, 0.0)), np.column_stack([V, v]), np.column_stack([SV, Sv])
                if exhausted or len(values) == N or wanted.count(values, trace) is not None:
                    return self._solution(sweeps, wanted, V, SV, trace, moments)
                v = _start(rng, V)
            Sv, _ = sweeps.run(Product(v[:, None]), "power")

    def _hint(self, sweeps: Sweeps) -> str:
        if sweeps.n_sweeps >= self.max_sweeps:
            return f"stopped after max_sweeps={self.max_sweeps}; increase tol, or use solver='krylov'"
        return "the eigenvalue is too small relative to the largest; use solver='krylov' or request fewer components"

    def _solution(
        self, sweeps: Sweeps, wanted: Wanted, V: Array, SV: Array, trace: float, moments: Moments
    ) -> Solution:
        """Rotate the vectors to the best ones of their span (Rayleigh-Ritz), in order, with certificates."""
        # Vectors are only nearly orthogonal, to within their certificates: S V is rotated with them.
        V, R = np.linalg.qr(V)
        SV = np.linalg.solve(R.T, SV.T).T
        T = V.T @ SV
        values, Y = np.linalg.eigh((T + T.T) / 2)
        values, Y = np.maximum(values[::-1], 0.0), Y[:, ::-1]
        vectors = V @ Y
        # R is nearly diagonal, since the vectors are nearly orthonormal.
        floor = float(np.linalg.cond(R)) * np.sqrt(len(values))
        floor *= floor_of(sweeps.matrix, Statistic(), trace, float(values[0]))
        errors = certify(values, vectors, SV @ Y - vectors * values, floor, gram=sweeps.matrix.axis == 1)
        too_few = f"only {len(values)} components converged in {sweeps.n_sweeps} sweeps; use solver='krylov' for more"
        return finish(sweeps, wanted, errors, vectors, trace, moments, self._hint(sweeps), too_few)


def _start(rng: np.random.Generator, vectors: Array) -> Array:
    """Return a random unit vector orthogonal to others."""
    v = rng.standard_normal(len(vectors))
    for _ in range(2):
        v -= vectors @ (vectors.T @ v)
        v /= np.linalg.norm(v)
    return v


def _peel(Sv: Array, values: Array, vectors: Array, v: Array) -> Array:
    """Return the next iterate of S - sum theta_i v_i v_i', made orthogonal to the v_i again after rounding."""
    w = Sv - vectors @ (values * (vectors.T @ v))
    w -= vectors @ (vectors.T @ w)
    length = np.linalg.norm(w)
    return w / length if length > 0 else v
