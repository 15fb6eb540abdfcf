"""Damaged and made-up input for every reader: see scripts/fuzz."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.targets import TARGETS, Files, Target, genotypes
from fuzzing.trying import Trial, Tried, input_of, keep_smallest, try_range

# Seconds without a new input after which a process is taken for stuck.
STUCK = 60.0
fork = multiprocessing.get_context("fork")


@dataclass
class Count:
    """What became of the inputs of one reader."""

    target: Target
    seeds: Sequence[Files]
    wanted: int
    begun: int = 0
    accepted: int = 0
    rejected: int = 0
    seconds: float = 0.0
    failures: dict[str, list[int]] = field(default_factory=dict)

    def add(self, tried: Tried) -> None:
        """Count what a process found."""
        self.accepted += tried.accepted
        self.rejected += tried.rejected
        self.seconds += tried.seconds
        for failure in tried.failures:
            self.failures.setdefault(failure["what"], []).append(failure["number"])

    @property
    def classes(self) -> str:
        """Say how files are damaged."""
        names = dict.fromkeys(how.__name__.lstrip("_") for set_ in self.target.how.values() for how in set_)
        return ", ".join(names)

    def row(self) -> str:
        """Return a line of the table."""
        failed = sum(map(len, self.failures.values()))
        tried = self.accepted + self.rejected + failed
        cells = (self.target.name, self.classes, f"{tried:,}", f"{self.accepted:,}", f"{self.rejected:,}", str(failed))
        return f"| {' | '.join(cells)} |"


@dataclass
class Running:
    """A process that tries some inputs."""

    count: Count
    work: Path
    start: int
    stop: int
    process: Any
    current: int = -1
    since: float = field(default_factory=time.monotonic)

    def look(self) -> bool:
        """Tell whether it is done; one that is stuck is ended."""
        if not self.process.is_alive():
            return True
        now = int.from_bytes((self.work / "current").read_bytes(), "little")
        if now != self.current:
            self.current, self.since = now, time.monotonic()
        elif time.monotonic() - self.since > STUCK:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def tried(self) -> Tried:
        """Return what it found; if it died, that it did."""
        self.process.join()
        found = self.work / "tried.json"
        if found.exists():
            return Tried(**json.loads(found.read_text()))
        at = int.from_bytes((self.work / "current").read_bytes(), "little")
        what = f"died of signal {-self.process.exitcode}" if self.process.exitcode < 0 else "ended"
        # What it found before is lost: these inputs are tried again, and the next process begins after this one.
        return Tried(failures=[{"number": at, "what": what}], stopped=at + 1)


class Fuzzing:
    """All readers, in some processes at a time."""

    def __init__(self, folder: Path, seed: int, workers: int):
        self.folder, self.seed, self.workers, self.number = folder, seed, workers, 0

    def begin(self, count: Count, start: int, stop: int, end: float) -> Running:
        """Start a process that tries inputs start to stop."""
        self.number += 1
        work = self.folder / f"w{self.number}"
        work.mkdir()
        (work / "current").write_bytes(start.to_bytes(8, "little"))
        arguments = (count.target, count.seeds, self.seed, start, stop, work, end)
        process = fork.Process(target=try_range, args=arguments)
        process.start()
        return Running(count, work, start, stop, process)

    def run(self, counts: list[Count], seconds: float) -> None:
        """Try all that is wanted, each reader in turn, until the time is over."""
        end = time.monotonic() + seconds
        waiting: list[tuple[Count, int, int]] = []
        running: list[Running] = []
        while True:
            for job in [job for job in running if job.look()]:
                running.remove(job)
                tried = job.tried()
                job.count.add(tried)
                shutil.rmtree(job.work, ignore_errors=True)
                if tried.failures and not (tried.accepted or tried.rejected or len(tried.failures) > 1):
                    # A process that died: those before and after it.
                    at = tried.failures[0]["number"]
                    waiting += [(job.count, job.start, at)] if at > job.start else []
                if tried.stopped < job.stop:
                    waiting.append((job.count, tried.stopped, job.stop))
            while len(running) < self.workers and time.monotonic() < end:
                if not waiting:
                    left = [count for count in counts if count.begun < count.wanted]
                    if not left:
                        break
                    count = min(left, key=lambda count: count.begun / count.wanted)
                    stop = min(count.begun + count.target.length, count.wanted)
                    waiting.append((count, count.begun, stop))
                    count.begun = stop
                running.append(self.begin(*waiting.pop(), end))
            if not running:
                return
            time.sleep(0.02)

    def keep(self, counts: list[Count], kept: Path) -> None:
        """Keep the first input of each kind of failure, made small."""
        for count in counts:
            for i, (what, numbers) in enumerate(count.failures.items()):
                self.number += 1
                place = kept / f"{count.target.name.strip('.').replace(' ', '-')}-{i}"
                work = self.folder / f"w{self.number}"
                work.mkdir()
                arguments = (count.target, count.seeds, self.seed, min(numbers), what, work, place)
                process = fork.Process(target=keep_smallest, args=arguments)
                process.start()
                process.join(30)
                process.kill()
                process.join()
                shutil.rmtree(work, ignore_errors=True)
                print(f"{count.target.name}: {what}: {len(numbers)} inputs, first {min(numbers)}, in {place}")


def seeds_of(targets: list[Target], folder: Path) -> dict[str, Sequence[Files]]:
    """Make valid inputs, in a process of its own: threads that stores start would not outlive a fork."""

    def make() -> None:
        made = {}
        for target in targets:
            place = folder / f"seeds-{target.name.strip('.')}"
            place.mkdir()
            made[target.name] = target.seeds(place)
            shutil.rmtree(place)
        (folder / "seeds").write_bytes(pickle.dumps(made))

    process = fork.Process(target=make)
    process.start()
    process.join()
    made: dict[str, Sequence[Files]] = pickle.loads((folder / "seeds").read_bytes())
    return made


def again(name: str, folder: Path) -> None:
    """Try one input in this process, so that its error is seen."""
    target_name, seed, number = name.rsplit("/", 2)
    target = TARGETS[target_name]
    seeds = seeds_of([target], folder)[target_name]
    which, file, content = input_of(target, seeds, int(seed), int(number))
    trial = Trial(target, seeds, folder / "again")
    path = trial.folder(which) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    print(file, content[:2000], sep="\n")
    target.use(trial.folder(which), int(number))


def main() -> int:
    """Try inputs and print what became of them; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="in all; cheap readers get more")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--again", help="NAME/SEED/NUMBER: this input alone, with its traceback")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="fuzz-") as name:
        folder = Path(name).resolve()
        if options.again:
            again(options.again, folder)
            return 0
        targets = [TARGETS[name] for name in options.target or TARGETS]
        started = time.monotonic()
        # Compiled once, for all processes.
        genotypes(str(folder)).read(slice(0, 8), slice(0, 12))
        seeds = seeds_of(targets, folder)
        shares = sum(target.share for target in targets)
        counts = [
            Count(target, seeds[target.name], max(1, round(options.inputs * target.share / shares)))
            for target in targets
        ]
        fuzzing = Fuzzing(folder, options.seed, options.workers)
        fuzzing.run(counts, options.seconds)
        fuzzing.keep(counts, options.failures)
    print("| reader | how inputs are damaged | inputs | read, equal | rejected | failures |")
    print("| --- | --- | --- | --- | --- | --- |")
    for count in counts:
        print(count.row())
    total = Counter[str]()
    for count in counts:
        total.update(accepted=count.accepted, rejected=count.rejected, failed=sum(map(len, count.failures.values())))
    print(
        f"\n{sum(total.values()):,} inputs in {time.monotonic() - started:.0f} s, seed {options.seed}: "
        f"{total['accepted']:,} read, {total['rejected']:,} rejected, {total['failed']:,} failed"
    )
    for count in counts:
        each = 1000 * count.seconds / max(1, count.accepted + count.rejected)
        print(f"{count.target.name}: {each:.2f} ms of processor time each", file=sys.stderr)
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
