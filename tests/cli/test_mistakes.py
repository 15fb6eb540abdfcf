"""Mistakes of users, and the line that each gets: it names the thing, the place and the fix. See mistakes.txt."""

from __future__ import annotations

import gzip
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr
from genotype_helpers import random_calls, write_bed
from helpers import run
from PIL import Image

from streampca import cli

TRANSCRIPT = (Path(__file__).parent / "mistakes.txt").read_text().splitlines()
# A command begins with "$", or with "without PACKAGE $"; the next line is its message, in which "..." is any text.
COMMANDS = [line.partition("$ ") for line in TRANSCRIPT[::2]]
MISTAKES = {
    before + line: (before.removeprefix("without ").strip(), line, message)
    for (before, _, line), message in zip(COMMANDS, TRANSCRIPT[1::2], strict=True)
}

MODELS = {
    "r.pca.zarr": "pca x.npy",
    "r.kpca.zarr": "kpca x.npy",
    "poly.kpca.zarr": "kpca x.npy --kernel poly",
    "r.ppca.zarr": "ppca x.npy",
    "g.pca.zarr": "pca g.bed",
}


def arrays(folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 6))
    gaps, infinite = x.copy(), x.copy()
    gaps[3, 1] = gaps[7, 0] = np.nan
    infinite[0, 2] = np.inf
    made = {
        "x": x, "few": x[:, :4], "gaps": gaps, "inf": infinite, "one": x[:1], "line": x[0], "empty": x[:0],
        "constant": np.full((5, 4), 0.1), "text": np.array([["a", "b"], ["c", "d"]]),
    }  # fmt: skip
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "objects.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    (folder / "short.npy").write_bytes((folder / "x.npy").read_bytes()[:1000])
    zarr.create_array(folder / "x.zarr", data=x, chunks=(10, 6))
    zarr.create_group(folder / "half.zarr", attributes={"kind": "pca", "format_version": 1})
    (folder / "broken.zarr").mkdir()
    (folder / "broken.zarr" / "zarr.json").write_text("[]")
    field = xarray.DataArray(rng.normal(size=(12, 4, 5)), dims=("time", "lat", "lon"), name="sst")
    field[:, 0, 0] = np.nan
    field.to_netcdf(folder / "sst.nc", engine="h5netcdf")
    xarray.Dataset({"sst": field, "ice": field}).to_netcdf(folder / "two.nc", engine="h5netcdf")
    (folder / "faces").mkdir()
    Image.fromarray(rng.integers(0, 255, (8, 8), dtype="u1")).save(folder / "faces" / "0.png")


def genotypes(folder):
    write_bed(folder / "g", random_calls(20, 60, 1))
    (folder / "g.pgen").write_bytes(b"l\x1b\x10")
    with gzip.open(folder / "g.vcf.gz", "wt") as file:
        file.write("##fileformat=VCFv4.2\n")


TEXTS = {
    "table.csv": "a,b\n1,2\n3,4\n",
    "words.csv": "a,b,c\n1,2,3\n4,five,6\n7,8,9\n",
    "g.ped": "1 1 0 0 1 1 A A\n",
    "x.xyz": "1 2 3\n",
    "ids.txt": "nobody\n",
    "pops.tsv": "id\tpop\n" + "".join(f"i{i}\tp{i % 2}\n" for i in range(20)),
    "good.yaml": "data: {path: x.npy}\nmodel: {kind: pca}\noutput: {path: y.zarr}\n",
    "key.yaml": "data: {path: x.npy}\nmodel: {kind: pca, n_component: 3}\noutput: {path: y.zarr}\n",
    "block.yaml": "data: {path: x.npy}\nmodle: {kind: pca}\noutput: {path: y.zarr}\n",
    "value.yaml": "data: {path: x.npy}\nmodel:\n  kind: pca\n  tol: small\noutput: {path: y.zarr}\n",
    "bracket.yaml": "data: {path: x.npy\nmodel: pca\n",
    "indent.yaml": "data:\n  path: x.npy\n model:\n  kind: pca\n",
    "tab.yaml": "data:\n\tpath: x.npy\n",
    "cluster.yaml": (
        "data: {path: x.npy}\nmodel: {kind: pca}\noutput: {path: y.zarr}\n"
        "engine: {kind: slurm, memory_limit: 2GB, workers: 2, walltime: '00:10:00'}\n"
    ),
    "old.yaml": "source: {path: x.npy}\nmodel: {kind: pca}\noutput: {path: y.zarr}\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything that the mistakes are made with; none of them changes it."""
    folder = tmp_path_factory.mktemp("mistakes")
    arrays(folder)
    genotypes(folder)
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, line in MODELS.items():
            cli.cli([*line.split(), "-k", "2", "-q", "--out", name], standalone_mode=False)
    return folder


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_line_and_changes_nothing(name, folder, here, monkeypatch):
    package, line, message = MISTAKES[name]
    monkeypatch.chdir(folder)
    if package:
        monkeypatch.setitem(sys.modules, package, None)
    before = contents(folder)
    code, out, err = here(*shlex.split(line))
    assert (code, out) == (2, "")
    expected = re.escape(f"streampca: {message}\n").replace(re.escape("..."), ".*")
    assert re.fullmatch(expected, err), err
    assert contents(folder) == before


def test_the_list_has_sixty_mistakes_and_each_once():
    assert len(MISTAKES) * 2 == len(TRANSCRIPT) >= 120


@pytest.mark.parametrize("name", ["pca nowhere.npy", "pca x.npy --memroy 1GB"])
def test_a_process_ends_with_the_same_line_and_exit_code(folder, name):
    done = run(*shlex.split(name), cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"streampca: {MISTAKES[name][2]}\n")
