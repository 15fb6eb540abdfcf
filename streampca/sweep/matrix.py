"""Samples x features, cut along one axis, as dense centred tiles small enough for the cache.

    partition: a range of the block axis, one task      slab: what one read brings      tile: what one product takes

Cut along samples (axis 0), a tile T is some rows, whole in features; cut along features (axis 1), it is some columns,
whole in samples. A statistic always gets A, whose rows lie along the block axis: T or its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MissingValuesError
from streampca.sources import Source
from streampca.sources.filters import Filter
from streampca.sources.scratch import scratch, scratch_like
from streampca.sweep.missing import MissingEntries
from streampca.sweep.scaling import Scaling, scale_of
from streampca.sweep.statistics import LARGE_TILE_BYTES, MIN_TILE_LENGTH, Moments, Parts, centred_parts, own_means

# Calls that are decoded to float64 at a time: up to 10^6 multiplications, here by eight columns, OpenBLAS does not pack
# its operands first, which halves the time.
EXACT_SIZE = 120_000
MIN_EXACT_LENGTH = 32


def tile_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 for types that it holds exactly, float64 for the others."""
    exact = (
        stored.kind == "b"
        or (stored.kind in "iu" and stored.itemsize <= 2)
        or (stored.kind == "f" and stored.itemsize <= 4)
    )
    return np.dtype(np.float32 if exact else np.float64)


@dataclass(frozen=True)
class Defects:
    """Values that are no numbers: how many, and where the first of each kind is (sample, feature)."""

    n_missing: int = 0
    n_infinite: int = 0
    first_missing: tuple[int, int] | None = None
    first_infinite: tuple[int, int] | None = None

    @classmethod
    def of(cls, values: Array, offset: tuple[int, int] = (0, 0)) -> Defects:
        """Count them in values whose first entry is at `offset` of the whole."""

        def first(mask: Array) -> tuple[int, int] | None:
            if not mask.any():
                return None
            i, j = np.unravel_index(int(mask.argmax()), mask.shape)
            return int(i) + offset[0], int(j) + offset[1]

        missing, infinite = np.isnan(values), np.isinf(values)
        return cls(int(missing.sum()), int(infinite.sum()), first(missing), first(infinite))

    def __add__(self, other: Defects) -> Defects:
        return Defects(
            self.n_missing + other.n_missing,
            self.n_infinite + other.n_infinite,
            min((p for p in (self.first_missing, other.first_missing) if p), default=None),
            min((p for p in (self.first_infinite, other.first_infinite) if p), default=None),
        )

    def check(self, missing: str, name: str) -> None:
        """Raise if there is anything that the rule for missing values, "error" or "mean", does not cover."""
        if self.first_infinite is not None:
            sample, feature = self.first_infinite
            raise InputError(
                f"{name}: {self.n_infinite} infinite value(s), the first at sample {sample}, feature {feature} "
                "(counted from 0); replace them by numbers or by NaN"
            )
        if self.first_missing is not None and missing == "error":
            sample, feature = self.first_missing
            raise MissingValuesError(
                f"{name}: {self.n_missing} missing value(s) (NaN), the first at sample {sample}, feature {feature} "
                "(counted from 0)",
                "fill them, or use missing='mean'",
            )


@dataclass(frozen=True)
class Tile:
    """One tile: A (t x N) from row `start` of the block axis on; the moments it was centred by, if its own.

    Of genotypes, `missing` counts the missing calls of each sample while the moments are not known yet. `entries` are
    the missing entries, if a statistic wants them; None if there are none. `exact` yields A part by part in float64; A
    is complete once the last part was taken.
    """

    start: int
    A: Array
    moments: Moments | None
    defects: Defects | None
    n_bytes: int
    missing: Array | None = None
    entries: MissingEntries | None = None
    exact: Parts | None = None

    def transposed(self) -> Tile:
        """Return the tile with A transposed; the missing entries are those of the transposed A already."""
        exact = None if self.exact is None else ((columns, rows, B.T) for rows, columns, B in self.exact)
        return replace(self, A=self.A.T, exact=exact)


