"""Samples of genotypes that a fit can use."""

from __future__ import annotations

from dataclasses import replace

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.sources.base import Source


def without_sparse(source: Source, full: Array) -> Source:
    """Return the source without samples that miss too many calls."""
    assert source.filter is not None
    if full.sum() < 2:
        raise InputError(
            f"{source.name}: {len(full) - full.sum()} of {len(full)} samples have more than {source.filter.mind:g} of "
            "their calls missing, too few are left; raise mind"
        )
    note = f"samples left out: {int((~full).sum())} with more than {source.filter.mind:g} missing"
    logger.info("%s; beginning again without them", note)
    # Applied once: without these samples other variants are excluded, which changes the shares of the others again.
    return source.take(samples=full, filter=replace(source.filter, mind=1.0), note=note)
