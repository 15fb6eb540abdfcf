"""Restarts of a fit: in float64 tiles, and without samples that have too many missing calls.

Both are known only after the first sweep, which raises `NeedsFloat64` or `SamplesExcluded`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger
from streampca.sources import Source
from streampca.sweep.sweep import Sweeps

Planned = TypeVar("Planned")
Result = TypeVar("Result")


class NeedsFloat64(Exception):  # noqa: N818
    """The data are too small or too large for products in float32."""


class SamplesExcluded(Exception):  # noqa: N818
    """Samples have more missing calls than the thresholds allow; `kept` is a mask of the others."""

    def __init__(self, kept: Array):
        super().__init__()
        self.kept = kept


def with_restarts(
    source: Source, start: Callable[[Source, Array | None], tuple[Planned, Sweeps]],
    attempt: Callable[[Planned, Sweeps], Result],
) -> tuple[Result, Sweeps]:  # fmt: skip
    """Return the result of an attempt, and its sweeps, which include those of attempts that were stopped.

    Parameters
    ----------
    start : plans an attempt for a source, and a mask of the samples that it keeps, None for all; returns the plan and
        its sweeps.
    attempt : function of the plan and the sweeps.
    """
    float64, kept, seconds, bytes_read = False, None, list[float](), 0
    while True:
        planned, sweeps = start(source, kept)
        sweeps.seconds, sweeps.bytes_read = seconds, bytes_read
        if float64:
            sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64))
        try:
            with sweeps:
                return attempt(planned, sweeps), sweeps
        except NeedsFloat64:
            logger.info("values are out of the range of float32 tiles; restarting in float64")
            float64 = True
        except SamplesExcluded as error:
            kept, source = error.kept, without_sparse(source, error.kept)
        seconds, bytes_read = sweeps.seconds, sweeps.bytes_read
        # Data kept in memory are freed before the next attempt.
        del sweeps


def without_sparse(source: Source, kept: Array) -> Source:
    """Return the source without samples that have too many missing calls; `kept` is a mask of the others."""
    assert source.filter is not None
    if kept.sum() < 2:
        raise InputError(
            f"{source.name}: {len(kept) - kept.sum()} of {len(kept)} samples have more than {source.filter.mind:g} of "
            "their calls missing, and fewer than 2 are left; increase mind"
        ) from None
    note = f"samples excluded: {int((~kept).sum())} with more than {source.filter.mind:g} missing"
    logger.info("%s; restarting without them", note)
    # Applied once: without these samples other variants are excluded, which changes the shares of the others again.
    return source.take(samples=kept, filter=replace(source.filter, mind=1.0), note=note)
