"""Where matrices come from. `open_source` turns whatever a user gives into a `Source`."""

from __future__ import annotations

import base64
import math
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streampca.errors import DAMAGED, InputError, opening
from streampca.sources.arrays import ArraySource, DaskSource
from streampca.sources.base import Axis, Source
from streampca.sources.genotypes import VariantSource
from streampca.sources.labelled import (
    NETCDF_SUFFIXES,
    labelled_source,
    open_dataset_variable,
    open_netcdf,
    split_axes,
)

PLINK_SUFFIXES = (".bed", ".pgen")

__all__ = ["Axis", "Source", "is_genotypes", "open_genotypes", "open_source"]


def open_source(
    data: Any, *, variable: str | None = None, sample_dims: str | Sequence[str] | None = None,
    missing_chunks: str = "error",
) -> Source:  # fmt: skip
    """Return the source behind an array, a path or a URL.

    Parameters
    ----------
    data : NumPy array or anything array-like, Dask array, Zarr array, xarray DataArray or Dataset, a path (.bed, .pgen,
        .npy, .nc, a Zarr store, `store.zarr/path` inside it), or the URL of a Zarr store.
    variable : which array of a group, Dataset or NetCDF file.
    sample_dims : the dimensions of labelled data that make up the samples; the first one unless given.
    missing_chunks : "fill" to take chunks of a Zarr store that are not there for the fill value.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> np.save("points.npy", np.zeros((1000, 5), np.float32))
    >>> source = streampca.open_source("points.npy")
    >>> source.shape, str(source.dtype), source.n_bytes
    ((1000, 5), 'float32', 20000)
    """
    dims = (sample_dims,) if isinstance(sample_dims, str) else tuple(sample_dims or ())
    source = _find(data, variable, dims or None, missing_chunks)
    source.check()
    return source


def _find(data: Any, variable: str | None, sample_dims: tuple[str, ...] | None, missing_chunks: str) -> Source:
    if isinstance(data, Source):
        return data
    if (isinstance(data, (str, Path)) or type(data).__module__.startswith("zarr.")) and is_genotypes(data):
        return open_genotypes(data, variable=variable, missing_chunks=missing_chunks)
    if isinstance(data, (str, Path)):
        return _open_path(str(data), variable, sample_dims, missing_chunks)
    kind = f"{type(data).__module__}.{type(data).__name__}"
    if kind.startswith("xarray."):
        array = open_dataset_variable(data, variable, "the Dataset") if kind.endswith("Dataset") else data
        return labelled_source(array, sample_dims)
    if kind.startswith("dask."):
        return DaskSource(data if hasattr(data, "chunks") else data.to_dask_array(lengths=True))
    if kind.startswith("zarr."):
        from streampca.sources.zarr_arrays import ZarrSource, made_whole

        if not hasattr(data, "ndim"):
            raise InputError("a Zarr group was given; give one of its arrays, e.g. group['name']")
        return ZarrSource(made_whole(data, missing_chunks))
    return ArraySource(as_numbers(data))


def is_genotypes(data: Any) -> bool:
    """Tell whether this is, or is the path of, genotypes: by its name and what is there."""
    if _may_be_store(data):
        from streampca.sources.vcf_zarr import is_vcf_zarr

        return not hasattr(data, "ndim") and is_vcf_zarr(data)
    return _plink_path(data) is not None


def _may_be_store(data: Any) -> bool:
    """Tell whether this is a Zarr group, a URL or a folder."""
    return type(data).__module__.startswith("zarr.") or "://" in str(data) or Path(str(data)).is_dir()


def _plink_path(data: Any) -> Path | None:
    """Return the .bed or .pgen that a path or prefix names."""
    path = Path(str(data))
    if path.suffix in PLINK_SUFFIXES:
        return path
    named = (Path(f"{path}{suffix}") for suffix in PLINK_SUFFIXES)
    return next((candidate for candidate in named if candidate.is_file()), None)


def open_genotypes(
    data: Any, *, variable: str | None = None, missing_chunks: str = "error", **choice: Any
) -> VariantSource:
    """Return genotypes: of a PLINK .bed or .pgen, by path or prefix, or of a VCF Zarr store.

    Parameters
    ----------
    data : the path, the URL of a store, or an open Zarr group.
    variable : of a store, "call_genotype", or an array of dosages.
    missing_chunks : as for `open_source`.
    choice : keep, remove, extract, exclude, exclude_regions, autosomes, maf, geno, mind: see `selection.select`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import streampca
    >>> from streampca.demos.simulate_genotypes import simulate_genotypes
    >>> people = simulate_genotypes(Path("study"), n_samples=100, n_variants=300)
    >>> source = streampca.open_genotypes("study.bed", keep=["s0", "s1"])
    >>> source.shape
    (2, 300)
    """
    from streampca.sources.selection import select

    source = _open_variants(data, variable, missing_chunks)
    source.check()
    return select(source, **choice)


