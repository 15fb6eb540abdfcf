"""Fitted kernel PCA as a Dataset, and back; landmarks are in units of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
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
from streampca.models.kernel_pca.preimages import RidgeMap
from streampca.models.kernel_pca.record import KernelPCAFit
from streampca.solvers.kernel.kernels import Kernel
from streampca.solvers.kernel.nystrom import KernelSolution
from streampca.sources import Axis
from streampca.sweep.scaling import Scaling

if TYPE_CHECKING:
    import xarray

LONG_NAMES = common.LONG_NAMES | {
    "explained_variance": "eigenvalues of the covariance in feature space (n - 1)",
    "explained_variance_ratio": "share of the variance in feature space, at least",
    "eigenvalue": "eigenvalues of the centred kernel matrix of all samples",
    "certificate": "bound on ||C v - lambda v|| / lambda for the covariance C in feature space",
    "estimated_error": "relative distance of the exact eigenvalues above these, estimated from a sample",
    "weights": "of the features of landmarks in each component; scores are (k(x, landmarks) - kernel_mean) weights",
    "kernel_mean": "mean over the samples of the kernel with each landmark",
    "mean_weights": "of the features of landmarks in the mean",
    "scaled_landmarks": "landmarks, centred and scaled; only if the units of the data cannot hold all digits",
    "anchor_weights": "samples are anchor_offset + rbf(scores, anchors) anchor_weights, centred and scaled",
}


def variables(
    fitted: KernelPCAFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates, each with its dimensions."""
    solution, sizes, k = fitted.solution, features.sizes, fitted.n_components
    feature = ("fourier_feature",) if fitted.fourier else ("landmark",)
    arrays: Variables = {
        "weights": (feature + COMPONENT, solution.weights),
        "kernel_mean": (feature, solution.centre),
        **feature_variables(fitted.scaling, fitted.missing, features),
        "explained_variance": (COMPONENT, fitted.explained_variance),
        "explained_variance_ratio": (COMPONENT, fitted.explained_variance_ratio),
        "eigenvalue": (COMPONENT, fitted.eigenvalues),
        "certificate": (COMPONENT, fitted.certificate),
        "estimated_error": (COMPONENT, fitted.estimated_error),
    }
    if fitted.fourier:
        arrays["frequencies"] = (("frequency", *features.dims), fitted.points.reshape(-1, *sizes))
    else:
        assert solution.mean_weights is not None
        arrays["mean_weights"] = (feature, solution.mean_weights)
        landmarks = fitted.landmarks
        arrays["landmarks"] = (("landmark", *features.dims), landmarks.reshape(-1, *sizes))
        if not np.array_equal(_scaled(landmarks, fitted.scaling, fitted.points.dtype), fitted.points):
            arrays["scaled_landmarks"] = (("landmark", *features.dims), fitted.points.reshape(-1, *sizes))
    if fitted.ridge is not None:
        arrays["anchors"] = (("anchor", *COMPONENT), fitted.ridge.anchors)
        arrays["anchor_weights"] = (("anchor", *features.dims), fitted.ridge.weights.reshape(-1, *sizes))
        arrays["anchor_offset"] = (features.dims, fitted.ridge.offset.reshape(sizes))
    if scores is not None:
        arrays["scores"] = (samples.dims + COMPONENT, scores.reshape(*samples.sizes, k))
    return arrays, {**component_coords(k, features), **samples.coords}


def attributes(fitted: KernelPCAFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    kernel, solution = fitted.kernel, fitted.solution
    own: dict[str, Any] = {}
    if not fitted.fourier:
        own = {
            "kept_trace": solution.kept,
            "missed_variance": fitted.missed,
            "kept_variance": fitted.kept_variance,
            "lost_variance": solution.lost,
        }
    if fitted.ridge is not None:
        own["anchor_gamma"] = fitted.ridge.gamma
    return {
        **common_attributes(fitted, origin),
        "kernel": kernel.name,
        "kernel_is_function": int(kernel.function is not None),
        "gamma": kernel.gamma,
        "degree": kernel.degree,
        "coef0": kernel.coef0,
        "method": fitted.method,
        "rank": solution.rank,
        "layout": "C" if solution.weights.flags.c_contiguous else "F",
        "n_landmarks": len(solution.weights),
        **own,
    }


def from_dataset(dataset: xarray.Dataset) -> KernelPCAFit:
    """Return the fitted record of a Dataset; raise `InputError` if its kernel is a Python function."""
    attrs = dataset.attrs
    if attrs["kernel_is_function"]:
        raise InputError(
            f"the kernel of this result is a Python function ({attrs['kernel']}), which is not stored; fit the model "
            "again in Python"
        )
    fourier, scaling = "frequencies" in dataset, scaling_in(dataset)
    d = len(scaling.mean)

    def rows(name: str) -> Array:
        return np.asarray(dataset[name].values.reshape(-1, d))

    if fourier:
        points = rows("frequencies")
    elif "scaled_landmarks" in dataset:
        points = rows("scaled_landmarks")
    else:
        points = _scaled(rows("landmarks"), scaling, attrs["tile_dtype"])
    ridge = None
    if "anchors" in dataset:
        weights, offset = rows("anchor_weights"), rows("anchor_offset")[0]
        ridge = RidgeMap(float(attrs["anchor_gamma"]), dataset["anchors"].values, weights, offset)
    solution = KernelSolution(
        # Products of another layout round differently.
        weights=np.asarray(dataset["weights"].values, order=attrs.get("layout", "C")),
        centre=dataset["kernel_mean"].values,
        mean_weights=None if fourier else dataset["mean_weights"].values,
        values=dataset["explained_variance"].values,
        certificate=dataset["certificate"].values,
        total=float(attrs["total_variance"]),
        lost=float(attrs.get("lost_variance", 0.0)),
        kept=float(attrs.get("kept_trace", 1.0)),
        rank=int(attrs["rank"]),
    )
    return KernelPCAFit(
        **common_fields(dataset),
        kernel=Kernel(str(attrs["kernel"]), float(attrs["gamma"]), float(attrs["degree"]), float(attrs["coef0"])),
        points=points,
        fourier=fourier,
        solution=solution,
        scaling=scaling,
        method=str(attrs["method"]),
        missed=float(attrs.get("missed_variance", float("nan"))),
        ridge=ridge,
    )


def _scaled(landmarks: Array, scaling: Scaling, dtype: Any) -> Array:
    """Return landmarks centred and scaled."""
    centred = landmarks - scaling.mean
    return np.asarray((centred if scaling.scale is None else centred / scaling.scale).astype(dtype))
