"""Fields that the fitted records of all models share."""

from __future__ import annotations

from dataclasses import dataclass

from streampca._typing import Array


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted model.

    Attributes
    ----------
    n_samples : number of fitted samples.
    missing : (d,) number of missing values of each feature.
    converged, advice : whether the fit reached its tolerance, and what to do if not.
    notes : what was excluded, and warnings, in words.
    genotypes : whether the features are variants.
    tile_dtype : of the products.
    sweep_seconds, bytes_read, seconds : of each read of all the data, of all reads, and of the fit.
    """

    n_samples: int
    missing: Array
    converged: bool = True
    advice: str = ""
    notes: tuple[str, ...] = ()
    genotypes: bool = False
    tile_dtype: str
    sweep_seconds: tuple[float, ...]
    bytes_read: int
    seconds: float = 0.0

    @property
    def n_sweeps(self) -> int:
        """Number of reads of all the data."""
        return len(self.sweep_seconds)
