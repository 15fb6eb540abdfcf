"""What commands import: nothing that is slow to load and that they do not need."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from genotype_helpers import write_bed

# Libraries that are loaded when they are needed, and by no command here.
HEAVY = {"numba", "llvmlite", "scipy", "pandas", "xarray", "sklearn", "matplotlib", "distributed", "rich", "numpy.ma",
         "PIL", "cryptography", "h5py"}  # fmt: skip
# Also those that fits load; help and errors do without them.
LIGHT = HEAVY | {"numpy", "dask", "zarr", "numcodecs", "fsspec", "yaml", "psutil", "asyncio", "jinja2", "threadpoolctl"}
# Runs a command, and prints which modules it has imported.
PROGRAM = """
import json, sys
from streampca.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
else:
    code = 0
print(json.dumps([code, sorted(sys.modules)]))
"""


def imported(folder, *arguments):
    """Exit code of a command, the modules that it has imported, and what it has printed."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    code, modules = json.loads(done.stdout.splitlines()[-1])
    return code, set(modules), done.stdout + done.stderr


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    write_bed(folder / "study", rng.binomial(2, rng.uniform(0.1, 0.5, 2000), (200, 2000)))
    code, _, output = imported(folder, "pca", "study.bed", "--quiet", "--out", "result.zarr")
    assert code == 0, output
    return folder


def test_a_fit_of_a_small_bed_loads_no_library_that_it_does_not_need(study):
    code, modules, _ = imported(study, "pca", "study.bed", "--quiet")
    assert code == 0
    assert {"numpy", "dask", "zarr"} <= modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--help"], 0, "Principal component analysis"),
        (["pca", "--help"], 0, "--n-components"),
        (["kpca", "--help"], 0, "--n-landmarks"),
        (["status", "result.zarr"], 0, "finished"),
        (["status", "none.zarr"], 2, "no result and no run for one; check the path"),
        (["pca", "study.bed", "--tol", "2"], 2, "--tol must be a number between 0 and 1, got '2'"),
        (["pca", "study.bed", "--n-component", "2"], 2, "did you mean --n-components?"),
        (["pca", "stduy.bed"], 2, "stduy.bed: does not exist; did you mean study.bed?"),
        (
            ["pca", "study.bed", "-k", "3", "--out", "result.zarr"],
            2,
            "result.zarr: exists already; choose another name",
        ),
        (["pca", "study.bed", "--out", "study.fam"], 2, "study.fam: exists already; choose another name"),
    ],
)
def test_help_status_and_errors_load_nothing(study, arguments, code, printed):
    found, modules, output = imported(study, *arguments)
    assert found == code
    assert printed in output
    assert not modules & LIGHT


def test_a_result_of_the_same_options_is_no_error(study):
    code, _, output = imported(study, "pca", "study.bed", "--out", "result.zarr")
    assert code == 0
    assert "nothing to do" in output


def test_data_named_by_prefix_or_inside_a_store_are_searched(study):
    assert imported(study, "pca", "study", "--out", "prefix.zarr", "--quiet")[0] == 0
    code, modules, output = imported(study, "pca", "result.zarr/nothing", "--out", "inside.zarr", "--quiet")
    assert code == 2
    assert "zarr" in modules


def test_unfinished_work_is_left_to_the_driver(study):
    (study / "result.zarr.unfinished").mkdir()
    code, modules, output = imported(study, "pca", "study.bed", "-k", "3", "--out", "result.zarr")
    # The driver removes a directory that has nothing worth keeping.
    assert not (study / "result.zarr.unfinished").exists()
    assert (code, "exists already" in output, "dask" in modules) == (2, True, True)
