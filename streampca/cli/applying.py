"""Commands that apply a fitted model to data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import existing, shown_progress, source_options, stem, together
from streampca.cli.printing import print_pairs
from streampca.errors import InputError

applying_options = together(
    click.option("--overwrite", is_flag=True, help="Replace a store that exists."),
    source_options,
    click.option("--memory", help="Limit on the resident size of the process, as 600MB."),
    click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)


@click.command(epilog="Example: streampca project study.pca.zarr new.bed --out new.scores.zarr")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the scores.  [default: NAME.scores.zarr]")
@click.option(
    "--projection",
    type=click.Choice(["oadp", "simple"]),
    help="Of genotypes: oadp, without the shrinkage of a simple projection. Results of ppca give posterior means.  "
    "[default: oadp]",
)
@click.option("--drop-ambiguous", is_flag=True, help="Leave out variants that are the same on both strands (A/T, C/G).")
@click.option("--keep", type=existing, help="Use the samples of this list alone.")
@click.option("--remove", type=existing, help="Do not use the samples of this list.")
@applying_options
def project(
    result: Path, source: str, out: Path | None, overwrite: bool, projection: str | None, drop_ambiguous: bool,
    keep: Path | None, remove: Path | None, variable: str | None, sample_dims: str | None, missing_chunks: str,
    memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Scores of the new samples of SOURCE on the components of RESULT."""
    import dask

    from streampca.models.genotypes import match_variants, placed_genotypes
    from streampca.models.ppca.fit import infer_latent, matching_latent
    from streampca.results.store import (
        check_output,
        components_in,
        fit_id,
        latent_in,
        load,
        scores_to_store,
        variant_labels_in,
    )
    from streampca.sources import open_genotypes

    fitted = load(result)
    if not fitted.attrs["genotypes"]:
        if projection or drop_ambiguous or keep or remove:
            raise InputError(
                f"{result}: --projection, --keep, --remove and --drop-ambiguous are for genotypes; leave them out"
            )
        target = out or Path(f"{stem(source)}.scores.zarr")
        _project_array(
            fitted, result, source, (variable, sample_dims, missing_chunks), target, overwrite, memory, threads,
            as_json, quiet,
        )  # fmt: skip
        return
    projection = projection or "oadp"
    labels = variant_labels_in(fitted)
    data = open_genotypes(source, missing_chunks=missing_chunks, keep=keep, remove=remove, autosomes=False)
    target = out or Path(f"{stem(source)}.scores.zarr")
    check_output(target, overwrite)
    match = match_variants(labels, data, drop_ambiguous=drop_ambiguous)
    deviations, distance, typical = None, None, {}
    with dask.config.set(num_workers=threads), shown_progress(quiet) as progress:
        if fitted.attrs["kind"] in ("pca", "pcr"):
            found = components_in(fitted)
            scores, distance = placed_genotypes(
                data, found, match, projection=projection, memory=memory, progress=progress
            )
            typical = {"typical_distance": found.typical_distance}
        else:
            latent, projection = matching_latent(latent_in(fitted), match), "posterior"
            posterior, _, _ = infer_latent(data.take(features=match.new), latent, "model", memory, progress)
            scores, deviations = posterior.mean, posterior.deviation
    facts = {"result": str(result), "source": data.name, "projection": projection, "variants": match.note}
    stored = {**facts, **typical, "fit": fit_id(fitted)}
    scores_to_store(scores, data.samples, target, overwrite, stored, deviations, distance)
    if as_json:
        click.echo(json.dumps({"scores": str(target), **facts, "n_samples": len(scores)}))
        return
    print_pairs([("samples", f"{len(scores)}, by projection {projection}"), ("variants", match.note)])
    if len(match.fitted) < 0.9 * len(labels["variant_id"]):
        click.echo("note: a tenth or more of the variants is not used; scores are less sure than those of the fit")
    click.echo(f"scores: {target}")


def open_alike(fitted: Any, source: str, variable: str | None, sample_dims: str | None, missing_chunks: str) -> Any:
    """Open arrays whose features are those of a result."""
    from streampca.sources import is_genotypes, open_source

    if is_genotypes(source):
        raise InputError(
            f"{source}: the result is not of genotypes; give arrays with the features that it was fitted on"
        )
    given = sample_dims.split(",") if sample_dims else None
    data = open_source(source, variable=variable, sample_dims=given, missing_chunks=missing_chunks)
    dims = fitted["mean"].dims
    sizes = tuple(fitted.sizes[dim] for dim in dims)
    if data.features.sizes != sizes:
        shown = " x ".join(f"{dim} {size}" for dim, size in zip(dims, sizes, strict=True))
        here = " x ".join(f"{d} {s}" for d, s in zip(data.features.dims, data.features.sizes, strict=True))
        raise InputError(
            f"{source}: has the features {here}, the model {shown}; give the same features in the same order, or "
            "say which dimensions are samples by --sample-dims"
        )
    return data


