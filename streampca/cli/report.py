"""The command `report`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run
from streampca.cli.options import MEMORY, FlagCommand, existing, flags, stem

labels_option = click.option(
    "--labels", help="Sample table, joined by id: pops.tsv, or pops.tsv:population to colour by a column."
)


@click.command(cls=FlagCommand, epilog="Example: streampca report study.pca.zarr --labels pops.tsv:population")
@click.argument("result", type=click.Path())
@labels_option
@click.option("-o", "--out", type=existing, help="HTML file.  [default: NAME.html]")
@click.option("--title", default="", help="Title.  [default: the name of the data]")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@flags(MEMORY)
def report(result: str, labels: str | None, out: Path | None, title: str, overwrite: bool, memory: str | None) -> None:
    """Write RESULT as one HTML page that needs no network."""
    target = out or Path(f"{stem(result)}.html")
    for line in run.write_page(result, target, labels=labels, title=title, overwrite=overwrite, memory=memory):
        click.echo(line)
    click.echo(f"report: {target}")
