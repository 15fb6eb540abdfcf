"""Fit PCA into a store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from streampca.models.pca import dataset
from streampca.models.pca.fit import fit_pca, plan_pca, scores_of
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.results.write import score_writer
from streampca.solvers.choose import Plan


def fit(job: FitJob, store: Path) -> Fitted:
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
    attributes = dataset.attributes(fit, job.origin)
    samples, features = fit.axes(matrix.source)
    variables, coords = dataset.variables(fit, samples, features, scores if writer is None else None)
    if outliers is not None:
        variables["outlier"] = (samples.dims, outliers)
    return saved((variables, coords), attributes, store)


def plan(job: FitJob) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    job = job.with_components(min(job.source.shape))
    return plan_pca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)
