"""Compare streampca with its peers: the same data, every tool in a process of its own, one table.

From the shell to results on disk: seconds, peak memory of all processes, and 1 - MEV, the share of the true leading
subspace (float64) that was missed. Rows go to FOLDER/comparison.json as they come, and at the end, with the table of
features, to comparison.md and comparison.csv; the figure to scripts/comparison.png, that of --small to the folder.
`scripts/bench/all` makes the environments that this needs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dense
import genotypes
import numpy as np
import zarr
from comparison_pages import write_pages
from measuring import HERE, THREADS, missed, run, say

LIMIT_SECONDS = 120
# Debian's program, which its wrapper of the same name on PATH calls.
SMARTPCA = "/usr/lib/eigensoft/smartpca"
GENOTYPES, SMALL_GENOTYPES = (5_000, 100_000), (1_000, 10_000)


@dataclass(frozen=True)
class Tool:
    """One row: how it is named, whose version is told, how it is run, and what is to be known of it."""

    label: str
    package: str
    command: Callable[[str], list[str]]  # of the prefix of what it writes
    vectors: Callable[[str], np.ndarray]  # what it found there, n x k
    memory: str  # what it holds: "bounded" by an option, "blocks" of the data, the "whole" matrix, a "square" one
    note: str = ""
    environment: Path | None = None
    program: str = ""


@dataclass
class Case:
    """One set of data and k, its truth and its tools, streampca first."""

    name: str
    title: str
    k: int
    truth: Callable[[], np.ndarray]
    tools: list[Tool] = field(default_factory=list)


# Tools


def streampca(label: str, data: str, k: int, *options: str, what: str, memory: str = "bounded") -> Tool:
    """Return a row of streampca; what was found is `what` of its store."""

    def vectors(out: str) -> np.ndarray:
        found = np.asarray(zarr.open_array(f"{out}.zarr/{what}", mode="r")[:])
        return found.T if what == "components" else found

    def command(out: str) -> list[str]:
        return ["streampca", "pca", data, "-k", str(k), "--threads", str(THREADS), "--out", f"{out}.zarr",
                "--overwrite", "--quiet", *options]  # fmt: skip

    return Tool(label, "streampca", command, vectors, memory)


class Peers:
    """The Python peers of one environment, all run by one script."""

    def __init__(self, environment: Path, script: str, data: str, k: int):
        self.environment, self.script, self.data, self.k = environment, script, data, k

    def tool(self, label: str, package: str, name: str, memory: str, note: str = "") -> Tool:
        python, script = str(self.environment / "bin" / "python"), str(HERE / self.script)

        def command(out: str) -> list[str]:
            # -E: without what leads Python to packages of ours.
            return [python, "-E", script, name, self.data, out, str(self.k)]

        return Tool(label, package, command, self.vectors, memory, note, self.environment)

    def vectors(self, out: str) -> np.ndarray:
        if self.script == "dense_peers.py":
            return np.load(f"{out}.components.npy").T
        return np.load(f"{out}.scores.npy")


def plink2(prefix: Path, k: int, way: str, memory: str, note: str) -> Tool:
    return Tool(
        f"plink2 `--pca {way}`",
        "plink2",
        lambda out: ["plink2", "--bfile", str(prefix), "--pca", way, str(k), "--threads", str(THREADS), "--out", out],
        lambda out: genotypes.read_eigenvec(f"{out}.eigenvec", prefix),
        memory,
        note,
        program="plink2",
    )


def plink1(prefix: Path, k: int) -> Tool:
    return Tool(
        "plink 1.9 `--pca`",
        "plink1.9",
        lambda out: ["plink1.9", "--bfile", str(prefix), "--pca", str(k), "header", "--threads", str(THREADS),
                     "--out", out],
        lambda out: genotypes.read_eigenvec(f"{out}.eigenvec", prefix),
        "square",
        "exact; weighs gaps pair by pair of samples, so its answer is another one",
        program="plink1.9",
    )  # fmt: skip


def smartpca(prefix: Path, k: int) -> Tool:
    """Return a row of EIGENSOFT: all samples, no outliers taken out, six digits behind the point."""

    def command(out: str) -> list[str]:
        # It leaves out samples whose phenotype is missing.
        fam = [line.split()[:5] for line in Path(f"{prefix}.fam").read_text().splitlines()]
        Path(f"{out}.fam").write_text("".join(" ".join([*fields, "1"]) + "\n" for fields in fam))
        settings = {
            "genotypename": f"{prefix}.bed", "snpname": f"{prefix}.bim", "indivname": f"{out}.fam",
            "evecoutname": f"{out}.evec", "evaloutname": f"{out}.eval", "numoutevec": k, "numoutlieriter": 0,
            "familynames": "NO", "fastmode": "YES", "hiprecision": "YES", "numthreads": THREADS,
        }  # fmt: skip
        Path(f"{out}.par").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        return [SMARTPCA, "-p", f"{out}.par"]

    def vectors(out: str) -> np.ndarray:
        lines = [line.split() for line in Path(f"{out}.evec").read_text().splitlines()[1:]]
        names = [line.split()[1] for line in Path(f"{prefix}.fam").read_text().splitlines()]
        if [line[0] for line in lines] != names:
            raise RuntimeError(f"{out}.evec: its samples are not those of {prefix}.fam")
        return np.array([line[1 : k + 1] for line in lines], np.float64)

    note = "packed; one thread, as its README says of this mode; prints six digits"
    return Tool("smartpca `fastmode`", "eigensoft", command, vectors, "whole", note, program=SMARTPCA)


# Cases


def genotype_case(folder: Path, small: bool, k: int) -> Case:
    n, m = SMALL_GENOTYPES if small else GENOTYPES
    prefix = genotypes.simulated(folder, n, m)
    bed = f"{prefix}.bed"

    def truth() -> np.ndarray:
        kept = Path(f"{prefix}.grm.npz")
        if not kept.exists():
            genotypes.worker("truth", prefix, "grm")
        with np.load(kept) as found:
            return found["vectors"][:, :k]

    peers = Peers(folder / "peers-genotypes", "genotype_peers.py", str(prefix), k)
    case = Case(f"genotypes-{k}", f"Genotypes, {n:,} samples x {m:,} variants (.bed, 0.5% missing), k = {k}", k, truth)
    case.tools = [
        streampca("streampca", bed, k, what="scores"),
        streampca("streampca `--tol 1e-6`", bed, k, "--tol", "1e-6", what="scores"),
        plink2(prefix, k, "approx", "blocks", "randomized; `libopenblas0-pthread` is its BLAS if installed"),
    ]
    if k == min(genotypes.KS):
        case.tools += [
            peers.tool("scikit-learn PCA (randomized)", "scikit-learn", "sklearn-randomized", "whole", "in float32"),
            peers.tool("sgkit.pca (randomized, n_iter=4)", "sgkit", "sgkit", "whole", "Dask keeps its blocks"),
            streampca("streampca `--memory 500MB`", bed, k, "--memory", "500MB", what="scores"),
            plink2(prefix, k, "meanimpute", "square", "exact"),
            plink1(prefix, k),
            smartpca(prefix, k),
            peers.tool("scikit-allel randomized_pca", "scikit-allel", "allel", "whole", "in float32"),
            peers.tool("scikit-allel pca", "scikit-allel", "allel-exact", "whole", "exact, by SVD"),
        ]
    return case


def dense_case(folder: Path, small: bool, name: str) -> Case:
    data, (n, d), chunk = dense.made(name, folder, small)
    k, path = dense.K, str(data)
    peers = Peers(folder / "peers-dense", "dense_peers.py", path, k)
    title = f"Dense, {n:,} x {d:,} float32 (Zarr, chunks {chunk[0]:,} x {chunk[1]:,}), k = {k}"
    case = Case(name, title, k, lambda: dense.exact_components(data).T)
    limit = dense.MEMORY[name, "streampca"]
    case.tools = [
        streampca(f"streampca `--memory {limit}`", path, k, "--memory", limit, what="components"),
        streampca("streampca `--tol 1e-6`", path, k, "--memory", limit, "--tol", "1e-6", what="components"),
    ]
    if name == "wide":
        less = dense.MEMORY[name, "streampca-bounded"]
        case.tools.append(streampca(f"streampca `--memory {less}`", path, k, "--memory", less, what="components"))
    case.tools += [
        peers.tool("scikit-learn PCA (randomized)", "scikit-learn", "sklearn-randomized", "whole"),
        peers.tool("scikit-learn IncrementalPCA", "scikit-learn", "sklearn", "blocks"),
        peers.tool("scikit-learn-intelex IncrementalPCA", "scikit-learn-intelex", "sklearnex", "blocks"),
        peers.tool("dask-ml PCA (randomized)", "dask-ml", "dask-ml", "whole", "no power iterations, its default"),
        peers.tool("dask-ml PCA, iterated_power=4", "dask-ml", "dask-ml-power", "whole"),
        peers.tool("dask svd_compressed", "dask", "svd_compressed", "whole", "4 power iterations"),
        peers.tool(
            "dask svd_compressed, compute=True", "dask", "svd_compressed-compute", "blocks", "4 power iterations"
        ),
        peers.tool("xeofs EOF on Dask", "xeofs", "xeofs", "blocks", "svd_compressed with 4 power iterations"),
    ]
    if name == "tall":
        case.tools += [
            peers.tool("scikit-learn PCA (covariance_eigh)", "scikit-learn", "sklearn-pca", "whole"),
            peers.tool("scikit-learn-intelex PCA (covariance_eigh)", "scikit-learn-intelex", "sklearnex-pca", "whole"),
            peers.tool("scanpy pca on Dask (covariance_eigh)", "scanpy", "scanpy", "blocks"),
            peers.tool("dask-ml IncrementalPCA", "dask-ml", "dask-ml-incremental", "blocks"),
            peers.tool("dask svd (tsqr)", "dask", "tsqr", "whole", "all singular vectors"),
        ]
    return case


CASES: dict[str, Callable[[Path, bool], Case]] = {
    "genotypes-10": lambda folder, small: genotype_case(folder, small, 10),
    "genotypes-20": lambda folder, small: genotype_case(folder, small, 20),
    "tall": lambda folder, small: dense_case(folder, small, "tall"),
    "wide": lambda folder, small: dense_case(folder, small, "wide"),
}


# Measuring


class Versions:
    """Versions of what is compared; None for what is not there."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str | None] = {}

    def of(self, tool: Tool) -> str | None:
        key = (str(tool.environment), tool.package)
        if key not in self._known:
            self._known[key] = self._find(tool)
        return self._known[key]

    def _find(self, tool: Tool) -> str | None:
        if tool.package == "streampca":
            return version("streampca")
        if tool.environment is not None:
            python = tool.environment / "bin" / "python"
            if not python.exists():
                return None
            code = f"from importlib.metadata import version; print(version({tool.package!r}))"
            done = subprocess.run([python, "-E", "-c", code], capture_output=True, text=True, check=False)
            return done.stdout.strip() or None
        if shutil.which(tool.program) is None:
            return None
        query = ["dpkg-query", "--show", "--showformat=${Version}", tool.package]
        if shutil.which(query[0]) is None:
            return "unknown"
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout or "unknown"


