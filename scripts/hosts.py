"""Faults of a cluster of four hosts: each run finishes with the same bits, or ends in one line and resumes to them.

The hosts are network namespaces with host names of their own, joined by a switch of this process, which loses and
delays packets and cuts hosts off. head has the scheduler and the drivers, node1 to node3 have a worker each. Each fault
hits three runs at once: dense Krylov, genotypes, and PPCA of missing values. Prints a table; exit code 1 if a run ends
in another way than expected. Run by scripts/hosts, as root of namespaces that end with it.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr
from virtual_hosts import HEAD, NODES, WAIT, Cluster, Switch, start, until

from streampca.demos.simulate_genotypes import simulate_genotypes

SILENCE = 60.0  # seconds in which the status of a run must be refreshed
# A driver cuts small data into many partitions, and looks at its workers more often.
DRIVER = """
import sys
import streampca.sources.base as base
import streampca.run.engine as engine
base.SLAB_BYTES, base.PARTITION_BYTES = 1 << 12, 1 << 14
engine.WATCH_SECONDS, engine.SILENT_SECONDS, engine.ANSWER_SECONDS = 0.5, 4, 10
if __name__ == "__main__":
    from streampca.cli import main
    main()
"""
# A worker takes a while for each partition until the fault, which so finds it at work. Dask loads the script twice.
SLOW = """
import os, time
from streampca.sweep import sweep
fast = getattr(sweep.run_partition, "fast", sweep.run_partition)
def slow(*arguments):
    if os.path.exists("{brake}"):
        time.sleep(0.2)
    return fast(*arguments)
slow.fast, sweep.run_partition = fast, slow
"""
OTHER_NUMPY = """
from streampca.sweep import environment
real = getattr(environment.environment, "real", environment.environment)
def other():
    return real() | {"numpy": "1.0"}
other.real, environment.environment = real, other
"""


# ---------------------------------------------------------------- runs


def write_data(folder: Path) -> None:
    """Write the data of all runs, and the scripts of workers and drivers."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 6)) @ rng.standard_normal((6, 40)) + 0.5 * rng.standard_normal((3000, 40))
    (folder / "data").mkdir()
    zarr.create_array(folder / "data" / "dense.zarr", data=x.astype("f4"), chunks=(200, 40))
    x[rng.random(x.shape) < 0.1] = np.nan
    zarr.create_array(folder / "data" / "missing.zarr", data=x.astype("f4"), chunks=(200, 40))
    simulate_genotypes(folder / "data" / "study", 300, 8000, seed=1)
    slow = SLOW.format(brake=folder / "brake")
    for name, text in (("slow.py", slow), ("driver.py", DRIVER), ("other.py", OTHER_NUMPY + slow)):
        (folder / name).write_text(text)
    # What a worker without streampca finds in its current directory.
    (folder / "bare" / "streampca").mkdir(parents=True)
    (folder / "bare" / "streampca" / "__init__.py").touch()
    (folder / "bare" / "nothing.py").touch()


MODELS = {
    "dense": ("dense.zarr", {"kind": "pca", "n_components": 4, "solver": "krylov", "tol": 1e-7}),
    "genotypes": ("study.bed", {"kind": "pca", "n_components": 4, "solver": "krylov", "tol": 1e-6}),
    "ppca": ("missing.zarr", {"kind": "ppca", "n_components": 3, "tol": 1e-9, "max_iter": 8}),
}


@dataclass
class Run:
    """A driver on head, and how it ended.

    Attributes
    ----------
    silence : seconds for which its status was not refreshed, at most.
    """

    model: str
    folder: Path
    process: Any = None
    silence: float = 0.0

    def begin(self, **engine: Any) -> None:
        """Start the driver."""
        data, model = MODELS[self.model]
        blocks = {
            "data": {"path": str(self.folder.parent / "data" / data)},
            "model": model,
            "engine": {"memory_limit": "1GB", "checkpoint_minutes": 1e-6, **engine},
            "output": {"path": str(self.output)},
        }
        config = self.folder / f"{self.model}.yaml"
        config.write_text(json.dumps(blocks))
        (self.folder / f"{self.model}.log").unlink(missing_ok=True)
        command = [sys.executable, str(self.folder.parent / "driver.py"), "run", str(config)]
        self.process = start(HEAD, command, self.folder / f"{self.model}.log")

    @property
    def output(self) -> Path:
        """Where the result is written."""
        return self.folder / f"{self.model}.zarr"

    @property
    def log(self) -> str:
        """What the driver printed."""
        return (self.folder / f"{self.model}.log").read_text()

    @property
    def alive(self) -> bool:
        """Whether the driver runs; notes for how long its status was not refreshed."""
        if self.process.poll() is not None:
            return False
        with suppress(FileNotFoundError):
            status = self.folder / f"{self.model}.zarr.unfinished" / "status.json"
            self.silence = max(self.silence, time.time() - status.stat().st_mtime)
        return True

    @property
    def working(self) -> bool:
        """Whether it has written a checkpoint, or has ended."""
        records = self.folder / f"{self.model}.zarr.unfinished" / "checkpoint"
        return not self.alive or any(records.glob("*.npz"))

    def problems(self, code: int, says: str, expected: Any) -> list[str]:
        """Return what is wrong with its end."""
        lines = [line for line in self.log.splitlines() if line.startswith("streampca: ")]
        wrong = {
            f"still running after {WAIT:.0f} s": self.alive,
            f"exit code {self.process.returncode}": self.process.returncode != code,
            f"{len(lines)} lines of error": len(lines) != (code != 0),
            "a traceback": "Traceback" in self.log,
            f"does not say {says!r}": says not in self.log,
            "other bits": code == 0 and not (self.output.exists() and bits(self.output) == expected),
            "a result": code != 0 and self.output.exists(),
            f"status not refreshed for {self.silence:.0f} s": self.silence > SILENCE,
        }
        return [f"{self.model}: {problem}" for problem, seen in wrong.items() if seen]


