"""Fit a model into a store: the same steps for every kind, by the functions that its record names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.models.dataset import Origin
from streampca.models.genotypes import fit_genotypes, with_relatives
from streampca.progress import Progress, silent
from streampca.results.kind import Kind, kind_for
from streampca.results.write import save, score_writer, writing
from streampca.solvers.choose import Plan
from streampca.sources import Source
from streampca.sweep.memory import Budget
from streampca.validation import Options

DEFAULT_COMPONENTS = 10  # of a fit from the shell or a configuration

# The arrays of a store that are in memory, and its attributes.
Stored = tuple[dict[str, Array], dict[str, Any]]


@dataclass(frozen=True)
class FitJob:
    """One fit.

    Attributes
    ----------
    kind, source, options : the kind of model, the opened data, and the options of the model.
    more : other options, for the record.
    outliers, outlier_rounds : of genotypes; see `fit_genotypes`.
    everyone, relatives : genotypes with more samples than `source` and the same variants, and the mask of those that
        are projected on the components.
    """

    kind: Kind
    source: Source
    options: Any
    memory_limit: Any = None
    progress: Progress = field(default=silent, compare=False)
    more: Mapping[str, Any] = field(default_factory=dict)
    outliers: str | None = None
    outlier_rounds: int = 5
    everyone: Source | None = None
    relatives: Array | None = None

    def plan(self) -> Plan:
        """Plan the fit and the sweep for scores, without reading any data."""
        extra = {"extra_sweeps": 1} if self.kind.scores else {}
        planned: Plan = self.kind.function("plan")(
            self.source, self._complete_options(), memory=self.memory_limit, **extra
        )
        return planned

    def fit(self, store: Path) -> Stored:
        """Fit the model and write it, with the scores of its samples, to a store.

        Cut along samples, each task writes the scores of its partition: they need not fit in memory.
        """
        started, options = time.monotonic(), self._complete_options()
        fit = partial(self.kind.function("fit"), options=options, memory=self.memory_limit, progress=self.progress)
        outliers = None
        if self.source.is_genotypes and self.kind.outliers:
            fitted, sweeps, outliers = fit_genotypes(
                self.source, fit, find_outliers=self.outliers, rounds=self.outlier_rounds
            )
        else:
            fitted, sweeps = fit(self.source)
        matrix = sweeps.matrix
        if self.kind.scores:
            known = fitted.scores is not None
            writer = None if known else score_writer(store, self.kind.sample_arrays, matrix, fitted.n_components)
            fitted = self.kind.function("scores")(fitted, sweeps, writer)
        fitted = replace(fitted, seconds=time.monotonic() - started)
        samples, features = fitted.axes(matrix.source)
        projected = None
        if self.everyone is not None and self.relatives is not None:
            fitted, samples, projected = with_relatives(
                fitted, matrix.source.uncached(), self.everyone, self.relatives, memory=self.memory_limit,
                progress=self.progress,
            )  # fmt: skip
        variables, coords = fitted.variables(samples, features)
        for name in variables.keys() & set(self.kind.sample_arrays if self.kind.scores else ()):
            # The same type as scores that are written partition by partition.
            dims, values = variables[name]
            variables[name] = dims, values.astype(matrix.dtype, copy=False)
        if outliers is not None:
            variables["outlier"] = (samples.dims, outliers)
        if projected is not None:
            variables["projected"] = (samples.dims, projected)
            if outliers is not None:
                everyone = np.zeros(len(samples), bool)
                everyone[~projected] = outliers
                variables["outlier"] = (samples.dims, everyone)
        attributes = fitted.attributes(self._origin(options))
        save(variables, coords, attributes, store)
        return {name: values for name, (_, values) in (variables | coords).items()}, attributes

    def _complete_options(self) -> Any:
        """Return the options with the default number of components, if none is given."""
        largest = self.options.most_components(self.source.shape)
        given = self.options.n_components is not None or self.source.default_components is not None
        if given or largest is None:
            return self.options
        return self.options.changed(n_components=max(1, min(DEFAULT_COMPONENTS, largest)))

    def _origin(self, options: Options) -> Origin:
        """Return kind, source and options, for the record."""
        limit = self.memory_limit.limit if isinstance(self.memory_limit, Budget) else self.memory_limit
        parameters = {**dict(options), **self.more, "memory_limit": limit}
        return Origin(self.kind.name, self.source.name, self.source.fingerprint(), parameters)


def fit_to_store(
    options: Options, source: Source, path: Path, *, memory_limit: Any = None, progress: Progress = silent
) -> Stored:
    """Fit the model that has these options into a store at `path`; a result that exists is replaced."""
    with writing(path, overwrite=True) as store:
        return FitJob(kind_for(options), source, options, memory_limit, progress).fit(store)
