"""The working directory of a run: links, pipes and files of other users in it are rejected, in one line."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from streampca.sweep import sweep

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 4)).astype("f4"))
    return tmp_path / "x.npy"


@pytest.fixture
def rejected(here, data):
    """Run a fit; return its one-line message."""

    def call(*arguments):
        code, _, error = here("pca", data, "-k", "2", "--quiet", "--out", "out.zarr", *arguments)
        assert code == 2
        lines = error.strip().splitlines()
        assert len(lines) == 1
        return lines[0]

    return call


def test_a_lock_that_is_a_dangling_link_is_rejected(rejected, tmp_path):
    (tmp_path / "out.zarr.unfinished").mkdir()
    (tmp_path / "out.zarr.unfinished" / "lock").symlink_to(tmp_path / "elsewhere")
    assert "out.zarr.unfinished: cannot be used" in rejected()
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_is_a_pipe_is_rejected(rejected, tmp_path):
    (tmp_path / "out.zarr.unfinished").mkdir()
    os.mkfifo(tmp_path / "out.zarr.unfinished" / "lock")
    assert "is not a regular file" in rejected()


def test_a_directory_that_is_a_link_is_rejected_and_its_target_kept(rejected, tmp_path):
    (tmp_path / "target" / "store").mkdir(parents=True)
    (tmp_path / "target" / "store" / "precious").write_text("x")
    (tmp_path / "out.zarr.unfinished").symlink_to(tmp_path / "target")
    assert "it is not a directory" in rejected("--fresh")
    assert (tmp_path / "target" / "store" / "precious").read_text() == "x"


@as_root
def test_a_directory_of_another_user_is_rejected(rejected, tmp_path):
    (tmp_path / "out.zarr.unfinished").mkdir()
    os.chown(tmp_path / "out.zarr.unfinished", NOBODY, NOBODY)
    assert "belongs to another user" in rejected()


@as_root
def test_a_lock_of_another_user_is_rejected(rejected, tmp_path):
    (tmp_path / "out.zarr.unfinished").mkdir()
    (tmp_path / "out.zarr.unfinished" / "lock").touch()
    os.chown(tmp_path / "out.zarr.unfinished" / "lock", NOBODY, NOBODY)
    assert "belongs to another user" in rejected()


@pytest.mark.parametrize("name", ["status.part", "run.part", ".status.json.unfinished"])
def test_links_in_the_directory_are_not_written_through(here, data, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out.zarr.unfinished").mkdir()
    (tmp_path / "out.zarr.unfinished" / name).symlink_to(victim)
    code, _, error = here("pca", data, "-k", "2", "--quiet", "--out", "out.zarr")
    assert code == 0, error
    assert victim.read_text() == "precious"


def test_status_of_the_current_directory(here, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(8, 3)))
    assert here("pca", "x.npy", "--out", "out.zarr")[0] == 0
    code, _, error = here("status", ".")
    assert (code, error.splitlines()) == (2, ["streampca: .: no result and no run for one; check the path"])
    monkeypatch.chdir(tmp_path / "out.zarr")
    code, out, _ = here("status", ".")
    assert code == 0
    assert out.split()[:2] == ["state", "finished"]
    assert here("status", "/")[0] == 2


def test_a_status_that_is_a_link_is_not_read(here, tmp_path):
    folder = tmp_path / "out.zarr.unfinished"
    folder.mkdir()
    (tmp_path / "secret").write_text(json.dumps({"state": "secret"}))
    (folder / "status.json").symlink_to(tmp_path / "secret")
    code, out, error = here("status", "out.zarr")
    assert code == 2
    assert "secret" not in out + error


def test_an_output_in_a_file_system_without_directories_is_rejected(here, data):
    code, _, error = here("pca", data, "-k", "2", "--quiet", "--out", "/proc/out.zarr")
    assert code == 2
    assert "cannot be created" in error


def test_a_deleted_current_directory_is_reported(here, data, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    shutil.rmtree(gone)
    code, _, error = here("pca", data, "-k", "2", "--quiet", "--out", "out.zarr")
    assert code == 2
    assert len(error.strip().splitlines()) == 1


def test_an_output_that_is_a_link_is_rejected_before_the_work(here, data, tmp_path):
    code, _, error = here("pca", data, "-k", "2", "--quiet", "--out", "real.zarr")
    assert code == 0, error
    (tmp_path / "out.zarr").symlink_to("real.zarr")
    code, _, error = here("pca", data, "-k", "3", "--quiet", "--out", "out.zarr", "--overwrite")
    assert code == 2
    assert "out.zarr: is a link" in error
    assert (tmp_path / "out.zarr").is_symlink()
    assert not (tmp_path / "out.zarr.unfinished").exists()


@pytest.mark.parametrize("name", ["checkpoint", "store", "old"])
def test_a_part_of_the_directory_that_is_a_link_is_rejected_and_its_target_kept(rejected, tmp_path, name):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "00001-0-1.npz").write_text("precious")
    (tmp_path / "out.zarr.unfinished").mkdir()
    (tmp_path / "out.zarr.unfinished" / name).symlink_to(tmp_path / "target")
    assert f"{name} in it is a link" in rejected("--fresh")
    assert (tmp_path / "target" / "00001-0-1.npz").read_text() == "precious"
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("name", ["", "checkpoint"])
@pytest.mark.usefixtures("small_partitions")
def test_a_working_directory_that_is_deleted_during_the_run_is_reported(here, data, tmp_path, monkeypatch, name):
    original, done = sweep.run_partition, []

    def deletes(*arguments):
        done.append(1)
        if len(done) == 3:
            shutil.rmtree(tmp_path / "out.zarr.unfinished" / name)
        return original(*arguments)

    np.save(data, np.random.default_rng(0).normal(size=(4000, 40)).astype("f4"))
    config = {"data": {"path": str(data)}, "model": {"kind": "pca", "n_components": 2, "solver": "krylov"},
              "engine": {"checkpoint_minutes": 1e-6, "threads": 1}, "output": {"path": "out.zarr"}}  # fmt: skip
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    monkeypatch.setattr(sweep, "run_partition", deletes)
    code, _, error = here("run", "run.yaml", "--quiet")
    assert code == 2
    assert len(error.strip().splitlines()) == 1
    assert "out.zarr.unfinished/checkpoint" in error
    assert not (tmp_path / "out.zarr").exists()
    monkeypatch.setattr(sweep, "run_partition", original)
    code, _, error = here("run", "run.yaml", "--quiet")
    assert code == 0, error


@pytest.mark.parametrize("record", ['{"id": 1', "[]", 7])
def test_a_damaged_record_of_a_finished_run_is_ignored(here, data, tmp_path, record):
    assert here("pca", data, "-k", "2", "--quiet", "--out", "out.zarr")[0] == 0
    path = tmp_path / "out.zarr" / "zarr.json"
    stored = json.loads(path.read_text())
    stored["attributes"]["run"] = record
    path.write_text(json.dumps(stored))
    code, out, error = here("status", "out.zarr")
    assert (code, out.split()) == (0, ["state", "finished"]), error
