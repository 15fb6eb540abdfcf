"""One input, or many, tried in a process of its own with limits: what it said, and the smallest file that says it."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from fuzzing import forked
from fuzzing.mutations import mutated
from fuzzing.targets import Files, Target
from streampca.errors import InputError, Stopped

# Of one input: seconds of processor time, address space and resident size beside what the process has already.
SECONDS = 10.0
ADDRESS_BYTES = 2 << 30
RESIDENT_BYTES = 1200 << 20
LONGEST_MESSAGE = 1000
# Messages about what was asked, not about a file.
UNNAMED = (
    "--set",
    "a result of kind",
    "the result holds",
    "the result has no scores",
    "the kernel of this result",
    "variance needs 2 samples",
    "PCA needs at least 2 samples",
)
# Seconds for making one failing file smaller.
SMALLER = 10.0


class TookTooLongError(BaseException):
    """An input took more than its time."""


@dataclass
class Tried:
    """What became of inputs: how many were used, rejected in one line, or failed, and how."""

    accepted: int = 0
    rejected: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    stopped: int = 0
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Leave it where the parent finds it."""
        self.seconds = time.process_time()
        path.with_suffix(".part").write_text(json.dumps(asdict(self)))
        path.with_suffix(".part").rename(path)


def input_of(target: Target, seeds: Sequence[Files], seed: int, number: int) -> tuple[int, str, bytes]:
    """Return an input by its number: which seed, which of its files, and what is in it; the seeds come first."""
    rng = random.Random(f"{seed}/{target.name}/{number}")
    which = number if number < len(seeds) else rng.randrange(len(seeds))
    files = seeds[which]
    names = sorted((name for name in files if target.mutations(name)), key=lambda name: (name.count("/"), name))
    name = names[0] if rng.random() < 0.3 else rng.choice(names)
    if number < len(seeds):
        return which, name, files[name]
    end = name.rpartition("/")[2]
    others = [content for other in seeds for n, content in other.items() if n.endswith(end) and content]
    how = target.mutations(name)
    assert how is not None
    return which, name, mutated(files[name], how, rng, others)


