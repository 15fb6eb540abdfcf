"""How samples are assigned, what they were assigned to, and the rule for none of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sweep.scaling import check_choice

METHODS = ("nn", "nb", "kde", "gmm")
NONE = "none of these"
FOLDS = 5


@dataclass(frozen=True)
class Choice:
    """How samples are assigned.

    Attributes
    ----------
    method : nn (nearest neighbour), nb (naive Bayes), kde (kernel densities) or gmm (groups without labels).
    outside : share of labelled samples that are as unlikely as what is none of the classes; 0 assigns every sample.
    neighbours : how many vote; of nn.
    bandwidth : of the kernels; by cross-validation if None.
    groups, max_groups : how many there are, or the most that are tried; of gmm.
    seed : of folds, choices and the start of mixtures.
    """

    method: str = "nb"
    outside: float = 0.01
    neighbours: int = 1
    bandwidth: float | None = None
    groups: int | None = None
    max_groups: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        if not 0 <= self.outside < 1:
            raise InputError(f"outside={self.outside} is no share of samples; give e.g. 0.01, or 0 to assign all")
        if self.bandwidth is not None and not 0 < self.bandwidth < np.inf:
            raise InputError(f"bandwidth={self.bandwidth} is not positive; leave it out to find one")
        for name in ("neighbours", "groups", "max_groups"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name}={value} is too few; give 1 or more")


@dataclass(frozen=True)
class Assignment:
    """What samples were assigned to.

    Attributes
    ----------
    method : as chosen.
    classes : (C,) names of the classes, or of the groups, the largest first.
    probabilities : (n, C) p(c | x) by the model of all labelled samples; of nn the shares of votes.
    assigned : (n,) the likeliest class, or `NONE`.
    density : (n,) log p(x); of nn minus the distance to the nearest labelled sample.
    threshold : density under which a sample is none of the classes; None if nothing could be held out.
    held_out : (n_fitted,) what each labelled sample of the fit is assigned by a model that has not seen it, "" for
        those that are not labelled or alone in their class. None of gmm.
    rows, confusion : (R,) and (R, C + 1) labels against what was held out; against groups of gmm. The last column
        counts none of these.
    accuracy, balanced_accuracy : share of held-out samples whose class is likeliest, however unlikely their place is;
        and its mean over classes. None where nothing could be held out, and of gmm.
    rand_index : adjusted for chance, between groups and labels; of gmm with labels.
    n_labelled, n_judged, folds : labelled samples, those that were held out, and in how many parts.
    details : of the method: bandwidth, number of groups, their BIC.
    notes : what to know.
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
        """(n,) of the likeliest class."""
        return np.asarray(self.probabilities.max(axis=1))

    def facts(self) -> dict[str, Any]:
        """Return what JSON can say of it."""
        names = ("method", "classes", "threshold", "rows", "accuracy", "balanced_accuracy", "rand_index", "n_labelled",
                 "n_judged", "folds")  # fmt: skip
        confusion = None if self.confusion is None else self.confusion.tolist()
        facts = {name: getattr(self, name) for name in names} | {"confusion": confusion, "notes": list(self.notes)}
        return facts | dict(self.details) | {"n_none": int((self.assigned == NONE).sum())}


def threshold_of(held_density: Array, outside: float) -> float | None:
    """Return the density under which a sample is none of the classes; None if every sample is one of them.

    Densities of classes that are points may be infinite, and are left out.
    """
    finite = held_density[np.isfinite(held_density)]
    return float(np.quantile(finite, outside)) if finite.size and outside > 0 else None


def named(names: list[str], probabilities: Array, density: Array, threshold: float | None, far: Array) -> Array:
    """Return the likeliest class of each sample, or none of these."""
    assigned: Array = np.array(names, object)[probabilities.argmax(axis=1)]
    none = far if threshold is None else far | (density < threshold)
    assigned[none] = NONE
    return assigned
