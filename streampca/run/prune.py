"""The task that lists variants in approximate linkage equilibrium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streampca.genetics.pruning import filtered, list_paths, prune, write_lists
from streampca.progress import Progress
from streampca.run.config.blocks import Data, Filter, Threads
from streampca.run.fit import open_data
from streampca.run.task import Blocks, Task
from streampca.sweep.memory import Budget


class PruneTask(Task):
    """Prune variants and write the lists of those kept and removed.

    Parameters
    ----------
    data, filter : the genotypes.
    prefix : of the lists, PREFIX.prune.in and PREFIX.prune.out.
    options : window, step and r2; see `prune`.

    Attributes
    ----------
    kept : which variants are kept, if this process did the work.
    """

    def __init__(
        self, data: Data, filter: Filter, prefix: Path, *, overwrite: bool = False, engine: Threads | None = None,
        **options: Any,
    ):  # fmt: skip
        self.data, self.filter, self.prefix, self.pruning = data, filter, prefix, options
        self.files = tuple(f"{prefix.name}{suffix}" for suffix in (".prune.in", ".prune.out"))
        self.output, self.overwrite = str(prefix.with_name(self.files[0])), overwrite
        self.engine = engine or Threads()
        self.kept: Any = None

    def options(self) -> Blocks:
        """Return data, filter and the options of pruning."""
        blocks = {"data": self.data.as_dict(), "filter": self.filter.as_dict()}
        return {"prune": self.pruning, **blocks}

    def open(self) -> str:
        """Open the genotypes; return their fingerprint."""
        self._source = open_data(self.data, self.filter)
        self._source.watch()
        return str(self._source.fingerprint())

    def check(self) -> None:
        """Raise before the work starts if the lists could not be written."""
        super().check()
        list_paths(self._source, self.prefix)

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:
        """Prune and write the lists."""
        source = filtered(self._source)
        self.kept = prune(source, **self.pruning, progress=progress, budget=budget)
        write_lists(source, self.kept, place / self.prefix.name)
