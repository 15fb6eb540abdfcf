"""Fit dual probabilistic PCA into a store."""

from __future__ import annotations

from pathlib import Path

from streampca.models.dual import dataset
from streampca.models.dual.fit import fit_dual, plan_dual
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.solvers.choose import Plan


def fit(job: FitJob, store: Path) -> Fitted:
    """Fit dual probabilistic PCA and write it with its latent points to a store."""
    job = job.with_components(min(job.source.shape) - 1)
    fit, sweeps = fit_dual(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    arrays = dataset.variables(fit, *fit.pca.axes(sweeps.matrix.source))
    return saved(arrays, dataset.attributes(fit, job.origin), store)


def plan(job: FitJob) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    job = job.with_components(min(job.source.shape) - 1)
    return plan_dual(job.source, job.options, memory=job.memory_limit)
