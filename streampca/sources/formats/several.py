"""Genotypes in several files with the same samples, as one per chromosome: a pattern, a list or a file of paths.

Variants are those of all files, in the order of the files. The result has the same bits as that of one joined file.
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.sources.base import Source
from streampca.sources.genotypes import GenotypeSource, VariantSource, packed_width
from streampca.sources.registry import OpenOptions, open_any, register
from streampca.sources.scratch import scratch

SUFFIX = ".list"


def _paths(data: Any) -> list[Path] | None:
    """Return the paths that a pattern, a list of paths or a file of paths names; None for other data."""
    if isinstance(data, (list, tuple)) and data and all(isinstance(one, (str, Path)) for one in data):
        return [Path(one) for one in data]
    if not isinstance(data, (str, Path)) or "://" in str(data) or Path(data).is_dir():
        return None
    path = Path(data)
    if path.suffix == SUFFIX and path.is_file():
        return _listed(path)
    if not glob.has_magic(str(path)) or path.exists():
        return None
    found = sorted(glob.glob(str(path)), key=_natural)
    if not found:
        raise InputError(f"{data}: no file matches; check the pattern, and quote it in the shell")
    return [Path(one) for one in found]


def _listed(path: Path) -> list[Path]:
    """Return the paths in a file; as in PLINK, they are relative to the working directory."""
    with reading(path, "check the file"):
        lines = [line.strip() for line in path.read_text().splitlines()]
    return [Path(line) for line in lines if line and not line.startswith("#")]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts chr2 before chr10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


@register(suffixes=(SUFFIX,), recognise=_paths)
def open_several(paths: list[Path], options: OpenOptions) -> Source:
    """Open genotypes in several files."""
    parts = [open_any(path, options) for path in paths]
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        if not isinstance(part, VariantSource):
            raise InputError(f"{part.name}: only genotypes can be in several files; give one file")
        _check_samples(parts[0], part)
    packed = [part.packed for part in parts]
    if len(set(packed)) > 1:
        one, other = parts[packed.index(True)], parts[packed.index(False)]
        raise InputError(f"{one.name} has calls, {other.name} has dosages; give files of one kind")
    return SeveralGenotypes(parts) if packed[0] else SeveralDosages(parts)


def _check_samples(first: Source, other: Source) -> None:
    """Raise unless both have the same samples in the same order."""
    ids = [list(zip(source.label("fid"), source.label("iid"), strict=True)) for source in (first, other)]
    if len(ids[0]) != len(ids[1]):
        raise InputError(
            f"{other.name}: has {len(ids[1])} samples, {first.name} has {len(ids[0])}; they must be the same"
        )
    for number, (a, b) in enumerate(zip(*ids, strict=True), start=1):
        if a != b:
            raise InputError(
                f"{other.name}: sample {number} is {' '.join(b)}, but {' '.join(a)} in {first.name}; all files must "
                "have the same samples in the same order"
            )


class _Several(VariantSource):
    """Files of genotypes, one after the other."""

    def __init__(self, parts: Sequence[Any]):
        self._parts = list(parts)
        self._stops = np.cumsum([len(part.features) for part in parts])
        names = [name for name in parts[0].features.coords if all(name in part.features.coords for part in parts)]
        variants = {name: np.concatenate([part.label(name) for part in parts]) for name in names}
        samples = {name: values for name, (_, values) in parts[0].samples.coords.items()}
        super().__init__(f"{parts[0].name} and {len(parts) - 1} more", samples, variants, parts[0].dtype)
        # Labels are those of all parts; each of the parts needs none.
        self._parts = [part.bare() for part in parts]
        self.costly = any(part.costly for part in parts)

    @property
    def chunks(self) -> tuple[int, int]:  # type: ignore[override]
        """All samples of the variants of the largest chunk."""
        return len(self.samples), max(1, min(max(part.chunks[1] for part in self._parts), len(self.features)))

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of the read of one part, next to those of a read of all."""
        one = max((1 + part.overhead) * math.prod(part.chunks) * part.item_bytes for part in self._parts)
        return float(one / (math.prod(self.chunks) * self.item_bytes))

    def stamp(self) -> tuple[object, ...]:
        """Return the stamps of all parts."""
        return ("several", *(part.stamp() for part in self._parts))

    def watch(self) -> None:
        """Watch all parts."""
        for part in self._parts:
            part.watch()

    def _each(self, start: int, stop: int, read: Callable[[Any, int, int, slice], int]) -> int:
        """Call read(part, start, stop, place) for each part of a range of variants; return the bytes fetched."""
        n_bytes = 0
        for part, end in zip(self._parts, self._stops, strict=True):
            begin = end - len(part.features)
            first, last = max(start, begin), min(stop, end)
            if first < last:
                n_bytes += read(
                    part, int(first - begin), int(last - begin), slice(int(first - start), int(last - start))
                )
        return n_bytes


class SeveralGenotypes(_Several, GenotypeSource):
    """Packed genotypes in several files."""

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of the read of one part, and of a selection."""
        return float(_Several.overhead.__get__(self) + GenotypeSource.overhead.__get__(self))

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a range of variants from the files that have them."""
        out = scratch("several", (stop - start, packed_width(self._n_stored)), np.uint8)

        def read(part: GenotypeSource, first: int, last: int, place: slice) -> int:
            out[place], fetched = part.read_packed(first, last)
            return fetched

        return out, self._each(start, stop, read)


class SeveralDosages(_Several):
    """Dosages in several files."""

    warm_starts = True

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read selected variants of selected samples from the files that have them; returns samples x variants."""
        chosen = np.arange(self._stops[-1]) if self._variants is None else self._variants
        people = (np.arange(self._n_stored) if self._samples is None else self._samples)[outer_samples]
        rows = chosen[outer_features]
        out = scratch("several", (len(rows), len(people)), self.dtype)
        n_bytes = 0
        # Variants that follow each other are one read.
        runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
        for run in runs:
            start = int(run[0])

            def read(part: VariantSource, first: int, last: int, place: slice, start: int = start) -> int:
                block, fetched = part.read_block(slice(0, self._n_stored), slice(first, last))
                out[start + place.start : start + place.stop] = block[people].T
                return fetched

            n_bytes += self._each(int(rows[start]), int(rows[run[-1]]) + 1, read)
        return out.T, n_bytes
