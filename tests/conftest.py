"""Fixtures of all tests."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from s3 import s3, s3_server  # noqa: F401

import streampca.sweep.sweep
from streampca import cli

# Nothing depends on how fast the machine is, and a failure comes again the next time.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")


@pytest.fixture
def rng():
    return np.random.default_rng(20240)


@pytest.fixture
def small_partitions(monkeypatch):
    """Let a few kilobytes be worth a read and a task of their own, so that small data make many partitions."""
    monkeypatch.setattr("streampca.sources.base.SLAB_BYTES", 1 << 10)
    monkeypatch.setattr("streampca.sources.base.PARTITION_BYTES", 4 << 10)


@pytest.fixture
def several_partitions(monkeypatch):
    """Cut small data, genotypes too, into a dozen partitions or more."""
    for name, size in (("SLAB_BYTES", 1 << 12), ("PARTITION_BYTES", 1 << 14)):
        monkeypatch.setattr(f"streampca.sources.base.{name}", size)


@pytest.fixture
def begun(monkeypatch):
    """Return the partitions that are worked through by threads, as it happens."""
    seen = []
    original = streampca.sweep.sweep.run_partition

    def watched(matrix, statistic, start, stop, check, block=None):
        seen.append((start, stop))
        return original(matrix, statistic, start, stop, check, block)

    monkeypatch.setattr("streampca.sweep.sweep.run_partition", watched)
    return seen


@pytest.fixture(scope="session")
def two_workers():
    """A cluster of two worker processes of one thread each, which takes seconds to start: one for all tests."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL
    ) as local:
        yield local


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Run in this process, in the test's folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["streampca", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as done:
            code = done.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


def pytest_collection_modifyitems(items):
    """Start slow tests first: at the end no process waits for another's."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
