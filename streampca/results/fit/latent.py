"""Fit probabilistic PCA and factor analysis into a store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from streampca.models.ppca import dataset
from streampca.models.ppca.fit import fit_ppca, plan_ppca, with_posterior
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.results.write import score_writer
from streampca.solvers.choose import Plan
from streampca.solvers.em.factors import Known


def fit(job: FitJob, store: Path) -> Fitted:
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
    attributes = dataset.attributes(fit, job.origin)
    samples, features = fit.axes(matrix.source)
    variables, coords = dataset.variables(fit, samples, features)
    if outliers is not None:
        variables["outlier"] = (samples.dims, outliers)
    return saved((variables, coords), attributes, store)


def plan(job: FitJob) -> Plan:
    """Plan the principal components that the fit starts from, and EM."""
    job = job.with_components(min(job.source.shape) - 1)
    return plan_ppca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)