class Trial:
    """A folder in which inputs of one target are tried, one after the other."""

    def __init__(self, target: Target, seeds: Sequence[Files], work: Path):
        self.target, self.seeds, self.work, self.n_rejected = target, seeds, work, 0
        (work / "out").mkdir(parents=True, exist_ok=True)
        for which, files in enumerate(seeds):
            for name, content in files.items() if target.batch == 1 else ():
                path = self.folder(which) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        os.chdir(work)

    def folder(self, which: int) -> Path:
        """Return where the files of a seed are."""
        return self.work / f"input{which}"

    def one(self, which: int, name: str, content: bytes, number: int) -> str | None:
        """Try one input; returns None if it was used, "" if it was rejected as it should be, else what went wrong."""
        path = self.folder(which) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            return self._outcome(self.folder(which), number)
        finally:
            if self.target.batch == 1:
                path.write_bytes(self.seeds[which][name])
            else:
                path.unlink()

    def many(self, inputs: Sequence[tuple[int, str, bytes]], number: int) -> str | None:
        """Try inputs together, which lie in one folder."""
        folder = self.folder(0)
        folder.mkdir(exist_ok=True)
        paths = [folder / f"{i}-{name}" for i, (_, name, _) in enumerate(inputs)]
        for path, (_, _, content) in zip(paths, inputs, strict=True):
            path.write_bytes(content)
        try:
            return self._outcome(folder, number)
        finally:
            for path in paths:
                path.unlink()

    def _outcome(self, folder: Path, number: int) -> str | None:
        before, unraisable = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
        # Errors of destructors, which Python prints.
        sys.unraisablehook = lambda error: unraisable.append(type(error.exc_value).__name__)
        try:
            with _limited(), contextlib.redirect_stdout(io.StringIO()):
                self.n_rejected = self.target.use(folder, number) or 0
            told = None
        except (InputError, click.ClickException) as error:
            told = _judged(str(error) if isinstance(error, InputError) else error.format_message(), self.work)
        except OSError:
            told = ""
        except (Exception, TookTooLongError, Stopped) as error:
            told = _signature(error)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        if unraisable:
            return f"printed: {unraisable[0]} of a destructor"
        if grown > RESIDENT_BYTES:
            return f"memory: grew by {grown >> 20} MB"
        if strange := {path.name for path in self.work.iterdir()} - self._known:
            for name in strange:
                with contextlib.suppress(OSError):
                    os.rename(self.work / name, self.work / "out" / f"strange-{name}".replace("/", " "))
            return f"escaped: wrote {sorted(strange)}"
        return told

    @property
    def _known(self) -> set[str]:
        ours = {"out", "current", "tried.json", "tried.part", "valid.bed", "valid.bim", "valid.fam"}
        return ours | {f"input{which}" for which in range(len(self.seeds))}


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TookTooLongError(f"more than {SECONDS:g} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _judged(message: str, work: Path) -> str:
    """Return what is wrong with a message: it must be one line, not too long, and name the file."""
    if len(message.splitlines()) != 1 or not message.isprintable():
        return f"message: not one line: {message[:60]!r}"
    if len(message) > LONGEST_MESSAGE:
        return f"message: too long: {message.replace(str(work), '')[:20]!r}"
    if str(work) not in message and not message.startswith(UNNAMED):
        return f"message: names no file: {message[:60]!r}"
    return ""


def _signature(error: BaseException) -> str:
    """Return the kind of an error, and the last place of this package on the way to it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}streampca{os.sep}" in frame.filename] or frames[-1:]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return f"{type(error).__name__} at {place} by {frames[-1].name}"


def limit_memory() -> None:
    """Let this process have no more address space than ADDRESS_BYTES beside what it has."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + ADDRESS_BYTES, has + ADDRESS_BYTES))


def try_range(
    target: Target, seeds: Sequence[Files], seed: int, start: int, stop: int, work: Path, end: float
) -> None:  # fmt: skip
    """Try inputs start to stop, and leave in tried.json what became of them; `current` says which is being tried."""
    warnings.simplefilter("ignore")
    forked.install()
    trial, tried = Trial(target, seeds, work), Tried(stopped=stop)
    with (work / "current").open("r+b") as file:
        current = mmap.mmap(file.fileno(), 8)
    limit_memory()
    sys.setrecursionlimit(1000)
    for first in range(start, stop, target.batch):
        if time.monotonic() > end:
            tried.stopped = first
            break
        current[:8] = first.to_bytes(8, "little")
        numbers = range(first, min(first + target.batch, stop))
        inputs = [input_of(target, seeds, seed, number) for number in numbers]
        if target.batch > 1:
            told = trial.many(inputs, first)
            if told is None:
                tried.accepted += len(numbers) - trial.n_rejected
                tried.rejected += trial.n_rejected
                continue
        for number, (which, name, content) in zip(numbers, inputs, strict=True):
            told = trial.one(which, name, content, number)
            if not told:
                tried.accepted += told is None
                tried.rejected += told is not None
                continue
            tried.failures.append({"number": number, "what": told})
            if told.startswith(("memory", "MemoryError", "TookTooLongError")):
                # What is left of it would be in the way of others.
                tried.stopped = number + 1
                tried.write(work / "tried.json")
                os._exit(0)
    tried.write(work / "tried.json")
    os._exit(0)


def keep_smallest(
    target: Target, seeds: Sequence[Files], seed: int, number: int, what: str, work: Path, kept: Path
) -> None:
    """Remove what need not be there for an input to fail as it did, and keep all its files."""
    warnings.simplefilter("ignore")
    which, name, content = input_of(target, seeds, seed, number)
    kept.mkdir(parents=True, exist_ok=True)
    for other, there in seeds[which].items():
        (kept / other).parent.mkdir(parents=True, exist_ok=True)
        (kept / other).write_bytes(content if other == name else there)
    (kept / "what.txt").write_text(f"{what}\nfile {name}, again: --again '{target.name}/{seed}/{number}'\n")
    trial = Trial(target, seeds, work)
    limit_memory()
    end, size = time.monotonic() + SMALLER, max(1, len(content) // 2)
    while size and time.monotonic() < end:
        at = 0
        while at < len(content) and time.monotonic() < end:
            smaller = content[:at] + content[at + size :]
            if trial.one(which, name, smaller, number) == what:
                content = smaller
                (kept / name).write_bytes(content)
            else:
                at += size
        size //= 2
    os._exit(0)
