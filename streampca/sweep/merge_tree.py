"""The tree by which a sweep merges its partials, and those of its nodes that are done.

A range of partitions is split at the largest power of two below its length, so that the tree is the same however far it
has grown: any node is the work below it, on record or in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from streampca.sweep.checkpoint import Records, Span
from streampca.sweep.matrix import Defects
from streampca.sweep.statistics import Moments


@dataclass(frozen=True)
class Partial:
    """What one partition, or several merged, came to."""

    value: Any
    moments: tuple[Moments, ...]
    defects: Defects
    n_bytes: int
    missing: Any = 0

    def __sizeof__(self) -> int:
        """Bytes of the value, by which Dask decides what to move where."""
        return object.__sizeof__(self) + int(sizeof(self.value))


def same_form(model: Any, value: Any) -> bool:
    """Whether a value has the types and shapes of a model; an empty list stands for any list."""
    if isinstance(model, np.ndarray):
        return isinstance(value, np.ndarray) and (value.shape, value.dtype) == (model.shape, model.dtype)
    if type(model) is not type(value):
        return False
    if isinstance(model, (list, tuple)):
        return not model or (len(model) == len(value) and all(map(same_form, model, value)))
    if is_dataclass(model):
        return all(same_form(getattr(model, f.name), getattr(value, f.name)) for f in fields(model))
    return True


def is_node(span: Span, count: int) -> bool:
    """Whether a range of partitions is a node of the tree."""
    a, b = 0, count
    while (a, b) != span and b - a > 1:
        middle = middle_of(a, b)
        a, b = (a, middle) if span[1] <= middle else (middle, b)
    return (a, b) == span


def middle_of(a: int, b: int) -> int:
    """Return where a range of partitions is split: the left part is the largest power of two below its length."""
    return a + (1 << ((b - a - 1).bit_length() - 1))


def halves_of(span: Span) -> tuple[Span, ...]:
    """Return the two ranges that make up one; none for a single partition."""
    a, b = span
    return ((a, middle_of(a, b)), (middle_of(a, b), b)) if b - a > 1 else ()


def parent_of(span: Span, count: int) -> Span | None:
    """Return the range that this one is half of; None for all partitions."""
    a, b = 0, count
    while (a, b) != span:
        middle = middle_of(a, b)
        inner = (a, middle) if span[1] <= middle else (middle, b)
        if inner == span:
            return a, b
        a, b = inner
    return None


@dataclass
class Nodes:
    """The nodes of the tree that are done and not merged yet, by their range of partitions.

    On a cluster they are futures until they are brought here. What the graph merges is up to it; the rest is merged
    here, as soon as both halves are there.

    Attributes
    ----------
    count, merge : partitions in all, and what makes one partial of two.
    live : what is there.
    flush : has what went elsewhere on disk.
    to_do : nodes of the graph, children first: those apart from all that were there at the beginning.
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
        """Seconds since this run took up the sweep."""
        return time.monotonic() - self.started

    @property
    def seconds(self) -> float:
        """Seconds that the sweep took, those of earlier runs included."""
        return self.before + (self.elapsed if self.earlier < self.count else 0.0)

    @property
    def due(self) -> bool:
        """Tell whether it is time to save."""
        return self.records is not None and self.records.due

    def _apart(self, span: Span) -> list[Span]:
        """Return the nodes within a range that neither hold nor are within any that is there, children first."""
        a, b = span
        inside = [s for s in self.live if s[0] < b and a < s[1]]
        if any(s[0] <= a and b <= s[1] for s in inside):
            return []
        if b - a == 1:
            return [span]
        below = self._apart((a, middle_of(a, b))) + self._apart((middle_of(a, b), b))
        return below if inside else [*below, span]

    def add(self, span: Span, value: Any) -> list[Any]:
        """Take in what a node of the graph came to; returns what the graph merged it from."""
        self.live[span] = value
        if span[1] - span[0] == 1:
            self.done += 1
        merged = [self.live.pop(half) for half in halves_of(span) if half in self.live]
        self._climb(span)
        return merged

    def bring(self, values: dict[Span, Any]) -> None:
        """Take in what nodes on a cluster came to; what they would have been merged into there is merged here."""
        self.live |= values
        for span in [s for s in self.to_do if any(s[0] <= a and b <= s[1] for a, b in values)]:
            del self.to_do[span]
        for span in values:
            self._climb(span)

    def _climb(self, span: Span) -> None:
        """Merge with the other half, and so on up, where that is not up to the graph."""
        while span in self.live and (parent := parent_of(span, self.count)) is not None and parent not in self.to_do:
            halves = [self.live.get(half) for half in halves_of(parent)]
            if not all(isinstance(half, Partial) for half in halves):
                return
            self.live[parent] = self.merge(*halves)
            for half in halves_of(parent):
                del self.live[half]
            span = parent

    def largest(self) -> list[Span]:
        """Return as many nodes as a tree in order would have waiting, the largest ones."""
        most = 2 + math.ceil(math.log2(1 + sum(b - a for a, b in self.live)))
        return sorted(self.live, key=lambda span: span[0] - span[1])[:most]

    def save(self) -> None:
        """Put the largest nodes on record, of those that are here."""
        if self.records is not None:
            self.flush()
            here = [span for span in self.largest() if isinstance(self.live[span], Partial)]
            seconds = self.seconds
            self.records.save({span: {"partial": self.live[span], "seconds": seconds} for span in here})

    def save_if_possible(self) -> None:
        """Save while an error is on its way, which is not to be hidden by another."""
        with suppress(Exception):
            self.save()
