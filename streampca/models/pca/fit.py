"""The fit of PCA, and projection on its components."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.samples import excluding_sparse
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, also_spent, not_distinguishable, signed, signs_of
from streampca.progress import Progress, silent
from streampca.solvers.base import (
    PROBE_TOL,
    NeedsFloat64,
    Solution,
    Wanted,
    in_float64_if_needed,
    left_out,
    total_variance,
)
from streampca.solvers.choose import Plan, Timed, check_components, plan
from streampca.solvers.cost import ASSUMED_COMPONENTS
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import CrossProduct, Moments, Projection, Statistic
from streampca.sweep.sweep import Sweeps

# Values of the option `certificate`, and what solvers call them.
CERTIFICATES = {True: "probe", "exact": "exact", False: "none"}
UNIT_COLUMNS = 8192
# Unit rows whose Gram matrix has a smaller eigenvalue are not independent.
DEPENDENT = 1e-4


def resolve(options: PCAOptions, source: Source) -> PCAOptions:
    """Replace "auto" by what it means for this source."""
    scale = source.default_scale if options.scale == "auto" else options.scale
    missing = source.default_missing if options.missing == "auto" else options.missing
    count = options.n_components
    if count is None and source.default_components is not None:
        count = min(source.default_components, *source.shape)
    return options.model_copy(update={"n_components": count, "scale": scale, "missing": missing})


def wanted_components(options: PCAOptions, shape: tuple[int, int]) -> Wanted:
    """Check n_components and the number of samples against the shape of the data."""
    if shape[0] < 2:
        raise InputError(f"PCA needs at least 2 samples, got n_samples = {shape[0]}; check which dimension is samples")
    number, fraction = check_components(options.n_components, shape)
    return Wanted(number, fraction, options.tol, CERTIFICATES[options.certificate])


def plan_pca(
    source: Source, options: PCAOptions, *, memory: Any = None, extra_sweeps: int = 0, keep_scatter: bool = False
) -> Plan:
    """Choose the solver and predict the cost, without reading any data."""
    options = resolve(options, source)
    wanted = wanted_components(options, source.shape)
    planned = plan(
        source, wanted.n_components, options.solver, options.tol, Budget.of(memory), options.random_state,
        keep_scatter=keep_scatter, extra_sweeps=extra_sweeps,
    )  # fmt: skip
    k = options.n_components if isinstance(options.n_components, int) else ASSUMED_COMPONENTS
    return replace(planned, timed=Timed(options.scale, options.missing, k))


def fit_pca(
    source: Source, options: PCAOptions, *, memory: Any = None, progress: Progress = silent, extra_sweeps: int = 0,
    keep_scatter: bool = False, detect_missing: bool = False,
) -> tuple[PCAFit, Sweeps]:  # fmt: skip
    """Fit principal components to a source; return them, and the sweeps to continue with.

    Parameters
    ----------
    source, options : the data and the options of PCA.
    memory : limit, as "600MB" or in bytes, or a `Budget`; half of the available memory by default.
    progress : called with a `Step` when a partition is done.
    extra_sweeps : sweeps that follow the fit, which the choice of the solver takes into account.
    keep_scatter : keep the scatter matrix, for merging, if the solver forms it.
    detect_missing : replace missing values by the mean, as missing="mean" does, without an additional sweep over
        complete data.
    """
    started, budget = time.monotonic(), Budget.of(memory)

    def attempt(part: Source, _: Array | None) -> tuple[PCAFit, Sweeps]:
        chosen = plan_pca(part, options, memory=budget, extra_sweeps=extra_sweeps, keep_scatter=keep_scatter)
        return _fit(part, resolve(options, part), chosen, progress, detect_missing)

    (fitted, sweeps), seconds, bytes_read = excluding_sparse(source, attempt)
    fitted = also_spent(fitted, seconds, bytes_read)
    return replace(fitted, seconds=time.monotonic() - started), sweeps


def _fit(
    source: Source, options: PCAOptions, chosen: Plan, progress: Progress, detect_missing: bool
) -> tuple[PCAFit, Sweeps]:
    wanted = wanted_components(options, source.shape)
    missing = "detect" if detect_missing else options.missing
    sweeps = chosen.over(source, missing, options.scale, progress=progress)
    with sweeps:
        solution = in_float64_if_needed(sweeps, lambda: chosen.solver.solve(sweeps, wanted))
        tiles = _score_dtype(solution, sweeps, chosen, wanted)
        used = used_features(solution.scaling)
        if used is not None and used.sum() < len(solution.values):
            solution = solution.leading(int(used.sum()))
        components, scores, certificate = _both_sides(sweeps, solution, used, tiles)
    fitted_in = str(sweeps.matrix.dtype)
    sweeps.matrix = replace(sweeps.matrix, dtype=tiles)
    fitted = PCAFit(
        **of_features(source, solution.moments, replace(solution.scaling, mean=solution.moments.mean), used),
        components=components,
        explained_variance=solution.values,
        certificate=certificate,
        total_variance=solution.trace,
        n_samples=source.shape[0],
        converged=solution.converged,
        advice=solution.advice,
        solver=chosen.name,
        tile_dtype=fitted_in,
        sweep_seconds=tuple(sweeps.seconds),
        warm_seconds=sweeps.warm_seconds,
        bytes_read=sweeps.bytes_read,
        seconds=0.0,
        genotypes=source.is_genotypes,
        following=solution.following,
        sample_missing=sweeps.sample_missing,
        scores=scores,
        scatter=solution.scatter,
        probe=solution.probe,
        chain=solution.chain,
        certificate_method=solution.errors.method,
    )
    return replace(fitted, notes=fitted.notes + not_distinguishable(fitted)), sweeps


def of_features(source: Source, moments: Moments, scaling: Scaling, used: Array | None) -> dict[str, Any]:
    """Return the fields of a fitted record that have one entry per used feature, and the notes of the source."""
    scale = scaling.scale
    notes: tuple[str, ...] = source.notes if source.filter is not None else ()
    chosen: Any = slice(None)
    if used is not None and source.filter is not None:
        notes, chosen = (*notes, f"variants excluded: {left_out(source.filter, moments)}"), used
    elif used is not None and scale is not None:
        # Arrays keep their features: those that do not vary have zero in every component.
        scale, used = np.where(used, scale, 1.0), None
    return {
        "mean": scaling.mean[chosen],
        "scale": None if scale is None else scale[chosen],
        "missing": moments.missing[chosen],
        "squares": (moments.m2 / (1.0 if scale is None else scale**2))[chosen],
        "used": used,
        "notes": notes,
    }


def _score_dtype(solution: Solution, sweeps: Sweeps, chosen: Plan, wanted: Wanted) -> np.dtype[Any]:
    """Return the type of the scores: float64 if float32 cannot hold them, or if tol requires it."""
    source, double = sweeps.matrix.source, np.dtype(np.float64)
    try:
        total_variance(solution.moments, solution.scaling.scale, source.shape[0], chosen.dtype, source.name)
    except NeedsFloat64:
        return double
    return double if wanted.tol < PROBE_TOL else chosen.dtype


def used_features(scaling: Scaling) -> Array | None:
    """Return a mask of the features that are used; None if all are."""
    if scaling.scale is None or np.isfinite(scaling.scale).all():
        return None
    return np.isfinite(scaling.scale)


def _both_sides(
    sweeps: Sweeps, solution: Solution, used: Array | None, dtype: np.dtype[Any]
) -> tuple[Array, Array | None, Array]:
    """Return components (k x d), scores where eigenvectors of the samples give them, and certificates.

    Scores are u_i sqrt(theta_i (n - 1)), in the given type.
    """
    matrix = sweeps.matrix
    keeps_all = used is None or matrix.filter is None
    if matrix.axis == 0:
        components = signed((solution.vectors if keeps_all else solution.vectors[used]).T)
        return components, None, solution.errors.certificate
    lengths = np.sqrt(solution.values * (matrix.source.shape[0] - 1))
    rows = solution.rows
    if rows is None:
        pieces, _ = sweeps.run(Projection(solution.vectors.astype(matrix.dtype)), "components")
        rows = np.concatenate(pieces)[:, :-1]
    components, shares = _unit_rows(np.array(rows.T, np.float64, order="C"), lengths)
    del rows
    signs = signs_of(components)
    components *= signs[:, None]
    if used is not None and keeps_all:
        whole = np.zeros((len(components), len(used)))
        whole[:, used] = components
        components = whole
    scores = (solution.vectors * (lengths * signs)).astype(dtype)
    errors = solution.errors
    if errors.method != "none":
        rounded = scores / np.where(lengths > 0, lengths * signs, 1.0)
        errors = errors.mixed(shares).moved(solution.vectors, rounded - solution.vectors)
    return components, scores, errors.certificate


def _unit_rows(rows: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the rows made orthonormal, each along itself; where a length is zero, some direction that is left.

    Also returns the share (k x k) that each row got of the others.
    """
    null = lengths <= np.sqrt(np.finfo(np.float64).eps) * lengths[0]
    rows[null] = np.random.default_rng(0).standard_normal((int(null.sum()), rows.shape[1]))
    for row in rows:
        row /= np.linalg.norm(row)
    if np.linalg.eigvalsh(rows @ rows.T)[0] < DEPENDENT:
        _replace_dependent(rows)
    turn = np.eye(len(rows))
    # Cholesky's factor of the k x k Gram matrix does it in place; the rows are nearly orthonormal to begin with.
    for _ in range(3):
        inverse = np.linalg.inv(np.linalg.cholesky(rows @ rows.T))
        turn = inverse @ turn
        for start in range(0, rows.shape[1], UNIT_COLUMNS):
            rows[:, start : start + UNIT_COLUMNS] = inverse @ rows[:, start : start + UNIT_COLUMNS]
    return rows, turn - np.diag(np.diag(turn))


