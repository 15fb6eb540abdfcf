"""Open results: one xarray Dataset in one Zarr store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import DAMAGED, InputError, listed
from streampca.files import absent, is_url
from streampca.genetics.matching import VARIANT_LABELS
from streampca.models.dataset import FORMAT_VERSION
from streampca.results.kind import kind_names, kind_of
from streampca.results.output import attributes_in, kind_at
from streampca.results.schema import check_arrays, check_attributes, kind_in, set_defaults
from streampca.sources.completeness import check_damage, written_completely
from streampca.sources.remote import root_at
from streampca.sources.zarr_arrays import arrays_in, check_size, open_store
from streampca.sweep.memory import RESULT_BASELINE, TEXT_BYTES, VIEW_COPIES, Budget, check_fits

if TYPE_CHECKING:
    import xarray


READ_AT_ONCE = 16 << 20  # bytes of an array up to which it is read when a result is opened


def fit_id(result: xarray.Dataset) -> str:
    """Return a hash of the kind, the data and the variances of a fit; copies of it have the same."""
    digest = hashlib.sha256(f"{result.attrs['kind']} {result.attrs.get('source_fingerprint')}".encode())
    digest.update(np.asarray(result["explained_variance"].values, "<f8").tobytes())
    return digest.hexdigest()[:16]


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
    set_defaults(dataset)
    return dataset


def load_within(
    path: str | Path, memory: str | int | None, what: str, *, libraries: int = 0, components: bool = False
) -> xarray.Dataset:
    """Open a result that a shell command views; raise `MemoryLimitError` if that may not fit the limit.

    Parameters
    ----------
    what : the work, for the message.
    libraries : bytes of libraries that it loads.
    components : whether all components are in memory at once.
    """
    result = load(path)
    arrays = [array for name, array in result.variables.items() if components or name != "components"]
    labels = sum(array.size for array in arrays if array.dtype.kind in "OSTU")
    numbers = sum(array.size for array in arrays) - labels
    needed = 8 * VIEW_COPIES * numbers + TEXT_BYTES * labels
    check_fits(needed, Budget.of(memory, RESULT_BASELINE), what, libraries)
    return result


def _opened(path: str | Path) -> xarray.Dataset:
    """Open a store as a Dataset, after a check of declared sizes and of checksums; small arrays are read at once."""
    # Slow to import, and not needed for the summary of a fit.
    import xarray
    import zarr

    with _reporting_damage(path):
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
                # Errors show now, not in the middle of the work.
                variable.load()
        return dataset


def load_scores(path: Path) -> xarray.Dataset:
    """Open the scores of new samples on the components of a result."""
    if kind_at(path) != "scores":
        raise InputError(f"{path}: has no scores of new samples; give a store that `streampca project` wrote")
    dataset = _opened(path)
    if "scores" not in dataset:
        raise InputError(f"{path}: is incomplete, scores is missing; project the samples again")
    check_arrays(path, dataset)
    return dataset


def load_model(path: str | Path) -> Any:
    """Return the fitted estimator in a store; its methods give the same bits as those of the estimator that was saved.

    Parameters
    ----------
    path : of a store that `save` of an estimator or a command wrote, or its URL.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> X = np.random.default_rng(0).normal(size=(1000, 5))
    >>> model = streampca.PCA(n_components=2).fit(X)
    >>> model.save("model.zarr")
    >>> bool(np.array_equal(streampca.load_model("model.zarr").transform(X), model.transform(X)))
    True
    """
    result = load(path)
    estimator: Any = kind_of(result.attrs["kind"]).function("estimator")
    return estimator._from_dataset(result)


@contextmanager
def _reporting_damage(path: str | Path) -> Iterator[None]:
    """Raise `InputError` for any error that a damaged store leads to."""
    try:
        yield
    except DAMAGED as error:
        first = str(error).partition("; ")[0].partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{path}: the result is damaged ({first}); restore it from a copy or compute it again"
        ) from error


def check_whole(store: Path, hint: str) -> None:
    """Raise if a store that was written here is incomplete, before it gets its name."""
    try:
        check_damage(store)
    except InputError as error:
        raise InputError(f"{error}; {hint}") from error


def _check_result(path: str | Path) -> None:
    """Raise if a store is not a result of a format that this version reads."""
    attributes = (root_at(str(path)) or {}).get("attributes", {}) if is_url(path) else attributes_in(Path(path))
    if not attributes and not is_url(path) and not Path(path).exists():
        raise absent(path)
    if not attributes or "format_version" not in attributes or kind_in(attributes) is None:
        raise InputError(f"{path}: is not a streampca result; use a store that a fit wrote ({listed(kind_names())})")
    newest = attributes["format_version"]
    if isinstance(newest, int) and newest > FORMAT_VERSION:
        raise InputError(f"{path}: was written by a newer streampca (format {newest}); update streampca")
    check_attributes(path, attributes)
