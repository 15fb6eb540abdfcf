"""Regions: built-in lists, lists in files, and which variants lie in them."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.errors import InputError
from streampca.sources.genotypes import TEXT
from streampca.sources.regions import Region, in_regions, read_regions


@pytest.mark.parametrize(
    ("name", "build"), [("GRCh37", "GRCh37"), ("hg19", "GRCh37"), ("grch38", "GRCh38"), ("HG38", "GRCh38")]
)
def test_builds_have_names(name, build):
    assert read_regions(name) == read_regions(build)


@pytest.mark.parametrize("build", ["GRCh37", "GRCh38"])
def test_lists_are_sorted_and_apart(build):
    regions = [(int(r.chromosome), r.first, r.last) for r in read_regions(build)]
    assert regions == sorted(regions)
    for (code, first, last), (other, begin, _) in zip(regions, regions[1:], strict=False):
        assert first < last
        assert other > code or begin > last


def test_both_builds_list_the_same_regions():
    old, new = read_regions("GRCh37"), read_regions("GRCh38")
    assert [(r.chromosome, r.name) for r in old] == [(r.chromosome, r.name) for r in new]
    # Builds differ by shifts of at most two megabases; regions around centromeres change their length.
    assert all(abs(a.first - b.first) < 2.1e6 and abs(a.last - b.last) < 2.1e6 for a, b in zip(old, new, strict=True))


# A position in each of LCT, HLA-DQA1, BLK (in the inversion), MAPT, SH2B3 and, in no region, TP53, in both builds.
@pytest.mark.parametrize(
    ("code", "old", "new", "name"),
    [
        ("2", 136608646, 135851076, "LCT"),
        ("6", 32605106, 32637329, "HLA"),
        ("8", 11351510, 11494001, "8p23 inversion"),
        ("17", 43971748, 45894382, "17q21 inversion"),
        ("12", 111884608, 111446804, "SH2B3"),
        ("17", 7571720, 7668402, None),
    ],
)
def test_known_genes(code, old, new, name):
    for build, position in (("GRCh37", old), ("GRCh38", new)):
        found = [r.name for r in read_regions(build) if r.chromosome == code and r.first <= position <= r.last]
        assert found == ([] if name is None else [name])


def test_file_of_regions(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# mine\nchr6\t25000000\t33500000\tthe HLA\n\n8 8000000 12000000  # inversion\n x 5 5\n")
    assert read_regions(path) == (
        Region("6", 25000000, 33500000, "the HLA"),
        Region("8", 8000000, 12000000),
        Region("X", 5, 5),
    )
    assert read_regions(str(path)) == read_regions(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("6 1 2\n6 25000000\n", "line 2 is '6 25000000'"),
        ("6 1e6 2e6\n", "line 1 is '6 1e6 2e6'"),
        ("6 -5 7\n", "line 1"),
        ("chrom first last\n", "line 1"),
        ("# none\n6 9 7\n", "line 2 has first position 9 after the last, 7"),
        ("# none\n\n", "has no regions"),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "mine.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_regions(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_neither_build_nor_file(tmp_path):
    with pytest.raises(InputError, match=r"hg18: cannot be read \(No such file .*\); give GRCh37 .* GRCh38"):
        read_regions("hg18")
    with pytest.raises(InputError, match="cannot be read"):
        read_regions(tmp_path)
    binary = tmp_path / "x.bed"
    binary.write_bytes(b"\x6c\x1b\x01\xff\xfe")
    with pytest.raises(InputError, match="not text"):
        read_regions(binary)


def test_in_regions_takes_both_ends_and_all_spellings():
    codes = np.array(["1", "chr6", "chr6", "6", "6", "Chr6", "7", "6", "X", "chrx"], TEXT)
    positions = np.array([15, 9, 10, 20, 21, 30, 15, 15, 15, 16])
    regions = (Region("6", 10, 20), Region("6", 15, 30, "over it"), Region("X", 16, 16))
    expected = [False, False, True, True, True, True, False, True, False, True]
    assert in_regions(codes, positions, regions).tolist() == expected
    assert not in_regions(codes, positions, ()).any()


def test_in_regions_is_what_each_variant_says(rng):
    regions = read_regions("GRCh37")
    codes = rng.integers(1, 23, 3000)
    positions = rng.integers(0, 200_000_000, 3000)
    expected = [
        any(r.chromosome == str(c) and r.first <= p <= r.last for r in regions)
        for c, p in zip(codes, positions, strict=True)
    ]
    assert in_regions(np.array([str(c) for c in codes], TEXT), positions, regions).tolist() == expected