def bits(store: Path) -> dict[str, Any]:
    """Return all arrays of a result."""
    arrays = {name: np.asarray(array[...]) for name, array in zarr.open_group(store, mode="r").arrays()}
    return {name: x.tobytes() if x.dtype.kind in "biufM" else x.tolist() for name, x in arrays.items()}


# ---------------------------------------------------------------- faults

Injection = Callable[[Cluster, list[Run]], None]
LOST = "the connection to the Dask scheduler is lost; finished work is saved: run the same command to resume"
ENDS = {0: "same bits", 2: "one line, exit code 2", 75: "one line, exit code 75; resumed to the same bits"}


@dataclass(frozen=True)
class Fault:
    """What happens to the cluster, and how runs must end.

    Attributes
    ----------
    inject : does it, while the runs are at work.
    code : exit code of the runs; those with 75 are resumed.
    says : text that the log of each run must contain.
    models : of the runs.
    up : options of the cluster.
    """

    name: str
    inject: Injection
    code: int = 0
    says: str = ""
    models: tuple[str, ...] = tuple(MODELS)
    up: dict[str, str] = field(default_factory=dict)


def kill(*nodes: str) -> Injection:
    """Kill workers."""

    def inject(cluster: Cluster, _: list[Run]) -> None:
        for node in nodes:
            cluster.workers[node].end()

    return inject


def kill_again_and_again(cluster: Cluster, runs: list[Run]) -> None:
    """Kill all workers and start others until the runs have ended."""
    end = time.monotonic() + WAIT
    while any([run.alive for run in runs]) and time.monotonic() < end:
        kill(*NODES)(cluster, runs)
        cluster.up(cluster.home, **cluster.environment)
        time.sleep(1)


def replace_all(cluster: Cluster, runs: list[Run]) -> None:
    """Kill all workers; start another when the runs have noticed."""
    kill(*NODES)(cluster, runs)
    until(lambda: all("no workers; waiting for one" in run.log for run in runs), "runs to notice")
    cluster.join("node1")


def change(*hosts: str, **link: Any) -> Injection:
    """Change the links of hosts."""

    def inject(cluster: Cluster, _: list[Run]) -> None:
        for host in hosts:
            for name, value in link.items():
                setattr(cluster.switch.ports[host], name, value)

    return inject


def hang(cluster: Cluster, _: list[Run]) -> None:
    """Stop a worker."""
    cluster.workers["node3"].signal(signal.SIGSTOP)


def kill_scheduler(cluster: Cluster, _: list[Run]) -> None:
    """Kill the scheduler."""
    assert cluster.scheduler is not None
    cluster.scheduler.end()


def join(node: str, **options: str) -> Injection:
    """Let one more worker join."""
    return lambda cluster, _: cluster.join(node, **options)


def faults(folder: Path) -> list[Fault]:
    """Return all faults of clusters."""
    once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    return [
        Fault("a worker is killed", kill("node1"), says="2 of 3 workers left"),
        Fault("all workers are killed, one comes back", replace_all, says="no workers; waiting for one",
              models=("dense",)),
        Fault("a host is lost", change("node2", down=True), says="2 of 3 workers left"),
        Fault("a twentieth of all packets is lost", change(*NODES, loss=0.05)),
        Fault("packets take 40 ms", change(*NODES, delay=0.04), models=("genotypes",)),
        Fault("a worker hangs", hang, says="did not answer"),
        Fault("the scheduler is killed", kill_scheduler, 75, LOST),
        Fault("the scheduler's host is lost", change("node1", down=True), 75, LOST, ("ppca",),
              {"home": "node1"}),
        Fault("a task loses too many workers", kill_again_and_again, 75, "lost with the same task", ("dense",), once),
        Fault("a worker of another version joins", join("node2", preload="other.py"), 2,
              "a worker on host node2 has numpy 1.0", ("genotypes",)),
        Fault("a worker that rounds differently joins", join("node3", OPENBLAS_CORETYPE="Nehalem"), 2,
              "a worker on host node3 rounds differently", ("dense",)),
        # It cannot load what is sent to it, and ends.
        Fault("a worker without streampca joins", join("node2", preload="bare/nothing.py", before=f"cd {folder}/bare"),
              models=("ppca",)),
        Fault("a worker without the data joins", join("node3", before=f"mount -t tmpfs none {folder}/data"), 2,
              "(on host node3)", ("ppca",)),
    ]  # fmt: skip


