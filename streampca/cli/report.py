"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streampca.cli.options import FlagCommand, existing, stem

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

labels_option = click.option(
    "--labels", help="Sample table, joined by id: pops.tsv, or pops.tsv:population to colour by a column."
)


@click.command(cls=FlagCommand, epilog="Example: streampca report study.pca.zarr --labels pops.tsv:population")
@click.argument("result")
@labels_option
@click.option("--out", type=existing, help="HTML file.  [default: NAME.html]")
@click.option("--title", default="", help="Title.  [default: the name of the data]")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def report(result: str, labels: str | None, out: Path | None, title: str, overwrite: bool) -> None:
    """Write RESULT as one HTML page that needs no network."""
    # The page and xarray are slow to load.
    from streampca.report import write_report
    from streampca.report.samples import columns_of
    from streampca.results.store import load

    fitted = load(result)
    table, names = read_labels(fitted, labels)
    target = out or Path(f"{stem(result)}.html")
    write_report(fitted, target, table=table, colour=names[0] if names else None, title=title, overwrite=overwrite)
    if table is not None:
        click.echo(table.note)
        shown = {column.name for column in columns_of(fitted, table, len(table.found))[0]}
        if names and names[0] not in shown:
            click.echo(f"note: {names[0]} colours nothing: it is the same for all, or different for nearly all samples")
    click.echo(f"report: {target}")


def read_labels(result: xarray.Dataset, labels: str | None) -> tuple[Table | None, list[str]]:
    """Return the sample table in the order of the samples, and the named columns."""
    from streampca.sources.tables import ids_of, read_table, split_column

    if labels is None:
        return None, []
    path, names = split_column(labels)
    table = read_table(path, ids_of(result))
    for name in names:
        table.label(name)
    return table, names
