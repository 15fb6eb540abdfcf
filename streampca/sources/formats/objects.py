"""Arrays of other libraries that are open already: Dask and xarray."""

from __future__ import annotations

from typing import Any

from streampca.sources.arrays import DaskSource
from streampca.sources.base import Source
from streampca.sources.labelled import labelled_source, open_dataset_variable
from streampca.sources.registry import OpenOptions, register


def _of_package(name: str) -> Any:
    return lambda data: data if type(data).__module__.startswith(f"{name}.") else None


@register(recognise=_of_package("dask"))
def open_dask(data: Any, options: OpenOptions) -> Source:  # noqa: ARG001
    """Open a Dask array or data frame."""
    return DaskSource(data if hasattr(data, "chunks") else data.to_dask_array(lengths=True))


@register(recognise=_of_package("xarray"))
def open_xarray(data: Any, options: OpenOptions) -> Source:
    """Open a DataArray, or one variable of a Dataset."""
    array = open_dataset_variable(data, options.variable, "the Dataset") if hasattr(data, "data_vars") else data
    return labelled_source(array, options.sample_dims)
