"""Fitting a model: from a configuration to a store, its text files and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streampca.errors import InputError, redacted
from streampca.files import is_url, text_paths
from streampca.progress import Progress, logger, silent
from streampca.results.export import FORMATS, export
from streampca.results.fit import FitJob
from streampca.results.store import load, load_within
from streampca.results.summary import StoredArrays, Summary, summary_of
from streampca.run.config import Config
from streampca.run.config.blocks import Data, Filter
from streampca.run.task import Blocks, Expected, Task
from streampca.sources import Source, open_source
from streampca.sources.tables import labels_of, read_labels, source_ids
from streampca.sources.wrappers import without_absent
from streampca.sweep.memory import RESULT_BASELINE, TEXT_BYTES, VIEW_COPIES, Budget, check_fits, plan_stages


def open_data(data: Data, filter: Filter) -> Any:
    """Open the data; a filter is for genotypes."""
    selection = {name: value for name, value in filter.given.items() if name not in AFTER_OPENING}
    if selection.pop("all_chromosomes", False):
        selection["autosomes"] = False
    source = open_source(data.path, sample_dims=data.sample_dims, **data.reading, **selection)
    if filter.given and not source.is_genotypes:
        name = next(iter(filter.given))
        raise InputError(
            f"{data.path}: {name}={filter.given[name]!r} is for genotypes (.bed, .pgen, VCF Zarr); remove it"
        )
    if filter.ld_prune is not None or filter.unrelated is not None:
        # Pruning and kinship load numba for a small file, too: plans must count it.
        source.small = False
    return source


def data_to_fit(config: Config) -> Any:
    """Open the data of a configuration, without features that no sample has where missing values are an error."""
    source = open_data(config.data, config.filter)
    return without_absent(source) if getattr(config.model, "missing", "error") in ("auto", "error") else source


# Options of the filter that are applied to opened genotypes.
AFTER_OPENING = ("ld_prune", "unrelated", "outliers", "outlier_rounds")


def fit_job(data: Source, config: Config, budget: Budget, progress: Progress = silent) -> FitJob:
    """Return the job of a configuration on opened data."""
    filter = config.filter
    more = {name: getattr(config.data, name) for name in ("variable", "sample_dims") if getattr(config.data, name)}
    more |= {name: value for name, value in config.data.reading.items() if name != "variable" and value != "error"}
    more |= filter.given | ({"outlier_rounds": filter.outlier_rounds} if filter.outliers else {})
    return FitJob(config.kind, data, config.model, budget, progress, more, filter.outliers, filter.outlier_rounds)


def select_genotypes(job: FitJob, filter: Filter) -> FitJob:
    """Return the job without relatives and without variants in linkage disequilibrium, if the filter says so."""
    if filter.unrelated is None and filter.ld_prune is None:
        return job
    # numba, which both need, takes long to load and much memory.
    from streampca.run.select import pruned, without_relatives

    job = job if filter.unrelated is None else without_relatives(job, filter.unrelated)
    return job if filter.ld_prune is None else pruned(job, filter.ld_prune)


def export_prefix(result: Path) -> Path:
    """Return how the text files of a result begin."""
    return result.with_name(result.name.removesuffix(".zarr").removesuffix(".pca"))


def write_export(
    result: Path, form: str, prefix: Path | None, overwrite: bool, memory: str | None = None
) -> list[Path]:
    """Write a result as text, beside it unless a prefix is given."""
    opened = load_within(result, memory, "the export", components=True)
    return export(opened, prefix or export_prefix(result), form=form, overwrite=overwrite)


def summarise(path: str | Path, arrays: Any = None, attributes: Any = None, memory: str | None = None) -> Summary:
    """Return the summary of a result: of arrays and attributes of a fit, or of the store."""
    if arrays is None or not attributes:
        check_fits(0, Budget.of(memory, RESULT_BASELINE), "the summary")
        result = load(path)
        arrays, attributes = StoredArrays(result.variables), result.attrs
    return summary_of(arrays, attributes)


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
        self._data = data_to_fit(self.config)
        self._data.watch()
        return str(self._data.fingerprint())

    def expected(self, budget: Budget, progress: Progress) -> Expected:
        """Plan the fit."""
        self._job = fit_job(self._data, self.config, budget, progress)
        chosen, _ = plan_stages(self._job.plan, lambda: self._check_views(budget))
        return Expected(chosen.threads, chosen.sweeps)

    def _check_views(self, budget: Budget) -> None:
        """Raise if text files or page, which are made in this process after the fit, do not fit the budget."""
        assert self._job is not None
        if self.config.output.export is None and self.config.output.report is None:
            return
        source, k = self._data, self._job.options.n_components
        count = k if isinstance(k, int) and k > 0 else min(source.shape)
        labels = sum(len(values) for axis in (source.samples, source.features) for _, values in axis.coords.values())
        needed = 8 * VIEW_COPIES * (count + 2) * sum(source.shape) + TEXT_BYTES * labels
        check_fits(needed, budget, "the export or the report", libraries=source.library_bytes)

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:  # noqa: ARG002
        """Fit the model into a store."""
        assert self._job is not None
        logger.info("samples: %s x features: %s", self._data.samples, self._data.features)
        job = select_genotypes(self._job, self.config.filter)
        self.arrays, self.attributes = job.fit(place)

    def check(self) -> None:
        """Raise before the work starts if store, text files or page could not be written at its end."""
        super().check()
        output = self.config.output
        if output.export is not None:
            text_paths(self.prefix, FORMATS[output.export], self.overwrite)
            if output.export in ("plink", "smartpca") and not self._data.is_genotypes:
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
            table, names = labels_of(result, output.labels)
            colour = next(iter(names), None)
            write_report(result, Path(output.report), table=table, colour=colour, overwrite=True)

    @property
    def prefix(self) -> Path:
        """Prefix of the text files: next to the result, or in this directory if that has a URL."""
        output = self.output
        return export_prefix(Path(redacted(output).rpartition("/")[2]) if is_url(output) else Path(output))
