"""What commands print."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from streampca import run
from streampca.errors import redacted


def print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Print names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        click.echo(f"{name:<{width}}  {text}")


def print_plan(plan: Any, as_json: bool) -> None:
    """Print a plan, with or without its cost."""
    if as_json:
        click.echo(json.dumps(plan.facts()))
    else:
        print_pairs(plan.lines())


def print_result(
    path: str | Path,
    as_json: bool,
    arrays: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    memory: str | None = None,
) -> None:
    """Print the summary of a result: of the fit that was just made, or of the store."""
    summary = run.summarise(path, arrays, attributes, memory)
    path = redacted(str(path))
    if as_json:
        click.echo(json.dumps({"result": path, **summary.facts}))
        return
    for line in [*summary.table, *summary.lines, *(f"note: {note}" for note in summary.notes)]:
        click.echo(line)
    click.echo(f"result: {path}")
