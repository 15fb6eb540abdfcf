"""Commands about files, and the demonstrations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import chunk_option, existing, genotype_options, shown_progress, source_options, stem
from streampca.cli.printing import print_pairs, print_stored
from streampca.errors import InputError


@click.command(epilog="Example: streampca prune study.bed --window 50 --step 5 --r2 0.2")
@click.argument("source")
@click.option(
    "--out", type=existing, help="Prefix of the lists.  [default: NAME, for NAME.prune.in and NAME.prune.out]"
)
@click.option("--overwrite", is_flag=True, help="Replace lists that exist.")
@click.option("--window", default="50", show_default=True, help="Variants in a window, or kilobases, as 500kb.")
@click.option("--step", type=int, help="Variants that the window moves by.  [default: 5, or 1 for kilobases]")
@click.option("--r2", type=float, default=0.2, show_default=True, help="Largest squared correlation left.")
@genotype_options
@chunk_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
def prune(
    source: str, out: Path | None, overwrite: bool, window: str, step: int | None, r2: float, quiet: bool, **choice: Any
) -> None:
    """List variants of SOURCE that are not in linkage with others, as plink --indep-pairwise does."""
    from streampca.genetics.pruning import filtered, list_paths, write_lists
    from streampca.genetics.pruning import prune as kept_of
    from streampca.run.fit import open_data

    data = open_data(source, choice)
    prefix = out or Path(stem(source))
    list_paths(data, prefix, overwrite)
    data = filtered(data)
    step = step if step is not None else 1 if window.lower().endswith("kb") else 5
    with shown_progress(quiet) as progress:
        kept = kept_of(data, window=window, step=step, r2=r2, progress=progress)
    paths = write_lists(data, kept, prefix, overwrite)
    click.echo(f"{int(kept.sum())} of {kept.size} variants kept")
    for path in paths:
        click.echo(f"list: {path}")


@click.command(epilog="Example: streampca export study.pca.zarr --format tsv --out study")
@click.argument("result", type=existing)
@click.option(
    "--format", "form", type=click.Choice(["plink", "tsv"]), default="plink", show_default=True, help="Which text."
)
@click.option("--out", type=existing, help="Prefix of the files.  [default: that of the result]")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
def export(result: Path, form: str, out: Path | None, overwrite: bool) -> None:
    """Write RESULT as text: plink (.eigenvec, .eigenval, .eigenvec.var) or tsv (scores, loadings, components)."""
    from streampca.run.fit import write_export

    for path in write_export(result, form, out, overwrite):
        click.echo(str(path))


@click.command(epilog="Example: streampca convert folder/ faces.zarr --size 64x64 --crop")
@click.argument("source")
@click.argument("out", type=existing)
@click.option("--size", help="Of images: height x width of all, as 64x48.  [default: that of the first]")
@click.option("--crop", is_flag=True, help="Of images: keep proportions, and cut off what is beside the size.")
@click.option("--grey/--rgb", default=None, help="Of images: shades of grey, or colours.  [default: grey if all are]")
@click.option(
    "--labels",
    help="Of images: table with paths and labels, as people.tsv or people.tsv:COLUMN.  [default: sub-folders]",
)
@click.option("--overwrite", is_flag=True, help="Replace a store that exists.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def convert(
    source: str, out: Path, size: str | None, crop: bool, grey: bool | None, labels: str | None, overwrite: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Write SOURCE, a .bed, .pgen, .vcf or .vcf.gz, as the VCF Zarr store OUT; or a folder of images as one array."""
    from streampca.run.convert import convert as write
    from streampca.run.images import parse_size

    shape = None if size is None else parse_size(size)
    with shown_progress(quiet) as progress:
        done = write(
            source, out, overwrite=overwrite, progress=progress, size=shape, crop=crop, grey=grey, labels=labels
        )
    for line in done.lines() if done else ():
        click.echo(line)
    click.echo(f"store: {out}")


@click.command(epilog="Example: streampca info study.bed")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@source_options
def info(path: str, as_json: bool, variable: str | None, sample_dims: str | None, missing_chunks: str) -> None:
    """Say what PATH is: a result, or data and how they are laid out."""
    from streampca.results.schema import RESULT_ARRAYS
    from streampca.results.store import kind_of
    from streampca.sources import open_source
    from streampca.sweep.memory import show_bytes

    if kind_of(Path(path)) in RESULT_ARRAYS:
        print_stored(Path(path), as_json)
        return
    dims = sample_dims.split(",") if sample_dims else None
    data = open_source(path, variable=variable, sample_dims=dims, missing_chunks=missing_chunks)
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
    print_pairs(list(facts.items()))


@click.command(epilog="Example: streampca demo faces --out demo-output")
@click.argument(
    "story", type=click.Choice(["groups", "genotypes", "digits", "faces", "missing", "kernel"]), default="groups"
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True, help="Folder to write to."
)
@click.option("--memory", default="400MB", show_default=True, help="Limit that the run must keep to.")
@click.option("--table", type=existing, help="Numbers for `missing`, one sample in each line; else wines.")
@click.option("--images", type=existing, help="Folder of images for `faces`, in sub-folders by person; else drawn.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def demo(story: str, out: Path, memory: str, table: Path | None, images: Path | None, quiet: bool) -> None:
    """Tell a story: find components of groups, genotypes, digits, faces, a table with gaps, or curves; draw them."""
    from streampca.demos import STORIES, Teller

    for option, given, taker in (("--table", table, "missing"), ("--images", images, "faces")):
        if given is not None and story != taker:
            raise InputError(f"{option} is for `demo {taker}`, not for `demo {story}`; leave it out")
    out.mkdir(parents=True, exist_ok=True)
    with shown_progress(quiet) as progress:
        *pictures, page = STORIES[story](Teller(out, click.echo, progress, memory, table, images))
    if (out / f"{story}.pca.zarr").exists():
        print_stored(out / f"{story}.pca.zarr", as_json=False)
    for picture in pictures:
        click.echo(f"picture: {picture}")
    click.echo(f"report: {page}")
