"""Kill a command with SIGKILL at each of its file operations, run it again, and compare the output bit by bit.

Run as a program: it imports streampca once and forks a child for each attempt, which is much faster than starting an
interpreter each time. A child counts its file operations by an audit hook and kills itself at a given one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# Sizes that cut small data into several partitions.
SLAB, PARTITION = 1 << 12, 1 << 14
OPERATIONS = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Files that are renamed when they are complete.
TEMPORARY = (".partial", ".part", ".unfinished")
# What an open file contains when the process is killed while it writes.
TORN = b"\0torn"
# Attempts at a time.
AT_A_TIME = 2
FINISHED = 10**9


class Points:
    """Counts the points of a process at which it may be killed, and kills it at one of them."""

    def __init__(self, folder: str, kill_at: int):
        self.folder, self.kill_at, self.count = folder, kill_at, 0

    def reached(self, torn: Callable[[], None] | None = None) -> None:
        """Count a point; a file that is written under its final name has a second one, when part of it is written."""
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if torn is not None:
            self.count += 1
            if self.count == self.kill_at:
                torn()
                os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count operations on files of the folder."""
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes)) and (flags or 0) & WRITES and self._here(path):
                temporary = os.fsdecode(path).endswith(TEMPORARY) or not flags & os.O_TRUNC
                self.reached(None if temporary else lambda: _tear(path))
        elif event in OPERATIONS and (arguments[-1] != -1 or self._here(arguments[0])):
            self.reached()

    def _here(self, path: Any) -> bool:
        return isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith(self.folder)


def _tear(path: Any) -> None:
    """Leave a file as it is after its first bytes are written."""
    os.write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), TORN)


def attempt(arguments: Sequence[str], folder: Path, kill_at: int = FINISHED, partitions: bool = False) -> int:
    """Run a command in a child in a folder, killed at a point; return the process id of the child."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["streampca", *arguments]
        points = Points(str(folder), kill_at)
        _watch(points, partitions)
        try:
            from streampca.cli import main

            main()
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
        found = {"points": points.count, "modules": sorted(sys.modules)}
        folder.with_suffix(".json").write_text(json.dumps(found))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _watch(points: Points, partitions: bool) -> None:
    """Count file operations, and the partitions that are begun if wanted."""
    import streampca.sweep.sweep as sweeps

    fsync, run_partition = os.fsync, sweeps.run_partition

    def counted(number: int) -> None:
        points.reached()
        fsync(number)

    def begun(*given: Any) -> Any:
        points.reached()
        return run_partition(*given)

    os.fsync = counted  # type: ignore[assignment]
    if partitions:
        sweeps.run_partition = begun
    sys.addaudithook(points.audit)


def prepare() -> None:
    """Load what commands need; small data make several partitions, and each checkpoint is written at once."""

    import streampca.cli.fit
    import streampca.results.apply
    import streampca.run.apply
    import streampca.run.convert
    import streampca.run.driver
    import streampca.run.fit
    import streampca.run.images
    import streampca.sources.base
    from streampca.results.kind import kind_names, kind_of
    from streampca.run.work_directory import WorkDirectory
    from streampca.sweep.checkpoint import Checkpoint

    streampca.sources.base.SLAB_BYTES = SLAB
    streampca.sources.base.PARTITION_BYTES = PARTITION
    streampca.run.convert.CHUNK, streampca.run.images.CHUNK_BYTES = (16, 100), 3 * 8 * 8
    for name in kind_names():
        kind = kind_of(name)
        if kind.fit:
            kind.function("fit")
    WorkDirectory.checkpoint = lambda self, _: Checkpoint(self.folder / "checkpoint", 0.0)  # type: ignore[method-assign]


def contents(folder: Path) -> dict[str, Any]:
    """Return all files of an output; of the attributes of a store, which contain times, the names."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name, content = str(path.relative_to(folder)), path.read_bytes()
            found[name] = content
            if path.name == "zarr.json" and path.parent.parent == folder:
                found[name] = sorted(json.loads(content)["attributes"])
    return found


def wait(child: int, log: Path, killed: bool = False) -> None:
    """Wait for a child, which must succeed, or be killed."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0 and not (killed and code == -signal.SIGKILL):
        lines = log.read_text().splitlines() or [""]
        raise RuntimeError(f"exit code {code}: {lines[-1]}")


def run_points(case: dict[str, Any], folder: Path) -> Iterator[str]:
    """Kill a command at each point, or at seeded ones, and run it again; yield what went wrong."""
    arguments, seeded = case["arguments"], case.get("seeded")
    whole = folder / "whole"
    whole.mkdir()
    wait(attempt(arguments, whole, partitions=bool(seeded)), whole.with_suffix(".log"))
    expected, found = contents(whole), json.loads(whole.with_suffix(".json").read_text())
    for name in found["modules"]:
        # Children need not load them again.
        with suppress(ImportError):
            import_module(name)
    points = list(range(1 + case.get("first", 0), found["points"] + 1, case.get("step", 1)))
    if seeded:
        points = sorted(random.Random(case["seed"]).sample(points, seeded))
    yield f"points {len(points)} of {found['points']}"
    waiting: list[tuple[int, Path, int, bool]] = []

    def finish() -> Iterator[str]:
        child, place, point, again = waiting.pop(0)
        try:
            wait(child, place.with_suffix(".log"), killed=not again)
            if not again:
                waiting.append((attempt(arguments, place), place, point, True))
            elif contents(place) != expected:
                different = {name for name in contents(place).keys() | expected if
                             contents(place).get(name) != expected.get(name)}  # fmt: skip
                yield f"killed at {point}: other output: {sorted(different)[:5]}"
            else:
                shutil.rmtree(place)
        except RuntimeError as error:
            yield f"killed at {point}: {error}"

    for point in points:
        place = folder / f"point{point}"
        place.mkdir()
        waiting.append((attempt(arguments, place, point, bool(seeded)), place, point, False))
        while len(waiting) >= AT_A_TIME:
            yield from finish()
    while waiting:
        yield from finish()


def main() -> None:
    """Read cases as JSON, and print what went wrong in each."""
    prepare()
    folder = Path(sys.argv[1])
    for name, case in json.load(sys.stdin).items():
        place = folder / name
        place.mkdir()
        for line in run_points(case, place):
            print(name, line, flush=True)


def killed_anywhere(cases: dict[str, Any], folder: Path) -> dict[str, list[str]]:
    """Run cases in a process of its own; return the lines of each."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], input=json.dumps(cases), capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines: dict[str, list[str]] = {name: [] for name in cases}
    for line in done.stdout.splitlines():
        lines[line.partition(" ")[0]].append(line.partition(" ")[2])
    return lines


if __name__ == "__main__":
    main()
