"""Kinship of all pairs of samples by KING-robust, out of core, and a large set of unrelated samples.

Over the variants that are called in both samples,

    kinship = 1/2 - (4 IBS0 + d_i + d_j) / (4 (HETHET + min(d_i, d_j)))

HETHET counts variants that are heterozygous in both, d_i those that are heterozygous in sample i and homozygous in j,
IBS0 those with opposite homozygotes. Duplicates have 1/2, parents and children 1/4; 0.354, 0.177, 0.0884 and 0.0442 are
the usual limits of duplicates and of relatives of the first, second and third degree. Different ancestry makes kinship
negative.

A block of variants is turned into three bits per call, in planes with 64 variants of one sample to a word. All counts
of a pair are counts of bits:

    code           two of A1    missing    one of each    two of A2
    heterozygous       0           0            1             0
    homozygous         1           0            0             1
    second             0           0            0             1

Counts of pairs take more memory than genotypes. A pass reads the file once and counts as many rows of the triangle of
pairs as fit. Counts are exact: any memory limit and any number of threads give the same pairs.

References: Manichaikul et al. (2010), Bioinformatics 26, 2867, equation 11; Conomos, Miller & Thornton (2015), Genet.
Epidemiol. 39, 276 (PC-AiR).
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from streampca._typing import Array
from streampca.errors import InputError
from streampca.files import writing_text
from streampca.progress import Progress, Step, silent
from streampca.sources.base import Source
from streampca.sources.packed import FOUR_MISSING, popcount
from streampca.sources.scratch import scratch
from streampca.sweep.checkpoint import active_checkpoint
from streampca.sweep.memory import NUMBA_BYTES, Budget, Needs, footprint, threads_that_fit

DUPLICATES = 0.5  # their kinship
WORD = 64  # variants
WORDS = 256  # of a block for each sample, about: those of two samples fit in the first cache
LEAST_WORDS = 16
ROWS = 32  # samples of a task: their words of a block fit in the second cache
COUNTS = HETHET, HET_FIRST, HET_SECOND, HOMOZYGOUS, IBS0 = tuple(range(5))  # of a pair
PAIR_BYTES = 4 * len(COUNTS)
LISTED_BYTES = PAIR_BYTES + 2 * 4 + 8  # of a pair in the list
LIST_SHARE = 8  # one part in eight of the memory that is left is for listed pairs
SIX_DIGITS = Context(prec=6, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Pairs:
    """Pairs of samples, ordered by the first and then the second sample.

    Attributes
    ----------
    first, second : (p,) indices of the samples, second < first as in tables of PLINK.
    counts : (p, 5) numbers of variants: heterozygous in both, heterozygous in the first or in the second and
        homozygous in the other, homozygous in both, and of these, of opposite alleles.
    kinship : (p,) KING-robust.
    divergent : (n_samples,) number of samples of different ancestry: pairs with a kinship below minus the minimum.
    """

    first: Array
    second: Array
    counts: Array
    kinship: Array
    divergent: Array

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class KinshipPlan:
    """How pairs are counted.

    Attributes
    ----------
    read : variants of one read.
    reads : of a block.
    passes : ranges of rows, one for each pass over the file.
    threads : tasks at a time.
    most_pairs : that may be listed.
    peak_bytes : resident size expected.
    """

    read: int
    reads: int
    passes: tuple[tuple[int, int], ...]
    threads: int
    most_pairs: int
    peak_bytes: int


def plan_kinship(source: Source, memory: Any = None) -> KinshipPlan:
    """Plan passes within a memory limit; raise `MemoryLimitError` if not even the rows of one task fit."""
    if not source.packed:
        raise InputError(f"{source.name}: kinship needs genotype calls (.bed, .pgen, VCF Zarr with call_genotype)")
    budget, (n_samples, n_variants) = Budget.of(memory), source.shape
    if n_samples < 2:
        raise InputError(f"{source.name}: kinship needs at least 2 samples, got {n_samples}")
    word_bytes, all_words = 3 * 8 * (n_samples + 31), -(-n_variants // WORD)
    words = min(LEAST_WORDS, all_words)
    least = PAIR_BYTES * ROWS * n_samples
    # Of a task: the variants that are transposed, and the kinship of its rows, with masks.
    tile = WORD * (n_samples + 31) // 4 + 2 * 8 * ROWS * n_samples
    driver = words * word_bytes + LISTED_BYTES * n_samples + least
    cut, need = footprint(source, Needs(1, tile, driver=driver, libraries=NUMBA_BYTES), budget)
    threads = threads_that_fit(need, budget.limit, budget.threads, "kinship")
    # What is left is for larger blocks, more pairs in the list, and counts.
    left = budget.limit - need.peak(threads)
    more = min(max(WORDS - words, 0), all_words - words, left // 4 // word_bytes)
    listed = left // LIST_SHARE // LISTED_BYTES
    left -= more * word_bytes + listed * LISTED_BYTES
    words, free = words + more, (left + least) // PAIR_BYTES
    # Whole chunks, if they fit in a block.
    read, chunk = min(cut.slab_length, WORD * words), source.chunks[1]
    read = read // chunk * chunk or read
    ends = [0]
    while ends[-1] < n_samples:
        # Rows up to `stop` have (stop - start) * stop counts.
        start = ends[-1]
        stop = (start + math.isqrt(start**2 + 4 * free)) // 2
        ends.append(min(n_samples, max(stop // ROWS * ROWS, start + ROWS)))
    most = max((stop - start) * stop for start, stop in pairwise(ends))
    peak = budget.limit - left - least + PAIR_BYTES * most
    return KinshipPlan(read, words // -(-read // WORD), tuple(pairwise(ends)), threads, n_samples + listed, peak)


def kinship(source: Source, least: float, *, memory: Any = None, progress: Progress = silent) -> Pairs:
    """Return the pairs of samples with a kinship of at least `least`.

    All variants of the source are used, as diploid. Pairs without a variant that is heterozygous in one of the two are
    not listed.

    Parameters
    ----------
    source : genotype calls.
    least : minimum kinship.
    memory, progress : as for fits.
    """
    if not least <= DUPLICATES:
        raise InputError(f"threshold must be at most {DUPLICATES}, that of duplicates, got {least!r}")
    plan, checkpoint = plan_kinship(source, memory), active_checkpoint()
    asked = (source.fingerprint() if checkpoint else "", float(least))
    parts: list[dict[str, Any]] = []
    with ThreadPoolExecutor(plan.threads) as pool:
        for number, (start, stop) in enumerate(plan.passes, start=1):
            name = f"kinship-{start}-{stop}"
            part = checkpoint.recall(name, asked) if checkpoint else None
            if part is None:
                counting = _Pass(source, plan, start, stop, pool)
                counting.count(number, progress)
                part = counting.listed(least)
                if checkpoint:
                    checkpoint.keep(name, asked, part)
            parts.append(part)
            found = sum(len(one["first"]) for one in parts)
            if found > plan.most_pairs:
                raise InputError(
                    f"{source.name}: {found} pairs or more have a kinship of at least {least:g}, and "
                    f"{plan.most_pairs} fit in memory; increase the minimum kinship or the memory limit"
                )
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("first", "second", "counts", "kinship")}
    return Pairs(**joined, divergent=sum(part["divergent"] for part in parts))


class _Pass:
    """One read of the file, for the pairs of rows start to stop with all samples before them."""

    def __init__(self, source: Source, plan: KinshipPlan, start: int, stop: int, pool: ThreadPoolExecutor):
        self.source, self.plan, self.start, self.stop, self.pool = source, plan, start, stop, pool
        self.planes = np.empty((-(-stop // 32) * 32, 3, plan.reads * -(-plan.read // WORD)), np.uint64)
        self.counts = np.zeros((stop - start, stop, len(COUNTS)), np.int32)
        self.tiles = [slice(i, min(i + ROWS, stop)) for i in range(start, stop, ROWS)]

    def count(self, number: int, progress: Progress) -> None:
        """Read all variants, block by block, and add them to the counts."""
        self.source.watch()
        reads, began = range(0, self.source.shape[1], self.plan.read), time.monotonic()
        for done in range(0, len(reads), self.plan.reads):
            block = reads[done : done + self.plan.reads]
            list(self.pool.map(self._fill, block, range(len(block))))
            n_words = len(block) * -(-self.plan.read // WORD)
            list(self.pool.map(self._add, self.tiles, repeat(n_words)))
            progress(Step(number, "kinship", done + len(block), len(reads), time.monotonic() - began))
        self.source.watch()

    def _fill(self, start: int, place: int) -> None:
        """Read variants, and write their bits to the words at a place in the block; the last word may be padded."""
        stop = min(start + self.plan.read, self.source.shape[1])
        packed, _ = self.source.read_packed(start, stop)
        rows = scratch("words", (WORD, len(self.planes) // 4), np.uint8)
        n_bytes = min(rows.shape[1], packed.shape[1])
        n_words = -(-self.plan.read // WORD)
        for w in range(n_words):
            part = packed[WORD * w : WORD * (w + 1), :n_bytes]
            rows[: len(part), :n_bytes] = part
            rows[len(part) :] = FOUR_MISSING
            transpose(rows.view(np.uint64), self.planes[:, :, place * n_words + w])

    def _add(self, rows: slice, n_words: int) -> None:
        count_pairs(self.planes, n_words, rows.start, self.counts[rows.start - self.start : rows.stop - self.start])

    def listed(self, least: float) -> dict[str, Array]:
        """Return the pairs with at least this kinship, and the number of divergent pairs of each sample."""
        parts = list(self.pool.map(lambda rows: self._list_rows(rows, least), self.tiles))
        listed = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        divergent = np.zeros(self.source.shape[0], np.int64)
        np.add.at(divergent, listed.pop("apart"), listed.pop("often"))
        return listed | {"divergent": divergent}

    def _list_rows(self, rows: slice, least: float) -> dict[str, Array]:
        counts = self.counts[rows.start - self.start : rows.stop - self.start]
        values = scratch("kinship", counts.shape[:2], np.float64)
        kinship_rows(counts, rows.start, values)
        i, j = np.nonzero(values >= least)
        apart = values < -abs(least)
        return {
            "first": (i + rows.start).astype(np.int32), "second": j.astype(np.int32), "counts": counts[i, j],
            "kinship": values[i, j],
            "apart": np.concatenate([np.arange(rows.start, rows.stop), np.arange(self.stop)]),
            "often": np.concatenate([np.count_nonzero(apart, axis=1), np.count_nonzero(apart, axis=0)]),
        }  # fmt: skip


@njit(nogil=True, cache=True)
def transpose(words: Array, planes: Array) -> None:  # pragma: no cover - compiled
    """Write 64 packed variants (64 x n / 32 words) into one word of each plane (n x 3).

    The 64 x 64 bits of 32 samples are transposed by swapping ever smaller squares (Hacker's Delight, section 7-3).
    """
    square = np.empty(64, np.uint64)
    for c in range(words.shape[1]):
        square[:] = words[:, c]
        half, mask = 32, np.uint64(0xFFFFFFFF)
        while half:
            shift = np.uint64(half)
            for k in range(64):
                if k & half == 0:
                    swapped = ((square[k] >> shift) ^ square[k + half]) & mask
                    square[k] ^= swapped << shift
                    square[k + half] ^= swapped
            half //= 2
            mask ^= mask << np.uint64(half)
        for s in range(32):
            low, high = square[2 * s], square[2 * s + 1]
            planes[32 * c + s, 0] = high & ~low
            planes[32 * c + s, 1] = ~(low ^ high)
            planes[32 * c + s, 2] = high & low


@njit(nogil=True, cache=True)
def count_pairs(planes: Array, n_words: int, first: int, counts: Array) -> None:  # pragma: no cover - compiled
    """Add the counts of samples from `first` on, each with all samples before it, to counts (rows x n x 5)."""
    stop = first + len(counts)
    for j in range(stop - 1):
        het_j, hom_j, two_j = planes[j, 0], planes[j, 1], planes[j, 2]
        for i in range(max(first, j + 1), stop):
            het_i, hom_i, two_i = planes[i, 0], planes[i, 1], planes[i, 2]
            hethet = het_first = het_second = homozygous = ibs0 = 0
            for w in range(n_words):
                same = hom_i[w] & hom_j[w]
                hethet += popcount(het_i[w] & het_j[w])
                het_first += popcount(het_i[w] & hom_j[w])
                het_second += popcount(hom_i[w] & het_j[w])
                homozygous += popcount(same)
                ibs0 += popcount(same & (two_i[w] ^ two_j[w]))
            pair = counts[i - first, j]
            pair[HETHET] += hethet
            pair[HET_FIRST] += het_first
            pair[HET_SECOND] += het_second
            pair[HOMOZYGOUS] += homozygous
            pair[IBS0] += ibs0


@njit(nogil=True, cache=True)
def kinship_rows(counts: Array, first: int, out: Array) -> None:  # pragma: no cover - compiled
    """Write the kinship of samples from `first` on with those before them; NaN for other and for undefined pairs."""
    for r in range(out.shape[0]):
        out[r] = np.nan
        for j in range(first + r):
            pair = counts[r, j]
            one, other = pair[HET_FIRST], pair[HET_SECOND]
            shared, different = pair[HETHET] + min(one, other), 4 * pair[IBS0] + one + other
            if shared:
                out[r, j] = 0.5 - different / (4.0 * shared)
            elif different:
                out[r, j] = -np.inf


def unrelated(pairs: Pairs) -> Array:
    """Return the mask of a large set of samples without any of these pairs.

    Samples are removed until no pair is left. The relative of a sample with one relative comes first, which costs
    nothing; then the sample with the most relatives. Of those with equally many, the one with the fewest divergent
    pairs is removed, as many others share its ancestry; then the last one.
    """
    members, numbers = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    relatives: list[set[int]] = [set() for _ in members]
    for i, j in zip(*np.split(numbers, 2), strict=True):
        relatives[i].add(int(j))
        relatives[j].add(int(i))
    degrees, divergent = np.array([len(others) for others in relatives], int), pairs.divergent[members]
    single = np.flatnonzero(degrees == 1)[::-1].tolist()
    kept = np.ones(len(pairs.divergent), bool)
    while degrees.any():
        if single:
            i = single.pop()
            candidates = np.array([i, *relatives[i]])
        else:
            candidates = np.arange(len(members))
        most = candidates[degrees[candidates] == degrees[candidates].max()]
        if not degrees[most[0]]:
            # Its relative has been removed.
            continue
        worst = int(most[divergent[most] == divergent[most].min()].max())
        kept[members[worst]] = False
        for other in relatives[worst]:
            relatives[other].discard(worst)
            degrees[other] -= 1
            if degrees[other] == 1:
                single.append(other)
        relatives[worst], degrees[worst] = set(), 0
    return kept


def write_table(source: Source, pairs: Pairs, path: Path) -> None:
    """Write pairs as plink2 --make-king-table does."""
    ids = sample_ids(source)
    names = ("FID", "IID") if "\t" in ids[0] else ("IID",)
    header = [f"{name}{side}" for side in (1, 2) for name in names]
    called = pairs.counts[:, :IBS0].sum(axis=1)
    shares = pairs.counts[:, [HETHET, IBS0]] / called[:, None]
    samples = zip(pairs.first.tolist(), pairs.second.tolist(), called.tolist(), strict=True)
    values = zip(*shares.T.tolist(), pairs.kinship.tolist(), strict=True)
    with writing_text(path) as file:
        file.write("\t".join(["#" + header[0], *header[1:], "NSNP", "HETHET", "IBS0", "KINSHIP"]) + "\n")
        for (i, j, n), row in zip(samples, values, strict=True):
            file.write("\t".join([ids[i], ids[j], str(n), *map(_six_digits, row)]) + "\n")


def _six_digits(value: float) -> str:
    """Return a number with six digits; ties go to the even digit, as in PLINK, also if the number is rounded."""
    return f"{float(SIX_DIGITS.create_decimal(f'{value:.12g}')):.6g}"


def write_ids(source: Source, chosen: Array, path: Path) -> None:
    """Write the ids of some samples, as plink2 --king-cutoff does."""
    ids = sample_ids(source)
    with writing_text(path) as file:
        file.write("#FID\tIID\n" if "\t" in ids[0] else "#IID\n")
        file.writelines(f"{ids[i]}\n" for i in np.flatnonzero(chosen))


def sample_ids(source: Source) -> list[str]:
    """Return FID and IID of each sample, or IID if there are no families."""
    fids, iids = source.label("fid").tolist(), source.label("iid").tolist()
    if all(fid in ("0", "") for fid in fids):
        return [str(iid) for iid in iids]
    return [f"{fid}\t{iid}" for fid, iid in zip(fids, iids, strict=True)]
