"""Principal components as plain functions: fit, project, reconstruct. The estimator and the commands call these."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.samples import without_sparse
from streampca.models.pca.options import PCAOptions
from streampca.progress import Progress, logger, silent
from streampca.solvers.base import PROBE_TOL, NeedsFloat64, SamplesLeftOut, Solution, Wanted, left_out, total_variance
from streampca.solvers.choose import Plan, Timed, check_components, plan
from streampca.solvers.cost import ASSUMED_COMPONENTS
from streampca.sources import Axis, Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import CrossProduct, Projection, Statistic
from streampca.sweep.sweep import Sweeps

# Values of the option `certificate`, and what solvers call them.
CERTIFICATES = {True: "probe", "exact": "exact", False: "none"}
UNIT_COLUMNS = 8192
# Unit rows whose Gram matrix has a smaller eigenvalue are not independent.
DEPENDENT = 1e-4
# Of genotypes, as other programs give.
# More sets of components that are not distinguishable are said in one note.
MOST_NOTES = 2


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


@dataclass(frozen=True)
class PCAFit:
    """Principal components with all that is known of them.

    Attributes
    ----------
    components : (k, d), orthonormal rows, the largest entry of each positive.
    explained_variance, certificate : (k,).
    certificate_method : how the certificates were obtained: "probe", "exact", or "none" where they are estimates.
    total_variance : trace of the covariance, n - 1 convention.
    mean, scale : (d,), scale None where features are not scaled.
    missing : (d,) missing values of each feature.
    squares : (d,) sum of squared deviations of each feature from its mean, scaled.
    genotypes : whether the features are variants.
    used : (d,) which features the filter let pass; None for all. All else is of these alone.
    following : the next eigenvalue, as far as it is known.
    notes : what was left out and what to mind, in words.
    sample_missing : (n,) missing calls of each sample, of genotypes.
    scores : (n, k) where the fit gave them without a sweep of their own, else None.
    scatter : (d, d) unscaled scatter matrix, if asked for and formed.
    probe, chain : (d, p) its product with random vectors in float64 where it was formed in float32, and the length of
        its sums.
    """

    components: Array
    explained_variance: Array
    certificate: Array
    total_variance: float
    mean: Array
    scale: Array | None
    missing: Array
    n_samples: int
    converged: bool
    advice: str
    solver: str
    tile_dtype: str
    sweep_seconds: tuple[float, ...]
    warm_seconds: float
    bytes_read: int
    seconds: float
    squares: Array | None = None
    genotypes: bool = False
    used: Array | None = None
    following: float | None = None
    notes: tuple[str, ...] = ()
    sample_missing: Array | None = None
    scores: Array | None = None
    scatter: Array | None = None
    probe: Array | None = None
    chain: int = 0
    certificate_method: str = "exact"

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data."""
        return len(self.sweep_seconds)

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and those of the features that were used, of the source that was swept."""
        return source.samples, source.features if self.used is None else source.features.take(self.used)

    @property
    def scaling(self) -> Scaling:
        """Centre and scale of the features."""
        return Scaling(self.mean, self.scale)

    def leading(self, count: int) -> PCAFit:
        """Return the first so many components alone."""
        return replace(
            self, components=self.components[:count], explained_variance=self.explained_variance[:count],
            certificate=self.certificate[:count], scores=None if self.scores is None else self.scores[:, :count],
            following=float(self.explained_variance[count]) if count < len(self.components) else self.following,
        )  # fmt: skip

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the total variance of each component."""
        return self.explained_variance / self.total_variance

    @property
    def genotype_eigenvalue(self) -> Array:
        """Eigenvalues of X X' / m for m features (variants), as programs for genotypes give them."""
        return np.asarray(self.explained_variance * (self.n_samples - 1) / len(self.mean))

    @property
    def noise_variance(self) -> float:
        """Mean of the eigenvalues left out, from the trace (as scikit-learn counts them: min(n, d) - k)."""
        left = min(self.n_samples, len(self.mean)) - len(self.explained_variance)
        return max(0.0, self.total_variance - float(self.explained_variance.sum())) / left if left else 0.0

    @property
    def typical_distance(self) -> float:
        """Root mean square distance of the fitted samples from the components: sqrt((n - 1) / n (total - sum l_i))."""
        left = max(0.0, self.total_variance - float(self.explained_variance.sum()))
        return float(np.sqrt((self.n_samples - 1) / self.n_samples * left))


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
    started, memory = time.monotonic(), Budget.of(memory)
    chosen = plan_pca(source, options, memory=memory, extra_sweeps=extra_sweeps, keep_scatter=keep_scatter)
    resolved = resolve(options, source)
    wanted = wanted_components(resolved, source.shape)
    missing = "detect" if detect_missing else resolved.missing
    sweeps = chosen.over(source, missing, resolved.scale, progress=progress)
    full: Array | None = None
    try:
        with sweeps:
            solution, tiles = _solved(chosen, sweeps, wanted)
            used = _used(solution.scaling)
            if used is not None and used.sum() < len(solution.values):
                solution = solution.leading(int(used.sum()))
            components, scores, certificate = _both_sides(sweeps, solution, used, tiles)
    except SamplesLeftOut as error:
        full = error.full
    if full is not None:
        spent, n_bytes = sweeps.seconds, sweeps.bytes_read
        # Frees the data that were kept, before the next fit keeps its own.
        del sweeps, chosen
        found, sweeps = fit_pca(
            without_sparse(source, full), options, memory=memory, progress=progress, extra_sweeps=extra_sweeps,
            keep_scatter=keep_scatter, detect_missing=detect_missing,
        )  # fmt: skip
        return also_spent(found, spent, n_bytes), sweeps
    fitted_in = str(sweeps.matrix.dtype)
    sweeps.matrix = replace(sweeps.matrix, dtype=tiles)
    notes: tuple[str, ...] = ()
    scale: Any = solution.scaling.scale
    features: Any = slice(None)
    if source.filter is not None:
        notes = source.notes
        if used is not None:
            notes += (f"variants excluded: {left_out(source.filter, solution.moments)}",)
            features = used
    elif used is not None:
        # Arrays keep their features: those that do not vary have zero in every component.
        scale, used = np.where(used, scale, 1.0), None
    found = PCAFit(
        components=components,
        explained_variance=solution.values,
        certificate=certificate,
        total_variance=solution.trace,
        mean=solution.moments.mean[features],
        scale=None if scale is None else scale[features],
        missing=solution.moments.missing[features],
        squares=(solution.moments.m2 / (1.0 if scale is None else scale**2))[features],
        n_samples=source.shape[0],
        converged=solution.converged,
        advice=solution.advice,
        solver=chosen.name,
        tile_dtype=fitted_in,
        sweep_seconds=tuple(sweeps.seconds),
        warm_seconds=sweeps.warm_seconds,
        bytes_read=sweeps.bytes_read,
        seconds=time.monotonic() - started,
        genotypes=source.is_genotypes,
        used=used,
        following=solution.following,
        notes=notes,
        sample_missing=sweeps.sample_missing,
        scores=scores,
        scatter=solution.scatter,
        probe=solution.probe,
        chain=solution.chain,
        certificate_method=solution.errors.method,
    )
    return replace(found, notes=notes + not_distinguishable(found)), sweeps


