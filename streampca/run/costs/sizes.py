"""Bytes that a sweep holds and sends, from shapes alone."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from streampca.solvers.choose import Plan
from streampca.sources import Source
from streampca.sweep.memory import Footprint
from streampca.sweep.merge_tree import middle_of
from streampca.sweep.statistics import Product, ProductAndRows, Scatter, Statistic


@dataclass(frozen=True)
class Network:
    """Bytes that one sweep sends.

    Attributes
    ----------
    broadcast : to all workers together: the block of vectors, centre and scale.
    merging : between workers, if no partial is merged where it was made.
    merging_likely : if each merge is done where one of its halves is, and halves lie anywhere.
    home : to the driver.
    """

    broadcast: int = 0
    merging: int = 0
    merging_likely: int = 0
    home: int = 0

    @property
    def most(self) -> int:
        """All of it, at most."""
        return self.broadcast + self.merging + self.home


@dataclass(frozen=True)
class Sizes:
    """Bytes of what moves: the statistic with centre and scale, a partial, and what it holds besides for each row.

    `row` is what rows of A Q take, and `first_row` the moments that the first sweep collects.
    """

    shared: int
    partial: int
    row: int = 0
    first_row: int = 0

    def of(self, rows: int, first: bool = False) -> int:
        """Bytes of what so many rows come to."""
        return self.partial + rows * (self.row + (self.first_row if first else 0))


def sizes_of(plan: Plan, data: Source, statistic: Statistic) -> Sizes:
    """Count what a statistic and its partials take."""
    axis, itemsize = plan.cut.axis, plan.dtype.itemsize
    n_full, b = data.shape[1 - axis], _width(statistic)
    # Mean and scale of each feature; which samples and variants of a file are used.
    shared = itemsize * n_full * b + 16 * data.shape[1] + len(pickle.dumps(data.bare()))
    partial = 8 * n_full * (n_full if isinstance(statistic, Scatter) else b)
    # Moments are four numbers a feature; genotypes also have the missing calls of each sample.
    moments = 32 * (1 if axis == 1 else 0)
    partial += (32 * n_full if axis == 0 else 0) + (8 * n_full if data.filter is not None else 0)
    return Sizes(shared, partial, itemsize * b if isinstance(statistic, ProductAndRows) else 0, moments)


def _width(statistic: Statistic) -> int:
    """Columns of the block that a statistic carries."""
    return statistic.Q.shape[1] if isinstance(statistic, (Product, ProductAndRows)) else 0


def network_of(plan: Plan, sizes: Sizes, workers: int, first: bool = False) -> Network:
    """Count what a sweep sends, by the tree of its merges: each partial goes to one merge, at most once."""
    partitions = plan.cut.partitions
    merging, likely = 0, 0.0
    spans = [(0, len(partitions))]
    while spans:
        a, b = spans.pop()
        if b - a == 1:
            continue
        halves = [(a, middle_of(a, b)), (middle_of(a, b), b)]
        spans += halves
        each = [sizes.of(partitions[j - 1][1] - partitions[i][0], first) for i, j in halves]
        merging += sum(each) if workers > 1 else 0
        likely += max(each) * (1 - 1 / workers)
    home = sizes.of(partitions[-1][1] - partitions[0][0], first)
    return Network(sizes.shared * workers, merging, int(likely), home)


def sent_by(client: Any) -> int:
    """Return the bytes that the workers of a client have written so far, to each other and to the driver."""

    def written(dask_worker: Any) -> int:
        return sum(entry["compressed"] for entry in dask_worker.transfer_outgoing_log)

    return int(sum(client.run(written).values()))


def worker_bytes(need: Footprint, threads: int, shared: int) -> int:
    """Peak of a worker: its tasks, partials that wait to be merged, and its copy of what all workers share."""
    return need.process + threads * (need.task + need.partial) + need.waiting * need.partial + shared


def driver_bytes(need: Footprint, shared: int) -> int:
    """Peak of the driver: its arrays; what it hands out; and partials that come home, also as the network has them."""
    return need.process + max(need.driver + shared + (need.waiting + 2) * need.partial, need.after)
