"""Per-feature centre and scale, and what a missing value stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import Moments
from streampca.errors import InputError

Array = NDArray[Any]

SCALES = (None, "unit")
MISSING = ("error", "mean")


def check_choice(name: str, given: object, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is not one of those allowed."""
    if given not in allowed:
        raise InputError(f"{name}={given!r} is not known; use one of {', '.join(map(repr, allowed))}")


def scale_of(moments: Moments, scale: str | None, n_samples: int) -> Array | None:
    """Return what each feature is divided by; None for nothing."""
    return None if scale is None else deviation_of(moments, n_samples)


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

    def restore(self, T: Any) -> Any:
        """Map centred and scaled samples, NumPy or Dask, back to the units of the data."""
        return (T if self.scale is None else T * self.scale) + self.mean
