"""The command `export`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run
from streampca.cli.messages import Words
from streampca.cli.options import MEMORY, FlagCommand, existing, flags


@click.command(cls=FlagCommand, epilog="Example: streampca export study.pca.zarr --format tsv --out study")
@click.argument("result", type=existing)
@click.option(
    "--format",
    "form",
    type=Words(["plink", "smartpca", "tsv"]),
    default="plink",
    show_default=True,
    help="Format.",
)
@click.option("-o", "--out", type=existing, help="Prefix of the files.  [default: that of the result]")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@flags(MEMORY)
def export(result: Path, form: str, out: Path | None, overwrite: bool, memory: str | None) -> None:
    """Write RESULT as text files.

    plink: .eigenvec, .eigenval, .eigenvec.var; .eigenvec.allele and .afreq for plink2 --score. smartpca: .evec, .eval.
    tsv: scores, loadings, components.
    """
    for path in run.write_export(result, form, out, overwrite, memory):
        click.echo(str(path))
