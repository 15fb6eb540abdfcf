"""Principal component regression as plain functions: y on covariates and the first m scores, for every m at once.

    y = a + c'gamma + z_m'beta_m + error,   z_m = V_m'(x - mean),   lifted to features: beta = V_m beta_m

References: Massy (1965), J. Am. Stat. Assoc. 60, 234; Hastie, Tibshirani & Friedman (2009), The Elements of
Statistical Learning, 2nd ed., section 3.5.1.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.genetics.matching import Match
from streampca.models.genotypes import placed_genotypes
from streampca.models.pca.fit import of_features, project, resolve, used_features
from streampca.models.pca.record import PCAFit, signed
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.record import PCRFit
from streampca.models.pcr.targets import Targets, columns_of, design_of, pca_options, plan_pcr
from streampca.models.record import swept
from streampca.progress import Progress, silent
from streampca.solvers.choose import Plan
from streampca.solvers.folds.dense import Design, FoldSolution
from streampca.solvers.folds.least_squares import least_squares_path
from streampca.solvers.restart import with_restarts
from streampca.sources import Source
from streampca.sweep.matrix import Matrix
from streampca.sweep.memory import Budget
from streampca.sweep.scaling import ALLELES
from streampca.sweep.sweep import Sweeps

FAR_OFF = 1e8  # squared distance of the used samples from the centre, relative to their largest variance


def fit_pcr(
    source: Source, options: PCROptions, targets: Targets, *, memory: Any = None, progress: Progress = silent
) -> tuple[PCRFit, Sweeps]:
    """Fit a principal component regression; return it and its sweeps, over the samples that genotypes keep.

    Parameters
    ----------
    source, options, targets : the data, the options, and what to predict.
    memory, progress : as for `fit_pca`.
    """
    started, memory = time.monotonic(), Budget.of(memory)

    def start(part: Source, kept: Array | None) -> tuple[tuple[Targets, Design, Plan], Sweeps]:
        known = targets if kept is None else targets.take(kept)
        design = design_of(options, known, part.shape[1])
        chosen, pca = plan_pcr(part, options, known, memory=memory), resolve(pca_options(options), part)
        matrix = chosen.matrix(part, pca.missing, pca.scale)
        if not (design.training(None).all() or matrix.fills or part.is_genotypes):
            if matrix.axis == 1 and matrix.scale not in ALLELES:
                matrix = replace(matrix, used=design.training(None))
        return (known, design, chosen), Sweeps(matrix, chosen.threads, progress)

    fitted, sweeps = with_restarts(source, start, _fit)
    return replace(fitted, seconds=time.monotonic() - started), sweeps


def _fit(planned: tuple[Targets, Design, Plan], sweeps: Sweeps) -> PCRFit:
    targets, design, chosen = planned
    solution = chosen.solver.solve(sweeps, design)
    components = _components(sweeps.matrix.source, solution, design, sweeps, chosen.name)
    return _regressed(solution, design, targets, components)


def _components(source: Source, solution: FoldSolution, design: Design, sweeps: Sweeps, solver: str) -> PCAFit:
    """Return the components of the used samples that have variance."""
    first, matrix, n_used = solution.trained[0], sweeps.matrix, int(design.training(None).sum())
    k = int((~first.null).sum())
    if k == 0:
        raise _no_variance(source, solution, matrix)
    used = used_features(solution.scaling)
    fields = of_features(source, solution.moments, solution.scaling, used)
    rows = solution.components[:k]
    if used is not None and fields["used"] is None and rows.shape[1] < len(used):
        rows = np.zeros((k, len(used)))
        rows[:, used] = solution.components[:k]
    notes, advice = fields["notes"], solution.advice
    if n_used < len(design.folds):
        notes += (f"{n_used} of {len(design.folds)} samples are used; the others have missing values",)
    if advice and solution.offset @ solution.offset > FAR_OFF * first.errors.values[0]:
        advice += "; samples that are not used are far from the others: remove them from the data"
    if k < design.k:
        notes += (f"the first {k} components have all the variance; the other components are not used",)
    return PCAFit(
        **(swept(sweeps) | fields | {"notes": notes, "n_samples": n_used}),
        # As a store returns them: products of another layout round differently.
        components=np.ascontiguousarray(signed(rows)),
        explained_variance=first.errors.values[:k],
        error=first.errors.certificate[:k],
        total_variance=solution.trace,
        converged=not advice,
        advice=advice,
        solver=solver,
        warm_start_seconds=sweeps.warm_seconds,
        sample_missing=sweeps.sample_missing,
    )


def _no_variance(source: Source, solution: FoldSolution, matrix: Matrix) -> InputError:
    """Return the error for samples that are the same in all features, up to rounding."""
    what = f"{source.name}: the samples that have all targets are the same in all features"
    distance = float(np.abs(solution.offset).max(initial=0.0)) if matrix.used is None else 0.0
    if distance == 0:
        return InputError(f"{what}; give features that vary among these samples")
    return InputError(
        f"{what}, up to rounding at {distance:.2g} from the mean of all samples; remove the other samples from the data"
    )


def _regressed(solution: FoldSolution, design: Design, targets: Targets, pca: PCAFit) -> PCRFit:
    """Choose the number of components of each target, and solve for its coefficients."""
    k, c = len(pca.components), targets.covariates.shape[1]
    q = len(targets.names)
    whole, *folds = (least_squares_path(trained, k, c) for trained in solution.trained)
    squares = np.diag(solution.trained[0].scatter)[-q:, None]
    sizes, unit = design.scale[:c], design.scale[c:]
    known: dict[str, Any] = {}
    chosen = np.full(q, k)
    if folds:
        sums = np.array([path.held_out for path in folds if path.held_out is not None])
        each = sums / np.bincount(design.folds[design.folds >= 0])[:, None, None]
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
        **vars(pca),
        **known,
        names=targets.names,
        covariate_names=targets.covariate_names,
        chosen=chosen,
        score_coefficient=score,
        covariate_coefficient=covariate,
        centre=centre - score @ offset,
        r2=_share(whole.errors, squares),
        folds=design.folds,
        n_folds=design.n_folds,
        one_target=targets.one_target,
    )


def _share(errors: Array, squares: Array) -> Array:
    """Return 1 - errors / squares; NaN for a target that does not vary."""
    return np.asarray(1 - np.divide(errors, squares, out=np.full(errors.shape, np.nan), where=squares > 0))


def predict_targets(
    source: Source, fitted: PCRFit, covariates: Any = None, match: Match | None = None,
    missing: str = "error", memory: Any = None, progress: Progress = silent,
) -> Array:  # fmt: skip
    """Return the predicted targets (n, q) of samples; one sweep, which checks for missing values.

    Parameters
    ----------
    covariates : (n, c), if the regression has covariates.
    match : variants of genotypes that match the fitted ones.
    """
    values, m = predicted_by_covariates(fitted, covariates, source.shape[0]), max(1, int(fitted.chosen.max()))
    part = fitted.leading(m)
    if match is not None:
        Z = placed_genotypes(source, part, match, projection="simple", memory=memory, progress=progress).scores
    else:
        with hint_for_missing("fill them, or fit with missing='mean'"):
            Z, _ = project(source, part, missing, memory, progress, np.float64)
    return np.asarray(values + Z @ fitted.score_coefficient[:, :m].T)


def predicted_by_covariates(fitted: PCRFit, covariates: Any, n_samples: int) -> Array:
    """Return the targets (n, q) of samples whose scores are zero."""
    c = len(fitted.covariate_names)
    C = np.empty((n_samples, 0)) if covariates is None else columns_of(covariates, "covariates", "c")[0]
    if C.shape != (n_samples, c):
        which = f" ({', '.join(fitted.covariate_names)})" if c else ""
        raise InputError(
            f"covariates have the shape {C.shape}, but the regression has {c} covariates{which} and X has {n_samples} "
            "samples; give one row per sample"
        )
    return np.asarray(fitted.centre + C @ fitted.covariate_coefficient.T)
