"""The result of an assignment, and the rule for samples of no class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from streampca._typing import Array

NONE = "none of these"
FOLDS = 5


@dataclass(frozen=True)
class Assignment:
    """Classes of samples.

    Attributes
    ----------
    method : as in the options.
    classes : (C,) names of the classes, or of the groups, largest first.
    probabilities : (n, C) p(c | x) by the model of all labelled samples; shares of votes for nn.
    assigned : (n,) most probable class, or `NONE`.
    density : (n,) log p(x); minus the distance to the nearest labelled sample for nn.
    threshold : density under which a sample is in no class; None if nothing could be held out.
    held_out : (n_fitted,) class of each labelled sample by a model that was fitted without it; "" for samples that have
        no label or are alone in their class. None for gmm.
    rows, confusion : (R,) and (R, C + 1) labels against held-out classes, or against groups for gmm. The last column
        counts samples of no class.
    accuracy, balanced_accuracy : share of held-out samples whose class is the most probable, at any density, and its
        mean over classes. None if nothing could be held out, and for gmm.
    rand_index : adjusted Rand index of groups and labels; for gmm with labels.
    n_labelled, n_judged, folds : number of labelled samples, of held-out samples, and of folds.
    details : of the method: bandwidth, number of groups, their BIC.
    notes : warnings.
    """

    method: str
    classes: list[str]
    probabilities: Array
    assigned: Array
    density: Array
    threshold: float | None
    held_out: Array | None = None
    rows: list[str] = field(default_factory=list)
    confusion: Array | None = None
    accuracy: float | None = None
    balanced_accuracy: float | None = None
    rand_index: float | None = None
    n_labelled: int = 0
    n_judged: int = 0
    folds: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def probability(self) -> Array:
        """(n,) of the most probable class."""
        return np.asarray(self.probabilities.max(axis=1))

    def facts(self) -> dict[str, Any]:
        """Return what a JSON summary contains."""
        names = ("method", "classes", "threshold", "rows", "accuracy", "balanced_accuracy", "rand_index", "n_labelled",
                 "n_judged", "folds")  # fmt: skip
        confusion = None if self.confusion is None else self.confusion.tolist()
        facts = {name: getattr(self, name) for name in names} | {"confusion": confusion, "notes": list(self.notes)}
        return facts | dict(self.details) | {"n_none": int((self.assigned == NONE).sum())}


def threshold_of(held_density: Array, outside: float) -> float | None:
    """Return the density under which a sample is in no class; None if every sample is in one.

    Infinite densities, of classes that are points, do not count.
    """
    finite = held_density[np.isfinite(held_density)]
    return float(np.quantile(finite, outside)) if finite.size and outside > 0 else None


def names_of(names: list[str], probabilities: Array, density: Array, threshold: float | None, far: Array) -> Array:
    """Return the most probable class of each sample, or `NONE`."""
    assigned: Array = np.array(names, object)[probabilities.argmax(axis=1)]
    assigned[far if threshold is None else far | (density < threshold)] = NONE
    return assigned


def confusion_of(codes: Array, columns: Array, n_rows: int, n_columns: int) -> Array:
    """Return the counts (n_rows, n_columns) of pairs of codes."""
    if not len(codes):
        return np.zeros((n_rows, n_columns), int)
    labels = np.arange(max(n_rows, n_columns))
    return np.asarray(confusion_matrix(codes, columns, labels=labels)[:n_rows, :n_columns])
