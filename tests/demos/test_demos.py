"""Stories told in a folder, once and again."""

import numpy as np
import pytest

import streampca
from streampca.demos import STORIES, Teller
from streampca.errors import InputError


def test_a_story_told_again_replaces_its_own_files_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    said = []
    for _ in range(2):
        picture, page = STORIES["missing"](Teller(tmp_path, said.append))
    assert said[: len(said) // 2] == said[len(said) // 2 :]
    assert (picture.name, page.name) == ("missing.png", "missing.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.txt", "missing.html", "missing.png", "missing.ppca.zarr", "missing.zarr",
    ]  # fmt: skip
    result = streampca.load(tmp_path / "missing.ppca.zarr")
    assert set(map(str, result["label"].values)) == {"0", "1", "2"}
    assert "Probabilistic principal component analysis" in page.read_text()


def test_a_story_takes_the_table_of_a_user_and_refuses_what_is_none(tmp_path):
    table = tmp_path / "mine.csv"
    np.savetxt(table, np.random.default_rng(0).normal(size=(12, 5)), delimiter=",", header="a,b,c,d,e", comments="")
    *_, page = STORIES["missing"](Teller(tmp_path, lambda _: None, table=table))
    assert "mine, 20% removed" in page.read_text()
    table.write_text("a,b\nx,y\n")
    with pytest.raises(InputError, match="is not a table of numbers"):
        STORIES["missing"](Teller(tmp_path, lambda _: None, table=table))


def test_something_of_a_users_is_not_overwritten(tmp_path):
    (tmp_path / "missing.zarr").mkdir()
    (tmp_path / "missing.zarr" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="was not written by streampca"):
        STORIES["missing"](Teller(tmp_path, lambda _: None))
    assert (tmp_path / "missing.zarr" / "mine.txt").read_text() == "mine"
