"""Selection of samples and variants of genotypes before a sweep: by lists, chromosomes and regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.sources.base import Source
from streampca.sources.genotypes import TEXT, chromosome, on_autosomes
from streampca.sources.regions import in_regions, read_regions
from streampca.sources.thresholds import Thresholds

DUPLICATES = ("error", "force-first", "exclude-all", "keep")
MOST_LISTED = 10  # names in a message
IdList = str | Path | Iterable[Any]  # path of a file, or the ids


def select(
    source: Source, *, keep: IdList | None = None, remove: IdList | None = None, extract: IdList | None = None,
    exclude: IdList | None = None, exclude_regions: str | Path | None = None, autosomes: bool = True,
    chr: str | None = None, thin: float | None = None, thin_count: int | None = None, rm_dup: str = "error",
    maf: float = 0.0, geno: float = 1.0, mind: float = 1.0,
) -> Source:  # fmt: skip
    """Return the source of the selected samples and variants.

    Parameters
    ----------
    keep, remove : samples to keep or remove: a file with FID and IID (or IID) per line, or such pairs or ids.
    extract, exclude : variants to keep or exclude: a file with one id per line, or the ids.
    exclude_regions : "GRCh37" or "GRCh38" for the built-in regions of long-range linkage disequilibrium, or a file with
        chromosome, first and last position per line.
    autosomes : keep only chromosomes 1 to 22, if chromosomes are human and `chr` is not given.
    chr : chromosomes to keep, as "1-4,22,X".
    thin, thin_count : keep a random share, or number, of the variants that the other options leave; always the same.
    rm_dup : what to do with variants that have the id and alleles of another one: "error"; "force-first" keeps the
        first of them, "exclude-all" none, "keep" all.
    maf, geno, mind : see `Thresholds`; applied during the first sweep.
    """
    ids = {"keep": keep, "remove": remove, "extract": extract, "exclude": exclude}
    for option, given in ids.items():
        if given is not None:
            source = _select_listed(source, option, given)
    source = _without_duplicates(source, rm_dup)
    if chr is not None:
        source = _select(source, "variants", _on_chromosomes(source, str(chr)), f"by chr {chr}")
    elif autosomes:
        source = _on_autosomes(source)
    if exclude_regions is not None:
        regions = read_regions(exclude_regions)
        outside = ~in_regions(source.label("chromosome"), source.label("position"), regions)
        source = _select(source, "variants", outside, f"in regions of {exclude_regions}")
    if thin is not None or thin_count is not None:
        source = _thinned(source, thin, thin_count)
    return source.take(filter=Thresholds(maf, geno, mind))


def _select_listed(source: Source, option: str, given: IdList) -> Source:
    """Keep or exclude the samples or variants of a list."""
    rows, name = _read_list(given, option)
    if option in ("keep", "remove"):
        what, expected = "samples", "FID and IID, or IID, in each line"
        single = {row[0] for row in rows if len(row) == 1}
        pairs = {tuple(row[:2]) for row in rows if len(row) > 1}
        ids = list(zip(source.label("fid").tolist(), source.label("iid").tolist(), strict=True))
        listed = np.array([pair in pairs or pair[1] in single for pair in ids], bool)
        known = len(pairs.intersection(ids)) + len(single.intersection(iid for _, iid in ids))
        count = len(pairs) + len(single)
    else:
        what, expected = "variants", "one variant id per line"
        names, wanted = source.label("variant_id"), {row[0] for row in rows}
        listed = np.fromiter((name in wanted for name in names), bool, len(names))
        known, count = len(wanted.intersection(names[listed].tolist())), len(wanted)
    if not listed.any():
        raise InputError(f"{name}: contains no {what} of {source.name}; give {expected}")
    reason = f"by {option} of {name}"
    if known < count:
        reason += f", {count - known} of its {count} ids not found"
    return _select(source, what, listed if option in ("keep", "extract") else ~listed, reason)


def _without_duplicates(source: Source, rm_dup: str) -> Source:
    """Exclude variants that have the id and alleles of another one, or raise and list them."""
    if rm_dup not in DUPLICATES:
        raise InputError(f"rm_dup must be one of {', '.join(map(repr, DUPLICATES))}, got {rm_dup!r}")
    ids = source.label("variant_id").tolist()
    if rm_dup == "keep" or len(set(ids)) == len(ids):
        return source
    alleles = zip(source.label("allele_1").tolist(), source.label("allele_2").tolist(), strict=True)
    keys = [(i, *sorted(pair)) for i, pair in zip(ids, alleles, strict=True)]
    counts = Counter(key for key in keys if key[0] != ".")
    twice = [" ".join(key) for key, count in counts.items() if count > 1]
    if not twice:
        return source
    if rm_dup == "error":
        shown = ", ".join(twice[:MOST_LISTED]) + (", ..." if len(twice) > MOST_LISTED else "")
        raise InputError(
            f"{source.name}: {len(twice)} duplicate variants ({shown}); make them unique, or use --rm-dup force-first"
        )
    seen: set[Any] = set()
    kept = []
    for key in keys:
        kept.append(counts[key] < 2 or (rm_dup == "force-first" and key not in seen))
        seen.add(key)
    return _select(source, "variants", np.array(kept, bool), f"duplicates ({len(twice)} ids)")


def _on_chromosomes(source: Source, given: str) -> Array:
    """Return the mask of the variants on listed chromosomes, as "1-4,22,X"; prefixes chr do not matter."""
    wanted: set[str] = set()
    for part in given.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        first, last = chromosome(first), chromosome(last)
        if dash and first.isdecimal() and last.isdecimal():
            wanted |= {str(i) for i in range(int(first), int(last) + 1)}
        elif part:
            wanted.add(chromosome(part))
    codes = source.label("chromosome")
    names = {code: chromosome(code) for code in sorted(set(codes.tolist()))}
    chosen = [code for code, name in names.items() if name in wanted]
    if not chosen:
        raise InputError(f"{source.name}: has no chromosome of chr {given!r}; it has {_listed(names)}")
    return np.isin(codes, np.array(chosen, TEXT))


def _on_autosomes(source: Source) -> Source:
    """Exclude variants that are not on human autosomes; note if chromosomes do not look human."""
    codes = source.label("chromosome")
    inside = on_autosomes(codes)
    if inside is None:
        return source.take(note=f"all chromosomes are used, because their codes are not human: {_listed(codes)}")
    if inside.all():
        return source
    return _select(source, "variants", inside, f"not on chromosomes 1 to 22 ({_listed(codes[~inside])})")


def _listed(names: Iterable[Any]) -> str:
    """Return the first of the different names."""
    different = sorted(set(map(str, names)))
    return ", ".join(different[:MOST_LISTED]) + (", ..." if len(different) > MOST_LISTED else "")


def _thinned(source: Source, share: float | None, count: int | None) -> Source:
    """Keep a random part of the variants."""
    if share is not None and count is not None:
        raise InputError("thin and thin_count exclude each other; give one of them")
    m, rng = source.shape[1], np.random.default_rng(0)
    if count is not None:
        if count < 1:
            raise InputError(f"thin_count must be 1 or more, got {count}")
        kept = np.zeros(m, bool)
        kept[rng.permutation(m)[:count]] = True
        return _select(source, "variants", kept, f"by thin_count {count}")
    least = float(share or 0)
    if not 0 < least <= 1:
        raise InputError(f"thin must be above 0 and at most 1, got {share}")
    return _select(source, "variants", rng.random(m) < least, f"by thin {least:g}")


def _select(source: Source, what: str, mask: Array, reason: str) -> Source:
    """Return the source of some samples or variants, with a note of how many are excluded and why."""
    note = f"{what} excluded: {int((~mask).sum())} {reason}"
    if not mask.any():
        raise InputError(f"{source.name}: no {what} are left ({note}); select more")
    return source.take(samples=mask, note=note) if what == "samples" else source.take(features=mask, note=note)


def _read_list(given: IdList, option: str) -> tuple[list[list[str]], str]:
    """Return the ids of a list, one or two in a row, without comments and blank lines; and its name for messages."""
    if isinstance(given, (str, Path)):
        name = str(given)
        with reading(name, f"--{option} takes a file of ids"):
            lines = Path(given).read_text().splitlines()
        rows = [line.split(maxsplit=2)[:2] for line in lines if line.strip() and not line.startswith("#")]
    else:
        name = "the list"
        rows = [[str(x)] if isinstance(x, (str, int, np.integer)) else [str(y) for y in x] for x in given]
    if not rows:
        raise InputError(f"{name}: is empty; --{option} takes one id per line")
    return rows, name
