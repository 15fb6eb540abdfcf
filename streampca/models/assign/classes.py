"""Classes of labelled samples: neighbours, naive Bayes and kernel densities, cross-validated."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, recall_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.assign.options import AssignOptions
from streampca.models.assign.records import FOLDS, NONE, Assignment, confusion_of, names_of, threshold_of

Split = tuple[Array, Array]

# Candidates for the bandwidth, as multiples of Scott's rule.
BANDWIDTHS = np.geomspace(1 / 8, 4, 16)
# At most this number of samples have kernels, drawn at random.
MOST_KERNELS = 10_000


class NearestClasses(KNeighborsClassifier):  # type: ignore[misc]
    """Nearest neighbours, with one search for votes and distances."""

    def fit(self, X: Array, y: Array) -> NearestClasses:
        """Keep the samples; y are integers from 0."""
        self.codes_ = y
        super().fit(X, y)
        return self

    def votes(self, X: Array) -> tuple[Array, Array]:
        """Return the share of neighbours in each class (n x C), and the distance to the nearest."""
        distances, nearest = self.kneighbors(X)
        shares = np.zeros((len(X), len(self.classes_)))
        for column in nearest.T:
            shares[np.arange(len(X)), self.codes_[column]] += 1 / len(nearest.T)
        return shares, distances[:, 0]


class KernelClasses(BaseEstimator):  # type: ignore[misc]
    """Kernel densities of classes, one bandwidth for all: p(x, c) = pi_c / n_c sum_{i in c} N(x; x_i, h^2 I).

    Parameters
    ----------
    bandwidth : h.
    shares : (C,) the pi_c; those of the samples of the fit if None.
    """

    def __init__(self, bandwidth: float = 1.0, shares: Array | None = None):
        self.bandwidth = bandwidth
        self.shares = shares

    def fit(self, X: Array, y: Array) -> KernelClasses:
        """Keep the members of each class; y are integers."""
        self.classes_ = np.unique(y)
        self.densities_ = [KernelDensity(bandwidth=self.bandwidth).fit(X[y == c]) for c in self.classes_]
        counts = np.array([np.count_nonzero(y == c) for c in self.classes_])
        self.log_shares_ = np.log(counts / len(y) if self.shares is None else self.shares)
        return self

    def predict_joint_log_proba(self, X: Array) -> Array:
        """Return log p(x, c), n x C."""
        return np.stack([density.score_samples(X) for density in self.densities_], axis=1) + self.log_shares_

    def score(self, X: Array, y: Array) -> float:
        """Return the mean of log p(x | c) for the class of each sample."""
        total = 0.0
        for c, density in zip(self.classes_, self.densities_, strict=True):
            if (y == c).any():
                total += density.score_samples(X[y == c]).sum()
        return float(total / len(y))


def by_classes(scores: Array, names: Array, options: AssignOptions, judged: Array, far: Array) -> Assignment:
    """Assign samples to the classes of labelled samples."""
    labelled = np.flatnonzero(names != "")
    if not labelled.size:
        raise InputError("no sample has a label; give a table with labels of these samples, or use --method gmm")
    classes, codes = np.unique(names[labelled], return_inverse=True)
    X, counts = scores[labelled], np.bincount(codes)
    used = _with_kernels(codes, options) if options.method == "kde" else np.arange(len(X))
    notes = _class_notes(classes, counts, len(used), len(X))
    splits = _stratified(codes[used], options.seed)
    shares = counts / len(X) if len(used) < len(X) else None
    model, details = _model(options, X[used], codes[used], splits, shares, notes)
    likeliest, held_density = _held_out(model, X, codes, used, splits)
    probabilities, density = _judge(model.fit(X[used], codes[used]), judged)
    others = np.setdiff1d(np.arange(len(X)), used)
    if others.size:
        # Samples without kernels are held out already.
        seen = (probabilities[labelled[others]], density[labelled[others]])
        seen = seen if judged is scores else _judge(model, X[others])
        likeliest[others], held_density[others] = seen[0].argmax(axis=1), seen[1]
    known = likeliest >= 0
    threshold = threshold_of(held_density[known], options.outside)
    if not known.any():
        notes.append("no sample could be held out: accuracy is unknown, and every sample is assigned")
    held = np.where(held_density < (-np.inf if threshold is None else threshold), len(classes), likeliest)
    held_out = np.full(len(scores), "", object)
    held_out[labelled[known]] = np.append(classes.astype(object), NONE)[held[known]]
    return Assignment(
        method=options.method,
        classes=classes.tolist(),
        probabilities=probabilities,
        assigned=names_of(classes.tolist(), probabilities, density, threshold, far),
        density=density,
        threshold=threshold,
        held_out=held_out,
        rows=classes.tolist(),
        confusion=confusion_of(codes[known], held[known], len(classes), len(classes) + 1),
        **_accuracies(codes[known], likeliest[known]),
        n_labelled=len(X),
        n_judged=int(known.sum()),
        folds=len(splits),
        details=details,
        notes=tuple(notes),
    )


def _class_notes(classes: Array, counts: Array, n_used: int, n_labelled: int) -> list[str]:
    """Return notes on classes that cannot be judged, and on samples without kernels."""
    notes = []
    if (alone := int((counts == 1).sum())) > 0:
        which = f" ({', '.join(classes[counts == 1])})" if alone <= 5 else ""
        notes.append(f"{alone} of {len(classes)} classes have one member{which}, which cannot be held out")
    if len(classes) == 1:
        notes.append("there is one class: its accuracy is meaningless, the share of `none of these` is not")
    if n_used < n_labelled:
        notes.append(f"{n_used} of {n_labelled} labelled samples, drawn at random, have kernels")
    return notes


def _held_out(model: Any, X: Array, codes: Array, used: Array, splits: list[Split]) -> tuple[Array, Array]:
    """Return the most probable class and log p(x) of each sample by a model fitted without it; -1 and NaN if none."""
    likeliest, density = np.full(len(X), -1), np.full(len(X), np.nan)
    for train, test in splits:
        probabilities, density[used[test]] = _judge(model.fit(X[used[train]], codes[used[train]]), X[used[test]])
        likeliest[used[test]] = probabilities.argmax(axis=1)
    return likeliest, density


def _accuracies(codes: Array, likeliest: Array) -> dict[str, float | None]:
    """Return accuracy and balanced accuracy; None without samples."""
    if not len(codes):
        return {"accuracy": None, "balanced_accuracy": None}
    balanced = recall_score(codes, likeliest, labels=np.unique(codes), average="macro")
    return {"accuracy": float(accuracy_score(codes, likeliest)), "balanced_accuracy": float(balanced)}


def _with_kernels(codes: Array, options: AssignOptions) -> Array:
    """Return the labelled samples that have kernels: all, or at most the same number of each class."""
    counts = np.sort(np.bincount(codes))
    if len(codes) <= MOST_KERNELS:
        return np.arange(len(codes))
    # The largest number per class with at most MOST_KERNELS in total.
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    most = int(max((MOST_KERNELS - before) // np.arange(len(counts), 0, -1)))
    rng = np.random.default_rng(options.seed)
    members = (np.flatnonzero(codes == c) for c in range(len(counts)))
    return np.sort(np.concatenate([rng.permutation(m)[: max(most, 1)] for m in members]))


def _stratified(codes: Array, seed: int) -> list[Split]:
    """Return stratified folds; classes of one member are always in the training set.

    A class with fewer members than folds is in as many folds as it has members, so that the others keep all folds.
    """
    counts = np.bincount(codes)
    several, folds = np.flatnonzero(counts[codes] > 1), min(FOLDS, int(counts.max()))
    if folds < 2:
        return []
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        tests = [several[test] for _, test in cut.split(several, codes[several])]
    return [(np.setdiff1d(np.arange(len(codes)), test), test) for test in tests]


def _model(
    options: AssignOptions, X: Array, codes: Array, splits: list[Split], shares: Array | None, notes: list[str],
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Return a model that is not fitted yet, and its details; adds to the notes."""
    if options.method == "nb":
        if not all(X[train].var(axis=0).any() for train in [np.arange(len(X)), *(train for train, _ in splits)]):
            raise InputError("all labelled samples have the same scores, which naive Bayes cannot use; use --method nn")
        return GaussianNB(), {}
    if options.method == "nn":
        fewest = min((len(train) for train, _ in splits), default=len(X))
        if options.neighbours > fewest:
            raise InputError(
                f"neighbours must be at most {fewest}, the labelled samples of a training set, got {options.neighbours}"
            )
        return NearestClasses(options.neighbours), {"neighbours": options.neighbours}
    if options.bandwidth is not None:
        return KernelClasses(options.bandwidth, shares), {"bandwidth": options.bandwidth}
    if not splits:
        raise InputError("no class has two members to choose a bandwidth by; give --bandwidth")
    grid = BANDWIDTHS * scott(X, codes)
    search = GridSearchCV(KernelClasses(shares=shares), {"bandwidth": grid}, cv=splits, refit=False).fit(X, codes)
    best = float(search.best_params_["bandwidth"])
    if best in (grid[0], grid[-1]):
        notes.append("the best bandwidth is the smallest or largest candidate; try others with --bandwidth")
    return KernelClasses(best, shares), {"bandwidth": best}


def scott(X: Array, codes: Array) -> float:
    """Return the bandwidth of Scott's rule, s n^(-1 / (m + 4)), for classes of n members on average.

    s^2 is the variance within classes, on average over the m components.
    """
    counts = np.bincount(codes)
    means = np.stack([np.bincount(codes, column) for column in X.T], axis=1) / counts[:, None]
    within = ((X - means[codes]) ** 2).sum(axis=0) / max(len(X) - len(counts), 1)
    if not (within > 0).any():
        raise InputError(
            "the members of each class have the same scores, so that Scott's rule gives no bandwidth; give --bandwidth"
        )
    return float(np.sqrt(within.mean()) * counts.mean() ** (-1 / (X.shape[1] + 4)))


def _judge(model: Any, X: Array) -> tuple[Array, Array]:
    """Return p(c | x) and log p(x); votes and minus the distance to the nearest sample for neighbours."""
    if isinstance(model, NearestClasses):
        shares, distance = model.votes(X)
        return shares, -distance
    joint = model.predict_joint_log_proba(X)
    density = logsumexp(joint, axis=1)
    return np.exp(joint - density[:, None]), density
