"""Fitted records as labelled xarray Datasets, for `result_` and result stores: what all kinds have in common.

The module `dataset` of each model has the same four names: `variables(fitted, samples, features, scores)` and
`attributes(fitted, origin)` describe a fitted record, `from_dataset(dataset)` returns it, and `LONG_NAMES` explains its
variables.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streampca import __version__
from streampca._typing import Array
from streampca.sources import Axis
from streampca.sweep.scaling import Scaling

if TYPE_CHECKING:
    import xarray


FORMAT_VERSION = 1
LIBRARIES = ("numpy", "dask", "zarr", "xarray")
COMPONENT = ("component",)
LONG_NAMES = {
    "explained_variance": "eigenvalues of the sample covariance (n - 1)",
    "eigenvalue": "eigenvalues of X X' / m for m variants, as plink and GCTA define them",
    "sample_missing": "missing calls of each sample",
    "certificate": "bound on ||S v - lambda v|| / lambda, rounding included",
    "estimate": "estimate of ||S v - lambda v|| / lambda, rounding not included; not a bound",
    "distance": "distance of each sample from the space of the components, in scaled units",
}

Variables = dict[str, tuple[tuple[str, ...], Array]]


class Origin(NamedTuple):
    """Where a fitted record comes from.

    Attributes
    ----------
    kind : name of the kind of model.
    source, fingerprint : name of the data, and a text that changes when they do.
    parameters : options of the fit.
    """

    kind: str
    source: str
    fingerprint: str
    parameters: Mapping[str, Any]


def as_dataset(
    variables: Variables, coords: Variables, attributes: Mapping[str, Any], long_names: Mapping[str, str]
) -> xarray.Dataset:
    """Return a labelled Dataset."""
    import xarray  # slow to import

    dataset = xarray.Dataset(dict(variables), dict(coords), dict(attributes))
    for name in long_names.keys() & set(dataset):
        dataset[name].attrs["long_name"] = long_names[name]
    return dataset


def error_name(method: str | None) -> str:
    """Return the variable with the error of each component: "estimate" if rounding was not measured."""
    return "estimate" if method == "none" else "certificate"


def feature_variables(scaling: Scaling, missing: Array, features: Axis) -> Variables:
    """Return mean, scale and number of missing values of the features, in the dimensions that they came in."""
    scale = np.ones_like(scaling.mean) if scaling.scale is None else scaling.scale
    values = {"mean": scaling.mean, "scale": scale, "missing": missing}
    return {name: (features.dims, value.reshape(features.sizes)) for name, value in values.items()}


def component_coords(count: int, features: Axis) -> Variables:
    """Return the coordinates of components and features."""
    return {"component": (COMPONENT, np.arange(1, count + 1)), **features.coords}


def common_attributes(fitted: Any, origin: Origin) -> dict[str, Any]:
    """Return the attributes that results of all kinds have."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": origin.kind,
        "source": origin.source,
        "source_fingerprint": origin.fingerprint,
        "n_samples": fitted.n_samples,
        "parameters": json.dumps(dict(origin.parameters), default=str, sort_keys=True),
        "versions": json.dumps(_versions()),
        "tile_dtype": fitted.tile_dtype,
        "converged": int(fitted.converged),
        "advice": fitted.advice,
        "notes": json.dumps(fitted.notes),
        "genotypes": int(fitted.genotypes),
        "n_features": len(fitted.mean),
        "total_variance": fitted.total_variance,
        "n_missing": int(fitted.missing.sum()),
        "n_sweeps": fitted.n_sweeps,
        "sweep_seconds": json.dumps([round(s, 3) for s in fitted.sweep_seconds]),
        "bytes_read": fitted.bytes_read,
        "seconds": fitted.seconds,
        "peak_memory_bytes": peak_memory(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def common_fields(dataset: xarray.Dataset) -> dict[str, Any]:
    """Return the fields of a fitted record that `common_attributes` wrote."""
    attributes = dataset.attrs
    return {
        "missing": dataset["missing"].values.ravel(),
        "n_samples": int(attributes["n_samples"]),
        "tile_dtype": str(attributes["tile_dtype"]),
        "converged": bool(attributes["converged"]),
        "advice": str(attributes["advice"]),
        "notes": tuple(json.loads(attributes.get("notes", "[]"))),
        "genotypes": bool(attributes.get("genotypes", 0)),
        "sweep_seconds": tuple(json.loads(attributes.get("sweep_seconds", "[]"))),
        "bytes_read": int(attributes["bytes_read"]),
        "seconds": float(attributes["seconds"]),
    }


def scaling_in(dataset: xarray.Dataset) -> Scaling:
    """Return the scaling; scales that are all 1 stand for none, but not for genotypes."""
    scale = dataset["scale"].values.ravel()
    scaled = bool(dataset.attrs.get("genotypes", 0)) or (scale != 1).any()
    return Scaling(dataset["mean"].values.ravel(), scale if scaled else None)


def axes_in(dataset: xarray.Dataset) -> tuple[Axis, Axis]:
    """Return the axes of the samples and of the features, with their labels; those of samples may be unknown."""
    features = tuple(map(str, dataset["mean"].dims))
    per_sample = next((name for name in ("scores", "sample_missing", "fold") if name in dataset), None)
    if per_sample is not None:
        samples = tuple(str(dim) for dim in dataset[per_sample].dims if dim != "component")
        return _axis(dataset, samples), _axis(dataset, features)
    sizes = json.loads(dataset.attrs.get("sample_sizes", "null")) or {"sample": int(dataset.attrs["n_samples"])}
    return Axis(tuple(sizes), tuple(sizes.values())), _axis(dataset, features)


def _axis(dataset: xarray.Dataset, dims: tuple[str, ...]) -> Axis:
    coords = {
        str(name): (tuple(map(str, coord.dims)), coord.values)
        for name, coord in dataset.coords.items()
        if coord.dims and set(coord.dims) <= set(dims)
    }
    return Axis(dims, tuple(dataset.sizes[dim] for dim in dims), coords)


def _versions() -> dict[str, str]:
    """Return the versions of the libraries; the package itself need not be installed."""
    found = {"streampca": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes; 0 if the system does not report it."""
    try:
        # Not getrusage: that includes the memory of the parent when it started this process.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource  # only on Unix
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