def attempt(fault: Fault, cluster: Cluster, folder: Path, expected: dict[str, Any]) -> tuple[list[str], float]:
    """Start runs, inject a fault, resume those that were stopped; return problems, and how long a status was old."""
    folder.mkdir()
    brake = folder.parent / "brake"
    brake.touch()
    cluster.up(**fault.up)
    runs = [Run(model, folder) for model in fault.models]
    for run in runs:
        run.begin(kind="address", address=cluster.address)
    until(lambda: all([run.working for run in runs]), "checkpoints of all runs")
    problems = [f"{run.model}: ended before the fault" for run in runs if not run.alive]
    fault.inject(cluster, runs)
    if fault.code == 0:
        wait(lambda: not any([run.alive and fault.says not in run.log for run in runs]))
        brake.unlink()
    wait(lambda: not any([run.alive for run in runs]))
    for run in runs:
        problems += run.problems(fault.code, fault.says, expected[run.model])
    brake.unlink(missing_ok=True)
    if fault.code == 75:
        cluster.up()
        for run in runs:
            run.begin(kind="address", address=cluster.address)
        wait(lambda: not any([run.alive for run in runs]))
        for run in runs:
            problems += [f"resumed {problem}" for problem in run.problems(0, "resuming the run", expected[run.model])]
    if problems:
        print(*(f"{run.model}: {run.log}" for run in runs), sep="\n", file=sys.stderr)
    for run in runs:
        if run.alive:
            run.process.kill()
    return problems, max(run.silence for run in runs)


def wait(condition: Callable[[], Any]) -> None:
    """Wait until something is so; what is not is a problem of the runs."""
    with suppress(TimeoutError):
        until(condition, "runs")


def kill_starting(count: int, code: int, folder: Path, expected: dict[str, Any]) -> tuple[list[str], float]:
    """Kill worker processes of a run while they start."""
    folder.mkdir()
    run, killed = Run("dense", folder), set[int]()
    run.begin(kind="processes", workers=2)
    while len(killed) < count and run.alive:
        wait(lambda: not run.alive or starting(run, killed))
        for worker in starting(run, killed)[: count - len(killed)]:
            killed.add(worker.pid)
            with suppress(psutil.NoSuchProcess):
                worker.kill()
    wait(lambda: not run.alive)
    problems = run.problems(code, "worker processes did not start", expected["dense"])
    if problems:
        print(run.log, file=sys.stderr)
    return problems, run.silence


def starting(run: Run, killed: set[int]) -> list[psutil.Process]:
    """Return worker processes of a run that were not killed yet."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(run.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if child.pid not in killed and any("spawn_main" in part for part in child.cmdline()):
                    found.append(child)
    return found


def main() -> None:
    """Print the table; words of the command line select faults."""
    with tempfile.TemporaryDirectory(prefix="streampca-hosts-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        write_data(folder)
        switch = Switch()
        for number, host in enumerate((HEAD, *NODES), 1):
            switch.plug(host, number)
        switch.start()
        (folder / "threads").mkdir()
        alone = [Run(model, folder / "threads") for model in MODELS]
        for run in alone:
            run.begin(kind="threads", threads=1)
            run.process.wait()
        expected = {run.model: bits(run.output) for run in alone}
        cluster = Cluster(folder, switch)
        attempts = {
            fault.name: (f"{', '.join(fault.models)}", ENDS[fault.code], partial(attempt, fault, cluster))
            for fault in faults(folder)
        }
        for times, count, code in (("once", 1, 0), ("again and again", 100, 2)):
            name = f"a worker process is killed {times} while it starts"
            attempts[name] = ("dense", ENDS[code], partial(kill_starting, count, code))
        print("| fault | runs | ended | seconds | oldest status |\n| --- | --- | --- | ---: | ---: |", flush=True)
        failed = False
        for number, (fault, (models, end, function)) in enumerate(attempts.items()):
            if sys.argv[1:] and not any(word in fault for word in sys.argv[1:]):
                continue
            begun = time.monotonic()
            problems, silence = function(folder / str(number), expected)
            failed |= bool(problems)
            end = f"FAILED: {'; '.join(problems)}" if problems else end
            print(f"| {fault} | {models} | {end} | {time.monotonic() - begun:.0f} | {silence:.0f} s |", flush=True)
        cluster.down()
    sys.exit(failed)


if __name__ == "__main__":
    main()
