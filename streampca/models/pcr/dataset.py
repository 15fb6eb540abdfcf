"""Fitted principal component regression as a Dataset, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.models.dataset import COMPONENT, Origin, Variables
from streampca.models.pca import dataset as pca
from streampca.models.pcr.record import PCRFit
from streampca.sources import Axis
from streampca.sources.genotypes import TEXT

if TYPE_CHECKING:
    import xarray

TARGET = ("target",)
OF_FOLDS = ("cv_error", "cv_error_deviation", "cv_r2")
LONG_NAMES = pca.LONG_NAMES | {
    "coefficient": "of each feature, in units of the data",
    "intercept": "of features and covariates in units of the data",
    "centre": "value of the target where all scores and covariates are zero",
    "score_coefficient": "of each score; 0 for components that are not used",
    "chosen": "number of components used: where cv_error is smallest",
    "cv_error": "mean over the folds of the mean squared error of held-out samples, with m components",
    "cv_error_deviation": "standard error of cv_error over the folds",
    "cv_r2": "1 - squared errors of held-out samples / squares about the mean, with m components",
    "r2": "share of the variance explained in the used samples, with m components",
    "fold": "of each sample; -1 for samples that are not used",
}


def variables(
    fitted: PCRFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates, each with its dimensions."""
    arrays, coords = pca.variables(fitted.pca, samples, features, scores)
    path = (*TARGET, "m")
    arrays |= {
        "coefficient": (TARGET + features.dims, fitted.coefficient.reshape(-1, *features.sizes)),
        "intercept": (TARGET, fitted.intercept),
        "centre": (TARGET, fitted.centre),
        "score_coefficient": (TARGET + COMPONENT, fitted.score_coefficient),
        "chosen": (TARGET, fitted.chosen),
        "r2": (path, fitted.r2),
        "fold": (samples.dims, fitted.folds.reshape(samples.sizes)),
    }
    if fitted.covariate_names:
        arrays["covariate_coefficient"] = ((*TARGET, "covariate"), fitted.covariate_coefficient)
        coords["covariate"] = (("covariate",), np.array(fitted.covariate_names, TEXT))
    arrays |= {name: (path, values) for name in OF_FOLDS if (values := getattr(fitted, name)) is not None}
    coords["target"] = (TARGET, np.array(fitted.names, TEXT))
    coords["m"] = (("m",), np.arange(fitted.r2.shape[1]))
    return arrays, coords


def attributes(fitted: PCRFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    own = {"n_folds": fitted.n_folds, "one_target": int(fitted.one_target), "covariate_kinds": "{}"}
    return {**pca.attributes(fitted.pca, origin), **own}


def from_dataset(dataset: xarray.Dataset) -> PCRFit:
    """Return the fitted record of a Dataset."""
    q = dataset.sizes["target"]
    covariates = dataset["covariate_coefficient"].values if "covariate" in dataset.sizes else np.empty((q, 0))
    return PCRFit(
        pca=pca.from_dataset(dataset),
        names=_labels(dataset, "target"),
        covariate_names=_labels(dataset, "covariate"),
        chosen=dataset["chosen"].values,
        score_coefficient=dataset["score_coefficient"].values,
        covariate_coefficient=covariates,
        centre=dataset["centre"].values,
        r2=dataset["r2"].values,
        folds=dataset["fold"].values.ravel(),
        n_folds=int(dataset.attrs["n_folds"]),
        one_target=bool(dataset.attrs.get("one_target", q == 1)),
        **{name: dataset[name].values for name in OF_FOLDS if name in dataset},
    )


def _labels(dataset: xarray.Dataset, name: str) -> tuple[str, ...]:
    return tuple(map(str, dataset[name].values)) if name in dataset.coords else ()
