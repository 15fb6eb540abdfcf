"""Centre and scale of each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources import Axis
from streampca.sources.thresholds import Thresholds
from streampca.sweep.statistics import Moments, subtract

SCALES = (None, "unit", "patterson", "eigenstrat")
ALLELES = ("patterson", "eigenstrat")  # scales of allele counts, which depend on the mean
LATITUDES = ("lat", "latitude", "nav_lat", "rlat")  # names of the coordinate
LEAST_COSINE = 1e-12  # at the poles, where the weight would be zero


def check_choice(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Raise unless the value is one of those allowed."""
    if given not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {given!r}")


def scale_of(
    moments: Moments, scale: str | None, n_samples: int, filter: Thresholds | None = None, divisor: Array | None = None
) -> Array | None:
    """Return the divisor of each feature: infinity for those that are not used, None if none is scaled.

    A `divisor` that is known before data are read is returned as it is.
    """
    if divisor is not None:
        return divisor
    if scale is None and filter is None:
        return None
    divisor = np.ones_like(moments.mean)
    if scale == "unit":
        divisor = deviation_of(moments, n_samples)
    elif scale in ALLELES:
        divisor = drift_of(moments, scale)
    if filter is not None:
        missing = moments.missing / np.maximum(moments.count + moments.missing, 1)
        divisor = np.where(filter.passing(moments.mean / 2, missing), divisor, np.inf)
    return divisor


def drift_of(moments: Moments, scale: str) -> Array:
    """Return sqrt(2 p (1 - p)) for allele frequencies p; infinity (not used) for monomorphic variants.

    patterson: p = mean / 2;   eigenstrat: p = (1 + sum of counts) / (2 + 2 calls)

    References: Patterson, Price & Reich (2006), PLoS Genet. 2, e190, eq. 3; Price et al. (2006), Nat. Genet. 38, 904.
    They are altnormstyle YES and NO of smartpca.
    """
    p = moments.mean / 2
    if (p < 0).any() or (p > 1).any():
        worst = int(np.abs(p - 0.5).argmax())
        raise InputError(
            f"scale={scale!r} is for counts of an allele, 0 to 2, but feature {worst} (counted from 0) has the mean "
            f"{moments.mean[worst]:g}; use scale=None or 'unit'"
        )
    varies = (p > 0) & (p < 1)
    if scale == "eigenstrat":
        p = (1 + moments.count * moments.mean) / (2 + 2 * moments.count)
    return np.where(varies, np.sqrt(2 * p * (1 - p)), np.inf)


def divisor_of(scale: str | None, features: Axis) -> Array | None:
    """Return the divisors of features that follow from coordinates: "coslat", 1 / sqrt(cos(latitude)); None otherwise.

    The variance of each feature is then weighted by the area of its cell on a grid of equal angles.
    """
    if scale != "coslat":
        return None
    latitudes = {name: coord for name, coord in features.coords.items() if name.lower() in LATITUDES}
    # Of several, one that is a dimension of the features, whatever the order in which they are stored.
    along = (coord for name, coord in latitudes.items() if name in features.dims)
    latitude = next(along, next(iter(latitudes.values()), None))
    if latitude is None:
        names = ", ".join(features.coords) or "none"
        needed = "scale='coslat' needs features with a coordinate lat or latitude"
        raise InputError(f"{needed}; they have {names}; use scale=None or 'unit'")
    dims, degrees = latitude[0], np.asarray(latitude[1], np.float64)
    if not (np.abs(degrees) <= 90).all():
        raise InputError("scale='coslat': latitudes must be from -90 to 90 degrees; check the coordinate")
    # The latitude of each feature, along any of their dimensions.
    shape = [size if dim in dims else 1 for dim, size in zip(features.dims, features.sizes, strict=True)]
    order = sorted(range(len(dims)), key=lambda i: features.dims.index(dims[i]))
    cosine = np.cos(np.radians(degrees.transpose(order).reshape(shape)))
    divisors = 1 / np.sqrt(np.maximum(np.broadcast_to(cosine, features.sizes).ravel(), LEAST_COSINE))
    return np.asarray(divisors if features.kept is None else divisors[features.kept])


def deviation_of(moments: Moments, n_samples: int) -> Array:
    """Return the standard deviation (n - 1) of each feature, 1 where it is zero."""
    deviation = np.sqrt(moments.variance(n_samples))
    return np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class Scaling:
    """Centre and scale of each feature: x -> (x - mean) / scale."""

    mean: Array
    scale: Array | None = None

    def apply(self, T: Array, raw: Array) -> None:
        """Write raw, centred and scaled, into the tile T."""
        subtract(raw, self.mean, T)
        if self.scale is not None:
            T *= (1.0 / self.scale).astype(T.dtype)

    def table(self, values: Array) -> Array:
        """Return a few values, centred and scaled by each feature (d x values); 0 for NaN."""
        with np.errstate(invalid="ignore"):
            centred = values[None, :] - self.mean[:, None]
            standard = centred if self.scale is None else centred / self.scale[:, None]
        return np.nan_to_num(standard, nan=0.0)

    def take(self, chosen: Any) -> Scaling:
        """Return the scaling of some features."""
        return Scaling(self.mean[chosen], None if self.scale is None else self.scale[chosen])

    def restore(self, T: Any) -> Any:
        """Map centred and scaled samples, NumPy or Dask, back to the units of the data."""
        return (T if self.scale is None else T * self.scale) + self.mean
