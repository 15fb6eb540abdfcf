"""HDF5 files that are damaged, or refer to other files."""

from __future__ import annotations

import importlib

import h5py
import numpy as np
import pytest
import xarray
from helpers import one_line
from source_helpers import assert_reads_as, everything

import streampca.validation
from streampca import InputError, open_source
from streampca.cli import cli

X = np.random.default_rng(0).normal(size=(8, 5))
SECRET = b"a secret"


def external_values(file):
    file.create_dataset("x", shape=X.shape, dtype="f8", external=[("secret", 0, h5py.h5f.UNLIMITED)])


def external_link(file):
    file["x"] = h5py.ExternalLink("other.h5", "/y")


def link_to_an_external_link(file):
    file.create_group("inner")["y"] = h5py.ExternalLink("other.h5", "/y")
    file["x"] = h5py.SoftLink("/inner/y")


def virtual_values(file):
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource("other.h5", "y", X.shape)
    file.create_virtual_dataset("x", layout)


def external_labels(file):
    file["x"] = X
    file.create_dataset("s", shape=(8,), dtype="S8", external=[("secret", 0, h5py.h5f.UNLIMITED)])
    file["f"] = np.arange(5.0)
    for i, name in enumerate("sf"):
        file[name].make_scale(name)
        file["x"].dims[i].attach_scale(file[name])


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (external_values, np.frombuffer(SECRET * 40).reshape(8, 5)),
        (external_link, X),
        (link_to_an_external_link, X),
        (virtual_values, X),
        (external_labels, X),
    ],
)
def test_data_in_other_files_are_read_only_if_allowed(tmp_path, monkeypatch, make, values):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(SECRET * 40)
    with h5py.File("other.h5", "w") as file:
        file["y"] = X
    with h5py.File("x.h5", "w") as file:
        make(file)
    with pytest.raises(InputError, match=r"x.h5: .*(secret|other.h5)', .*external_files='read'") as error:
        open_source("x.h5")
    one_line(error)
    source = open_source("x.h5", external_files="read")
    assert_reads_as(source, values)
    if make is external_labels:
        assert source.samples.coords["s"][1].tolist() == [SECRET] * 8


def test_the_option_of_external_files_in_the_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File("other.h5", "w") as file:
        file["y"] = X
    with h5py.File("x.h5", "w") as file:
        external_link(file)
    with pytest.raises(InputError, match="x.h5: its 'x' is a link to 'other.h5'"):
        cli(["pca", "x.h5", "-k", "2", "--quiet"], standalone_mode=False)
    cli(["pca", "x.h5", "-k", "2", "--quiet", "--external-files", "read"], standalone_mode=False)
    assert '"external_files": "read"' in streampca.load("x.pca.zarr").attrs["parameters"]
    with pytest.raises(InputError, match="external_files must be 'error' or 'read', got 'yes'"):
        open_source("x.h5", external_files="yes")


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "is damaged, the HDF5 library crashes"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "is damaged, the HDF5 library loops for ever"),
        ("import no_such_module", "cannot be checked .*No module named 'no_such_module'"),
    ],
)
def test_what_the_hdf5_library_does_to_its_process_is_one_line(tmp_path, monkeypatch, program, told):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
    (tmp_path / "program.py").write_text(program)
    module = importlib.import_module("streampca.sources.hdf5_check")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "program.py"))
    with pytest.raises(InputError, match=f"x.h5: {told}") as error:
        open_source(tmp_path / "x.h5")
    one_line(error)


def test_a_check_that_takes_too_long_ends(tmp_path, monkeypatch):
    # The limit of processor time is that of the check itself.
    module = importlib.import_module("streampca.sources.hdf5_check")
    with open(module.__file__) as file:
        text = file.read().replace("SECONDS = 10", "SECONDS = 1").replace("walk.run()", "while True: pass")
    (tmp_path / "program.py").write_text(text)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "program.py"))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = X
    with pytest.raises(InputError, match="loops for ever"):
        open_source(tmp_path / "x.h5")


def test_labels_that_claim_more_than_the_memory(tmp_path, monkeypatch):
    array = xarray.DataArray(X, dims=("s", "f"), coords={"s": np.arange(8.0)}, name="x")
    array.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", unlimited_dims=["s"])
    with h5py.File(tmp_path / "x.nc", "r+") as file:
        file["s"].resize((1 << 20,))
    monkeypatch.setattr(streampca.validation, "available_memory", lambda: 2 << 20)
    with pytest.raises(InputError, match=r"x.nc: s: declares 0.00839 GB"):
        open_source(tmp_path / "x.nc")


def test_a_truncated_netcdf_file_is_one_line(tmp_path):
    path = tmp_path / "x.nc"
    xarray.DataArray(X, dims=("s", "f"), coords={"s": np.arange(8.0)}, name="x").to_netcdf(path, engine="h5netcdf")
    content = path.read_bytes()
    assert_reads_as(open_source(path), X)
    for size in (0, 3, 8, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError) as error:
            everything(open_source(path))
        assert "x.nc" in one_line(error)


def test_classic_netcdf_is_read_by_scipy(tmp_path):
    xarray.DataArray(X, dims=("s", "f"), coords={"s": np.arange(8.0)}, name="x").to_netcdf(
        tmp_path / "x.nc", engine="scipy"
    )
    source = open_source(tmp_path / "x.nc")
    np.testing.assert_array_equal(everything(source), X)
    assert source.samples.coords["s"][1].tolist() == list(range(8))
