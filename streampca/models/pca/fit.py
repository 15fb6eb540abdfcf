"""The fit of PCA, and projection on its components."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, noise_fields, not_distinguishable, shrunk_samples, signed, signs_of
from streampca.models.record import swept
from streampca.progress import Progress, silent
from streampca.solvers.base import Solution, Wanted, excluded_variants, out_of_range
from streampca.solvers.choose import Plan, Timed, plan
from streampca.solvers.cost import ASSUMED_COMPONENTS, Problem
from streampca.solvers.noise import LEVEL, NOISE_TOL
from streampca.solvers.observed import Placed, observed_needs, place_observed
from streampca.solvers.restart import with_restarts
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs, SweepPlan, plan_sweeps
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
    return options.changed(**{"n_components": count, "scale": scale, "missing": missing})


def wanted_components(options: PCAOptions, shape: tuple[int, int]) -> Wanted:
    """Check n_components and the number of samples against the shape of the data."""
    if shape[0] < 2:
        raise InputError(f"PCA needs at least 2 samples, got n_samples = {shape[0]}; check which dimension is samples")
    count, largest = options.n_components, min(shape)
    if isinstance(count, int) and count > largest:
        raise InputError(
            f"n_components must be at most {largest}, the smaller of {shape[0]} samples and {shape[1]} features, got "
            f"{count}"
        )
    certificate = CERTIFICATES[options.certificate]
    if isinstance(count, float):
        return Wanted(None, count, options.tol, certificate, options.resolve)
    number = count if isinstance(count, int) else largest
    return Wanted(number, None, options.tol, certificate, options.resolve)


def plan_pca(
    source: Source, options: PCAOptions, *, memory: Any = None, extra_sweeps: int = 0, keep_scatter: bool = False
) -> Plan:
    """Choose the solver and predict the cost, without reading any data."""
    options = resolve(options, source)
    wanted = wanted_components(options, source.shape)
    problem = Problem(source, wanted, options.random_state, Budget.of(memory), keep_scatter=keep_scatter)
    planned = plan(problem, options.solver, extra_sweeps=extra_sweeps)
    k = options.n_components if isinstance(options.n_components, int) else ASSUMED_COMPONENTS
    if options.missing == "lsq":
        plan_observed(source, k, problem.budget)
    return replace(planned, timed=Timed(options.scale, _filling(options.missing), k))


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

    def start(part: Source, _: Array | None) -> tuple[tuple[Plan, Wanted], Sweeps]:
        chosen = plan_pca(part, options, memory=budget, extra_sweeps=extra_sweeps, keep_scatter=keep_scatter)
        resolved = resolve(options, part)
        missing = "detect" if detect_missing else _filling(resolved.missing)
        wanted = wanted_components(resolved, part.shape)
        return (chosen, wanted), chosen.over(part, missing, resolved.scale, progress=progress)

    fitted, sweeps = with_restarts(source, start, _fit)
    notes = shrunk_samples(fitted)
    if resolve(options, source).missing == "lsq":
        fitted, notes = _with_observed_scores(fitted, sweeps, budget, progress)
    return replace(fitted, notes=fitted.notes + notes, seconds=time.monotonic() - started), sweeps


def _filling(missing: str) -> str:
    """Return what sweeps of a fit do with missing values."""
    return "mean" if missing == "lsq" else missing


def plan_observed(source: Source, k: int, budget: Budget) -> SweepPlan:
    """Plan the sweep that places samples by their observed values."""
    needs = [observed_needs(source, axis, k) for axis in source.cut_axes]
    return plan_sweeps(source, needs, budget, "scores by least squares")


def _with_observed_scores(
    fitted: PCAFit, sweeps: Sweeps, budget: Budget, progress: Progress
) -> tuple[PCAFit, tuple[str, ...]]:
    """Return the fit with scores by least squares over observed values, in one more sweep if any are missing; notes."""
    if not fitted.missing.any():
        return fitted, ()
    source = sweeps.matrix.source.uncached()
    # Decoded data that the fit kept are freed: the memory of this sweep is planned without them.
    sweeps.matrix = replace(sweeps.matrix, source=source)
    part = source if fitted.used is None else source.take(features=fitted.used)
    more = plan_observed(part, fitted.n_components, budget).over(part, "mean", None, fitted.scaling, progress)
    with more:
        scores = place_observed(more, fitted.components, check=False).scores
    without = int(np.isnan(scores).any(axis=1).sum())
    notes = (f"samples without scores, because they have no or too few values: {without}",) if without else ()
    return replace(
        fitted, scores=scores.astype(sweeps.matrix.dtype), sweep_seconds=(*fitted.sweep_seconds, *more.seconds),
        bytes_read=fitted.bytes_read + more.bytes_read,
    ), notes  # fmt: skip


# For fits that `with_scores` follows.
fit_for_scores = partial(fit_pca, extra_sweeps=1)


def _fit(planned: tuple[Plan, Wanted], sweeps: Sweeps) -> PCAFit:
    (chosen, wanted), source = planned, sweeps.matrix.source
    solution = chosen.solver.solve(sweeps, wanted)
    tiles = _score_dtype(solution, sweeps, chosen, wanted)
    used = used_features(solution.scaling)
    if used is not None and used.sum() < len(solution.values):
        solution = solution.leading(int(used.sum()))
    components, scores, error = _both_sides(sweeps, solution, used, tiles)
    fitted = PCAFit(
        **swept(sweeps),
        **of_features(source, solution.moments, replace(solution.scaling, mean=solution.moments.mean), used),
        components=components,
        explained_variance=solution.values,
        error=error,
        certificate_method=solution.errors.method,
        total_variance=solution.trace,
        converged=solution.converged,
        advice=solution.advice,
        solver=chosen.name,
        warm_start_seconds=sweeps.warm_seconds,
        following=solution.following,
        sample_missing=sweeps.sample_missing,
        scores=scores,
        scatter=solution.scatter,
        probe=solution.probe,
        chain=solution.chain,
        **noise_fields(solution.noise),
    )
    sweeps.matrix = replace(sweeps.matrix, dtype=tiles)
    loose = np.empty(0, np.intp)
    if fitted.error is not None and fitted.noise is not None and wanted.resolve == "signal":
        loose = np.flatnonzero(fitted.noise & (fitted.error > wanted.tol))
    close = not_distinguishable(fitted, int(loose[0]) if loose.size else None)
    return replace(fitted, notes=fitted.notes + close + noise_note(loose))


def noise_note(loose: Array) -> tuple[str, ...]:
    """Return a note on components that were not resolved because they cannot be distinguished from noise."""
    if not loose.size:
        return ()
    which = f"PC {loose[0] + 1}" if loose.size == 1 else f"PCs {loose[0] + 1} to {loose[-1] + 1}"
    return (
        f"{which} cannot be distinguished from noise (p > {LEVEL:g}), so {'it is' if loose.size == 1 else 'they are'} "
        f"resolved to {NOISE_TOL:g} only, not to tol; use resolve='all' to resolve all components",
    )


def of_features(source: Source, moments: Moments, scaling: Scaling, used: Array | None) -> dict[str, Any]:
    """Return the fields of a fitted record that have one entry per used feature, and the notes of the source."""
    scale = scaling.scale
    notes: tuple[str, ...] = source.notes
    chosen: Any = slice(None)
    if used is not None and source.filter is not None:
        notes, chosen = (*notes, f"variants excluded: {excluded_variants(source.filter, moments)}"), used
    elif used is not None and scale is not None:
        # Arrays keep all features; those that do not vary are zero in every component.
        scale, used = np.where(used, scale, 1.0), None
    return {
        "scaling": Scaling(scaling.mean, scale).take(chosen),
        "missing": moments.missing[chosen],
        "squares": (moments.m2 / (1.0 if scale is None else scale**2))[chosen],
        "used": used,
        "notes": notes,
    }


def _score_dtype(solution: Solution, sweeps: Sweeps, chosen: Plan, wanted: Wanted) -> np.dtype[Any]:
    """Return the type of the scores: float64 if float32 cannot hold them, or if tol requires it."""
    n_samples = sweeps.matrix.source.shape[0]
    if wanted.needs_float64 or out_of_range(solution.moments, solution.scaling.scale, n_samples, chosen.dtype):
        return np.dtype(np.float64)
    return chosen.dtype


def used_features(scaling: Scaling) -> Array | None:
    """Return a mask of the features that are used; None if all are."""
    if scaling.scale is None or np.isfinite(scaling.scale).all():
        return None
    return np.isfinite(scaling.scale)


def _both_sides(
    sweeps: Sweeps, solution: Solution, used: Array | None, dtype: np.dtype[Any]
) -> tuple[Array, Array | None, Array]:
    """Return components (k x d), scores if the eigenvectors are those of the samples, and errors.

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
    """Return orthonormal rows close to these; a row of length zero is replaced by another direction.

    Also returns how much of each other row was added to a row, (k x k).
    """
    null = lengths <= np.sqrt(np.finfo(np.float64).eps) * lengths[0]
    rows[null] = np.random.default_rng(0).standard_normal((int(null.sum()), rows.shape[1]))
    for row in rows:
        row /= np.linalg.norm(row)
    if np.linalg.eigvalsh(rows @ rows.T)[0] < DEPENDENT:
        _replace_dependent(rows)
    turn = np.eye(len(rows))
    # The Cholesky factor of the k x k Gram matrix needs no copy of the rows, which are nearly orthonormal already.
    for _ in range(3):
        inverse = np.linalg.inv(np.linalg.cholesky(rows @ rows.T))
        turn = inverse @ turn
        for start in range(0, rows.shape[1], UNIT_COLUMNS):
            rows[:, start : start + UNIT_COLUMNS] = inverse @ rows[:, start : start + UNIT_COLUMNS]
    return rows, turn - np.diag(np.diag(turn))


