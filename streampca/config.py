"""The configuration of `streampca run`: one YAML file, checked as a whole before anything is read.

Scalars of the file are kept as they are written, and the type of their key says what they are: 1e-3 is a number,
01:00:00 a time and 2024 a folder, whatever YAML 1.1 takes them for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from streampca.errors import InputError

# ---------------------------------------------------------------- types of values


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


def _wrong(path: str, message: str) -> PydanticCustomError:
    """Return the error of keys that are right by themselves and not together; `path` is the one to blame."""
    return PydanticCustomError("together", "{message}", {"message": message, "path": path})


class Block(BaseModel):
    """Keys that belong together; no others are allowed, and none changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# ---------------------------------------------------------------- source


class Source(Block):
    """The data, and which of them are used."""

    path: Text = Field(description="File, store or URL of the data.", examples=["data.zarr"])
    variable: Text | None = Field(default=None, description="Which array of a group, Dataset or NetCDF file.")
    sample_dims: Names | None = Field(
        default=None, description="Dimensions that make up the samples, as a,b; else the first."
    )
    scale: Literal["auto", "none", "unit", "patterson"] = Field(
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


# ---------------------------------------------------------------- model


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


# ---------------------------------------------------------------- engine


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


# ---------------------------------------------------------------- output, and the whole


class Output(Block):
    """What is written."""

    path: Text = Field(description="Store of the result, or its URL.", examples=["result.zarr"])
    overwrite: bool = Field(default=False, description="Replace a result that exists.")
    export: Literal["plink", "tsv"] | None = Field(
        default=None, description="Write text files beside, as `export` does."
    )
    work: Text | None = Field(
        default=None,
        description="Folder for unfinished work; beside the output unless given; needed where the output is a URL.",
    )

    @model_validator(mode="after")
    def _check_work(self) -> Output:
        if "://" in self.path and self.work is None:
            raise _wrong("output.work", "output.work is missing; give a local folder, as the output is a URL")
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
    "ppca": {"missing": ("auto", "error", "model")},
    "factor_analysis": {"missing": ("auto", "error", "model")},
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


# ---------------------------------------------------------------- reading

# Keys from the top, as ("model", "tol").
Keys = tuple[str, ...]


def load(path: str | Path, settings: Sequence[str] = ()) -> Config:
    """Read and check a configuration.

    Parameters
    ----------
    path : of the YAML file.
    settings : "key=value" each, with dots in the key (model.tol=1e-6) and YAML as value, instead of what the file says.
    """
    name = str(path)
    root = _compose(_read(Path(path)), name)
    if root is None:
        raise InputError(f"{name}:1: is empty; `streampca config new pca` prints a file to begin with")
    places: dict[Keys, str] = {(): f"{name}:{root.start_mark.line + 1}"}
    tree = _values(root, (), places, lambda node: f"{name}:{node.start_mark.line + 1}")
    if not isinstance(tree, dict):
        raise InputError(f"{places[()]}: holds {_shown(tree)}; give the blocks {listed(BLOCKS, 'and')}")
    for setting in settings:
        _set(tree, places, setting)
    # A block with nothing in it is there, and empty.
    tree = {key: {} if value is None and key in BLOCKS else value for key, value in tree.items()}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(_report(error, tree, places)) from None


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        there = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        nearest = get_close_matches(str(path), there, 1)
        cure = f"{nearest[0]} is the nearest" if nearest else "`streampca config new pca` prints one to begin with"
        raise InputError(f"{path}: there is no such file; {cure}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give a YAML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its rights") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


CURES = {
    "'\\t'": "indent by spaces, not by tabs",
    "than one document": "keep one document, without ---",
    "mapping values": "check the indentation, and put text with a colon and a space in quotes",
    "alias": "put text that begins with * in quotes",
    "": "check the indentation, brackets and quotes there and in the line before",
}  # fmt: skip


def _compose(text: str, name: str, in_file: bool = True) -> Any:
    """Return the node that YAML is, None if there is nothing."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        line = mark.line + 1
        problem = problem.replace("but found another", "more than one")
        cure = next(cure for sign, cure in CURES.items() if sign in f"{problem} {error.context}")
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position) + 1, f"character {error.character:#x} is not allowed"
        cure = "take it out"
    except RecursionError:
        line, problem, cure = 1, "brackets in brackets, too deep", "take them out"
    place = f"{name}:{line}" if in_file else name
    raise InputError(f"{place}: cannot be read ({problem}); {cure if in_file else 'put the value in quotes'}")


def _values(
    node: Any, path: Keys, places: dict[Keys, str], place: Callable[[Any], str], above: tuple[Any, ...] = ()
) -> Any:
    """Return what a node holds, scalars as text or None, and note where each key is.

    Parameters
    ----------
    place : says where a node is.
    above : nodes that this one is in.
    """
    if node in above:
        raise InputError(f"{places[path]}: {'.'.join(path)} refers to itself; write it out")
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise InputError(f"{place(node)}: the tag {node.tag} is not known; write the value without it")
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        return [_values(child, path, places, place, above) for child in node.value]
    found: dict[str, Any] = {}
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{place(key)}: a key is a list or a block; give a word, and put braces in quotes")
        here = (*path, key.value)
        if key.value in found:
            raise InputError(f"{place(key)}: {'.'.join(here)} is given twice, first at {places[here]}; leave one out")
        places[here] = place(key)
        found[key.value] = _values(child, here, places, place, above)
    return found


def _set(tree: dict[str, Any], places: dict[Keys, str], setting: str) -> None:
    """Put a value of the command line in its place of the tree."""
    place = f"--set {' '.join(setting.split())}"
    key, separator, text = setting.partition("=")
    path = tuple(key.strip().split("."))
    if not separator or not all(path):
        raise InputError(f"{place}: is no key and value; give both, as --set model.tol=1e-6")
    node = _compose(text, place, in_file=False)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        # "a: b" is text here.
        node = yaml.ScalarNode("tag:yaml.org,2002:str", text.strip())
    block = tree
    for depth, part in enumerate(path[:-1], 1):
        if block.get(part) is None:
            block[part] = {}
            places[path[:depth]] = place
        block = block[part]
        if not isinstance(block, dict):
            raise InputError(
                f"{place}: {'.'.join(path[:depth])} is {_shown(block)}, which has no keys; set it as a whole"
            )
    for stale in [known for known in places if known[: len(path)] == path]:
        del places[stale]
    places[path] = place
    block[path[-1]] = None if node is None else _values(node, path, places, lambda _: place)


# ---------------------------------------------------------------- what is wrong


def _report(error: ValidationError, tree: dict[str, Any], places: dict[Keys, str]) -> str:
    """Return the first of the problems in one line, with its place, and how many more there are.

    A key that is not known comes first: it may be why another is missing.
    """
    details: dict[Keys, list[Any]] = {}
    for detail in error.errors(include_url=False):
        details.setdefault(_keys_of(detail), []).append(detail)
    unknown = [path for path, found in details.items() if found[0]["type"] == "extra_forbidden"]
    meant = {(*path[:-1], _nearest(path[-1], _known(path, tree))) for path in unknown}
    explained = [path for path, found in details.items() if path in meant and found[0]["type"] == "missing"]
    others = [path for path in details if path not in unknown and path not in explained]
    path = (unknown + others)[0]
    more = [".".join(other) for other in (unknown + others)[1:]]
    end = f" (and {len(more)} more: {', '.join(more[:4])}{', ...' * (len(more) > 4)})" if more else ""
    place = next(places[path[:depth]] for depth in range(len(path), -1, -1) if path[:depth] in places)
    return " ".join(f"{place}: {_explain(path, details[path][0], tree)}{end}".splitlines())


def _keys_of(detail: Any) -> Keys:
    """Return the key that an error of pydantic is about: its location without kinds, types and indices."""
    if detail["type"] == "together":
        return tuple(detail["ctx"]["path"].split("."))
    block, *rest = detail["loc"]
    if detail["type"].startswith("union_tag"):
        return block, "kind"
    return (block, *rest[block in ("model", "engine") :][:1])


def _explain(path: Keys, detail: Any, tree: dict[str, Any]) -> str:
    """Say what was given, what is allowed and what to do."""
    name, block = ".".join(path), path[0]
    if detail["type"] == "together":
        return str(detail["ctx"]["message"])
    if detail["type"] == "extra_forbidden":
        return _explain_unknown(path, tree)
    if len(path) == 1:
        needed = [key for key, field in _model(block, tree).model_fields.items() if field.is_required()] or ["kind"]
        if block not in tree:
            return f"{name} is missing; add a block of that name with {listed(needed, 'and')}"
        example = tree[block] if tree[block] in list(BLOCKS[block]) else "..."
        return f"{name} is {_shown(tree[block])}; give a block of keys, as {name}: {{{needed[0]}: {example}}}"
    fragment = _model(block, tree).model_json_schema()["properties"][path[1]]
    allowed = list(BLOCKS[block]) if path[1] == "kind" else _allowed(fragment)
    if path[1] not in tree[block]:
        about = f"give {listed(allowed)}" if path[1] == "kind" else f"add it: {fragment['description']}"
        return f"{name} is missing; {about}"
    given = tree[block][path[1]]
    nearest = _nearest(given, allowed) if isinstance(given, str) else None
    return f"{name} is {_shown(given)}; give {listed(allowed)}{f' ({nearest} is the nearest)' if nearest else ''}"


def _explain_unknown(path: Keys, tree: dict[str, Any]) -> str:
    """Say where a key belongs, or the nearest to it: of this kind of block, of the block, of any."""
    name, key = f"{'.'.join(path)} is {'not known' if len(path) > 1 else 'no block'}", path[-1]
    every = {block: {key for model in kinds.values() for key in model.model_fields} for block, kinds in BLOCKS.items()}
    if any(key in keys for keys in every.values()):
        return f"{name}; {key} {_home(key, path, tree)}"
    known = _known(path, tree)
    if nearest := _nearest(key, known):
        return f"{name}; {nearest} is the nearest"
    if nearest := _nearest(key, every.get(path[0], ())) or _nearest(key, set().union(*every.values())):
        return f"{name}; the nearest, {nearest}, {_home(nearest, path, tree)}"
    return f"{name}; give {listed(known)}"


def _home(key: str, path: Keys, tree: dict[str, Any]) -> str:
    """Say where a key belongs that is known elsewhere."""
    homes = {
        block: [kind for kind, model in kinds.items() if key in model.model_fields] for block, kinds in BLOCKS.items()
    }
    if len(path) > 1 and homes[path[0]]:
        return f"is for kind {listed(homes[path[0]])}, and {path[0]}.kind is {tree[path[0]].get('kind', 'threads')}"
    return f"belongs in {listed(block for block, kinds in homes.items() if kinds)}"


def _model(block: str, tree: dict[str, Any]) -> type[Block]:
    """Return the model of a block, by its kind; the first where that is not known."""
    kinds, given = BLOCKS[block], tree.get(block)
    kind = given.get("kind") if isinstance(given, dict) else None
    return kinds.get(str(kind), next(iter(kinds.values())))


def _known(path: Keys, tree: dict[str, Any]) -> list[str]:
    """Return the keys that there are where a path ends."""
    return list(BLOCKS) if len(path) == 1 else list(_model(path[0], tree).model_fields)


def _nearest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(word.lower().replace("-", "_"), words, 1)), None)


def _allowed(fragment: dict[str, Any]) -> list[str]:
    """Return in words what a fragment of JSON schema allows."""
    if "anyOf" in fragment:
        return [words for part in fragment["anyOf"] for words in _allowed(part)]
    if "enum" in fragment or "const" in fragment:
        return [str(choice) for choice in fragment.get("enum", [fragment.get("const")])]
    kind = fragment["type"]
    if kind == "integer":
        return [f"a whole number from {fragment['minimum']} on"]
    if kind == "number":
        ends = [fragment.get(end) for end in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
        if ends[3] is not None:
            return [f"a number between {ends[2]:g} and {ends[3]:g}"]
        if ends[1] is not None:
            return [f"a number from {ends[0]:g} to {ends[1]:g}"]
        return ["a number" if ends[2] is None else f"a number above {ends[2]:g}"]
    if kind == "array":
        return ["two whole numbers, as [1000, 50000]" if "prefixItems" in fragment else "a list, as [a, b]"]
    if kind == "string":
        return [f"text such as {listed(fragment['examples'])}" if "examples" in fragment else "text"]
    return {"boolean": ["true", "false"], "null": ["null"]}[kind]


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as a sentence has them: a, b or c."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def _shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]" if all(isinstance(item, str) for item in value[:9]) else "a list"
    return "null" if value is None else repr(value if len(value) <= 60 else f"{value[:57]}...")


# ---------------------------------------------------------------- schema, starters, differences


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a configuration, for editors that check as one types."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema()


def starter(kind: str, engine: str = "threads") -> str:
    """Return a YAML file to begin with, made of the models: what is needed is filled in, the rest are comments.

    Parameters
    ----------
    kind : of the model.
    engine : kind of the engine.
    """
    for given, kinds in ((kind, MODELS), (engine, ENGINES)):
        if given not in kinds:
            raise InputError(f"{given!r} is not known; give {listed(kinds)}")
    lines = [
        f"# {_first_line(MODELS[kind])} Run it by: streampca run FILE",
        "# Change what is filled in; take the # off a line to change what it says.",
    ]
    for block, kinds in BLOCKS.items():
        chosen = {"model": kind, "engine": engine}.get(block, "")
        about = f"; kinds: {listed(kinds)}" if chosen else ""
        lines += ["", f"{block}:  # {_first_line(kinds[chosen])[:-1]}{about}"]
        left_out = GENOTYPE_KEYS if (block, kind) == ("source", "kpca") else ()
        lines += _starter_lines(kinds[chosen], chosen, left_out)
    return "\n".join(lines) + "\n"


def _first_line(model: type[Block]) -> str:
    return str(model.__doc__).splitlines()[0]


def _starter_lines(model: type[Block], kind: str, left_out: Sequence[str]) -> list[str]:
    """Return the keys of a block and what each is for: kind, what is needed, its own, what it shares with others."""
    shared = {key for base in model.__bases__ if issubclass(base, Block) for key in base.model_fields}
    entries = []
    for key, fragment in model.model_json_schema()["properties"].items():
        field = model.model_fields[key]
        needed = key == "kind" or field.is_required()
        value = kind if key == "kind" else field.examples[0] if needed and field.examples else field.get_default()
        text = f"{'' if needed else '# '}{yaml.safe_dump({key: value}, width=1000).strip()}"
        choices = [] if key == "kind" or fragment.get("type") == "boolean" else _allowed(fragment)
        words = len(choices) > 1 and not any(" " in choice or choice == "text" for choice in choices)
        about = f"{fragment['description']} [{', '.join(choices)}]" if words else fragment["description"]
        entries.append(((key != "kind", not needed, key in shared), key, text, about))
    entries = sorted((entry for entry in entries if entry[1] not in left_out), key=lambda entry: entry[0])
    width = max(len(text) for _, _, text, _ in entries)
    return [f"  {text:{width}}  # {about}" for _, _, text, about in entries]


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences of two configurations that forbid to go on where the old one stopped.

    Parameters
    ----------
    old, new : as `config.model_dump(mode="json")` gives them.
    """
    before, after = _flat(old), _flat(new)
    kinds = {path[0] for path in before | after if path[1:] == ("kind",) and before.get(path) != after.get(path)}
    return [
        f"{'.'.join(path)} was {_json(path, before)}, is {_json(path, after)}"
        for path in before | after
        if (path not in before or path not in after or before[path] != after[path])
        # Another kind has other keys: that it is another says enough.
        and (path[0] not in kinds or path[1:] == ("kind",))
    ]


def _flat(config: dict[str, Any]) -> dict[Keys, Any]:
    """Return all keys of a configuration but those that a run may go on with when they change."""
    values = {(block, key): value for block, keys in config.items() for key, value in keys.items()}
    free = {path for path in values if path[0] == "engine" and path[1] != "memory"} | {("output", "overwrite")}
    return {path: value for path, value in values.items() if path not in free}


def _json(path: Keys, values: dict[Keys, Any]) -> str:
    if path not in values:
        return "not there"
    value = values[path]
    return value if isinstance(value, str) else json.dumps(value)
