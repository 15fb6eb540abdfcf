"""Per-feature centre and scale, and what a missing value stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import Moments
from streampca.errors import InputError
from streampca.sources.genotypes import Filter

Array = NDArray[Any]

SCALES = (None, "unit", "patterson")
MISSING = ("error", "mean")


def check_choice(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is not one of those allowed."""
    if given not in allowed:
        raise InputError(f"{name}={given!r} is not known; use one of {', '.join(map(repr, allowed))}")


def scale_of(moments: Moments, scale: str | None, n_samples: int, filter: Filter | None = None) -> Array | None:
    """Return what each feature is divided by: infinity for those that are not used, None if all are as they are."""
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


def deviation_of(moments: Moments, n_samples: int) -> Array:
    """Return the standard deviation (n - 1) of each feature, 1 where it is zero."""
    deviation = np.sqrt(moments.variance(n_samples))
    return np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class Scaling:
    """Centre and scale of each feature, known: x -> (x - mean) / scale.

    The mean is kept in two parts, so that taking it off in float32 loses nothing: x - high is exact where the two
    are close (Sterbenz), and low is what is left.
    """

    mean: Array
    scale: Array | None = None

    def apply(self, T: Array, raw: Array, columns: slice) -> None:
        """Write the centred and scaled columns of raw into the tile T."""
        mean = self.mean[columns]
        high = mean.astype(T.dtype)
        np.subtract(raw, high, out=T, dtype=T.dtype, casting="unsafe")
        if T.dtype != np.float64:
            T -= (mean - high).astype(T.dtype)
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
