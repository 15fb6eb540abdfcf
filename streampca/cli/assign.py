"""The command `assign`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.options import JSON, MEMORY, FlagCommand, existing, flag, flags, given_options, record_flags
from streampca.errors import InputError
from streampca.models.assign.options import AssignOptions

# Options that only one method reads.
OF_METHODS = {"neighbours": "nn", "bandwidth": "kde", "groups": "gmm", "max_groups": "gmm"}


@click.command(
    cls=FlagCommand, epilog="Example: streampca assign study.pca.zarr --labels pops.tsv:population --method kde"
)
@click.argument("result", type=existing)
@click.option("--labels", help="Table with ids and labels, as pops.tsv or pops.tsv:COLUMN.  [default: those in RESULT]")
@flags(*record_flags("assign", AssignOptions))
@click.option("--components", type=click.IntRange(min=1), help="Use the first components only.  [default: all]")
@click.option("--new", type=existing, help="Assign these samples instead: scores that `streampca project` wrote.")
@click.option(
    "--far",
    type=click.FloatRange(min=0, min_open=True),
    help="New samples this many times as far from the components of pca as is typical are in no class.  [default: 2]",
)
@click.option("-o", "--out", type=existing, help="Table of all samples.  [default: NAME.KIND.assigned.tsv]")
@click.option("--overwrite", is_flag=True, help="Replace an existing table.")
@flags(JSON, MEMORY)
def assign(
    result: Path, labels: str | None, components: int | None, new: Path | None, far: float | None,
    out: Path | None, overwrite: bool, as_json: bool, memory: str | None, **values: Any,
) -> None:  # fmt: skip
    """Assign the samples of RESULT, or new ones, to the classes of labelled samples by their scores.

    The table has the most probable class of each sample, `none of these` if all are unlikely, and the probability of
    each class, by the model of all labelled samples. The column held_out has the class of a labelled sample by a model
    that was fitted without it; the accuracy that is printed is that of this column. For samples that may be of other
    classes, nn and kde are better than nb, whose classes include empty places around them.
    """
    options = given_options(values).get("assign", {})
    method = options.get("method", AssignOptions().method)
    for name, reader in OF_METHODS.items():
        if name in options and method != reader:
            raise InputError(f"{flag(name)} is for --method {reader}, not {method}; remove it")
    if far is not None and new is None:
        raise InputError("--far is for new samples; add --new, or remove it")
    target, _, lines, facts = run.assign_samples(
        result,
        options,
        labels=labels,
        n_components=components,
        new=new,
        far=far,
        out=out,
        overwrite=overwrite,
        memory=memory,
    )
    for line in [json.dumps(facts)] if as_json else [*lines, f"table: {target}"]:
        click.echo(line)