def _solved(chosen: Plan, sweeps: Sweeps, wanted: Wanted) -> tuple[Solution, np.dtype[Any]]:
    """Solve, in float64 if values are out of the range of float32; returns the type of the scores, too."""
    double = np.dtype(np.float64)
    try:
        solution = chosen.solver.solve(sweeps, wanted)
    except NeedsFloat64:
        logger.info("values are out of the range of float32 tiles; restarting in float64")
        sweeps.matrix = replace(sweeps.matrix, dtype=double, scaling=None)
        return chosen.solver.solve(sweeps, wanted), double
    source, scale = sweeps.matrix.source, solution.scaling.scale
    try:
        total_variance(solution.moments, scale, source.shape[0], chosen.dtype, source.name)
    except NeedsFloat64:
        return solution, double
    return solution, double if wanted.tol < PROBE_TOL else chosen.dtype


def also_spent(found: Any, seconds: Sequence[float], bytes_read: int) -> Any:
    """Count what was swept before the fit began again."""
    return replace(found, sweep_seconds=(*seconds, *found.sweep_seconds), bytes_read=bytes_read + found.bytes_read)


def not_distinguishable(found: PCAFit) -> tuple[str, ...]:
    """Say which components stand too close to each other to be told apart, by North's rule of thumb.

    An eigenvalue has the sampling error lambda sqrt(2 / N) for N independent replicates: the samples, or of genotypes
    the variants. Neighbours closer than that are some mixture of each other, and another sample would mix them anew.

    References: North, Bell, Cahalan & Moeng (1982), Mon. Weather Rev. 110, 699.
    """
    replicates = len(found.mean) if found.genotypes else found.n_samples
    values = np.append(found.explained_variance, [] if found.following is None else [found.following])
    close = -np.diff(values) < values[:-1] * np.sqrt(2 / replicates)
    k, said, alike, first = len(found.explained_variance), [], [], 0
    why = "eigenvalues differ by less than their sampling error"
    while first < len(close):
        last = first
        while last < len(close) and close[last]:
            last += 1
        if last > first:
            end = min(last, k - 1)
            which = (
                f"PC {first + 1}"
                if end == first
                else f"PCs {first + 1} {'and' if end == first + 1 else 'to'} {end + 1}"
            )
            if last < k:
                alike.append(which)
            elif end == first:
                said.append(f"{which} is not distinguishable from those that follow it: the {why}; it may be noise")
            else:
                said.append(
                    f"{which}, and those that follow them, are not distinguishable: their {why}; they may be noise"
                )
        first = max(last, first + 1)
    if len(alike) > MOST_NOTES:
        alike = [f"PCs {', '.join(which.removeprefix('PCs ') for which in alike)}"]
    said[:0] = [f"{which} are not distinguishable: their {why}; read them as one plane or space" for which in alike]
    return tuple(said)


