"""Commands that fit a model: open, check the output, plan or fit, write, print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import (
    ComponentsType,
    GammaType,
    NumberOrAuto,
    existing,
    genotype_options,
    run_options,
    shown_progress,
    source_options,
    stem,
    together,
)
from streampca.cli.printing import print_found, print_plan

SCALES = ["auto", "none", "unit", "patterson"]
SCALE_HELP = "unit: divide by the deviation; patterson: for allele counts; auto: patterson for genotypes, else none"
fit_options = together(
    click.option("--overwrite", is_flag=True, help="Replace a result that exists."),
    click.option("--solver", default="auto", show_default=True, help="auto, covariance, gram, krylov or power."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random start."),
    genotype_options,
    click.option(
        "--export", "form", type=click.Choice(["plink", "tsv"]), help="Write text files beside, as `export` does."
    ),
    click.option("--ld-prune", type=float, metavar="R2", help="Prune variants first, by windows of 50, steps of 5."),
    click.option("--outliers", type=click.Choice(["report", "remove"]), help="Look for samples apart from all others."),
    click.option(
        "--outlier-rounds", type=click.IntRange(min=1), default=5, show_default=True,
        help="Fits again without outliers.",
    ),
    source_options,
    run_options,
)  # fmt: skip


def _certificate(chosen: str | bool) -> Callable[[click.Context, click.Parameter, bool], None]:
    """Return the callback of a flag that sets the parameter `certificate`, unless another has."""

    def choose(context: click.Context, _: click.Parameter, given: bool) -> None:
        before = context.params.setdefault("certificate", True)
        if given and before is not True:
            raise click.UsageError("--exact-certificate and --no-certificate exclude each other; give one of them")
        if given:
            context.params["certificate"] = chosen

    return choose


certificate_options = together(
    click.option(
        "--exact-certificate", is_flag=True, expose_value=False, callback=_certificate("exact"),
        help="Compute certificates in float64, instead of measuring rounding with random probes.",
    ),
    click.option(
        "--no-certificate", is_flag=True, expose_value=False, callback=_certificate(False),
        help="Do not measure rounding: print estimates instead, and compare these with --tol.",
    ),
)  # fmt: skip


@click.command(epilog="Example: streampca pca study.bed -k 20 --memory 2GB --out study.pca.zarr")
@click.argument("source")
@click.option(
    "-k",
    "--n-components",
    type=ComponentsType(),
    default=None,
    help="How many: 20, 0.9 of the variance, or all.  [default: 10]",
)
@click.option("--out", type=click.Path(path_type=Path), help="Result store.  [default: NAME.pca.zarr]")
@click.option(
    "--missing",
    type=click.Choice(["auto", "error", "mean"]),
    default="auto",
    show_default=True,
    help="mean: missing values stand at the mean; auto: mean for genotypes, else error.",
)
@click.option("--tol", type=float, default=1e-3, show_default=True, help="Largest certificate allowed.")
@certificate_options
@click.option(
    "--scale",
    type=click.Choice([*SCALES, "coslat"]),
    default="auto",
    show_default=True,
    help=f"{SCALE_HELP}; coslat: weights of fields by latitude.",
)
@fit_options
def pca(**options: Any) -> None:
    """Principal components of SOURCE: a .bed, .pgen, .npy or .nc file, a Zarr store or its URL."""
    _fit("pca", options)


@click.command(epilog="Example: streampca ppca table.zarr -k auto --out table.ppca.zarr")
@click.argument("source")
@click.option(
    "-k",
    "--n-components",
    type=NumberOrAuto("components", 10),
    default=None,
    help="How many: 20, or auto to choose it by --criterion.  [default: 10]",
)
@click.option("--out", type=click.Path(path_type=Path), help="Result store.  [default: NAME.ppca.zarr]")
@click.option(
    "--method",
    type=click.Choice(["auto", "closed", "em"]),
    default="auto",
    show_default=True,
    help="closed: from eigenvalues, for complete data; em: a sweep an iteration; auto: em where values are missing.",
)
@click.option("--factor-analysis", is_flag=True, help="Each feature has noise of its own.")
@click.option(
    "--missing",
    type=click.Choice(["model", "error"]),
    default="model",
    show_default=True,
    help="model: missing values are left out of the likelihood.",
)
@click.option(
    "--criterion",
    type=click.Choice(["auto", "evidence", "bic", "heldout"]),
    default="auto",
    show_default=True,
    help="What -k auto chooses by; auto: evidence for complete data of more samples than features, else heldout.",
)
@click.option(
    "--tol", type=float, default=1e-3, show_default=True, help="Sine of the angle that EM may still turn by at its end."
)
@click.option(
    "--max-iter", type=click.IntRange(min=1), help="Iterations of EM.  [default: 200; 1000 for --factor-analysis]"
)
@click.option("--scale", type=click.Choice(SCALES), default="auto", show_default=True, help=f"{SCALE_HELP}.")
@fit_options
def ppca(factor_analysis: bool, **options: Any) -> None:
    """Probabilistic PCA of SOURCE, which may have missing values; or factor analysis."""
    _fit("factor_analysis" if factor_analysis else "ppca", options)


@click.command(epilog="Example: streampca kpca points.zarr -k 20 --kernel rbf --gamma median --landmarks 1000")
@click.argument("source")
@click.option("-k", "--n-components", type=click.IntRange(min=1), help="How many.  [default: 10]")
@click.option(
    "--kernel",
    type=click.Choice(["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"]),
    default="rbf",
    show_default=True,
    help="What takes the place of the scalar product; rbf: exp(-gamma |x - y|^2).",
)
@click.option(
    "--gamma",
    type=GammaType(),
    default="scale",
    show_default=True,
    help="A number; scale: 1 / (n_features variance); median: of distances; features: 1 / n_features.",
)
@click.option("--degree", type=float, default=3.0, show_default=True, help="Of poly.")
@click.option("--coef0", type=float, default=1.0, show_default=True, help="Of poly and sigmoid.")
@click.option(
    "--landmarks",
    "n_landmarks",
    type=NumberOrAuto("landmarks", 1000),
    default="1000",
    show_default=True,
    help="How many; auto: as many as keep --target of the kernel's trace.",
)
@click.option(
    "--choose",
    "landmarks",
    type=click.Choice(["uniform", "kmeans", "leverage", "fourier"]),
    default="uniform",
    show_default=True,
    help="How landmarks are chosen; fourier: random features instead.",
)
@click.option("--target", type=float, default=0.95, show_default=True, help="Share of the trace, for --landmarks auto.")
@click.option("--scale", type=click.Choice(["none", "unit"]), default="none", show_default=True, help="As for pca.")
@click.option("--missing", type=click.Choice(["error", "mean"]), default="error", show_default=True, help="As for pca.")
@click.option("--pre-image", "fit_inverse", is_flag=True, help="Learn the way back from scores to samples.")
@click.option("--alpha", type=float, default=0.1, show_default=True, help="Penalty of --pre-image.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the landmarks.")
@click.option("--out", type=existing, help="Result store.  [default: NAME.kpca.zarr]")
@click.option("--overwrite", is_flag=True, help="Replace a result that exists.")
@source_options
@run_options
def kpca(**options: Any) -> None:
    """Kernel PCA of SOURCE, by landmarks: an .npy or .nc file, a Zarr store or its URL."""
    _fit("kpca", options)


def _fit(kind: str, options: dict[str, Any]) -> None:
    """Fit a model of a kind: open, check the output, plan or fit, write, print."""
    import dask

    from streampca.results.store import check_output, writing
    from streampca.run.fit import Job, export_prefix, open_data, write_export

    source, form, overwrite = options["source"], options.get("form"), options["overwrite"]
    data = open_data(source, options)
    name = "ppca" if kind == "factor_analysis" else kind
    target = options["out"] or Path(f"{stem(source)}.{name}.zarr")
    quiet = options["quiet"] or options["plan"]
    with dask.config.set(num_workers=options["threads"]), shown_progress(quiet) as progress:
        job = Job.of(data, options, options | {"kind": kind}, options["memory"], progress)
        if options["plan"]:
            print_plan(job.plan(), options["as_json"])
            return
        check_output(target, overwrite)
        if form is not None:
            job.check_export(form, export_prefix(target), overwrite)
        with writing(target, overwrite) as store:
            found, attributes = job.fit(store)
    if form is not None:
        write_export(target, form, None, overwrite)
    print_found(found, attributes, target, options["as_json"])
