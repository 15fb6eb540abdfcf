"""The command `project`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca.cli.apply import apply_options, apply_result, print_summary
from streampca.cli.options import FlagCommand, existing, stem


@click.command(cls=FlagCommand, epilog="Example: streampca project study.pca.zarr new.bed --out new.scores.zarr")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the scores.  [default: NAME.scores.zarr]")
@click.option(
    "--projection",
    type=click.Choice(["oadp", "simple"]),
    help="Of genotypes; oadp: without the shrinkage of a simple projection. Results of ppca give posterior means.  "
    "[default: oadp]",
)
@click.option("--drop-ambiguous", is_flag=True, help="Exclude variants that are the same on both strands (A/T, C/G).")
@click.option("--keep", type=existing, help="File of samples to keep.")
@click.option("--remove", type=existing, help="File of samples to remove.")
@apply_options
def project(
    result: Path, source: str, out: Path | None, projection: str | None, drop_ambiguous: bool, keep: Path | None,
    remove: Path | None, as_json: bool, **values: Any,
) -> None:  # fmt: skip
    """Scores of the new samples of SOURCE on the components of RESULT."""
    more = {"projection": projection, "drop_ambiguous": drop_ambiguous, "keep": keep, "remove": remove}
    task = apply_result("project", result, source, out or Path(f"{stem(source)}.scores.zarr"), more=more, **values)
    facts = task.facts
    count = f"{task.source.shape[0]}, on {task.fitted.sizes['component']} components of {result}"
    pairs = [("samples", count + (f", projection {facts['projection']}" if "projection" in facts else ""))]
    if "n_far" in facts:
        limit = f"{facts['far']:g} times the typical distance {facts['typical_distance']:.4g} from the components"
        pairs.append(("far", f"{facts['n_far']}, more than {limit}"))
    print_summary(task, "scores", pairs, as_json)
