"""Labelled xarray Datasets of results: provenance, scaling and axes, in both directions."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
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
LIBRARIES = ("numpy", "scipy", "numba", "dask", "zarr", "xarray")
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


def origin_attributes(origin: Origin) -> dict[str, Any]:
    """Return where and how a result was computed."""
    return {
        "format_version": FORMAT_VERSION,
        "kind": origin.kind,
        "source": origin.source,
        "source_fingerprint": origin.fingerprint,
        "parameters": json.dumps(dict(origin.parameters), default=str, sort_keys=True),
        "versions": json.dumps(_versions()),
        "peak_memory_bytes": peak_memory(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def scaling_in(dataset: xarray.Dataset) -> Scaling:
    """Return the scaling; scales that are all 1 mean no scaling, except for genotypes."""
    scale = dataset["scale"].values.ravel()
    scaled = bool(dataset.attrs.get("genotypes", 0)) or (scale != 1).any()
    return Scaling(dataset["mean"].values.ravel(), scale if scaled else None)


def kept_in(dataset: xarray.Dataset) -> Array | None:
    """Return the places of the features that a result has; None for all."""
    absent = np.isnan(dataset["mean"].values.ravel())
    return np.flatnonzero(~absent) if absent.any() else None


def present_features(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a result without features that were missing in every sample; the others are one dimension then."""
    kept = kept_in(dataset)
    if kept is None:
        return dataset
    dims = list(dataset["mean"].dims)
    return dataset.stack({"present_feature": dims}, create_index=False).isel(present_feature=kept)


def axes_in(dataset: xarray.Dataset) -> tuple[Axis, Axis]:
    """Return the axes of the samples and of the features, with their labels; those of samples may be unknown."""
    features = tuple(map(str, dataset["mean"].dims))
    per_sample = next((name for name in ("scores", "sample_missing", "fold") if name in dataset), None)
    if per_sample is not None:
        samples = tuple(str(dim) for dim in dataset[per_sample].dims if dim != "component")
        return _axis(dataset, samples), replace(_axis(dataset, features), kept=kept_in(dataset))
    sizes = json.loads(dataset.attrs.get("sample_sizes", "null")) or {"sample": int(dataset.attrs["n_samples"])}
    return Axis(tuple(sizes), tuple(sizes.values())), replace(_axis(dataset, features), kept=kept_in(dataset))


def _axis(dataset: xarray.Dataset, dims: tuple[str, ...]) -> Axis:
    coords = {
        str(name): (tuple(map(str, coord.dims)), coord.values)
        for name, coord in dataset.coords.items()
        if coord.dims and set(coord.dims) <= set(dims)
    }
    return Axis(dims, tuple(dataset.sizes[dim] for dim in dims), coords)


def _versions() -> dict[str, str]:
    """Return the versions of the libraries that this process has loaded: metadata of packages are slow to read."""
    loaded = {name: sys.modules[name] for name in LIBRARIES if name in sys.modules}
    versions = {name: str(getattr(module, "__version__", "unknown")) for name, module in loaded.items()}
    return {"streampca": __version__, "python": platform.python_version(), **versions}


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
