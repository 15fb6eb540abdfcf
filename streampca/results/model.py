"""Fitted estimators in stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streampca.results.kind import kind_of
from streampca.results.store import load
from streampca.results.write import save, writing

if TYPE_CHECKING:
    import xarray


def save_model(result: xarray.Dataset, path: Path, overwrite: bool) -> None:
    """Write the result of an estimator to a store."""
    variables, coords = (
        {str(name): (tuple(map(str, array.dims)), array.values) for name, array in arrays.items()}
        for arrays in (result.data_vars, result.coords)
    )
    with writing(path, overwrite) as store:
        save(variables, coords, result.attrs, store)


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
    >>> model.save("points.pca.zarr")
    >>> bool(np.array_equal(streampca.load_model("points.pca.zarr").transform(X), model.transform(X)))
    True
    """
    result = load(path)
    estimator: Any = kind_of(result.attrs["kind"]).function("estimator")
    return estimator._from_dataset(result)
