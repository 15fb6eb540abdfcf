"""Fitted mixture of probabilistic PCA as a Dataset, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.models import dataset as common
from streampca.models.dataset import (
    COMPONENT,
    Origin,
    Variables,
    common_attributes,
    common_fields,
    component_coords,
    feature_variables,
    scaling_in,
)
from streampca.models.mixture.fit import MixtureOfPPCAFit
from streampca.sources import Axis

if TYPE_CHECKING:
    import xarray

CLUSTER = ("cluster",)
LONG_NAMES = common.LONG_NAMES | {
    "weights": "share of each cluster",
    "means": "mean of each cluster, in units of the data",
    "explained_variance": "variance of each cluster along each of its components, of maximum likelihood",
    "noise_variance": "variance of each cluster along any other direction",
    "log_likelihood": "log-likelihood of all samples before each iteration of EM",
    "probability": "of each cluster, given the sample",
}


def variables(
    fitted: MixtureOfPPCAFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates; `scores` are the probabilities of the clusters, (n, K)."""
    K, k, _ = fitted.components.shape
    arrays: Variables = {
        "weights": (CLUSTER, fitted.weights),
        "means": (CLUSTER + features.dims, fitted.means.reshape(K, *features.sizes)),
        "components": (CLUSTER + COMPONENT + features.dims, fitted.components.reshape(K, k, *features.sizes)),
        "explained_variance": (CLUSTER + COMPONENT, fitted.explained_variance),
        "noise_variance": (CLUSTER, fitted.noise_variance),
        "log_likelihood": (("iteration",), np.array(fitted.log_likelihoods)),
        **feature_variables(fitted.scaling, fitted.missing, features),
    }
    if scores is not None:
        arrays["probability"] = (samples.dims + CLUSTER, scores.reshape(*samples.sizes, K))
    coords = {"cluster": (CLUSTER, np.arange(1, K + 1)), **component_coords(k, features)}
    return arrays, {**coords, **samples.coords}


def attributes(fitted: MixtureOfPPCAFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    return {
        **common_attributes(fitted, origin),
        "n_iterations": fitted.n_iter,
        "total_log_likelihood": fitted.log_likelihood,
    }


def from_dataset(dataset: xarray.Dataset) -> MixtureOfPPCAFit:
    """Return the fitted record of a Dataset."""
    scaling = scaling_in(dataset)
    K, k, d = dataset.sizes["cluster"], dataset.sizes["component"], len(scaling.mean)
    return MixtureOfPPCAFit(
        **common_fields(dataset),
        weights=dataset["weights"].values,
        means=dataset["means"].values.reshape(K, d),
        components=dataset["components"].values.reshape(K, k, d),
        explained_variance=dataset["explained_variance"].values,
        noise_variance=dataset["noise_variance"].values,
        scaling=scaling,
        total_variance=float(dataset.attrs["total_variance"]),
        log_likelihoods=tuple(dataset["log_likelihood"].values.tolist()),
    )
