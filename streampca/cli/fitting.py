"""Commands that fit a model: open, check the output, plan or fit, write, print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca.cli.files import check_export, write_export
from streampca.cli.options import (
    GENOTYPE_CHOICES,
    ComponentsType,
    GammaType,
    NumberOrAuto,
    existing,
    genotype_options,
    given,
    open_data,
    run_options,
    shown_progress,
    source_options,
    stem,
    together,
)
from streampca.cli.printing import (
    COLUMNS,
    KERNEL_COLUMNS,
    LATENT_COLUMNS,
    print_kernel,
    print_latent,
    print_plan,
    print_result,
)
from streampca.errors import InputError

if TYPE_CHECKING:
    from streampca.progress import Progress


fit_options = together(
    click.option("--overwrite", is_flag=True, help="Replace a result that exists."),
    click.option(
        "--scale",
        type=click.Choice(["auto", "none", "unit", "patterson"]),
        default="auto",
        show_default=True,
        help="unit: divide by the deviation; patterson: for allele counts; auto: patterson for genotypes, else none.",
    ),
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


@click.command()
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
@fit_options
def pca(source: str, n_components: int | float | str | None, missing: str, tol: float, **options: Any) -> None:
    """Principal components of SOURCE: a .bed, .pgen, .npy or .nc file, a Zarr store or its URL."""
    from streampca.models.components import Request
    from streampca.results import pca_to_store

    def ask(parameters: dict[str, Any], progress: Progress) -> Request:
        return Request(**parameters, missing=missing, tol=tol, progress=progress)

    def show(found: Any, attributes: dict[str, Any], target: Path, as_json: bool) -> None:
        columns = {name: getattr(found, name) for name in COLUMNS}
        print_result(columns, found.genotype_eigenvalue if found.genotypes else None, attributes, target, as_json)

    _fit(source, n_components, "pca", {"missing": missing, "tol": tol}, ask, pca_to_store, show, options)


@click.command()
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
@fit_options
def ppca(
    source: str, n_components: int | str | None, method: str, factor_analysis: bool, missing: str, criterion: str,
    tol: float, max_iter: int | None, **options: Any,
) -> None:  # fmt: skip
    """Probabilistic PCA of SOURCE, which may have missing values; or factor analysis."""
    from streampca.models.latent import LatentRequest
    from streampca.results import latent_to_store

    own: dict[str, Any] = {
        "method": method, "own_noise": factor_analysis, "missing": missing, "criterion": criterion, "tol": tol,
        "max_iter": max_iter or (1000 if factor_analysis else 200),
    }  # fmt: skip

    def ask(parameters: dict[str, Any], progress: Progress) -> LatentRequest:
        return LatentRequest(**parameters, **own, progress=progress)

    def show(found: Any, attributes: dict[str, Any], target: Path, as_json: bool) -> None:
        columns = {name: getattr(found, name) for name in LATENT_COLUMNS}
        print_latent(columns | {"certificate": found.certificate}, attributes, target, as_json)

    _fit(source, n_components, "ppca", own, ask, latent_to_store, show, options)


def _fit(
    source: str, n_components: Any, kind: str, own: dict[str, Any], ask: Callable[..., Any],
    to_store: Callable[..., Any], show: Callable[..., None], options: dict[str, Any],
) -> None:  # fmt: skip
    """Fit a model of a kind: open, check the output, plan or fit, write, print.

    Parameters
    ----------
    own : parameters of this kind alone, for the record.
    ask, to_store, show : what makes the request of the other parameters, fits and writes, and prints.
    """
    import dask

    from streampca.results import check_output
    from streampca.sources.genotypes import VariantSource

    data = open_data(source, options["variable"], options["sample_dims"], options)
    ld_prune, outliers, form = options["ld_prune"], options["outliers"], options["form"]
    genotypes = isinstance(data, VariantSource)
    if (ld_prune is not None or outliers) and not genotypes:
        raise InputError(f"{source}: --ld-prune and --outliers are for genotypes; leave them out")
    if n_components is None and not genotypes:
        n_components = max(1, min(10, *(size - (kind != "pca") for size in data.shape)))
    parameters = {
        "n_components": n_components, "scale": None if options["scale"] == "none" else options["scale"],
        "solver": options["solver"], "memory": options["memory"], "seed": options["seed"],
    }  # fmt: skip
    asked = {"ld_prune": ld_prune, "outliers": outliers, **{name: options[name] for name in GENOTYPE_CHOICES}}
    target = options["out"] or Path(f"{stem(source)}.{kind}.zarr")
    quiet = options["quiet"] or options["plan"]
    with dask.config.set(num_workers=options["threads"]), shown_progress(quiet) as progress:
        request = ask(parameters, progress)
        if options["plan"]:
            print_plan(request.plan(data, extra_sweeps=1), options["as_json"])
            return
        check_output(target, options["overwrite"])
        if form is not None:
            check_export(target, form, options["overwrite"], genotypes)
        if ld_prune is not None:
            data = _pruned(data, progress, r2=ld_prune)
        found, attributes = to_store(
            data, request, target, options["overwrite"], parameters | own | given(asked), find_outliers=outliers,
            outlier_rounds=options["outlier_rounds"],
        )  # fmt: skip
    if form is not None:
        write_export(target, form, None, options["overwrite"])
    show(found, attributes, target, options["as_json"])


@click.command()
@click.argument("source")
@click.option("-k", "--n-components", type=click.IntRange(min=1), help="How many.  [default: 10]")
@click.option(
    "--kernel",
    type=click.Choice(["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"]),
    default="rbf",
    show_default=True,
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
def kpca(
    source: str, variable: str | None, sample_dims: str | None, out: Path | None, overwrite: bool, threads: int | None,
    plan: bool, as_json: bool, quiet: bool, **parameters: Any,
) -> None:  # fmt: skip
    """Kernel PCA of SOURCE, by landmarks: an .npy or .nc file, a Zarr store or its URL."""
    import dask

    from streampca.models.kernel import KernelRequest
    from streampca.models.kernel_fit import kernel_plan
    from streampca.results import check_output, kernel_to_store
    from streampca.sources import open_source

    data = open_source(source, variable=variable, sample_dims=sample_dims.split(",") if sample_dims else None)
    parameters["scale"] = None if parameters["scale"] == "none" else parameters["scale"]
    if parameters["n_components"] is None:
        counts = [data.shape[0]] + [parameters["n_landmarks"]] * (parameters["n_landmarks"] != "auto")
        parameters["n_components"] = min(10, *counts)
    target = out or Path(f"{stem(source)}.kpca.zarr")
    with dask.config.set(num_workers=threads), shown_progress(quiet or plan) as progress:
        request = KernelRequest(**parameters, progress=progress)
        if plan:
            print_plan(kernel_plan(data, request, extra_sweeps=1), as_json)
            return
        check_output(target, overwrite)
        found, attributes = kernel_to_store(data, request, target, overwrite, parameters)
    print_kernel({name: getattr(found, name) for name in KERNEL_COLUMNS}, attributes, target, as_json)


def _pruned(data: Any, progress: Progress, **parameters: Any) -> Any:
    """Return genotypes without variants in linkage with others."""
    from streampca.prune import filtered, prune

    data = filtered(data)
    kept = prune(data, progress=progress, **parameters)
    return data.take(variants=kept, note=f"variants left out: {int((~kept).sum())} by pruning")