def _project_array(
    fitted: Any, result: Path, source: str, which: tuple[str | None, str | None, str], target: Path, overwrite: bool,
    memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write the scores of new samples that are no genotypes."""
    import dask

    from streampca.results.store import FAR, check_output, project_to_store

    data = open_alike(fitted, source, *which)
    check_output(target, overwrite)
    facts = {"result": str(result), "source": data.name}
    with dask.config.set(num_workers=threads), shown_progress(quiet) as progress:
        found = project_to_store(data, fitted, target, overwrite, facts, memory, progress)
    if as_json:
        click.echo(json.dumps({"scores": str(target), **facts, **found, "n_samples": data.shape[0]}))
        return
    pairs = [("samples", f"{data.shape[0]}, on {fitted.sizes['component']} components of {result}")]
    if found:
        typical = f"{FAR:g} times the typical distance {found['typical_distance']:.4g} from the components"
        pairs.append(("far", f"{found['n_far']}, more than {typical}"))
    print_pairs(pairs)
    click.echo(f"scores: {target}")


@click.command(epilog="Example: streampca denoise points.kpca.zarr noisy.zarr --picture noisy.png")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the samples.  [default: NAME.denoised.zarr]")
@click.option("--picture", type=existing, help="Draw the first ten, images or series, before and after, to this file.")
@applying_options
def denoise(
    result: Path, source: str, out: Path | None, overwrite: bool, picture: Path | None, variable: str | None,
    sample_dims: str | None, missing_chunks: str, memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Project the samples of SOURCE on the components of RESULT, of `pca` or `kpca`, and write them mapped back."""
    import dask

    from streampca.results.store import check_output, denoise_to_store, load

    fitted = load(result)
    data = open_alike(fitted, source, variable, sample_dims, missing_chunks)
    target = out or Path(f"{stem(source)}.denoised.zarr")
    check_output(target, overwrite)
    if picture is not None:
        from streampca.report.plots import check_picture

        check_picture(picture)
    facts = {"result": str(result)}
    with dask.config.set(num_workers=threads), shown_progress(quiet) as progress:
        denoise_to_store(data, fitted, target, overwrite, facts, memory, progress)
    if picture is not None:
        _draw_denoised(data, target, picture)
        facts["picture"] = str(picture)
    if as_json:
        click.echo(json.dumps({"denoised": str(target), "n_samples": data.shape[0], **facts}))
        return
    print_pairs([("samples", f"{data.shape[0]} x {data.shape[1]} features, by {fitted.attrs['kind']}")])
    click.echo(f"store: {target}")
    if picture is not None:
        click.echo(f"picture: {picture}")


def _draw_denoised(data: Any, target: Path, picture: Path) -> None:
    """Draw the first samples before and after."""
    import numpy as np
    import zarr

    from streampca.report.plots import draw_samples

    count = min(10, data.shape[0])
    before, _ = data.read(slice(0, count), slice(0, data.shape[1]))
    after = np.asarray(zarr.open_array(target, path="denoised", mode="r")[:count])
    sizes = data.features.sizes
    draw_samples({"given": before.reshape(count, *sizes), "denoised": after}, picture)


@click.command(epilog="Example: streampca impute study.ppca.zarr study.bed")
@click.argument("result", type=existing)
@click.argument("source")
@click.option("--out", type=existing, help="Store of the values.  [default: NAME.imputed.zarr]")
@applying_options
def impute(
    result: Path, source: str, out: Path | None, overwrite: bool, variable: str | None, sample_dims: str | None,
    missing_chunks: str, memory: str | None, threads: int | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Fill in the missing values of SOURCE by the model of RESULT, which `ppca` wrote."""
    import dask

    from streampca.models.genotypes import match_variants
    from streampca.models.ppca.fit import matching_latent
    from streampca.results.store import check_output, impute_to_store, latent_in, load, variant_labels_in
    from streampca.sources import open_genotypes

    fitted = load(result)
    latent = latent_in(fitted)
    target = out or Path(f"{stem(source)}.imputed.zarr")
    check_output(target, overwrite)
    facts = {"result": str(result)}
    data: Any
    if latent.genotypes:
        genotypes = open_genotypes(source, variable=variable, missing_chunks=missing_chunks, autosomes=False)
        match = match_variants(variant_labels_in(fitted), genotypes)
        data, latent = genotypes.take(features=match.new), matching_latent(latent, match)
        facts["variants"] = match.note
    else:
        data = open_alike(fitted, source, variable, sample_dims, missing_chunks)
    with dask.config.set(num_workers=threads), shown_progress(quiet) as progress:
        count = impute_to_store(data, latent, target, overwrite, facts, memory, progress)
    share = count / (data.shape[0] * data.shape[1])
    if as_json:
        click.echo(json.dumps({"imputed": str(target), "values": count, "share": share, **facts}))
        return
    pairs = [("values", f"{count} filled in, {share:.3%} of {data.shape[0]} samples x {data.shape[1]} features")]
    print_pairs(pairs + [(name, facts[name]) for name in ("variants",) if name in facts])
    click.echo(f"store: {target}")
