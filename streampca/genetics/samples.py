"""Samples of genotypes that a fit can use."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.sources.genotypes import VariantSource

Variants = TypeVar("Variants", bound=VariantSource)


def without_sparse(source: Variants, full: Array) -> Variants:
    """Return the source without samples that miss too many calls."""
    if full.sum() < 2:
        raise InputError(
            f"{source.name}: {len(full) - full.sum()} of {len(full)} samples have more than {source.filter.mind:g} of "
            "their calls missing, too few are left; raise mind"
        )
    note = f"samples left out: {int((~full).sum())} with more than {source.filter.mind:g} missing"
    logger.info("%s; beginning again without them", note)
    chosen = source.take(samples=full, note=note)
    # Not asked again: without these samples other variants are left out, and shares would change in circles.
    chosen.filter = replace(source.filter, mind=1.0)
    return chosen