def _used(scaling: Scaling) -> Array | None:
    """Tell which features are used; None if all are."""
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
    signs = _signs(components)
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


def signed(components: Array) -> Array:
    """Return the rows with the sign that makes the largest entry of each positive, as scikit-learn has it."""
    return components * _signs(components)[:, None]


def _signs(components: Array) -> Array:
    """Return the sign of the largest entry of each row, which scikit-learn makes positive."""
    # Row by row: the magnitudes of all at once would be one more copy of the components.
    signs = np.array([np.sign(row[np.abs(row).argmax()]) for row in components])
    return np.where(signs == 0, 1.0, signs)


def check_width(source: Source, found: PCAFit) -> None:
    """Refuse data with other features than those fitted."""
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


def distances(scores: Array, squares: Array) -> Array:
    """Return how far samples lie from the space of the components: |a - V V'a| = sqrt(|a|^2 - |z|^2), in scaled units.

    A missing value that stands at its mean adds nothing. What `project` gives in float32 resolves distances down to
    about 1e-3 |a|, in float64 down to 1e-7 |a|: below that the difference is rounding, and may come out as 0.

    Parameters
    ----------
    scores, squares : (n, k) and (n,), as `project` returns them.

    References: Turk & Pentland (1991), J. Cogn. Neurosci. 3, 71 ("distance from face space").
    """
    inside = np.einsum("ij,ij->i", scores, scores, dtype=np.float64)
    return np.asarray(np.sqrt(np.maximum(squares.astype(np.float64) - inside, 0.0)))


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


def log_likelihood(scores: Array, squares: Array, found: PCAFit) -> Array:
    """Log-likelihood of each sample under the probabilistic PCA model with these components.

    log N(x; mean, C),  C = V diag(l - s2) V' + s2 I,   x'C^-1 x = (|x|^2 - |z|^2) / s2 + sum z_i^2 / l_i

    which needs the scores z and the length of x alone, not the d x d matrix.

    References: Tipping & Bishop (1999), J. R. Stat. Soc. B 61, 611.
    """
    d, k = len(found.mean), len(found.components)
    l, s2 = found.explained_variance, found.noise_variance
    z2 = scores.astype(np.float64) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (z2 / l).sum(axis=1)
        if k == d:
            return np.asarray(-0.5 * (d * np.log(2 * np.pi) + np.log(l).sum() + inside))
        outside = np.maximum(squares.astype(np.float64) - z2.sum(axis=1), 0.0) / s2
        logdet = np.log(l).sum() + (d - k) * np.log(s2)
    return np.asarray(-0.5 * (d * np.log(2 * np.pi) + logdet + inside + outside))
