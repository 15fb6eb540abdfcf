"""Runs in processes of their own that can be watched, slowed, held and killed; run as a program, `streampca` is that.

Each task writes a line when it begins with a partition, and then waits while there are more lines than it is allowed:
so a test says when a run is to be where, and nothing depends on how fast the machine is. Worker processes load the
program of their driver, and so are watched like it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr

# Where a watched process leaves its lines; not set where tests run.
FOLDER, DELAY = "STREAMPCA_WATCHED", "STREAMPCA_WATCHED_DELAY"
LINE = 96
# Far more than anything takes.
LIMIT = 120.0
SLAB, PARTITION = 1 << 12, 1 << 14
RECORDS, PARTITIONS, FILES = "record", "partition", "file"


# ---------------------------------------------------------------- inside the processes that are watched


def reached(name: str, text: str = "") -> None:
    """Say that this point was reached, and wait while the test does not allow more."""
    folder = Path(os.environ[FOLDER])
    file = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{os.getpid()} {text}".ljust(LINE - 1).encode() + b"\n")
        number = os.lseek(file, 0, os.SEEK_CUR) // LINE
    finally:
        os.close(file)
    while number > _allowed(folder, name):
        time.sleep(0.005)


def _allowed(folder: Path, name: str) -> float:
    try:
        return float((folder / f"{name}.allowed").read_text())
    except FileNotFoundError:
        return float("inf")


def _told_apart(statistic: Any) -> str:
    """Return what tells the sweeps of a run apart: what they compute, with which arrays."""
    content = hashlib.blake2b(type(statistic).__name__.encode(), digest_size=8)
    for f in dataclasses.fields(statistic) if dataclasses.is_dataclass(statistic) else ():
        value = getattr(statistic, f.name)
        if isinstance(value, np.ndarray):
            content.update(np.ascontiguousarray(value).tobytes())
    return f"{type(statistic).__name__}-{content.hexdigest()}"


def watch() -> None:
    """Cut small data into many partitions, and let each say when it is begun; records and uploaded files, too."""
    import streampca.sources.base
    import streampca.sources.remote as remote
    import streampca.sweep.checkpoint
    import streampca.sweep.sweep as sweeps

    streampca.sources.base.SLAB_BYTES = SLAB
    streampca.sources.base.PARTITION_BYTES = PARTITION
    if hasattr(sweeps.run_partition, "__wrapped__"):
        return
    run_partition, write_record, entity_tag = (
        sweeps.run_partition,
        streampca.sweep.checkpoint.write_record,
        remote._entity_tag,
    )
    delay = float(os.environ.get(DELAY, "0"))

    # Workers are sent the name of this function, which is that of the one it stands for.
    @functools.wraps(run_partition)
    def watched(matrix: Any, statistic: Any, start: int, stop: int, *others: Any) -> Any:
        reached(PARTITIONS, f"{_told_apart(sweeps._here(statistic))} {start} {stop}")
        time.sleep(delay)
        return run_partition(matrix, statistic, start, stop, *others)

    def written(path: Path, tree: Mapping[str, Any]) -> None:
        reached(RECORDS, path.name)
        write_record(path, tree)

    def tagged(content: bytes) -> str:
        reached(FILES)
        return entity_tag(content)

    sweeps.run_partition = watched
    streampca.sweep.checkpoint.write_record = written
    remote._entity_tag = tagged


if FOLDER in os.environ:
    watch()
if __name__ == "__main__":
    from streampca.cli import main

    main()


# ---------------------------------------------------------------- in tests


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {LIMIT:.0f} s: {what}"
        time.sleep(0.01)
    return found


@dataclass
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of an error that the user can cure."""
        assert self.code == 2, (self.code, self.err)
        lines = [line for line in self.err.splitlines() if line.startswith("streampca: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err, self.err
        return lines[0]


@dataclass
class Watched:
    """One run, by as many processes one after the other as it takes; `folder` holds what they say.

    Attributes
    ----------
    delay : seconds that each partition takes more.
    environment : what is set for its processes.
    """

    folder: Path
    config: Path
    delay: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    process: Any = None
    orphans: list[psutil.Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def start(self, *arguments: Any) -> None:
        """Start the command, always the same but for these arguments."""
        here = str(Path(__file__).resolve())
        environment = os.environ | {FOLDER: str(self.folder), DELAY: str(self.delay)} | self.environment
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, here, "run", str(self.config), *map(str, arguments)],
                stdout=out, stderr=err, env=environment, cwd=self.config.parent,
            )  # fmt: skip

    def end(self) -> Ended:
        """Wait for its end."""
        code = self.process.wait(LIMIT)
        return Ended(code, (self.folder / "out").read_text(), (self.folder / "err").read_text())

    def whole(self, *arguments: Any) -> Ended:
        """Run it to its end, which must be a good one."""
        self.start(*arguments)
        ended = self.end()
        assert ended.code == 0, ended.err
        return ended

    def allow(self, number: float, name: str = PARTITIONS) -> None:
        """Let all after so many wait."""
        beside = self.folder / f"{name}.beside"
        beside.write_text(str(number))
        os.replace(beside, self.folder / f"{name}.allowed")

    def lines(self, name: str = PARTITIONS) -> list[str]:
        """Return what was said so far, without who said it."""
        with suppress(FileNotFoundError):
            return [line.partition(" ")[2].strip() for line in (self.folder / name).read_text().splitlines()]
        return []

    def count(self, name: str = PARTITIONS) -> int:
        """Return how often a point was reached."""
        with suppress(FileNotFoundError):
            return (self.folder / name).stat().st_size // LINE
        return 0

    def wait_for(self, number: int, name: str = PARTITIONS) -> None:
        """Wait until a point was reached so often."""

        def there() -> bool:
            if self.process.poll() is not None and self.count(name) < number:
                raise AssertionError(f"it ended before {name} {number}: {self.end()}")
            return self.count(name) >= number

        until(there, f"{name} {number}, is at {self.count(name)}")

    def signal(self, number: int) -> None:
        """Send a signal to the driver."""
        self.process.send_signal(number)

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes of the driver."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if any("multiprocessing.spawn" in part for part in child.cmdline()):
                        found.append(child)
        return found

    def kill(self, kind: str, rng: np.random.Generator) -> None:
        """Kill the driver, a worker, all workers, or all."""
        workers = self.workers()
        victims = {"driver": [], "worker": [], "all workers": workers, "driver and workers": workers}[kind]
        if kind == "worker":
            workers = until(self.workers, "a worker")
            victims = [workers[int(rng.integers(len(workers)))]]
        if kind.startswith("driver"):
            self.process.kill()
        for worker in victims:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        if kind.startswith("driver"):
            self.process.wait(LIMIT)
            self.orphans += workers

    def wait_for_orphans(self) -> None:
        """Wait until workers that lost their driver have ended, which they must do by themselves."""
        until(lambda: not any(_lives(worker) for worker in self.orphans), "workers without a driver to end")

    def clean(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self.process is not None and self.process.poll() is None:
            self.kill("driver and workers", np.random.default_rng(0))


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def watched(folder: Path, config: Path, **options: Any) -> Iterator[Watched]:
    """Have a run to watch, and nothing of it left afterwards."""
    run = Watched(folder, config, **options)
    try:
        yield run
    finally:
        run.clean()


def times_done(run: Watched) -> Counter[str]:
    """Return how often each partition of each sweep was begun."""
    return Counter(run.lines())


def bits(store: Path) -> dict[str, Any]:
    """Return all arrays of a result: the bytes of numbers, text as it is."""
    group = zarr.open_group(store, mode="r")
    found: dict[str, Any] = {}
    for name, array in group.arrays():
        values = np.asarray(array[...])
        found[name] = values.tobytes() if values.dtype.kind in "biufM" else values.tolist()
    return found


def write_config(path: Path, data: Any, result: Any, /, **blocks: Mapping[str, Any]) -> Path:
    """Write a configuration; JSON is YAML."""
    whole = {
        "data": {"path": str(data)} | dict(blocks.get("data", {})),
        "filter": dict(blocks.get("filter", {})),
        "model": {"kind": "pca", "n_components": 4} | dict(blocks.get("model", {})),
        "engine": {"memory_limit": "2GB", "threads": 2, "checkpoint_minutes": 1e-6} | dict(blocks.get("engine", {})),
        "output": {"path": str(result)} | dict(blocks.get("output", {})),
    }
    path.write_text(json.dumps(whole, indent=1))
    return path


PROCESSES = {"kind": "processes", "workers": 2, "threads": 1, "dashboard": False}
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGUSR1": signal.SIGUSR1}
