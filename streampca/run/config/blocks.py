"""The blocks of a configuration, and the record that commands and YAML files are read into.

data     what is read                      one record
filter   which genotypes are used          one record
model    kind and options of the model     the options record of the kind
engine   where the work is done            one record per kind of engine
output   what is written                   one record
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from streampca.errors import InputError, listed
from streampca.results.kind import Kind, kinds_with
from streampca.validation import (
    Amount,
    Convert,
    Count,
    Limits,
    Lines,
    Names,
    Options,
    Positive,
    Shape,
    Share,
    Text,
    Time,
    option,
    plain_number,
)

# Protocol, host (a name, IPv4, or IPv6 in brackets) and port of a scheduler.
ADDRESS = r"^(?:tcp|tls|ws|wss|ucx)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"
# Name of a report.
Page = Annotated[str, Limits(pattern=r".*\.[hH][tT][mM][lL]?", examples=("study.html",))]
# Keys from the top, as ("model", "tol").
Keys = tuple[str, ...]


class ConflictError(InputError):
    """Keys that are valid alone but not combined; `path` is the key to change."""

    def __init__(self, path: str, message: str):
        super().__init__(message)
        self.path: Keys = tuple(path.split("."))


class Data(Options):
    """The data."""

    path: Text = option(description="File, store or URL of the data.", examples=("data.zarr",))
    variable: Text | None = option(default=None, description="Array of a group, Dataset or NetCDF file.")
    sample_dims: Names | None = option(default=None, description="Dimensions of the samples, as a,b; default: first.")
    missing_chunks: Literal["error", "fill"] = option(
        default="error", description="Missing chunks of a Zarr store; fill: use the fill value."
    )
    external_files: Literal["error", "read"] = option(
        default="error", description="Links out of a store or HDF5 file; read: follow them, if you trust the data."
    )
    shape: Shape | None = option(
        default=None, description="[samples, features] of data that do not exist yet (--plan)."
    )

    @property
    def reading(self) -> dict[str, Any]:
        """The options of `open_source` and `open_genotypes`."""
        return {name: getattr(self, name) for name in ("variable", "missing_chunks", "external_files")}


class Filter(Options):
    """Samples and variants of genotypes that are used."""

    maf: Annotated[float, Limits(ge=0, le=0.5), Convert(plain_number)] | None = option(
        default=None, description="Minimum minor allele frequency."
    )
    geno: Share | None = option(default=None, description="Maximum missing call rate of a variant.")
    mind: Share | None = option(default=None, description="Maximum missing call rate of a sample.")
    keep: Text | None = option(default=None, description="File of samples to keep: FID and IID, or IID, per line.")
    remove: Text | None = option(default=None, description="File of samples to remove.")
    extract: Text | None = option(default=None, description="File of variants to keep: one id per line.")
    exclude: Text | None = option(default=None, description="File of variants to remove.")
    exclude_regions: Text | None = option(
        default=None, description="Exclude regions of long-range LD: GRCh37, GRCh38, or a file of regions."
    )
    chr: Text | None = option(default=None, description="Chromosomes to use, as 1-4,22,X; default: autosomes.")
    thin: Annotated[float, Limits(gt=0, le=1), Convert(plain_number)] | None = option(
        default=None, description="Share of the variants to keep, chosen at random."
    )
    thin_count: Count | None = option(default=None, description="Number of variants to keep, chosen at random.")
    rm_dup: Literal["error", "force-first", "exclude-all"] = option(
        default="error",
        description="Variants with the id and alleles of another; force-first: keep the first; exclude-all: keep none.",
    )
    all_chromosomes: bool = option(default=False, description="Use all chromosomes, not only autosomes.")
    ld_prune: Share | None = option(
        default=None, description="Prune variants to this r2 first, in windows of 50 variants, step 5."
    )
    unrelated: Annotated[float, Limits(ge=0, le=0.5), Convert(plain_number)] | None = option(
        default=None, description="Fit to samples with a kinship below this, as 0.0884, and project the others."
    )
    outliers: Literal["report", "remove"] | None = option(
        default=None, description="Detect outlier samples; remove: fit again without them."
    )
    outlier_rounds: Count = option(default=5, description="Maximum number of fits without outliers.")

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {name: value for name, value in self if value != type(self).fields[name].default}


class _Engine(Options):
    """Options of all engines."""

    memory_limit: Amount | None = option(
        default=None, description="Memory limit of each process, as 2GB; default: half of the available memory."
    )
    threads: Count | None = option(default=None, description="Tasks at a time in each process; default: all cores.")
    checkpoint_minutes: Positive = option(default=2.0, description="Minutes between checkpoints.")


class Threads(_Engine):
    """Threads of this process."""

    kind: Literal["threads"] = option(default="threads", description="Where the work is done.")


class Processes(_Engine):
    """Processes of this machine."""

    kind: Literal["processes"] = option(description="Where the work is done.")
    workers: Count | None = option(default=None, description="Number of processes; default: one per core.")
    dashboard: bool = option(default=False, description="Serve Dask's dashboard on 127.0.0.1.")


class Address(_Engine):
    """A running Dask cluster."""

    kind: Literal["address"] = option(description="Where the work is done.")
    address: Annotated[str, Limits(pattern=ADDRESS)] = option(
        description="Address of the scheduler.", examples=("tcp://host:8786", "tls://host:8786")
    )
    tls_ca_file: Text | None = option(default=None, description="CA certificate, for tls:// addresses.")
    tls_cert_file: Text | None = option(default=None, description="Certificate of this client.")
    tls_key_file: Text | None = option(default=None, description="Key of this client.")

    def check(self) -> None:
        """Raise if files of TLS are missing, or the address is not one of TLS."""
        files = {name: getattr(self, name) for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")}
        absent = [name for name, file in files.items() if file is None]
        tls = self.address.startswith("tls://")
        if absent and (tls or len(absent) < 3):
            raise ConflictError(
                f"engine.{absent[0]}", f"engine.{absent[0]} is missing; TLS needs {listed(files, 'and')}"
            )
        if not absent and not tls:
            raise ConflictError(
                "engine.address", f"engine.address must be tls://host:8786 with TLS, got {self.address!r}"
            )


class JobQueue(_Engine):
    """Jobs of a batch system."""

    kind: Literal["slurm", "pbs", "sge", "lsf"] = option(description="Where the work is done.")
    workers: Count = option(description="Maximum number of jobs at a time.", examples=(10,))
    memory_limit: Amount = option(
        description="Memory limit of each process, as 4GB; a job requests a little more.", examples=("4GB",)
    )
    threads: Count = option(default=1, description="Tasks at a time in each job, and cores that it requests.")
    walltime: Time = option(default="01:00:00", description="Time limit of a job, as HH:MM:SS or D-HH:MM:SS.")
    queue: Text | None = option(default=None, description="Queue or partition; default: the site's.")
    account: Text | None = option(default=None, description="Account or project to charge.")
    interface: Text | None = option(default=None, description="Network interface of the nodes, as ib0.")
    local_directory: Text | None = option(default=None, description="Directory on the nodes for temporary files.")
    log_directory: Text | None = option(default=None, description="Directory for the output of jobs.")
    python: Text | None = option(default=None, description="Python of the jobs; default: this one.")
    prologue: Lines = option(default=(), description="Shell lines to run first, as [module load python].")
    directives: Lines = option(default=(), description="Additional scheduler directives, as [--constraint=avx2].")
    tls: bool = option(default=True, description="Encrypt connections, with keys made for this run.")
    dashboard: bool = option(default=False, description="Serve Dask's dashboard on 127.0.0.1.")

    def check(self) -> None:
        """Raise if the time limit has days, and the batch system takes hours only."""
        if "-" in self.walltime and self.kind in ("pbs", "sge"):
            raise ConflictError(
                "engine.walltime",
                f"engine.walltime must be hours for {self.kind}, as 48:00:00, got {self.walltime!r}",
            )


class Output(Options):
    """What is written."""

    path: Text = option(description="Store of the result, or its URL.", examples=("result.zarr",))
    overwrite: bool = option(default=False, description="Replace a finished result.")
    export: Literal["plink", "smartpca", "tsv"] | None = option(
        default=None, description="Also write text files, as `export` does."
    )
    report: Page | None = option(default=None, description="Also write an HTML page, as `report` does.")
    labels: Text | None = option(default=None, description="Sample table of the report: pops.tsv, or pops.tsv:pop.")
    work: Text | None = option(
        default=None, description="Directory for unfinished work; required if the output is a URL."
    )

    def check(self) -> None:
        """Raise if an option needs another one."""
        if "://" in self.path and self.work is None:
            raise ConflictError("output.work", "output.work is missing; the output is a URL: add a local directory")
        if self.labels is not None and self.report is None:
            raise ConflictError("output.labels", "output.labels needs output.report; add it, or remove output.labels")


EngineOptions = Threads | Processes | Address | JobQueue
ENGINES: dict[str, type[EngineOptions]] = {
    kind: engine
    for engine in (Threads, Processes, Address, JobQueue)
    for kind in get_args(engine.fields["kind"].annotation)
}
# The order in which a file lists them.
BLOCKS = ("data", "filter", "model", "engine", "output")


@dataclass(frozen=True)
class Config:
    """One fit: what is read, fitted, where the work is done, what is written."""

    data: Data
    kind: Kind
    model: Options
    output: Output
    filter: Filter = Filter()
    engine: EngineOptions = Threads()

    def __post_init__(self) -> None:
        name, export = self.kind.name, self.output.export
        given = next(iter(self.filter.given), None)
        if given and not self.kind.genotypes:
            raise ConflictError(f"filter.{given}", f"filter.{given} is for genotypes; {name} reads arrays: remove it")
        if self.filter.outliers and not self.kind.outliers:
            hint = f"use {listed(kinds_with('outliers'))}, or remove it"
            raise ConflictError("filter.outliers", f"filter.outliers is not available for {name}; {hint}")
        if self.filter.unrelated is not None and not self.kind.relatives:
            hint = f"use {listed(kinds_with('relatives'))}, or remove it"
            raise ConflictError("filter.unrelated", f"filter.unrelated is not available for {name}; {hint}")
        if export and export not in self.kind.exports:
            hint = f"use {listed(self.kind.exports)}" if self.kind.exports else "remove it"
            raise ConflictError("output.export", f"output.export {export!r} is not available for {name}; {hint}")

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return all blocks with all keys, as JSON and YAML hold them."""
        blocks = {name: getattr(self, name).as_dict() for name in BLOCKS}
        return blocks | {"model": {"kind": self.kind.name, **blocks["model"]}}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the changes of a configuration that prevent resuming: all but those of engine and overwrite.

    Parameters
    ----------
    old, new : as `Config.as_dict` returns them.
    """
    before, after = _flat(old), _flat(new)
    kinds = {path[0] for path in before | after if path[1:] == ("kind",) and before.get(path) != after.get(path)}
    return [
        f"{'.'.join(path)} was {_shown(path, before)}, is {_shown(path, after)}"
        for path in before | after
        if (path not in before or path not in after or before[path] != after[path])
        # Another kind has other keys; the kind itself is listed.
        and (path[0] not in kinds or path[1:] == ("kind",))
    ]


def _shown(path: Keys, values: Mapping[Keys, Any]) -> str:
    """Return the value of a key as YAML writes it."""
    if path not in values:
        return "missing"
    return values[path] if isinstance(values[path], str) else json.dumps(values[path])


def _flat(config: Mapping[str, Any]) -> dict[Keys, Any]:
    """Return all keys except those that may change when a run resumes."""
    values = {(block, key): value for block, keys in config.items() for key, value in keys.items()}
    free = {path for path in values if path[0] == "engine" and path[1] != "memory_limit"} | {("output", "overwrite")}
    return {path: value for path, value in values.items() if path not in free}
