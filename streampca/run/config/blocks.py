"""The blocks of a configuration: every key with its type, default and description, and what goes together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


def _number(value: Any) -> Any:
    """Turn text that is a number into it: 1e3 is a whole one, and where words are allowed too, numbers come first."""
    for kind in (int, float):
        try:
            return kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value


def _parts(value: Any) -> Any:
    """Take "a,b" for [a, b]."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _lines(value: Any) -> Any:
    """Take text for the list of its lines, without those that are blank."""
    return [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


AMOUNT = r"^(?:[1-9][0-9]*(?:\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)(?:[eE][+-]?[0-9]+)? ?(?:[kKmMgGtTpP][iI]?[bB]?|[bB])?$"
TIME = r"^(?:[0-9]+-)?[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]$"

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_number)]
Share = Annotated[float, Field(ge=0, le=1)]
Between = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Seed = Annotated[int, Field(ge=0), BeforeValidator(_number)]
Amount = Annotated[Count | Annotated[str, Field(pattern=AMOUNT, examples=["2GB"])], BeforeValidator(_number)]
Time = Annotated[str, Field(pattern=TIME, examples=["01:30:00", "2-00:00:00"])]
Names = Annotated[
    tuple[Text, ...], Field(min_length=1), BeforeValidator(_parts, json_schema_input_type=list[str] | str)
]
Lines = Annotated[tuple[Text, ...], BeforeValidator(_lines, json_schema_input_type=list[str] | str)]
Shape = Annotated[tuple[Count, Count], BeforeValidator(_parts)]
NumberOrAuto = Annotated[Count | Literal["auto"] | None, BeforeValidator(_number)]
Solver = Literal["auto", "covariance", "gram", "krylov", "power"]


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as a sentence has them: a, b or c."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def _wrong(path: str, message: str) -> PydanticCustomError:
    """Return the error of keys that are right by themselves and not together; `path` is the one to blame."""
    return PydanticCustomError("together", "{message}", {"message": message, "path": path})


