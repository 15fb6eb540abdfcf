"""The baselines of commands: what a process holds before it reads data, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streampca.sources import genotypes
from streampca.sweep.memory import COMMAND_BASELINE, NUMBA_BYTES, RESULT_BASELINE

SIZE = 'print(int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0]) * 1024)'
FIT = "import streampca.run.driver, streampca.run.fit, streampca.results.kinds.pca, scipy.linalg, distributed"
APPLY = f"{FIT}, streampca.run.apply, xarray"
PACKED = "import streampca.sources.packed"
LOOPS = "import numpy; from streampca.sweep.missing_loops import take_missing; take_missing(numpy.zeros((1, 1)), False)"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def size_after(*statements):
    """Resident size of a process that has executed these statements."""
    command = [sys.executable, "-c", "; ".join([*statements, SIZE])]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(("imports", "baseline"), [(FIT, COMMAND_BASELINE), (APPLY, RESULT_BASELINE)])
def test_a_command_is_no_larger_than_its_baseline(imports, baseline):
    size = size_after(imports)
    assert size <= baseline
    # A baseline is measured, not a guess on the safe side.
    assert size > baseline / 2


@pytest.mark.parametrize(("statement", "declared"), [(PACKED, genotypes.COMPILED_BYTES), (LOOPS, NUMBA_BYTES)])
def test_libraries_take_no_more_than_declared(statement, declared):
    assert size_after(FIT, statement) - size_after(FIT) <= declared
