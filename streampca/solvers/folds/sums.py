"""Sums over the samples of each fold, for a matrix that is cut along samples; the same sweep computes the moments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.solvers.base import know_scaling
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Moments, Scatter, Statistic
from streampca.sweep.sweep import Sweeps

# Squares about the first sample are larger than those about the mean: by a factor of about two, and of n in the worst
# case, where all other samples are equal. Beyond the square of this, six digits would be lost: the sweep is repeated
# about the mean.
FAR = 1e3


@dataclass(frozen=True)
class FoldSums(Statistic):
    """Sums and sums of squares of the rows of A, part by part (2 x parts + 1 x N); the last part is not used."""

    folds: Array
    parts: int

    def zero(self, n_full: int) -> Any:
        """Return sums over no rows."""
        return np.zeros((2, self.parts + 1, n_full))

    def update(self, value: Any, A: Array, start: int) -> None:
        """Add the rows of each part."""
        folds = self.folds[start : start + len(A)]
        # -1, the fold of samples that are not used, is the last index.
        for part in np.unique(folds):
            rows = A[folds == part]
            value[0, part] += rows.sum(axis=0, dtype=np.float64)
            value[1, part] += np.einsum("ij,ij->j", rows, rows)


@dataclass(frozen=True)
class FoldScatter(FoldSums):
    """The same sums, and the lower triangle of the scatter of [rows of A, others], part by part."""

    others: Array

    def tile_length(self, n_full: int, itemsize: int) -> int:
        """Return the tile length of a scatter."""
        return Scatter().tile_length(n_full, itemsize)

    def zero(self, n_full: int) -> Any:
        """Return sums over no rows."""
        width = n_full + self.others.shape[1]
        return super().zero(n_full), np.zeros((self.parts, width, width))

    def update(self, value: Any, A: Array, start: int) -> None:
        """Add the rows of each part."""
        sums, scatters = value
        super().update(sums, A, start)
        stop = start + len(A)
        for part in range(self.parts):
            chosen = self.folds[start:stop] == part
            if chosen.any():
                others = self.others[start:stop][chosen].astype(A.dtype)
                Scatter().update(scatters[part], np.hstack([A[chosen], others]), start)


@dataclass(frozen=True)
class PartSums:
    """The value of a sweep along samples, and sums of each part, centred and scaled.

    Attributes
    ----------
    value : of the sweep: about the point `origin`, not yet divided by `scale`.
    origin : (d,) centred and scaled.
    scale : (d,) None if features are not scaled, or if the value is scaled already.
    counts : (parts,) number of samples.
    sums, squares : (parts, d) about the centre of the matrix, scaled. The centre is the mean of the samples used, or of
        all samples if missing values are replaced by it.
    """

    value: Any
    origin: Array
    scale: Array | None
    moments: Moments
    counts: Array
    sums: Array
    squares: Array

    def offset(self, parts: list[int]) -> Array:
        """Return the mean of the samples of some parts, centred and scaled."""
        return np.asarray(self.sums[parts].sum(axis=0) / self.counts[parts].sum())

    def trace(self) -> float:
        """Return the total variance of the samples used."""
        n = self.counts.sum()
        mean = self.sums.sum(axis=0) / n
        return float((self.squares.sum(axis=0) - n * mean**2).sum() / (n - 1))


def sum_parts(sweeps: Sweeps, statistic: FoldSums, label: str) -> PartSums:
    """Compute sums of parts and moments in one sweep along samples, about the first sample used.

    Constant features come out exactly zero. It takes two sweeps if missing values are replaced by the mean, or if the
    first sample used is far from the mean. Samples that are not used count for scales only; the centre is the mean of
    the samples used.
    """
    matrix, d = sweeps.matrix, sweeps.matrix.source.shape[1]
    counts = np.bincount(np.where(statistic.folds < 0, statistic.parts, statistic.folds), minlength=statistic.parts + 1)
    if matrix.fills:
        moments = sweeps.moments()
        know_scaling(sweeps, moments)
        value, _ = sweeps.run(statistic, label)
        sums, squares = _sums_in(value)
        return PartSums(value, np.zeros(d), None, moments, counts[:-1], sums[:-1], squares[:-1])
    first = int((statistic.folds >= 0).argmax())
    origin = np.array(matrix.source.read(slice(first, first + 1), slice(0, d))[0][0], np.float64)
    for last in (False, True):
        sweeps.matrix = replace(matrix, scaling=Scaling(origin))
        value, _ = sweeps.run(statistic, label, check=True)
        sums, squares = _sums_in(value)
        n_used, total = counts[:-1].sum(), squares[:-1].sum(axis=0)
        away = sums[:-1].sum(axis=0) / n_used
        # `know_scaling` raises an error for values that are too large or too small to square.
        with np.errstate(over="ignore", invalid="ignore"):
            within = total - n_used * away**2
            near = (n_used * away**2 <= FAR**2 * within) | (total == 0)
        if near.all() or last or not np.isfinite(within).all():
            break
        origin = origin + away
    n = counts.sum()
    of_all = sums.sum(axis=0) / n
    with np.errstate(over="ignore", invalid="ignore"):
        m2 = squares.sum(axis=0) - n * of_all**2
    m2[(squares.sum(axis=0) == 0) & (of_all != 0)] = np.finfo(np.float64).tiny
    moments = Moments(np.full(d, n), origin + of_all, np.maximum(m2, 0.0), np.zeros(d, np.int64))
    sweeps.matrix = matrix
    know_scaling(sweeps, moments)
    scaling = sweeps.matrix.known_scaling
    sweeps.matrix = replace(sweeps.matrix, scaling=replace(scaling, mean=origin + away))
    scale = np.ones(d) if scaling.scale is None else scaling.scale
    # About the mean, and scaled.
    shift, each = -away / scale, counts[:, None]
    sums, squares = sums / scale, squares / scale**2
    squares = squares + 2 * shift * sums + each * shift**2
    sums = sums + each * shift
    return PartSums(value, shift, scaling.scale, moments, counts[:-1], sums[:-1], squares[:-1])


def _sums_in(value: Any) -> Array:
    """Return sums and squares from the value of a sweep."""
    return np.asarray(value[0] if isinstance(value, tuple) else value)
