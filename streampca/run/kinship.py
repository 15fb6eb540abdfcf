"""The task that lists pairs of relatives, and a large set of unrelated samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streampca.genetics.kinship import kinship, plan_kinship, unrelated, write_ids, write_table
from streampca.genetics.pruning import filtered
from streampca.progress import Progress
from streampca.run.config.blocks import Data, EngineOptions, Filter
from streampca.run.fit import open_data
from streampca.run.task import Blocks, Expected, Task
from streampca.sweep.memory import Budget

SUFFIXES = (".kin0", ".king.cutoff.in.id", ".king.cutoff.out.id")  # as plink2 names them


class KinshipTask(Task):
    """Write the pairs of relatives, the ids of unrelated samples, and those of the others.

    Parameters
    ----------
    data, filter : the genotypes.
    table : path of the table of pairs, which ends with .kin0; the lists are next to it.
    threshold : minimum kinship of relatives.

    Attributes
    ----------
    pairs, kept : of `kinship` and `unrelated`, if this process did the work.
    """

    def __init__(
        self, data: Data, filter: Filter, table: Path, engine: EngineOptions, *, threshold: float,
        overwrite: bool = False,
    ):  # fmt: skip
        self.data, self.filter, self.threshold, self.engine = data, filter, threshold, engine
        self.files = tuple(table.name.removesuffix(SUFFIXES[0]) + suffix for suffix in SUFFIXES)
        self.output, self.overwrite = str(table.with_name(self.files[0])), overwrite
        self.pairs: Any = None
        self.kept: Any = None

    def options(self) -> Blocks:
        """Return data, filter and threshold."""
        blocks = {"data": self.data.as_dict(), "filter": self.filter.as_dict()}
        return {"kinship": {"threshold": self.threshold}, **blocks}

    def open(self) -> str:
        """Open the genotypes; return their fingerprint."""
        self._source = open_data(self.data, self.filter)
        self._source.watch()
        return str(self._source.fingerprint())

    def expected(self, budget: Budget, progress: Progress) -> Expected:  # noqa: ARG002
        """Plan the passes."""
        plan = plan_kinship(self._source, budget)
        return Expected(plan.threads, len(plan.passes))

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:
        """Count, and write the table and the lists."""
        source = filtered(self._source)
        self.pairs = kinship(source, self.threshold, memory=budget, progress=progress)
        self.kept = unrelated(self.pairs)
        table, inside, outside = (place / name for name in self.files or ())
        write_table(source, self.pairs, table)
        write_ids(source, self.kept, inside)
        write_ids(source, ~self.kept, outside)
