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

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from streampca.errors import listed
from streampca.results.kind import Kind
from streampca.validation import Amount, Count, Lines, Names, Options, Positive, Shape, Share, Text, Time, plain_number

# Protocol, host (a name, IPv4, or IPv6 in brackets) and port of a scheduler.
ADDRESS = r"^(?:tcp|tls|ws|wss|ucx)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"
# Keys from the top, as ("model", "tol").
Keys = tuple[str, ...]


def conflict(path: str, message: str) -> PydanticCustomError:
    """Return the error of keys that are valid alone but not combined; `path` is the key to change."""
    return PydanticCustomError("conflict", "{message}", {"message": message, "path": path})


class Data(Options):
    """The data."""

    path: Text = Field(description="File, store or URL of the data.", examples=["data.zarr"])
    variable: Text | None = Field(default=None, description="Array of a group, Dataset or NetCDF file.")
    sample_dims: Names | None = Field(default=None, description="Dimensions of the samples, as a,b; default: first.")
    missing_chunks: Literal["error", "fill"] = Field(
        default="error", description="Missing chunks of a Zarr store; fill: use the fill value."
    )
    shape: Shape | None = Field(default=None, description="[samples, features] of data that do not exist yet (--plan).")


class Filter(Options):
    """Samples and variants of genotypes that are used."""

    maf: Annotated[float, Field(ge=0, le=0.5), BeforeValidator(plain_number)] | None = Field(
        default=None, description="Minimum minor allele frequency."
    )
    geno: Share | None = Field(default=None, description="Maximum missing call rate of a variant.")
    mind: Share | None = Field(default=None, description="Maximum missing call rate of a sample.")
    keep: Text | None = Field(default=None, description="File of samples to keep: FID and IID, or IID, per line.")
    remove: Text | None = Field(default=None, description="File of samples to remove.")
    extract: Text | None = Field(default=None, description="File of variants to keep: one id per line.")
    exclude: Text | None = Field(default=None, description="File of variants to remove.")
    exclude_regions: Text | None = Field(
        default=None, description="Exclude regions of long-range LD: GRCh37, GRCh38, or a file of regions."
    )
    all_chromosomes: bool = Field(default=False, description="Use all chromosomes, not only autosomes.")
    ld_prune: Share | None = Field(
        default=None, description="Prune variants to this r2 first, in windows of 50 variants, step 5."
    )
    outliers: Literal["report", "remove"] | None = Field(
        default=None, description="Detect outlier samples; remove: fit again without them."
    )
    outlier_rounds: Count = Field(default=5, description="Maximum number of fits without outliers.")

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {name: value for name, value in self if value != type(self).model_fields[name].default}


class _Engine(Options):
    """Options of all engines."""

    memory_limit: Amount | None = Field(
        default=None, description="Memory limit of each process, as 2GB; default: half of the available memory."
    )
    threads: Count | None = Field(default=None, description="Tasks at a time in each process; default: all cores.")
    checkpoint_minutes: Positive = Field(default=2.0, description="Minutes between checkpoints.")


class Threads(_Engine):
    """Threads of this process."""

    kind: Literal["threads"] = Field(default="threads", description="Where the work is done.")


class Processes(_Engine):
    """Processes of this machine."""

    kind: Literal["processes"] = Field(description="Where the work is done.")
    workers: Count | None = Field(default=None, description="Number of processes; default: one per core.")
    dashboard: bool = Field(default=False, description="Serve Dask's dashboard on 127.0.0.1.")