class Block(BaseModel):
    """Keys that belong together; no others are allowed, and none changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(Block):
    """The data, and which of them are used."""

    path: Text = Field(description="File, store or URL of the data.", examples=["data.zarr"])
    variable: Text | None = Field(default=None, description="Which array of a group, Dataset or NetCDF file.")
    sample_dims: Names | None = Field(
        default=None, description="Dimensions that make up the samples, as a,b; else the first."
    )
    missing_chunks: Literal["error", "fill"] = Field(
        default="error",
        description="What becomes of chunks of a Zarr store that are not there; fill takes them for the fill value.",
    )
    scale: Literal["auto", "none", "unit", "patterson", "coslat"] = Field(
        default="auto", description="What features are divided by; auto is patterson for genotypes, else none."
    )
    missing: Literal["auto", "error", "mean", "model"] = Field(
        default="auto",
        description="What becomes of missing values; model is for ppca and factor_analysis, mean for the others.",
    )
    maf: Annotated[float, Field(ge=0, le=0.5)] | None = Field(
        default=None, description="Leave out variants whose rarer allele is rarer than this."
    )
    geno: Share | None = Field(default=None, description="Leave out variants with a larger share of missing calls.")
    mind: Share | None = Field(default=None, description="Leave out samples with a larger share of missing calls.")
    keep: Text | None = Field(
        default=None, description="File of the samples to use: FID and IID, or IID, in each line."
    )
    remove: Text | None = Field(default=None, description="File of samples not to use.")
    extract: Text | None = Field(default=None, description="File of the variants to use: one id in each line.")
    exclude: Text | None = Field(default=None, description="File of variants not to use.")
    exclude_regions: Text | None = Field(
        default=None, description="GRCh37 or GRCh38: leave out long-range linkage known there; or a file of regions."
    )
    all_chromosomes: bool = Field(default=False, description="Use all chromosomes, not the autosomes alone.")
    ld_prune: Share | None = Field(
        default=None, description="Prune variants first, to this r2, by windows of 50, steps of 5."
    )
    shape: Shape | None = Field(
        default=None, description="[samples, features], for --plan of data that are not there yet."
    )


GENOTYPE_KEYS = (
    "maf", "geno", "mind", "keep", "remove", "extract", "exclude", "exclude_regions", "all_chromosomes", "ld_prune",
)  # fmt: skip


class _Linear(Block):
    """What models of the covariance share."""

    solver: Solver = Field(default="auto", description="How eigenvalues are found.")
    seed: Seed = Field(default=0, description="Seed of the random start.")
    outliers: Literal["report", "remove"] | None = Field(
        default=None, description="Look for samples apart from all others, of genotypes."
    )
    outlier_rounds: Count = Field(default=5, description="Fits again without outliers.")


class PCAModel(_Linear):
    """Principal components."""

    kind: Literal["pca"] = Field(description="The model.")
    n_components: Annotated[Count | Between | Literal["all"] | None, BeforeValidator(_number)] = Field(
        default=None, description="How many: 20, 0.9 of the variance, or all; 10 unless given."
    )
    tol: Between = Field(default=1e-3, description="Largest certificate allowed.")
    certificate: bool | Literal["exact"] = Field(
        default=True,
        description="How rounding is measured; true: random probes, exact: in float64, false: not, for estimates.",
    )


class PPCAModel(_Linear):
    """Probabilistic PCA."""

    kind: Literal["ppca"] = Field(description="The model.")
    n_components: NumberOrAuto = Field(
        default=None, description="How many, or auto to choose it by criterion; 10 unless given."
    )
    method: Literal["auto", "closed", "em"] = Field(
        default="auto", description="closed is for complete data, em iterates; auto is em where values are missing."
    )
    criterion: Literal["auto", "evidence", "bic", "heldout"] = Field(
        default="auto", description="What n_components: auto chooses by; evidence and bic need complete data."
    )
    tol: Between = Field(default=1e-3, description="Sine of the angle that EM may still turn by at its end.")
    max_iter: Count | None = Field(default=None, description="Iterations of EM; 200 unless given.")


class FactorAnalysisModel(_Linear):
    """Factor analysis: probabilistic PCA with noise of its own for each feature."""

    kind: Literal["factor_analysis"] = Field(description="The model.")
    n_components: NumberOrAuto = Field(
        default=None, description="How many, or auto to choose it by criterion; 10 unless given."
    )
    method: Literal["auto", "em"] = Field(default="auto", description="There is no closed form: auto is em.")
    criterion: Literal["auto", "heldout"] = Field(default="auto", description="What n_components: auto chooses by.")
    tol: Between = Field(default=1e-3, description="Sine of the angle that EM may still turn by at its end.")
    max_iter: Count | None = Field(default=None, description="Iterations of EM; 1000 unless given.")


class KernelPCAModel(Block):
    """Kernel PCA, by landmarks."""

    kind: Literal["kpca"] = Field(description="The model.")
    n_components: Count | None = Field(default=None, description="How many; 10 unless given.")
    kernel: Literal["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"] = Field(
        default="rbf", description="The kernel k(x, y)."
    )
    gamma: Annotated[Positive | Literal["scale", "median", "features"], BeforeValidator(_number)] = Field(
        default="scale",
        description="A number; scale: 1 / (n_features variance); median: of distances; features: 1 / n_features.",
    )
    degree: Annotated[float, Field(gt=0, lt=100)] = Field(default=3.0, description="Of poly.")
    coef0: float = Field(default=1.0, description="Of poly and sigmoid.")
    n_landmarks: Annotated[Annotated[int, Field(ge=2)] | Literal["auto"], BeforeValidator(_number)] = Field(
        default=1000, description="How many landmarks; auto: as many as keep target of the kernel's trace."
    )
    landmarks: Literal["uniform", "kmeans", "leverage", "fourier"] = Field(
        default="uniform", description="How landmarks are chosen; fourier is random features instead."
    )
    target: Between = Field(default=0.95, description="Share of the trace, for n_landmarks: auto.")
    fit_inverse: bool = Field(default=False, description="Learn the way back from scores to samples.")
    alpha: Positive = Field(default=0.1, description="Penalty of fit_inverse.")
    seed: Seed = Field(default=0, description="Seed of the landmarks.")


Model = Annotated[
    PCAModel | PPCAModel | FactorAnalysisModel | KernelPCAModel,
    Field(discriminator="kind", description="What is fitted."),
]


class _Engine(Block):
    """What all engines share."""

    memory: Amount | None = Field(
        default=None, description="Limit of each process, as 2GB; half of what is free unless given."
    )
    threads: Count | None = Field(default=None, description="Tasks at a time in each process.")
    checkpoint_minutes: Positive = Field(default=2.0, description="Minutes between two records of unfinished work.")


class Threads(_Engine):
    """Threads of this process."""

    kind: Literal["threads"] = Field(default="threads", description="Where the work is done.")


class Processes(_Engine):
    """Processes of this machine."""

    kind: Literal["processes"] = Field(description="Where the work is done.")
    workers: Count | None = Field(default=None, description="Processes; as many as cores unless given.")
    dashboard: bool = Field(default=True, description="Serve the dashboard of Dask.")


class Address(_Engine):
    """A Dask cluster that runs already."""

    kind: Literal["address"] = Field(description="Where the work is done.")
    address: Annotated[str, Field(pattern="^[a-z]+://.+$")] = Field(
        description="Of its scheduler.", examples=["tcp://host:8786", "tls://host:8786"]
    )
    tls_ca_file: Text | None = Field(default=None, description="Certificate of the authority, for tls:// addresses.")
    tls_cert_file: Text | None = Field(default=None, description="Certificate of this client.")
    tls_key_file: Text | None = Field(default=None, description="Key of this client.")

    @model_validator(mode="after")
    def _check_tls(self) -> Address:
        files = {name: getattr(self, name) for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")}
        absent = [name for name, file in files.items() if file is None]
        tls = self.address.startswith("tls://")
        if absent and (tls or len(absent) < 3):
            raise _wrong(f"engine.{absent[0]}", f"engine.{absent[0]} is missing; TLS needs {listed(files, 'and')}")
        if not absent and not tls:
            address = self.address
            raise _wrong("engine.address", f"engine.address is {address!r}; with TLS give it as tls://host:8786")
        return self


class JobQueue(_Engine):
    """Jobs of a batch system."""

    kind: Literal["slurm", "pbs", "sge", "lsf"] = Field(description="Where the work is done.")
    workers: Count = Field(description="Most jobs at a time.", examples=[10])
    memory: Amount = Field(description="Limit of each process, as 4GB; a job asks for a little more.", examples=["4GB"])
    threads: Count = Field(default=1, description="Tasks at a time in each job, and cores that it asks for.")
    walltime: Time = Field(default="01:00:00", description="Longest time of a job, as HH:MM:SS or D-HH:MM:SS.")
    queue: Text | None = Field(default=None, description="Queue or partition; that of the site unless given.")
    account: Text | None = Field(default=None, description="Account or project to charge.")
    interface: Text | None = Field(default=None, description="Network interface of the nodes, as ib0.")
    local_directory: Text | None = Field(default=None, description="Folder on the nodes for files that do not last.")
    log_directory: Text | None = Field(default=None, description="Folder for what jobs print.")
    python: Text | None = Field(default=None, description="Python of the jobs; the one that runs this unless given.")
    prologue: Lines = Field(default=(), description="Shell lines before the work, as [module load python].")
    directives: Lines = Field(default=(), description="More lines for the scheduler, as [--constraint=avx2].")
    tls: bool = Field(default=False, description="Encrypt what driver and jobs say, by keys made for this run.")
    dashboard: bool = Field(default=True, description="Serve the dashboard of Dask.")

    @model_validator(mode="after")
    def _check_days(self) -> JobQueue:
        if "-" in self.walltime and self.kind in ("pbs", "sge"):
            given = f"engine.walltime is {self.walltime!r}"
            raise _wrong("engine.walltime", f"{given}; {self.kind} knows no days, give hours, as 48:00:00")
        return self


def _kind_given(engine: Any) -> Any:
    """Let an engine without kind be threads."""
    return {"kind": "threads"} | engine if isinstance(engine, dict) else engine


Engine = Annotated[
    Threads | Processes | Address | JobQueue,
    Field(discriminator="kind", description="What does the work; it may change when a run is taken up again."),
    BeforeValidator(_kind_given),
]


class Output(Block):
    """What is written."""

    path: Text = Field(description="Store of the result, or its URL.", examples=["result.zarr"])
    overwrite: bool = Field(default=False, description="Replace a result that exists.")
    export: Literal["plink", "tsv"] | None = Field(
        default=None, description="Write text files beside, as `export` does."
    )
    report: Text | None = Field(default=None, description="Write a page to look through, as `report` does.")
    labels: Text | None = Field(
        default=None, description="Table about the samples, for the report: pops.tsv, or pops.tsv:pop."
    )
    work: Text | None = Field(
        default=None,
        description="Folder for unfinished work; beside the output unless given; needed where the output is a URL.",
    )

    @model_validator(mode="after")
    def _check_work(self) -> Output:
        if "://" in self.path and self.work is None:
            raise _wrong("output.work", "output.work is missing; give a local folder, as the output is a URL")
        if self.labels is not None and self.report is None:
            raise _wrong("output.labels", "output.labels is for a report; give output.report, or leave it out")
        return self


class Config(Block):
    """A run of streampca: what is read, fitted, by what, and where the result goes."""

    source: Source = Field(description="The data, and which of them are used.")
    model: Model
    engine: Engine = Threads()
    output: Output = Field(description="What is written.")

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        """Refuse what the model cannot do."""
        source, kind = self.source, self.model.kind
        for key, allowed in _ALLOWED[kind].items():
            value = getattr(source, key)
            if value not in allowed:
                raise _wrong(f"source.{key}", f"source.{key} is {value!r}; for {kind} give {listed(allowed)}")
        chosen = [
            key for key in GENOTYPE_KEYS if getattr(source, key) is not None and getattr(source, key) is not False
        ]
        if kind == "kpca" and chosen:
            raise _wrong(
                f"source.{chosen[0]}", f"source.{chosen[0]} is for genotypes, which kpca does not take; leave it out"
            )
        export = self.output.export
        if export and (kind == "kpca" or (kind == "factor_analysis" and export == "plink")):
            cure = "leave it out" if kind == "kpca" else "use tsv"
            raise _wrong("output.export", f"output.export is {export!r}, which is not for {kind}; {cure}")
        return self


_ALLOWED: dict[str, dict[str, tuple[str, ...]]] = {
    "pca": {"missing": ("auto", "error", "mean")},
    "ppca": {"missing": ("auto", "error", "model"), "scale": ("auto", "none", "unit", "patterson")},
    "factor_analysis": {"missing": ("auto", "error", "model"), "scale": ("auto", "none", "unit", "patterson")},
    "kpca": {"missing": ("auto", "error", "mean"), "scale": ("auto", "none", "unit")},
}


def _kinds(*models: type[Block]) -> dict[str, type[Block]]:
    return {kind: model for model in models for kind in get_args(model.model_fields["kind"].annotation)}


MODELS = _kinds(PCAModel, PPCAModel, FactorAnalysisModel, KernelPCAModel)
ENGINES = _kinds(Threads, Processes, Address, JobQueue)
# Each block by its kinds; "" where it has none.
BLOCKS: dict[str, dict[str, type[Block]]] = {
    "source": {"": Source}, "model": MODELS, "engine": ENGINES, "output": {"": Output},
}  # fmt: skip

# Keys from the top, as ("model", "tol").
Keys = tuple[str, ...]
