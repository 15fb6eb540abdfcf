"""What the driver runs: a task reads its inputs and writes one output.

Fitting a model is one task; applying one, pruning and converting are others. A task knows its options, inputs and
outputs. The driver locks the output, resumes, starts the engine, handles signals and renames what is finished.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streampca.files import is_url, text_paths
from streampca.progress import Progress
from streampca.results.output import check_output
from streampca.run.config.blocks import EngineOptions, Threads
from streampca.sweep.memory import COMMAND_BASELINE, Budget

Blocks = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Expected:
    """What a task will need: tasks at a time, and its number of sweeps; None if it is not known."""

    threads: int | None = None
    sweeps: int | None = None


class Task(ABC):
    """Work that writes one output.

    Attributes
    ----------
    output : path or URL of a Zarr store; of text files, the path of the first.
    overwrite : replace an output that exists.
    engine : where the work is done.
    work : directory for unfinished work, if the output is a URL.
    files : names of the text files that are written, next to `output`; None for a store.
    baseline : resident size of the command before it reads data.
    """

    output: str
    overwrite: bool = False
    engine: EngineOptions = Threads()
    work: str | None = None
    files: tuple[str, ...] | None = None
    baseline: int = COMMAND_BASELINE

    @abstractmethod
    def options(self) -> Blocks:
        """Return all options, as JSON; unfinished work of other options is not resumed."""

    @abstractmethod
    def open(self) -> str:
        """Open the inputs; return their fingerprint."""

    @abstractmethod
    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:
        """Do the work and write its output to a directory: a store, or files of their final names."""

    def expected(self, budget: Budget, progress: Progress) -> Expected:  # noqa: ARG002
        """Plan the work; raise `MemoryLimitError` if it does not fit the budget."""
        return Expected()

    def check(self) -> None:
        """Raise before the work starts if the output could not be written at its end."""
        if self.files is not None:
            for path in self.paths:
                text_paths(path, ("",), self.overwrite)
        elif not is_url(self.output):
            check_output(Path(self.output), self.overwrite)

    def finish(self, place: Path, again: bool) -> None:  # noqa: B027
        """Write what is made of the finished store, next to it; `again` if an earlier attempt may have done so."""

    @property
    def paths(self) -> list[Path]:
        """The text files."""
        return [Path(self.output).with_name(name) for name in self.files or ()]
