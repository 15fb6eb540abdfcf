"""What all estimators share: opening what they are given, as scikit-learn checks it, and answering in kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match, match_variants
from streampca.progress import logger
from streampca.sources import Axis, Source, open_genotypes, open_source
from streampca.sources.base import plain_axes
from streampca.sweep.matrix import Defects
from streampca.sweep.scaling import Scaling

# Parameters of version 0.7 that have another name now.
RENAMED = {"memory": "memory_limit", "target": "target_trace"}


class Opener(BaseEstimator):  # type: ignore[misc]
    """An estimator over sources: opens what it is given, as scikit-learn checks it."""

    _labels: tuple[Axis, Axis] | None

    def __new__(cls, *args: Any, **parameters: Any) -> Any:  # noqa: ARG004
        """Reject names of version 0.7; scikit-learn reads the parameters from `__init__`."""
        for old, new in RENAMED.items():
            if old in parameters and new in cls._get_param_names():
                raise TypeError(f"{cls.__name__}({old}=...) is now {cls.__name__}({new}=...); rename the argument")
        return super().__new__(cls)

    def _source(self, X: Any, sample_dims: Sequence[str] | None, reset: bool) -> Source:
        """Open X; plain arrays and data frames are checked as scikit-learn checks them."""
        home = type(X).__module__.partition(".")[0]
        if reset:
            self._sample_dims = sample_dims
        elif home == "xarray" and self._labels is not None and hasattr(X, "dims"):
            X, sample_dims = _as_fitted(X, *self._labels)
        else:
            sample_dims = self._sample_dims
        if isinstance(X, (str, Source)) or hasattr(X, "__fspath__") or home in ("dask", "zarr", "xarray"):
            fitted = not reset and getattr(self, "_found", None)
            if fitted and fitted.genotypes and not isinstance(X, Source):
                return open_genotypes(X, autosomes=False)
            source = open_source(X, sample_dims=sample_dims)
            if reset:
                self.n_features_in_ = source.shape[1]
                if hasattr(self, "feature_names_in_"):
                    del self.feature_names_in_
            return source
        array = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=1)
        return open_source(array)

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters as the options record takes them: random_state as a seed."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return {**self.get_params(deep=False), "random_state": seed}


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Opener):  # type: ignore[misc]
    """An estimator that gives scores; `_found` is what a fit found, `_labels` the axes that it was fitted on."""

    _found: Any

    def _matched(self, source: Source) -> tuple[Source, Match]:
        """Match the variants of genotypes to those fitted, by id and alleles."""
        assert self._labels is not None
        if not source.is_genotypes:
            raise InputError("these components are of genotypes; give a genotype file or source")
        labels = {name: np.asarray(values) for name, (_, values) in self._labels[1].coords.items()}
        match = match_variants(labels, source)
        logger.info("%s", match.note)
        return source, match

    def _labelled(self, scores: Any, restored: Callable[[Array], Array]) -> Any:
        """Return labelled samples from labelled scores, by what makes samples of scores."""
        import xarray

        dims = [dim for dim in scores.dims if dim != "component"]
        flat = scores.transpose(*dims, "component")
        features = (self._labels or plain_axes((1, len(self._found.mean))))[1]
        values = restored(flat.values).reshape(*flat.shape[:-1], *features.sizes)
        coords = {name: c for name, c in flat.coords.items() if "component" not in c.dims} | dict(features.coords)
        return xarray.DataArray(values, dims=(*dims, *features.dims), coords=coords)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there is anything to transform by."""
        return hasattr(self, "_found")


def _as_fitted(X: Any, samples: Axis, features: Axis) -> tuple[Any, Sequence[str] | None]:
    """Return labelled data with the feature dimensions last, in the order fitted, and the names of the others."""
    if not set(features.dims) <= set(X.dims):
        return X, None
    others = [str(dim) for dim in X.dims if dim not in features.dims]
    if set(others) == set(samples.dims):
        others = list(samples.dims)
    return X.transpose(*others, *features.dims), others


def scaled_block(block: Array, scaling: Scaling, dtype: Any, missing: str) -> Array:
    """Return a block of a lazy array centred and scaled, with missing values at the mean if that is the rule."""
    T = np.empty(block.shape, dtype)
    scaling.apply(T, block, slice(None))
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        Defects.of(block).refuse(missing, "a block of the Dask array")
        T[np.isnan(T)] = 0
    return T


def samples_like(X: Any, values: Array, source: Source) -> Any:
    """Return samples as X came: labelled, in the order of its samples and features, for labelled data, else NumPy."""
    if not type(X).__module__.startswith("xarray."):
        return values
    import xarray

    samples, features = source.samples, source.features
    coords = {**samples.coords, **features.coords}
    shaped = values.reshape(*samples.sizes, *features.sizes)
    return xarray.DataArray(shaped, dims=(*samples.dims, *features.dims), coords=coords)


def like(X: Any, scores: Array, source: Source) -> Any:
    """Return scores as X came: labelled for labelled data, else NumPy."""
    if not type(X).__module__.startswith("xarray."):
        return scores
    import xarray

    k = scores.shape[1]
    coords = {"component": np.arange(1, k + 1), **source.samples.coords}
    values = scores.reshape(*source.samples.sizes, k)
    return xarray.DataArray(values, dims=(*source.samples.dims, "component"), coords=coords, name="scores")
