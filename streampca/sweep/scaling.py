"""Per-feature centre and scale, and what a missing value stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources import Axis
from streampca.sources.filters import Filter
from streampca.sweep.statistics import Moments, subtract

SCALES = (None, "unit", "patterson")
MISSING = ("error", "mean")
# What latitudes are called, and how little a feature counts at the poles, where its weight would be zero.
LATITUDES = ("lat", "latitude", "nav_lat", "rlat")
LEAST_COSINE = 1e-12


def check_choice(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Raise unless the value is one of those allowed."""
    if given not in allowed:
        raise InputError(f"{name}={given!r} is not known; use one of {', '.join(map(repr, allowed))}")


def scale_of(
    moments: Moments, scale: str | None, n_samples: int, filter: Filter | None = None, divisor: Array | None = None
) -> Array | None:
    """Return what each feature is divided by: infinity for those that are not used, None if all are as they are.

    A `divisor` known beforehand is what it is, whatever the moments are.
    """
    if divisor is not None:
        return divisor
    if scale is None and filter is None:
        return None
    divisor = np.ones_like(moments.mean)
    if scale == "unit":
        divisor = deviation_of(moments, n_samples)
    elif scale == "patterson":
        divisor = patterson_of(moments)
    if filter is not None:
        missing = moments.missing / np.maximum(moments.count + moments.missing, 1)
        divisor = np.where(filter.passing(moments.mean / 2, missing), divisor, np.inf)
    return divisor


def patterson_of(moments: Moments) -> Array:
    """Return sqrt(2 p (1 - p)) for allele frequencies p = mean / 2; infinity, for not used, where only one occurs.

    References: Patterson, Price & Reich (2006), PLoS Genet. 2, e190, eq. 3.
    """
    p = moments.mean / 2
    if (p < 0).any() or (p > 1).any():
        worst = int(np.abs(p - 0.5).argmax())
        raise InputError(
            f"scale='patterson' is for counts of an allele, 0 to 2, but feature {worst} (counted from 0) has the mean "
            f"{moments.mean[worst]:g}; use scale=None or 'unit'"
        )
    return np.where((p > 0) & (p < 1), np.sqrt(2 * p * (1 - p)), np.inf)


def divisor_of(scale: str | None, features: Axis) -> Array | None:
    """Return what features are divided by as far as it is known from where they are: "coslat", 1 / sqrt(cos(latitude)).

    The variance of each feature then counts as much as the area that it stands for on a grid of equal angles.
    """
    if scale != "coslat":
        return None
    named_so = {name: place for name, place in features.coords.items() if name.lower() in LATITUDES}
    # Of several, the one that the features lie along, whatever the order that they are stored in.
    along = (place for name, place in named_so.items() if name in features.dims)
    found = next(along, next(iter(named_so.values()), None))
    if found is None:
        named = ", ".join(features.coords) or "none"
        raise InputError(f"scale='coslat' needs features with a coordinate lat or latitude; their coordinates: {named}")
    dims, degrees = found[0], np.asarray(found[1], np.float64)
    if not (np.abs(degrees) <= 90).all():
        raise InputError("scale='coslat': latitudes must be from -90 to 90 degrees; check the coordinate")
    # The latitude of each feature, whichever of their dimensions it varies along.
    shape = [size if dim in dims else 1 for dim, size in zip(features.dims, features.sizes, strict=True)]
    order = sorted(range(len(dims)), key=lambda i: features.dims.index(dims[i]))
    cosine = np.cos(np.radians(degrees.transpose(order).reshape(shape)))
    return np.asarray(1 / np.sqrt(np.maximum(np.broadcast_to(cosine, features.sizes).ravel(), LEAST_COSINE)))


def deviation_of(moments: Moments, n_samples: int) -> Array:
    """Return the standard deviation (n - 1) of each feature, 1 where it is zero."""
    deviation = np.sqrt(moments.variance(n_samples))
    return np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class Scaling:
    """Centre and scale of each feature, known: x -> (x - mean) / scale."""

    mean: Array
    scale: Array | None = None

    def apply(self, T: Array, raw: Array, columns: slice) -> None:
        """Write the centred and scaled columns of raw into the tile T."""
        subtract(raw, self.mean[columns], T)
        if self.scale is not None:
            T *= (1.0 / self.scale[columns]).astype(T.dtype)

    def table(self, values: Array) -> Array:
        """Return what each of a few values becomes in each feature (d x values), 0 for NaN."""
        with np.errstate(invalid="ignore"):
            centred = values[None, :] - self.mean[:, None]
            standard = centred if self.scale is None else centred / self.scale[:, None]
        return np.nan_to_num(standard, nan=0.0)

    def take(self, chosen: Any) -> Scaling:
        """Return that of some of the features."""
        return Scaling(self.mean[chosen], None if self.scale is None else self.scale[chosen])

    def restore(self, T: Any) -> Any:
        """Map centred and scaled samples, NumPy or Dask, back to the units of the data."""
        return (T if self.scale is None else T * self.scale) + self.mean
