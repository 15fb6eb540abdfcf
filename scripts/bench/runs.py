"""Compare a run with all its machinery with a call of the estimator, on one thread, turn by turn in one process."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import dask

from streampca import PCA
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.run.config import Config
from streampca.run.driver import run
from streampca.run.fit import Job, open_data

SOURCE = {"scale": "auto", "missing": "auto"}
MEMORY = "1GB"


def main(n_samples: int = 5000, n_variants: int = 100_000, repeats: int = 5) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_genotypes(folder / "study", n_samples, n_variants, seed=1)
        bed, result = str(folder / "study.bed"), folder / "study.pca.zarr"
        config = Config.model_validate(
            {
                "source": {"path": bed},
                "model": {"kind": "pca", "n_components": 10},
                "engine": {"threads": 1, "memory": MEMORY},
                "output": {"path": str(result)},
            }
        )

        def estimator() -> None:
            with dask.config.set(num_workers=1):
                PCA(10, memory_limit=MEMORY, random_state=0).fit(bed)

        def into_a_store() -> None:
            with dask.config.set(num_workers=1):
                result.mkdir()
                Job.of(open_data(bed, SOURCE), SOURCE, config.model.model_dump(), MEMORY).fit(result)

        def whole_run() -> None:
            run(config)

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
