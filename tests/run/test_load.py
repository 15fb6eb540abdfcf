"""Load: the cheap part of scripts/load, and many small blocks of a Dask array."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dask.array
import numpy as np
import pytest
from helpers import Reference, assert_same_subspace, sample_data

from streampca import PCA, open_source
from streampca.sources.base import MAX_PARTITIONS

LOAD = Path(__file__).parents[2] / "scripts" / "load.py"


def test_repeated_fits_do_not_grow_and_tiny_chunks_are_joined(tmp_path):
    command = [sys.executable, LOAD, "--quick", "--only", "soak,partitions", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert sum("no growth" in row for row in rows) == 2
    assert sum("1 partitions" in row for row in rows) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("n", [MAX_PARTITIONS, MAX_PARTITIONS + 1, 40 * MAX_PARTITIONS])
def test_very_many_blocks_are_joined_and_few_are_not(axis, n):
    shape = (n, 300) if axis == 0 else (300, n)
    source = open_source(dask.array.zeros(shape, chunks=(1, 300) if axis == 0 else (300, 1)))
    parts = source.cut(axis, 8).partitions
    assert parts[0][0] == 0
    assert parts[-1][1] == n
    assert all(before[1] == after[0] for before, after in zip(parts, parts[1:], strict=False))
    assert len(parts) == (n if n <= MAX_PARTITIONS else -(-n // ((16 << 20) // (300 * 8))))


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_joined_blocks_give_the_components_of_the_whole(solver, monkeypatch):
    monkeypatch.setattr("streampca.sources.base.MAX_PARTITIONS", 4)
    monkeypatch.setattr("streampca.sources.base.PARTITION_BYTES", 4096)
    x = sample_data()
    found = PCA(3, solver=solver, tol=1e-9).fit(dask.array.from_array(x, chunks=(3, 4)))
    reference = Reference.of(x)
    np.testing.assert_allclose(found.explained_variance_, reference.values[:3], rtol=1e-9)
    assert_same_subspace(reference.vectors[:3], found.components_)
