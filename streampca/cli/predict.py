"""The command `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca.cli.apply import apply_options, apply_result, print_summary
from streampca.cli.options import FlagCommand, existing, stem


@click.command(cls=FlagCommand, epilog="Example: streampca predict study.pcr.zarr new.bed --covariates new.tsv")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--covariates", metavar="FILE[:COLUMNS]", help="Table with the covariates of the fit.")
@click.option("--out", type=existing, help="Table of predictions.  [default: NAME.predicted.tsv]")
@click.option("--keep", type=existing, help="Of genotypes: file of samples to keep.")
@click.option("--remove", type=existing, help="Of genotypes: file of samples to remove.")
@apply_options
def predict(
    result: Path, source: str, covariates: str | None, out: Path | None, keep: Path | None, remove: Path | None,
    as_json: bool, **values: Any,
) -> None:  # fmt: skip
    """Predict the targets of the samples of SOURCE by the regression RESULT, of pcr."""
    more = {"covariates": covariates, "keep": keep, "remove": remove}
    target = out or Path(f"{stem(source)}.predicted.tsv")
    task = apply_result("predict", result, source, target, more=more, **values)
    names = [str(name) for name in task.fitted["target"].values]
    task.facts["targets"] = names
    pairs = [("samples", f"{task.source.shape[0]}"), ("targets", ", ".join(names))]
    print_summary(task, "predictions", pairs, as_json)
