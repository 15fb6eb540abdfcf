"""The command `convert`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run
from streampca.cli.options import FlagCommand, existing, shown_progress


@click.command(cls=FlagCommand, epilog="Example: streampca convert folder/ faces.zarr --size 64x64 --crop")
@click.argument("source")
@click.argument("out", type=existing)
@click.option("--size", help="Images: height x width, as 64x48.  [default: that of the first]")
@click.option("--crop", is_flag=True, help="Images: keep proportions, crop to the size.")
@click.option("--grey/--rgb", default=None, help="Images: greyscale or colour.  [default: grey if all are]")
@click.option("--labels", help="Images: table of paths and labels, as people.tsv:COLUMN.  [default: sub-directories]")
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def convert(
    source: str, out: Path, size: str | None, crop: bool, grey: bool | None, labels: str | None, overwrite: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Write SOURCE as the store OUT: .bed, .pgen, .vcf, .vcf.gz as VCF Zarr; a directory of images as an array."""
    shape = None if size is None else run.parse_size(size)
    with shown_progress(quiet) as progress:
        done = run.convert(
            source, out, overwrite=overwrite, progress=progress, size=shape, crop=crop, grey=grey, labels=labels
        )
    for line in done.lines() if done else ():
        click.echo(line)
    click.echo(f"store: {out}")
