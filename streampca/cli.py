"""The command line: each command checks its output, calls the library, and prints a summary."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca import __version__
from streampca.errors import InputError

if TYPE_CHECKING:
    from streampca.progress import Progress

MESSAGE_PREFIX = "streampca: "


class ComponentsType(click.ParamType[Any]):
    """A whole number, a fraction of the variance, or "all"."""

    name = "number|fraction|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float | str:
        """Turn the text into what it says."""
        if value == "all" or isinstance(value, (int, float)):
            return str(value) if value == "all" else value
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        self.fail(
            f"{value!r} is not a number of components; give e.g. 10, 0.9 for 90% of the variance, or all", param, ctx
        )


class LatentComponentsType(click.ParamType[Any]):
    """A whole number, or "auto"."""

    name = "number|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Turn the text into what it says."""
        if value == "auto":
            return "auto"
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of components; give e.g. 10, or auto", param, ctx)


def _together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Join options into one decorator."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


source_options = _together(
    click.option("--variable", help="Which array of a group, Dataset or NetCDF file."),
    click.option("--sample-dims", help="Dimensions that make up the samples, as a,b; the first one unless given."),
)
run_options = _together(
    click.option(
        "--memory", help="Limit on the resident size of the process, as 600MB; half of what is available unless given."
    ),
    click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given."),
    click.option("--plan", is_flag=True, help="Print what would be done and what it costs, and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)


existing = click.Path(path_type=Path)
genotype_options = _together(
    click.option("--maf", type=float, help="Leave out variants whose rarer allele is rarer than this."),
    click.option("--geno", type=float, help="Leave out variants with a larger share of missing calls."),
    click.option("--mind", type=float, help="Leave out samples with a larger share of missing calls."),
    click.option(
        "--keep", type=existing, help="Use the samples of this list alone: FID and IID, or IID, in each line."
    ),
    click.option("--remove", type=existing, help="Do not use the samples of this list."),
    click.option("--extract", type=existing, help="Use the variants of this list alone: one id in each line."),
    click.option("--exclude", type=existing, help="Do not use the variants of this list."),
    click.option(
        "--exclude-regions",
        help="GRCh37 or GRCh38: leave out the regions of long-range linkage known there; or a file of regions.",
    ),
    click.option("--all-chromosomes", is_flag=True, help="Use all chromosomes, not the autosomes alone."),
)
GENOTYPE_CHOICES = (
    "maf", "geno", "mind", "keep", "remove", "extract", "exclude", "exclude_regions", "all_chromosomes",
)  # fmt: skip


# What a result's name leaves out of that of its data.
SUFFIXES = (".bed", ".pgen", ".vcz", ".zarr", ".npy", ".nc", ".nc4", ".h5", ".hdf5")


def _stem(source: str) -> str:
    """Return the name of data without folder and suffix."""
    path = Path(source)
    return path.stem if path.suffix in SUFFIXES else path.name


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given; 0 is one."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _open(source: str, variable: str | None, sample_dims: str | None, choice: dict[str, Any]) -> Any:
    """Open data, of genotypes those chosen; the choices are only for genotypes."""
    from streampca.sources import PLINK_SUFFIXES, is_genotypes, open_genotypes, open_source

    given = _given({name: choice[name] for name in GENOTYPE_CHOICES})
    if is_genotypes(source):
        if sample_dims or (variable and Path(source).suffix in PLINK_SUFFIXES):
            raise InputError(f"{source}: --sample-dims and --variable are not for genotypes; leave them out")
        if given.pop("all_chromosomes", False):
            given["autosomes"] = False
        return open_genotypes(source, variable=variable, **given)
    if given:
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"{source}: --{option} is for genotypes (.bed, .pgen, VCF Zarr); leave it out")
    return open_source(source, variable=variable, sample_dims=sample_dims.split(",") if sample_dims else None)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streampca")
def cli() -> None:
    """Principal components of matrices too big for memory."""


fit_options = _together(
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


@cli.command()
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
        _print_result(columns, found.genotype_eigenvalue if found.genotypes else None, attributes, target, as_json)

    _fit(source, n_components, "pca", {"missing": missing, "tol": tol}, ask, pca_to_store, show, options)


@cli.command()
@click.argument("source")
@click.option(
    "-k",
    "--n-components",
    type=LatentComponentsType(),
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
        _print_latent(columns | {"certificate": found.certificate}, attributes, target, as_json)

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

    data = _open(source, options["variable"], options["sample_dims"], options)
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
    target = options["out"] or Path(f"{_stem(source)}.{kind}.zarr")
    quiet = options["quiet"] or options["plan"]
    with dask.config.set(num_workers=options["threads"]), _progress(quiet) as progress:
        request = ask(parameters, progress)
        if options["plan"]:
            _print_plan(request.plan(data, extra_sweeps=1), options["as_json"])
            return
        check_output(target, options["overwrite"])
        if form is not None:
            _check_export(target, form, options["overwrite"], genotypes)
        if ld_prune is not None:
            data = _pruned(data, progress, r2=ld_prune)
        found, attributes = to_store(
            data, request, target, options["overwrite"], parameters | own | _given(asked), find_outliers=outliers,
            outlier_rounds=options["outlier_rounds"],
        )  # fmt: skip
    if form is not None:
        _export(target, form, None, options["overwrite"])
    show(found, attributes, target, options["as_json"])


def _pruned(data: Any, progress: Progress, **parameters: Any) -> Any:
    """Return genotypes without variants in linkage with others."""
    from streampca.prune import filtered, prune

    data = filtered(data)
    kept = prune(data, progress=progress, **parameters)
    return data.take(variants=kept, note=f"variants left out: {int((~kept).sum())} by pruning")


@cli.command()
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the scores.  [default: NAME.scores.zarr]")
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@click.option(
    "--projection",
    type=click.Choice(["oadp", "simple"]),
    default="oadp",
    show_default=True,
    help="oadp: without the shrinkage of a simple projection. Results of ppca give posterior means.",
)
@click.option("--drop-ambiguous", is_flag=True, help="Leave out variants that are the same on both strands (A/T, C/G).")
@click.option("--keep", type=existing, help="Use the samples of this list alone.")
@click.option("--remove", type=existing, help="Do not use the samples of this list.")
@click.option("--memory", help="Limit on the resident size of the process, as 600MB.")
@click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def project(
    result: Path, source: str, out: Path | None, overwrite: bool, projection: str, drop_ambiguous: bool,
    keep: Path | None, remove: Path | None, memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Scores of the new samples of SOURCE on the components of RESULT."""
    import dask

    from streampca.models.genotypes import match_variants, project_genotypes
    from streampca.models.latent import infer_latent, matching_latent
    from streampca.results import (
        check_output,
        components_in,
        latent_in,
        load,
        scores_to_store,
        variant_labels_in,
    )
    from streampca.sources import open_genotypes

    fitted = load(result)
    labels = variant_labels_in(fitted)
    data = open_genotypes(source, keep=keep, remove=remove, autosomes=False)
    target = out or Path(f"{_stem(source)}.scores.zarr")
    check_output(target, overwrite)
    match = match_variants(labels, data, drop_ambiguous=drop_ambiguous)
    deviations = None
    with dask.config.set(num_workers=threads), _progress(quiet) as progress:
        if fitted.attrs["kind"] == "pca":
            found = components_in(fitted)
            scores = project_genotypes(data, found, match, projection=projection, memory=memory, progress=progress)
        else:
            latent, projection = matching_latent(latent_in(fitted), match), "posterior"
            posterior, _, _ = infer_latent(data.take(variants=match.new), latent, "model", memory, progress)
            scores, deviations = posterior.mean, posterior.deviation
    facts = {"result": str(result), "source": data.name, "projection": projection, "variants": match.note}
    scores_to_store(scores, data.samples, target, overwrite, facts, deviations)
    if as_json:
        click.echo(json.dumps({"scores": str(target), **facts, "n_samples": len(scores)}))
        return
    _print_pairs([("samples", f"{len(scores)}, by projection {projection}"), ("variants", match.note)])
    if len(match.fitted) < 0.9 * len(labels["variant_id"]):
        click.echo("note: a tenth or more of the variants is not used; scores are less sure than those of the fit")
    click.echo(f"scores: {target}")


@cli.command()
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the values.  [default: NAME.imputed.zarr]")
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@source_options
@click.option("--memory", help="Limit on the resident size of the process, as 600MB.")
@click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def impute(
    result: Path, source: str, out: Path | None, overwrite: bool, variable: str | None, sample_dims: str | None,
    memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Fill in the missing values of SOURCE by the model of RESULT, which `ppca` wrote."""
    import dask

    from streampca.models.genotypes import match_variants
    from streampca.models.latent import matching_latent
    from streampca.results import check_output, impute_to_store, latent_in, load, variant_labels_in
    from streampca.sources import open_genotypes, open_source

    fitted = load(result)
    latent = latent_in(fitted)
    target = out or Path(f"{_stem(source)}.imputed.zarr")
    check_output(target, overwrite)
    facts = {"result": str(result)}
    data: Any
    if latent.genotypes:
        genotypes = open_genotypes(source, variable=variable, autosomes=False)
        match = match_variants(variant_labels_in(fitted), genotypes)
        data, latent = genotypes.take(variants=match.new), matching_latent(latent, match)
        facts["variants"] = match.note
    else:
        data = open_source(source, variable=variable, sample_dims=sample_dims.split(",") if sample_dims else None)
        dims = fitted["components"].dims[1:]
        sizes = tuple(fitted.sizes[dim] for dim in dims)
        if data.features.sizes != sizes:
            shown = " x ".join(f"{dim} {size}" for dim, size in zip(dims, sizes, strict=True))
            here = " x ".join(f"{d} {s}" for d, s in zip(data.features.dims, data.features.sizes, strict=True))
            raise InputError(
                f"{source}: has the features {here}, the model {shown}; give the same features in the same order, or "
                "say which dimensions are samples by --sample-dims"
            )
    with dask.config.set(num_workers=threads), _progress(quiet) as progress:
        count = impute_to_store(data, latent, target, overwrite, facts, memory, progress)
    share = count / (data.shape[0] * data.shape[1])
    if as_json:
        click.echo(json.dumps({"imputed": str(target), "values": count, "share": share, **facts}))
        return
    pairs = [("values", f"{count} filled in, {share:.3%} of {data.shape[0]} samples x {data.shape[1]} features")]
    _print_pairs(pairs + [(name, facts[name]) for name in ("variants",) if name in facts])
    click.echo(f"store: {target}")


@cli.command()
@click.argument("source")
@click.option(
    "--out", type=existing, help="Prefix of the lists.  [default: NAME, for NAME.prune.in and NAME.prune.out]"
)
@click.option("--overwrite", is_flag=True, help="Replace lists that exist.")
@click.option("--window", default="50", show_default=True, help="Variants in a window, or kilobases, as 500kb.")
@click.option("--step", type=int, help="Variants that the window moves by.  [default: 5, or 1 for kilobases]")
@click.option("--r2", type=float, default=0.2, show_default=True, help="Largest squared correlation left.")
@genotype_options
@click.option("--quiet", is_flag=True, help="Show no progress.")
def prune(
    source: str, out: Path | None, overwrite: bool, window: str, step: int | None, r2: float, quiet: bool, **choice: Any
) -> None:
    """List variants of SOURCE that are not in linkage with others, as plink --indep-pairwise does."""
    from streampca.prune import filtered, list_paths, write_lists
    from streampca.prune import prune as kept_of

    data = _open(source, None, None, choice)
    prefix = out or Path(_stem(source))
    list_paths(data, prefix, overwrite)
    data = filtered(data)
    step = step if step is not None else 1 if window.lower().endswith("kb") else 5
    with _progress(quiet) as progress:
        kept = kept_of(data, window=window, step=step, r2=r2, progress=progress)
    paths = write_lists(data, kept, prefix, overwrite)
    click.echo(f"{int(kept.sum())} of {kept.size} variants kept")
    for path in paths:
        click.echo(f"list: {path}")


@cli.command()
@click.argument("result", type=existing)
@click.option("--format", "form", type=click.Choice(["plink", "tsv"]), default="plink", show_default=True)
@click.option("--out", type=existing, help="Prefix of the files.  [default: that of the result]")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def export(result: Path, form: str, out: Path | None, overwrite: bool) -> None:
    """Write RESULT as text: plink (.eigenvec, .eigenval, .eigenvec.var) or tsv (scores, loadings, components)."""
    for path in _export(result, form, out, overwrite):
        click.echo(str(path))


def _export(result: Path, form: str, prefix: Path | None, overwrite: bool) -> list[Path]:
    """Write a result as text, beside it unless a prefix is given."""
    from streampca.export import export as write

    return write(result, prefix or _prefix(result), form=form, overwrite=overwrite)


def _prefix(result: Path) -> Path:
    """Return how the text files of a result begin."""
    return result.with_name(result.name.removesuffix(".zarr").removesuffix(".pca"))


def _check_export(result: Path, form: str, overwrite: bool, genotypes: bool) -> None:
    """Refuse what could not be written at the end, before the work begins."""
    from streampca.export import FORMATS
    from streampca.results import text_paths

    text_paths(_prefix(result), FORMATS[form], overwrite)
    if form == "plink" and not genotypes:
        raise InputError("--export plink is for genotypes; use --export tsv")


@cli.command()
@click.argument("source")
@click.argument("out", type=existing)
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def convert(source: str, out: Path, overwrite: bool, quiet: bool) -> None:
    """Write SOURCE, a .bed, .pgen, .vcf or .vcf.gz, as the VCF Zarr store OUT."""
    from streampca.convert import convert as write

    with _progress(quiet) as progress:
        write(source, out, overwrite=overwrite, progress=progress)
    click.echo(f"store: {out}")


@cli.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@source_options
def info(path: str, as_json: bool, variable: str | None, sample_dims: str | None) -> None:
    """Say what PATH is: a result, or data and how they are laid out."""
    from streampca.budget import show_bytes
    from streampca.results import RESULT_ARRAYS, kind_of
    from streampca.sources import open_source

    if kind_of(Path(path)) in RESULT_ARRAYS:
        _print_stored(Path(path), as_json)
        return
    data = open_source(path, variable=variable, sample_dims=sample_dims.split(",") if sample_dims else None)
    facts = {
        "source": data.name,
        "samples": f"{data.shape[0]} ({', '.join(data.samples.dims)})",
        "features": f"{data.shape[1]} ({', '.join(data.features.dims)})",
        "type": str(data.dtype),
        "size": show_bytes(data.n_bytes),
        "chunks": f"{data.chunks[0]} x {data.chunks[1]}",
        "fingerprint": data.fingerprint(),
    }
    if as_json:
        click.echo(json.dumps(facts | {"shape": list(data.shape), "n_bytes": data.n_bytes}))
        return
    _print_pairs(list(facts.items()))


@cli.command()
@click.argument("story", type=click.Choice(["groups", "genotypes", "digits", "missing"]), default="groups")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True, help="Folder to write to."
)
@click.option("--memory", default="400MB", show_default=True, help="Limit that the run must keep to.")
@click.option("--table", type=existing, help="Numbers for `missing`, one sample in each line; else wines.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def demo(story: str, out: Path, memory: str, table: Path | None, quiet: bool) -> None:
    """Find components of simulated groups or genotypes, of digits, or of a table with values removed; and draw them."""
    from streampca.demo import demo_digits, demo_genotypes, demo_groups, demo_missing

    out.mkdir(parents=True, exist_ok=True)
    if story == "digits":
        picture = demo_digits(out, click.echo)
    elif story == "missing":
        picture = demo_missing(out, table, click.echo)
    else:
        with _progress(quiet) as progress:
            tell = demo_groups if story == "groups" else demo_genotypes
            picture = tell(out, memory, progress, click.echo)
        _print_stored(out / f"{story}.pca.zarr", as_json=False)
    click.echo(f"picture: {picture}")


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """Yield a bar on a terminal, log lines elsewhere."""
    from streampca.progress import BarProgress, LogProgress, on_terminal, silent

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("streampca")
    if not quiet:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    bar = BarProgress() if on_terminal() and not quiet else None
    try:
        with bar or nullcontext():
            yield bar or (silent if quiet else LogProgress())
    finally:
        logger.removeHandler(handler)


def _print_pairs(pairs: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        click.echo(f"{name:<{width}}  {text}")


def _print_plan(plan: Any, as_json: bool) -> None:
    if as_json:
        keys = (
            "name",
            "reason",
            "threads",
            "peak_bytes",
            "limit_bytes",
            "resident_bytes",
            "sweep_bytes",
            "sweeps",
            "seconds",
        )
        click.echo(
            json.dumps(
                {key: getattr(plan, key) for key in keys}
                | {"partitions": len(plan.cut.partitions), "axis": plan.cut.axis}
            )
        )
    else:
        _print_pairs(plan.lines())


COLUMNS = ("explained_variance", "explained_variance_ratio", "certificate")
LATENT_COLUMNS = ("explained_variance", "explained_variance_ratio")


def _print_stored(path: Path, as_json: bool) -> None:
    from streampca.results import load

    result = load(path)
    if result.attrs["kind"] != "pca":
        columns = {name: result[name].values for name in LATENT_COLUMNS}
        certificate = result["certificate"].values if "certificate" in result else None
        _print_latent(columns | {"certificate": certificate}, result.attrs, path, as_json)
        return
    columns = {name: result[name].values for name in COLUMNS}
    eigenvalues = result["eigenvalue"].values if "eigenvalue" in result else None
    _print_result(columns, eigenvalues, result.attrs, path, as_json)


def _print_result(columns: dict[str, Any], eigenvalues: Any, a: dict[str, Any], path: Path, as_json: bool) -> None:
    """Print the table of components with their certificates, and what the run took; genotypes have eigenvalues too."""
    from streampca.budget import show_bytes

    if as_json:
        keys = ("kind", "source", "n_samples", "solver", "total_variance", "n_sweeps", "bytes_read", "seconds")
        facts = {key: a[key] for key in (*keys, "peak_memory_bytes", "advice")}
        facts["notes"] = json.loads(a.get("notes", "[]"))
        if eigenvalues is not None:
            columns = columns | {"eigenvalue": eigenvalues}
        table = {name: column.tolist() for name, column in columns.items()}
        click.echo(json.dumps({"result": str(path), **facts, "converged": bool(a["converged"]), **table}))
        return
    click.echo(" PC    eigenvalue    share  together  certificate")
    together = 0.0
    if eigenvalues is not None:
        columns = columns | {"explained_variance": eigenvalues}
    for i, (value, share, bound) in enumerate(zip(*columns.values(), strict=True), start=1):
        together += share
        click.echo(f"{i:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}  {bound:11.1e}")
    warm = " after a warm start on a tenth of the data" if a.get("warm_start_seconds") else ""
    click.echo(
        f"{a['solver']}: {a['n_sweeps']} sweeps{warm}, {show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, "
        f"peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    if a.get("genotypes"):
        click.echo(
            f"{a['n_samples']} samples, {a['n_features']} variants; eigenvalues of X X' / m for m variants, as in plink"
        )
    for note in [*filter(None, [a["advice"]]), *json.loads(a.get("notes", "[]"))]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")


def _print_latent(columns: dict[str, Any], a: dict[str, Any], path: Path, as_json: bool) -> None:
    """Print the table of components of a latent model, what it came to, and what the run took."""
    from streampca.budget import show_bytes

    if as_json:
        keys = (
            "kind", "source", "n_samples", "n_features", "method", "total_log_likelihood", "n_missing", "n_iterations",
            "change", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes", "advice",
        )  # fmt: skip
        facts = {key: a[key] for key in keys} | {key: a[key] for key in ("noise_variance", "criterion") if key in a}
        table = {name: column.tolist() for name, column in columns.items() if column is not None}
        notes = json.loads(a["notes"])
        click.echo(
            json.dumps({"result": str(path), **facts, "converged": bool(a["converged"]), "notes": notes, **table})
        )
        return
    certificate = columns["certificate"]
    click.echo("  i      variance    share  together" + ("" if certificate is None else "  certificate"))
    together = 0.0
    for i, (value, share) in enumerate(zip(*(columns[name] for name in LATENT_COLUMNS), strict=True)):
        together += share
        bound = "" if certificate is None else f"  {certificate[i]:11.1e}"
        click.echo(f"{i + 1:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}{bound}")
    noise = f"noise variance {a['noise_variance']:.6g}, " if "noise_variance" in a else ""
    per_sample = a["total_log_likelihood"] / a["n_samples"]
    click.echo(f"{noise}log-likelihood {a['total_log_likelihood']:.10g}, {per_sample:.6g} a sample")
    share = a["n_missing"] / (a["n_samples"] * a["n_features"])
    click.echo(f"{a['n_samples']} samples x {a['n_features']} features, {share:.3%} missing")
    steps = f"EM, {a['n_iterations']} iterations" if a["method"] == "em" else "closed form"
    click.echo(
        f"{steps}: {a['n_sweeps']} sweeps in all, {show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, "
        f"peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    for note in [*filter(None, [a["advice"]]), *json.loads(a["notes"])]:
        click.echo(f"note: {note}")
    click.echo(f"result: {path}")


def main() -> None:
    """Run a command; one line and exit code 2 for what the user can cure."""
    try:
        cli(standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message().replace("\n", " "))
    except OSError as error:
        _fail(f"{error.filename or 'the output'}: {error.strerror or error}; check the place, its space and its rights")
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{MESSAGE_PREFIX}stopped", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    click.echo(f"{MESSAGE_PREFIX}{message}", err=True)
    sys.exit(2)