def _replace_dependent(rows: Array) -> None:
    """Replace unit rows in the span of those before by random directions, in place: the rest of them is rounding."""
    rng = np.random.default_rng(0)
    for i, row in enumerate(rows):
        before = np.linalg.qr(rows[:i].T)[0]
        if np.linalg.norm(row - before @ (before.T @ row)) < np.sqrt(DEPENDENT):
            row[:] = rng.standard_normal(len(row))
            row -= before @ (before.T @ row)
            row /= np.linalg.norm(row)


def project(
    source: Source, fitted: PCAFit, missing: str, memory: Any = None, progress: Progress = silent,
    dtype: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the scores (n x k) of samples, and their squared lengths (n,) after centring and scaling; one sweep.

    The squared length minus that of the scores may be a small difference of large numbers: request float64 for it.
    """
    fitted.check_features(source)
    k = len(fitted.components)
    axis = source.preferred_axis
    N = source.shape[1 - axis]
    needs = Needs(
        axis, 8 * N * Statistic().tile_length(N, 8), partial=0 if axis == 0 else 8 * N * (k + 1),
        driver=8 * (3 * source.shape[0] + source.shape[1]) * (k + 1),
    )  # fmt: skip
    tiles = np.dtype(dtype or tile_dtype(source.dtype))
    planned = plan_sweeps(source, needs, Budget.of(memory), "projecting", dtype=tiles)
    return project_matrix(planned.over(source, missing, None, fitted.scaling, progress), fitted, check=True)


def project_observed(
    source: Source, fitted: PCAFit, memory: Any = None, progress: Progress = silent
) -> Placed:  # fmt: skip
    """Return the samples placed by least squares over their observed values; one sweep."""
    fitted.check_features(source)
    planned = plan_observed(source, fitted.n_components, Budget.of(memory))
    with planned.over(source, "mean", None, fitted.scaling, progress) as sweeps:
        return place_observed(sweeps, fitted.components, check=True)


def linear_sweeps(source: Source, fitted: PCAFit, missing: str, memory: Any, progress: Progress) -> Sweeps:
    """Plan a sweep over samples, cut along them, that maps each sample to a denoised one."""
    d, k, itemsize = source.shape[1], len(fitted.components), tile_dtype(source.dtype).itemsize
    tile = Statistic().tile_length(d, itemsize) * (itemsize * (2 * d + k) + 2 * 8 * d)
    needs = Needs(0, tile, row=(2 + WRITE_COPIES) * itemsize * d, driver=8 * 2 * d * (k + 2))
    planned = plan_sweeps(source, needs, Budget.of(memory), "denoising")
    return planned.over(source, missing, None, fitted.scaling, progress)


def project_matrix(
    sweeps: Sweeps, fitted: PCAFit, check: bool, sink: Callable[[int, Array], None] | None = None
) -> tuple[Array, Array]:
    """Sweep a matrix for scores and squared lengths; if it is cut along samples, a sink gets the scores instead.

    Data other than the fitted ones need a `check` for missing and infinite values.
    """
    M = fitted.components.T.astype(sweeps.matrix.dtype)
    if sweeps.matrix.axis == 0:
        pieces, _ = sweeps.run(Projection(M, sink), "scores", check)
        both = np.concatenate(pieces) if pieces else np.empty((0, M.shape[1] + 1), M.dtype)
    else:
        both, _ = sweeps.run(CrossProduct(M), "scores", check)
        both = both.astype(sweeps.matrix.dtype)
    return both[:, :-1], both[:, -1]


def with_scores(fitted: PCAFit, sweeps: Sweeps, sink: Callable[[int, Array], None] | None = None) -> PCAFit:
    """Return the fit with the scores of its samples; one sweep, into the sink if given, if they are unknown."""
    if fitted.scores is not None:
        return fitted
    before = sweeps.bytes_read
    scores, _ = project_matrix(sweeps, fitted, check=False, sink=sink)
    return replace(
        fitted, scores=scores if sink is None else None, sweep_seconds=(*fitted.sweep_seconds, sweeps.seconds[-1]),
        bytes_read=fitted.bytes_read + sweeps.bytes_read - before,
    )  # fmt: skip
