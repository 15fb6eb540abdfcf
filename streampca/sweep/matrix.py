"""Samples x features, cut along one axis, as dense centred tiles small enough for the cache.

    partition: a range of the block axis, one task      slab: one read      tile: the operand of one product

Cut along samples (axis 0), a tile T has some samples and all features; cut along features (axis 1), it has some
features and all samples. A statistic always gets A, whose rows lie along the block axis: T or its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, MissingValuesError
from streampca.sources import Axis, Source
from streampca.sources.genotypes import packed_loops
from streampca.sources.scratch import scratch, scratch_like
from streampca.sources.thresholds import Thresholds
from streampca.sweep.missing import MissingEntries
from streampca.sweep.scaling import Scaling, scale_of
from streampca.sweep.statistics import LARGE_TILE_BYTES, MIN_TILE_LENGTH, Moments, Parts, centred_parts, own_means

# Number of calls that are decoded to float64 at a time. OpenBLAS does not pack the operands of products of up to 10^6
# multiplications (here with eight columns), which halves the time.
EXACT_SIZE = 120_000
MIN_EXACT_LENGTH = 32


def tile_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 for types whose values it represents exactly, float64 for the others."""
    exact = (
        stored.kind == "b"
        or (stored.kind in "iu" and stored.itemsize <= 2)
        or (stored.kind == "f" and stored.itemsize <= 4)
    )
    return np.dtype(np.float32 if exact else np.float64)


@dataclass(frozen=True)
class Defects:
    """Values that are not finite: their number, and the first of each kind (sample, feature)."""

    n_missing: int = 0
    n_infinite: int = 0
    first_missing: tuple[int, int] | None = None
    first_infinite: tuple[int, int] | None = None

    @classmethod
    def of(cls, values: Array, offset: tuple[int, int] = (0, 0)) -> Defects:
        """Count them in values whose first entry is at `offset` of all data."""

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

    def check(self, missing: str, name: str, axes: tuple[Axis, ...] = ()) -> None:
        """Raise for infinite values, and for missing values if `missing` is "error"; axes name the coordinates."""
        if self.first_infinite is not None:
            raise InputError(
                f"{name}: {self.n_infinite} infinite value(s), the first at {_place(self.first_infinite, axes)}; "
                "replace them by numbers or by NaN"
            )
        if self.first_missing is not None and missing == "error":
            raise MissingValuesError(
                f"{name}: {self.n_missing} missing value(s) (NaN), the first at {_place(self.first_missing, axes)}",
                "fill them, or use missing='mean'",
            )


def _place(where: tuple[int, int], axes: tuple[Axis, ...]) -> str:
    """Return a sample and a feature in words, with their coordinates if they have labels."""
    labels = [text for axis, index in zip(axes, where, strict=False) if (text := axis.place(index))]
    return f"sample {where[0]}, feature {where[1]} ({'; '.join(['counted from 0', *labels])})"


