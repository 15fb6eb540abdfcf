"""Commands for principal component regression: fit one, and predict by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import existing, genotype_options, run_options, shown_progress, source_options, stem
from streampca.cli.printing import print_pairs, print_plan, table_cell
from streampca.errors import InputError


@click.command(epilog="Example: streampca pcr study.bed --target traits.tsv:height --covariates traits.tsv:age,sex")
@click.argument("source")
@click.option(
    "--target", required=True, metavar="FILE:COLUMNS", help="What to regress: columns of a table, as t.tsv:height,bmi."
)
@click.option("--covariates", metavar="FILE:COLUMNS", help="What is always in the regression; text becomes 0 and 1.")
@click.option(
    "-k", "--n-components", type=click.IntRange(min=1), help="Most components that may be used.  [default: up to 20]"
)
@click.option("--cv", default=5, show_default=True, help="Folds that choose how many are used; 0: use all.")
@click.option("--out", type=existing, help="Result store.  [default: NAME.pcr.zarr]")
@click.option("--overwrite", is_flag=True, help="Replace a result that exists.")
@click.option(
    "--scale",
    type=click.Choice(["auto", "none", "unit", "patterson", "coslat"]),
    default="auto",
    show_default=True,
    help="As for pca; scales are those of all samples.",
)
@click.option(
    "--missing", type=click.Choice(["auto", "error", "mean"]), default="auto", show_default=True, help="As for pca."
)
@click.option("--solver", default="auto", show_default=True, help="auto, covariance, gram or krylov.")
@click.option("--tol", type=float, default=1e-6, show_default=True, help="Largest certificate allowed.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of folds and start.")
@genotype_options
@source_options
@run_options
def pcr(**options: Any) -> None:
    """Principal component regression of traits of the samples on SOURCE, the number of components by folds."""
    import dask

    from streampca.models.pcr.options import PCROptions
    from streampca.models.pcr.targets import plan_pcr
    from streampca.results.store import check_output, writing
    from streampca.run.fit import GENOTYPE_CHOICES, filling, given, open_data
    from streampca.run.regression import pcr_to_store, targets_from

    source = options["source"]
    data = open_data(source, options)
    targets, kinds, notes = targets_from(data, options["target"], options["covariates"])
    target = options["out"] or Path(f"{stem(source)}.pcr.zarr")
    scale = None if options["scale"] == "none" else options["scale"]
    asked = {name: options[name] for name in ("n_components", "cv", "missing", "solver", "tol", "memory", "seed")}
    asked["scale"] = scale
    with (
        dask.config.set(num_workers=options["threads"]),
        shown_progress(options["quiet"] or options["plan"]) as progress,
    ):
        record = PCROptions.of(asked | {"random_state": options["seed"]})
        if options["plan"]:
            print_plan(plan_pcr(data, record, targets, memory=options["memory"]), options["as_json"])
            return
        check_output(target, options["overwrite"])
        more = {name: options[name] for name in ("target", "covariates", "variable", "sample_dims", *GENOTYPE_CHOICES)}
        with writing(target, options["overwrite"]) as store:
            found, attributes = pcr_to_store(
                data, targets, record, store, asked | given(more) | filling(options), kinds, options["memory"], progress
            )
    print_regression(_columns_of(found), attributes, target, options["as_json"], notes)


@click.command(epilog="Example: streampca predict study.pcr.zarr new.bed --covariates new.tsv")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--covariates", metavar="FILE[:COLUMNS]", help="Table with the covariates that RESULT was fitted with.")
@click.option("--out", type=existing, help="Table of predictions.  [default: NAME.predicted.tsv]")
@click.option("--overwrite", is_flag=True, help="Replace a table that exists.")
@click.option("--keep", type=existing, help="Of genotypes: use the samples of this list alone.")
@click.option("--remove", type=existing, help="Of genotypes: do not use the samples of this list.")
@source_options
@click.option("--memory", help="Limit on the resident size of the process, as 600MB.")
@click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def predict(
    result: Path, source: str, covariates: str | None, out: Path | None, overwrite: bool, keep: Path | None,
    remove: Path | None, variable: str | None, sample_dims: str | None, missing_chunks: str, memory: str | None,
    threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Predict the traits of the samples of SOURCE by the regression RESULT, which `pcr` wrote."""
    import dask

    from streampca.cli.applying import open_alike
    from streampca.files import text_paths
    from streampca.results.store import load
    from streampca.run.regression import covariates_from, predict_by, regression_in
    from streampca.sources import open_genotypes

    fitted = load(result)
    found = regression_in(fitted)
    data: Any
    if found.genotypes:
        data = open_genotypes(
            source, variable=variable, missing_chunks=missing_chunks, keep=keep, remove=remove, autosomes=False
        )
    elif keep or remove:
        raise InputError(f"{result}: --keep and --remove are for genotypes; leave them out")
    else:
        data = open_alike(fitted, source, variable, sample_dims, missing_chunks)
    target = out or Path(f"{stem(source)}.predicted.tsv")
    text_paths(target, ("",), overwrite)
    beside = covariates_from(data, fitted, covariates)
    with dask.config.set(num_workers=threads), shown_progress(quiet) as progress:
        values, match = predict_by(data, fitted, beside, memory, progress)
    _write_predictions(target, data, found.names, values)
    note = "" if match is None else match.note
    if as_json:
        facts = {"predictions": str(target), "n_samples": len(values), "targets": list(found.names)}
        click.echo(json.dumps(facts | ({"variants": note} if note else {})))
        return
    pairs = [("samples", f"{len(values)}"), ("targets", ", ".join(found.names))]
    print_pairs(pairs + ([("variants", note)] if note else []))
    click.echo(f"predictions: {target}")


