"""The command `demo`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca.cli.messages import Words
from streampca.cli.options import QUIET, FlagCommand, existing, flags, shown_progress
from streampca.cli.printing import print_result
from streampca.demos import DEMOS, Demo
from streampca.errors import InputError
from streampca.files import absent


@click.command(cls=FlagCommand, epilog="Example: streampca demo faces --out demo-output")
@click.argument("example", type=Words(list(DEMOS)), default="groups")
@click.option(
    "-o", "--out", type=existing, default=Path("demo-output"), show_default=True, help="Directory to write to."
)
@click.option("--memory", default="400MB", show_default=True, help="Memory limit of the run.")
@click.option("--table", type=existing, help="Of `missing`: table of numbers, one sample per line.  [default: wines]")
@click.option("--images", type=existing, help="Of `faces`: images in sub-directories by person.  [default: drawn]")
@flags(QUIET)
def demo(example: str, out: Path, memory: str, table: Path | None, images: Path | None, quiet: bool) -> None:
    """Run an example: groups, genotypes, digits, faces, a table with missing values, or kernels; draw its figures."""
    for option, given, taker in (("--table", table, "missing"), ("--images", images, "faces")):
        if given is not None and example != taker:
            raise InputError(f"{option} is for `demo {taker}`, not for `demo {example}`; remove it")
        if given is not None and not given.exists():
            raise absent(given)
    out.mkdir(parents=True, exist_ok=True)
    with shown_progress(quiet) as progress:
        *pictures, page = DEMOS[example](Demo(out, click.echo, progress, memory, table, images))
    if (out / f"{example}.pca.zarr").exists():
        print_result(out / f"{example}.pca.zarr", as_json=False)
    for picture in pictures:
        click.echo(f"picture: {picture}")
    click.echo(f"report: {page}")
