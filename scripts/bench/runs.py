"""Compare a run with all its machinery with a call of the estimator, on one thread, turn by turn in one process."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import dask

from streampca import PCA, open_genotypes
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.models.pca.options import PCAOptions
from streampca.results.fit import fit_to_store
from streampca.run.config import build
from streampca.run.driver import run
from streampca.run.fit import FitTask

MEMORY = "1GB"


def main(n_samples: int = 5000, n_variants: int = 100_000, repeats: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_genotypes(folder / "study", n_samples, n_variants, seed=1)
        bed, result = str(folder / "study.bed"), folder / "study.pca.zarr"
        config = build(
            {
                "data": {"path": bed},
                "model": {"kind": "pca", "n_components": 10},
                "engine": {"threads": 1, "memory_limit": MEMORY},
                "output": {"path": str(result)},
            }
        )

        def estimator() -> None:
            with dask.config.set(num_workers=1):
                PCA(10, memory_limit=MEMORY, random_state=0).fit(bed)

        def into_a_store() -> None:
            with dask.config.set(num_workers=1):
                fit_to_store(PCAOptions(n_components=10), open_genotypes(bed), result, memory_limit=MEMORY)

        def whole_run() -> None:
            run(FitTask(config))

        ways = {"estimator": estimator, "estimator, into a store": into_a_store, "run": whole_run}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(repeats + 1):
            for way, function in ways.items():
                shutil.rmtree(result, ignore_errors=True)
                began = time.perf_counter()
                function()
                if turn:  # the first one compiles and loads
                    seconds[way].append(time.perf_counter() - began)
        print(f"{n_samples} x {n_variants}, k = 10, one thread, {repeats} turns")
        print(f"{'':28}  least  median")
        for way, taken in seconds.items():
            print(f"{way:28} {min(taken):6.2f}  {sorted(taken)[len(taken) // 2]:6.2f}")
        for way in ("estimator", "estimator, into a store"):
            ratios = sorted(a / b for a, b in zip(seconds["run"], seconds[way], strict=True))
            print(
                f"run / {way}: {min(seconds['run']) / min(seconds[way]):.3f} of the least, "
                f"{ratios[len(ratios) // 2]:.3f} in the median turn"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
