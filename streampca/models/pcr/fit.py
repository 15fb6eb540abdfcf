"""Principal component regression as plain functions: y on covariates and the first m scores, for every m at once.

    y = a + c'gamma + z_m'beta_m + error,   z_m = V_m'(x - mean),   lifted to features: beta = V_m beta_m

References: Massy (1965), J. Am. Stat. Assoc. 60, 234; Hastie, Tibshirani & Friedman (2009), The Elements of
Statistical Learning, 2nd ed., section 3.5.1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.genetics.matching import Match
from streampca.genetics.samples import without_sparse
from streampca.models.dataset import Variables, pca_variables, provenance
from streampca.models.genotypes import placed_genotypes
from streampca.models.pca.fit import PCAFit, also_spent, project, resolve, signed
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.targets import Targets, columns_of, design_of, pca_options, plan_pcr
from streampca.progress import Progress, silent
from streampca.solvers.base import SamplesLeftOut, left_out
from streampca.solvers.folds.dense import Design, FoldSolution
from streampca.solvers.folds.least_squares import least_squares_path
from streampca.sources import Axis, Source
from streampca.sources.genotypes import TEXT
from streampca.sweep.memory import Budget
from streampca.sweep.sweep import Sweeps, one_blas_thread

# Squared distance of the samples used from the centre, beside their largest variance, that costs half the digits.
FAR_OFF = 1e8


@dataclass(frozen=True)
class PCRFit:
    """A principal component regression with all that is known of it.

    Attributes
    ----------
    pca : components of the samples used, as many as were asked for and have variance, k. Scales of features are those
        of all samples; means those of the samples used, or of all for genotypes and where missing values stand at them.
    names, covariate_names : of targets (q) and covariates (c).
    chosen : (q,) components used for each target.
    score_coefficient : (q, k) of the scores, zero beyond those chosen.
    covariate_coefficient : (q, c).
    centre : (q,) value of the target where all scores and covariates are zero.
    cv_error, cv_error_deviation : (q, k + 1) mean over the folds of the mean squared error of samples left out, for
        m = 0 .. k, and its standard error; None without folds.
    cv_r2 : (q, k + 1) 1 - squared errors of samples excluded / squares about the mean; None without folds.
    r2 : (q, k + 1) share of the variance explained in the samples used.
    folds : (n,) fold of each sample, -1 for those that are not used.
    """

    pca: PCAFit
    names: tuple[str, ...]
    covariate_names: tuple[str, ...]
    chosen: Array
    score_coefficient: Array
    covariate_coefficient: Array
    centre: Array
    r2: Array
    folds: Array
    n_folds: int
    cv_error: Array | None = None
    cv_error_deviation: Array | None = None
    cv_r2: Array | None = None

    @property
    def coefficient(self) -> Array:
        """(q, d) of the features, in units of the data: V beta_m / scale."""
        lifted = self.score_coefficient @ self.pca.components
        return np.asarray(lifted if self.pca.scale is None else lifted / self.pca.scale)

    @property
    def intercept(self) -> Array:
        """(q,) of features and covariates in units of the data."""
        return np.asarray(self.centre - self.coefficient @ self.pca.mean)

    @property
    def genotypes(self) -> bool:
        """Whether the features are variants."""
        return self.pca.genotypes

    def at_chosen(self, values: Array) -> Array:
        """Return values for m = 0 .. k (q, k + 1) at the number of components chosen (q,)."""
        return np.asarray(np.take_along_axis(values, self.chosen[:, None], axis=1)[:, 0])


def fit_pcr(
    source: Source, options: PCROptions, targets: Targets, *, memory: Any = None, progress: Progress = silent
) -> tuple[PCRFit, Source]:
    """Fit a principal component regression; return it, and the source that it is of (genotypes may lose samples).

    Parameters
    ----------
    source, options, targets : the data, the options, and what to predict.
    memory, progress : as for `fit_pca`.
    """
    started, memory = time.monotonic(), Budget.of(memory)
    design = design_of(options, targets, source.shape[1])
    chosen, pca = plan_pcr(source, options, targets, memory=memory), resolve(pca_options(options), source)
    matrix = chosen.matrix(source, pca.missing, pca.scale)
    if not (design.training(None).all() or matrix.fills or source.is_genotypes):
        if matrix.axis == 1 and matrix.scale != "patterson":
            matrix = replace(matrix, used=design.training(None))
    sweeps = Sweeps(matrix, chosen.threads, progress)
    solver: Any = chosen.solver
    full: Array | None = None
    try:
        with sweeps:
            solution = solver.solve(sweeps, design)
    except SamplesLeftOut as error:
        full = error.full
    if full is not None:
        spent, n_bytes = sweeps.seconds, sweeps.bytes_read
        del sweeps, chosen
        found, source = fit_pcr(
            without_sparse(source, full), options, targets.take(full), memory=memory, progress=progress
        )
        return replace(found, pca=also_spent(found.pca, spent, n_bytes)), source
    with one_blas_thread:
        pca_found = _components(source, solution, design, sweeps, chosen.name)
        found = _regressed(solution, design, targets, pca_found)
    return replace(found, pca=replace(found.pca, seconds=time.monotonic() - started)), source


def _components(source: Source, solution: FoldSolution, design: Design, sweeps: Sweeps, solver: str) -> PCAFit:
    """Return the components of the samples used that have variance, with all that is known of them."""
    whole, scale, moments, matrix = solution.trained[0], solution.scaling.scale, solution.moments, sweeps.matrix
    k = int((~whole.null).sum())
    if k == 0:
        # About their own mean, no more than rounding is left.
        off = float(np.abs(solution.offset).max(initial=0.0)) if matrix.used is None else 0.0
        why = f", as far as double precision tells at {off:.2g} from the mean of all samples" if off else ""
        cure = "; leave the others out of the data" if off else "; give features that vary among these"
        raise InputError(f"{source.name}: the samples that have all targets are the same in all features{why}{cure}")
    used = None if scale is None or np.isfinite(scale).all() else np.isfinite(scale)
    rows = solution.components[:k]
    features: Any = slice(None)
    notes: tuple[str, ...] = ()
    if source.filter is not None:
        notes = source.notes
        if used is not None:
            notes += (f"variants excluded: {left_out(source.filter, moments)}",)
            features = used
    elif scale is not None and used is not None:
        # Arrays keep their features: those that do not vary have zero in every component.
        if rows.shape[1] < len(used):
            placed = np.zeros((k, len(used)))
            placed[:, used] = rows
            rows = placed
        scale, used = np.where(used, scale, 1.0), None
    if whole.n_samples < len(design.folds):
        notes += (f"{whole.n_samples} of {len(design.folds)} samples are used; the others have values missing",)
    advice = solution.advice
    if advice and solution.offset @ solution.offset > FAR_OFF * whole.values[0]:
        advice += "; samples that are not used lie far from the others: leave them out of the data"
    if k < design.k:
        notes += (f"the first {k} components have all the variance; the others asked for are not used",)
    return PCAFit(
        components=signed(rows),
        explained_variance=whole.values[:k],
        certificate=whole.certificate[:k],
        total_variance=solution.trace,
        mean=solution.scaling.mean[features],
        scale=None if scale is None else scale[features],
        missing=moments.missing[features],
        n_samples=whole.n_samples,
        converged=not advice,
        advice=advice,
        solver=solver,
        tile_dtype=str(matrix.dtype),
        sweep_seconds=tuple(sweeps.seconds),
        warm_seconds=sweeps.warm_seconds,
        bytes_read=sweeps.bytes_read,
        seconds=0.0,
        genotypes=source.is_genotypes,
        used=used,
        notes=notes,
        sample_missing=sweeps.sample_missing,
    )


def _regressed(solution: FoldSolution, design: Design, targets: Targets, pca: PCAFit) -> PCRFit:
    """Choose the number of components of each target, and solve for its coefficients."""
    k, c = len(pca.components), targets.covariates.shape[1]
    q = len(targets.names)
    whole, *folds = (least_squares_path(trained, k, c) for trained in solution.trained)
    squares = np.diag(solution.trained[0].scatter)[-q:, None]
    sizes, unit = design.scale[:c], design.scale[c:]
    known: dict[str, Array] = {}
    chosen = np.full(q, k)
    if folds:
        errors = [path.left_out for path in folds]
        sums = np.array([error for error in errors if error is not None])
        each = sums / np.array([trained.n_left_out for trained in solution.trained[1:]])[:, None, None]
        known["cv_error"] = each.mean(axis=0) * unit[:, None] ** 2
        known["cv_error_deviation"] = each.std(axis=0, ddof=1) / np.sqrt(len(each)) * unit[:, None] ** 2
        known["cv_r2"] = _share(sums.sum(axis=0), squares)
        chosen = known["cv_error"].argmin(axis=1)
    # Scores of the solution are along its own rows; components have the signs that scikit-learn gives them.
    rows = solution.components[:k]
    turned = np.sign(np.einsum("ij,ij->i", signed(rows), rows))
    score, covariate = np.zeros((q, k)), np.zeros((q, c))
    for j, m in enumerate(chosen):
        both = whole.coefficients(j, c + m)
        covariate[j], score[j, :m] = both[:c] / sizes * unit[j], both[c:] * turned[:m] * unit[j]
    # Scores of the samples used have the mean `offset`.
    used = design.folds >= 0
    centre = targets.y[used].mean(axis=0)
    if c:
        centre = centre - covariate @ targets.covariates[used].mean(axis=0)
    offset = (rows @ solution.offset) * turned
    return PCRFit(
        pca, targets.names, targets.covariate_names, chosen, score, covariate,
        centre - score @ offset, _share(whole.errors, squares), design.folds, design.n_folds, **known,
    )  # fmt: skip


def _share(errors: Array, squares: Array) -> Array:
    """1 - errors / squares; of a target that does not vary, not a number."""
    return np.asarray(1 - np.divide(errors, squares, out=np.full(errors.shape, np.nan), where=squares > 0))


def predict_targets(
    source: Source, found: PCRFit, covariates: Any = None, match: Match | None = None,
    missing: str = "error", memory: Any = None, progress: Progress = silent,
) -> Array:  # fmt: skip
    """Return the targets (n, q) that a regression foretells for samples; one sweep, which looks for missing values.

    Parameters
    ----------
    covariates : (n, c), where the regression has them.
    match : which variants of genotypes are those fitted.
    """
    values, m = foretold_by_covariates(found, covariates, source.shape[0]), max(1, int(found.chosen.max()))
    part = found.pca.leading(m)
    if match is not None:
        Z, _ = placed_genotypes(source, part, match, projection="simple", memory=memory, progress=progress)
    else:
        with hint_for_missing("fill them, or fit with missing='mean'"):
            Z, _ = project(source, part, missing, memory, progress, np.float64)
    return np.asarray(values + Z @ found.score_coefficient[:, :m].T)


def foretold_by_covariates(found: PCRFit, covariates: Any, n_samples: int) -> Array:
    """Return the targets (n, q) of samples whose scores are zero."""
    c = len(found.covariate_names)
    C = np.empty((n_samples, 0)) if covariates is None else columns_of(covariates, "covariates", "c")[0]
    if C.shape != (n_samples, c):
        which = f" ({', '.join(found.covariate_names)})" if c else ""
        raise InputError(
            f"covariates have the shape {C.shape}, but the regression has {c} covariates{which} and there are "
            f"{n_samples} samples; give one row for each sample"
        )
    return np.asarray(found.centre + C @ found.covariate_coefficient.T)


# ---------------------------------------------------------------- as a Dataset


def regression_variables(found: PCRFit, samples: Axis, features: Axis) -> tuple[Variables, Variables]:
    """Return variables and coordinates of a regression, each with its dimensions."""
    pca, target = found.pca, ("target",)
    variables, coords = pca_variables(pca, samples, features, None)
    path = (*target, "m")
    variables |= {
        "coefficient": (target + features.dims, found.coefficient.reshape(-1, *features.sizes)),
        "intercept": (target, found.intercept),
        "centre": (target, found.centre),
        "score_coefficient": ((*target, "component"), found.score_coefficient),
        "chosen": (target, found.chosen),
        "r2": (path, found.r2),
        "fold": (samples.dims, found.folds.reshape(samples.sizes)),
    }
    if found.covariate_names:
        variables["covariate_coefficient"] = ((*target, "covariate"), found.covariate_coefficient)
        coords["covariate"] = (("covariate",), np.array(found.covariate_names, TEXT))
    for name in ("cv_error", "cv_error_deviation", "cv_r2"):
        if getattr(found, name) is not None:
            variables[name] = (path, getattr(found, name))
    coords["target"] = (target, np.array(found.names, TEXT))
    coords["m"] = (("m",), np.arange(found.r2.shape[1]))
    return variables, coords


def regression_attributes(found: PCRFit, name: str, fingerprint: str, parameters: Any) -> dict[str, Any]:
    """Return where a regression comes from."""
    return {**provenance(found.pca, name, fingerprint, parameters), "kind": "pcr", "n_folds": found.n_folds}
