"""Compiled loops on genotypes packed four to a byte, as in PLINK 1: count, decode, repack. They release the GIL.

    code    00: two of A1    01: missing    10: one of each    11: two of A2        lowest bits first

A table of four values per variant, one for each code, decodes packed bytes: to counts of A1 with NaN for missing calls,
or directly to a tile of standardised values with 0 for missing calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from streampca._typing import Array
from streampca.sources.compiled import compiled
from streampca.sources.packed_numpy import CODES, DOSAGES, MISSING_CODE

__all__ = [
    "DOSAGES", "MISSING_CODE", "count_codes", "count_missing", "decode", "draw", "list_missing", "pack", "pack_alleles",
    "take_samples",
]  # fmt: skip

EVEN = np.uint64(0x5555555555555555)  # the lower bit of each of the 32 codes of a word
FOUR_MISSING = 0x55  # calls, in one byte


def _popcount(_: Any, word: Any) -> Any:
    """Count the set bits of a word by the instruction of the processor."""
    return types.int64(word), lambda context, builder, signature, args: builder.ctpop(args[0])  # noqa: ARG005


popcount: Any = intrinsic(_popcount)


@compiled
def count_codes(packed: Array, n_samples: int) -> Array:  # pragma: no cover - compiled
    """Return the counts (t x 4) of each code in the rows of packed (t x bytes), without padding."""
    counts = np.zeros((packed.shape[0], 4), np.int64)
    n_words = n_samples // 32
    for v in range(packed.shape[0]):
        words = packed[v, : 8 * n_words].view(np.uint64)
        low = high = both = 0
        for j in range(n_words):
            a = words[j] & EVEN
            b = (words[j] >> np.uint64(1)) & EVEN
            low += popcount(a)
            high += popcount(b)
            both += popcount(a & b)
        counts[v, 1] = low - both
        counts[v, 2] = high - both
        counts[v, 3] = both
        for s in range(32 * n_words, n_samples):
            counts[v, (packed[v, s >> 2] >> (2 * (s & 3))) & 3] += 1
        counts[v, 0] = n_samples - counts[v, 1] - counts[v, 2] - counts[v, 3]
    return counts


PAIRS = {"float32": np.uint64, "float64": np.complex128}  # types as large as two numbers


def decode(packed: Array, table: Array, out: Array) -> None:
    """Write table[v, code] of each genotype of row v of packed (t x bytes) into out (t x n_samples, contiguous)."""
    word = PAIRS.get(str(out.dtype))
    if word is None:
        _decode_each(packed, table, out)
        return
    pairs = np.empty((16, 2), out.dtype)
    _decode_pairs(packed, table, pairs, pairs.reshape(-1).view(word), out)


@compiled
def _decode_pairs(
    packed: Array, table: Array, pairs: Array, words: Array, out: Array
) -> None:  # pragma: no cover - compiled
    """Decode two genotypes at a time: four bits select one of sixteen pairs, which is copied as one word."""
    n_samples = out.shape[1]
    full = n_samples // 4
    for v in range(packed.shape[0]):
        for nibble in range(16):
            pairs[nibble, 0] = table[v, nibble & 3]
            pairs[nibble, 1] = table[v, nibble >> 2]
        row = out[v, : 4 * full].view(words.dtype)
        for j in range(full):
            byte = packed[v, j]
            row[2 * j] = words[byte & 15]
            row[2 * j + 1] = words[byte >> 4]
        for s in range(4 * full, n_samples):
            out[v, s] = table[v, (packed[v, s >> 2] >> (2 * (s & 3))) & 3]


@compiled
def _decode_each(packed: Array, table: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Decode to any type, one genotype at a time."""
    for v in range(packed.shape[0]):
        for s in range(out.shape[1]):
            out[v, s] = table[v, (packed[v, s >> 2] >> (2 * (s & 3))) & 3]


