"""The command `config`: write, check and upgrade configurations."""

from __future__ import annotations

import json
from pathlib import Path

import click

from streampca.cli.messages import Commands, Words
from streampca.cli.options import FlagCommand, default_output, existing, write_new
from streampca.results.kind import kind_names
from streampca.run import config as configuration
from streampca.run.config.blocks import ENGINES


@click.group(cls=Commands)
def config() -> None:
    """Write configurations for `run`, describe and upgrade them."""


@config.command(cls=FlagCommand, epilog="Example: streampca config schema > schema.json")
def schema() -> None:
    """Print the JSON schema of a configuration, for editors that check YAML."""
    click.echo(json.dumps(configuration.schema(), indent=2))


@config.command(cls=FlagCommand, epilog="Example: streampca config new pca study.bed --engine slurm --out study.yaml")
@click.argument("kind", type=Words(kind_names()))
@click.argument("source", type=click.Path(), required=False)
@click.option("--result", type=click.Path(), help="Result store.  [default: NAME.KIND.zarr]")
@click.option("--engine", type=Words(list(ENGINES)), default="threads", show_default=True, help="Engine.")
@click.option("-o", "--out", type=existing, help="File to write.  [default: print it]")
def new(kind: str, source: str | None, result: str | None, engine: str, out: Path | None) -> None:
    """Print a configuration of the model KIND, for data in SOURCE, with all its keys."""
    result = result or (default_output(source, kind, "zarr") if source else None)
    write_new(configuration.starter(kind, engine, source, result), out, "configuration")


@config.command(cls=FlagCommand, epilog="Example: streampca config upgrade old.yaml --out new.yaml")
@click.argument("file", type=existing)
@click.option("-o", "--out", type=existing, help="File to write.  [default: print it]")
def upgrade(file: Path, out: Path | None) -> None:
    """Print the configuration FILE of version 0.7 in the new form; comments are not kept."""
    write_new(configuration.upgrade(file), out, "configuration")
