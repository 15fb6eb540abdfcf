"""Models as labelled xarray Datasets: what `result_` gives and what a result store holds."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.kernel_pca.record import KernelPCAFit
from streampca.models.pca.accumulator import Summary
from streampca.models.pca.fit import PCAFit
from streampca.models.ppca.fit import PPCAFit
from streampca.sources import Axis
from streampca.sweep.statistics import Moments

if TYPE_CHECKING:
    import xarray


FORMAT_VERSION = 1
LIBRARIES = ("streampca", "numpy", "dask", "zarr", "xarray")


Variables = dict[str, tuple[tuple[str, ...], Array]]


def error_name(method: str | None) -> str:
    """Return the variable that holds the error of each component: "estimate" where rounding was not measured."""
    return "estimate" if method == "none" else "certificate"


def pca_variables(found: PCAFit, samples: Axis, features: Axis, scores: Array | None) -> tuple[Variables, Variables]:
    """Return variables and coordinates, each with its dimensions; features unstacked into those that they came from."""
    k = len(found.components)
    component = ("component",)
    scale = np.ones_like(found.mean) if found.scale is None else found.scale
    variables: Variables = {
        "components": (component + features.dims, found.components.reshape(k, *features.sizes)),
        "mean": (features.dims, found.mean.reshape(features.sizes)),
        "scale": (features.dims, scale.reshape(features.sizes)),
        "missing": (features.dims, found.missing.reshape(features.sizes)),
        "explained_variance": (component, found.explained_variance),
        "explained_variance_ratio": (component, found.explained_variance_ratio),
        error_name(found.certificate_method): (component, found.certificate),
    }
    if found.genotypes:
        variables["eigenvalue"] = (component, found.genotype_eigenvalue)
    if found.sample_missing is not None:
        variables["sample_missing"] = (samples.dims, found.sample_missing)
    if scores is not None:
        variables["scores"] = (samples.dims + component, scores.reshape(*samples.sizes, k))
    coords: Variables = {"component": (component, np.arange(1, k + 1)), **features.coords, **samples.coords}
    return variables, coords


def latent_variables(found: PPCAFit, samples: Axis, features: Axis) -> tuple[Variables, Variables]:
    """Return variables and coordinates of a latent model; with those of its samples, where the fit gave them."""
    k = found.n_components
    component = ("component",)
    own = isinstance(found.factors.noise, np.ndarray)
    scale = np.ones_like(found.mean) if found.scaling.scale is None else found.scaling.scale
    variables: Variables = {
        "components": (
            component + features.dims,
            (found.factors.W.T if own else found.components).reshape(k, *features.sizes),
        ),
        "mean": (features.dims, found.mean.reshape(features.sizes)),
        "scale": (features.dims, scale.reshape(features.sizes)),
        "missing": (features.dims, found.missing.reshape(features.sizes)),
        "explained_variance": (component, found.explained_variance),
        "explained_variance_ratio": (component, found.explained_variance_ratio),
        "log_likelihood": (("iteration",), np.array(found.likelihoods)),
    }
    coords: Variables = {"component": (component, np.arange(1, k + 1)), **features.coords}
    if own:
        variables["noise_variance"] = (features.dims, np.reshape(found.factors.noise, features.sizes))
    if found.certificate is not None:
        variables[error_name(found.certificate_method)] = (component, found.certificate)
    if found.genotypes:
        variables["eigenvalue"] = (component, found.explained_variance * found.n_samples / len(found.mean))
    if found.sample_missing is not None:
        variables["sample_missing"] = (samples.dims, found.sample_missing)
    if found.choice is not None:
        variables["criterion"] = (("candidate",), found.choice.values)
        coords["candidate"] = (("candidate",), found.choice.candidates)
    if found.posterior is not None:
        shape = (*samples.sizes, k)
        variables["scores"] = (samples.dims + component, found.posterior.mean.reshape(shape))
        variables["score_deviation"] = (samples.dims + component, found.posterior.deviation.reshape(shape))
    if found.posterior is not None or found.sample_missing is not None:
        coords |= samples.coords
    return variables, coords


def kernel_variables(
    found: KernelPCAFit, samples: Axis, features: Axis, scores: Array | None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates of kernel components; landmarks in units of the data."""
    solution, sizes = found.solution, features.sizes
    k = len(solution.values)
    component, feature = ("component",), ("fourier_feature",) if found.fourier else ("landmark",)
    scale = np.ones_like(found.mean) if found.scaling.scale is None else found.scaling.scale
    variables: Variables = {
        "weights": (feature + component, solution.weights),
        "kernel_mean": (feature, solution.centre),
        "mean": (features.dims, found.mean.reshape(sizes)),
        "scale": (features.dims, scale.reshape(sizes)),
        "missing": (features.dims, found.missing.reshape(sizes)),
        "explained_variance": (component, found.explained_variance),
        "explained_variance_ratio": (component, found.explained_variance_ratio),
        "eigenvalue": (component, found.eigenvalues),
        "certificate": (component, found.certificate),
        "estimated_error": (component, found.estimated_error),
    }
    if found.fourier:
        variables["frequencies"] = (("frequency", *features.dims), found.points.reshape(-1, *sizes))
    else:
        assert solution.mean_weights is not None
        # As they are, when the centre and the scale are taken off again.
        landmarks = found.scaling.restore(found.points.astype(np.float64))
        variables["landmarks"] = (("landmark", *features.dims), landmarks.reshape(-1, *sizes))
        variables["mean_weights"] = (feature, solution.mean_weights)
    if found.ridge is not None:
        variables["anchors"] = (("anchor", "component"), found.ridge.anchors)
        variables["anchor_weights"] = (("anchor", *features.dims), found.ridge.weights.reshape(-1, *sizes))
        variables["anchor_offset"] = (features.dims, found.ridge.offset.reshape(sizes))
    coords: Variables = {"component": (component, np.arange(1, k + 1)), **features.coords}
    if scores is not None:
        variables["scores"] = (samples.dims + component, scores.reshape(*samples.sizes, k))
        coords |= samples.coords
    return variables, coords


