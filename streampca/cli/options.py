"""Options, types and small helpers that commands share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca.errors import redacted

if TYPE_CHECKING:
    from streampca.progress import Progress


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


class NumberOrAuto(click.ParamType[Any]):
    """A whole number of something, or "auto"."""

    name = "number|auto"

    def __init__(self, what: str, example: int):
        self.what, self.example = what, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Turn the text into what it says."""
        if value == "auto":
            return "auto"
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of {self.what}; give e.g. {self.example}, or auto", param, ctx)


class GammaType(click.ParamType[Any]):
    """A number, "scale", "median" or "features"."""

    name = "number|scale|median|features"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str | None:
        """Turn the text into what it says."""
        if value in ("scale", "median"):
            return str(value)
        if value == "features":
            return None
        try:
            return float(value)
        except ValueError:
            self.fail(
                f"{value!r} is not known; give a number, scale, median, or features for 1 / n_features", param, ctx
            )


def together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Join options into one decorator."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


chunk_option = click.option(
    "--missing-chunks",
    type=click.Choice(["error", "fill"]),
    default="error",
    show_default=True,
    help="Of chunks of a Zarr store that are not there; fill: take them for the fill value.",
)
source_options = together(
    click.option("--variable", help="Which array of a group, Dataset or NetCDF file."),
    click.option("--sample-dims", help="Dimensions that make up the samples, as a,b; the first one unless given."),
    chunk_option,
)
run_options = together(
    click.option(
        "--memory", help="Limit on the resident size of the process, as 600MB; half of what is available unless given."
    ),
    click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time; all cores unless given."),
    click.option("--plan", is_flag=True, help="Print what would be done and what it costs, and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)


existing = click.Path(path_type=Path)
genotype_options = together(
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


# What a result's name leaves out of that of its data.
SUFFIXES = (".bed", ".pgen", ".vcz", ".zarr", ".npy", ".nc", ".nc4", ".h5", ".hdf5")


def stem(source: str) -> str:
    """Return the name of data without folder and suffix."""
    path = Path(redacted(source))
    return path.stem if path.suffix in SUFFIXES else path.name


@contextmanager
def shown_progress(quiet: bool, log_json: bool = False) -> Iterator[Progress]:
    """Yield a bar on a terminal, log lines elsewhere."""
    from streampca.progress import BarProgress, JsonLines, LogProgress, on_terminal, silent

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_json else logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("streampca")
    if not quiet:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    bar = BarProgress() if on_terminal() and not quiet and not log_json else None
    try:
        with bar or nullcontext():
            yield bar or (silent if quiet else LogProgress())
    finally:
        logger.removeHandler(handler)
