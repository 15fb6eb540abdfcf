"""Targets, covariates and folds of a principal component regression, checked before any data are read; its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.pca.fit import resolve
from streampca.models.pca.options import PCAOptions
from streampca.models.pcr.options import PCROptions
from streampca.solvers import FOLD_SOLVERS
from streampca.solvers.base import Wanted
from streampca.solvers.choose import Plan, plan
from streampca.solvers.cost import Problem
from streampca.solvers.folds.dense import Design
from streampca.sources import Source
from streampca.sweep.memory import Budget

DEFAULT_COMPONENTS = 20
SMALLEST_SCALE = 1e-140  # standard deviation of targets and covariates; the largest is its inverse


@dataclass(frozen=True)
class Targets:
    """Targets and covariates of the samples.

    Attributes
    ----------
    y : (n, q) targets; a sample without one of them, or without a covariate, is not used.
    covariates : (n, c).
    names, covariate_names : of the columns.
    folds : (n,) fold of each sample, numbered from 0, -1 for samples that are not used; None to draw them.
    one_target : whether y has one dimension.
    """

    y: Array
    covariates: Array
    names: tuple[str, ...]
    covariate_names: tuple[str, ...] = ()
    folds: Array | None = None
    one_target: bool = False

    @classmethod
    def of(cls, y: Any, covariates: Any = None, folds: Any = None, n_samples: int | None = None) -> Targets:
        """Check arrays; columns without names are y1, y2 and c1, c2."""
        Y, names = columns_of(y, "y", "y")
        n = len(Y) if n_samples is None else n_samples
        C, others = (np.empty((n, 0)), ()) if covariates is None else columns_of(covariates, "covariates", "c")
        for what, given in (("y", Y), ("covariates", C), *([] if folds is None else [("folds", np.asarray(folds))])):
            if len(given) != n:
                raise InputError(f"{what} has {len(given)} rows for {n} samples; give one per sample")
        if folds is not None and (np.ndim(folds) != 1 or np.asarray(folds).dtype.kind not in "iu"):
            raise InputError("folds must be one integer per sample: its fold, or -1 for none")
        folds = None if folds is None else np.asarray(folds, np.int64)
        return cls(Y, C, names, others, folds, one_target=np.asarray(y).ndim == 1)

    def take(self, chosen: Array) -> Targets:
        """Return the targets of some samples."""
        folds = None if self.folds is None else self.folds[chosen]
        return replace(self, y=self.y[chosen], covariates=self.covariates[chosen], folds=folds)

    @property
    def complete(self) -> Array:
        """Mask of the samples that have all targets and covariates, and a fold if folds are given."""
        known = np.isfinite(self.y).all(axis=1) & np.isfinite(self.covariates).all(axis=1)
        return np.asarray(known if self.folds is None else known & (self.folds >= 0))


def columns_of(values: Any, what: str, letter: str) -> tuple[Array, tuple[str, ...]]:
    """Return numbers as columns, and the names of the columns."""
    names = getattr(values, "columns", None)
    if names is None and isinstance(getattr(values, "name", None), str):
        names = [values.name]
    try:
        array = np.asarray(values, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{what} must be numbers, one row per sample") from error
    if array.ndim not in (1, 2):
        raise InputError(f"{what} has {array.ndim} dimensions; give one number or one row per sample")
    array = array.reshape(len(array), -1)
    if np.isinf(array).any():
        raise InputError(
            f"Input {what} contains infinity or a value too large for dtype('float64'); give numbers, or NaN for "
            "samples that are not to be used"
        )
    plain = (f"{letter}{i + 1}" for i in range(array.shape[1]))
    return array, tuple(map(str, names)) if names is not None and len(names) == array.shape[1] else tuple(plain)


def pca_options(options: PCROptions) -> PCAOptions:
    """Return the options that the components share with PCA."""
    return PCAOptions.of({**dict(options), "n_components": None, "resolve": "all"})


def design_of(options: PCROptions, targets: Targets, n_features: int) -> Design:
    """Check targets and covariates, draw the folds, and check the number of components."""
    used = targets.complete
    n = int(used.sum())
    if n < 3:
        raise InputError(
            f"{n} of n_samples = {len(used)} samples have values of {', '.join(targets.names)} and all covariates; "
            "a regression needs 3 or more: check the ids and the missing values"
        )
    folds, n_folds = _folds(options, targets, used)
    counts = np.bincount(folds[used], minlength=max(1, n_folds))
    smallest = n - (counts.max() if n_folds else 0)
    c = targets.covariates.shape[1]
    most = int(min(n_features, smallest - 1 - c))
    if most < 1:
        raise InputError(
            f"the smallest training set has {smallest} samples, too few for an intercept, {c} covariates and a "
            "component; give more samples, or fewer folds or covariates"
        )
    k = min(DEFAULT_COMPONENTS, most) if options.n_components is None else options.n_components
    if k > most:
        raise InputError(
            f"n_components must be at most {most} for {n_features} features, {smallest} samples in the smallest "
            f"training set, an intercept and {c} covariates, got {k}"
        )
    others = np.hstack([targets.covariates, targets.y])
    varies = (others[used] != others[used][0]).any(axis=0)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        others = np.where(used[:, None] & varies, others - others[used].mean(axis=0), 0.0)
        scale = np.where(varies, others[used].std(axis=0), 1.0)
    outside = ~((scale >= SMALLEST_SCALE) & (scale <= 1 / SMALLEST_SCALE))
    if outside.any():
        name = (*targets.covariate_names, *targets.names)[int(outside.argmax())]
        raise InputError(
            f"{name}: values are too large or too small: their squares overflow or underflow; multiply them by a "
            "constant, so that their standard deviation is near 1"
        )
    return Design(folds, n_folds, others / scale, scale, Wanted(k, None, options.tol))


def _folds(options: PCROptions, targets: Targets, used: Array) -> tuple[Array, int]:
    """Return the fold of each sample and the number of folds: as given, or random folds of nearly equal size."""
    n = int(used.sum())
    folds = np.where(used, 0, -1)
    if targets.folds is not None:
        if options.cv == 0:
            raise InputError(
                "cv=0 is no cross-validation, but folds are given; omit cv=0 or folds (to exclude a sample, set its "
                "target to NaN)"
            )
        n_folds = int(targets.folds.max()) + 1
        folds = np.where(used, targets.folds, -1)
        empty = sorted(set(range(n_folds)) - set(folds[used].tolist()))
        if n_folds < 2 or empty:
            which = f"fold {empty[0]} has no used samples" if empty else "there is only one fold"
            raise InputError(f"{which}; number at least 2 folds from 0, none of them empty")
        return folds, n_folds
    if options.cv > n:
        raise InputError(
            f"cv must be at most {n}, the number of used samples of n_samples = {len(used)}, got {options.cv}"
        )
    if options.cv:
        order = np.random.default_rng(options.random_state).permutation(n)
        shuffled = np.empty(n, np.int64)
        shuffled[order] = np.arange(n) * options.cv // n
        folds[used] = shuffled
    return folds, options.cv


def plan_pcr(source: Source, options: PCROptions, targets: Targets, *, memory: Any = None) -> Plan:
    """Choose the solver and predict the cost, without reading any data."""
    design, resolved = design_of(options, targets, source.shape[1]), resolve(pca_options(options), source)
    fills = resolved.missing == "mean" and source.dtype.kind == "f"
    problem = Problem(
        source, design.wanted, options.random_state, Budget.of(memory), n_folds=design.n_folds,
        n_others=design.others.shape[1], fills=fills,
    )  # fmt: skip
    # Scores of a regression are differences of sums: float64 throughout.
    dtype, also = np.dtype(np.float64), f" with {design.n_folds} folds" if design.n_folds else ""
    return plan(problem, options.solver, FOLD_SOLVERS, dtype=dtype, also=also)
