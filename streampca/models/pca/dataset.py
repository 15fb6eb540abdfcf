"""Fitted PCA as a Dataset, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streampca._typing import Array
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
from streampca.models.dataset import LONG_NAMES as LONG_NAMES
from streampca.models.pca.record import PCAFit
from streampca.sources import Axis

if TYPE_CHECKING:
    import xarray


def variables(
    fitted: PCAFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates, each with its dimensions; features in the dimensions that they came in."""
    k = fitted.n_components
    arrays: Variables = {
        "components": (COMPONENT + features.dims, fitted.components.reshape(k, *features.sizes)),
        **feature_variables(fitted.scaling, fitted.missing, features),
        "explained_variance": (COMPONENT, fitted.explained_variance),
        "explained_variance_ratio": (COMPONENT, fitted.explained_variance_ratio),
        error_name(fitted.certificate_method): (COMPONENT, fitted.certificate),
    }
    if fitted.genotypes:
        arrays["eigenvalue"] = (COMPONENT, fitted.genotype_eigenvalue)
    if fitted.sample_missing is not None:
        arrays["sample_missing"] = (samples.dims, fitted.sample_missing)
    if scores is not None:
        arrays["scores"] = (samples.dims + COMPONENT, scores.reshape(*samples.sizes, k))
    return arrays, {**component_coords(k, features), **samples.coords}


def attributes(fitted: PCAFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    return {
        **common_attributes(fitted, origin),
        "solver": fitted.solver,
        "certificate_method": fitted.certificate_method,
        "noise_variance": fitted.noise_variance,
        "warm_start_seconds": round(fitted.warm_seconds, 3),
    }


def from_dataset(dataset: xarray.Dataset) -> PCAFit:
    """Return the fitted record of a Dataset; certificates of version 0.7 have the method "modelled"."""
    method = str(dataset.attrs.get("certificate_method", "modelled"))
    scaling = scaling_in(dataset)
    return PCAFit(
        **common_fields(dataset),
        components=dataset["components"].values.reshape(dataset.sizes["component"], -1),
        explained_variance=dataset["explained_variance"].values,
        certificate=dataset[error_name(method)].values,
        certificate_method=method,
        total_variance=float(dataset.attrs["total_variance"]),
        mean=scaling.mean,
        scale=scaling.scale,
        solver=str(dataset.attrs["solver"]),
        warm_seconds=float(dataset.attrs.get("warm_start_seconds", 0.0)),
        sample_missing=dataset["sample_missing"].values.ravel() if "sample_missing" in dataset else None,
    )
