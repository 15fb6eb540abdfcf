"""Labelled arrays: xarray DataArrays, and one variable of a Dataset, a NetCDF file or an xarray Zarr store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, opening
from streampca.progress import logger
from streampca.sources.arrays import READ_BYTES, ArraySource, DaskSource
from streampca.sources.base import Axis, Source, digest, file_stamp
from streampca.validation import check_declared_size


def labelled_source(array: Any, sample_dims: Sequence[str] | None, origin: Source | None = None) -> Source:
    """Return the source of a DataArray.

    Parameters
    ----------
    sample_dims : dimensions of the samples, by default the first; the others are features.
    origin : source of the stored values, for an array on Dask.
    """
    axes = split_axes(array, sample_dims)
    array = array.transpose(*axes[0].dims, *axes[1].dims)
    if array.chunks is not None:
        return DaskSource(array.data, axes, origin)
    if isinstance(array.variable._data, np.ndarray):
        return ArraySource(array.values, axes)
    return LazySource(array, axes)


def split_axes(array: Any, sample_dims: Sequence[str] | None, where: str = "") -> tuple[Axis, Axis]:
    """Split the dimensions of a DataArray into those of samples and of features."""
    dims = tuple(str(dim) for dim in array.dims)
    given = tuple(sample_dims) if sample_dims else dims[:1]
    unknown = [dim for dim in given if dim not in dims]
    if unknown:
        raise InputError(f"{where}unknown dimension {unknown[0]!r}; sample_dims must be among {', '.join(dims)}")
    if len(set(given)) < len(given):
        raise InputError(f"{where}sample_dims must be unique, got {', '.join(given)}")
    rest = tuple(dim for dim in dims if dim not in given)
    if not rest:
        raise InputError(f"{where}no dimension is left for features; sample_dims are all of {', '.join(dims)}")
    times = [dim for dim in rest if dim == "time" or (dim in array.coords and array[dim].dtype.kind == "M")]
    if times and not sample_dims:
        logger.warning(
            "samples are %s, and %s is among the features; for one sample per %s give sample_dims (--sample-dims %s)",
            given[0], *times[:1] * 3,
        )  # fmt: skip
    return _axis(array, given), _axis(array, rest)


def _axis(array: Any, dims: tuple[str, ...]) -> Axis:
    coords = {}
    for name, coord in array.coords.items():
        if coord.dims and set(coord.dims) <= set(dims) and coord.dtype.kind in "biufUSMmTO":
            check_declared_size(f"the coordinate {name}", coord.nbytes)
            coords[str(name)] = (tuple(map(str, coord.dims)), coord.values)
    return Axis(dims, tuple(array.sizes[dim] for dim in dims), coords)


class LazySource(Source):
    """A DataArray that is read from its file when indexed."""

    library_bytes = 64 << 20  # xarray and h5py

    def __init__(self, array: Any, axes: tuple[Axis, Axis], path: Path | None = None):
        self._array = array
        self._path = path
        self.name = str(path) if path else f"DataArray {array.name or ''}".strip()
        self.samples, self.features = axes
        self._order = [array.dims.index(dim) for dim in (*self.samples.dims, *self.features.dims)]
        self.dtype = array.dtype
        self.overhead = 2.0
        self.costly = True
        chunks = array.encoding.get("preferred_chunks") or {}
        n, d = self.shape
        rows = chunks.get(self.samples.dims[0], 1) * (n // max(1, self.samples.sizes[0]))
        columns = chunks.get(self.features.dims[0], 1) * (d // max(1, self.features.sizes[0]))
        rows = max(rows, READ_BYTES // max(1, d * self.dtype.itemsize))
        self.chunks = min(rows, n), (min(columns, d) if chunks else d)
        self._opened = self.stamp()

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read through xarray."""
        index = {self.samples.dims[0]: outer_samples, self.features.dims[0]: outer_features}
        with opening(self.name, "read", "check the file against a copy"):
            # A transposed view would make xarray index by arrays of integers.
            block = np.ascontiguousarray(self._array.isel(index).values.transpose(self._order))
        return block, block.nbytes

    def fingerprint(self) -> str:
        """Return a hash of shape, type and dimensions, and of the file's size and time if it is known."""
        where = str(self._file())
        return digest(
            "xarray", where, self.shape, self.dtype.str, self.samples.dims, self.features.dims, self.stamp()
        )  # fmt: skip

    def stamp(self) -> object:
        """Return size and time of the file, if it is known."""
        path = self._file()
        return file_stamp(path) if path.is_file() else None

    def _file(self) -> Path:
        return self._path or Path(self._array.encoding.get("source", ""))


def open_dataset_variable(dataset: Any, variable: str | None, where: str) -> Any:
    """Return one variable of a Dataset: the one named, or the only one with two dimensions or more."""
    if variable is None:
        fields = [str(name) for name, array in dataset.data_vars.items() if array.ndim >= 2]
        if len(fields) != 1:
            listed = ", ".join(map(str, dataset.data_vars)) or "none"
            raise InputError(
                f"{where}: has several variables, {listed}; choose one, as variable={(fields or ['NAME'])[0]!r}"
            )
        variable = fields[0]
    if variable not in dataset:
        raise InputError(f"{where}: has no variable {variable!r}; it has {', '.join(map(str, dataset.data_vars))}")
    return dataset[variable]
