"""Fit kernel PCA into a store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from streampca.models.kernel_pca import dataset
from streampca.models.kernel_pca.fit import fit_kernel_pca, plan_kernel_pca
from streampca.models.kernel_pca.record import kernel_scores
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.results.write import score_writer
from streampca.solvers.choose import Plan


def _with_components(job: FitJob) -> FitJob:
    m = job.options.n_landmarks
    n = job.source.shape[0]
    return job.with_components(n if m == "auto" else min(n, m))


def fit(job: FitJob, store: Path) -> Fitted:
    """Fit kernel PCA and write it with the scores of its samples to a store."""
    started = time.monotonic()
    job = _with_components(job)
    fit, sweeps = fit_kernel_pca(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    writer = score_writer(store, ("scores",), sweeps.matrix, len(fit.explained_variance))
    scores = kernel_scores(fit, sweeps, sink=writer)
    seconds = time.monotonic() - started
    fit = replace(fit, sweep_seconds=tuple(sweeps.seconds), bytes_read=sweeps.bytes_read, seconds=seconds)
    attributes = dataset.attributes(fit, job.origin)
    samples, features = job.source.samples, job.source.features
    variables, coords = dataset.variables(fit, samples, features, scores if writer is None else None)
    return saved((variables, coords), attributes, store)


def plan(job: FitJob) -> Plan:
    """Plan landmarks and sweeps."""
    job = _with_components(job)
    return plan_kernel_pca(job.source, job.options, memory=job.memory_limit, extra_sweeps=1)
