"""The command `prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.options import (
    ENGINE,
    OVERWRITE,
    RUN,
    FlagCommand,
    existing,
    flags,
    given_options,
    record_flags,
    run_task,
    stem,
)
from streampca.run.config.blocks import Data, Filter, Threads

NOT_HERE = ("ld_prune", "unrelated", "outliers", "outlier_rounds")
SELECTION = [name for name in Filter.fields if name not in NOT_HERE]


@click.command(cls=FlagCommand, epilog="Example: streampca prune study.bed --window 50 --step 5 --r2 0.2")
@click.argument("source", type=click.Path())
@click.option("-o", "--out", type=existing, help="Prefix of the lists.  [default: NAME]")
@click.option("--window", default="50", show_default=True, help="Window in variants, or in kilobases, as 500kb.")
@click.option("--step", type=int, help="Step in variants.  [default: 5, or 1 for kilobases]")
@click.option("--r2", type=float, default=0.2, show_default=True, help="Maximum squared correlation.")
@flags(
    *record_flags("filter", Filter, SELECTION), *record_flags("data", Data, ["missing_chunks", "external_files"]),
    OVERWRITE, *RUN, *ENGINE,
)  # fmt: skip
def prune(
    source: str, out: Path | None, window: str, step: int | None, r2: float, overwrite: bool, **values: Any
) -> None:
    """List the variants of SOURCE in approximate linkage equilibrium, as plink --indep-pairwise does.

    Writes NAME.prune.in and NAME.prune.out.
    """
    blocks = given_options(values)
    data, filter = Data.of({"path": source, **blocks.get("data", {})}), Filter.of(blocks.get("filter", {}))
    step = step if step is not None else 1 if window.lower().endswith("kb") else 5
    engine = Threads.of(blocks.get("engine", {}))
    task = run.PruneTask(
        data, filter, out or Path(stem(source)), overwrite=overwrite, engine=engine, window=window, step=step, r2=r2
    )
    run_task(task, values)
    if task.kept is not None:
        click.echo(f"{int(task.kept.sum())} of {task.kept.size} variants kept")
    for path in task.paths:
        click.echo(f"list: {path}")