# What the numbers are, where the name alone does not say.
LONG_NAMES = {
    "explained_variance": "eigenvalues of the sample covariance (n - 1)",
    "eigenvalue": "eigenvalues of X X' / m for m variants, as plink and GCTA give them",
    "sample_missing": "missing calls of each sample",
    "log_likelihood": "of all samples, after each iteration of EM",
    "score_deviation": "standard deviation of z of each sample, given the values that it has",
    "criterion": "what the number of components was chosen by; larger is better",
    "certificate": "bound on ||S v - lambda v|| / lambda, rounding included",
    "estimate": "estimate of ||S v - lambda v|| / lambda, rounding not included; not a bound",
    "distance": "of each sample from the space of the components, scaled as they are",
}
LATENT_NAMES = {
    "explained_variance": "variance of the model along each component, of maximum likelihood (1 / n)",
    "scores": "posterior means of z",
}

KERNEL_NAMES = {
    "explained_variance": "eigenvalues of the covariance in feature space (n - 1)",
    "explained_variance_ratio": "share of the variance in feature space, at least",
    "eigenvalue": "eigenvalues of the centred kernel matrix of all samples",
    "certificate": "bound on ||C v - lambda v|| / lambda for the covariance C in feature space",
    "estimated_error": "how far exact eigenvalues may be above these, as a share of them; by a sample",
    "weights": "of the features of landmarks in each component; scores are (k(x, landmarks) - kernel_mean) weights",
    "kernel_mean": "mean over the samples of the kernel with each landmark",
    "mean_weights": "of the features of landmarks in the mean",
    "anchor_weights": "samples are anchor_offset + rbf(scores, anchors) anchor_weights, centred and scaled",
}

REGRESSION_NAMES = {
    "coefficient": "of each feature, in units of the data",
    "intercept": "of features and covariates in units of the data",
    "centre": "the target where all scores and covariates are zero",
    "score_coefficient": "of each score; 0 for components that are not used",
    "chosen": "components that are used: where cv_error is smallest",
    "cv_error": "mean over the folds of the mean squared error of the samples left out, with m components",
    "cv_error_deviation": "standard error of cv_error over the folds",
    "cv_r2": "1 - squared errors of samples left out / squares about the mean, with m components",
    "r2": "share of the variance explained in the samples used, with m components",
    "fold": "of each sample; -1 for those that are not used",
}


def long_names(kind: str) -> dict[str, str]:
    """Return what the variables of a result of a kind are."""
    if kind == "factor_analysis":
        return LONG_NAMES | LATENT_NAMES | {"explained_variance": "sum of squared loadings of each factor"}
    return LONG_NAMES | {"ppca": LATENT_NAMES, "kpca": KERNEL_NAMES, "pcr": REGRESSION_NAMES}.get(kind, {})


def as_dataset(variables: Variables, coords: Variables, attributes: Mapping[str, Any]) -> xarray.Dataset:
    """Return all this as a labelled Dataset."""
    import xarray

    dataset = xarray.Dataset(dict(variables), dict(coords), dict(attributes))
    names = long_names(str(attributes.get("kind")))
    for name in names.keys() & set(dataset):
        dataset[name].attrs["long_name"] = names[name]
    return dataset


