"""The command `info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.cli.options import DATA, JSON, MEMORY, FlagCommand, flags, given_options
from streampca.cli.printing import print_pairs, print_result
from streampca.run.config.blocks import Data


@click.command(cls=FlagCommand, epilog="Example: streampca info study.bed")
@click.argument("path", type=click.Path())
@flags(JSON, MEMORY, *DATA)
def info(path: str, as_json: bool, memory: str | None, **values: Any) -> None:
    """Describe PATH: a result, or data and their layout."""
    blocks = given_options(values)
    facts = run.describe(Data.of({"path": path, **blocks.get("data", {})}), memory)
    if facts is None:
        print_result(Path(path), as_json, memory=memory)
    elif as_json:
        click.echo(json.dumps(facts))
    else:
        print_pairs([(name, text) for name, text in facts.items() if isinstance(text, str)])
