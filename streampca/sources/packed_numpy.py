"""Packed genotypes in NumPy, for small files: the same functions as in `packed`, with the same results.

They take more time per genotype, but loading numba and its compiled loops takes longer than reading a small file, and
more memory than all other libraries. Codes are those of `packed`.
"""

from __future__ import annotations

import numpy as np

from streampca._typing import Array

DOSAGES = np.array([2.0, np.nan, 1.0, 0.0])  # copies of A1 for each code
MISSING_CODE = 1
CODES = np.array([3, 2, 0, 1], np.uint8)  # of 0, 1 and 2 copies of A1, and of a missing call


def unpack(packed: Array, n_samples: int) -> Array:
    """Return the codes (t x n_samples) of packed (t x bytes)."""
    codes = np.empty((*packed.shape, 4), np.uint8)
    for place in range(4):
        np.right_shift(packed, 2 * place, out=codes[:, :, place])
    codes &= 3
    return codes.reshape(len(packed), 4 * packed.shape[1])[:, :n_samples]


def join(codes: Array, out: Array) -> None:
    """Pack codes (t x n_samples) into out (t x bytes), padded by zeros."""
    out[:] = 0
    for place in range(4):
        part = codes[:, place::4]
        out[:, : part.shape[1]] |= part << 2 * place


def count_codes(packed: Array, n_samples: int) -> Array:
    """Return the counts (t x 4) of each code in the rows of packed (t x bytes), without padding."""
    codes = unpack(packed, n_samples)
    return np.stack([np.count_nonzero(codes == code, axis=1) for code in range(4)], axis=1)


def decode(packed: Array, table: Array, out: Array) -> None:
    """Write table[v, code] of each genotype of row v of packed (t x bytes) into out (t x n_samples)."""
    codes = unpack(packed, out.shape[1])
    out[:] = table[:, :1]
    for code in range(1, 4):
        np.copyto(out, table[:, code : code + 1], where=codes == code)


def count_missing(packed: Array, totals: Array) -> None:
    """Add the number of missing calls of each sample in the rows of packed (t x bytes) to totals (n_samples)."""
    totals += np.count_nonzero(unpack(packed, totals.size) == MISSING_CODE, axis=0)


def take_samples(packed: Array, samples: Array, out: Array) -> None:
    """Pack selected samples of packed (t x bytes), in the given order, into out (t x fewer bytes)."""
    join(unpack(packed, 4 * packed.shape[1])[:, samples], out)


def pack(calls: Array, out: Array) -> None:
    """Pack counts of A1 (t x n_samples integers: 0, 1, 2, and -1, -9 or 3 for missing) into out (t x bytes)."""
    join(CODES[calls & 3], out)


def pack_alleles(calls: Array, first: int, out: Array) -> None:
    """Pack calls (t x n_samples x ploidy 1 or 2) into out (t x bytes) from sample `first` on.

    A call has the numbers of its alleles: 0 is A2, larger ones are A1, -1 is missing, and -2 in the second place marks
    a haploid call, which counts double. A call with a missing allele is missing.
    """
    a, b = calls[:, :, 0], calls[:, :, -1]
    b = np.where(b == -2, a, b)
    none = (a == 0) + (b == 0).astype(np.uint8)
    codes = np.where((a < 0) | (b < 0), np.uint8(MISSING_CODE), none + (none > 0))
    begin, lead = first // 4, first % 4
    before = unpack(out[:, begin : begin + 1], lead)
    joined = np.concatenate([before, codes], axis=1)
    join(joined, out[:, begin : begin + -(-joined.shape[1] // 4)])
