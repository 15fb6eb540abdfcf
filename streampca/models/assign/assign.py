"""Assignment of samples to classes by their scores.

A class has a density on the scores: a normal density with independent components (naive Bayes), or a sum of kernels
around its members. With the share pi_c of each class among the labelled samples,

    p(c | x) = pi_c p(x | c) / p(x),   p(x) = sum_c pi_c p(x | c)

A sample is in no class if its log p(x) is lower than that of all but a few labelled samples, each judged by a model
fitted without it. Normal densities of elongated classes, such as people with ancestry from two continents, are not
low in the empty corners of their box: kernels and distances to neighbours detect such samples better. Without labels,
a Gaussian mixture finds groups.

References: Duda, Hart & Stork (2001), Pattern Classification, chapters 2 to 4; Scott (1992), Multivariate Density
Estimation, chapter 6; Schwarz (1978), for the number of groups; Hubert & Arabie (1985), for the Rand index.
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
from streampca.models.assign.options import AssignOptions
from streampca.models.assign.records import NONE, Assignment


def assign(
    scores: Array, labels: Sequence[str] | Array | None = None, options: AssignOptions | None = None,
    new: Array | None = None, far: Array | None = None,
) -> Assignment:  # fmt: skip
    """Assign samples to the classes of labelled samples, or to the groups of a mixture.

    Parameters
    ----------
    scores : (n, m) of the samples that the model is fitted to.
    labels : (n,) classes, "" if unknown; optional for gmm.
    options : method and its options.
    new : (n_new, m) scores of other samples, which are assigned instead.
    far : (n_new,) or (n,) mask of assigned samples that are known to be in no class.

    Returns
    -------
    The assignment of each new sample, or of each sample, labelled or not, without new ones. Labelled samples are held
    out in stratified folds to measure accuracy. The bandwidth of kernels is chosen once, on the same folds.
    """
    options = options or AssignOptions()
    scores = _finite(scores, "scores")
    judged = scores if new is None else _finite(new, "new scores")
    if judged.shape[1] != scores.shape[1]:
        raise InputError(
            f"new scores have {judged.shape[1]} components, the others {scores.shape[1]}; use the same components"
        )
    names = np.array([_one_line(label) for label in (labels if labels is not None else [""] * len(scores))])
    if len(names) != len(scores):
        raise InputError(f"{len(names)} labels for {len(scores)} samples; give one per sample, '' if unknown")
    # Samples that an earlier assignment put into no class have no label.
    names[names == NONE] = ""
    far = np.zeros(len(judged), bool) if far is None else np.asarray(far, bool)
    if options.method == "gmm":
        # Such small products are slower with several threads.
        with threadpool_limits(1):
            return by_groups(scores, names, options, judged, far)
    return by_classes(scores, names, options, judged, far)


def _finite(scores: Array, what: str) -> Array:
    scores = np.asarray(scores, np.float64)
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if bad.size:
        raise InputError(f"{what} of {bad.size} samples are not finite, first of sample {bad[0]}; exclude these")
    return scores


def _one_line(label: Any) -> str:
    """Return a label without tabs and line breaks, which tables cannot hold."""
    return " ".join(str(label).split())
