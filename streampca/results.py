"""Results: one xarray Dataset in one Zarr store, written beside its final name and renamed when whole."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from streampca.errors import InputError
from streampca.models.components import Components, Request, fit_components, scores_of
from streampca.models.dataset import FORMAT_VERSION, LONG_NAMES, Variables, as_dataset, pca_variables, provenance
from streampca.models.genotypes import VARIANT_LABELS, fit_genotypes
from streampca.sources import Axis, Source
from streampca.sources.genotypes import VariantSource
from streampca.sweeps import active_client

if TYPE_CHECKING:
    import xarray

Array = NDArray[Any]

# What every result holds.
RESULT_ARRAYS = ("components", "explained_variance", "explained_variance_ratio", "certificate")


@contextmanager
def writing(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a fresh place beside `path`, and rename it to `path` when the block ends well; else remove it."""
    check_output(path, overwrite)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        beside.mkdir()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
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


@contextmanager
def writing_text(path: Path) -> Iterator[TextIO]:
    """Yield a file that takes its name when all is written."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        with beside.open("w") as file:
            yield file
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def text_paths(prefix: Path, suffixes: tuple[str, ...], overwrite: bool) -> list[Path]:
    """Return the text files that begin with prefix, or say why they cannot be written."""
    paths = [prefix.with_name(prefix.name + suffix) for suffix in suffixes]
    existing = [path for path in paths if path.exists()]
    if existing and not overwrite:
        raise InputError(f"{existing[0]}: exists already; choose another --out or add --overwrite")
    if not prefix.parent.is_dir():
        raise InputError(f"{prefix}: the folder {prefix.parent} does not exist; make it first")
    return paths


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse an output that exists, or that is not a result of ours, or whose folder does not."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; choose another name or add --overwrite")
    if kind_of(path) is None:
        raise InputError(f"{path}: was not written by streampca, and will not be overwritten; choose another name")


def kind_of(path: Path) -> str | None:
    """Return what kind of store this program wrote at a path ("pca", "simulated"), or None if it wrote none."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
        return str(attributes["kind"]) if "format_version" in attributes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
        """Write these rows."""
        self._array[start : start + len(rows)] = rows


def pca_to_store(
    source: Source, request: Request, path: Path, overwrite: bool, parameters: Mapping[str, Any],
    find_outliers: str | None = None, outlier_rounds: int = 5,
) -> tuple[Components, dict[str, Any]]:  # fmt: skip
    """Find the components of a source, and write them with the scores of its samples to a store.

    Cut along samples, each task writes the scores of its partition, so that they need not fit in memory either.
    Returns the components, and the attributes of the result.
    """
    started = time.monotonic()
    with writing(path, overwrite) as store:
        apart = None
        if isinstance(source, VariantSource):
            found, sweeps, apart = fit_genotypes(source, request, find_outliers=find_outliers, rounds=outlier_rounds)
        else:
            found, sweeps = fit_components(source, request, extra_sweeps=1)
        matrix, writer = sweeps.matrix, None
        lengths = {stop - start for start, stop in matrix.partitions[:-1]} or {matrix.n_block}
        if found.scores is None and len(lengths) == 1 and len(source.samples.dims) == 1 and active_client() is None:
            writer = ScoresWriter(store, source.samples, len(found.components), matrix.dtype, lengths.pop())
        scores, found = scores_of(found, sweeps, writer)
        found = replace(found, seconds=time.monotonic() - started)
        attributes = provenance(found, source.name, source.fingerprint(), parameters)
        samples, features = found.axes(matrix.source)
        variables, coords = pca_variables(found, samples, features, scores if writer is None else None)
        if apart is not None:
            variables["outlier"] = (samples.dims, apart)
        save(variables, coords, attributes, store)
    return found, attributes


