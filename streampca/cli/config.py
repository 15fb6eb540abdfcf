"""The command `config`: write, check and upgrade configurations."""

from __future__ import annotations

import json
from pathlib import Path

import click

from streampca.cli.options import existing
from streampca.errors import InputError
from streampca.results.kind import kind_names
from streampca.run import config as configuration
from streampca.run.config.blocks import ENGINES


@click.group()
def config() -> None:
    """Write configurations for `run`, describe and upgrade them."""


@config.command(epilog="Example: streampca config schema > schema.json")
def schema() -> None:
    """Print the JSON schema of a configuration, for editors that check YAML."""
    click.echo(json.dumps(configuration.schema(), indent=2))


@config.command(epilog="Example: streampca config new pca --engine slurm --out study.yaml")
@click.argument("kind", type=click.Choice(kind_names()))
@click.option("--engine", type=click.Choice(list(ENGINES)), default="threads", show_default=True, help="Engine.")
@click.option("--out", type=existing, help="File to write.  [default: print it]")
def new(kind: str, engine: str, out: Path | None) -> None:
    """Print a configuration of the model KIND with all its keys."""
    _write(configuration.starter(kind, engine), out)


@config.command(epilog="Example: streampca config upgrade old.yaml --out new.yaml")
@click.argument("file", type=existing)
@click.option("--out", type=existing, help="File to write.  [default: print it]")
def upgrade(file: Path, out: Path | None) -> None:
    """Print the configuration FILE of version 0.7 in the new form; comments are not kept."""
    _write(configuration.upgrade(file), out)


def _write(text: str, out: Path | None) -> None:
    """Write a new file, or print it."""
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{out}: exists already; choose another --out") from None
    except FileNotFoundError:
        raise InputError(f"{out}: the directory {out.parent} does not exist; create it first") from None
    click.echo(f"configuration: {out}")
