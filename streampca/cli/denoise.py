"""The command `denoise`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
    # matplotlib is optional and slow to load.
    from streampca.report import check_picture
    from streampca.report.images import image_rows
    from streampca.report.printing import draw_items

    if picture is not None:
        check_picture(picture)
    target = out or Path(f"{stem(source)}.denoised.zarr")
    task = apply_result("denoise", result, source, target, more={}, **values)
    if picture is not None:
        count, sizes = min(10, task.source.shape[0]), task.source.features.sizes
        before, _ = task.source.read(slice(0, count), slice(0, task.source.shape[1]))
        rows = {"given": before.reshape(count, *sizes), "denoised": first_rows(target, count)}
        draw_items([[image_rows(rows)]], picture)
        task.facts["picture"] = str(picture)
    n, d = task.source.shape
    print_summary(task, "denoised", [("samples", f"{n} x {d} features, by {task.fitted.attrs['kind']}")], as_json)
    if picture is not None and not as_json:
        click.echo(f"picture: {picture}")


def first_rows(store: Path, count: int) -> Any:
    """Return the first denoised samples."""
    import numpy as np
    import zarr

    return np.asarray(zarr.open_array(store, path="denoised", mode="r")[:count])
