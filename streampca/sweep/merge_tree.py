"""The tree that merges the partials of a sweep, and the state of its nodes.

A range of partitions is split at the largest power of two below its length. A node contains all work below it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from operator import le
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from streampca.sweep.checkpoint import Records, Span
from streampca.sweep.matrix import Defects
from streampca.sweep.statistics import Moments


@dataclass(frozen=True)
class Partial:
    """The result of one partition, or of several that are merged."""

    value: Any
    moments: tuple[Moments, ...]
    defects: Defects
    n_bytes: int
    missing: Any = 0

    def __sizeof__(self) -> int:
        """Bytes of the value, for Dask's scheduling."""
        return object.__sizeof__(self) + int(sizeof(self.value))


def same_form(model: Any, value: Any) -> bool:
    """Whether a value has the types and shapes of a model; an empty list stands for any list."""
    if isinstance(model, np.ndarray):
        same = isinstance(value, np.ndarray) and (value.ndim, value.dtype) == (model.ndim, model.dtype)
        # Finished sums may have dropped columns that only padded a product.
        return same and value.shape[:1] == model.shape[:1] and all(map(le, value.shape, model.shape))
    if isinstance(model, (int, float, np.generic)):
        return isinstance(value, (int, float, np.generic))
    if type(model) is not type(value):
        return False
    if isinstance(model, (list, tuple)):
        return not model or (len(model) == len(value) and all(map(same_form, model, value)))
    if is_dataclass(model):
        return all(same_form(getattr(model, f.name), getattr(value, f.name)) for f in fields(model))
    return True


def halves_of(span: Span) -> tuple[Span, ...]:
    """Return the two halves of a range of partitions; none for a single partition.

    The left half is the largest power of two below its length.
    """
    a, b = span
    middle = a + (1 << (b - a - 1).bit_length() >> 1)
    return ((a, middle), (middle, b)) if b - a > 1 else ()


def path_to(span: Span, count: int) -> list[Span]:
    """Return the nodes from the root of `count` partitions down to a range; it ends at another one if it is no node."""
    path = [(0, count)]
    while path[-1] != span and (halves := halves_of(path[-1])):
        path.append(halves[0] if span[1] <= halves[0][1] else halves[1])
    return path


def parent_of(span: Span, count: int) -> Span | None:
    """Return the range that this node is half of; None for the root."""
    path = path_to(span, count)
    return path[-2] if len(path) > 1 else None


@dataclass
class Nodes:
    """Nodes of the tree that are done and not merged yet, by their range of partitions.

    On a cluster they are futures until they are gathered. Nodes of the graph are merged by their tasks; others are
    merged here, as soon as both halves are done.

    Attributes
    ----------
    count, merge : number of partitions, and the function that merges two partials.
    live : nodes that are done.
    records : of the sweep in the checkpoint.
    before : seconds of earlier runs.
    flush : called before nodes are saved.
    to_do : nodes of the graph, children first: those that share no partition with nodes on record.
    """

    count: int
    merge: Callable[[Any, Any], Any]
    live: dict[Span, Any]
    records: Records | None = None
    before: float = 0.0
    flush: Callable[[], None] = lambda: None
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.done = self.earlier = sum(b - a for a, b in self.live)
        self.to_do = dict.fromkeys(self._apart((0, self.count)))
        for span in list(self.live):
            self._climb(span)

    @property
    def elapsed(self) -> float:
        """Seconds since this run started or resumed the sweep."""
        return time.monotonic() - self.started

    @property
    def seconds(self) -> float:
        """Seconds of the sweep, including those of earlier runs."""
        return self.before + (self.elapsed if self.earlier < self.count else 0.0)

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return self.records is not None and self.records.checkpoint.due

    def _apart(self, span: Span) -> list[Span]:
        """Return the nodes within a range that share no partition with a node that is done, children first."""
        a, b = span
        inside = [s for s in self.live if s[0] < b and a < s[1]]
        if any(s[0] <= a and b <= s[1] for s in inside):
            return []
        if b - a == 1:
            return [span]
        below = [node for half in halves_of(span) for node in self._apart(half)]
        return below if inside else [*below, span]

    def add(self, span: Span, value: Any) -> list[Any]:
        """Add a node that the graph finished; return the nodes that it was merged from."""
        self.live[span] = value
        if span[1] - span[0] == 1:
            self.done += 1
        merged = [self.live.pop(half) for half in halves_of(span) if half in self.live]
        self._climb(span)
        return merged

    def bring(self, values: dict[Span, Any]) -> None:
        """Add nodes gathered from a cluster; the nodes above them are merged here."""
        self.live |= values
        for span in [s for s in self.to_do if any(s[0] <= a and b <= s[1] for a, b in values)]:
            del self.to_do[span]
        for span in values:
            self._climb(span)

    def _climb(self, span: Span) -> None:
        """Merge a node with its other half, and so on up the tree, unless the graph does."""
        while span in self.live and (parent := parent_of(span, self.count)) is not None and parent not in self.to_do:
            halves = [self.live.get(half) for half in halves_of(parent)]
            if not all(isinstance(half, Partial) for half in halves):
                return
            self.live[parent] = self.merge(*halves)
            for half in halves_of(parent):
                del self.live[half]
            span = parent

    def largest(self) -> list[Span]:
        """Return the largest nodes, as many as wait to be merged if partitions finish in order."""
        most = 2 + math.ceil(math.log2(1 + sum(b - a for a, b in self.live)))
        return sorted(self.live, key=lambda span: span[0] - span[1])[:most]

    def save(self) -> None:
        """Save the largest nodes, of those in this process."""
        if self.records is not None:
            self.flush()
            here = [span for span in self.largest() if isinstance(self.live[span], Partial)]
            seconds = self.seconds
            self.records.save({span: {"partial": self.live[span], "seconds": seconds} for span in here})

    def save_if_possible(self) -> None:
        """Save while another error is being handled; errors of saving are ignored."""
        with suppress(Exception):
            self.save()
