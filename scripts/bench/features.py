"""What each tool can do: a table whose every cell was checked. "?" is what was not.

Checked by calling the installed package (tried), by reading its source or its built-in help, or in its README.
"""

from __future__ import annotations

# Name and the version that was looked at.
TOOLS = {
    "streampca": "",
    "plink2": "2.00a3.5",
    "smartpca": "8.0.0",
    "sgkit": "0.10.0",
    "scikit-allel": "1.3.13",
    "scikit-learn": "1.9.1",
    "sklearn-intelex": "2026.2.0",
    "dask-ml": "2025.1.0",
    "dask svd": "2026.8.0",
    "xeofs": "3.0.6",
    "scanpy": "1.11.5",
}

# One cell a tool, in the order above.
FEATURES: dict[str, tuple[str, ...]] = {
    "data larger than memory": (
        "yes", "yes, `approx` [1]", "no [1]", "in part [2]", "no [3]", "IncrementalPCA", "IncrementalPCA",
        "IncrementalPCA", "compute=True", "yes [4]", "covariance_eigh [5]",
    ),
    "memory limit set by the user, kept or refused": (
        "yes", "`--memory` [6]", *["no [7]"] * 9,
    ),
    "error bound for each component": ("yes", *["no [8]"] * 10),
    "goes on after it was killed": ("yes", *["no [9]"] * 4, *["by hand, partial_fit [9]"] * 2, *["no [9]"] * 4),
    "cluster": (
        "Dask; Slurm, PBS, SGE, LSF", "no [9]", "no [9]", "Dask", "no [3]", "no [9]", "MPI (spmd) [10]", "Dask", "Dask",
        "Dask", "Dask",
    ),
    "missing values modelled (EM)": ("yes, PPCA", *["no [8]"] * 10),
    "missing values taken": (
        "yes, the mean", "yes, by pairs or the mean", "yes [11]", *["no, refused [11]"] * 4,
        "no, LinAlgError [11]", "no, LinAlgError [11]", "whole samples or features [11]",
        "no, ValueError [11]",
    ),
    "genotype files": (
        ".bed, .pgen, VCF Zarr; VCF by `convert`", ".bed, .pgen, VCF, BCF, BGEN, .haps [12]",
        ".bed, .ped, EIGENSTRAT, ANCESTRYMAP", ".bed, BGEN, VCF Zarr [13]", "VCF [13]", *["none"] * 6,
    ),
    "projection of new samples": (
        "yes", "`--score`", "`poplistname`, `lsqproject`", "pca_transform [13]", "transform", "transform", "transform",
        "fails with scikit-learn 1.9 [11]", "no", "transform", "tl.ingest",
    ),
    "the same bits for any number of threads": (
        "yes", "no [14]", "no [14]", "yes [14]", "no [15]", "no [15]", "?", "yes [14]", "yes [14]", "yes [14]",
        "yes [14]",
    ),
    "labels in what it writes": (
        "yes", "yes", "yes", "beside, in one Dataset", "no [3]", "with pandas", "?", "no", "no", "yes", "yes, AnnData",
    ),
    "kernel PCA": (
        "landmarks, out of core", *["no [16]"] * 4, "in memory", *["no [16]"] * 5,
    ),
    "report of a run": (
        "one HTML page", "no [17]", "a plot, by `ploteig`", *["no [17]"] * 7, "plots, `pl.pca`",
    ),
}  # fmt: skip

NOTES = (
    "Tried, by the bytes that a process reads: plink2 `--pca approx` read a .bed 13 times for k = 10, smartpca "
    "`fastmode` once, so it keeps the calls; the exact way of plink2 holds an n x n matrix.",
    "Source, `sgkit/stats/pca.py`: one Dask graph for all passes (`compute=False`), so blocks stay in memory for the "
    "next pass unless Dask spills them.",
    "Source, `allel/stats/decomposition.py`: NumPy arrays in and out.",
    "Source, `xeofs/linalg/decomposer.py`: `svd_compressed` with `compute=True` for Dask arrays.",
    "Docstring of `scanpy.pp.pca`; with Dask, features must be in one chunk.",
    "`--help memory`: the size of its workspace, with `require` or an error.",
    "No such parameter in POPGEN/README of EIGENSOFT, nor in the signatures of the Python functions.",
    "None among what it writes or the attributes of what is fitted (tried), its help or README.",
    "No such option in its help, README or source; with scikit-learn's and intelex's `partial_fit`, a user can keep "
    "the model between batches.",
    "`sklearnex/spmd/decomposition` is there; it was not run.",
    "Tried, on 300 x 40 or 400 x 60 with 2% of nan: sgkit, scikit-allel, scikit-learn, intelex and scanpy raise "
    "ValueError; dask-ml and dask say that the SVD did not converge; xeofs drops samples and features without any "
    "value, and refuses single gaps; smartpca's answer with 0.5% of calls missing was that of the mean. dask-ml's "
    "`transform` lacks an attribute that scikit-learn 1.9 asks for.",
    "Its help (`--vcf`, `--bcf`, `--bgen`, `--haps`).",
    "Source: `sgkit.io` has plink and bgen, `load_dataset` opens VCF Zarr; `pca_transform` is in `sgkit.stats.pca`; "
    "`allel.read_vcf`.",
    "Tried with 1, 2 and 4 threads and the same seed: the same bits with Dask (not with other chunks); plink2 wrote "
    "other digits with 1 thread than with 2, and smartpca from run to run, as its seed changes (it has a parameter "
    "`seed`).",
    "Tried on 3,000 x 700 with 1 and 2 threads of BLAS: other bits by covariance_eigh, randomized and IncrementalPCA; "
    "scikit-allel calls the same `randomized_svd`.",
    "No such name or option in `plink2 --help`, POPGEN/README, `sgkit`, `allel`, `sklearnex.decomposition`, "
    "`dask_ml.decomposition`, `xeofs.single`; scanpy's and dask's functions are for linear PCA.",
    "None in what was read for the other rows.",
)


def feature_table() -> str:
    """Return the table as Markdown, one row a feature, with its notes."""
    heads = [f"{name} {version}".strip() for name, version in TOOLS.items()]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    for feature, cells in FEATURES.items():
        if len(cells) != len(TOOLS):
            raise ValueError(f"{feature} has {len(cells)} cells for {len(TOOLS)} tools")
        lines.append(f"| {feature} | {' | '.join(cells)} |")
    notes = [f"[{number}] {note}" for number, note in enumerate(NOTES, start=1)]
    return "\n".join([*lines, "", " ".join(notes)])
