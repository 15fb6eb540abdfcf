"""The command `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca.cli.options import FlagCommand, existing, stem
from streampca.cli.report import labels_option, read_labels
from streampca.errors import InputError

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

FIGURES = ["overview", "scores", "scree", "certificates", "error", "loadings", "components"]


@click.command(cls=FlagCommand, epilog="Example: streampca plot study.pca.zarr --figure scores --pcs 3,4")
@click.argument("result")
@click.option("--figure", type=click.Choice(FIGURES), default="overview", show_default=True, help="Figure.")
@labels_option
@click.option("--pcs", help="Components: two for scores, one for loadings.  [default: 1,2, or 1]")
@click.option("--out", type=existing, help="A .png, .svg or .pdf file.  [default: NAME.FIGURE.png]")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def plot(result: str, figure: str, labels: str | None, pcs: str | None, out: Path | None, overwrite: bool) -> None:
    """Draw a figure of RESULT for print; components are images or maps."""
    # matplotlib and xarray are slow to load.
    from streampca.report import check_picture, draw_figure
    from streampca.results.store import load

    pair = _pair(figure, pcs)
    if labels is not None and figure not in ("overview", "scores"):
        raise InputError(f"--labels are not shown in the figure {figure}; remove it, or draw scores")
    target = out or Path(f"{stem(result)}.{figure}.png")
    check_picture(target)
    if target.exists() and not overwrite:
        raise InputError(f"{target}: exists already; choose another --out or add --overwrite")
    fitted = load(result)
    table, names = read_labels(fitted, labels)
    name, values = _column(fitted, table, names)
    draw_figure(fitted, figure, target, values=values, name=name, pair=pair)
    click.echo(f"picture: {target}")


def _column(result: xarray.Dataset, table: Table | None, names: list[str]) -> tuple[str, Any]:
    """Return name and values of the column that samples are coloured by; nothing if there is none."""
    if table is not None:
        texts = [name for name, values in table.columns.items() if values.dtype.kind not in "fM"]
        name = (names or texts[-1:] or list(table.columns)[-1:] or [""])[0]
        return name, table.columns.get(name)
    if "label" in result.coords and "scores" in result and result["label"].dims == result["scores"].dims[:1]:
        # NumPy converts its variable-width text to fixed width only through objects.
        return "label", result["label"].values.astype(object).astype(str)
    return "", None


def _pair(figure: str, text: str | None) -> tuple[int, int]:
    """Return two component numbers; loadings are drawn of the first."""
    if text is None:
        return 1, 2
    if figure not in ("scores", "loadings"):
        raise InputError(f"--pcs is for the figures scores and loadings, not {figure}; remove it")
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    wanted, shown = (2, "two numbers, as 1,2") if figure == "scores" else (1, "one number, as 3")
    if len(set(numbers)) != wanted or len(numbers) != wanted:
        raise InputError(f"--pcs must be {shown} for {figure}, got {text!r}")
    return numbers[0], numbers[-1]
