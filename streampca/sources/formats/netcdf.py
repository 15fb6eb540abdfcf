"""NetCDF files, through xarray."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streampca.errors import InputError, opening
from streampca.sources.base import Source
from streampca.sources.hdf5_check import checking
from streampca.sources.labelled import LazySource, open_dataset_variable, split_axes
from streampca.sources.registry import OpenOptions, register

CLASSIC = (b"CDF\x01", b"CDF\x02")  # first bytes of NetCDF 3


@register(suffixes=(".nc", ".nc4", ".cdf", ".netcdf", ".h5"))
def open_netcdf(path: Path, options: OpenOptions) -> Source:
    """Open one variable of a NetCDF file."""
    with opening(str(path), "opened as NetCDF", "check the file, or restore it from a copy"):
        dataset = _open(path, options.external_files)
        array = open_dataset_variable(dataset, options.variable, str(path))
        return LazySource(array, split_axes(array, options.sample_dims, f"{path}: "), path)


def _open(path: Path, external_files: str) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: is not a file; check the path")
    with path.open("rb") as file:
        classic = file.read(4) in CLASSIC
    if not classic and find_spec("h5netcdf") is None:
        raise InputError(f"{path}: reading NetCDF needs h5netcdf: pip install 'streampca[netcdf]'")
    with nullcontext() if classic else checking(path, external_files):
        # xarray is slow to import, and other formats do not need it; the check goes on meanwhile.
        import xarray
    if classic:
        return xarray.open_dataset(path, engine="scipy")
    return xarray.open_dataset(path, engine="h5netcdf", phony_dims="access")
