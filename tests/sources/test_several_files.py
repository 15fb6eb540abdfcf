"""Genotypes in several files are those of one joined file."""

from __future__ import annotations

import numpy as np
import pytest
from bgen import BgenWriter
from genotype_helpers import random_calls, write_bed

from streampca import PCA
from streampca.errors import InputError
from streampca.sources import open_source


@pytest.fixture
def files(tmp_path):
    """Write one .bed of 22 chromosomes, and one file for each."""
    calls = random_calls(53, 660, seed=5)
    chromosomes = np.repeat(np.arange(1, 23), 30).astype(str)
    ids = np.array([f"rs{i}" for i in range(660)])
    write_bed(tmp_path / "all", calls, chromosome=chromosomes, sid=ids)
    for number in range(1, 23):
        own = chromosomes == str(number)
        write_bed(tmp_path / f"chr{number}", calls[:, own], chromosome=chromosomes[own], sid=ids[own])
    return tmp_path


def test_twenty_two_files_give_the_same_bits_as_one(files):
    one = PCA(4, random_state=0).fit(files / "all.bed")
    several = PCA(4, random_state=0).fit(str(files / "chr*.bed"))
    assert np.array_equal(several.components_, one.components_)
    assert np.array_equal(several.explained_variance_, one.explained_variance_)
    assert np.array_equal(several.result_["variant_id"], one.result_["variant_id"])


def test_a_list_of_paths_and_a_file_of_paths(files):
    paths = [files / f"chr{number}.bed" for number in (3, 1, 2)]
    (files / "three.list").write_text("".join(f"{path}\n" for path in paths))
    expected = open_source(files / "all.bed").label("variant_id")
    for given in (paths, files / "three.list"):
        assert open_source(given).label("variant_id").tolist() == [*expected[60:90], *expected[:60]]


def test_selections_cross_the_borders_of_files(files, rng):
    whole, several = open_source(files / "all.bed"), open_source(str(files / "chr*.bed"))
    people, variants = rng.permutation(53)[:20], rng.permutation(660)[:100]
    parts = [
        source.take(samples=people, features=variants).read(slice(0, 20), slice(0, 100))[0].copy()
        for source in (whole, several)
    ]
    assert np.array_equal(*parts, equal_nan=True)


def test_dosages_in_several_files(tmp_path, rng):
    P = rng.dirichlet([1, 1, 1], (40, 30)).transpose(1, 0, 2)
    for name, rows in (("x", range(30)), ("x1", range(13)), ("x2", range(13, 30))):
        with BgenWriter(str(tmp_path / f"{name}.bgen"), 40, samples=[f"i{i}" for i in range(40)]) as file:
            for i in rows:
                file.add_variant(f"v{i}", f"rs{i}", "1", i + 1, ["A", "C"], P[i])
    one, several = open_source(tmp_path / "x.bgen"), open_source(str(tmp_path / "x[12].bgen"))
    variants = np.array([29, 3, 12, 13, 14, 0])
    people = np.array([5, 39, 2])
    for source in (one, several):
        assert source.shape == (40, 30)
    parts = [
        source.take(samples=people, features=variants).read(slice(0, 3), slice(0, 6))[0].copy()
        for source in (one, several)
    ]
    assert np.array_equal(*parts)


def test_files_of_other_samples_are_an_error(files):
    write_bed(files / "other", random_calls(53, 30, seed=6), iid=np.array([f"p{i}" for i in range(53)]))
    with pytest.raises(InputError, match="other.bed: sample 1 is .* the same samples in the same order"):
        open_source([files / "chr1.bed", files / "other.bed"])
    write_bed(files / "fewer", random_calls(50, 30, seed=6))
    with pytest.raises(InputError, match="fewer.bed: has 50 samples, .*chr1.bed has 53"):
        open_source([files / "chr1.bed", files / "fewer.bed"])


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"no file matches; check the pattern"):
        open_source(str(tmp_path / "chr*.bed"))


def test_a_pattern_in_the_shell(files, here):
    code, _, error = here("pca", "chr*.bed", "-k", "2", "--quiet")
    assert (code, error) == (0, "")
    assert (files / "chr.pca.zarr").is_dir()
