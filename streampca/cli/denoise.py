"""The command `denoise`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.apply import apply_options, apply_result, print_summary
from streampca.cli.options import FlagCommand, existing, stem


@click.command(cls=FlagCommand, epilog="Example: streampca denoise points.kpca.zarr noisy.zarr --picture noisy.png")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the samples.  [default: NAME.denoised.zarr]")
@click.option("--picture", type=existing, help="Draw the first ten samples, before and after, to this file.")
@apply_options
def denoise(result: Path, source: str, out: Path | None, picture: Path | None, as_json: bool, **values: Any) -> None:
    """Project the samples of SOURCE on the components of RESULT, of pca or kpca, and map them back."""
    if picture is not None:
        run.check_picture(picture)
    target = out or Path(f"{stem(source)}.denoised.zarr")
    task = apply_result("denoise", result, source, target, more={}, **values)
    if picture is not None:
        run.draw_denoised(task, picture)
        task.facts["picture"] = str(picture)
    n, d = task.source.shape
    print_summary(task, "denoised", [("samples", f"{n} x {d} features, by {task.fitted.attrs['kind']}")], as_json)
    if picture is not None and not as_json:
        click.echo(f"picture: {picture}")
