"""Labels in use: which class a sample belongs to, by the densities of labelled samples on the scores, or none of them.

A class has a density on the scores: a normal one with independent components (naive Bayes), or a sum of kernels around
its members. With the share pi_c of each class among the labelled samples,

    p(c | x) = pi_c p(x | c) / p(x),   p(x) = sum_c pi_c p(x | c)

and a sample whose log p(x) is lower than that of all but a few labelled samples, each of these judged by a model that
has not seen it, belongs to none of the classes. Normal densities of spread-out classes, as of people with ancestry from
two continents, are not low in the empty places of their box: kernels and distances to neighbours tell better what is
none of the classes. Without labels, a mixture of normal densities finds groups.

References: Duda, Hart & Stork (2001), Pattern Classification, chapters 2 to 4; Scott (1992), Multivariate Density
Estimation, chapter 6; Schwarz (1978), for the number of groups; Hubert & Arabie (1985), for agreement with labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.assign.classes import by_classes
from streampca.models.assign.groups import by_groups
from streampca.models.assign.records import METHODS, NONE, Assignment, Choice

__all__ = ["METHODS", "NONE", "Assignment", "Choice", "assign"]


def assign(
    scores: Array, labels: Sequence[str] | Array | None = None, choice: Choice = Choice(), new: Array | None = None,  # noqa: B008
    far: Array | None = None,
) -> Assignment:  # fmt: skip
    """Assign samples to the classes of labelled ones, or to groups that a mixture finds.

    Parameters
    ----------
    scores : (n, m) of the samples that classes are learnt from.
    labels : (n,) classes, "" where not known; gmm needs none.
    choice : how.
    new : (n_new, m) scores of other samples, which are assigned instead.
    far : (n_new,) or (n,) those among the assigned that are known to be none of these.

    Returns
    -------
    The assignment of each new sample, or of each sample, labelled or not, if there are no new ones. Labelled samples
    are held out in turn, in parts with as many of each class, to say how often the model is right. The bandwidth of
    kernels is found once, on the same parts.
    """
    scores = _finite(scores, "scores")
    judged = scores if new is None else _finite(new, "new scores")
    if judged.shape[1] != scores.shape[1]:
        raise InputError(f"new scores have {judged.shape[1]} components, the others {scores.shape[1]}; give the same")
    names = np.array([_one_line(label) for label in (labels if labels is not None else [""] * len(scores))])
    if len(names) != len(scores):
        raise InputError(f"{len(names)} labels for {len(scores)} samples; give one for each, '' where it is not known")
    # What an earlier assignment left open is open still.
    names[names == NONE] = ""
    far = np.zeros(len(judged), bool) if far is None else np.asarray(far, bool)
    if choice.method == "gmm":
        # Threads wait for each other longer than such small products take.
        with threadpool_limits(1):
            return by_groups(scores, names, choice, judged, far)
    return by_classes(scores, names, choice, judged, far)


def _finite(scores: Array, what: str) -> Array:
    scores = np.asarray(scores, np.float64)
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if bad.size:
        raise InputError(f"{what} of {bad.size} samples are no numbers, first of sample {bad[0]}; leave these out")
    return scores


def _one_line(label: Any) -> str:
    """Return a label without tabs and ends of lines, which tables could not hold."""
    return " ".join(str(label).split())
