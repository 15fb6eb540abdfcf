"""The command `status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import JSON, FlagCommand, flags
from streampca.cli.printing import print_pairs
from streampca.errors import InputError
from streampca.files import is_url
from streampca.progress import show_bytes
from streampca.results.output import attributes_in, kind_at
from streampca.run.record import run_in
from streampca.run.work_directory import status as status_of


@click.command(cls=FlagCommand, epilog="Example: streampca status study.pca.zarr")
@click.argument("result", type=click.Path())
@flags(JSON)
def status(result: str, as_json: bool) -> None:
    """Show the progress of the run that writes RESULT, from any shell; also of a directory of unfinished work."""
    if is_url(result):
        raise InputError(f"{result}: use the directory of its unfinished work, NAME.unfinished in output.work")
    found: dict[str, Any] | None = status_of(Path(result))
    if found is None:
        attributes = attributes_in(Path(result))
        if attributes is None or kind_at(Path(result)) is None:
            raise InputError(f"{result}: no result and no run for one; check the path")
        found = {"state": "finished", **run_in(attributes)}
        found.pop("config", None)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_pairs([(name, text) for name, text in _lines(found) if text])


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the status as pairs of name and text."""

    def amount(key: str) -> str:
        return show_bytes(found[key]) if found.get(key) else ""

    sweep = ""
    if "sweep" in found:
        expected = f" of about {found['expected_sweeps']}" if found.get("expected_sweeps", 0) >= found["sweep"] else ""
        sweep = f"{found['sweep']}{expected}, {found['label']}: {found['done']} of {found['partitions']} partitions"
    left = f"{found['eta_seconds']:.0f} s in this sweep" if found.get("eta_seconds") else ""
    if found["state"] != "running":
        left = ""
    limit = f" of {amount('limit_bytes')} allowed" if found.get("limit_bytes") else ""
    where = f"process {found['pid']} on {found['host']}" if "pid" in found else ""
    attempts = f"attempt {found['attempts']}, the first began {found['begun']}" if "attempts" in found else ""
    return [
        ("state", found.get("reason", "") if found["state"] == "stopped" else _with_reason(found)),
        ("run", ", ".join(filter(None, [where, attempts]))),
        ("sweep", sweep),
        ("left", left),
        ("so far", found.get("note", "")),
        ("memory", f"{amount('memory_bytes')}{limit}" if found.get("memory_bytes") else ""),
        ("saved", f"{amount('checkpoint_bytes')}, last {found['saved']}" if found.get("saved") else ""),
        ("workers", found.get("workers", "")),
        ("updated", found.get("updated", "")),
        ("finished", found.get("finished", "")),
    ]


def _with_reason(found: dict[str, Any]) -> str:
    return f"{found['state']}: {found['reason']}" if found.get("reason") else str(found["state"])
