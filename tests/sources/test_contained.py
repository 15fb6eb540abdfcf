"""Links out of a Zarr store are not followed: they may lead to private files of the reader."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
import zarr
from helpers import one_line
from source_helpers import assert_reads_as, everything, numbers

from streampca import PCA, InputError, load, open_source

LINKED = ("chunk", "directory", "metadata", "shard")


@pytest.fixture
def hostile(tmp_path):
    """Return a function that makes a store with a link to a private file, and its values."""

    def make(what):
        expected = numbers(np.dtype("f4"))
        shards = {"shards": expected.shape, "chunks": (1, expected.shape[1])} if what == "shard" else {}
        options = {"chunks": expected.shape, "compressors": None} | shards
        zarr.create_array(tmp_path / "x.zarr", data=expected, **options)
        place = tmp_path / "x.zarr" / {"metadata": "zarr.json", "directory": "c/0"}.get(what, "c/0/0")
        private = tmp_path / "private"
        shutil.move(place, private)
        place.symlink_to(private)
        return tmp_path / "x.zarr", expected

    return make


@pytest.mark.parametrize("url", ["", "file://"])
@pytest.mark.parametrize("what", LINKED)
def test_a_link_out_of_the_store_is_an_error(hostile, what, url):
    path, _ = hostile(what)
    with pytest.raises(InputError, match=r"is a link out of the store; .*external_files='read'") as caught:
        everything(open_source(f"{url}{path}"))
    one_line(caught)


@pytest.mark.parametrize("what", LINKED)
def test_a_link_out_of_the_store_is_read_if_asked_for(hostile, what):
    path, expected = hostile(what)
    assert_reads_as(open_source(path, external_files="read"), expected)


def test_a_store_that_is_a_link_itself_and_links_inside_it_are_read(tmp_path, hostile):
    path, expected = hostile("chunk")
    os.replace(tmp_path / "private", path / "other")
    (path / "c" / "0" / "0").unlink()
    (path / "c" / "0" / "0").symlink_to("../../other")
    (tmp_path / "link.zarr").symlink_to(path)
    assert_reads_as(open_source(tmp_path / "link.zarr"), expected)


def test_labels_that_are_links_are_an_error(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("f4")
    group.create_array("x", data=x, dimension_names=("place", "time"))
    group.create_array("place", data=np.arange(6), dimension_names=("place",), compressors=None)
    (tmp_path / "private").write_bytes((tmp_path / "x.zarr" / "place" / "c" / "0").read_bytes())
    (tmp_path / "x.zarr" / "place" / "c" / "0").unlink()
    (tmp_path / "x.zarr" / "place" / "c" / "0").symlink_to(tmp_path / "private")
    with pytest.raises(InputError, match="is a link out of the store"):
        everything(open_source(tmp_path / "x.zarr"))


def test_a_result_with_links_is_an_error(tmp_path):
    PCA(2).fit(np.random.default_rng(0).normal(size=(50, 4))).save(tmp_path / "out.zarr")
    chunk = tmp_path / "out.zarr" / "components" / "c" / "0" / "0"
    shutil.move(chunk, tmp_path / "private")
    chunk.symlink_to(tmp_path / "private")
    with pytest.raises(InputError, match="is a link out of the store"):
        load(tmp_path / "out.zarr")


def test_commands_pass_the_option_and_the_repeated_command_has_it(hostile, here):
    path, _ = hostile("chunk")
    code, _, error = here("pca", path, "-k", "2", "--quiet", "--out", "out.zarr")
    assert code == 2
    assert "is a link out of the store" in error
    code, _, error = here("pca", path, "-k", "2", "--quiet", "--out", "out.zarr", "--external-files", "read")
    assert code == 0, error
    assert '"external_files": "read"' in load("out.zarr").attrs["parameters"]


def test_another_word_is_an_error(hostile):
    path, _ = hostile("chunk")
    with pytest.raises(InputError, match="external_files must be 'error' or 'read', got 'yes'"):
        open_source(path, external_files="yes")
