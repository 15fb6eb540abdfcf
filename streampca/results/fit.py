"""Fit a model and write it to a store: one function per family of models, which the kinds refer to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from streampca._typing import Array
from streampca.models.dataset import Origin, Variables
from streampca.models.dual import dataset as dual_dataset
from streampca.models.dual.fit import fit_dual, plan_dual
from streampca.models.genotypes import fit_genotypes
from streampca.models.kernel_pca import dataset as kernel_pca_dataset
from streampca.models.kernel_pca.fit import fit_kernel_pca, plan_kernel_pca
from streampca.models.kernel_pca.record import kernel_scores
from streampca.models.mixture import dataset as mixture_dataset
from streampca.models.mixture.fit import fit_mixture, log_joint, plan_mixture, probabilities
from streampca.models.pca import dataset as pca_dataset
from streampca.models.pca.fit import fit_pca, plan_pca, scores_of
from streampca.models.ppca import dataset as ppca_dataset
from streampca.models.ppca.fit import fit_ppca, plan_ppca, with_posterior
from streampca.progress import Progress, silent
from streampca.results.kind import kind_for
from streampca.results.write import save, score_writer, writing
from streampca.solvers.choose import Plan
from streampca.solvers.em.factors import Known
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


def fit_linear(job: FitJob, store: Path) -> Fitted:
    """Fit PCA and write it with the scores of its samples to a store.

    Cut along samples, each task writes the scores of its partition, so that they need not fit in memory.
    """
    started = time.monotonic()
    job = job.with_components(min(job.source.shape))
    fit, sweeps, outliers = job.fit(fit_pca, extra_sweeps=1)
    matrix = sweeps.matrix
    writer = None if fit.scores is not None else score_writer(store, ("scores",), matrix, len(fit.components))
    scores, fit = scores_of(fit, sweeps, writer)
    fit = replace(fit, seconds=time.monotonic() - started)
    attributes = pca_dataset.attributes(fit, job.origin)
    samples, features = fit.axes(matrix.source)
    variables, coords = pca_dataset.variables(fit, samples, features, scores if writer is None else None)
    if outliers is not None:
        variables["outlier"] = (samples.dims, outliers)
    return saved((variables, coords), attributes, store)


def plan_linear(job: FitJob) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    job = job.with_components(min(job.source.shape))
    return plan_pca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)


def fit_latent(job: FitJob, store: Path) -> Fitted:
    """Fit probabilistic PCA or factor analysis and write it with the posterior of its samples to a store."""
    started = time.monotonic()
    job = job.with_components(min(job.source.shape) - 1)
    fit, sweeps, outliers = job.fit(fit_ppca)
    matrix = sweeps.matrix
    names = ("scores", "score_deviation")
    writer = None if fit.posterior is not None else score_writer(store, names, matrix, fit.n_components)
    fit = replace(with_posterior(fit, sweeps, writer), seconds=time.monotonic() - started)
    if fit.posterior is not None:
        # The same type as what is written partition by partition.
        known = (part.astype(matrix.dtype) for part in (fit.posterior.mean, fit.posterior.deviation))
        fit = replace(fit, posterior=Known(*known))
    attributes = ppca_dataset.attributes(fit, job.origin)
    samples, features = fit.axes(matrix.source)
    variables, coords = ppca_dataset.variables(fit, samples, features)
    if outliers is not None:
        variables["outlier"] = (samples.dims, outliers)
    return saved((variables, coords), attributes, store)


def plan_latent(job: FitJob) -> Plan:
    """Plan the principal components that the fit starts from, and EM."""
    job = job.with_components(min(job.source.shape) - 1)
    return plan_ppca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)


def _kernel_job(job: FitJob) -> FitJob:
    m = job.options.n_landmarks
    n = job.source.shape[0]
    return job.with_components(n if m == "auto" else min(n, m))


def fit_kernel(job: FitJob, store: Path) -> Fitted:
    """Fit kernel PCA and write it with the scores of its samples to a store."""
    started = time.monotonic()
    job = _kernel_job(job)
    fit, sweeps = fit_kernel_pca(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    writer = score_writer(store, ("scores",), sweeps.matrix, len(fit.explained_variance))
    scores = kernel_scores(fit, sweeps, sink=writer)
    seconds = time.monotonic() - started
    fit = replace(fit, sweep_seconds=tuple(sweeps.seconds), bytes_read=sweeps.bytes_read, seconds=seconds)
    attributes = kernel_pca_dataset.attributes(fit, job.origin)
    samples, features = job.source.samples, job.source.features
    variables, coords = kernel_pca_dataset.variables(fit, samples, features, scores if writer is None else None)
    return saved((variables, coords), attributes, store)


def plan_kernel(job: FitJob) -> Plan:
    """Plan landmarks and sweeps."""
    job = _kernel_job(job)
    return plan_kernel_pca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)


def fit_dual_ppca(job: FitJob, store: Path) -> Fitted:
    """Fit dual probabilistic PCA and write it with its latent points to a store."""
    job = job.with_components(min(job.source.shape) - 1)
    fit, sweeps = fit_dual(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    arrays = dual_dataset.variables(fit, *fit.pca.axes(sweeps.matrix.source))
    return saved(arrays, dual_dataset.attributes(fit, job.origin), store)


def plan_dual_ppca(job: FitJob) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    job = job.with_components(min(job.source.shape) - 1)
    return plan_dual(job.source, job.options, memory=job.memory_limit)


def fit_clusters(job: FitJob, store: Path) -> Fitted:
    """Fit a mixture of probabilistic PCA and write it with the probabilities of its samples to a store."""
    started = time.monotonic()
    fit, sweeps = fit_mixture(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    probability = probabilities(log_joint(job.source, fit, job.memory_limit, job.progress))
    # One more sweep than the fit, for the probabilities.
    seconds = time.monotonic() - started
    last = (seconds - fit.seconds,)
    n_bytes = sweeps.bytes_read + job.source.n_bytes
    fit = replace(fit, sweep_seconds=(*fit.sweep_seconds, *last), bytes_read=n_bytes, seconds=seconds)
    arrays = mixture_dataset.variables(fit, job.source.samples, job.source.features, probability)
    return saved(arrays, mixture_dataset.attributes(fit, job.origin), store)


def plan_clusters(job: FitJob) -> Plan:
    """Plan the sweeps of EM."""
    return plan_mixture(job.source, job.options, memory=job.memory_limit)
