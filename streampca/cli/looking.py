"""Commands that show a result: a page to look through, and figures for print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca.cli.options import existing, stem
from streampca.errors import InputError

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

labels_option = click.option(
    "--labels", help="Table about the samples, joined by id: pops.tsv, or pops.tsv:population to begin with a column."
)
FIGURES = ["overview", "scores", "scree", "certificates", "error", "loadings", "components"]


@click.command(epilog="Example: streampca report study.pca.zarr --labels pops.tsv:population")
@click.argument("result")
@labels_option
@click.option("--out", type=existing, help="The page.  [default: NAME.html]")
@click.option("--title", default="", help="Above the page.  [default: the name of the data]")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
def report(result: str, labels: str | None, out: Path | None, title: str, overwrite: bool) -> None:
    """Write RESULT as one HTML page to look through, which needs no network."""
    from streampca.report import write_report
    from streampca.results.store import load

    fitted = load(result)
    table, names = _table(fitted, labels)
    target = out or Path(f"{stem(result)}.html")
    write_report(fitted, target, table=table, colour=names[0] if names else None, title=title, overwrite=overwrite)
    if table is not None:
        from streampca.report.columns import columns_of

        click.echo(table.note)
        shown = {column.name for column in columns_of(fitted, table, len(table.found))[0]}
        if names and names[0] not in shown:
            click.echo(f"note: {names[0]} colours nothing: it is the same for all, or different for nearly all samples")
    click.echo(f"report: {target}")


@click.command(epilog="Example: streampca plot study.pca.zarr --figure scores --pcs 3,4 --out study.pdf")
@click.argument("result")
@click.option("--figure", type=click.Choice(FIGURES), default="overview", show_default=True, help="What to draw.")
@labels_option
@click.option("--pcs", help="Components drawn: of scores two, of loadings one.  [default: 1,2, or 1]")
@click.option("--out", type=existing, help="A .png, .svg or .pdf file.  [default: NAME.FIGURE.png]")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
def plot(result: str, figure: str, labels: str | None, pcs: str | None, out: Path | None, overwrite: bool) -> None:
    """Draw a figure of RESULT for print; components are images or maps."""
    from streampca.report.plots import check_picture
    from streampca.report.print_figures import draw_figure
    from streampca.results.store import load

    pair = _pair(figure, pcs)
    if labels is not None and figure not in ("overview", "scores"):
        raise InputError(f"--labels are not shown in the figure {figure}; leave them out, or draw scores")
    target = out or Path(f"{stem(result)}.{figure}.png")
    check_picture(target)
    if target.exists() and not overwrite:
        raise InputError(f"{target}: exists already; choose another --out or add --overwrite")
    fitted = load(result)
    if figure == "components":
        from streampca.report.print_images import draw_gallery

        draw_gallery(fitted, target)
    else:
        table, names = _table(fitted, labels)
        name, values = _column(fitted, table, names)
        draw_figure(fitted, figure, target, values=values, name=name, pair=pair)
    click.echo(f"picture: {target}")


def _table(result: xarray.Dataset, labels: str | None) -> tuple[Table | None, list[str]]:
    """Return the table, in the order of the samples, and the columns that were named."""
    from streampca.sources.tables import ids_of, read_table, split_column

    if labels is None:
        return None, []
    path, names = split_column(labels)
    table = read_table(path, ids_of(result))
    for name in names:
        table.label(name)
    return table, names


def _column(result: xarray.Dataset, table: Table | None, names: list[str]) -> tuple[str, Any]:
    """Return the column that samples are coloured by, and what it is called; nothing if there is none."""
    if table is not None:
        texts = [name for name, values in table.columns.items() if values.dtype.kind not in "fM"]
        name = (names or texts[-1:] or list(table.columns)[-1:] or [""])[0]
        return name, table.columns.get(name)
    import numpy as np

    if "label" in result.coords and "scores" in result and result["label"].dims == result["scores"].dims[:1]:
        return "label", np.array([str(label) for label in result["label"].values])
    return "", None


def _pair(figure: str, text: str | None) -> tuple[int, int]:
    """Return two numbers of components, of which loadings are drawn of the first."""
    if text is None:
        return 1, 2
    if figure not in ("scores", "loadings"):
        raise InputError(f"--pcs is for the figures scores and loadings, not {figure}; leave it out")
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    wanted, shown = (2, "two numbers, as 1,2") if figure == "scores" else (1, "one number, as 3")
    if len(set(numbers)) != wanted or len(numbers) != wanted:
        raise InputError(f"--pcs {text} is not known; of {figure}, give {shown}")
    return numbers[0], numbers[-1]
