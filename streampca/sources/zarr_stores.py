"""Opening of Zarr stores: finds out what a store contains, and opens its metadata once."""

from __future__ import annotations

import base64
import math
import struct
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streampca.errors import DAMAGED, InputError, opening
from streampca.files import is_url
from streampca.sources.base import Source
from streampca.sources.completeness import complete
from streampca.sources.formats.zarr import GROUP_MARKERS
from streampca.sources.labelled import labelled_source, split_axes
from streampca.sources.registry import OpenOptions
from streampca.sources.vcf_zarr import has_genotypes, open_vcf_zarr
from streampca.sources.zarr_arrays import (
    ZarrArray,
    ZarrGroup,
    ZarrSource,
    arrays_in,
    check_block_count,
    check_size,
    dimension_names,
    open_store,
    place_of,
)

# Attributes that change the meaning of stored values.
CODING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned")


def open_node(data: Any, options: OpenOptions) -> Source:
    """Open the genotypes or one array of a store, given by path, URL, zarr.Array or zarr.Group."""
    if isinstance(data, str):
        node, parent = _open_location(data, options)
    else:
        node, parent = _complete_node(data, options), None
    if isinstance(node, zarr.Group):
        if options.genotypes or has_genotypes(node):
            return open_vcf_zarr(node, options.variable)
        if not isinstance(data, str):
            raise InputError("data is a Zarr group; give one of its arrays, e.g. group['name']")
        node, parent = _choose_array(data, node, options.variable)
    return _labelled(node, parent, options) if isinstance(data, str) else ZarrSource(node)


def _complete_node(node: Any, options: OpenOptions) -> Any:
    """Return an open array or group, opened again if its chunks have to be complete."""
    store = complete(node.store, options.missing_chunks)
    if store is node.store:
        return node
    return (zarr.open_array if hasattr(node, "ndim") else zarr.open_group)(store, path=node.path, mode="r")


def _open_location(location: str, options: OpenOptions) -> tuple[Any, ZarrGroup | None]:
    """Return the array or group at a path or URL, and the group around an array."""
    place = Path(location)
    in_group = not is_url(location) and any((place.parent / marker).exists() for marker in GROUP_MARKERS)
    if in_group and place.name not in ("", ".."):
        try:
            group = zarr.open_group(
                open_store(str(place.parent), options.missing_chunks, options.external_files), mode="r"
            )
            return group[place.name], group
        except InputError:
            raise
        except DAMAGED:
            # The group around it may be damaged, or not list it.
            pass
    with opening(location):
        try:
            return zarr.open(open_store(location, options.missing_chunks, options.external_files), mode="r"), None
        except (FileNotFoundError, KeyError) as error:
            raise InputError(f"{location}: is not a Zarr array or group; check the path") from error


def _choose_array(location: str, group: ZarrGroup, variable: str | None) -> tuple[ZarrArray, ZarrGroup]:
    """Return the array named `variable`, or the only matrix of a group, and the group that it is in."""
    with opening(location):
        if variable is not None and variable in group:
            name, node = variable, group[variable]
            if isinstance(node, zarr.Group):
                return _choose_array(f"{location}/{variable}", node, None)
        else:
            arrays = {array.path.removeprefix(f"{group.path}/"): array for array in arrays_in(group)}
            listing = ", ".join(f"{name} {array.shape}" for name, array in islice(arrays.items(), 8)) or "no arrays"
            if variable is not None:
                raise InputError(f"{location}: has no array {variable!r}; it has {listing}")
            matrices = [name for name, array in arrays.items() if array.ndim >= 2]
            if group.attrs.get("kind") == "scores" and "scores" in matrices:
                # Projected samples; their standard errors are another matrix.
                matrices = ["scores"]
            if len(matrices) != 1:
                raise InputError(f"{location}: is a group; give an array in it, as {location}/NAME: it has {listing}")
            name, node = matrices[0], arrays[matrices[0]]
        folder = name.rpartition("/")[0]
        return node, group[folder] if folder else group


def _labelled(array: ZarrArray, group: ZarrGroup | None, options: OpenOptions) -> Source:
    """Return the source of an array, read chunk by chunk; or decoded by xarray if stored values are coded."""
    plain = ZarrSource(array)
    dims = plain.samples.dims + plain.features.dims
    coding = _coding(array)
    vectors = _vectors(group)
    has_labels = any(set(dimension_names(vector)) & set(dims) for vector in vectors)
    if "sample" in dims and options.sample_dims is None and not coding and not has_labels:
        return plain
    check_block_count(array)
    for vector in vectors:
        # xarray reads labels completely when it opens the group.
        check_size(vector)
    with opening(plain.name):
        labelled = _with_labels(array, group, dims, coding)
        axes = split_axes(labelled, options.sample_dims, f"{plain.name}: ")
        if coding or axes[0].dims + axes[1].dims != dims:
            return labelled_source(labelled, axes[0].dims, plain)
        return ZarrSource(array, axes)


def _with_labels(array: ZarrArray, group: ZarrGroup | None, dims: tuple[str, ...], coding: dict[str, Any]) -> Any:
    """Return an array as a DataArray on Dask, with the coordinates of its open group if xarray can read them.

    Parameters
    ----------
    coding : attributes by which stored values differ from the values meant.
    """
    # Slow to import, and arrays without labels do not need them.
    import dask.array
    import xarray

    if group is not None:
        # As xarray.open_zarr, which would open the group again.
        masked = group.metadata.zarr_format == 2
        try:
            store = xarray.backends.ZarrStore(group, mode="r", use_zarr_fill_value_as_mask=masked)
            return xarray.open_dataset(store, chunks={})[array.path.rpartition("/")[2]]
        except InputError:
            raise
        except DAMAGED:
            pass
    lazy: Any = dask.array
    stored = xarray.Variable(dims, lazy.from_zarr(array), coding)
    return xarray.DataArray(xarray.conventions.decode_cf_variable(array.name, stored))


def _coding(array: ZarrArray) -> dict[str, Any]:
    """Return the attributes by which stored values differ from the values meant, as xarray decodes them.

    In format 2, xarray stores the value that stands for missing as the fill value of the array.
    """
    with opening(place_of(array)):
        attributes = dict(array.attrs)
        found = {name: attributes[name] for name in CODING if name in attributes}
        if array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes and array.fill_value is not None:
            found["_FillValue"] = array.fill_value
        if isinstance(found.get("_FillValue"), str):
            found["_FillValue"] = struct.unpack("<d", base64.b64decode(found["_FillValue"], validate=True))[0]
    return {name: value for name, value in found.items() if not _is_nan(value)}


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and math.isnan(value)


def _vectors(group: ZarrGroup | None) -> list[ZarrArray]:
    """Return the one-dimensional arrays of a group; none if it is damaged."""
    try:
        return [] if group is None else [array for array in arrays_in(group, deep=False) if array.ndim == 1]
    except DAMAGED:
        return []
