"""Choosing how to find the components of all training sets of a cross-validation, as `plan` does for one of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.solvers.choose import (
    BASIS_SHARE,
    EIGH_RATE,
    KRYLOV_SWEEPS,
    PRODUCT_RATE,
    READ_RATE,
    SCATTER_RATE,
    WARM_VARIANTS,
    Plan,
    Way,
    after_bytes,
    block_size,
    cheapest,
    components_bytes,
)
from streampca.solvers.folds.dense import FoldGram, FoldScatters
from streampca.solvers.folds.krylov import FoldKrylov
from streampca.sources import Source
from streampca.sweep.memory import cut, footprint, process_bytes, show_bytes
from streampca.sweep.scaling import check_choice
from streampca.sweep.statistics import STRIP, Scatter, Statistic

FOLD_SOLVERS = ("auto", "covariance", "gram", "krylov")


def fold_plan(
    source: Source, k: int, n_folds: int, n_others: int, solver: str, tol: float, limit: int, seed: Any, fills: bool
) -> Plan:
    """Choose the cut and the solver for k components of `n_folds` + 1 training sets.

    Parameters
    ----------
    n_others : covariates and targets.
    limit : bytes.
    fills : whether missing values may have to stand at the mean.
    """
    check_choice("solver", solver, FOLD_SOLVERS)
    # Scores of a regression are differences of sums: float64 throughout.
    dtype = np.dtype(np.float64)
    # What is known of the samples: covariates and targets, given and centred, and their folds.
    process = process_bytes() + 8 * source.shape[0] * (3 * n_others + 2)
    ways = []
    for axis in source.cut_axes:
        dense = _gram if axis == 1 else _scatters
        ways.append(dense(source, k, n_folds, n_others, dtype, process, fills))
        ways.append(_krylov(source, axis, k, n_folds, n_others, dtype, process, limit, tol, seed))
    ways = [way for way in ways if solver in ("auto", way.name)]
    if not ways:
        raise InputError(f"solver={solver!r} is not for genotypes; use 'auto', 'gram' or 'krylov'")
    return cheapest(ways, source, dtype, limit, solver, beside=f" with {n_folds} folds" if n_folds else "")


def _tile_bytes(dtype: Any, length: int, width: int, more: int) -> int:
    """Bytes of a tile, and of so many numbers beside it."""
    return int(dtype.itemsize * (length * width + more))


def _scatters(source: Source, k: int, n_folds: int, n_others: int, dtype: Any, process: int, fills: bool) -> Way:
    n, d = source.shape
    width = d + n_others
    partial = 8 * (max(1, n_folds) * width**2 + 2 * (n_folds + 2) * d)
    planned = cut(source, 0, partial)
    length = Scatter().tile_length(d, dtype.itemsize)
    # The rows of one fold, with what stands beside them, and a product of strips.
    tile = _tile_bytes(dtype, length, d, length * width + min(width, STRIP) * width)
    # In the driver: sums of a training set, S, what `eigh` works on, and the moments of those left out.
    driver = 8 * (5 * width**2 + 3 * width * k)
    need = footprint(source, planned, tile, partial, driver, process)
    sets = n_folds + 1
    # Rates are those of float32; float64 takes twice as long.
    seconds = source.n_bytes / READ_RATE * (1 + fills) + n * width**2 / SCATTER_RATE * dtype.itemsize / 4
    seconds += sets * 4 / 3 * d**3 / EIGH_RATE
    each = f" for each of {n_folds} folds" if n_folds else ""
    reason = f"the covariance, {width} x {width}{each}, takes {1 + fills} sweep(s) and {show_bytes(partial)}"
    return Way(FoldScatters(), "covariance", planned, need, 1 + fills, seconds, reason)


def _gram(source: Source, k: int, n_folds: int, n_others: int, dtype: Any, process: int, fills: bool) -> Way:  # noqa: ARG001
    n, d = source.shape
    partial = 8 * n * n
    planned = cut(source, 1, partial)
    tile = _tile_bytes(dtype, Scatter().tile_length(n, dtype.itemsize), n, min(n, STRIP) * n)
    driver = 2 * partial + 8 * n * (4 * k + 3 * n_others) + components_bytes(source, 1, k + 1)
    need = replace(footprint(source, planned, tile, partial, driver, process), after=after_bytes(source, 1, k + 2))
    seconds = 2 * source.n_bytes / READ_RATE + d * n * n / SCATTER_RATE * dtype.itemsize / 4
    seconds += (n_folds + 1) * 4 / 3 * n**3 / EIGH_RATE
    reason = f"the n x n Gram matrix, {n} x {n}, holds all training sets and takes one sweep and {show_bytes(partial)}"
    return Way(FoldGram(), "gram", planned, need, 2, seconds, reason)


def _krylov(
    source: Source, axis: int, k: int, n_folds: int, n_others: int, dtype: Any, process: int, limit: int, tol: float,
    seed: Any,
) -> Way:  # fmt: skip
    n, d = source.shape
    N, sets = source.shape[1 - axis], n_folds + 1
    b = min(block_size(k), N)
    wide = sets * b
    partial = 8 * N * wide
    planned = cut(source, axis, partial)
    tile = _tile_bytes(dtype, Statistic().tile_length(N, dtype.itemsize), N, wide * N)
    if axis == 0:
        tile += 8 * 3 * Statistic().tile_length(N, dtype.itemsize) * (wide + n_others)
    least = min(N, k + 2 * b)
    # Beside the bases: the wide block in both types, its product, residual and factors, and Ritz vectors.
    others = 8 * N * (4 * wide + sets * k + 3 * b)
    others += components_bytes(source, 1, k + 1) if axis == 1 else 8 * d * 4 * (n_folds + 2)
    smallest = footprint(source, planned, tile, partial, others + 8 * N * sets * least, process)
    wanted = min(N, max(least, k + 12 * b))
    basis = int(np.clip(limit * BASIS_SHARE // (8 * N * sets), least, wanted))
    if smallest.peak(1) + 8 * N * sets * (basis - least) > limit:
        basis = least
    need = replace(
        smallest,
        driver=smallest.driver + 8 * N * sets * (basis - least),
        after=after_bytes(source, axis, k + 2),
    )
    steps = min(KRYLOV_SWEEPS + max(0, int(-math.log10(tol)) - 3), math.ceil(N / b))
    sweeps = steps + (1 if axis == 1 else 2)
    products = 4.0 * n * d * wide + 8.0 * N * b * b * sets * steps
    seconds = sweeps * (source.n_bytes / READ_RATE + products / PRODUCT_RATE * dtype.itemsize / 4)
    warm = source.warm_starts and source.shape[axis] >= WARM_VARIANTS * b
    reason = f"blocks of {sets} x {b} need about {sweeps} sweeps, and bases of {N} x {basis} for {sets} training sets"
    return Way(FoldKrylov(b, basis, warm, seed), "krylov", planned, need, sweeps, seconds, reason)
