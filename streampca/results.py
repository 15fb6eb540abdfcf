"""Results: one xarray Dataset in one Zarr store, written beside its final name and renamed when whole."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from streampca.errors import InputError
from streampca.models.dataset import FORMAT_VERSION
from streampca.sources import Axis

if TYPE_CHECKING:
    import xarray

Array = NDArray[Any]


@contextmanager
def writing(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a fresh place beside `path`, and rename it to `path` when the block ends well; else remove it."""
    check_output(path, overwrite)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        yield beside
        old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old") if path.exists() else None
        if old is not None:
            check_output(path, overwrite)
            path.rename(old)
        os.rename(beside, path)
        if old is not None:
            shutil.rmtree(old)
    finally:
        if beside.exists():
            shutil.rmtree(beside)


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse an output that exists, or that is not a result of ours, or whose folder does not."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; choose another name or add --overwrite")
    if not is_result(path):
        raise InputError(f"{path}: is not a streampca result, and will not be overwritten; choose another name")


def is_result(path: Path) -> bool:
    """Tell whether a path is a store that this program wrote."""
    try:
        metadata = json.loads((path / "zarr.json").read_text())
        return "format_version" in metadata["attributes"] and "kind" in metadata["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


class ScoresWriter:
    """Writes the scores of a partition at a time into the array `scores` of a store; each fills whole chunks."""

    def __init__(self, store: Path, samples: Axis, k: int, dtype: Any, partition_length: int):
        import zarr

        zarr.open_group(store, mode="a")
        self._array = zarr.create_array(
            store, name="scores", shape=(len(samples), k), chunks=(partition_length, k), dtype=dtype,
            dimension_names=(samples.dims[0], "component"), fill_value=float("nan"),
        )  # fmt: skip

    def __call__(self, start: int, rows: Array) -> None:
        self._array[start : start + len(rows)] = rows


def save(dataset: xarray.Dataset, store: Path) -> None:
    """Write a Dataset into a Zarr store, beside arrays that may be there already."""
    import zarr

    dataset.to_zarr(store, mode="a", consolidated=False, zarr_format=3)
    zarr.consolidate_metadata(store, zarr_format=3)


def load(path: str | Path) -> xarray.Dataset:
    """Open a result; refuses what is not one, or one of a newer format."""
    import xarray

    if not is_result(Path(path)):
        raise InputError(f"{path}: is not a streampca result; give a store that `streampca pca` wrote")
    dataset = xarray.open_zarr(path, consolidated=False)
    if dataset.attrs["format_version"] > FORMAT_VERSION:
        raise InputError(f"{path}: was written by a newer streampca (format {dataset.attrs['format_version']}); update streampca")
    return dataset
