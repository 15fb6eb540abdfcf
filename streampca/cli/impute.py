"""The command `impute`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca.cli.apply import apply_options, apply_result, print_summary
from streampca.cli.options import FlagCommand, existing, stem


@click.command(cls=FlagCommand, epilog="Example: streampca impute study.ppca.zarr study.bed")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the values.  [default: NAME.imputed.zarr]")
@apply_options
def impute(result: Path, source: str, out: Path | None, as_json: bool, **values: Any) -> None:
    """Fill in the missing values of SOURCE by the model of RESULT, of ppca or factor_analysis."""
    task = apply_result("impute", result, source, out or Path(f"{stem(source)}.imputed.zarr"), more={}, **values)
    n, d = task.source.shape
    count, share = task.facts.get("values", 0), task.facts.get("share", 0.0)
    print_summary(
        task, "imputed", [("values", f"{count} filled in, {share:.3%} of {n} samples x {d} features")], as_json
    )
