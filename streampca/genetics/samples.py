"""Exclusion of samples with many missing calls."""

from __future__ import annotations

from dataclasses import replace

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.sources.base import Source


def without_sparse(source: Source, full: Array) -> Source:
    """Return the source without samples that have too many missing calls."""
    assert source.filter is not None
    if full.sum() < 2:
        raise InputError(
            f"{source.name}: {len(full) - full.sum()} of {len(full)} samples have more than {source.filter.mind:g} of "
            "their calls missing, and fewer than 2 are left; increase mind"
        )
    note = f"samples excluded: {int((~full).sum())} with more than {source.filter.mind:g} missing"
    logger.info("%s; restarting without them", note)
    # Applied once: without these samples other variants are excluded, which changes the shares of the others again.
    return source.take(samples=full, filter=replace(source.filter, mind=1.0), note=note)