def provenance(found: PCAFit, name: str, fingerprint: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a result comes from, as attributes that any Zarr reader can show."""
    return {
        **_origin(found, "pca", name, fingerprint, parameters),
        "solver": found.solver,
        "certificate_method": found.certificate_method,
        "noise_variance": found.noise_variance,
        "warm_start_seconds": round(found.warm_seconds, 3),
    }


def latent_attributes(found: PPCAFit, name: str, fingerprint: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a latent model comes from, and what is one number of it."""
    own = isinstance(found.factors.noise, np.ndarray)
    more: dict[str, Any] = {} if own else {"noise_variance": found.factors.noise}
    if found.certificate_method is not None:
        more["certificate_method"] = found.certificate_method
    if found.choice is not None:
        more["criterion"] = found.choice.criterion
    return {
        **_origin(found, "factor_analysis" if own else "ppca", name, fingerprint, parameters),
        "method": found.method,
        "n_iterations": found.n_iterations,
        "change": found.change,
        "total_log_likelihood": found.log_likelihood,
        **more,
    }


def kernel_attributes(
    found: KernelPCAFit, name: str, fingerprint: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return where kernel components come from, and what is one number of them."""
    kernel, solution = found.kernel, found.solution
    more: dict[str, Any] = {}
    if not found.fourier:
        more = {
            "kept_trace": solution.kept,
            "missed_variance": found.missed,
            "kept_variance": found.kept_variance,
            "lost_variance": solution.lost,
        }
    if found.ridge is not None:
        more["anchor_gamma"] = found.ridge.gamma
    return {
        **_origin(found, "kpca", name, fingerprint, parameters),
        "kernel": kernel.name,
        "kernel_is_function": int(kernel.function is not None),
        "gamma": kernel.gamma,
        "degree": kernel.degree,
        "coef0": kernel.coef0,
        "method": found.method,
        "rank": solution.rank,
        "n_landmarks": len(solution.weights),
        **more,
    }


def _origin(
    found: PCAFit | PPCAFit | KernelPCAFit, kind: str, name: str, fingerprint: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what results of all kinds say of where they come from."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "source": name,
        "source_fingerprint": fingerprint,
        "n_samples": found.n_samples,
        "parameters": json.dumps(dict(parameters), default=str, sort_keys=True),
        "versions": json.dumps({name: version(name) for name in LIBRARIES} | {"python": platform.python_version()}),
        "tile_dtype": found.tile_dtype,
        "converged": int(found.converged),
        "advice": found.advice,
        "notes": json.dumps(found.notes),
        "genotypes": int(found.genotypes),
        "n_features": len(found.mean),
        "total_variance": found.total_variance,
        "n_missing": int(found.missing.sum()),
        "n_sweeps": found.n_sweeps,
        "sweep_seconds": json.dumps([round(s, 3) for s in found.sweep_seconds]),
        "bytes_read": found.bytes_read,
        "seconds": found.seconds,
        "peak_memory_bytes": peak_memory(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes; 0 where the system does not tell."""
    try:
        # Not getrusage: that also counts what the parent held when it started this process.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def accumulator_dataset(summary: Summary) -> xarray.Dataset:
    """Return a summary as a Dataset, which can be saved and sent."""
    import xarray

    moments = summary.moments
    variables: dict[str, Any] = {
        name: ("feature", getattr(moments, name)) for name in ("count", "mean", "m2", "missing")
    }
    if summary.scatter is not None:
        variables["scatter"] = (("feature", "feature_2"), summary.scatter)
    else:
        variables["sketch"] = (("row", "feature"), summary.sketch)
    if summary.probe is not None:
        variables["probe"] = (("feature", "probe_vector"), summary.probe)
    attributes = {
        "kind": "accumulator",
        "format_version": FORMAT_VERSION,
        "n_samples": summary.n_samples,
        "lost": summary.lost,
    }
    if summary.chain is not None:
        attributes["chain"] = summary.chain
    return xarray.Dataset(variables, attrs=attributes)


def summary_from(dataset: xarray.Dataset) -> Summary:
    """Return the summary that `accumulator_dataset` made a Dataset of."""
    needed = {"count", "mean", "m2", "missing"}
    if (
        dataset.attrs.get("kind") != "accumulator"
        or not needed <= set(dataset)
        or not {"scatter", "sketch"} & set(dataset)
    ):
        raise InputError("this Dataset is not an accumulator; give one that came from accumulator_")
    moments = Moments(*(dataset[name].values for name in ("count", "mean", "m2", "missing")))
    parts = {name: dataset[name].values for name in ("scatter", "sketch", "probe") if name in dataset}
    # Those of version 0.7 do not have it: they merge, but cannot be certified.
    chain = dataset.attrs.get("chain")
    return Summary(
        int(dataset.attrs["n_samples"]), moments, lost=float(dataset.attrs["lost"]),
        chain=None if chain is None else int(chain), **parts,
    )  # fmt: skip
