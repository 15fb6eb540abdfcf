"""Simulate genotypes of populations on a tree, written as PLINK 1 files block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.progress import Progress, reporting, silent
from streampca.sources.formats.plink1 import MAGIC
from streampca.sources.genotypes import packed_width
from streampca.sources.packed import draw
from streampca.sweep.memory import thread_count

# Drift (F_ST) of the branches at each level of the tree, from the root, and the number of branches of a node.
DRIFT = (0.06, 0.02, 0.006)
BRANCHES = (4, 3, 2)
BLOCK = 512


def simulate_genotypes(
    prefix: Path, n_samples: int, n_variants: int, *, admixed: float = 0.2, missing: float | Array = 0.005,
    seed: int = 0, progress: Progress = silent,
) -> Array:  # fmt: skip
    """Write prefix.bed, .bim, .fam and .pop (FID, IID, population); return the population of each sample.

    Allele frequencies drift along a tree of 4 x 3 x 2 branches: p' = p + N(0, F p (1 - p)), clipped to 0.001 .. 0.999
    (Nicholson et al. 2002, J. R. Stat. Soc. B 64, 695). Samples are from one leaf; a share `admixed` of them is from
    two, in random proportions. Variants are on chromosomes 1 to 22, without linkage. `missing` is the share of missing
    calls, of all samples or of each.
    """
    rng = np.random.default_rng(seed)
    n_leaves = int(np.prod(BRANCHES))
    population = np.sort(rng.integers(n_leaves, size=n_samples))
    share = np.zeros((n_leaves, n_samples), np.float32)
    share[population, np.arange(n_samples)] = 1
    mixed = np.flatnonzero(rng.random(n_samples) < admixed)
    part = rng.random(mixed.size).astype(np.float32)
    share[:, mixed] *= 1 - part
    np.add.at(share, (rng.integers(n_leaves, size=mixed.size), mixed), part)
    write_genotypes(
        prefix, [f"pop{group}" for group in population], n_variants, share, _frequencies, missing, seed, progress
    )
    return population


def write_genotypes(
    prefix: Path, groups: Sequence[str], n_variants: int, share: Array,
    frequencies: Callable[[np.random.Generator, int], Array], missing: float | Array, seed: int, progress: Progress,
) -> None:  # fmt: skip
    """Draw genotypes of admixed samples, and write prefix.bed, .bim, .fam and .pop (FID, IID, group).

    Parameters
    ----------
    groups : of the samples, their FID.
    share : (populations x samples) ancestry of each sample.
    frequencies : draws allele frequencies (variants x populations) of a number of variants.
    """
    n_samples = len(groups)
    _write_tables(prefix, groups, n_variants)
    blocks = range(0, n_variants, BLOCK)
    missing_share = np.array(np.broadcast_to(np.asarray(missing, np.float64), n_samples))
    width = packed_width(n_samples)
    with open(f"{prefix}.bed", "wb") as file, ThreadPoolExecutor(thread_count()) as pool:
        file.write(MAGIC)

        def write(start: int) -> None:
            count = min(BLOCK, n_variants - start)
            freq = frequencies(np.random.default_rng([seed, start]), count).astype(np.float32) @ share
            out = np.empty((count, width), np.uint8)
            draw(freq, missing_share, seed, start, out)
            os.pwrite(file.fileno(), out.data, len(MAGIC) + start * width)

        file.flush()
        for _ in reporting(pool.map(write, blocks), len(blocks), "simulating", progress):
            pass


def _frequencies(rng: np.random.Generator, count: int) -> Array:
    """Return allele frequencies (count x leaves) after drift along the tree."""
    p = rng.uniform(0.05, 0.95, (count, 1))
    for drift, branches in zip(DRIFT, BRANCHES, strict=True):
        p = np.repeat(p, branches, axis=1)
        p = np.clip(p + rng.standard_normal(p.shape) * np.sqrt(drift * p * (1 - p)), 0.001, 0.999)
    return p


def _write_tables(prefix: Path, groups: Sequence[str], n_variants: int) -> None:
    with open(f"{prefix}.fam", "w") as fam, open(f"{prefix}.pop", "w") as pop:
        for i, group in enumerate(groups):
            fam.write(f"{group} s{i} 0 0 0 -9\n")
            pop.write(f"{group} s{i} {group}\n")
    per_chromosome = -(-n_variants // 22)
    with open(f"{prefix}.bim", "w") as bim:
        for j in range(n_variants):
            chromosome, place = divmod(j, per_chromosome)
            bim.write(f"{chromosome + 1} snp{j} 0 {1000 * (place + 1)} A G\n")