def measure(tool: Tool, case: Case, true: np.ndarray, folder: Path, versions: Versions, limit: float) -> dict[str, Any]:
    """Run one tool; returns its row."""
    row: dict[str, Any] = {"tool": tool.label, "version": versions.of(tool), "memory": tool.memory, "note": tool.note}
    if row["version"] is None:
        return row | {"failed": f"{tool.package} is not installed"}
    name = "".join(c if c.isalnum() else "-" for c in tool.label)
    out = str(folder / "comparison" / f"{case.name}.{name}")
    began = time.strftime("%H:%M:%S")
    row |= run(tool.command(out), Path(f"{out}.log"), limit) | {"began": began}
    if "failed" not in row:
        row["missed"] = missed(tool.vectors(out), true)
    clear(Path(out))
    return row


def clear(out: Path) -> None:
    """Take away all that a tool wrote but its log."""
    for path in out.parent.glob(f"{out.name}.*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix != ".log":
            path.unlink()


def judged(rows: list[dict[str, Any]]) -> None:
    """Set each row beside streampca: the first row, and its fastest run that is at least as accurate."""
    ours = [row for row in rows if row["tool"].startswith("streampca") and "missed" in row]
    for row in rows:
        if "seconds" not in row or "seconds" not in rows[0]:
            continue
        row["ratio"] = row["seconds"] / rows[0]["seconds"]
        # Below 1e-12 what is left is rounding, of the truth too.
        as_good = [own["seconds"] for own in ours if own["missed"] <= max(row.get("missed", 0.0), 1e-12)]
        if as_good and "missed" in row:
            row["ratio_as_accurate"] = row["seconds"] / min(as_good)


def compare(name: str, arguments: argparse.Namespace, versions: Versions) -> dict[str, Any]:
    """Measure all tools of one case, in the order of its list."""
    folder = arguments.folder
    say(f"\n{name}: data and truth")
    case = CASES[name](folder, arguments.small)
    true = case.truth()
    (folder / "comparison").mkdir(exist_ok=True)
    say(case.title)
    rows: list[dict[str, Any]] = []
    # Not counted: what numba compiles it keeps for later runs, and the first one on a machine takes seconds longer.
    warm = folder / "comparison" / "warm"
    run(case.tools[0].command(str(warm)), Path(f"{warm}.log"))
    clear(warm)
    for tool in case.tools:
        row = measure(tool, case, true, folder, versions, arguments.limit)
        rows.append(row)
        if "failed" in row:
            say(f"  {tool.label:<45}{row['failed']}")
        else:
            say(f"  {tool.label:<45}{row['seconds']:8.1f} s {row['megabytes']:8.0f} MB   {row['missed']:.1e}")
    judged(rows)
    return {"title": case.title, "rows": rows}


def about(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the numbers depend on."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "threads": THREADS, "limit": arguments.limit,
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "python": platform.python_version(), "numpy": np.__version__, "small": arguments.small,
        "blas": genotypes.blas_of_plink(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true", help="small data, to try the script")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds after which a tool is stopped")
    parser.add_argument("--cases", default=",".join(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--draw", action="store_true", help="write the pages of the last run again, without measuring")
    arguments = parser.parse_args()
    unknown = set(arguments.cases.split(",")) - set(CASES)
    if unknown:
        sys.exit(f"--cases has {', '.join(sorted(unknown))}; it takes some of {', '.join(CASES)}")
    folder = arguments.folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / ("comparison-small.json" if arguments.small else "comparison.json")
    if not arguments.draw:
        versions = Versions()
        content: dict[str, Any] = {"about": about(arguments), "cases": {}}
        for name in arguments.cases.split(","):
            content["cases"][name] = compare(name, arguments, versions)
            kept.write_text(json.dumps(content, indent=1))
    figure = kept.with_suffix(".png") if arguments.small else HERE.parent / "comparison.png"
    write_pages(json.loads(kept.read_text()), kept, figure)


if __name__ == "__main__":
    main()
