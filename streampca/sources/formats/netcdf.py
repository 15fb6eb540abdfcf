"""NetCDF files, through xarray."""

from __future__ import annotations

from pathlib import Path

from streampca.errors import InputError
from streampca.sources.base import Source
from streampca.sources.labelled import LazySource, open_dataset_variable, split_axes
from streampca.sources.registry import OpenOptions, register


@register(suffixes=(".nc", ".nc4", ".cdf", ".netcdf", ".h5"))
def open_netcdf(path: Path, options: OpenOptions) -> Source:
    """Open one variable of a NetCDF file."""
    # xarray is slow to import, and other formats do not need it.
    import xarray

    try:
        dataset = xarray.open_dataset(path)
    except (ValueError, OSError) as error:
        first = str(error).splitlines()[0]
        hint = "; reading NetCDF needs: pip install 'streampca[netcdf]'" if "engine" in str(error) else ""
        raise InputError(f"{path}: cannot be opened as NetCDF ({first}){hint}") from error
    array = open_dataset_variable(dataset, options.variable, str(path))
    axes = split_axes(array, options.sample_dims)
    return LazySource(array.transpose(*axes[0].dims, *axes[1].dims), axes, path)
