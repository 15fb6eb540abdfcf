"""Tasks that apply a result to other data: project, impute, denoise, predict."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streampca.errors import InputError
from streampca.files import table_cell, writing_text
from streampca.models.dataset import kept_in
from streampca.progress import Progress
from streampca.results.apply import Application
from streampca.results.kind import kind_of
from streampca.results.store import fit_id, load
from streampca.run.config.blocks import Data, Threads
from streampca.run.task import Blocks, Task
from streampca.sources import open_genotypes, open_source
from streampca.sources.tables import source_ids
from streampca.sources.wrappers import present
from streampca.sweep.memory import RESULT_BASELINE, Budget


class ApplyTask(Task):
    """Apply a result to data.

    Parameters
    ----------
    verb : project, impute, denoise or predict.
    result : path of the result.
    data : the data.
    output : what is written: a store, or the table of predictions.
    picture : where `denoise` draws the first samples, before and after.
    more : other options of the command.

    Attributes
    ----------
    facts : the summary, if this process did the work.
    """

    baseline = RESULT_BASELINE

    def __init__(
        self, verb: str, result: Path, data: Data, output: Path, *, overwrite: bool = False,
        engine: Threads | None = None, picture: Path | None = None, **more: Any,
    ):  # fmt: skip
        self.verb, self.result, self.data, self.picture, self.more = verb, result, data, picture, more
        self.output, self.overwrite, self.engine = str(output), overwrite, engine or Threads()
        self.facts: dict[str, Any] = {}
        self.fitted = load(result)
        self._apply = kind_of(self.fitted.attrs["kind"]).function(verb, f"{result}: ")
        if verb == "predict":
            self.files = (output.name,)

    def options(self) -> Blocks:
        """Return result, data and options."""
        more = {name: value if isinstance(value, bool) else str(value) for name, value in self.more.items() if value}
        return {
            self.verb: {"result": str(self.result), **more},
            "data": self.data.as_dict(),
            "engine": self.engine.as_dict(),
        }

    @cached_property
    def source(self) -> Any:
        """The data. A run that finds its output complete does not open them, but its summary has their shape."""
        return open_like(self.fitted, self.data, self.more)

    def open(self) -> str:
        """Open data with the features of the result; return the fingerprint of both."""
        self.source.watch()
        return f"{self.source.fingerprint()} {fit_id(self.fitted)}"

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:
        """Apply the result."""
        more = {name: self.more[name] for name in ("projection", "drop_ambiguous") if self.more.get(name)}
        to = Application(self.source, self.fitted, place, str(self.result), budget, progress, **more)
        if self.verb != "predict":
            self.facts = self._apply(to)
            return
        names, values, self.facts = self._apply(to, self.more.get("covariates"))
        _write_predictions(place / Path(self.output).name, self.source, names, values)

    def written(self, name: str, count: int) -> Any:
        """Return the first samples of an array of the finished output."""
        return np.asarray(zarr.open_array(self.output, path=name, mode="r")[:count])


def open_like(fitted: Any, data: Data, more: Mapping[str, Any]) -> Any:
    """Open data that have the features of a result: genotypes, or arrays of the same sizes."""
    chosen = {name: more[name] for name in ("keep", "remove") if more.get(name)}
    if fitted.attrs["genotypes"]:
        return open_genotypes(data.path, **data.reading, autosomes=False, rm_dup="keep", **chosen)
    options = [name for name in ("projection", "drop_ambiguous", *chosen) if more.get(name)]
    if options:
        name = options[0].replace("_", "-")
        raise InputError(f"{data.path}: --{name} is for genotypes, and the result is of arrays; remove it")
    source = open_source(data.path, sample_dims=data.sample_dims, **data.reading)
    if source.is_genotypes:
        raise InputError(f"{data.path}: holds genotypes, and the result is of arrays; use data with the same features")
    dims = fitted["mean"].dims
    sizes = tuple(fitted.sizes[dim] for dim in dims)
    if source.features.sizes != sizes:
        wanted = " x ".join(f"{dim} {size}" for dim, size in zip(dims, sizes, strict=True))
        given = " x ".join(f"{d} {s}" for d, s in zip(source.features.dims, source.features.sizes, strict=True))
        raise InputError(
            f"{data.path}: has the features {given}, the result {wanted}; use the same features in the same order, or "
            "set the dimensions of the samples with --sample-dims"
        )
    return present(source, kept_in(fitted))


def _write_predictions(path: Path, source: Any, names: tuple[str, ...], values: Any) -> None:
    """Write a line per sample: its ids and predicted targets."""
    ids = source_ids(source.samples)
    columns = [ids.names] if ids.families is None else [ids.families, ids.names]
    header = ["#IID"] if ids.families is None else ["#FID", "IID"]
    with writing_text(path) as file:
        file.write("\t".join(map(table_cell, [*header, *names])) + "\n")
        for *who, row in zip(*columns, values.tolist(), strict=True):
            cells = ["NA" if value != value else f"{value:.10g}" for value in row]
            file.write("\t".join([*map(table_cell, who), *cells]) + "\n")
