"""The fitted records of all models, and their labelled Datasets, for `result_` and result stores.

A class of records lists the arrays of its result in `VARIABLES` and the single values in `ATTRIBUTES`. An entry has the
name in the result and, unless it is the same, the attribute of the record, such as "solution.weights". Values that are
None or empty are not written. Entries that are fields of the record are read back. Tuples of text are labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match
from streampca.models.dataset import Origin, Variables, origin_attributes, present_features, scaling_in
from streampca.sources import Axis, Source
from streampca.sources.genotypes import TEXT
from streampca.sweep.scaling import Scaling

if TYPE_CHECKING:
    import xarray

    from streampca.sweep.sweep import Sweeps

# Dimensions whose labels are numbers, and the first of these.
NUMBERED = {"component": 1, "cluster": 1, "m": 0}


class Variable(NamedTuple):
    """An array of a result.

    Attributes
    ----------
    name : in the result; a variable that is named like its dimension is a coordinate.
    dims : separated by spaces. S and F are the dimensions of the samples and of the features, one axis of the record.
    long_name : what it is, for the result.
    of : attribute of the record; `name` by default.
    """

    name: str
    dims: str
    long_name: str = ""
    of: str = ""


class Attribute(NamedTuple):
    """A single value of a result.

    Attributes
    ----------
    name, of : as for `Variable`.
    kind : type of the value; tuples are lists in JSON, with numbers rounded to thousandths.
    """

    name: str
    kind: type = float
    of: str = ""

    def read(self, value: Any) -> Any:
        """Return the value of the record."""
        return tuple(json.loads(value)) if self.kind is tuple else self.kind(value)

    def written(self, value: Any) -> Any:
        """Return the value of the result."""
        if self.kind is tuple:
            return json.dumps([round(part, 3) if isinstance(part, float) else part for part in value])
        return int(value) if self.kind is bool else value


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted model.

    Attributes
    ----------
    n_samples : number of fitted samples.
    scaling : centre and scale of each feature.
    missing : (d,) number of missing values of each feature.
    converged, advice : whether the fit reached its tolerance, and what to do if not.
    notes : what was excluded, and warnings.
    genotypes : whether the features are variants.
    tile_dtype : of the products.
    sweep_seconds, bytes_read, seconds : of each read of all the data, of all reads, and of the fit.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        Variable("mean", "F"),
        Variable("scale", "F", of="divisor"),
        Variable("missing", "F"),
    )
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        Attribute("n_samples", int),
        Attribute("tile_dtype", str),
        Attribute("converged", bool),
        Attribute("advice", str),
        Attribute("notes", tuple),
        Attribute("genotypes", bool),
        Attribute("n_features", int),
        Attribute("total_variance"),
        Attribute("n_missing", int),
        Attribute("n_sweeps", int),
        Attribute("sweep_seconds", tuple),
        Attribute("bytes_read", int),
        Attribute("seconds"),
    )

    n_samples: int
    scaling: Scaling
    missing: Array
    converged: bool = True
    advice: str = ""
    notes: tuple[str, ...] = ()
    genotypes: bool = False
    tile_dtype: str = "float64"
    sweep_seconds: tuple[float, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> Array:
        """Mean of each feature."""
        return self.scaling.mean

    @property
    def scale(self) -> Array | None:
        """Scale of each feature; None if features are not scaled."""
        return self.scaling.scale

    @property
    def divisor(self) -> Array:
        """Scale of each feature, 1 if features are not scaled."""
        return np.ones_like(self.scaling.mean) if self.scale is None else self.scale

    @property
    def n_features(self) -> int:
        """Number of fitted features, d."""
        return len(self.scaling.mean)

    @property
    def n_components(self: Any) -> int:
        """Number of components, k; every model has their variances, as a field or as a property."""
        return int(self.explained_variance.shape[-1])

    @property
    def n_missing(self) -> int:
        """Number of missing values."""
        return int(self.missing.sum())

    @property
    def n_sweeps(self) -> int:
        """Number of reads of all the data."""
        return len(self.sweep_seconds)

    def after(self, seconds: Sequence[float], bytes_read: int) -> Self:
        """Return the same record with the sweeps that preceded the fit."""
        return replace(self, sweep_seconds=(*seconds, *self.sweep_seconds), bytes_read=bytes_read + self.bytes_read)

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and the used features of the source that was swept."""
        return source.samples, source.features

    def check_features(self, source: Source) -> None:
        """Raise `InputError` if data have another number of features than the fitted ones."""
        if source.shape[1] != self.n_features:
            raise InputError(
                f"{source.name}: X has {source.shape[1]} features, but the model was fitted on {self.n_features} "
                "features; give the same features in the same order"
            )

    def variables(self, samples: Axis, features: Axis) -> tuple[Variables, Variables]:
        """Return variables and coordinates, each with its dimensions; features in the dimensions that they came in."""
        arrays: Variables = {}
        coords: Variables = {**features.coords, **samples.coords}
        axes = self.named_axes(samples, features)
        # Of two entries with the same name, the second replaces the first.
        for variable in {entry.name: entry for entry in self.VARIABLES}.values():
            value = self._value(variable)
            if value is not None and np.size(value):
                place = coords if variable.name == variable.dims else arrays
                array = np.array(value, TEXT) if isinstance(value, tuple) else np.asarray(value)
                place[variable.name] = _shaped(array, variable.dims, axes)
        sizes = {dim: size for dims, array in arrays.values() for dim, size in zip(dims, array.shape, strict=True)}
        numbers = {dim: np.arange(sizes[dim]) + first for dim, first in NUMBERED.items() if dim in sizes}
        return arrays, coords | {dim: ((dim,), values) for dim, values in numbers.items()}

    def named_axes(self, samples: Axis, features: Axis) -> dict[str, Axis]:
        """Return the axes behind the names S and F of `VARIABLES`."""
        return {"S": samples, "F": features}

    def attributes(self, origin: Origin) -> dict[str, Any]:
        """Return provenance and single values."""
        values = ((entry, self._value(entry)) for entry in self.ATTRIBUTES)
        known = {entry.name: entry.written(value) for entry, value in values if value is not None}
        return {**origin_attributes(origin), **known}

    def _value(self, entry: Variable | Attribute) -> Any:
        """Return the attribute of an entry; None if a part of its path is, or for NaN, which JSON does not have."""
        value: Any = self
        for name in _path(entry).split("."):
            value = None if value is None else getattr(value, name)
        return None if isinstance(value, float) and math.isnan(value) else value

    @classmethod
    def long_names(cls) -> dict[str, str]:
        """Return what the variables are."""
        return {variable.name: variable.long_name for variable in cls.VARIABLES if variable.long_name}

    @classmethod
    def fields_in(cls, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return the fields that a Dataset has."""
        names, attrs = {field.name for field in fields(cls)}, dataset.attrs
        values: dict[str, Any] = {"scaling": scaling_in(dataset)}
        for variable in cls.VARIABLES:
            if _path(variable) in names and variable.name in dataset:
                values[_path(variable)] = _flat(dataset[variable.name], variable.dims)
        single = (entry for entry in cls.ATTRIBUTES if _path(entry) in names and entry.name in attrs)
        return values | {_path(entry): entry.read(attrs[entry.name]) for entry in single}

    @classmethod
    def from_dataset(cls, dataset: xarray.Dataset, *, scores: bool = False) -> Self:
        """Return the fitted record of a Dataset; the scores of its samples, which may be large, only if requested."""
        dataset = present_features(dataset)
        return cls(**cls.fields_in(dataset if scores else dataset.drop_vars("scores", errors="ignore")))


@dataclass(frozen=True, kw_only=True)
class LinearFit(Fitted):
    """A fitted model with components in the space of the features.

    Attributes
    ----------
    error : (k,) certificate of each component, or its estimate if rounding was not measured; None after EM.
    certificate_method : how rounding was measured: "probe" or "exact"; "none" if `error` is an estimate.
    sample_missing : (n,) missing calls of each sample, for genotypes.
    others : as for `Fitted`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *Fitted.VARIABLES,
        Variable("components", "component F"),
        Variable("explained_variance", "component", "eigenvalues of the sample covariance (n - 1)"),
        Variable("explained_variance_ratio", "component"),
        Variable("certificate", "component", "bound on ||S v - lambda v|| / lambda, rounding included"),
        Variable(
            "estimate", "component", "estimate of ||S v - lambda v|| / lambda, rounding not included; not a bound"
        ),
        Variable("eigenvalue", "component", "eigenvalues of X X' / m for m variants, as plink and GCTA define them"),
        Variable("sample_missing", "S", "missing calls of each sample"),
    )
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *Fitted.ATTRIBUTES,
        Attribute("certificate_method", str),
    )

    error: Array | None = None
    certificate_method: str | None = None
    sample_missing: Array | None = None

    @property
    def certificate(self) -> Array | None:
        """Bounds on the errors, rounding included, if it was measured."""
        return None if self.certificate_method == "none" else self.error

    @property
    def estimate(self) -> Array | None:
        """Errors without rounding, if it was not measured."""
        return self.error if self.certificate_method == "none" else None

    def matching_scaling(self, match: Match) -> Scaling:
        """Return the scaling of the variants that match, for the alleles that the new data count."""
        part = self.scaling.take(match.fitted)
        return replace(part, mean=np.where(match.flipped, 2 - part.mean, part.mean))

    @classmethod
    def fields_in(cls, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return the fields that a Dataset has; certificates of version 0.7 have the method "modelled"."""
        error = next((dataset[name].values for name in ("certificate", "estimate") if name in dataset), None)
        method = {} if error is None else {"certificate_method": "modelled"}
        return method | super().fields_in(dataset) | {"error": error}


def swept(sweeps: Sweeps) -> dict[str, Any]:
    """Return the fields of a fitted record that its sweeps know."""
    source = sweeps.matrix.source
    return {
        "n_samples": source.shape[0],
        "genotypes": source.is_genotypes,
        "tile_dtype": str(sweeps.matrix.dtype),
        "sweep_seconds": tuple(sweeps.seconds),
        "bytes_read": sweeps.bytes_read,
    }


def _path(entry: Variable | Attribute) -> str:
    return entry.of or entry.name


def _shaped(value: Array, dims: str, axes: dict[str, Axis]) -> tuple[tuple[str, ...], Array]:
    """Return the dimensions of an array, and the array with samples and features in their own dimensions."""
    each = [axes.get(dim, Axis((dim,), (size,))) for dim, size in zip(dims.split(), value.shape, strict=True)]
    names = tuple(name for axis in each for name in axis.dims)
    if each and each[-1].kept is not None:
        value = each[-1].on_grid(value).reshape(*value.shape[:-1], -1)
    return names, value.reshape([size for axis in each for size in axis.sizes])


def _flat(array: xarray.DataArray, dims: str) -> Any:
    """Return an array of a Dataset with one axis for the samples or the features; labels as a tuple."""
    names, values = dims.split(), np.asarray(array.values)
    if values.dtype.kind not in "biuf":
        return tuple(map(str, values))
    if not {"S", "F"} & set(names):
        return values
    return values.reshape([-1 if name in ("S", "F") else array.sizes[name] for name in names])