def _write_predictions(path: Path, data: Any, names: tuple[str, ...], values: Any) -> None:
    """Write a line for each sample: its ids, and what is predicted."""
    from streampca.files import writing_text
    from streampca.sources.tables import source_ids

    ids = source_ids(data.samples)
    columns = [ids.names] if ids.families is None else [ids.families, ids.names]
    header = ["#IID"] if ids.families is None else ["#FID", "IID"]
    with writing_text(path) as file:
        file.write("\t".join(map(table_cell, [*header, *names])) + "\n")
        for *who, row in zip(*columns, values.tolist(), strict=True):
            cells = ["NA" if value != value else f"{value:.10g}" for value in row]
            file.write("\t".join([*map(table_cell, who), *cells]) + "\n")


def _columns_of(found: Any) -> dict[str, list[Any]]:
    """Return the table that is printed, column by column."""
    columns = {
        "target": list(found.names),
        "n_components": found.chosen.tolist(),
        "r2": found.at_chosen(found.r2).tolist(),
    }
    if found.cv_r2 is not None:
        columns["cv_r2"] = found.at_chosen(found.cv_r2).tolist()
        columns["cv_mse"] = found.at_chosen(found.cv_error).tolist()
    return columns


def print_stored_regression(fitted: Any, path: str | Path, as_json: bool) -> None:
    """Print what a stored regression holds."""
    from streampca.run.regression import regression_in

    print_regression(_columns_of(regression_in(fitted)), fitted.attrs, path, as_json)


def print_regression(
    columns: dict[str, list[Any]], a: Any, path: str | Path, as_json: bool, notes: tuple[str, ...] = ()
) -> None:
    """Print the table of targets, and what the run took."""
    from streampca.sweep.memory import show_bytes

    said = [*notes, *json.loads(a["notes"])]
    if as_json:
        keys = (
            "kind", "source", "n_samples", "n_features", "n_folds", "solver", "n_sweeps", "bytes_read", "seconds",
            "peak_memory_bytes", "advice",
        )  # fmt: skip
        facts = {key: a[key] for key in keys} | {"converged": bool(a["converged"]), "notes": said}
        # NaN, of a target that does not vary, is no JSON.
        table = {name: [None if value != value else value for value in c] for name, c in columns.items()}
        click.echo(json.dumps({"result": str(path), **facts, **table}))
        return
    width = max(6, *(len(name) for name in columns["target"]))
    left_out = f"  {a['n_folds']}-fold R2" if "cv_r2" in columns else ""
    click.echo(f"{'target':<{width}}  samples   m      R2{left_out}")
    for i, name in enumerate(columns["target"]):
        more = f"  {columns['cv_r2'][i]:9.4f}" if "cv_r2" in columns else ""
        click.echo(
            f"{name:<{width}}  {a['n_samples']:7d}  {columns['n_components'][i]:2d}  {columns['r2'][i]:6.4f}{more}"
        )
    click.echo(
        f"{a['solver']}: {a['n_sweeps']} sweeps for all folds, {show_bytes(a['bytes_read'])} read, "
        f"{a['seconds']:.1f} s, peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    for note in [*filter(None, [a["advice"]]), *said]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")
