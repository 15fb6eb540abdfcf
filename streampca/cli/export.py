"""The command `export`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run
from streampca.cli.options import FlagCommand, existing


@click.command(cls=FlagCommand, epilog="Example: streampca export study.pca.zarr --format tsv --out study")
@click.argument("result", type=existing)
@click.option(
    "--format", "form", type=click.Choice(["plink", "tsv"]), default="plink", show_default=True, help="Format."
)
@click.option("--out", type=existing, help="Prefix of the files.  [default: that of the result]")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def export(result: Path, form: str, out: Path | None, overwrite: bool) -> None:
    """Write RESULT as text: plink (.eigenvec, .eigenval, .eigenvec.var) or tsv (scores, loadings, components)."""
    for path in run.write_export(result, form, out, overwrite):
        click.echo(str(path))