def _replace_dependent(rows: Array) -> None:
    """Put random directions, in place, where unit rows lie in the span of those before: the rest is rounding."""
    rng = np.random.default_rng(0)
    for i, row in enumerate(rows):
        before = np.linalg.qr(rows[:i].T)[0]
        if np.linalg.norm(row - before @ (before.T @ row)) < np.sqrt(DEPENDENT):
            row[:] = rng.standard_normal(len(row))
            row -= before @ (before.T @ row)
            row /= np.linalg.norm(row)


def check_width(source: Source, found: PCAFit) -> None:
    """Raise if data have other features than the fit."""
    if source.shape[1] != len(found.mean):
        raise InputError(
            f"{source.name}: X has {source.shape[1]} features, but the components were fitted on "
            f"{len(found.mean)} features; give the same features in the same order"
        )


def project(
    source: Source, found: PCAFit, missing: str, memory: Any = None, progress: Progress = silent,
    dtype: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the scores (n x k) of samples, and their squared lengths (n,) once centred and scaled; one sweep.

    What is left of a length after taking off that of the scores may be a small difference: ask for it in float64.
    """
    check_width(source, found)
    k = len(found.components)
    axis = source.preferred_axis
    N = source.shape[1 - axis]
    needs = Needs(
        axis, 8 * N * Statistic().tile_length(N, 8), partial=0 if axis == 0 else 8 * N * (k + 1),
        driver=8 * (3 * source.shape[0] + source.shape[1]) * (k + 1),
    )  # fmt: skip
    tiles = np.dtype(dtype or tile_dtype(source.dtype))
    planned = plan_sweeps(source, needs, Budget.of(memory), "projecting", dtype=tiles)
    return project_matrix(planned.over(source, missing, None, found.scaling, progress), found, check=True)


def linear_sweeps(source: Source, found: PCAFit, missing: str, memory: Any, progress: Progress) -> Sweeps:
    """Plan a sweep over samples, cut along them, each of which becomes a sample again."""
    d, k, itemsize = source.shape[1], len(found.components), tile_dtype(source.dtype).itemsize
    tile = Statistic().tile_length(d, itemsize) * (itemsize * (2 * d + k) + 2 * 8 * d)
    needs = Needs(0, tile, row=(2 + WRITE_COPIES) * itemsize * d, driver=8 * 2 * d * (k + 2))
    planned = plan_sweeps(source, needs, Budget.of(memory), "denoising")
    return planned.over(source, missing, None, found.scaling, progress)


def project_matrix(
    sweeps: Sweeps, found: PCAFit, check: bool, sink: Callable[[int, Array], None] | None = None
) -> tuple[Array, Array]:
    """Sweep a matrix for scores and squared lengths; cut along samples, a sink gets the scores instead.

    Data that were not fitted need a `check` for values that are no numbers.
    """
    M = found.components.T.astype(sweeps.matrix.dtype)
    if sweeps.matrix.axis == 0:
        pieces, _ = sweeps.run(Projection(M, sink), "scores", check)
        both = np.concatenate(pieces) if pieces else np.empty((0, M.shape[1] + 1), M.dtype)
    else:
        both, _ = sweeps.run(CrossProduct(M), "scores", check)
        both = both.astype(sweeps.matrix.dtype)
    return both[:, :-1], both[:, -1]


def scores_of(found: PCAFit, sweeps: Sweeps, sink: Callable[[int, Array], None] | None = None) -> tuple[Array, PCAFit]:
    """Return the scores of the fitted samples; a sweep, into the sink if given, where the fit did not make them."""
    if found.scores is not None:
        return found.scores, found
    scores, _ = project_matrix(sweeps, found, check=False, sink=sink)
    return scores, replace(found, sweep_seconds=tuple(sweeps.seconds), bytes_read=sweeps.bytes_read)
