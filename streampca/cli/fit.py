"""The commands that fit a model: one per kind, made from its option record."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from streampca import run
from streampca.cli.options import (
    FlagCommand,
    configured,
    existing,
    given_options,
    record_flags,
    shown_progress,
    stem,
)
from streampca.cli.printing import print_plan, print_result
from streampca.results.kind import Kind, kind_of
from streampca.run.config.blocks import Data, Filter, Output, Threads

SOURCES = "a .bed, .pgen, .npy or .nc file, a Zarr store or its URL"
ARRAYS = "an .npy or .nc file, a Zarr store or its URL"


def fit_command(name: str) -> click.Command:
    """Return the command that fits a kind of model."""
    kind = kind_of(name)
    about = f"{kind.title} of SOURCE: {SOURCES if kind.genotypes else ARRAYS}."
    run_flags = [
        click.Option(["--fresh"], is_flag=True, help="Discard unfinished work of an earlier run."),
        click.Option(["--only-resume"], is_flag=True, help="Fail unless there is a checkpoint to resume."),
        click.Option(["--plan"], is_flag=True, help="Print the plan and stop; no data are read."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        click.Option(["--quiet"], is_flag=True, help="Show no progress."),
    ]
    output = [key for key in Output.model_fields if key not in ("path", "work") and (key != "export" or kind.exports)]
    return FlagCommand(
        name,
        callback=partial(fit, kind),
        help=about,
        epilog=f"Example: {kind.example}",
        params=[
            click.Argument(["source"]),
            click.Option(["--out"], type=existing, help=f"Result store.  [default: NAME.{name}.zarr]"),
            *record_flags("model", kind.options),
            *record_flags("data", Data),
            *(record_flags("filter", Filter) if kind.genotypes else ()),
            *record_flags("output", Output, output),
            *record_flags("engine", Threads, ["memory_limit", "threads"]),
            *run_flags,
        ],
    )


def fit(
    kind: Kind, source: str, out: Any, fresh: bool, only_resume: bool, plan: bool, as_json: bool, quiet: bool,
    **values: Any,
) -> None:  # fmt: skip
    """Fit a model: build the configuration, run it, print a summary."""
    blocks = given_options(values)
    blocks.setdefault("data", {})["path"] = source
    blocks.setdefault("output", {})["path"] = str(out or f"{stem(source)}.{kind.name}.zarr")
    blocks.setdefault("model", {})["kind"] = kind.name
    config = configured(blocks)
    if plan:
        print_plan(run.plan_config(config)[0], as_json)
        return
    task = run.FitTask(config)
    with shown_progress(quiet) as progress:
        path = run.run(task, only_resume=only_resume, fresh=fresh, progress=progress)
    print_result(path, as_json, task.arrays, task.attributes)
