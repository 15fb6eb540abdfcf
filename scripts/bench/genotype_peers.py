"""One peer on one .bed: fit, then scores of samples to disk. `genotype_peers.py TOOL PREFIX OUT K`.

None of them takes missing calls, so each is given what its users would give it: the mean of the variant instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np

# Variants of one chunk of sgkit's arrays, which holds all samples.
CHUNK = 2_000


def calls(prefix: str) -> np.ndarray:
    """Read all calls (variants x samples, float32, nan where there is none)."""
    from bed_reader import open_bed
    from measuring import THREADS

    with open_bed(f"{prefix}.bed") as bed:
        return bed.read(dtype="float32", order="F", num_threads=THREADS).T


def sklearn(prefix: str, k: int) -> np.ndarray:
    from genotypes import standardised
    from sklearn.decomposition import PCA

    x = standardised(calls(prefix), axis=1)
    return PCA(k, svd_solver="randomized", copy=False, random_state=0).fit_transform(x.T)


def allel(prefix: str, k: int, exact: bool = False) -> np.ndarray:
    from allel import pca, randomized_pca

    x = calls(prefix)
    means = np.nanmean(x, axis=1, keepdims=True)
    np.copyto(x, means, where=np.isnan(x))
    options = {} if exact else {"random_state": 0}
    return (pca if exact else randomized_pca)(x, n_components=k, copy=False, **options)[0]


def sgkit(prefix: str, k: int) -> np.ndarray:
    from sgkit import pca
    from sgkit.io.plink import read_plink

    data = read_plink(path=prefix, bim_sep=" ", fam_sep=" ", chunks=(CHUNK, -1, -1))
    counts = data.call_genotype.sum("ploidy", dtype="int8").astype("float32")
    counts = counts.where(~data.call_genotype_mask.any("ploidy"))
    data["call_alternate_allele_count"] = counts.fillna(counts.mean("samples"))
    # Without power iterations, the default, it misses most of what is asked for.
    found = pca(data, n_components=k, algorithm="randomized", n_iter=4, check_missing=False, merge=False)
    return found.sample_pca_projection.values


TOOLS: dict[str, Callable[[str, int], np.ndarray]] = {
    "sklearn-randomized": sklearn,
    "allel": allel,
    "allel-exact": partial(allel, exact=True),
    "sgkit": sgkit,
}


def main() -> None:
    tool, prefix, out, k = sys.argv[1:]
    np.save(f"{out}.scores.npy", TOOLS[tool](prefix, int(k)))


if __name__ == "__main__":
    main()
