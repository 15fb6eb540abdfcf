"""Write results: one xarray Dataset in one Zarr store, into a directory that gets its name when it is complete."""

from __future__ import annotations

import os
import queue
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.dataset import Variables, as_dataset
from streampca.results.kind import long_names
from streampca.results.output import check_output, put_in_place
from streampca.sources import Axis
from streampca.sources.completeness import WRITTEN
from streampca.sweep.matrix import Matrix
from streampca.sweep.sweep import active_client

if TYPE_CHECKING:
    import xarray


@contextmanager
def writing(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a new directory next to `path`; rename it to `path` if the block succeeds, else remove it."""
    check_output(path, overwrite)
    name = f".{path.name}.{uuid.uuid4().hex[:8]}"
    place = path.with_name(f"{name}.unfinished")
    try:
        place.mkdir()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another directory") from error
    try:
        yield place
        put_in_place(place, path, overwrite, path.with_name(f"{name}.old"))
    finally:
        if place.exists():
            shutil.rmtree(place)


def resumable_array(
    store: Path, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any, dims: tuple[str, ...],
    fill_value: Any, **coding: Any,
) -> Any:  # fmt: skip
    """Open the array that an earlier attempt has begun to write, or create it."""
    group: Any = zarr.open_group(store, mode="a")
    if name in group and (group[name].shape, group[name].chunks, group[name].dtype) == (shape, chunks, np.dtype(dtype)):
        return group[name]
    return group.create_array(
        name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=dims, fill_value=fill_value, overwrite=True,
        **WRITTEN | coding,
    )  # fmt: skip


class BlockWriter:
    """Writes the blocks of a sweep into arrays of a store; each block fills whole chunks, so tasks do not collide.

    Parameters
    ----------
    names : of the arrays.
    shape, dims : of each array; the first axis is samples.
    chunks : `chunks[axis]` is the length of a block.
    axis : the axis along which blocks come; 1 for blocks of features x samples.
    features : of blocks of samples in their own units; those that the fit excluded are NaN.
    """

    def __init__(
        self, store: Path, names: tuple[str, ...], shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any,
        dims: tuple[str, ...], axis: int = 0, features: Axis | None = None,
    ):  # fmt: skip
        self._arrays = [resumable_array(store, name, shape, chunks, dtype, dims, float("nan")) for name in names]
        self._store, self._axis, self._unsafe = store, axis, queue.SimpleQueue[Path]()
        self._features = features
        # Checkpoints are valid for the arrays that they were written with.
        self.token = ", ".join(str((store / name / "zarr.json").stat().st_mtime_ns) for name in names)

    def __call__(self, start: int, *blocks: Array) -> None:
        """Write a block of each array."""
        for array, block in zip(self._arrays, blocks, strict=True):
            stop = start + len(block)
            if self._axis == 0:
                whole = block if self._features is None else self._features.on_grid(block)
                array[start:stop] = whole.reshape(-1, *array.shape[1:])
            else:
                array[:, start:stop] = block.T
            for i in range(1 if self._axis == 0 else array.cdata_shape[0]):
                place = start // array.chunks[self._axis]
                key = (place, *[0] * (array.ndim - 1)) if self._axis == 0 else (i, place)
                self._unsafe.put(self._store / array.path / array.metadata.encode_chunk_key(key))

    def flush(self) -> None:
        """Force written chunks to disk, before a checkpoint counts on them."""
        while not self._unsafe.empty():
            with suppress(FileNotFoundError), self._unsafe.get().open("rb") as file:
                os.fsync(file.fileno())


def score_writer(store: Path, names: tuple[str, ...], matrix: Matrix, k: int) -> BlockWriter | None:
    """Return a writer of scores (n x k), if partitions of samples are whole chunks on this machine; else None."""
    lengths = {stop - start for start, stop in matrix.partitions[:-1]} or {matrix.n_block}
    samples = matrix.source.samples
    if matrix.axis == 1 or len(lengths) > 1 or len(samples.dims) > 1 or active_client() is not None:
        return None
    dims = (samples.dims[0], "component")
    return BlockWriter(store, names, (len(samples), k), (lengths.pop(), k), matrix.dtype, dims)


def save_model(result: xarray.Dataset, path: Path, overwrite: bool) -> None:
    """Write the result of an estimator to a store."""
    variables, coords = (
        {str(name): (tuple(map(str, array.dims)), array.values) for name, array in arrays.items()}
        for arrays in (result.data_vars, result.coords)
    )
    with writing(path, overwrite) as store:
        save(variables, coords, result.attrs, store)


def save(variables: Variables, coords: Variables, attributes: Mapping[str, Any], store: Path) -> None:
    """Write variables into a Zarr store as xarray does; arrays that it has already are kept.

    Labels that are dates or text of fixed width are encoded by xarray. Others do without it, because it is slow to
    import.
    """
    for name in variables | coords:
        if "/" in name or name in ("", ".", "..", "zarr.json") or (name in variables and name in coords):
            # Labels have the names that their file gives them.
            raise InputError(f"{store}: a label called {name!r} is also the name of an array of the result; rename it")
        if (store / name).exists():
            # Left by a run that was killed while it wrote.
            shutil.rmtree(store / name)
    # xarray recognises coordinates that are not named after their dimension by this attribute; "T" is text.
    others = [name for name, (dims, _) in coords.items() if dims != (name,)]
    plain = all(np.asarray(v).dtype.kind in "biufT" for _, v in coords.values())
    with warnings.catch_warnings():
        # Not yet in the specification of format 3: text labels, and consolidated metadata, which xarray reads.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
        if plain:
            named = {"coordinates": " ".join(others)} if others else {}
            _write_arrays(zarr.open_group(store, mode="a"), variables | coords, {**attributes, **named})
        else:
            coding = {name: {"compressors": WRITTEN["compressors"]} for name in variables | coords}
            as_dataset(variables, coords, attributes, long_names(attributes.get("kind"))).to_zarr(
                store, mode="a", consolidated=False, zarr_format=3, encoding=coding, write_empty_chunks=True
            )
        zarr.consolidate_metadata(store, zarr_format=3)


def _write_arrays(group: Any, arrays: Variables, attributes: Mapping[str, Any]) -> None:
    names = long_names(attributes.get("kind"))
    for name, (dims, values) in arrays.items():
        described = {"long_name": names[name]} if name in names else {}
        group.create_array(name, data=np.asarray(values), dimension_names=dims, attributes=described, **WRITTEN)
    group.update_attributes(dict(attributes))
