"""The commands that fit a model: one per kind, made from its option record."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from streampca import run
from streampca.cli.options import (
    DATA,
    ENGINE,
    JSON,
    PLAN,
    RUN,
    FlagCommand,
    configured,
    default_output,
    existing,
    given_options,
    record_flags,
    run_task,
)
from streampca.cli.printing import print_plan, print_result
from streampca.results.kind import Kind, kind_of
from streampca.run.config.blocks import Filter, Output

SOURCES = "a .bed, .pgen, .npy or .nc file, a Zarr store or its URL"
ARRAYS = "an .npy or .nc file, a Zarr store or its URL"


def fit_command(name: str) -> click.Command:
    """Return the command that fits a kind of model."""
    kind = kind_of(name)
    about = f"{kind.title} of SOURCE: {SOURCES if kind.genotypes else ARRAYS}."
    output = [key for key in Output.fields if key not in ("path", "work") and (key != "export" or kind.exports)]
    return FlagCommand(
        name,
        callback=partial(fit, kind),
        help=about,
        epilog=f"Example: {kind.example}",
        params=[
            click.Argument(["source"], type=click.Path()),
            click.Option(["-o", "--out"], type=existing, help=f"Result store.  [default: NAME.{name}.zarr]"),
            *record_flags("model", kind.options),
            *DATA,
            *(record_flags("filter", Filter) if kind.genotypes else ()),
            *record_flags("output", Output, output),
            *ENGINE,
            *RUN,
            PLAN,
            JSON,
        ],
    )


def fit(kind: Kind, source: str, out: Any, plan: bool, as_json: bool, **values: Any) -> None:
    """Fit a model: build the configuration, run it, print a summary."""
    blocks = given_options(values)
    blocks.setdefault("data", {})["path"] = source
    blocks.setdefault("output", {})["path"] = str(out or default_output(source, kind.name, "zarr"))
    blocks.setdefault("model", {})["kind"] = kind.name
    config = configured(blocks)
    if plan:
        print_plan(run.plan_config(config)[0], as_json)
        return
    run.check_paths(config, values["only_resume"])
    task = run.FitTask(config)
    print_result(run_task(task, values), as_json, task.arrays, task.attributes)
