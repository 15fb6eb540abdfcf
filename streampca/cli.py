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


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streampca")
def cli() -> None:
    """Principal components of matrices too big for memory."""


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
@click.option("--overwrite", is_flag=True, help="Replace a result that exists.")
@click.option(
    "--scale",
    type=click.Choice(["none", "unit"]),
    default="none",
    show_default=True,
    help="unit: divide by the standard deviation.",
)
@click.option(
    "--missing",
    type=click.Choice(["error", "mean"]),
    default="error",
    show_default=True,
    help="mean: missing values stand at the mean.",
)
@click.option("--solver", default="auto", show_default=True, help="auto, covariance, gram, krylov or power.")
@click.option("--tol", type=float, default=1e-3, show_default=True, help="Largest certificate allowed.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random start.")
@source_options
@run_options
def pca(
    source: str, n_components: int | float | str | None, out: Path | None, overwrite: bool, scale: str, missing: str,
    solver: str, tol: float, seed: int, variable: str | None, sample_dims: str | None, memory: str | None,
    threads: int | None, plan: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Principal components of SOURCE: a .npy or .nc file, a Zarr store or its URL."""
    import dask

    from streampca.models.components import Request
    from streampca.results import check_output, pca_to_store
    from streampca.sources import open_source

    data = open_source(source, variable=variable, sample_dims=sample_dims.split(",") if sample_dims else None)
    count: Any = min(10, *data.shape) if n_components is None else None if n_components == "all" else n_components
    parameters = {
        "n_components": count, "scale": None if scale == "none" else scale, "missing": missing, "solver": solver,
        "tol": tol, "memory": memory, "seed": seed,
    }  # fmt: skip
    target = out or Path(f"{Path(source).stem}.pca.zarr")
    with dask.config.set(num_workers=threads), _progress(quiet or plan) as progress:
        request = Request(**parameters, progress=progress)
        if plan:
            _print_plan(request.plan(data, extra_sweeps=1), as_json)
            return
        check_output(target, overwrite)
        found, attributes = pca_to_store(data, request, target, overwrite, parameters)
    _print_result({name: getattr(found, name) for name in COLUMNS}, attributes, target, as_json)


@cli.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@source_options
def info(path: str, as_json: bool, variable: str | None, sample_dims: str | None) -> None:
    """Say what PATH is: a result, or data and how they are laid out."""
    from streampca.budget import show_bytes
    from streampca.results import kind_of
    from streampca.sources import open_source

    if kind_of(Path(path)) == "pca":
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
@click.argument("story", type=click.Choice(["groups", "digits"]), default="groups")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True, help="Folder to write to."
)
@click.option("--memory", default="400MB", show_default=True, help="Limit that the run must keep to.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def demo(story: str, out: Path, memory: str, quiet: bool) -> None:
    """Simulate data larger than the memory limit, find its components, draw them; or the same of handwritten digits."""
    from streampca.demo import demo_digits, demo_groups

    out.mkdir(parents=True, exist_ok=True)
    if story == "digits":
        picture = demo_digits(out, click.echo)
    else:
        with _progress(quiet) as progress:
            picture = demo_groups(out, memory, progress, click.echo)
        _print_stored(out / "groups.pca.zarr", as_json=False)
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


def _print_stored(path: Path, as_json: bool) -> None:
    from streampca.results import load

    result = load(path)
    _print_result({name: result[name].values for name in COLUMNS}, result.attrs, path, as_json)


def _print_result(columns: dict[str, Any], a: dict[str, Any], path: Path, as_json: bool) -> None:
    """Print the table of components with their certificates, and what the run took."""
    from streampca.budget import show_bytes

    if as_json:
        keys = ("kind", "source", "n_samples", "solver", "total_variance", "n_sweeps", "bytes_read", "seconds")
        facts = {key: a[key] for key in (*keys, "peak_memory_bytes", "advice")}
        table = {name: column.tolist() for name, column in columns.items()}
        click.echo(json.dumps({"result": str(path), **facts, "converged": bool(a["converged"]), **table}))
        return
    click.echo(" PC    eigenvalue    share  together  certificate")
    together = 0.0
    for i, (value, share, bound) in enumerate(zip(*columns.values(), strict=True), start=1):
        together += share
        click.echo(f"{i:3d}  {value:12.6g}  {share:7.2%}  {together:8.2%}  {bound:11.1e}")
    click.echo(
        f"{a['solver']}: {a['n_sweeps']} sweeps, {show_bytes(a['bytes_read'])} read, {a['seconds']:.1f} s, "
        f"peak memory {show_bytes(a['peak_memory_bytes'])}"
    )
    if a["advice"]:
        click.echo(f"note: {a['advice']}")
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
