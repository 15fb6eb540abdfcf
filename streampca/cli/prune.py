"""The command `prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.options import (
    FlagCommand,
    existing,
    flags,
    given_options,
    record_flags,
    resume_options,
    shown_progress,
    stem,
)
from streampca.run.config.blocks import Data, Filter

NOT_HERE = ("ld_prune", "outliers", "outlier_rounds")
SELECTION = [name for name in Filter.model_fields if name not in NOT_HERE]


@click.command(cls=FlagCommand, epilog="Example: streampca prune study.bed --window 50 --step 5 --r2 0.2")
@click.argument("source")
@click.option("--out", type=existing, help="Prefix of the lists.  [default: NAME]")
@click.option("--window", default="50", show_default=True, help="Window in variants, or in kilobases, as 500kb.")
@click.option("--step", type=int, help="Step in variants.  [default: 5, or 1 for kilobases]")
@click.option("--r2", type=float, default=0.2, show_default=True, help="Maximum squared correlation.")
@flags(*record_flags("filter", Filter, SELECTION), *record_flags("data", Data, ["missing_chunks"]))
@resume_options
@click.option("--quiet", is_flag=True, help="Show no progress.")
def prune(
    source: str, out: Path | None, window: str, step: int | None, r2: float, overwrite: bool, fresh: bool,
    only_resume: bool, quiet: bool, **values: Any,
) -> None:  # fmt: skip
    """List the variants of SOURCE in approximate linkage equilibrium, as plink --indep-pairwise does.

    Writes NAME.prune.in and NAME.prune.out.
    """
    blocks = given_options(values)
    data, filter = Data.of({"path": source, **blocks.get("data", {})}), Filter.of(blocks.get("filter", {}))
    step = step if step is not None else 1 if window.lower().endswith("kb") else 5
    task = run.PruneTask(data, filter, out or Path(stem(source)), overwrite=overwrite, window=window, step=step, r2=r2)
    with shown_progress(quiet) as progress:
        run.run(task, only_resume=only_resume, fresh=fresh, progress=progress)
    if task.kept is not None:
        click.echo(f"{int(task.kept.sum())} of {task.kept.size} variants kept")
    for path in task.paths:
        click.echo(f"list: {path}")
