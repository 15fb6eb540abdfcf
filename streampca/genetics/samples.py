"""Exclusion of samples with many missing calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.solvers.base import SamplesLeftOut
from streampca.sources.base import Source

Result = TypeVar("Result")


def excluding_sparse(
    source: Source, attempt: Callable[[Source, Array | None], Result]
) -> tuple[Result, list[float], int]:
    """Return attempt(source, None), or attempt(part, mask) if samples miss too many calls: of the part without them.

    Also returns the seconds and bytes of the sweeps before a second attempt.
    """
    try:
        return attempt(source, None), [], 0
    except SamplesLeftOut as error:
        full, seconds, bytes_read = error.full, error.seconds, error.bytes_read
    # Not in the except block, which keeps the data of the first attempt in memory.
    return attempt(without_sparse(source, full), full), seconds, bytes_read


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
