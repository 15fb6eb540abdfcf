"""Selection of genotypes before a fit: unrelated samples, and variants in approximate linkage equilibrium."""

from __future__ import annotations

from dataclasses import replace

from streampca.genetics.kinship import kinship, plan_kinship, unrelated
from streampca.genetics.pruning import filtered, prune
from streampca.results.fit import FitJob


def without_relatives(job: FitJob, least: float) -> FitJob:
    """Return the job that fits unrelated samples, and projects those with at least this kinship to one of them."""
    # Raises if it does not fit in memory, before data are read.
    plan_kinship(job.source, job.memory_limit)
    data = filtered(job.source)
    kept = unrelated(kinship(data, least, memory=job.memory_limit, progress=job.progress))
    if kept.all():
        return replace(job, source=data.take(note=f"no pair of samples has a kinship of {least:g} or more"))
    count = f"{int(kept.sum())} of {kept.size} samples"
    note = f"fitted to {count} without relatives (kinship of {least:g} or more); the others are projected"
    return replace(job, source=data.take(samples=kept, note=note), everyone=data, relatives=~kept)


def pruned(job: FitJob, r2: float) -> FitJob:
    """Return the job without variants in linkage disequilibrium with others."""
    data = filtered(job.source)
    kept = prune(data, r2=r2, progress=job.progress)
    everyone = None if job.everyone is None else job.everyone.take(features=kept)
    note = f"variants excluded: {int((~kept).sum())} by pruning"
    return replace(job, source=data.take(features=kept, note=note), everyone=everyone)
