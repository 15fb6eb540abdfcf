"""Pruning of variants by linkage disequilibrium, out of core: one read of the file, with one window in memory.

The rule is that of plink's --indep-pairwise in PLINK 1.9 and PLINK 2.0 alpha 3 (--indep-order 1 in later versions). In
each window, every remaining variant is compared with those after it, until their squared correlation exceeds the limit;
then the variant with the lower minor allele frequency is removed, or the later one if they are equal, and the next
variant follows. This is repeated until no pair is left. Removed variants are not seen by later windows, and no pair is
compared twice.

A genotype is -1, 0 or 1, and correlations are over the samples with calls of both variants. With two bits per sample,
in two planes, all sums of a correlation are exact counts of bits:

    code     two of A1    missing    one of each    two of A2
    whole        1           0            0             1
    second       0           0            1             1
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.progress import Progress, Step, silent
from streampca.solvers.base import excluded_variants
from streampca.solvers.restart import without_sparse
from streampca.sources.base import Source
from streampca.sources.compiled import compiled
from streampca.sources.genotypes import chromosome
from streampca.sources.packed import EVEN, FOUR_MISSING, count_codes, count_missing, popcount
from streampca.sources.regions import chromosome_runs
from streampca.sources.thresholds import Thresholds
from streampca.sweep.checkpoint import active_checkpoint
from streampca.sweep.matrix import moments_of_codes
from streampca.sweep.memory import (
    NUMBA_BYTES,
    PROCESS_RESERVE,
    TASK_RESERVE,
    TEXT_BYTES,
    Budget,
    Footprint,
    thread_count,
    threads_that_fit,
)  # fmt: skip

SLACK = 1 + 2.0**-44  # tolerance of the limit, as in PLINK
ONE = np.uint64(1)


def prune(
    source: Source, *, window: str | int = "50", step: int = 5, r2: float = 0.2, progress: Progress = silent,
    budget: Budget | None = None,
) -> Array:  # fmt: skip
    """Return the mask of variants to keep, of which no two in a window are strongly correlated.

    Monomorphic variants are removed. All samples are used, and all chromosomes are treated as diploid.

    Parameters
    ----------
    source : genotypes, sorted by position within each chromosome.
    window : number of variants ("50") or kilobases ("500kb").
    step : variants by which the window advances; 1 for a window in kilobases.
    r2 : maximum squared correlation of two variants of a window.
    progress : called after each read.
    budget : memory and threads; None for all threads and no limit.

    Returns
    -------
    kept : mask of the source's variants.
    """
    _check_packed(source)
    size, kilobases = _parse_window(window)
    if not (isinstance(step, (int, np.integer)) and step >= 1):
        raise InputError(f"step must be a number of variants of 1 or more, got {step!r}")
    if kilobases and step != 1:
        raise InputError(f"step must be 1 with a window in kilobases, got step={step} and window={window!r}")
    if not kilobases and step > size:
        raise InputError(f"step must be at most window={window}, or pairs are missed, got {step}")
    if not (isinstance(r2, (int, float)) and 0 <= r2 <= 1):
        raise InputError(f"r2 must be a number from 0 to 1, got {r2!r}")
    runs = _chromosomes(source)
    positions, kept = source.label("position"), np.zeros(len(source.features), bool)
    lock, began, done, earlier = threading.Lock(), time.monotonic(), 0, 0
    total = sum(len(range(start, stop, source.chunks[1])) for start, stop in runs)
    windows = {run: _windows(positions[slice(*run)], size, int(step), kilobases) for run in runs}
    checkpoint = active_checkpoint()
    asked = (source.fingerprint() if checkpoint else "", str(window), int(step), float(r2))

    def advance(reads: int = 1, before: bool = False) -> None:
        nonlocal done, earlier
        with lock:
            done, earlier = done + reads, earlier + reads * before
            progress(Step(0, "pruning", done, total, time.monotonic() - began, earlier=earlier))

    def prune_run(run: tuple[int, int]) -> None:
        here, name = slice(*run), f"pruned-{run[0]}-{run[1]}"
        known = checkpoint.recall(name, asked) if checkpoint else None
        if known is not None:
            kept[here] = known["kept"]
            advance(len(range(*run, source.chunks[1])), before=True)
            return
        _prune_run(source, run, *windows[run], r2 * SLACK, kept[here], advance)
        if checkpoint:
            checkpoint.keep(name, asked, {"kept": kept[here]})

    threads = thread_count()
    if budget is not None:
        longest = max(int((ends - starts).max()) for starts, ends in windows.values())
        # Two planes of bits of the window and a chunk, the padded chunk, and the chunk as it is read.
        task = 16 * -(-source.shape[0] // 64) * (longest + 3 * source.chunks[1]) + TASK_RESERVE
        held = TEXT_BYTES * sum(source.shape)
        need = Footprint(budget.baseline + PROCESS_RESERVE + NUMBA_BYTES, held, task, 0, 0)
        threads = threads_that_fit(need, budget.limit, budget.threads, "pruning")
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(prune_run, runs))
    return kept


def filtered(source: Source) -> Source:
    """Return the source without what its filter excludes; one read, or two if samples are excluded."""
    _check_packed(source)
    if source.filter in (None, Thresholds()):
        return source
    n_samples, n_variants = source.shape
    step = source.chunks[1]
    missing = np.zeros(n_samples, np.int64)
    parts = []
    for start in range(0, n_variants, step):
        packed, _ = source.read_packed(start, min(start + step, n_variants))
        parts.append(count_codes(packed, n_samples))
        count_missing(packed, missing)
    full = missing / n_variants <= source.filter.mind
    if not full.all():
        return filtered(without_sparse(source, full))
    moments = moments_of_codes(np.concatenate(parts))
    passing = source.filter.passing(moments.mean / 2, moments.missing / n_samples)
    why = excluded_variants(source.filter, moments)
    if not passing.any():
        raise InputError(f"{source.name}: no variants are left: {why}")
    return source.take(features=passing, filter=Thresholds(), note=f"variants excluded: {why}" if why else "")


def list_paths(source: Source, prefix: Path) -> list[Path]:
    """Return the paths of the lists of variants kept and removed; raise if they cannot be written."""
    _check_packed(source)
    ids = source.label("variant_id")
    if len(set(ids.tolist())) < ids.size:
        raise InputError(f"{source.name}: variant ids are not unique; change them with plink2 --set-all-var-ids")
    return text_paths(prefix, (".prune.in", ".prune.out"), overwrite=True)


def write_lists(source: Source, kept: Array, prefix: Path) -> list[Path]:
    """Write ids of variants, those kept to prefix.prune.in and the others to prefix.prune.out; returns the paths."""
    paths = list_paths(source, prefix)
    for path, chosen in zip(paths, (kept, ~kept), strict=True):
        with writing_text(path) as file:
            file.writelines(f"{name}\n" for name in source.label("variant_id")[chosen])
    return paths


def _check_packed(source: Source) -> None:
    if not source.packed:
        raise InputError(f"{source.name}: pruning needs genotype calls (.bed, .pgen, VCF Zarr with call_genotype)")


def _parse_window(window: str | int) -> tuple[int, bool]:
    """Return the length of the window, and whether it is in bases rather than variants."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(kb)?\s*", str(window), re.IGNORECASE)
    kilobases = bool(match and match[2])
    length = float(match[1]) * (1000 if kilobases else 1) if match else 0.0
    if length < 1 or not (kilobases or length.is_integer()):
        raise InputError(f"window must be a number of variants (50) or kilobases (500kb), got {window!r}")
    return int(length * SLACK), kilobases


