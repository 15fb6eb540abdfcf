"""Fitted probabilistic PCA and factor analysis as a Dataset, and back.

The noise variance is an attribute of probabilistic PCA and a variable of factor analysis, whose components are the
loadings W'. Probabilistic PCA has unit components, and the loadings in addition, so that no digit is lost.
"""

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
    error_name,
    feature_variables,
    scaling_in,
)
from streampca.models.ppca.choose import Choice
from streampca.models.ppca.record import PPCAFit
from streampca.solvers.em.factors import Factors, Known
from streampca.sources import Axis
from streampca.sweep.scaling import Scaling

if TYPE_CHECKING:
    import xarray

LONG_NAMES = common.LONG_NAMES | {
    "explained_variance": "variance of the model along each component (1 / n); sum of squared loadings for factor "
    "analysis",
    "scores": "posterior means of z",
    "score_deviation": "posterior standard deviations of z, given the observed values of each sample",
    "log_likelihood": "log-likelihood of all samples after each iteration of EM",
    "criterion": "criterion by which the number of components was chosen; larger is better",
    "loadings": "W', in units of the scaled features",
    "scaling_mean": "subtracted from the features before scaling",
    "shift": "mean of the model about scaling_mean, in units of the scaled features",
}


def variables(
    fitted: PPCAFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates; with the posterior of the samples, if the fit computed it."""
    k, of_features = fitted.n_components, COMPONENT + features.dims
    loadings, shift = fitted.loadings.reshape(k, *features.sizes), fitted.factors.shift
    arrays: Variables = {
        **feature_variables(Scaling(fitted.mean, fitted.scale), fitted.missing, features),
        "explained_variance": (COMPONENT, fitted.explained_variance),
        "explained_variance_ratio": (COMPONENT, fitted.explained_variance_ratio),
        "log_likelihood": (("iteration",), np.array(fitted.log_likelihoods)),
    }
    if fitted.per_feature_noise:
        arrays["components"] = (of_features, loadings)
        arrays["noise_variance"] = (features.dims, np.reshape(fitted.factors.noise, features.sizes))
    else:
        arrays["components"] = (of_features, fitted.components.reshape(loadings.shape))
        arrays["loadings"] = (of_features, loadings)
    if shift.any():
        arrays["scaling_mean"] = (features.dims, fitted.scaling.mean.reshape(features.sizes))
        arrays["shift"] = (features.dims, shift.reshape(features.sizes))
    if fitted.certificate is not None:
        arrays[error_name(fitted.certificate_method)] = (COMPONENT, fitted.certificate)
    if fitted.genotypes:
        arrays["eigenvalue"] = (COMPONENT, fitted.explained_variance * fitted.n_samples / len(fitted.mean))
    if fitted.sample_missing is not None:
        arrays["sample_missing"] = (samples.dims, fitted.sample_missing)
    coords = component_coords(k, features)
    if fitted.choice is not None:
        arrays["criterion"] = (("candidate",), fitted.choice.values)
        coords["candidate"] = (("candidate",), fitted.choice.candidates)
    if fitted.posterior is not None:
        shape, dims = (*samples.sizes, k), samples.dims + COMPONENT
        arrays["scores"] = (dims, (fitted.posterior.mean if scores is None else scores).reshape(shape))
        arrays["score_deviation"] = (dims, fitted.posterior.deviation.reshape(shape))
    return arrays, {**coords, **samples.coords}


def attributes(fitted: PPCAFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    own: dict[str, Any] = {} if fitted.per_feature_noise else {"noise_variance": fitted.factors.noise}
    if fitted.certificate_method is not None:
        own["certificate_method"] = fitted.certificate_method
    if fitted.choice is not None:
        own["criterion"] = fitted.choice.criterion
    return {
        **common_attributes(fitted, origin),
        "method": fitted.method,
        "n_iterations": fitted.n_iterations,
        "change": fitted.change,
        "total_log_likelihood": fitted.log_likelihood,
        "layout": "C" if fitted.factors.W.flags.c_contiguous else "F",
        **own,
    }


def from_dataset(dataset: xarray.Dataset) -> PPCAFit:
    """Return the fitted record of a Dataset; results of version 0.7 have no loadings."""
    k, scaling, attrs = dataset.sizes["component"], scaling_in(dataset), dataset.attrs
    components = dataset["components"].values.reshape(k, -1)
    noise: Any = attrs.get("noise_variance")
    noise = dataset["noise_variance"].values.ravel() if noise is None else float(noise)
    if "loadings" in dataset:
        W = dataset["loadings"].values.reshape(k, -1).T
    elif isinstance(noise, np.ndarray):
        W = components.T
    else:
        W = components.T * np.sqrt(np.maximum(dataset["explained_variance"].values - noise, 0.0))
    # Products of another layout round differently.
    W = np.asarray(W, order=attrs.get("layout", "F"))
    shift = np.zeros(len(scaling.mean))
    if "shift" in dataset:
        shift, scaling = dataset["shift"].values.ravel(), Scaling(dataset["scaling_mean"].values.ravel(), scaling.scale)
    method = str(attrs.get("certificate_method", "modelled"))
    error = dataset.get(error_name(method))
    known = (dataset[name].values.reshape(-1, k) for name in ("scores", "score_deviation") if name in dataset)
    return PPCAFit(
        **common_fields(dataset),
        factors=Factors(W, shift, noise),
        scaling=scaling,
        log_likelihoods=tuple(dataset["log_likelihood"].values.tolist()),
        change=float(attrs["change"]),
        certificate=None if error is None else error.values,
        method=str(attrs["method"]),
        n_iterations=int(attrs["n_iterations"]),
        sample_missing=dataset["sample_missing"].values.ravel() if "sample_missing" in dataset else None,
        posterior=Known(*known) if "score_deviation" in dataset else None,
        choice=_choice_in(dataset),
        certificate_method=None if error is None else method,
    )


def _choice_in(dataset: xarray.Dataset) -> Choice | None:
    if "criterion" not in dataset:
        return None
    candidates, values = dataset["candidate"].values, dataset["criterion"].values
    return Choice(str(dataset.attrs["criterion"]), candidates, values, dataset.sizes["component"])