@dataclass(frozen=True)
class Tile:
    """One tile: A (t x N), from row `start` of the block axis on.

    Attributes
    ----------
    moments : by which the tile was centred, if they are its own.
    defects, n_bytes : values that are not finite, and bytes read for this tile.
    missing : (2, n) missing calls of each sample, of genotypes whose moments are not known yet: of all variants, and
        of those that are used.
    entries : missing entries, if the statistic needs them; None if there are none.
    exact : yields A part by part in float64; A is complete after the last part.
    """

    start: int
    A: Array
    moments: Moments | None = None
    defects: Defects = Defects()
    n_bytes: int = 0
    missing: Any = 0
    entries: MissingEntries | None = None
    exact: Parts | None = None

    def transposed(self) -> Tile:
        """Return the tile with A transposed; `entries` are already those of the transposed A."""
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
    scale : None, "unit", "patterson", "eigenstrat" or "coslat".
    scaling : centre and scale once they are known; before, each tile is centred by its own mean.
    partitions : ranges of the block axis.
    slab_length : length of one read along the block axis.
    filter : which genotypes to use; cut along features, excluded ones are not in the tiles at all, cut along samples,
        they are zero.
    divisor : of each feature, if it is known before data are read.
    used : (n,) 1 for samples whose mean is the centre, 0 for others, which count for scales only; None for all. Only
        for matrices that are cut along features, without missing values, and with a scale that does not depend on the
        mean.
    """

    source: Source
    axis: int
    dtype: np.dtype[Any]
    missing: str = "error"
    scale: str | None = None
    scaling: Scaling | None = None
    partitions: tuple[tuple[int, int], ...] = ()
    slab_length: int = 1
    filter: Thresholds | None = None
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
        """Whether missing entries may have to be replaced by the mean."""
        return self.missing == "mean" and self.source.dtype.kind == "f"

    @property
    def known_scaling(self) -> Scaling:
        """The scaling, once it is known."""
        assert self.scaling is not None
        return self.scaling

    @property
    def merges_means(self) -> bool:
        """Whether tiles are centred by the means of some samples."""
        return self.axis == 0 and self.scaling is None

    def tiles(
        self, start: int, stop: int, length: int, check: bool, entries: bool = False, exact: bool = False
    ) -> Iterator[Tile]:
        """Yield the tiles of one partition, each valid until the next; with `check`, count defects.

        With `entries` tiles have their missing entries; the scaling must be known and use all features. With `exact`
        tiles are available part by part in float64, and complete after the last part.
        """
        if self.axis == 1 and self.source.packed:
            yield from self._packed_tiles(start, stop, length, entries, exact)
            return
        for slab_start in range(start, stop, self.slab_length):
            slab_stop = min(slab_start + self.slab_length, stop)
            full, part = slice(0, self.n_full), slice(slab_start, slab_stop)
            slab, n_bytes = self.source.read(*((part, full) if self.axis == 0 else (full, part)))
            for i in range(0, slab_stop - slab_start, length):
                j = min(i + length, slab_stop - slab_start)
                raw = slab[i:j] if self.axis == 0 else slab[:, i:j]
                yield self._tile(raw, slab_start + i, n_bytes, check, entries, exact)
                n_bytes = 0

    def _tile(self, raw: Array, start: int, n_bytes: int, check: bool, with_entries: bool, exact: bool) -> Tile:
        """Return the tile of some values of a slab."""
        columns = slice(0, raw.shape[1]) if self.axis == 0 else slice(start, start + raw.shape[1])
        may_miss = self.source.dtype.kind == "f" and (check or self.missing == "mean")
        T = scratch_like("tile", raw, self.dtype)
        moments, parts, entries = None, None, None
        if self.scaling is None:
            moments, scaling, missing, parts = self._centred(raw, T, columns, may_miss, exact)
        else:
            scaling = self.scaling.take(columns)
            missing, entries = self._scaled(raw, T, scaling, may_miss, with_entries)
        of_samples: Any = 0
        defects = self._defects(raw, start) if missing and (check or self.missing == "error") else Defects()
        if self.axis == 1:
            every = raw
            raw, T, scaling = _only_used(raw, T, scaling)
            if moments is not None and self.filter is not None:
                of_samples = np.stack([np.isnan(part).sum(axis=1) for part in (every, raw)])
        if exact and parts is None:
            parts = centred_parts(raw, T, scaling.mean, scale=scaling.scale, missing=missing, whole_rows=self.axis == 0)
        tile = Tile(start, T, moments, defects, n_bytes, of_samples, entries, parts)
        return tile if self.axis == 0 else tile.transposed()

    def _defects(self, raw: Array, start: int) -> Defects:
        """Return the missing values of a tile."""
        return Defects.of(raw, (start, 0) if self.axis == 0 else (0, start))

    def _scaled(
        self, raw: Array, T: Array, scaling: Scaling, may_miss: bool, with_entries: bool
    ) -> tuple[bool, MissingEntries | None]:
        """Write a tile whose scaling is known; return whether entries are missing, and which, with `with_entries`."""
        scaling.apply(T, raw)
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

        Returns its moments, its scaling, whether entries are missing, and, with `exact`, an iterator that centres T
        part by part in float64. The sums of squares are complete after the last part.
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
            # From the values again: centred by the mean of all, samples that are far from it have lost digits.
            own = moments.mean + self.used.astype(T.dtype) @ T / self.used.sum()
            Scaling(own).apply(T, raw)
            moments = replace(moments, mean=own)
        scale = None
        if self.axis == 1:
            known = None if self.divisor is None else self.divisor[columns]
            scale = scale_of(moments, self.scale, len(T), self.filter, known)
        if scale is not None:
            T /= scale.astype(T.dtype)
        return moments, Scaling(moments.mean, scale), missing, None

    def _packed_tiles(self, start: int, stop: int, length: int, with_entries: bool, with_exact: bool) -> Iterator[Tile]:
        """Yield tiles decoded directly from packed genotypes: each code has a value; that of a missing call is zero."""
        # Lists of missing entries are for EM, whose loops are compiled.
        loops = packed_loops(self.source.small and not with_entries)
        n_samples = self.source.shape[0]
        for slab_start in range(start, stop, self.slab_length):
            slab_stop = min(slab_start + self.slab_length, stop)
            packed, n_bytes = self.source.read_packed(slab_start, slab_stop)
            # Of the slab; its first tile has them.
            known: dict[str, Any] = {"n_bytes": n_bytes}
            if self.scaling is None:
                moments = moments_of_codes(loops.count_codes(packed, n_samples))
                scaling = Scaling(moments.mean, scale_of(moments, self.scale, n_samples, self.filter))
                missing, incomplete = np.zeros((2, n_samples), np.int64), moments.missing > 0
                known |= {"moments": moments, "missing": missing}
                loops.count_missing(packed if incomplete.all() else packed[incomplete], missing[0])
                used = incomplete & (True if scaling.scale is None else np.isfinite(scaling.scale))
                if (used == incomplete).all():
                    missing[1] = missing[0]
                else:
                    loops.count_missing(packed[used], missing[1])
                if self.missing == "error" and incomplete.any():
                    sample = int((missing[0] > 0).argmax())
                    codes = packed[:, sample // 4] >> 2 * (sample % 4) & 3
                    first = (sample, slab_start + int((codes == loops.MISSING_CODE).argmax()))
                    known["defects"] = Defects(int(moments.missing.sum()), 0, first)
            else:
                scaling = self.scaling.take(slice(slab_start, slab_stop))
            values = scaling.table(loops.DOSAGES)
            if scaling.scale is not None and np.isinf(scaling.scale).any():
                used = np.isfinite(scaling.scale)
                packed, values = packed[used], values[used]
            table = values.astype(self.dtype)
            for i in range(0, max(1, len(packed)), length):
                part = packed[i : i + length]
                A = scratch("tile", (len(part), n_samples), self.dtype)
                loops.decode(part, table[i : i + length], A)
                entries = None
                if with_entries:
                    starts, rows = loops.list_missing(part, n_samples)
                    entries = MissingEntries(starts, rows, len(part))
                exact = _exact_calls(loops, part, values[i : i + length], n_samples) if with_exact else None
                yield Tile(slab_start + i, A, entries=entries, exact=exact, **known)
                known = {}


def _only_used(raw: Array, T: Array, scaling: Scaling) -> tuple[Array, Array, Scaling]:
    """Drop the features with an infinite scale."""
    if scaling.scale is None or np.isfinite(scaling.scale).all():
        return raw, T, scaling
    used = np.isfinite(scaling.scale)
    return raw[:, used], T[:, used], scaling.take(used)


def _exact_calls(loops: Any, packed: Array, values: Array, n_samples: int) -> Parts:
    """Yield a tile of packed genotypes in float64, a few samples at a time."""
    # A byte holds four calls.
    step = max(MIN_EXACT_LENGTH, EXACT_SIZE // max(1, len(packed)) // 32 * 32)
    for start in range(0, n_samples, step):
        stop = min(start + step, n_samples)
        chosen = np.ascontiguousarray(packed[:, start // 4 : -(-stop // 4)])
        A = scratch("exact", (len(chosen), stop - start), np.float64)
        loops.decode(chosen, values, A)
        yield slice(0, len(chosen)), slice(start, stop), A


def feature_tile_length(length: int, d: int, itemsize: int) -> int:
    """Return the number of samples of a tile: `length`, or fewer if samples have many features."""
    return min(length, max(MIN_TILE_LENGTH, LARGE_TILE_BYTES // (d * itemsize)))


class FeatureMap(Protocol):
    """A map from samples to features: F (t x m) of a tile A (t x d)."""

    @property
    def n_features(self) -> int:
        """Number of features, m."""

    def __call__(self, A: Array) -> Array:
        """Return the features of the rows of A, in a buffer of this thread."""


@dataclass(frozen=True)
class FeatureMatrix(Matrix):
    """Features of samples as a matrix: a map is applied to each tile of `inputs`, cut along samples.

    The scaling is that of the features; samples are scaled, and missing values replaced, by that of the inputs.
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
    """Return the exact moments of each variant from the count of each genotype code (t x 4)."""
    two, missing, one, none = counts.T
    called = two + one + none
    mean = (2 * two + one) / np.maximum(called, 1)
    m2 = two * (2 - mean) ** 2 + one * (1 - mean) ** 2 + none * mean**2
    return Moments(called, mean, m2, missing)
