"""Thresholds that variants and samples of genotypes must pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError


@dataclass(frozen=True)
class Thresholds:
    """Thresholds for variants and samples, applied during the first sweep.

    Attributes
    ----------
    maf : minimum minor allele frequency; monomorphic variants are always excluded.
    geno : maximum share of missing calls of a variant.
    mind : maximum share of missing calls of a sample.
    """

    maf: float = 0.0
    geno: float = 1.0
    mind: float = 1.0

    def __post_init__(self) -> None:
        for name, top in (("maf", 0.5), ("geno", 1.0), ("mind", 1.0)):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value <= top):
                raise InputError(f"{name} must be a number from 0 to {top:g}, got {value!r}")

    def reasons(self, frequency: Array, missing: Array) -> dict[str, Array]:
        """Return masks of the excluded variants by the first threshold that they miss.

        Parameters
        ----------
        frequency : of A1; 0 for a variant without calls.
        missing : share of missing calls.
        """
        constant = (frequency <= 0) | (frequency >= 1)
        sparse = ~constant & (missing > self.geno)
        rare = ~constant & ~sparse & (np.minimum(frequency, 1 - frequency) < self.maf * (1 - 1e-12))
        return {
            "monomorphic": constant,
            f"with more than {self.geno:g} missing": sparse,
            f"with a minor allele rarer than {self.maf:g}": rare,
        }

    def passing(self, frequency: Array, missing: Array) -> Array:
        """Return the mask of the variants that pass."""
        return np.asarray(~np.any(list(self.reasons(frequency, missing).values()), axis=0))
