"""Commands about configurations of `run`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from streampca.cli.options import existing
from streampca.errors import InputError

# As in streampca.run.config, which takes long to import.
KINDS = ("pca", "ppca", "factor_analysis", "kpca")
ENGINES = ("threads", "processes", "address", "slurm", "pbs", "sge", "lsf")


@click.group()
def config() -> None:
    """Write configurations for `run`, and say what may be in them."""


@config.command(epilog="Example: streampca config schema > schema.json")
def schema() -> None:
    """Print the JSON schema of a configuration, for editors that check YAML."""
    from streampca.run import config as configuration

    click.echo(json.dumps(configuration.schema(), indent=2))


@config.command(epilog="Example: streampca config new pca --engine slurm --out study.yaml")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--engine", type=click.Choice(ENGINES), default="threads", show_default=True, help="What does the work.")
@click.option("--out", type=existing, help="File to write; printed unless given.")
def new(kind: str, engine: str, out: Path | None) -> None:
    """Print a configuration of the model KIND to begin with, with all that may be set."""
    from streampca.run.config import starter

    text = starter(kind, engine)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{out}: exists already; choose another --out") from None
    except FileNotFoundError:
        raise InputError(f"{out}: the folder {out.parent} does not exist; make it first") from None
    click.echo(f"configuration: {out}")
