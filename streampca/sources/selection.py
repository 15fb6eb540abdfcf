"""Which samples and variants of a genotype source to use: lists, chromosomes, regions. All known before a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.sources.base import Source
from streampca.sources.filters import Filter
from streampca.sources.genotypes import TEXT, on_autosomes
from streampca.sources.regions import in_regions, named_regions

# A list: the path of a file, or the ids themselves.
Ids = str | Path | Iterable[Any]


def select(
    source: Source, *, keep: Ids | None = None, remove: Ids | None = None, extract: Ids | None = None,
    exclude: Ids | None = None, exclude_regions: str | Path | None = None, autosomes: bool = True, maf: float = 0.0,
    geno: float = 1.0, mind: float = 1.0,
) -> Source:  # fmt: skip
    """Return the source of the samples and variants chosen.

    Parameters
    ----------
    keep, remove : samples to use, or not to: a file with FID and IID (or IID alone) in each line, or such pairs or ids.
    extract, exclude : variants to use, or not to: a file with one id in each line, or the ids.
    exclude_regions : regions not to use: "GRCh37" or "GRCh38" for the built-in lists of long-range linkage
        disequilibrium, or a file with chromosome, first and last position in each line.
    autosomes : use chromosomes 1 to 22 alone, where the codes are those of man.
    maf, geno, mind : see `Filter`; looked at during the first sweep.
    """
    chosen = _select_samples(source, keep, remove)
    chosen = _select_variants(chosen, extract, exclude)
    if autosomes:
        inside = on_autosomes(chosen.label("chromosome"))
        if inside is not None and not inside.all():
            note = f"variants left out: {int((~inside).sum())} not on chromosomes 1 to 22"
            chosen = _left(chosen, "variants", inside, note)
    if exclude_regions is not None:
        regions = named_regions(exclude_regions)
        outside = ~in_regions(chosen.label("chromosome"), chosen.label("position"), regions)
        note = f"variants left out: {int((~outside).sum())} in regions of {exclude_regions}"
        chosen = _left(chosen, "variants", outside, note)
    return chosen.take(filter=Filter(maf, geno, mind))


def _left(source: Source, what: str, mask: Array, note: str) -> Source:
    if not mask.any():
        raise InputError(f"{source.name}: no {what} are left ({note}); ask for less")
    return source.take(samples=mask, note=note) if what == "samples" else source.take(features=mask, note=note)


def _select_samples(source: Source, keep: Ids | None, remove: Ids | None) -> Source:
    for option, wanted, given in (("keep", True, keep), ("remove", False, remove)):
        if given is None:
            continue
        rows, name = _rows(given, option)
        fid, iid = (source.label(x).tolist() for x in ("fid", "iid"))
        alone = {row[0] for row in rows if len(row) == 1}
        pairs = {tuple(row[:2]) for row in rows if len(row) > 1}
        both = zip(fid, iid, strict=True)
        inside = np.fromiter((pair in pairs or pair[1] in alone for pair in both), bool, len(iid))
        if not inside.any():
            raise InputError(f"{name}: names none of the samples of {source.name}; lines are FID and IID, or IID alone")
        mask = inside if wanted else ~inside
        source = _left(source, "samples", mask, f"samples left out: {int((~mask).sum())} by {option} of {name}")
    return source


def _select_variants(source: Source, extract: Ids | None, exclude: Ids | None) -> Source:
    for option, wanted, given in (("extract", True, extract), ("exclude", False, exclude)):
        if given is None:
            continue
        rows, name = _rows(given, option)
        inside = np.isin(source.label("variant_id"), np.array([row[0] for row in rows], TEXT))
        if not inside.any():
            raise InputError(f"{name}: names none of the variants of {source.name}; lines are variant ids")
        mask = inside if wanted else ~inside
        source = _left(source, "variants", mask, f"variants left out: {int((~mask).sum())} by {option} of {name}")
    return source


def _rows(given: Ids, option: str) -> tuple[list[list[str]], str]:
    """Return the fields of each line of a list, header and blank lines left out, and what to call it."""
    if isinstance(given, (str, Path)):
        try:
            lines = Path(given).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise InputError(f"{given}: cannot be read ({reason}); --{option} takes a file of ids") from error
        rows, name = (
            [line.split(maxsplit=2)[:2] for line in lines if line.strip() and not line.startswith("#")],
            str(given),
        )
    else:
        rows = [[str(x)] if isinstance(x, (str, int, np.integer, np.str_)) else [str(y) for y in x] for x in given]
        name = "the list"
    if not rows:
        raise InputError(f"{name}: is empty; --{option} takes one id in each line")
    return rows, name
