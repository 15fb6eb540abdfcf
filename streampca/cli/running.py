"""Commands for runs from a configuration: run, and status from another shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import shown_progress
from streampca.cli.printing import print_pairs, print_plan, print_stored
from streampca.errors import InputError


@click.command(epilog="Example: streampca run study.yaml --set model.n_components=20")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key, as model.tol=1e-6.")
@click.option("--plan", is_flag=True, help="Print what would be done and what it costs, and stop.")
@click.option(
    "--resume", is_flag=True, help="Go on; refuse to begin anew. Without it, too, unfinished work is gone on with."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--log-json", is_flag=True, help="Log lines of JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run(
    config: Path, settings: tuple[str, ...], plan: bool, resume: bool, as_json: bool, log_json: bool, quiet: bool
) -> None:
    """Do what the YAML file CONFIG asks for; killed and run again, it goes on.

    SIGTERM, SIGUSR1 and Ctrl-C save what is done and exit with code 75; a second Ctrl-C exits at once.
    """
    from streampca.run.config import load

    asked = load(config, settings)
    if plan:
        from streampca.run.costs import planned

        print_plan(planned(asked), as_json)
        return
    from streampca.run.driver import run as execute

    with shown_progress(quiet, log_json) as progress:
        where = execute(asked, resume=resume, progress=progress)
    print_stored(where, as_json)


@click.command(epilog="Example: streampca status study.pca.zarr")
@click.argument("result", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(result: str, as_json: bool) -> None:
    """Say how far the run for RESULT is, from any shell; or that in a folder of unfinished work."""
    from streampca.results.store import attributes_in, kind_of
    from streampca.run.work_directory import status as look
    from streampca.sources.remote import is_url

    if is_url(result):
        raise InputError(f"{result}: give the folder of its unfinished work, NAME.unfinished in output.work")
    found: dict[str, Any] | None = look(Path(result))
    if found is None:
        attributes = attributes_in(Path(result))
        if attributes is None or kind_of(Path(result)) is None:
            raise InputError(f"{result}: there is neither a result nor a run for one; check the path")
        found = {"state": "finished", **json.loads(attributes.get("run", "{}"))}
        found.pop("config", None)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_pairs([(name, text) for name, text in _lines(found) if text])


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a person wants to know, as pairs of name and text."""
    from streampca.sweep.memory import show_bytes

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
