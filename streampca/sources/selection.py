"""Selection of samples and variants of genotypes before a sweep: by lists, chromosomes and regions."""

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

IdList = str | Path | Iterable[Any]  # path of a file, or the ids


def select(
    source: Source, *, keep: IdList | None = None, remove: IdList | None = None, extract: IdList | None = None,
    exclude: IdList | None = None, exclude_regions: str | Path | None = None, autosomes: bool = True, maf: float = 0.0,
    geno: float = 1.0, mind: float = 1.0,
) -> Source:  # fmt: skip
    """Return the source of the selected samples and variants.

    Parameters
    ----------
    keep, remove : samples to keep or remove: a file with FID and IID (or IID) per line, or such pairs or ids.
    extract, exclude : variants to keep or exclude: a file with one id per line, or the ids.
    exclude_regions : "GRCh37" or "GRCh38" for the built-in regions of long-range linkage disequilibrium, or a file with
        chromosome, first and last position per line.
    autosomes : keep only chromosomes 1 to 22, if chromosomes are human.
    maf, geno, mind : thresholds of `Filter`, applied during the first sweep.
    """
    chosen = _select_samples(source, keep, remove)
    chosen = _select_variants(chosen, extract, exclude)
    if autosomes:
        inside = on_autosomes(chosen.label("chromosome"))
        if inside is not None and not inside.all():
            note = f"variants excluded: {int((~inside).sum())} not on chromosomes 1 to 22"
            chosen = _remaining(chosen, "variants", inside, note)
    if exclude_regions is not None:
        regions = named_regions(exclude_regions)
        outside = ~in_regions(chosen.label("chromosome"), chosen.label("position"), regions)
        note = f"variants excluded: {int((~outside).sum())} in regions of {exclude_regions}"
        chosen = _remaining(chosen, "variants", outside, note)
    return chosen.take(filter=Filter(maf, geno, mind))


def _remaining(source: Source, what: str, mask: Array, note: str) -> Source:
    if not mask.any():
        raise InputError(f"{source.name}: no {what} are left ({note}); select more")
    return source.take(samples=mask, note=note) if what == "samples" else source.take(features=mask, note=note)


def _select_samples(source: Source, keep: IdList | None, remove: IdList | None) -> Source:
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
            raise InputError(f"{name}: contains no sample of {source.name}; give FID and IID, or IID, in each line")
        mask = inside if wanted else ~inside
        source = _remaining(source, "samples", mask, f"samples excluded: {int((~mask).sum())} by {option} of {name}")
    return source


def _select_variants(source: Source, extract: IdList | None, exclude: IdList | None) -> Source:
    for option, wanted, given in (("extract", True, extract), ("exclude", False, exclude)):
        if given is None:
            continue
        rows, name = _rows(given, option)
        inside = np.isin(source.label("variant_id"), np.array([row[0] for row in rows], TEXT))
        if not inside.any():
            raise InputError(f"{name}: contains no variant of {source.name}; give one variant id per line")
        mask = inside if wanted else ~inside
        source = _remaining(source, "variants", mask, f"variants excluded: {int((~mask).sum())} by {option} of {name}")
    return source


def _rows(given: IdList, option: str) -> tuple[list[list[str]], str]:
    """Return the fields of each line of a list, without comments and blank lines, and its name for messages."""
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
        raise InputError(f"{name}: is empty; --{option} takes one id per line")
    return rows, name
