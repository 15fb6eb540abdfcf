"""The command `convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.options import ENGINE, OVERWRITE, RUN, FlagCommand, existing, flags, given_options, run_task
from streampca.errors import InputError
from streampca.run.config.blocks import Threads


@click.command(cls=FlagCommand, epilog="Example: streampca convert folder/ faces.zarr --size 64x64 --crop")
@click.argument("source", type=click.Path())
@click.argument("out", type=existing)
@click.option("--size", help="Images: height x width, as 64x48.  [default: that of the first]")
@click.option("--crop", is_flag=True, help="Images: keep proportions, crop to the size.")
@click.option("--grey/--rgb", default=None, help="Images: greyscale or colour.  [default: grey if all are]")
@click.option("--labels", help="Images: table of paths and labels, as people.tsv:COLUMN.  [default: sub-directories]")
@flags(OVERWRITE, *RUN, *ENGINE)
def convert(
    source: str, out: Path, size: str | None, crop: bool, grey: bool | None, labels: str | None, overwrite: bool,
    **values: Any,
) -> None:  # fmt: skip
    """Write SOURCE as the store OUT: .bed, .pgen, .vcf, .vcf.gz as VCF Zarr; .csv, .tsv, images as an array.

    A table has one sample per line, ids in its first column if that is text, and names of features in its first line.
    Images are those in a directory and its sub-directories.
    """
    if out.exists() and not Path(source).exists() and not overwrite:
        raise InputError(f"{source}: does not exist, but {out} does; swap them: streampca convert {out} {source}")
    shape = None if size is None else run.parse_size(size)
    engine = Threads.of(given_options(values).get("engine", {}))
    task = run.ConvertTask(
        source, out, overwrite=overwrite, engine=engine, size=shape, crop=crop, grey=grey, labels=labels
    )
    run_task(task, values)
    for line in task.converted.lines() if task.converted else ():
        click.echo(line)
    click.echo(f"store: {out}")
