"""The command `assign`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streampca import run
from streampca.cli.options import FlagCommand, existing, together
from streampca.errors import InputError

# Options that only one method reads.
OF_METHODS = {"neighbours": "nn", "bandwidth": "kde", "groups": "gmm", "max_groups": "gmm"}

method_options = together(
    click.option(
        "--method",
        type=click.Choice(["nn", "nb", "kde", "gmm"]),
        default="nb",
        show_default=True,
        help="nn: nearest neighbours; nb: Gaussian naive Bayes; kde: kernel densities; gmm: groups without labels.",
    ),
    click.option("--neighbours", type=int, default=1, show_default=True, help="How many vote; of nn."),
    click.option("--bandwidth", type=float, help="Of kde.  [default: by cross-validation]"),
    click.option("--groups", type=int, help="Of gmm.  [default: by BIC]"),
    click.option("--max-groups", type=int, default=12, show_default=True, help="The most groups that gmm tries."),
    click.option(
        "--outside",
        type=float,
        default=0.01,
        show_default=True,
        help="A sample in a less likely place than all but this share of the labelled is none of these; 0 assigns all.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of folds, choices and mixtures."),
)


@click.command(
    cls=FlagCommand, epilog="Example: streampca assign study.pca.zarr --labels pops.tsv:population --method kde"
)
@click.argument("result", type=existing)
@click.option("--labels", help="Table with ids and labels, as pops.tsv or pops.tsv:COLUMN.  [default: those in RESULT]")
@method_options
@click.option("--components", type=click.IntRange(min=1), help="How many, from the first on.  [default: all]")
@click.option("--new", type=existing, help="Assign these samples instead: scores that `streampca project` wrote.")
@click.option(
    "--far",
    type=click.FloatRange(min=0, min_open=True),
    help="New samples this many times as far from the components of pca as is typical are none of these.  [default: 2]",
)
@click.option("--out", type=existing, help="Table of all samples.  [default: NAME.assigned.tsv]")
@click.option("--overwrite", is_flag=True, help="Replace a table that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def assign(
    result: Path, labels: str | None, components: int | None, new: Path | None, far: float | None,
    out: Path | None, overwrite: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Assign the samples of RESULT, or new ones, to the classes of labelled samples by their scores.

    The table has the likeliest class of each sample, `none of these` if all are unlikely, and the probability of each
    class, by the model of all labelled samples; held_out is what a labelled sample is assigned by one that has not
    seen it, and what the accuracy that is printed is about. For samples that may be of other classes, nn and kde are
    better than nb, whose wide classes take in empty places around them.
    """
    _check_read(options)
    if far is not None and new is None:
        raise InputError("--far is for new samples; add --new, or remove it")
    target, _, lines, facts = run.assign_samples(
        result, options, labels=labels, n_components=components, new=new, far=far, out=out,
        overwrite=overwrite,
    )  # fmt: skip
    for line in [json.dumps(facts)] if as_json else [*lines, f"table: {target}"]:
        click.echo(line)


def _check_read(options: dict[str, Any]) -> None:
    """Raise if an option was given that the method does not read."""
    context = click.get_current_context()
    for name, method in OF_METHODS.items():
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and options["method"] != method:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} is for --method {method}, not {options['method']}; remove it")
