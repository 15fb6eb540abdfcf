"""Weighted random draws of rows in one sweep, without replacement; the same however rows are cut.

References: Efraimidis & Spirakis (2006), Inf. Process. Lett. 97, 181.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sweep.statistics import Statistic


@dataclass
class Arrivals:
    """The rows that arrived first, in no order: times (m,), infinite for none, indices (m,) and rows (m, d).

    A row arrives after an exponential time, and the first ones are taken: an exact draw with probabilities proportional
    to the rates, without replacement and in one pass.
    """

    times: Array
    indices: Array
    rows: Array

    def add(self, A: Array, rates: Array, waits: Array, start: int) -> None:
        """Let the rows of A arrive at waits / rates, each in place of one that arrived later."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            times = np.where(rates > 0, waits / rates, np.inf)
        early, count = np.flatnonzero(times < self.times.max()), len(self.times)
        if len(early) == 0:
            return
        both = np.concatenate([self.times, times[early]])
        stays = np.zeros(len(both), bool)
        stays[np.argsort(both, kind="stable")[:count]] = True
        free, new = np.flatnonzero(~stays[:count]), early[stays[count:]]
        self.times[free], self.indices[free], self.rows[free] = times[new], start + new, A[new]

    def first(self, other: Arrivals | None = None) -> Arrivals:
        """Return the first of these and others, in order of time, then of index."""
        parts = [self] if other is None else [self, other]
        both = Arrivals(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(self)))
        order = np.lexsort((both.indices, both.times))[: len(self.times)]
        return Arrivals(both.times[order], both.indices[order], both.rows[order])


@dataclass(frozen=True)
class Draw(Statistic):
    """Rows drawn with probabilities proportional to their rates; one draw or several, and the sum of the rates of each.

    The random number of a row depends on (seed, turn, row).

    Parameters
    ----------
    count : rows of each draw.
    """

    count: int
    seed: int
    turn: int

    n_draws = 1

    def rates(self, A: Array) -> Array:
        """Return the rates of the rows of A, (draws, t)."""
        raise NotImplementedError

    def zero(self, n_full: int) -> tuple[list[Arrivals], Array]:
        """Return draws without arrivals."""
        times, indices = np.full(self.count, np.inf), np.full(self.count, -1)
        draws = [Arrivals(times.copy(), indices.copy(), np.zeros((self.count, n_full))) for _ in range(self.n_draws)]
        return draws, np.zeros(self.n_draws)

    def update(self, value: tuple[list[Arrivals], Array], A: Array, start: int) -> None:
        """Let the rows of A arrive."""
        rates, waits = self.rates(A), exponentials(self.seed, self.turn, start, len(A))
        for arrivals, own in zip(value[0], rates, strict=True):
            arrivals.add(A, own, waits, start)
        value[1][:] += rates.sum(axis=1)

    def finish(self, value: tuple[list[Arrivals], Array], start: int) -> tuple[list[Arrivals], Array]:  # noqa: ARG002
        """Sort the arrivals."""
        return [arrivals.first() for arrivals in value[0]], value[1]

    def combine(self, a: Any, b: Any) -> Any:
        """Return the first arrivals of both."""
        return [one.first(two) for one, two in zip(a[0], b[0], strict=True)], a[1] + b[1]


def uniforms(seed: int, turn: int, start: int, count: int) -> Array:
    """Return the random numbers of rows start .. start + count: four to each value of a counter (Philox)."""
    generator = np.random.Philox(key=np.array([seed, turn], np.uint64))
    generator.advance(start // 4)
    return np.random.Generator(generator).random(start % 4 + count)[start % 4 :]


def exponentials(seed: int, turn: int, start: int, count: int) -> Array:
    """Return exponential times of rows start .. start + count."""
    return np.asarray(-np.log1p(-uniforms(seed, turn, start, count)))
