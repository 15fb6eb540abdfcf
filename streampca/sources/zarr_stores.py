"""Opening of Zarr stores: finds out what a store contains, and opens its metadata once."""

from __future__ import annotations

import base64
import math
import struct
from itertools import islice
from pathlib import Path
from typing import Any

import zarr

from streampca.errors import DAMAGED, InputError, opening
from streampca.sources.base import Source
from streampca.sources.completeness import complete
from streampca.sources.formats.zarr import GROUP_MARKERS
from streampca.sources.labelled import labelled_source, split_axes
from streampca.sources.registry import OpenOptions
from streampca.sources.remote import is_url
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
)


def open_node(data: Any, options: OpenOptions) -> Source:
    """Open the genotypes or one array of a store, given by path, URL, zarr.Array or zarr.Group."""
    node, parent = _open_object(data, options) if not isinstance(data, str) else _open_location(data, options)
    if isinstance(node, zarr.Group) and (options.genotypes or has_genotypes(node)):
        return open_vcf_zarr(node, options.variable)
    if not isinstance(data, str):
        if isinstance(node, zarr.Group):
            raise InputError("data is a Zarr group; give one of its arrays, e.g. group['name']")
        return ZarrSource(node)
    if isinstance(node, zarr.Group):
        node, parent = _choose_array(data, node, options.variable)
    return _labelled(node, parent, options)


def _open_object(data: Any, options: OpenOptions) -> tuple[Any, None]:
    """Return an open array or group, opened again if its chunks have to be complete."""
    store = complete(data.store, options.missing_chunks)
    if store is data.store:
        return data, None
    return (zarr.open_array if hasattr(data, "ndim") else zarr.open_group)(store, path=data.path, mode="r"), None


def _open_location(location: str, options: OpenOptions) -> tuple[Any, ZarrGroup | None]:
    """Return the array or group at a path or URL, and the group around an array."""
    place = Path(location)
    in_group = not is_url(location) and any((place.parent / marker).exists() for marker in GROUP_MARKERS)
    if in_group and place.name not in ("", ".."):
        try:
            group = zarr.open_group(open_store(str(place.parent), options.missing_chunks), mode="r")
            return group[place.name], group
        except InputError:
            raise
        except DAMAGED:
            # The group around it may be damaged, or not list it.
            pass
    with opening(location):
        try:
            return zarr.open(open_store(location, options.missing_chunks), mode="r"), None
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
            if len(matrices) != 1:
                raise InputError(f"{location}: is a group; give an array in it, as {location}/NAME: it has {listing}")
            name, node = matrices[0], arrays[matrices[0]]
        folder = name.rpartition("/")[0]
        return node, group[folder] if folder else group


def _labelled(array: ZarrArray, group: ZarrGroup | None, options: OpenOptions) -> Source:
    """Return the source of an array: by whole chunks if values are stored as they are, else decoded by xarray."""
    plain = ZarrSource(array)
    dims = plain.samples.dims + plain.features.dims
    coded = _is_coded(array)
    if "sample" in dims and options.sample_dims is None and not coded and not _has_labels(group, dims):
        return plain
    # xarray is slow to import, and arrays without labels do not need it.
    from streampca.sources.zarr_labels import with_labels

    check_block_count(array)
    for vector in _vectors(group):
        # xarray reads labels completely when it opens the group.
        check_size(vector)
    with opening(plain.name):
        labelled = with_labels(array, group, dims)
        axes = split_axes(labelled, options.sample_dims)
        if coded or axes[0].dims + axes[1].dims != dims:
            return labelled_source(labelled, options.sample_dims, plain)
        return ZarrSource(array, axes)


def _is_coded(array: ZarrArray) -> bool:
    """Whether stored values differ from the values meant: scaled, or with a number that stands for missing."""
    attributes = dict(array.attrs)
    fills = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    return bool({"scale_factor", "add_offset"} & set(attributes)) or not all(map(_is_nan, fills))


def _is_nan(value: Any) -> bool:
    """Whether an attribute is NaN: as a number, or as xarray writes it into Zarr format 3."""
    try:
        return math.isnan(float(value))
    except (TypeError, ValueError):
        pass
    try:
        return math.isnan(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    except (TypeError, ValueError, struct.error):
        return False


def _vectors(group: ZarrGroup | None) -> list[ZarrArray]:
    """Return the one-dimensional arrays of a group; none if it is damaged."""
    try:
        return [] if group is None else [array for array in arrays_in(group, deep=False) if array.ndim == 1]
    except DAMAGED:
        return []


def _has_labels(group: ZarrGroup | None, dims: tuple[str, ...]) -> bool:
    """Whether a group has labels of the dimensions; if not, xarray need not be imported."""
    return any({*dimension_names(other)} & {*dims} for other in _vectors(group))
