"""Fitting a model: from a configuration to a store, its text files and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streampca.errors import InputError, redacted
from streampca.files import text_paths
from streampca.progress import Progress, silent
from streampca.results.export import FORMATS, export
from streampca.results.fit.job import FitJob
from streampca.results.kind import kind_of
from streampca.results.store import load
from streampca.results.summary import Summary, notes_of
from streampca.run.config import Config
from streampca.run.config.blocks import Data, Filter
from streampca.run.task import Blocks, Expected, Task
from streampca.sources import Source, open_source
from streampca.sources.remote import is_url
from streampca.sources.tables import ids_of, read_labels, source_ids
from streampca.sweep.memory import Budget


def open_data(data: Data, filter: Filter) -> Any:
    """Open the data; a filter is for genotypes."""
    selection = {name: value for name, value in filter.given.items() if name not in AFTER_OPENING}
    if selection.pop("all_chromosomes", False):
        selection["autosomes"] = False
    source = open_source(
        data.path, variable=data.variable, sample_dims=data.sample_dims, missing_chunks=data.missing_chunks, **selection
    )
    if filter.given and not source.is_genotypes:
        name = next(iter(filter.given)).replace("_", "-")
        raise InputError(f"{data.path}: {name} is for genotypes (.bed, .pgen, VCF Zarr); remove it")
    return source


# Options of the filter that are applied to opened genotypes.
AFTER_OPENING = ("ld_prune", "outliers", "outlier_rounds")


def fit_job(data: Source, config: Config, budget: Budget, progress: Progress = silent) -> FitJob:
    """Return the job of a configuration on opened data."""
    filter = config.filter
    more = {name: getattr(config.data, name) for name in ("variable", "sample_dims") if getattr(config.data, name)}
    more |= {"missing_chunks": "fill"} if config.data.missing_chunks == "fill" else {}
    more |= filter.given | ({"outlier_rounds": filter.outlier_rounds} if filter.outliers else {})
    return FitJob(config.kind.name, data, config.model, budget, progress, more, filter.outliers, filter.outlier_rounds)


def pruned(job: FitJob, r2: float) -> FitJob:
    """Return the job without variants in linkage disequilibrium with others."""
    # numba, which pruning needs, takes long to load and much memory.
    from streampca.genetics.pruning import filtered, prune

    data: Any = filtered(job.source)
    kept = prune(data, r2=r2, progress=job.progress)
    return replace(job, source=data.take(features=kept, note=f"variants excluded: {int((~kept).sum())} by pruning"))


def export_prefix(result: Path) -> Path:
    """Return how the text files of a result begin."""
    return result.with_name(result.name.removesuffix(".zarr").removesuffix(".pca"))


def write_export(result: Path, form: str, prefix: Path | None, overwrite: bool) -> list[Path]:
    """Write a result as text, beside it unless a prefix is given."""
    return export(result, prefix or export_prefix(result), form=form, overwrite=overwrite)


def summarise(path: str | Path, arrays: Any = None, attributes: Any = None) -> tuple[Summary, list[str]]:
    """Return the summary of a result and its notes: of arrays and attributes of a fit, or of the store."""
    if arrays is None or not attributes:
        result = load(path)
        arrays, attributes = {str(name): variable.values for name, variable in result.variables.items()}, result.attrs
    summary: Summary = kind_of(attributes["kind"]).function("summary")(arrays, attributes)
    return summary, notes_of(attributes)


class FitTask(Task):
    """Fit a model and write it to a store.

    Attributes
    ----------
    arrays, attributes : of the store, if this process made it; arrays that are in memory.
    """

    def __init__(self, config: Config):
        if config.data.shape is not None:
            raise InputError("data.shape is for --plan of data that do not exist yet; remove it to run")
        self.config = config
        self.output, self.overwrite, self.work = config.output.path, config.output.overwrite, config.output.work
        self.engine = config.engine
        self.arrays: dict[str, Any] | None = None
        self.attributes: dict[str, Any] = {}
        self._job: FitJob | None = None

    def options(self) -> Blocks:
        """Return the configuration."""
        return self.config.as_dict()

    def open(self) -> str:
        """Open the data; return their fingerprint."""
        self._data = open_data(self.config.data, self.config.filter)
        self._data.watch()
        return str(self._data.fingerprint())

    def expected(self, budget: Budget, progress: Progress) -> Expected:
        """Plan the fit."""
        self._job = fit_job(self._data, self.config, budget, progress)
        chosen = self.config.kind.function("plan")(self._job)
        return Expected(chosen.threads, chosen.sweeps)

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:  # noqa: ARG002
        """Fit the model into a store."""
        assert self._job is not None
        r2 = self.config.filter.ld_prune
        job = self._job if r2 is None else pruned(self._job, r2)
        self.arrays, self.attributes = self.config.kind.function("fit")(job, place)

    def check(self) -> None:
        """Raise before the work starts if store, text files or page could not be written at its end."""
        super().check()
        output = self.config.output
        if output.export is not None:
            text_paths(self.prefix, FORMATS[output.export], self.overwrite)
            if output.export == "plink" and not self._data.is_genotypes:
                raise InputError("the format plink is for genotypes; use tsv")
        if output.report is not None:
            text_paths(Path(output.report), ("",), self.overwrite)
            read_labels(output.labels, source_ids(self._data.samples))

    def finish(self, place: Path, again: bool) -> None:
        """Write text files and page of the finished store."""
        output, overwrite = self.config.output, self.overwrite or again
        if output.export is not None:
            text_paths(self.prefix, FORMATS[output.export], overwrite)
            write_export(place, output.export, self.prefix, overwrite=True)
        if output.report is not None:
            # The page is written by few runs.
            from streampca.report import write_report

            text_paths(Path(output.report), ("",), overwrite)
            result = load(place)
            table, names = read_labels(output.labels, ids_of(result)) if output.labels else (None, [])
            colour = next(iter(names), None)
            write_report(result, Path(output.report), table=table, colour=colour, overwrite=True)

    @property
    def prefix(self) -> Path:
        """Prefix of the text files: next to the result, or in this directory if that has a URL."""
        output = self.output
        return export_prefix(Path(redacted(output).rpartition("/")[2]) if is_url(output) else Path(output))
