"""One fit into a store: its data and options, and what the modules of all families share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from streampca._typing import Array
from streampca.models.dataset import Origin, Variables
from streampca.models.genotypes import fit_genotypes
from streampca.progress import Progress, silent
from streampca.results.kind import kind_for
from streampca.results.write import save, writing
from streampca.sources import Source
from streampca.sweep.memory import Budget
from streampca.validation import Options

# Components of a fit from the shell or a configuration, by default.
DEFAULT_COMPONENTS = 10
# The arrays of a store that are in memory, and its attributes.
Fitted = tuple[dict[str, Array], dict[str, Any]]


@dataclass(frozen=True)
class FitJob:
    """One fit.

    Attributes
    ----------
    kind : name of the kind.
    source, options : the opened data, and the options of the model.
    more : other options, for the record.
    outliers, outlier_rounds : of genotypes; see `fit_genotypes`.
    """

    kind: str
    source: Source
    options: Any
    memory_limit: Any = None
    progress: Progress = field(default=silent, compare=False)
    more: Mapping[str, Any] = field(default_factory=dict)
    outliers: str | None = None
    outlier_rounds: int = 5

    @property
    def parameters(self) -> dict[str, Any]:
        """All options, for the record."""
        limit = self.memory_limit.limit if isinstance(self.memory_limit, Budget) else self.memory_limit
        return {**dict(self.options), **self.more, "memory_limit": limit}

    @property
    def origin(self) -> Origin:
        """Kind, source and options, for the record."""
        return Origin(self.kind, self.source.name, self.source.fingerprint(), self.parameters)

    def with_components(self, largest: int) -> FitJob:
        """Return the same with the default number of components, if none is given."""
        if self.options.n_components is not None or self.source.default_components is not None:
            return self
        return replace(self, options=self.options.changed(n_components=max(1, min(DEFAULT_COMPONENTS, largest))))

    def fit(self, function: Any, **more: Any) -> tuple[Any, Any, Array | None]:
        """Fit the data by a function of a model; return the fit, its sweeps, and which samples are outliers."""
        fit = partial(function, options=self.options, memory=self.memory_limit, progress=self.progress)
        if self.source.is_genotypes:
            return fit_genotypes(self.source, fit, find_outliers=self.outliers, rounds=self.outlier_rounds)
        return *fit(self.source, **more), None


def saved(arrays: tuple[Variables, Variables], attributes: dict[str, Any], store: Path) -> Fitted:
    """Write variables and coordinates; return the arrays and the attributes."""
    variables, coords = arrays
    save(variables, coords, attributes, store)
    return {name: values for name, (_, values) in (variables | coords).items()}, attributes


def fit_to_store(
    options: Options, source: Source, path: Path, *, memory_limit: Any = None, progress: Progress = silent
) -> Fitted:
    """Fit the model that has these options, and write it to a new store at `path`, replacing one of ours."""
    kind = kind_for(options)
    job = FitJob(kind.name, source, options, memory_limit, progress)
    with writing(path, overwrite=True) as store:
        fitted: Fitted = kind.function("fit")(job, store)
    return fitted
