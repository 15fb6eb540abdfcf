"""What the commands that apply a result share: project, impute, denoise, predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca import run
from streampca.cli.options import (
    data_flags,
    given_options,
    memory_options,
    print_options,
    resume_options,
    shown_progress,
    together,
)
from streampca.cli.printing import print_pairs
from streampca.run.config.blocks import Data, Threads

if TYPE_CHECKING:
    from streampca.run.apply import ApplyTask

apply_options = together(resume_options, data_flags, memory_options, print_options)


def apply_result(
    verb: str, result: Path, source: str, out: Path, *, overwrite: bool, fresh: bool, only_resume: bool,
    memory: str | None, threads: int | None, quiet: bool, more: dict[str, Any], **values: Any,
) -> ApplyTask:  # fmt: skip
    """Run the task that applies a result; return it."""
    data = Data.of({"path": source, **given_options(values).get("data", {})})
    engine = Threads.of({"memory_limit": memory, "threads": threads})
    task = run.ApplyTask(verb, result, data, out, overwrite=overwrite, engine=engine, **more)
    with shown_progress(quiet) as progress:
        run.run(task, only_resume=only_resume, fresh=fresh, progress=progress)
    return task


def print_summary(task: ApplyTask, label: str, pairs: list[tuple[str, str]], as_json: bool) -> None:
    """Print what was written: as JSON, or as pairs and the path of the output."""
    facts = {**task.facts}
    short = facts.pop("few_variants", None)
    if as_json:
        n_samples = {"n_samples": task.source.shape[0]}
        click.echo(json.dumps({label: task.output, "result": str(task.result), **n_samples, **facts}))
        return
    if "variants" in facts:
        pairs = [*pairs, ("variants", facts["variants"])]
    print_pairs(pairs)
    if short is not None:
        click.echo(f"note: {short:.0%} of the variants are not used; scores are less accurate than those of the fit")
    click.echo(f"{label if label in ('scores', 'predictions') else 'store'}: {task.output}")
