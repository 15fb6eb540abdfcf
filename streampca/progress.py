"""Progress of sweeps: bars on a terminal, log lines elsewhere, a callback for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger("streampca")


@dataclass(frozen=True)
class Step:
    """State of the work.

    Attributes
    ----------
    sweep, label : number of the sweep, 0 for other work, and its purpose.
    done, total : partitions.
    seconds : so far.
    note : text of the solver.
    earlier : partitions that an earlier run had done; they took none of the seconds.
    """

    sweep: int
    label: str
    done: int
    total: int
    seconds: float
    note: str = ""
    earlier: int = 0

    @property
    def title(self) -> str:
        """Title of the work."""
        return f"sweep {self.sweep}, {self.label}" if self.sweep else self.label

    @property
    def eta(self) -> float | None:
        """Seconds left in this sweep at the pace so far."""
        now = self.done - self.earlier
        return self.seconds / now * (self.total - self.done) if now else None


Progress = Callable[[Step], None]


def silent(step: Step) -> None:
    """Show nothing."""


def reporting(items: Iterable[T], total: int, label: str, progress: Progress) -> Iterator[T]:
    """Yield items of work that is not a sweep, and report the progress after each."""
    began = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        progress(Step(0, label, done, total, time.monotonic() - began))


class LogProgress:
    """One log line at the end of each sweep, and one every `every` seconds within it."""

    def __init__(self, every: float = 30.0):
        self._every = every
        self._last = time.monotonic()

    def __call__(self, step: Step) -> None:
        """Log the step, if it is time."""
        now = time.monotonic()
        if step.done < step.total and now - self._last < self._every:
            return
        self._last = now
        left = "" if step.done == step.total or step.eta is None else f", {step.eta:.0f} s left in this sweep"
        note = f" ({step.note})" if step.note else ""
        facts = asdict(step) | {"eta_seconds": step.eta, "memory_bytes": system().Process().memory_info().rss}
        logger.info(
            "%s: %d of %d partitions in %.1f s%s, %s%s", step.title, step.done, step.total, step.seconds, left,
            _memory(), note, extra={"facts": facts},
        )  # fmt: skip


def system() -> Any:
    """Return psutil, which knows the memory of processes and machine."""
    # Slow to load; help and errors do without it.
    import psutil

    return psutil


def _memory() -> str:
    """Return the resident size of this process as text."""
    return f"{system().Process().memory_info().rss / 1e6:.0f} MB"


class JsonLines(logging.Formatter):
    """Log lines as JSON objects, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts = getattr(record, "facts", {})
        when = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        return json.dumps({"time": when, "level": record.levelname.lower(), "message": record.getMessage(), **facts})


class BarProgress:
    """One line on the terminal: sweep, bar, time left."""

    def __init__(self) -> None:
        # Only terminals show a bar; rich is slow to load.
        from rich import progress as bars

        self._bars = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TextColumn("left"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[memory]} {task.fields[note]}"),
            transient=True,
        )
        self._task = self._bars.add_task("", note="", memory="", total=None)
        self._shown = ""

    def __call__(self, step: Step) -> None:
        """Draw the step."""
        if step.title != self._shown:
            self._shown = step.title
            self._bars.reset(self._task, total=step.total)
        self._bars.update(
            self._task, completed=step.done, total=step.total, description=step.title, note=step.note, memory=_memory()
        )

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def on_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def show_bytes(n_bytes: float) -> str:
    """Return an amount in readable units: 1.6 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"
