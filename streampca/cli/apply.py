"""The commands that apply a result to other data: project, impute, denoise, predict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca import run
from streampca.cli.messages import Words
from streampca.cli.options import (
    DATA,
    ENGINE,
    JSON,
    OVERWRITE,
    RUN,
    FlagCommand,
    default_output,
    existing,
    flags,
    given_options,
    run_task,
)
from streampca.cli.printing import print_pairs
from streampca.errors import InputError
from streampca.results.kind import kind_names
from streampca.results.output import kind_at
from streampca.run.config.blocks import Data, Threads

if TYPE_CHECKING:
    from streampca.run.apply import ApplyTask

SAMPLES = (
    click.Option(["--keep"], type=existing, help="Of genotypes: file of samples to keep."),
    click.Option(["--remove"], type=existing, help="Of genotypes: file of samples to remove."),
)
Pairs = list[tuple[str, str]]


def apply_command(
    example: str, out: str, suffix: str, label: str, *options: click.Option
) -> Callable[[Callable[[ApplyTask], Pairs]], click.Command]:
    """Return a decorator that makes a command of the function that summarises its task.

    Parameters
    ----------
    out, suffix : what is written, and the end of its default name.
    label : name of the output in the summary.
    options : of this command only; `ApplyTask` gets them.
    """

    def decorate(summary: Callable[[ApplyTask], Pairs]) -> click.Command:
        verb = summary.__name__

        @click.command(verb, cls=FlagCommand, help=summary.__doc__, epilog=f"Example: streampca {verb} {example}")
        @click.argument("result", type=existing)
        @click.argument("source", type=click.Path())
        @click.option("-o", "--out", type=existing, help=f"{out}.  [default: NAME.KIND.{suffix}]")
        @flags(*options, OVERWRITE, *RUN, *DATA, *ENGINE, JSON)
        def command(result: Path, source: str, out: Path | None, overwrite: bool, as_json: bool, **values: Any) -> None:
            blocks = given_options(values)
            kind = kind_at(result)
            if kind_at(Path(source)) in kind_names() and kind not in kind_names():
                swap = f"swap them: streampca {verb} {source} {result}"
                raise InputError(f"{result}: is not a streampca result, but {source} is; {swap}")
            task = run.ApplyTask(
                verb,
                result,
                Data.of({"path": source, **blocks.get("data", {})}),
                out or Path(default_output(source, str(kind), suffix)),
                overwrite=overwrite,
                engine=Threads.of(blocks.get("engine", {})),
                **{str(option.name): values[str(option.name)] for option in options},
            )
            run_task(task, values)
            _print(task, label, summary(task), as_json)

        return command

    return decorate


def _print(task: ApplyTask, label: str, pairs: Pairs, as_json: bool) -> None:
    """Print what was written: as JSON, or as pairs and the paths of the outputs."""
    facts = {**task.facts}
    share = facts.pop("few_variants", None)
    if as_json:
        n_samples = {"n_samples": task.source.shape[0]}
        click.echo(json.dumps({label: task.output, "result": str(task.result), **n_samples, **facts}))
        return
    print_pairs([*pairs, *([("variants", facts["variants"])] if "variants" in facts else [])])
    if share is not None:
        click.echo(f"note: {share:.0%} of the variants are not used; scores are less accurate than those of the fit")
    click.echo(f"{label if label in ('scores', 'predictions') else 'store'}: {task.output}")
    if "picture" in facts:
        click.echo(f"picture: {facts['picture']}")


@apply_command(
    "study.pca.zarr new.bed --out new.scores.zarr", "Store of the scores", "scores.zarr", "scores",
    click.Option(
        ["--projection", "--method"],
        type=Words(["oadp", "lsq", "simple"]),
        help="Of genotypes; lsq: least squares over the calls of a sample; oadp: the same, without its shrinkage; "
        "simple: missing calls at the mean. Results of ppca give posterior means.  [default: oadp]",
    ),
    click.Option(["--drop-ambiguous"], is_flag=True, help="Exclude variants that are the same on both strands."),
    *SAMPLES,
)  # fmt: skip
def project(task: ApplyTask) -> Pairs:
    """Scores of the new samples of SOURCE on the components of RESULT."""
    facts = task.facts
    count = f"{task.source.shape[0]}, on {task.fitted.sizes['component']} components of {task.result}"
    pairs = [("samples", count + (f", projection {facts['projection']}" if "projection" in facts else ""))]
    if "n_fitted" in facts:
        pairs.append(("in the fit", f"{facts['n_fitted']} samples, by id and scores; they keep the scores of the fit"))
    if facts.get("n_same_id"):
        text = f"{facts['n_same_id']} samples have the id of a fitted one but other calls; they are projected"
        pairs.append(("same id", text))
    if "n_without_scores" in facts:
        pairs.append(("no scores", f"{facts['n_without_scores']} samples, because of too few calls"))
    if "n_far" in facts:
        limit = f"{facts['far']:g} times the typical distance {facts['typical_distance']:.4g} from the components"
        pairs.append(("far", f"{facts['n_far']}, more than {limit}"))
    return pairs


@apply_command("study.ppca.zarr study.bed", "Store of the values", "imputed.zarr", "imputed")
def impute(task: ApplyTask) -> Pairs:
    """Fill in the missing values of SOURCE by the model of RESULT, of ppca or factor_analysis."""
    n, d = task.source.shape
    count, share = task.facts.get("values", 0), task.facts.get("share", 0.0)
    return [("values", f"{count} filled in, {share:.3%} of {n} samples x {d} features")]


def _checked(_context: click.Context, _option: click.Parameter, picture: Path | None) -> Path | None:
    """Raise before the work starts if a picture could not be drawn."""
    if picture is not None:
        run.check_picture(picture)
    return picture


@apply_command(
    "points.kpca.zarr noisy.zarr --picture noisy.png", "Store of the samples", "denoised.zarr", "denoised",
    click.Option(
        ["--picture"], type=existing, callback=_checked, help="Draw the first ten samples, before and after."
    ),
)  # fmt: skip
def denoise(task: ApplyTask) -> Pairs:
    """Project the samples of SOURCE on the components of RESULT, of pca or kpca, and map them back."""
    if task.picture is not None:
        run.draw_denoised(task, task.picture)
        task.facts["picture"] = str(task.picture)
    n, d = task.source.shape
    return [("samples", f"{n} x {d} features, by {task.fitted.attrs['kind']}")]


@apply_command(
    "study.pcr.zarr new.bed --covariates new.tsv", "Table of predictions", "predicted.tsv", "predictions",
    click.Option(["--covariates"], metavar="FILE[:COLUMNS]", help="Table with the covariates of the fit."),
    *SAMPLES,
)  # fmt: skip
def predict(task: ApplyTask) -> Pairs:
    """Predict the targets of the samples of SOURCE by the regression RESULT, of pcr."""
    task.facts["targets"] = [str(name) for name in task.fitted["target"].values]
    return [("samples", f"{task.source.shape[0]}"), ("targets", ", ".join(task.facts["targets"]))]
