"""Groups of samples without labels: a Gaussian mixture with the number of groups that minimises BIC."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.assign.options import AssignOptions
from streampca.models.assign.records import FOLDS, Assignment, confusion_of, names_of, threshold_of

# The number of groups is chosen on at most this number of samples, drawn at random.
MOST_SEARCHED = 5_000
# Types of covariances that are compared.
SHAPES = ("full", "diag")


def by_groups(scores: Array, names: Array, options: AssignOptions, judged: Array, far: Array) -> Assignment:
    """Assign samples to the groups of a mixture; labels are only compared with them."""
    if len(scores) < 3:
        raise InputError(f"a mixture needs at least 3 samples, got {len(scores)}")
    # scikit-learn's smallest variance of a group is a constant, for any unit of the data.
    unit = float(np.sqrt(scores.var(axis=0).mean()))
    if not unit > 0:
        raise InputError("all samples have the same scores, so that there are no groups; give samples that differ")
    middle = scores.mean(axis=0)
    scores, judged = (scores - middle) / unit, (judged - middle) / unit
    with _explaining_collapse():
        mixture, details, notes = _mixture(scores, options)
    # Densities are per unit of the data, p(x) = p(x / unit) / unit^m.
    log_unit, searched = scores.shape[1] * np.log(unit), min(len(scores), MOST_SEARCHED)
    details["bic"] = [(shape, count, value + 2 * searched * log_unit) for shape, count, value in details["bic"]]
    order = np.argsort(-mixture.weights_, kind="stable")
    groups = [f"group {i + 1}" for i in range(len(order))]
    splits = list(KFold(min(FOLDS, len(scores)), shuffle=True, random_state=options.seed).split(scores))
    held = np.empty(len(scores))
    with _explaining_collapse():
        for train, test in splits:
            held[test] = _fit_again(mixture, scores[train]).score_samples(scores[test]) - log_unit
    threshold = threshold_of(held, options.outside)
    density, probabilities = mixture.score_samples(judged) - log_unit, mixture.predict_proba(judged)[:, order]
    labelled = np.flatnonzero(names != "")
    rows, confusion, rand_index = [], None, None
    if labelled.size:
        kinds, codes = np.unique(names[labelled], return_inverse=True)
        group = np.argsort(order)[mixture.predict(scores[labelled])]
        rand_index = float(adjusted_rand_score(codes, group))
        none = held[labelled] < (-np.inf if threshold is None else threshold)
        rows, columns = kinds.tolist(), np.where(none, len(groups), group)
        confusion = confusion_of(codes, columns, len(kinds), len(groups) + 1)
    return Assignment(
        method="gmm",
        classes=groups,
        probabilities=probabilities,
        assigned=names_of(groups, probabilities, density, threshold, far),
        density=density,
        threshold=threshold,
        rows=rows,
        confusion=confusion,
        rand_index=rand_index,
        n_labelled=len(labelled),
        n_judged=len(scores),
        folds=len(splits),
        details=details,
        notes=tuple(notes),
    )


@contextmanager
def _explaining_collapse() -> Iterator[None]:
    """Turn scikit-learn's error about singular covariances into an `InputError`."""
    try:
        yield
    except ValueError as error:
        if "ill-defined empirical covariance" not in str(error):
            raise
        raise InputError("some groups have no variance in a direction; use fewer --groups or --components") from error


def _mixture(scores: Array, options: AssignOptions) -> tuple[Any, dict[str, Any], list[str]]:
    """Return the mixture with the smallest BIC, over numbers of groups and full or diagonal covariances."""
    n = len(scores)
    some = scores
    if n > MOST_SEARCHED:
        some = scores[np.random.default_rng(options.seed).choice(n, MOST_SEARCHED, replace=False)]
    # At least two samples per group, even if a fifth of them is held out.
    most = max(1, len(some) // 2)
    if options.groups is not None and options.groups > most:
        raise InputError(f"groups must be at most {most} for {len(some)} samples, got {options.groups}")
    counts = [options.groups] if options.groups is not None else list(range(1, min(options.max_groups, most) + 1))
    with warnings.catch_warnings():
        # Reported for the chosen one.
        warnings.simplefilter("ignore", ConvergenceWarning)
        tried = [
            GaussianMixture(count, covariance_type=shape, n_init=3, random_state=options.seed).fit(some)
            for shape in SHAPES
            for count in counts
            # Covariances of few members are singular, and their likelihood is unbounded.
            if shape == "diag" or len(some) > 2 * count * scores.shape[1]
        ]
    criterion = [float(mixture.bic(some)) for mixture in tried]
    best, notes = tried[int(np.argmin(criterion))], []
    if options.groups is None and best.n_components == options.max_groups > 1:
        notes.append(
            f"BIC is smallest for {options.max_groups} groups, the largest number tried; increase --max-groups"
        )
    if len(some) < n:
        best = _fit_again(best, scores)
        notes.append(f"the number of groups minimises BIC on {len(some)} of {n} samples, drawn at random")
    if not best.converged_:
        notes.append("the mixture did not converge; use fewer --groups")
    curve = [
        (mixture.covariance_type, mixture.n_components, value) for mixture, value in zip(tried, criterion, strict=True)
    ]
    details = {"groups": best.n_components, "covariances": best.covariance_type, "bic": curve}
    return best, details, notes


def _fit_again(mixture: Any, scores: Array) -> Any:
    """Fit a mixture to other samples, starting from its parameters."""
    again = GaussianMixture(
        mixture.n_components, covariance_type=mixture.covariance_type, weights_init=mixture.weights_,
        means_init=mixture.means_, precisions_init=mixture.precisions_,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return again.fit(scores)