def scores_to_store(scores: Array, samples: Axis, path: Path, overwrite: bool, attributes: Mapping[str, Any]) -> None:
    """Write the scores of projected samples, with their labels, to a store."""
    k = scores.shape[1]
    coords: Variables = {"component": (("component",), np.arange(1, k + 1)), **samples.coords}
    facts = {"format_version": FORMAT_VERSION, "kind": "scores", **attributes}
    with writing(path, overwrite) as store:
        save({"scores": ((*samples.dims, "component"), scores)}, coords, facts, store)


def components_in(result: xarray.Dataset) -> tuple[Components, dict[str, Array]]:
    """Return the components that a result of genotypes holds, and the labels of its variants."""
    if not result.attrs.get("genotypes"):
        raise InputError("this is not a result of genotypes; new samples of other data go through PCA.transform")
    values: dict[str, Any] = {
        name: result[name].values for name in ("components", "mean", "scale", "missing", "certificate")
    }
    found = Components(
        **values,
        explained_variance=result["explained_variance"].values,
        total_variance=float(result.attrs["total_variance"]),
        n_samples=int(result.attrs["n_samples"]),
        converged=bool(result.attrs["converged"]),
        advice=str(result.attrs["advice"]),
        solver=str(result.attrs["solver"]),
        tile_dtype=str(result.attrs["tile_dtype"]),
        sweep_seconds=(),
        warm_seconds=0.0,
        bytes_read=0,
        seconds=0.0,
        genotypes=True,
    )
    return found, {name: result[name].values for name in VARIANT_LABELS}


def save(variables: Variables, coords: Variables, attributes: Mapping[str, Any], store: Path) -> None:
    """Write variables into a Zarr store, beside arrays that may be there already, as xarray lays them out.

    Text and time labels go through xarray, which knows how to encode them; plain numbers need not wait for it to load.
    """
    import zarr

    # xarray finds coordinates that are not named after their dimension by this attribute; "T" is text.
    others = [name for name, (dims, _) in coords.items() if dims != (name,)]
    plain = all(np.asarray(v).dtype.kind in "biufT" for _, v in coords.values())
    with warnings.catch_warnings():
        # Extensions of format 3 still: text labels, and the consolidated metadata that `xarray.open_zarr` looks for.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
        if plain:
            named = {"coordinates": " ".join(others)} if others else {}
            _write_arrays(zarr.open_group(store, mode="a"), variables | coords, {**attributes, **named})
        else:
            as_dataset(variables, coords, attributes).to_zarr(store, mode="a", consolidated=False, zarr_format=3)
        zarr.consolidate_metadata(store, zarr_format=3)


def _write_arrays(group: Any, arrays: Variables, attributes: Mapping[str, Any]) -> None:
    for name, (dims, values) in arrays.items():
        described = {"long_name": LONG_NAMES[name]} if name in LONG_NAMES else {}
        group.create_array(name, data=np.asarray(values), dimension_names=dims, attributes=described)
    group.attrs.update(attributes)


def load(path: str | Path) -> xarray.Dataset:
    """Open a result; refuses what is not one, or one of a newer format."""
    import xarray

    _check_result(Path(path))
    dataset: xarray.Dataset = xarray.open_zarr(path, chunks=None, consolidated=False)
    return dataset


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read all arrays of a result, and its attributes, without waiting for xarray to load."""
    import zarr

    _check_result(path)
    group = zarr.open_group(path, mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}, dict(group.attrs)


def _check_result(path: Path) -> None:
    if kind_of(path) != "pca":
        raise InputError(f"{path}: is not a streampca result; give a store that `streampca pca` wrote")
    absent = {name for name in RESULT_ARRAYS if not (path / name).is_dir()}
    if absent:
        raise InputError(f"{path}: is not whole, {', '.join(sorted(absent))} is not there; make the result again")
    newest = json.loads((path / "zarr.json").read_text())["attributes"]["format_version"]
    if newest > FORMAT_VERSION:
        raise InputError(f"{path}: was written by a newer streampca (format {newest}); update streampca")