def _open_variants(data: Any, variable: str | None, missing_chunks: str) -> VariantSource:
    if _may_be_store(data):
        from streampca.sources.vcf_zarr import open_vcf_zarr

        return open_vcf_zarr(data, variable, missing_chunks)
    path = _plink_path(data)
    if path is None:
        raise InputError(f"{data}: is not a .bed, a .pgen, the prefix of one, or a VCF Zarr store; check the path")
    if path.suffix == ".bed":
        from streampca.sources.plink1 import BedSource

        return BedSource(path)
    from streampca.sources.plink2 import PgenSource

    return PgenSource(path)


def as_numbers(data: Any) -> np.ndarray[Any, Any]:
    """Return array-like data as a NumPy array, or say why it cannot be one."""
    if "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(data):
        raise InputError("a sparse matrix was given; make it dense, e.g. x.toarray(), or store it in Zarr by chunks")
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise InputError(f"the rows differ in length ({error}); give a rectangular array of numbers") from error
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"the array holds Python objects ({error}); convert it to numbers") from error
    return array


def _open_path(location: str, variable: str | None, sample_dims: tuple[str, ...] | None, missing_chunks: str) -> Source:
    path = Path(location)
    if "://" in location:
        return _open_zarr(location, variable, sample_dims, missing_chunks)
    if path.suffix == ".npy" and path.is_file():
        return ArraySource.from_npy(path)
    if path.suffix in NETCDF_SUFFIXES and path.is_file():
        return open_netcdf(path, variable, sample_dims)
    if path.is_file():
        raise InputError(f"{location}: not a known kind of file; give a .bed, .pgen, .npy, .nc or a Zarr store")
    from streampca.sources.zarr_arrays import is_zarr

    if not is_zarr(path):
        what = "is a folder but not a Zarr store" if path.is_dir() else "does not exist"
        raise InputError(f"{location}: {what}; check the path")
    return _open_zarr(location, variable, sample_dims, missing_chunks)


def _open_zarr(location: str, variable: str | None, sample_dims: tuple[str, ...] | None, missing_chunks: str) -> Source:
    """Open a Zarr array: by whole chunks where it lies as it is meant, through xarray where it must be decoded."""
    from streampca.sources.zarr_arrays import ZarrSource, has_labels, open_zarr

    array = open_zarr(location, variable, missing_chunks)
    plain = ZarrSource(array)
    dims = plain.samples.dims + plain.features.dims
    coded = _is_coded(array)
    if "sample" in dims and sample_dims is None and not coded and not has_labels(array, dims):
        return plain
    with opening(plain.name):
        labelled = _with_labels(array, dims)
        axes = split_axes(labelled, sample_dims)
        if coded or axes[0].dims + axes[1].dims != dims:
            return labelled_source(labelled, sample_dims, plain)
        return ZarrSource(array, axes)


def _is_coded(array: Any) -> bool:
    """Tell whether the values in a store differ from the values meant: packed, or with a number that means missing."""
    attributes = dict(array.attrs)
    fills = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    return bool({"scale_factor", "add_offset"} & set(attributes)) or not all(map(_is_nan, fills))


def _is_nan(value: Any) -> bool:
    """Tell whether an attribute is NaN: as a number, or as xarray writes it into Zarr format 3."""
    try:
        return math.isnan(float(value))
    except (TypeError, ValueError):
        pass
    try:
        return math.isnan(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    except (TypeError, ValueError, struct.error):
        return False


def _with_labels(array: Any, dims: tuple[str, ...]) -> Any:
    """Return a Zarr array as a DataArray on Dask, with the coordinates of its group if xarray finds them there."""
    import dask.array
    import xarray

    from streampca.sources.completeness import plain
    from streampca.sources.zarr_arrays import arrays_beside, check_size, open_store, refuse_many_blocks

    group, _, name = array.path.rpartition("/")
    store: Any = array.store
    inner = plain(store)
    if not name and hasattr(inner, "root"):
        # The array itself was opened: its group is the folder around it.
        root = Path(inner.root)
        store, group, name = open_store(str(root.parent), "fill" if inner is store else "error"), "", root.name
    refuse_many_blocks(array)
    for other in arrays_beside(array):
        if other.ndim == 1:
            # xarray reads labels as a whole when it opens the group.
            check_size(other)
    try:
        return xarray.open_zarr(store, group=group or None, chunks={}, consolidated=False)[name]
    except InputError:
        raise
    except DAMAGED:
        lazy: Any = dask.array
        return xarray.DataArray(lazy.from_zarr(array), dims=dims)
