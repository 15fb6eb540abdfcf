"""Labels of Zarr arrays, read through xarray."""

from __future__ import annotations

from typing import Any

import dask.array
import xarray
from xarray.backends import ZarrStore

from streampca.errors import DAMAGED, InputError
from streampca.sources.zarr_arrays import ZarrArray, ZarrGroup


def with_labels(array: ZarrArray, group: ZarrGroup | None, dims: tuple[str, ...]) -> Any:
    """Return an array as a DataArray on Dask, with the coordinates of its open group if xarray can read them."""
    try:
        if group is not None:
            # As xarray.open_zarr, which would open the group again.
            store = ZarrStore(group, mode="r", use_zarr_fill_value_as_mask=group.metadata.zarr_format == 2)
            return xarray.open_dataset(store, chunks={})[array.path.rpartition("/")[2]]
    except InputError:
        raise
    except DAMAGED:
        pass
    lazy: Any = dask.array
    return xarray.DataArray(lazy.from_zarr(array), dims=dims)