@dataclass(frozen=True)
class Matrix:
    """A source with a way to cut it and a way to scale it.

    Parameters
    ----------
    source : the data.
    axis : 0 to cut along samples, 1 along features.
    dtype : of the tiles.
    missing : "error"; "mean" to replace missing values by the mean of their feature; "detect" to count them in the
        first sweep, which makes it one of the two.
    scale : None, "unit", "patterson" or "coslat".
    scaling : centre and scale once they are known; before, each tile is centred by its own mean.
    partitions : ranges of the block axis.
    slab_length : length of one read along the block axis.
    filter : which genotypes to use; cut along features, excluded ones are not in the tiles at all, cut along samples,
        they are zero.
    divisor : what each feature is divided by, where that is known before anything is read.
    used : (n,) 1 for samples whose mean is the centre, 0 for others, which count for scales alone; None for all. Of
        matrices that are cut along features, have no missing values, and no scale that goes by the mean.
    """

    source: Source
    axis: int
    dtype: np.dtype[Any]
    missing: str = "error"
    scale: str | None = None
    scaling: Scaling | None = None
    partitions: tuple[tuple[int, int], ...] = ()
    slab_length: int = 1
    filter: Filter | None = None
    divisor: Array | None = None
    used: Array | None = None

    @property
    def n_block(self) -> int:
        """Length of the axis that is cut."""
        return self.source.shape[self.axis]

    @property
    def n_full(self) -> int:
        """Length of the other axis, N."""
        return self.source.shape[1 - self.axis]

    @property
    def fills(self) -> bool:
        """Whether missing entries may have to stand at the mean."""
        return self.missing == "mean" and self.source.dtype.kind == "f"

    @property
    def known_scaling(self) -> Scaling:
        """The scaling, once it is known."""
        assert self.scaling is not None
        return self.scaling

    @property
    def merges_means(self) -> bool:
        """Whether tiles are centred by means of a part of the samples only."""
        return self.axis == 0 and self.scaling is None

    def with_scaling(self, scaling: Scaling) -> Matrix:
        """Return the same matrix with its centre and scale known."""
        return replace(self, scaling=scaling)

    def tiles(
        self, start: int, stop: int, length: int, check: bool, entries: bool = False, exact: bool = False
    ) -> Iterator[Tile]:
        """Yield the tiles of one partition, each valid until the next; count defects where `check` is set.

        With `entries` they come with their missing entries, for a matrix whose scaling is known and uses all features.
        With `exact` they come part by part in float64, and are complete once the last part was taken.
        """
        if self.axis == 1 and self.source.packed:
            yield from self._packed_tiles(start, stop, length, entries, exact)
            return
        for slab_start in range(start, stop, self.slab_length):
            slab_stop = min(slab_start + self.slab_length, stop)
            whole, part = slice(0, self.n_full), slice(slab_start, slab_stop)
            slab, n_bytes = self.source.read(*((part, whole) if self.axis == 0 else (whole, part)))
            for i in range(0, slab_stop - slab_start, length):
                j = min(i + length, slab_stop - slab_start)
                raw = slab[i:j] if self.axis == 0 else slab[:, i:j]
                yield self._tile(raw, slab_start + i, n_bytes, check, entries, exact)
                n_bytes = 0

    def _tile(self, raw: Array, start: int, n_bytes: int, check: bool, with_entries: bool, exact: bool) -> Tile:
        """Return the tile of some of the values that were read."""
        columns = slice(0, raw.shape[1]) if self.axis == 0 else slice(start, start + raw.shape[1])
        may_miss = self.source.dtype.kind == "f" and (check or self.missing == "mean")
        T = scratch_like("tile", raw, self.dtype)
        moments, parts, entries = None, None, None
        if self.scaling is None:
            moments, scaling, missing, parts = self._centred(raw, T, columns, may_miss, exact)
        else:
            scaling = self.scaling.take(columns)
            missing, entries = self._scaled(raw, T, scaling, may_miss, with_entries)
        defects, of_samples = None, None
        if missing and (check or self.missing == "error"):
            defects = Defects.of(raw, (start, 0) if self.axis == 0 else (0, start))
        if self.axis == 1:
            of_samples = None if moments is None or self.filter is None else np.isnan(raw).sum(axis=1)
            raw, T, scaling = _only_used(raw, T, scaling)
        if exact and parts is None:
            parts = centred_parts(raw, T, scaling.mean, scale=scaling.scale, missing=missing, whole_rows=self.axis == 0)
        tile = Tile(start, T, moments, defects, n_bytes, of_samples, entries, parts)
        return tile if self.axis == 0 else tile.transposed()

    def _scaled(
        self, raw: Array, T: Array, scaling: Scaling, may_miss: bool, with_entries: bool
    ) -> tuple[bool, MissingEntries | None]:
        """Write a tile whose scaling is known; return whether entries are missing, and a list of them if asked for."""
        scaling.apply(T, raw, slice(None))
        missing = may_miss and not np.isfinite(T.sum())
        if missing and with_entries:
            return missing, MissingEntries.taken(T if self.axis == 0 else T.T)
        if missing:
            T[np.isnan(T)] = 0
        return missing, None

    def _centred(
        self, raw: Array, T: Array, columns: slice, may_miss: bool, exact: bool
    ) -> tuple[Moments, Scaling, bool, Parts | None]:
        """Centre a tile by its own means; cut along features, also scale it.

        Returns its moments, its scaling, whether entries are missing, and the parts of T that are still to be centred,
        for a statistic to take in float64. The sums of squares are complete after the last of these.
        """
        T[:] = raw
        moments = own_means(T)
        missing = may_miss and not np.isfinite(moments.mean).all()
        if missing:
            moments = own_means(T, missing=True)
        parts = centred_parts(T, T, moments.mean, m2=moments.m2, missing=missing, whole_rows=exact and self.axis == 0)
        if exact and (self.axis == 0 or (self.scale is None and self.filter is None and self.used is None)):
            return moments, Scaling(moments.mean), missing, parts
        for _ in parts:
            pass
        if self.used is not None:
            # From the values again: far from the mean of all, those of the samples used have lost digits.
            own = moments.mean + self.used.astype(T.dtype) @ T / self.used.sum()
            Scaling(own).apply(T, raw, slice(None))
            moments = replace(moments, mean=own)
        scale = None
        if self.axis == 1:
            known = None if self.divisor is None else self.divisor[columns]
            scale = scale_of(moments, self.scale, len(T), self.filter, known)
        if scale is not None:
            T /= scale.astype(T.dtype)
        return moments, Scaling(moments.mean, scale), missing, None

    def _packed_tiles(self, start: int, stop: int, length: int, with_entries: bool, with_exact: bool) -> Iterator[Tile]:
        """Yield tiles made straight from packed genotypes: each code has its value, a missing call the mean's, zero."""
        # numba takes a moment to load, and other sources do without it.
        from streampca.sources.packed import DOSAGES, MISSING_CODE, count_codes, count_missing, decode, list_missing

        n_samples = self.source.shape[0]
        for slab_start in range(start, stop, self.slab_length):
            slab_stop = min(slab_start + self.slab_length, stop)
            packed, n_bytes = self.source.read_packed(slab_start, slab_stop)
            moments, defects, missing = None, None, None
            if self.scaling is None:
                moments = moments_of_codes(count_codes(packed, n_samples))
                scaling = Scaling(moments.mean, scale_of(moments, self.scale, n_samples, self.filter))
                missing = np.zeros(n_samples, np.int64)
                gappy = moments.missing > 0
                count_missing(packed if gappy.all() else packed[gappy], missing)
                if self.missing == "error" and gappy.any():
                    sample = int((missing > 0).argmax())
                    codes = packed[:, sample // 4] >> 2 * (sample % 4) & 3
                    first = (sample, slab_start + int((codes == MISSING_CODE).argmax()))
                    defects = Defects(int(moments.missing.sum()), 0, first)
            else:
                scaling = self.scaling.take(slice(slab_start, slab_stop))
            values = scaling.table(DOSAGES)
            if scaling.scale is not None and np.isinf(scaling.scale).any():
                used = np.isfinite(scaling.scale)
                packed, values = packed[used], values[used]
            table = values.astype(self.dtype)
            for i in range(0, max(1, len(packed)), length):
                part = packed[i : i + length]
                A = scratch("tile", (len(part), n_samples), self.dtype)
                decode(part, table[i : i + length], A)
                entries = MissingEntries(*list_missing(part, n_samples), len(part)) if with_entries else None
                exact = _exact_calls(part, values[i : i + length], n_samples) if with_exact else None
                yield Tile(slab_start + i, A, moments, defects, n_bytes, missing, entries, exact)
                moments, defects, n_bytes, missing = None, None, 0, None


def _only_used(raw: Array, T: Array, scaling: Scaling) -> tuple[Array, Array, Scaling]:
    """Drop the features with an infinite scale."""
    if scaling.scale is None or np.isfinite(scaling.scale).all():
        return raw, T, scaling
    used = np.isfinite(scaling.scale)
    return raw[:, used], T[:, used], scaling.take(used)


def _exact_calls(packed: Array, values: Array, n_samples: int) -> Parts:
    """Yield a tile of packed genotypes in float64, a few samples at a time."""
    # numba is slow to load, and other sources do without it.
    from streampca.sources.packed import decode

    # A byte holds four calls.
    step = max(MIN_EXACT_LENGTH, EXACT_SIZE // max(1, len(packed)) // 32 * 32)
    for start in range(0, n_samples, step):
        stop = min(start + step, n_samples)
        chosen = np.ascontiguousarray(packed[:, start // 4 : -(-stop // 4)])
        A = scratch("exact", (len(chosen), stop - start), np.float64)
        decode(chosen, values, A)
        yield slice(0, len(chosen)), slice(start, stop), A


def feature_tile_length(length: int, d: int, itemsize: int) -> int:
    """Return the number of samples of a tile, at most `wanted`: wide samples set the limit."""
    return min(length, max(MIN_TILE_LENGTH, LARGE_TILE_BYTES // (d * itemsize)))


class FeatureMap(Protocol):
    """What makes features of samples: F (t x m) of a tile A (t x d)."""

    @property
    def n_features(self) -> int:
        """Number of features, m."""

    def __call__(self, A: Array) -> Array:
        """Return the features of the rows of A, in a buffer of this thread."""


@dataclass(frozen=True)
class FeatureMatrix(Matrix):
    """Features of samples as a matrix: each tile of `inputs`, cut along samples, goes through a map.

    The scaling is that of the features; samples are scaled, and missing values filled, by that of the inputs.
    """

    inputs: Matrix = field(kw_only=True)
    map: FeatureMap = field(kw_only=True)

    @classmethod
    def of(cls, inputs: Matrix, map: FeatureMap) -> FeatureMatrix:
        """Return the matrix of features of the samples of another, whose scaling is known."""
        return cls(
            inputs.source, 0, inputs.dtype, inputs.missing, None, None, inputs.partitions, inputs.slab_length,
            inputs=inputs, map=map,
        )  # fmt: skip

    @property
    def n_full(self) -> int:
        """Number of features."""
        return self.map.n_features

    @property
    def fills(self) -> bool:
        """Whether features may be missing: never."""
        return False

    def tiles(
        self, start: int, stop: int, length: int, check: bool, entries: bool = False, exact: bool = False  # noqa: ARG002
    ) -> Iterator[Tile]:  # fmt: skip
        """Yield the tiles of one partition, each valid until the next; defects are those of the inputs.

        With `exact`, features are float64, and rounded to the type of the tiles.
        """
        dtype = np.dtype(np.float64) if exact else self.dtype
        inputs = replace(self.inputs, source=self.source, dtype=dtype)
        for tile in inputs.tiles(start, stop, feature_tile_length(length, inputs.n_full, dtype.itemsize), check):
            F = self.map(tile.A)
            A = scratch_like("rounded", F, self.dtype) if exact else F
            moments, m2, scaling = None, None, self.scaling
            if scaling is None:
                moments = own_means(F)
                m2, scaling = moments.m2, Scaling(moments.mean)
            parts = centred_parts(F, A, scaling.mean, scale=scaling.scale, m2=m2, whole_rows=exact)
            if not exact:
                for _ in parts:
                    pass
            yield Tile(tile.start, A, moments, tile.defects, tile.n_bytes, exact=parts if exact else None)


def moments_of_codes(counts: Array) -> Moments:
    """Return the moments of each variant from how often each code of a genotype occurs (t x 4); exact."""
    two, missing, one, none = counts.T
    called = two + one + none
    mean = (2 * two + one) / np.maximum(called, 1)
    m2 = two * (2 - mean) ** 2 + one * (1 - mean) ** 2 + none * mean**2
    return Moments(called, mean, m2, missing)