def _chromosomes(source: Source) -> list[tuple[int, int]]:
    """Return the range of variants of each chromosome; raise if they are not sorted."""
    codes, positions = source.label("chromosome"), source.label("position")
    runs = list(chromosome_runs(codes))
    seen: set[str] = set()
    for start, stop in runs:
        back = np.flatnonzero(positions[start + 1 : stop] < positions[start : stop - 1])
        name = chromosome(str(codes[start]))
        if name in seen or back.size:
            i = start if name in seen else start + 1 + int(back[0])
            where = f"{source.label('variant_id')[i]} at {codes[i]}:{positions[i]}"
            reason = "follows another chromosome" if name in seen else f"follows {positions[i - 1]}"
            raise InputError(
                f"{source.name}: positions are not sorted, variant {where} {reason}; "
                "sort the file with plink2 --sort-vars and --make-pgen, then --make-bed"
            )
        seen.add(name)
    return runs


def _windows(positions: Array, size: int, step: int, kilobases: bool) -> tuple[Array, Array]:
    """Return starts and ends of the windows of a chromosome; each has variants that are not in the previous one."""
    n = len(positions)
    if kilobases:
        ends = np.searchsorted(positions, positions + size, side="right")
        starts = np.flatnonzero(np.diff(ends, prepend=0))
        return starts, ends[starts]
    starts = step * np.arange(-(-max(n - size, 0) // step) + 1)
    return starts, np.minimum(starts + size, n)


def _prune_run(
    source: Source, run: tuple[int, int], starts: Array, ends: Array, limit: float, kept: Array,
    advance: Callable[[], None],
) -> None:  # fmt: skip
    """Prune one chromosome: read a chunk, prune the windows that are complete, reuse the slots before the next one."""
    n_samples = len(source.samples)
    n_words = -(-n_samples // 64)
    step = source.chunks[1]
    # Variant i of the chromosome is at i modulo the number of slots.
    n_slots = int((ends - starts).max()) + step
    planes = np.empty((n_slots, 2, n_words), np.uint64)
    counts, unchecked = np.empty((n_slots, 3), np.int64), np.empty(n_slots, np.int64)
    padded = np.empty((step, 16 * n_words), np.uint8)
    todo = 0
    for start in range(*run, step):
        stop = min(start + step, run[1])
        packed, _ = source.read_packed(start, stop)
        _pad(packed, n_samples, padded)
        unpack(padded[: stop - start].view(np.uint64), start - run[0], planes, counts, unchecked, kept)
        ready = int(np.searchsorted(ends, stop - run[0], side="right"))
        thin(starts[todo:ready], ends[todo:ready], n_samples, limit, planes, counts, unchecked, kept)
        todo = ready
        advance()


def _pad(packed: Array, n_samples: int, out: Array) -> None:
    """Copy packed rows into longer ones, padded with missing calls."""
    rows, (full, rest) = out[: len(packed)], divmod(n_samples, 4)
    rows[:, :full] = packed[:, :full]
    rows[:, full:] = FOUR_MISSING
    if rest:
        used = (1 << 2 * rest) - 1
        rows[:, full] = (packed[:, full] & used) | (FOUR_MISSING & ~used)


@compiled
def unpack(
    words: Array, first: int, planes: Array, counts: Array, unchecked: Array, kept: Array
) -> None:  # pragma: no cover - compiled
    """Compute planes and counts of packed variants (t x 2 n_words), the first of which is variant `first`.

    Two words of 32 samples make one of 64, with the samples of one at even bits and of the other at odd bits; their
    order does not matter.
    """
    n_slots, _, n_words = planes.shape
    for v in range(words.shape[0]):
        slot = (first + v) % n_slots
        whole, second = planes[slot, 0], planes[slot, 1]
        called = same = twos = 0
        for w in range(n_words):
            a, b = words[v, 2 * w], words[v, 2 * w + 1]
            low = (a & EVEN) | ((b & EVEN) << ONE)
            high = ((a >> ONE) & EVEN) | (b & ~EVEN)
            whole[w], second[w] = ~(low ^ high), high
            called += popcount(whole[w] | high)
            same += popcount(whole[w])
            twos += popcount(whole[w] & high)
        total = 2 * twos - same
        counts[slot, 0], counts[slot, 1], counts[slot, 2] = called, total, same
        unchecked[slot] = first + v + 1
        kept[first + v] = same * called > total * total


@compiled
def thin(
    starts: Array, ends: Array, n_samples: int, limit: float, planes: Array, counts: Array, unchecked: Array,
    kept: Array,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Remove correlated variants from each window."""
    n_slots = len(planes)
    for window in range(len(starts)):
        end = ends[window]
        changed = True
        while changed:
            changed = False
            for i in range(starts[window], end):
                if not kept[i]:
                    continue
                a = i % n_slots
                j = unchecked[a]
                while j < end:
                    b = j % n_slots
                    j += 1
                    if kept[j - 1] and above(planes[a], planes[b], counts[a], counts[b], n_samples, limit):
                        # A more frequent major allele means a rarer minor one.
                        if abs(counts[a, 1]) * counts[b, 0] > abs(counts[b, 1]) * counts[a, 0]:
                            kept[i] = False
                        else:
                            kept[j - 1] = False
                        changed = True
                        break
                unchecked[a] = j


@compiled
def above(
    planes_a: Array, planes_b: Array, counts_a: Array, counts_b: Array, n_samples: int, limit: float
) -> bool:  # pragma: no cover - compiled
    """Whether the squared correlation of two variants exceeds the limit."""
    whole_a, second_a, whole_b, second_b = planes_a[0], planes_a[1], planes_b[0], planes_b[1]
    n, sum_a, square_a = counts_a
    _, sum_b, square_b = counts_b
    same = other = 0
    if counts_a[0] == n_samples and counts_b[0] == n_samples:
        for w in range(len(whole_a)):
            both = whole_a[w] & whole_b[w]
            same += popcount(both)
            other += popcount(both & (second_a[w] ^ second_b[w]))
    else:
        n = square_a = square_b = twos_a = twos_b = 0
        for w in range(len(whole_a)):
            wa, sa, wb, sb = whole_a[w], second_a[w], whole_b[w], second_b[w]
            both = wa & wb
            same += popcount(both)
            other += popcount(both & (sa ^ sb))
            in_a, in_b = wa | sa, wb | sb
            n += popcount(in_a & in_b)
            square_a += popcount(wa & in_b)
            square_b += popcount(wb & in_a)
            twos_a += popcount(wa & sa & in_b)
            twos_b += popcount(wb & sb & in_a)
        sum_a, sum_b = 2 * twos_a - square_a, 2 * twos_b - square_b
    covariance = float((same - 2 * other) * n - sum_a * sum_b)
    variance_a, variance_b = float(square_a * n - sum_a * sum_a), float(square_b * n - sum_b * sum_b)
    return covariance * covariance > limit * variance_a * variance_b
