"""Selection of variants and samples: chromosomes, random parts, duplicates, ids that are not found; as plink2 does."""

from __future__ import annotations

import numpy as np
import pytest
from genotype_helpers import needs_plink2, plink2, random_calls, write_bed
from helpers import one_line

from streampca import InputError, open_genotypes

CODES = np.repeat(["1", "2", "3", "10", "22", "X", "MT"], 10)


@pytest.fixture
def path(tmp_path):
    return write_bed(tmp_path / "x", random_calls(20, 70, 1), chromosome=CODES)


def ids_of(source):
    return source.label("variant_id").tolist()


@needs_plink2
@pytest.mark.parametrize("given", ["1", "2-10", "1,3,22", "x", "1-3,X", "22,MT"])
def test_chromosomes_are_those_of_plink2(path, tmp_path, given):
    plink2("--bfile", "x", "--chr", given, "--write-snplist", "--out", "p", cwd=tmp_path)
    source = open_genotypes(path, chr=given)
    assert ids_of(source) == (tmp_path / "p.snplist").read_text().split()
    assert source.notes[-1].endswith(f"by chr {given}")


def test_prefix_of_chromosomes_does_not_matter(tmp_path):
    path = write_bed(tmp_path / "x", random_calls(20, 70, 1), chromosome=[f"chr{code}" for code in CODES])
    assert open_genotypes(path, chr="2-3,chrX").shape[1] == 30


def test_chromosome_that_is_missing(path):
    with pytest.raises(InputError) as error:
        open_genotypes(path, chr="7")
    assert "no chromosome of chr '7'; it has 1, 10, 2, 22, 3, MT, X" in one_line(error)


def test_random_parts_are_of_the_given_size_and_always_the_same(path):
    few = open_genotypes(path, thin_count=12)
    assert few.shape[1] == 12
    assert ids_of(few) == ids_of(open_genotypes(path, thin_count=12))
    # Of the 50 autosomal variants, in their order.
    assert few.notes[-1] == "variants excluded: 38 by thin_count 12"
    assert ids_of(few) == sorted(ids_of(few), key=lambda name: int(name[2:]))
    assert open_genotypes(path, thin_count=500).shape[1] == 50
    half = open_genotypes(path, thin=0.5)
    assert 12 < half.shape[1] < 38
    assert open_genotypes(path, thin=1.0).shape[1] == 50
    for wrong in ({"thin": 0.0}, {"thin": 1.5}, {"thin_count": 0}, {"thin": 0.5, "thin_count": 3}):
        with pytest.raises(InputError, match="thin"):
            open_genotypes(path, **wrong)


@pytest.fixture
def doubled(tmp_path):
    """rs3 three times, once with swapped alleles; rs5 twice with other alleles; two variants without an id."""
    ids, first, second = [f"rs{j}" for j in range(40)], ["A"] * 40, ["G"] * 40
    ids[10] = ids[20] = "rs3"
    first[20], second[20] = "G", "A"
    ids[11], first[11] = "rs5", "T"
    ids[30] = ids[31] = "."
    calls = random_calls(20, 40, 1)
    calls[:, 10], calls[:, 20] = calls[:, 3], 2 - calls[:, 3]
    return write_bed(tmp_path / "x", calls, sid=ids, allele_1=first, allele_2=second)


def test_duplicates_are_listed_or_removed(doubled):
    with pytest.raises(InputError) as error:
        open_genotypes(doubled)
    assert "1 duplicate variants (rs3 A G); make them unique, or use --rm-dup force-first" in one_line(error)
    first = open_genotypes(doubled, rm_dup="force-first")
    assert first.shape[1] == 38
    assert ids_of(first).index("rs3") == 3
    assert "variants excluded: 2 duplicates (1 ids)" in first.notes
    every = open_genotypes(doubled, rm_dup="exclude-all")
    assert every.shape[1] == 37
    assert "rs3" not in ids_of(every)
    assert ids_of(every).count("rs5") == 2
    assert open_genotypes(doubled, rm_dup="keep").shape[1] == 40
    with pytest.raises(InputError, match="rm_dup must be one of"):
        open_genotypes(doubled, rm_dup="all")


def test_duplicates_that_are_excluded_otherwise_do_not_matter(doubled):
    assert open_genotypes(doubled, exclude=["rs3"]).shape[1] == 37


@needs_plink2
@pytest.mark.parametrize("mode", ["force-first", "exclude-all"])
def test_duplicates_are_removed_as_by_plink2(tmp_path, mode):
    calls = random_calls(20, 30, 1)
    ids = [f"rs{j}" for j in range(30)]
    ids[7] = ids[9] = "rs2"
    path = write_bed(tmp_path / "x", calls, sid=ids)
    plink2("--bfile", "x", "--rm-dup", mode, "--write-snplist", "--out", "p", cwd=tmp_path)
    assert ids_of(open_genotypes(path, rm_dup=mode)) == (tmp_path / "p.snplist").read_text().split()


def test_ids_that_are_not_found_are_counted(path, tmp_path):
    (tmp_path / "who.txt").write_text("f1 i1\nf2 i2\nf1 i9\ni4\nnobody\n")
    source = open_genotypes(path, keep=tmp_path / "who.txt")
    assert source.label("iid").tolist() == ["i1", "i2", "i4"]
    assert source.notes[0].startswith("samples excluded: 17 by keep of ")
    assert source.notes[0].endswith("who.txt, 2 of its 5 ids not found")
    assert open_genotypes(path, keep=["i1", "i2"]).notes[0] == "samples excluded: 18 by keep of the list"
    source = open_genotypes(path, exclude=["rs1", "rs2", "rs99"], autosomes=False)
    assert source.notes == ("variants excluded: 2 by exclude of the list, 1 of its 3 ids not found",)


def test_other_chromosomes_are_named(path):
    assert open_genotypes(path).notes == ("variants excluded: 20 not on chromosomes 1 to 22 (MT, X)",)
