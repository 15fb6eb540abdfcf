"""The command `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streampca import run as work
from streampca.cli.options import JSON, OVERWRITE, PLAN, RUN, FlagCommand, flags, run_task, switch
from streampca.cli.printing import print_plan, print_result
from streampca.run.config import load
from streampca.run.config.build import key_names


class RunCommand(FlagCommand):
    """The command whose options are keys of a file."""

    separator = "="

    @property
    def names(self) -> dict[str, str]:
        """Names of options in Python, and their keys."""
        return key_names()


@click.command(cls=RunCommand, epilog="Example: streampca run study.yaml --set model.n_components=20")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, as model.tol=1e-6.")
@flags(
    OVERWRITE, PLAN, *RUN, JSON, switch("--log-json", about="Log lines of JSON."),
)  # fmt: skip
def run(config: Path, settings: tuple[str, ...], overwrite: bool, plan: bool, as_json: bool, **values: Any) -> None:
    """Run the YAML file CONFIG; run the same command again to resume it after a kill.

    SIGTERM, SIGUSR1 and Ctrl-C save the work so far and exit with code 75; a second Ctrl-C exits at once.
    """
    asked = load(config, [*settings, *(["output.overwrite=true"] if overwrite else [])])
    if plan:
        print_plan(work.predict_costs(asked), as_json)
        return
    work.check_paths(asked, values["only_resume"])
    task = work.FitTask(asked)
    print_result(run_task(task, values), as_json, task.arrays, task.attributes)
