"""Base classes of the estimators: opening data as scikit-learn checks it, fitted attributes, results, saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match, match_variants
from streampca.models.dataset import Origin, as_dataset, axes_in
from streampca.models.genotypes import fit_genotypes
from streampca.models.record import Fitted
from streampca.progress import logger, silent
from streampca.sources import Axis, Source, open_genotypes, open_source
from streampca.sources.base import plain_axes
from streampca.sources.wrappers import present, without_absent
from streampca.sweep.matrix import Defects, tile_dtype
from streampca.sweep.scaling import Scaling
from streampca.sweep.sweep import Sweeps, lazy_rows
from streampca.validation import Options

if TYPE_CHECKING:
    import xarray

Fit = TypeVar("Fit", bound=Fitted)

# Parameters that had another name in version 0.7, in Python or in stores.
RENAMED = {
    "memory": "memory_limit",
    "target": "target_trace",
    "seed": "random_state",
    "fit_inverse": "fit_inverse_transform",
}
# Fields of fitted records that all estimators show, each with an underscore at the end.
SHARED = ("mean", "scale", "n_components", "n_samples", "converged", "advice", "notes", "n_sweeps")


class class_only(classmethod):  # type: ignore[type-arg]  # noqa: N801
    """A class method that raises if it is called on an instance, whose parameters it would ignore."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method bound to the class."""
        if instance is not None:
            name, method = type(instance).__name__, self.__func__.__name__
            raise AttributeError(
                f"{method} is a method of the class; call {name}.{method}(..., n_components=...) with the parameters"
            )
        return super().__get__(None, owner)


