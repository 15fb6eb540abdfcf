"""Results: one xarray Dataset in one Zarr store, written beside its final name and renamed when whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import DAMAGED, InputError, listed
from streampca.files import writing_text
from streampca.genetics.matching import VARIANT_LABELS
from streampca.models.dataset import FORMAT_VERSION
from streampca.results.kind import kind_names
from streampca.results.schema import (
    absent_arrays,
    check_arrays,
    check_attributes,
    kind_in,
)
from streampca.sources.completeness import check_damage, written_completely
from streampca.sources.remote import is_url, root_at
from streampca.sources.zarr_arrays import arrays_in, check_size, open_store

if TYPE_CHECKING:
    import xarray


# Arrays of a result that are no larger are read when it is opened.
READ_AT_ONCE = 16 << 20


def put_in_place(store: Path, path: Path, overwrite: bool, old: Path) -> None:
    """Give a complete store its name; the store that had it moves to `old` for a moment."""
    if path.exists():
        check_output(path, overwrite)
        if old.exists():
            shutil.rmtree(old)
        path.rename(old)
    os.rename(store, path)
    if old.exists():
        shutil.rmtree(old)


def add_attributes(store: Path, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a store that is written."""
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"] |= attributes
    with writing_text(store / "zarr.json") as file:
        json.dump(root, file)


def check_output(path: Path, overwrite: bool) -> None:
    """Raise if an output exists, is a link, was not written by streampca, or if its directory does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the directory {path.parent} does not exist; create it first")
    if path.is_symlink():
        raise InputError(f"{path}: is a link, which would be replaced; use the path that it points to")
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; choose another name or add --overwrite")
    if kind_at(path) is None:
        raise InputError(f"{path}: was not written by streampca and is not overwritten; choose another name")


def kind_at(path: Path) -> str | None:
    """Return what kind of store this program wrote at a path ("pca", "simulated"), or None if it wrote none."""
    attributes = attributes_in(path) or {}
    return str(attributes["kind"]) if {"kind", "format_version"} <= set(attributes) else None


def attributes_in(path: Path) -> dict[str, Any] | None:
    """Return the attributes of the store at a path; None if there is none."""
    try:
        found = json.loads((path / "zarr.json").read_text())["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def fit_id(result: xarray.Dataset) -> str:
    """Return what tells a fit from others: its kind, its data and its variances; a copy of it has the same."""
    told = hashlib.sha256(f"{result.attrs['kind']} {result.attrs.get('source_fingerprint')}".encode())
    told.update(np.asarray(result["explained_variance"].values, "<f8").tobytes())
    return told.hexdigest()[:16]


def variant_labels_in(result: xarray.Dataset) -> dict[str, Array]:
    """Return the labels of the variants that a result of genotypes holds."""
    return {name: result[name].values for name in VARIANT_LABELS}


def load(path: str | Path) -> xarray.Dataset:
    """Open a result at a path or URL; raise if it is not one, is damaged, or has a newer format.

    Parameters
    ----------
    path : of a store that a command wrote, or its URL.

    Returns
    -------
    The result as a labelled Dataset, of which arrays are read when they are used.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> X = np.random.default_rng(0).normal(size=(1000, 5))
    >>> stored = streampca.PCA(n_components=2).fit(X).result_.to_zarr("points.pca.zarr", consolidated=False)
    >>> result = streampca.load("points.pca.zarr")     # or of `streampca pca points.npy -k 2`
    >>> result.components.dims, result.attrs["kind"]
    (('component', 'feature'), 'pca')
    """
    _check_result(path)
    dataset = _opened(path)
    check_arrays(path, dataset)
    return dataset


def _opened(path: str | Path) -> xarray.Dataset:
    """Open a store of ours as a Dataset; labels, which are read now, must not claim more than there is memory."""
    # Slow to load; summaries of a fit do without them.
    import xarray
    import zarr

    with _damage_told(path):
        # Names in consolidated metadata may differ from those of the arrays.
        consolidated = None if is_url(path) else False
        group = zarr.open_group(open_store(str(path), "fill"), mode="r", use_consolidated=consolidated)
        arrays = list(arrays_in(group, deep=False))
        for array in arrays:
            check_size(array)
        whole = written_completely(arrays)
        if whole and not is_url(path):
            check_damage(Path(path))
        store = open_store(str(path), "error" if whole else "fill")
        dataset: xarray.Dataset = xarray.open_zarr(store, chunks=None, consolidated=False)
        for variable in dataset.variables.values():
            if variable.nbytes <= READ_AT_ONCE:
                # Whatever is wrong with it shows now, not in the middle of what it is for.
                variable.load()
        return dataset


def load_scores(path: Path) -> xarray.Dataset:
    """Open the scores of new samples on the components of a result."""
    if kind_at(path) != "scores":
        raise InputError(f"{path}: holds no scores of new samples; give a store that `streampca project` wrote")
    dataset = _opened(path)
    if "scores" not in dataset:
        raise InputError(f"{path}: is incomplete, scores is missing; project the samples again")
    check_arrays(path, dataset)
    return dataset


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read all arrays of a result, and its attributes."""
    result = load(path)
    with _damage_told(path):
        return {str(name): variable.values for name, variable in result.variables.items()}, result.attrs


@contextmanager
def _damage_told(path: str | Path) -> Iterator[None]:
    """Say that a result is damaged, whatever it is that finds out."""
    try:
        yield
    except DAMAGED as error:
        first = str(error).partition("; ")[0].partition("\n")[0] or type(error).__name__
        cure = "restore it from a copy or make it again"
        raise InputError(f"{path}: the result is damaged ({first}); {cure}") from error


def check_whole(store: Path, cure: str) -> None:
    """Raise if a store that was written here is incomplete, before it gets its name."""
    try:
        check_damage(store)
    except InputError as error:
        raise InputError(f"{error}; {cure}") from error


def _check_result(path: str | Path) -> None:
    """Raise if a store is not a complete result of a format that this version reads."""
    attributes, names = _metadata(path)
    if not attributes and not is_url(path) and not Path(path).exists():
        raise InputError(f"{path}: does not exist; check the path")
    kind = kind_in(attributes)
    if kind is None:
        raise InputError(f"{path}: is not a streampca result; use a store that a fit wrote ({listed(kind_names())})")
    absent = absent_arrays(kind, names)
    if absent:
        raise InputError(f"{path}: the result is incomplete, {', '.join(absent)} is missing; compute it again")
    newest = attributes["format_version"]
    if isinstance(newest, int) and newest > FORMAT_VERSION:
        raise InputError(f"{path}: was written by a newer streampca (format {newest}); update streampca")
    check_attributes(path, attributes)


def _metadata(path: str | Path) -> tuple[dict[str, Any], set[str]]:
    """Return the attributes of one of our stores, and the names of its arrays; nothing of other stores."""
    if is_url(path):
        root = root_at(str(path)) or {}
        attributes = root.get("attributes", {})
        names = set((root.get("consolidated_metadata") or {}).get("metadata", {}))
    else:
        attributes = attributes_in(Path(path)) or {}
        names = {entry.name for entry in Path(path).iterdir() if entry.is_dir()} if attributes else set()
    return (attributes, names) if "format_version" in attributes else ({}, set())