class Address(_Engine):
    """A running Dask cluster."""

    kind: Literal["address"] = Field(description="Where the work is done.")
    address: Annotated[str, Field(pattern=ADDRESS)] = Field(
        description="Address of the scheduler.", examples=["tcp://host:8786", "tls://host:8786"]
    )
    tls_ca_file: Text | None = Field(default=None, description="CA certificate, for tls:// addresses.")
    tls_cert_file: Text | None = Field(default=None, description="Certificate of this client.")
    tls_key_file: Text | None = Field(default=None, description="Key of this client.")

    @model_validator(mode="after")
    def _check_tls(self) -> Address:
        files = {name: getattr(self, name) for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")}
        absent = [name for name, file in files.items() if file is None]
        tls = self.address.startswith("tls://")
        if absent and (tls or len(absent) < 3):
            raise conflict(f"engine.{absent[0]}", f"engine.{absent[0]} is missing; TLS needs {listed(files, 'and')}")
        if not absent and not tls:
            raise conflict("engine.address", f"engine.address must be tls://host:8786 with TLS, got {self.address!r}")
        return self


class JobQueue(_Engine):
    """Jobs of a batch system."""

    kind: Literal["slurm", "pbs", "sge", "lsf"] = Field(description="Where the work is done.")
    workers: Count = Field(description="Maximum number of jobs at a time.", examples=[10])
    memory_limit: Amount = Field(
        description="Memory limit of each process, as 4GB; a job requests a little more.", examples=["4GB"]
    )
    threads: Count = Field(default=1, description="Tasks at a time in each job, and cores that it requests.")
    walltime: Time = Field(default="01:00:00", description="Time limit of a job, as HH:MM:SS or D-HH:MM:SS.")
    queue: Text | None = Field(default=None, description="Queue or partition; default: the site's.")
    account: Text | None = Field(default=None, description="Account or project to charge.")
    interface: Text | None = Field(default=None, description="Network interface of the nodes, as ib0.")
    local_directory: Text | None = Field(default=None, description="Directory on the nodes for temporary files.")
    log_directory: Text | None = Field(default=None, description="Directory for the output of jobs.")
    python: Text | None = Field(default=None, description="Python of the jobs; default: this one.")
    prologue: Lines = Field(default=(), description="Shell lines to run first, as [module load python].")
    directives: Lines = Field(default=(), description="Additional scheduler directives, as [--constraint=avx2].")
    tls: bool = Field(default=True, description="Encrypt connections, with keys made for this run.")
    dashboard: bool = Field(default=False, description="Serve Dask's dashboard on 127.0.0.1.")

    @model_validator(mode="after")
    def _check_days(self) -> JobQueue:
        if "-" in self.walltime and self.kind in ("pbs", "sge"):
            raise conflict(
                "engine.walltime",
                f"engine.walltime must be hours for {self.kind}, as 48:00:00, got {self.walltime!r}",
            )
        return self


class Output(Options):
    """What is written."""

    path: Text = Field(description="Store of the result, or its URL.", examples=["result.zarr"])
    overwrite: bool = Field(default=False, description="Replace a finished result.")
    export: Literal["plink", "tsv"] | None = Field(default=None, description="Also write text files, as `export` does.")
    report: Text | None = Field(default=None, description="Also write an HTML page, as `report` does.")
    labels: Text | None = Field(default=None, description="Sample table of the report: pops.tsv, or pops.tsv:pop.")
    work: Text | None = Field(
        default=None, description="Directory for unfinished work; required if the output is a URL."
    )

    @model_validator(mode="after")
    def _check_work(self) -> Output:
        if "://" in self.path and self.work is None:
            raise conflict("output.work", "output.work is missing; the output is a URL: add a local directory")
        if self.labels is not None and self.report is None:
            raise conflict("output.labels", "output.labels needs output.report; add it, or remove output.labels")
        return self


EngineOptions = Threads | Processes | Address | JobQueue
ENGINES: dict[str, type[EngineOptions]] = {
    kind: engine
    for engine in (Threads, Processes, Address, JobQueue)
    for kind in get_args(engine.model_fields["kind"].annotation)
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
            raise conflict(f"filter.{given}", f"filter.{given} is for genotypes; {name} reads arrays: remove it")
        if export and export not in self.kind.exports:
            hint = f"use {listed(self.kind.exports)}" if self.kind.exports else "remove it"
            raise conflict("output.export", f"output.export {export!r} is not available for {name}; {hint}")

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Return all blocks with all keys, as JSON and YAML hold them."""
        blocks = {name: getattr(self, name).model_dump(mode="json") for name in BLOCKS}
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