@compiled
def count_missing(packed: Array, totals: Array) -> None:  # pragma: no cover - compiled
    """Add the number of missing calls of each sample in the rows of packed (t x bytes) to totals (n_samples)."""
    n_samples = totals.size
    n_words = n_samples // 32
    for v in range(packed.shape[0]):
        words = packed[v, : 8 * n_words].view(np.uint64)
        for j in range(n_words):
            missing = words[j] & ~(words[j] >> np.uint64(1)) & EVEN
            while missing:
                # Bits below the lowest set bit: two for each sample before it.
                below = popcount((missing & (~missing + np.uint64(1))) - np.uint64(1))
                totals[32 * j + below // 2] += 1
                missing &= missing - np.uint64(1)
        for s in range(32 * n_words, n_samples):
            if (packed[v, s >> 2] >> (2 * (s & 3))) & 3 == MISSING_CODE:
                totals[s] += 1


@compiled
def list_missing(packed: Array, n_samples: int) -> tuple[Array, Array]:  # pragma: no cover - compiled
    """Return the rows of packed (t x bytes) with missing calls, ordered by sample, and the start of each sample."""
    starts = np.zeros(n_samples + 1, np.int64)
    count_missing(packed, starts[1:])
    for s in range(n_samples):
        starts[s + 1] += starts[s]
    rows = np.empty(starts[-1], np.int32)
    free = starts[:-1].copy()
    n_words = n_samples // 32
    for v in range(packed.shape[0]):
        words = packed[v, : 8 * n_words].view(np.uint64)
        for j in range(n_words):
            missing = words[j] & ~(words[j] >> np.uint64(1)) & EVEN
            while missing:
                s = 32 * j + popcount((missing & (~missing + np.uint64(1))) - np.uint64(1)) // 2
                rows[free[s]] = v
                free[s] += 1
                missing &= missing - np.uint64(1)
        for s in range(32 * n_words, n_samples):
            if (packed[v, s >> 2] >> (2 * (s & 3))) & 3 == MISSING_CODE:
                rows[free[s]] = v
                free[s] += 1
    return starts, rows


@compiled
def take_samples(packed: Array, samples: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Pack selected samples of packed (t x bytes), in the given order, into out (t x fewer bytes)."""
    for v in range(packed.shape[0]):
        for j in range(out.shape[1]):
            byte = 0
            for place in range(min(4, samples.size - 4 * j)):
                s = samples[4 * j + place]
                byte |= ((packed[v, s >> 2] >> (2 * (s & 3))) & 3) << (2 * place)
            out[v, j] = byte


@compiled
def pack(calls: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Pack counts of A1 (t x n_samples integers: 0, 1, 2, and -1, -9 or 3 for missing) into out (t x bytes)."""
    n_samples = calls.shape[1]
    full = n_samples // 4
    for v in range(calls.shape[0]):
        for j in range(full):
            a, b, c, d = calls[v, 4 * j], calls[v, 4 * j + 1], calls[v, 4 * j + 2], calls[v, 4 * j + 3]
            out[v, j] = CODES[a & 3] | CODES[b & 3] << 2 | CODES[c & 3] << 4 | CODES[d & 3] << 6
        if full < out.shape[1]:
            byte = 0
            for place in range(n_samples - 4 * full):
                byte |= CODES[calls[v, 4 * full + place] & 3] << (2 * place)
            out[v, full] = byte


@compiled
def pack_alleles(calls: Array, first: int, out: Array) -> None:  # pragma: no cover - compiled
    """Pack calls (t x n_samples x ploidy 1 or 2) into out (t x bytes) from sample `first` on.

    A call has the numbers of its alleles: 0 is A2, larger ones are A1, -1 is missing, and -2 in the second place marks
    a haploid call, which counts double. A call with a missing allele is missing.
    """
    n_samples, second = calls.shape[1], calls.shape[2] - 1
    begin, lead = first >> 2, first & 3
    n_bytes = (lead + n_samples + 3) >> 2
    # One code per byte, then four joined: two loops that the compiler vectorises.
    codes = np.zeros(4 * n_bytes, np.uint8)
    for v in range(calls.shape[0]):
        for s in range(lead):
            codes[s] = (out[v, begin] >> (2 * s)) & 3
        for s in range(n_samples):
            a, b = calls[v, s, 0], calls[v, s, second]
            b = a if b == -2 else b
            none = (a == 0) + (b == 0)
            codes[lead + s] = MISSING_CODE if (a < 0) | (b < 0) else none + (none > 0)
        for j in range(n_bytes):
            out[v, begin + j] = codes[4 * j] | codes[4 * j + 1] << 2 | codes[4 * j + 2] << 4 | codes[4 * j + 3] << 6


@compiled
def draw(freq: Array, missing: Array, seed: int, first: int, out: Array) -> None:  # pragma: no cover - compiled
    """Draw two alleles for each entry of freq (t x n_samples), with a share of each sample missing; pack them into out.

    Random numbers are splitmix64 of (seed, first + row, column): any blocks draw the same genotypes.
    """
    n_samples = freq.shape[1]
    threshold = (missing * 2.0**32).astype(np.uint64)
    for v in range(freq.shape[0]):
        state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(first + v) * np.uint64(0xD1B54A32D192ED03)
        for j in range(out.shape[1]):
            byte = 0
            for place in range(min(4, n_samples - 4 * j)):
                p = freq[v, 4 * j + place]
                state += np.uint64(0x9E3779B97F4A7C15)
                z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z ^= z >> np.uint64(31)
                u = np.float32(z >> np.uint64(40)) * np.float32(2.0**-24)
                none = (1 - p) * (1 - p)
                code = 3 if u < none else 2 if u < none + 2 * p * (1 - p) else 0
                if (z & np.uint64(0xFFFFFFFF)) < threshold[4 * j + place]:
                    code = 1
                byte |= code << (2 * place)
            out[v, j] = byte
