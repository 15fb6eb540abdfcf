"""Commands that fit or apply resume in the same way: --fresh, --only-resume, --overwrite, locks and signals."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import zarr
from killing import bits

from streampca.run.work_directory import folder_of, locked

pytestmark = pytest.mark.usefixtures("several_partitions")

# A command, the same with another option, the difference, and the function that writes its output.
COMMANDS = {
    "pca": (
        ("pca", "x.zarr", "-k", 3), ("pca", "x.zarr", "-k", 2), "--n-components was 3, is 2",
        "streampca.results.fit.save",
    ),
    "project": (
        ("project", "r.pca.zarr", "x.zarr"), ("project", "r.pca.zarr", "y.zarr"), "data.path was x.zarr, is y.zarr",
        "streampca.results.apply.save",
    ),
    "impute": (
        ("impute", "r.ppca.zarr", "missing.zarr"), ("impute", "r.ppca.zarr", "y.zarr"),
        "data.path was missing.zarr, is y.zarr", "streampca.results.apply.save",
    ),
}  # fmt: skip
GIVEN = ("--out", "out.zarr", "--memory", "2GB", "--quiet")


@pytest.fixture
def data(tmp_path, here):
    """Write data with and without missing values, and results to apply."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((1500, 4)) @ rng.standard_normal((4, 12)) + rng.standard_normal((1500, 12))).astype("f4")
    holes = np.where(rng.random(x.shape) < 0.05, np.nan, x).astype("f4")
    for name, values in (("x", x), ("y", x[::-1]), ("missing", holes)):
        zarr.create_array(tmp_path / f"{name}.zarr", data=np.ascontiguousarray(values), chunks=(200, 12))
    assert here("pca", "x.zarr", "-k", 3, "--out", "r.pca.zarr", "--quiet")[0] == 0
    assert here("ppca", "missing.zarr", "-k", 2, "--max-iter", 3, "--out", "r.ppca.zarr", "--quiet")[0] == 0
    return tmp_path


@pytest.fixture(params=COMMANDS)
def asked(request):
    """Return a command, the same with another option, the difference, and what writes its output."""
    return COMMANDS[request.param]


def stop(here, command, writer, number=signal.SIGTERM):
    """Run a command that a signal stops when it writes its output."""

    def signalled(*_, **__):
        os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, signalled)
        return here(*command, *GIVEN)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_signal_saves_the_work_and_the_same_command_resumes(number, asked, data, here, begun):
    command, _, _, writer = asked
    assert here(*command, *GIVEN)[0] == 0
    expected = bits(data / "out.zarr")
    (data / "out.zarr").rename(data / "expected.zarr")
    code, out, err = stop(here, command, writer, number)
    assert (code, out) == (75, "")
    assert err == f"streampca: stopped by {number.name}; finished work is saved: run the same command to resume\n"
    assert not (data / "out.zarr").exists()
    assert f'"stopped by {number.name}"' in (folder_of(data / "out.zarr") / "status.json").read_text()
    begun.clear()
    code, _, err = here(*command, *GIVEN, "--only-resume")
    assert code == 0, err
    assert begun == [], "all sweeps were saved"
    assert bits(data / "out.zarr") == expected
    assert not folder_of(data / "out.zarr").exists()


def test_unfinished_work_of_other_options_needs_fresh(asked, data, here):
    command, other, difference, writer = asked
    assert stop(here, command, writer)[0] == 75
    for more in ((), ("--overwrite",), ("--only-resume",)):
        code, out, err = here(*other, *GIVEN, *more)
        assert (code, out) == (2, "")
        assert "holds unfinished work of other options: " in err
        assert difference in err
        assert err.endswith("undo the change to resume, or add --fresh to start over\n")
    assert folder_of(data / "out.zarr").exists()
    code, _, err = here(*other, *GIVEN, "--fresh")
    assert code == 0, err
    assert not folder_of(data / "out.zarr").exists()


def test_fresh_starts_over_with_the_same_options(asked, data, here, begun):
    command, _, _, writer = asked
    assert stop(here, command, writer)[0] == 75
    done = len(begun)
    assert here(*command, *GIVEN, "--fresh")[0] == 0
    assert len(begun) == 2 * done
    assert not folder_of(data / "out.zarr").exists()


def test_only_resume_needs_a_checkpoint(asked, data, here, begun):
    command = asked[0]
    before = sorted(path.name for path in data.iterdir())
    begun.clear()
    for more in ((), ("--fresh",)):
        code, _, err = here(*command, *GIVEN, "--only-resume", *more)
        assert code == 2
        assert "out.zarr: no checkpoint to resume; remove --only-resume to start" in err
    assert begun == []
    assert sorted(path.name for path in data.iterdir()) == before


def test_overwrite_replaces_a_finished_result_only(asked, data, here):
    command, other, _, writer = asked
    assert here(*other, *GIVEN)[0] == 0
    first = bits(data / "out.zarr")
    code, _, err = here(*command, *GIVEN)
    assert code == 2
    assert "out.zarr: exists already; choose another name or add --overwrite" in err
    # A stopped attempt leaves the finished result as it is.
    assert stop(here, (*command, "--overwrite"), writer)[0] == 75
    assert bits(data / "out.zarr") == first
    assert here(*command, *GIVEN, "--overwrite")[0] == 0
    assert bits(data / "out.zarr") != first


def test_the_same_command_again_has_nothing_to_do(asked, data, here, begun):
    command = asked[0]
    assert here(*command, *GIVEN)[0] == 0
    files = {path: path.stat().st_mtime_ns for path in (data / "out.zarr").rglob("*")}
    begun.clear()
    code, _, err = here(*command, *GIVEN[:-1])
    assert code == 0
    assert "out.zarr: exists already, with the same options and data; nothing to do" in err
    assert begun == []
    assert {path: path.stat().st_mtime_ns for path in (data / "out.zarr").rglob("*")} == files


@pytest.mark.usefixtures("data")
def test_one_process_at_a_time_writes_an_output(asked, tmp_path, here, begun, monkeypatch):
    monkeypatch.setattr("streampca.run.work_directory.PATIENCE", 0.0)
    command = asked[0]
    begun.clear()
    with locked(folder_of(tmp_path / "out.zarr"), "out.zarr"):
        code, _, err = here(*command, *GIVEN)
    assert code == 2
    assert "out.zarr: another run is writing it" in err
    assert begun == []
    assert here(*command, *GIVEN)[0] == 0