class Estimator(BaseEstimator, Generic[Fit]):  # type: ignore[misc]
    """An estimator over sources; a subclass has `_fit(source)`, which fits the model and returns its sweeps.

    Its parameters are fields of a dataclass, which scikit-learn finds in `__init__`.

    Attributes
    ----------
    _options, _record : classes of the options and of the fitted record.
    _shown : fields of the fitted record that are attributes of the estimator, besides those that all have.
    _fitted : the fitted record.
    _labels : the axes of samples and features; None if they have no labels.
    _origin : name and fingerprint of the data.
    _sample_dims : as given to `fit`.
    """

    _options: type[Options]
    _record: type[Fit]
    _shown: tuple[str, ...] = ()
    _fitted: Fit
    _labels: tuple[Axis, Axis] | None = None
    _origin: tuple[str, str] = ("", "")
    _sample_dims: Sequence[str] | None = None

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
            return self._opened_to_fit(X, sample_dims) if reset else self._opened_as_fitted(X, sample_dims)
        array = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=1)
        return open_source(array)

    def _opened_to_fit(self, X: Any, sample_dims: Sequence[str] | None) -> Source:
        """Open data without features that are missing in every sample, if missing values are errors."""
        source = open_source(X, sample_dims=sample_dims)
        if getattr(self, "missing", "error") in ("auto", "error"):
            source = without_absent(source)
        source = present(source, None)
        self.n_features_in_ = source.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        return source

    def _opened_as_fitted(self, X: Any, sample_dims: Sequence[str] | None) -> Source:
        """Open data with the features of the fit."""
        fitted = self.__dict__.get("_fitted")
        if fitted and fitted.genotypes and not isinstance(X, Source):
            return open_genotypes(X, autosomes=False)
        kept = None if self._labels is None else self._labels[1].kept
        return present(open_source(X, sample_dims=sample_dims), kept)

    def fit(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Self:  # noqa: ARG002
        """Fit the model to X: an array, a path, or anything that `open_source` takes.

        Parameters
        ----------
        X : samples x features.
        y : ignored.
        sample_dims : dimensions of labelled data that make up the samples; the first one by default.
        """
        self._fit(self._source(X, sample_dims, reset=True))
        return self

    def _checked_options(self) -> Any:
        """Return the options record of the parameters; random_state becomes a seed."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return self._options.of({**self.get_params(deep=False), "random_state": seed})

    def _fit_by(self, function: Callable[..., Any], source: Source, **more: Any) -> tuple[Any, Sweeps]:
        """Fit a source, of genotypes or not, by a function of `models`; return the fitted record and its sweeps."""
        options = self._checked_options()

        def fit(part: Source) -> tuple[Any, Sweeps]:
            fitted, sweeps = function(part, options, **self._how, **more)
            return fitted, sweeps

        return fit_genotypes(source, fit)[:2] if source.is_genotypes else fit(source)

    @property
    def _how(self) -> dict[str, Any]:
        """Memory limit and progress, as functions of sources take them."""
        return {"memory": self.memory_limit, "progress": self.progress or silent}

    @property
    def _missing(self) -> str:
        """Rule for NaN in arrays."""
        return "error" if self.missing == "auto" else str(self.missing)

    def _keep(self, fitted: Fit, source: Source, swept: Source) -> None:
        """Keep the fitted record of a source with the labels of the samples and features that were used."""
        self._fitted, self._labels = fitted, fitted.axes(swept)
        self._origin = (source.name, source.fingerprint())
        self._set_attributes()

    def _set_attributes(self) -> None:
        """Set the fitted attributes from the fitted record."""
        for name in (*SHARED, *self._shown):
            setattr(self, f"{name}_", getattr(self._fitted, name))
        self.n_features_in_ = self._fitted.n_features

    @property
    def result_(self) -> xarray.Dataset:
        """The fitted model as a labelled Dataset with its provenance."""
        check_is_fitted(self)
        # The name of the kind is in `results.kinds` alone; models do not know it.
        from streampca.results.kind import kind_of_estimator

        samples, features = self._labels or plain_axes((self.n_samples_, self.n_features_in_))
        variables, coords = self._fitted.variables(samples, features)
        if not any(set(samples.dims) <= set(dims) for dims, _ in variables.values()):
            coords = {name: coord for name, coord in coords.items() if name not in samples.coords}
        parameters = {name: value for name, value in self.get_params().items() if name != "progress"}
        attributes = self._fitted.attributes(Origin(kind_of_estimator(type(self)).name, *self._origin, parameters))
        attributes["sample_dims"] = json.dumps(self._sample_dims)
        attributes["sample_sizes"] = json.dumps(dict(zip(samples.dims, samples.sizes, strict=True)))
        if hasattr(self, "feature_names_in_"):
            attributes["feature_names_in"] = json.dumps(self.feature_names_in_.tolist())
        return as_dataset(variables, coords, attributes, self._record.long_names())

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the fitted model to a store, as the commands do; `streampca.load_model` returns it.

        Parameters
        ----------
        path : of the store, a new directory.
        overwrite : replace a result that exists.
        """
        # A convenience for users, against the direction of the layers.
        from streampca.results.write import save_model

        save_model(self.result_, Path(path), overwrite)

    def report(self, path: str | Path, *, title: str = "", overwrite: bool = False) -> None:
        """Write the report page of the fitted model, one HTML file.

        Parameters
        ----------
        path : of the page, as study.html.
        title : of the page; the name of the data by default.
        overwrite : replace a file that exists.
        """
        # As `save`.
        from streampca.report import write_report

        write_report(self.result_, Path(path), title=title, overwrite=overwrite)

    def plot(
        self, path: str | Path, figure: str = "overview", *, values: Any = None, pair: tuple[int, int] = (1, 2)
    ) -> None:
        """Draw a figure of the fitted model for print. Needs matplotlib, the `plot` extra.

        Parameters
        ----------
        path : of the picture: .png, .pdf or .svg; an existing file is replaced.
        figure : "overview", "scores", "scree", "certificates", "error", "loadings" or "components".
        values : (n_samples,) for the colour of the samples: text for groups, numbers or dates for a scale.
        pair : components of the scores, from 1 on; loadings are those of the first.
        """
        # As `save`.
        from streampca.report import draw_figure

        draw_figure(self.result_, figure, Path(path), values=None if values is None else np.asarray(values), pair=pair)

    @classmethod
    def _from_dataset(cls, dataset: xarray.Dataset) -> Self:
        """Return the fitted estimator of a result."""
        attributes, names = dataset.attrs, cls._get_param_names()
        stored = json.loads(attributes["parameters"])
        parameters = {RENAMED.get(name, name): value for name, value in stored.items()}
        if not isinstance(parameters.get("random_state"), int):
            parameters.pop("random_state", None)
        model = cls(**{name: value for name, value in parameters.items() if name in names})
        model._fitted, model._labels = cls._record.from_dataset(dataset, scores=True), axes_in(dataset)
        model._origin = (str(attributes["source"]), str(attributes.get("source_fingerprint", "")))
        model._sample_dims = json.loads(attributes.get("sample_dims", "null")) or stored.get("sample_dims")
        if "feature_names_in" in attributes:
            model.feature_names_in_ = np.array(json.loads(attributes["feature_names_in"]), object)
        model._set_attributes()
        return model

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a fitted record."""
        return "_fitted" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: whether NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = getattr(self, "missing", "error") in ("mean", "lsq", "model")
        return tags


class Likelihood:
    """What estimators with `score_samples` share."""

    def score(self: Any, X: Any, y: None = None) -> float:  # noqa: ARG002
        """Return the mean log-likelihood of the samples.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : ignored.
        """
        return float(np.mean(self.score_samples(X)))


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator[Fit]):  # type: ignore[misc]
    """An estimator that gives scores.

    A subclass has, besides `_fit`:

    - `_fitted_scores(sweeps, source)`, which returns the scores of the fitted samples and keeps them,
    - `_scores_of(source)`, which returns those of other samples,
    - `_block_scores()`, which returns the function from a block of a Dask array to its scores.
    """

    def fit_transform(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Any:  # noqa: ARG002
        """Fit the model and return the scores of X; at most one sweep more than `fit`.

        Parameters
        ----------
        X, y, sample_dims : as for `fit`.
        """
        source = self._source(X, sample_dims, reset=True)
        sweeps = self._fit(source)
        if is_dask(X):
            return self.transform(X)
        return scores_like(X, self._fitted_scores(sweeps, source), source)

    def transform(self, X: Any) -> Any:
        """Return the scores of samples; one sweep. Dask in, lazy Dask out; xarray in, xarray out.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        if is_dask(X) and not fitted.genotypes:
            fitted.check_features(source)
            return lazy_rows(X.reshape(source.shape), self._block_scores(), fitted.n_components, self._dtype(source))
        return scores_like(X, self._scores_of(source), source)

    def _dtype(self, source: Source) -> np.dtype[Any]:
        """Return the type of the scores."""
        return tile_dtype(source.dtype)

    def _part(self, source: Source) -> tuple[Source, Any]:
        """Return the fitted features of a source and the record of these; genotypes are matched by id and alleles."""
        fitted: Any = self._fitted
        if not fitted.genotypes:
            return source, fitted
        match = matched(source, self._labels)
        return source.take(features=match.new), fitted.matching(match)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: types that are kept, and whether NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _labelled(self, scores: Any, restored: Callable[[Array], Array]) -> Any:
        """Return labelled samples from labelled scores, by a function from scores to samples."""
        dims = [dim for dim in scores.dims if dim != "component"]
        flat = scores.transpose(*dims, "component")
        features = (self._labels or plain_axes((1, self.n_features_in_)))[1]
        values = features.on_grid(restored(flat.values).reshape(*flat.shape[:-1], len(features)))
        coords = {name: c for name, c in flat.coords.items() if "component" not in c.dims} | dict(features.coords)
        return type(scores)(values, dims=(*dims, *features.dims), coords=coords)

    @property
    def _n_features_out(self) -> int:
        return int(self._fitted.n_components)


def matched(source: Source, labels: tuple[Axis, Axis] | None) -> Match:
    """Return which variants of a source match the fitted ones; raise `InputError` if it has no variants."""
    if not source.is_genotypes or labels is None:
        raise InputError(f"{source.name}: the model was fitted on genotypes; give a genotype file or source")
    match = match_variants({name: np.asarray(values) for name, (_, values) in labels[1].coords.items()}, source)
    logger.info("%s", match.note)
    return match


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array."""
    return type(X).__module__.startswith("dask.array")


def is_labelled(X: Any) -> bool:
    """Whether X is of xarray."""
    return type(X).__module__.startswith("xarray.")


def _as_fitted(X: Any, samples: Axis, features: Axis) -> tuple[Any, Sequence[str] | None]:
    """Return labelled data with the feature dimensions last, in the fitted order, and the names of the others."""
    if not set(features.dims) <= set(X.dims):
        return X, None
    others = [str(dim) for dim in X.dims if dim not in features.dims]
    if set(others) == set(samples.dims):
        others = list(samples.dims)
    return X.transpose(*others, *features.dims), others


def scaled_block(block: Array, scaling: Scaling, dtype: Any, missing: str, fill: float = 0.0) -> Array:
    """Return a block of a lazy array centred and scaled; missing values become `fill`, or raise an error."""
    T = np.empty(block.shape, dtype)
    scaling.apply(T, block)
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        Defects.of(block).check(missing, "a block of the Dask array")
        T[np.isnan(T)] = fill
    return T


def samples_like(X: Any, values: Array, source: Source) -> Any:
    """Return samples in the form of X: labelled if X is, else NumPy."""
    return labelled_like(X, values, source.samples, source.features)


def scores_like(X: Any, scores: Array, source: Source) -> Any:
    """Return scores in the form of X: labelled if X is, else NumPy."""
    k = scores.shape[1]
    components = Axis(("component",), (k,), {"component": (("component",), np.arange(1, k + 1))})
    return labelled_like(X, scores, source.samples, components, "scores")


def labelled_like(X: Any, values: Array, samples: Axis, columns: Axis, name: str | None = None) -> Any:
    """Return values of samples and columns in the form of X: labelled if X is, else NumPy."""
    if not is_labelled(X):
        return values
    import xarray  # slow to import, and imported already if X is labelled

    shape, dims = (*samples.sizes, *columns.sizes), (*samples.dims, *columns.dims)
    values = values if columns.kept is None else columns.on_grid(values)
    return xarray.DataArray(values.reshape(shape), {**samples.coords, **columns.coords}, dims, name)
