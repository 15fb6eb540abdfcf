"""Matching of the variants of new data to those of a fit, by id and alleles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.base import Source
from streampca.sources.genotypes import chromosome

VARIANT_LABELS = ("variant_id", "allele_1", "allele_2", "chromosome", "position")
COMPLEMENT = str.maketrans("ACGT", "TGCA")


@dataclass(frozen=True)
class Match:
    """Variants of new data that are those of a fit.

    Attributes
    ----------
    fitted, new : indices of the matching variants, in the fit and in the new data.
    flipped : whether the new data count the other allele.
    absent, other_alleles, ambiguous : numbers of fitted variants that are missing, that have other alleles, and that
        were dropped because their alleles are the same on both strands.
    """

    fitted: Array
    new: Array
    flipped: Array
    absent: int
    other_alleles: int
    ambiguous: int

    @property
    def note(self) -> str:
        """The numbers of variants in words."""
        total = len(self.fitted) + self.absent + self.other_alleles + self.ambiguous
        counts = (
            (int(self.flipped.sum()), "of these with swapped alleles"),
            (self.absent, "missing"),
            (self.other_alleles, "with other alleles"),
            (self.ambiguous, "dropped as strand-ambiguous"),
        )
        parts = [f"{len(self.fitted)} of {total} variants match", *(f"{n} {what}" for n, what in counts if n)]
        return ", ".join(parts)


def match_variants(fitted: Mapping[str, Array], source: Source, *, drop_ambiguous: bool = False) -> Match:
    """Match variants by id and alleles, on either strand and in either order.

    Variants without an id (".") are matched by chromosome and position.

    Parameters
    ----------
    fitted : VARIANT_LABELS of the fit.
    source : new data.
    drop_ambiguous : drop variants whose alleles are the same on both strands.
    """
    places: dict[str, list[tuple[int, str, str]]] = {}
    for j, (name, a, b) in enumerate(_named_alleles({x: source.label(x) for x in VARIANT_LABELS})):
        places.setdefault(name, []).append((j, a, b))
    matching: list[tuple[int, int, bool]] = []  # new, fitted, flipped
    absent = other = ambiguous = 0
    for i, (name, a, b) in enumerate(_named_alleles(fitted)):
        if drop_ambiguous and a.translate(COMPLEMENT) == b:
            ambiguous += 1
            continue
        candidates = places.get(name, [])
        same = [(j, i, flip) for j, *alleles in candidates if (flip := _flip((a, b), tuple(alleles))) is not None]
        if len(same) > 1:
            raise InputError(f"{source.name}: duplicate variant {name} {a} {b}; remove one of them")
        matching += same
        if not same:
            absent, other = absent + (not candidates), other + bool(candidates)
    if not matching:
        raise InputError(f"{source.name}: has none of the {len(fitted['variant_id'])} variants fitted; check the ids")
    new, here, flipped = (np.array(column) for column in zip(*sorted(matching), strict=True))
    return Match(here, new, flipped, absent, other, ambiguous)


def _named_alleles(labels: Mapping[str, Array]) -> Iterator[tuple[str, str, str]]:
    """Yield the id of each variant, or its position, and its alleles."""
    columns = (labels[name].tolist() for name in VARIANT_LABELS)
    for name, a, b, code, position in zip(*columns, strict=True):
        yield f"{chromosome(code)}:{position}" if name == "." else name, a.upper(), b.upper()


def _flip(fitted: tuple[str, str], new: tuple[str, ...]) -> bool | None:
    """Whether the alleles are those fitted in reverse order; None if they are others.

    An allele that no sample has is "0" in PLINK 1 files, and matches any.
    """
    for a, b in (fitted, tuple(allele.translate(COMPLEMENT) for allele in fitted)):
        for flipped, pair in ((False, (a, b)), (True, (b, a))):
            if all(one in (other, "0") for one, other in zip(new, pair, strict=True)):
                return flipped
    return None


def match_samples(fitted: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> Array:
    """Return for each new sample (FID, IID) its place among the fitted ones, -1 if it is none of them.

    Families may differ if one of the two files has none: the FID is 0 or the IID.
    """
    pairs = {pair: i for i, pair in enumerate(fitted)}
    twice = Counter(iid for _, iid in fitted)
    single = {iid: i for i, (_, iid) in enumerate(fitted) if twice[iid] == 1}

    def place(fid: str, iid: str) -> int:
        if (fid, iid) in pairs:
            return pairs[fid, iid]
        i = single.get(iid, -1)
        return i if i >= 0 and ({fid, fitted[i][0]} & {"0", iid}) else -1

    return np.array([place(*pair) for pair in new], np.int64)
