"""Fit mixtures of probabilistic PCA into a store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from streampca.models.mixture import dataset
from streampca.models.mixture.fit import fit_mixture, log_joint, plan_mixture, probabilities
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.solvers.choose import Plan


def fit(job: FitJob, store: Path) -> Fitted:
    """Fit a mixture of probabilistic PCA and write it with the probabilities of its samples to a store."""
    started = time.monotonic()
    fit, sweeps = fit_mixture(job.source, job.options, memory=job.memory_limit, progress=job.progress)
    probability = probabilities(log_joint(job.source, fit, job.memory_limit, job.progress))
    # One more sweep than the fit, for the probabilities.
    seconds = time.monotonic() - started
    last = (seconds - fit.seconds,)
    n_bytes = sweeps.bytes_read + job.source.n_bytes
    fit = replace(fit, sweep_seconds=(*fit.sweep_seconds, *last), bytes_read=n_bytes, seconds=seconds)
    arrays = dataset.variables(fit, job.source.samples, job.source.features, probability)
    return saved(arrays, dataset.attributes(fit, job.origin), store)


def plan(job: FitJob) -> Plan:
    """Plan the sweeps of EM."""
    return plan_mixture(job.source, job.options, memory=job.memory_limit)
