"""The command `kinship`."""

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
from streampca.cli.prune import SELECTION
from streampca.run.config.blocks import Data, Filter, Threads


@click.command(cls=FlagCommand, epilog="Example: streampca kinship study.bed --threshold 0.0884 --out study.kin0")
@click.argument("source", type=click.Path())
@click.option("-o", "--out", type=existing, help="Table of pairs; lists are next to it.  [default: NAME.kin0]")
@click.option(
    "--threshold", type=float, default=0.0884, show_default=True,
    help="Minimum kinship of relatives: 0.354 for duplicates, 0.177, 0.0884, 0.0442 for degrees 1 to 3.",
)  # fmt: skip
@flags(
    *record_flags("filter", Filter, SELECTION), *record_flags("data", Data, ["missing_chunks", "external_files"]),
    *ENGINE, OVERWRITE, *RUN,
)  # fmt: skip
def kinship(source: str, out: Path | None, threshold: float, overwrite: bool, **values: Any) -> None:
    """List the pairs of relatives in SOURCE by KING-robust kinship, and a large set of unrelated samples.

    Writes NAME.kin0 as plink2 --make-king-table does; and ids of samples, unrelated ones to NAME.king.cutoff.in.id and
    the others to NAME.king.cutoff.out.id.
    """
    blocks = given_options(values)
    data, filter = Data.of({"path": source, **blocks.get("data", {})}), Filter.of(blocks.get("filter", {}))
    task = run.KinshipTask(
        data, filter, out or Path(f"{stem(source)}.kin0"), Threads.of(blocks.get("engine", {})), threshold=threshold,
        overwrite=overwrite,
    )  # fmt: skip
    run_task(task, values)
    if task.kept is not None:
        click.echo(f"{len(task.pairs)} pairs of relatives")
        click.echo(f"{int(task.kept.sum())} of {task.kept.size} samples unrelated")
    for name, path in zip(("table", "unrelated", "others"), task.paths, strict=True):
        click.echo(f"{name}: {path}")
