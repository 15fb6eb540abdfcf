"""The command `plot`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run
from streampca.cli.messages import Words
from streampca.cli.options import MEMORY, FlagCommand, existing, flags, stem
from streampca.cli.report import labels_option
from streampca.errors import InputError

FIGURES = ["overview", "scores", "scree", "certificates", "error", "loadings", "components"]


@click.command(cls=FlagCommand, epilog="Example: streampca plot study.pca.zarr --figure scores --pcs 3,4")
@click.argument("result", type=click.Path())
@click.option("--figure", type=Words(FIGURES), default="overview", show_default=True, help="Figure.")
@labels_option
@click.option("--pcs", help="Components: two for scores, one for loadings.  [default: 1,2, or 1]")
@click.option("-o", "--out", type=existing, help="A .png, .svg or .pdf file.  [default: NAME.FIGURE.png]")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@flags(MEMORY)
def plot(
    result: str, figure: str, labels: str | None, pcs: str | None, out: Path | None, overwrite: bool,
    memory: str | None,
) -> None:  # fmt: skip
    """Draw a figure of RESULT for print; components are images or maps."""
    pair = _pair(figure, pcs)
    if labels is not None and figure not in ("overview", "scores"):
        raise InputError(f"--labels are not shown in the figure {figure}; remove it, or draw scores")
    target = out or Path(f"{stem(result)}.{figure}.png")
    run.draw(result, figure, target, labels=labels, pair=pair, overwrite=overwrite, memory=memory)
    click.echo(f"picture: {target}")


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
