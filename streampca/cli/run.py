"""The command `run`."""

from __future__ import annotations

from pathlib import Path

import click

from streampca import run as work
from streampca.cli.options import FlagCommand, shown_progress
from streampca.cli.printing import print_plan, print_result
from streampca.run.config import load


@click.command(cls=FlagCommand, epilog="Example: streampca run study.yaml --set model.n_components=20")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, as model.tol=1e-6.")
@click.option("--overwrite", is_flag=True, help="Replace a finished result.")
@click.option("--plan", is_flag=True, help="Print the plan and its cost, and stop.")
@click.option("--only-resume", is_flag=True, help="Fail unless there is a checkpoint to resume.")
@click.option("--fresh", is_flag=True, help="Discard unfinished work of an earlier run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--log-json", is_flag=True, help="Log lines of JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run(
    config: Path, settings: tuple[str, ...], overwrite: bool, plan: bool, only_resume: bool, fresh: bool,
    as_json: bool, log_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Run the YAML file CONFIG; run the same command again to resume it after a kill.

    SIGTERM, SIGUSR1 and Ctrl-C save the work so far and exit with code 75; a second Ctrl-C exits at once.
    """
    asked = load(config, [*settings, *(["output.overwrite=true"] if overwrite else [])])
    if plan:
        print_plan(work.predict_costs(asked), as_json)
        return
    task = work.FitTask(asked)
    with shown_progress(quiet, log_json) as progress:
        path = work.run(task, only_resume=only_resume, fresh=fresh, progress=progress)
    print_result(path, as_json, task.arrays, task.attributes)
