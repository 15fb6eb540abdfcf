"""Demonstrations run in a folder, once and again."""

import sys

import numpy as np
import pytest

import streampca
from streampca.demos import DEMOS, Demo
from streampca.errors import InputError


def test_a_demo_run_again_replaces_only_its_own_files(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    lines = []
    for _ in range(2):
        picture, page = DEMOS["missing"](Demo(tmp_path, lines.append))
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert (picture.name, page.name) == ("missing.png", "missing.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.txt", "missing.html", "missing.png", "missing.ppca.zarr", "missing.zarr",
    ]  # fmt: skip
    result = streampca.load(tmp_path / "missing.ppca.zarr")
    assert set(map(str, result["label"].values)) == {"0", "1", "2"}
    assert "Probabilistic PCA" in page.read_text()


def test_a_demo_takes_the_table_of_a_user_and_rejects_other_files(tmp_path):
    table = tmp_path / "mine.csv"
    np.savetxt(table, np.random.default_rng(0).normal(size=(12, 5)), delimiter=",", header="a,b,c,d,e", comments="")
    *_, page = DEMOS["missing"](Demo(tmp_path, lambda _: None, table=table))
    assert "mine, 20% removed" in page.read_text()
    table.write_text("a,b\nx,y\n")
    with pytest.raises(InputError, match="is not a table of numbers"):
        DEMOS["missing"](Demo(tmp_path, lambda _: None, table=table))


def test_files_of_a_user_are_not_overwritten(tmp_path):
    (tmp_path / "missing.zarr").mkdir()
    (tmp_path / "missing.zarr" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="was not written by streampca"):
        DEMOS["missing"](Demo(tmp_path, lambda _: None))
    assert (tmp_path / "missing.zarr" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_that_cannot_draw_ends_before_it_computes(name, tmp_path, monkeypatch):
    for module in [module for module in sys.modules if module.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'streampca\[plot\]'"):
        DEMOS[name](Demo(tmp_path, lambda _: None))
    assert not list(tmp_path.iterdir())
