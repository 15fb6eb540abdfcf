"""EIGENSTRAT and packed ANCESTRYMAP files hold the genotypes that they were written from."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest
from genotype_helpers import random_calls, write_bed

from streampca import PCA
from streampca.errors import InputError
from streampca.sources import open_source


def write_tables(prefix, n, m):
    (prefix.with_suffix(".ind")).write_text("".join(f"  i{i} U pop{i % 3}\n" for i in range(n)))
    lines = (f"  rs{j} {1 + j % 22} 0.0 {1000 + j} A C\n" for j in range(m))
    (prefix.with_suffix(".snp")).write_text("".join(lines))


def write_text(prefix, calls, end="\n", last=True):
    """Write calls (samples x variants, copies of A1, NaN missing) as text."""
    n, m = calls.shape
    codes = np.nan_to_num(calls, nan=9).astype(int).astype(str)
    text = end.join("".join(codes[:, j]) for j in range(m))
    prefix.with_suffix(".geno").write_bytes((text + (end if last else "")).encode())
    write_tables(prefix, n, m)


def write_packed(prefix, calls):
    """Write calls as packed ANCESTRYMAP, byte by byte."""
    n, m = calls.shape
    record = max(48, -(-n // 4))
    head = f"GENO {n:7d} {m:7d} {0:x} {0:x}".encode()
    out = bytearray(head.ljust(record, b"\0"))
    for j in range(m):
        row = bytearray(record)
        for i in range(n):
            code = 3 if np.isnan(calls[i, j]) else int(calls[i, j])
            row[i // 4] |= code << (6 - 2 * (i % 4))
        out += row
    prefix.with_suffix(".geno").write_bytes(out)
    write_tables(prefix, n, m)


def values_of(path):
    source = open_source(path)
    block, _ = source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))
    return np.array(block)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 31, 32, 33, 191, 192, 193, 200])
def test_every_number_of_samples(tmp_path, n):
    calls = random_calls(n, 9, seed=n)
    write_text(tmp_path / "x", calls)
    assert np.array_equal(values_of(tmp_path / "x.geno"), calls, equal_nan=True)
    write_packed(tmp_path / "y", calls)
    assert np.array_equal(values_of(tmp_path / "y.geno"), calls, equal_nan=True)


@pytest.mark.parametrize(("end", "last"), [("\n", False), ("\r\n", True)])
def test_ends_of_lines(tmp_path, end, last):
    calls = random_calls(11, 7, seed=1)
    write_text(tmp_path / "x", calls, end, last)
    assert np.array_equal(values_of(tmp_path / "x.geno"), calls, equal_nan=True)


def test_labels_have_the_counted_allele_and_the_population(tmp_path):
    write_packed(tmp_path / "x", random_calls(11, 7, seed=1))
    source = open_source(tmp_path / "x.geno")
    assert [source.label(name)[1] for name in ("iid", "population", "variant_id", "allele_1")] == [
        "i1",
        "pop1",
        "rs1",
        "A",
    ]


def test_components_are_those_of_the_same_bed(tmp_path):
    calls = random_calls(60, 300, seed=3)
    write_bed(tmp_path / "b", calls)
    write_packed(tmp_path / "x", calls)
    write_text(tmp_path / "y", calls)
    expected = PCA(3).fit(tmp_path / "b.bed").explained_variance_
    assert np.array_equal(PCA(3).fit(tmp_path / "x.geno").explained_variance_, expected)
    assert np.array_equal(PCA(3).fit(tmp_path / "y").explained_variance_, expected)


@pytest.mark.skipif(shutil.which("convertf") is None, reason="EIGENSOFT is not installed")
@pytest.mark.parametrize("kind", ["EIGENSTRAT", "PACKEDANCESTRYMAP"])
def test_files_of_convertf(tmp_path, kind):
    calls = random_calls(50, 80, seed=4)
    write_bed(tmp_path / "b", calls)
    (tmp_path / "par").write_text(
        "genotypename: b.bed\nsnpname: b.bim\nindivname: b.fam\n"
        f"outputformat: {kind}\ngenotypeoutname: x.geno\nsnpoutname: x.snp\nindivoutname: x.ind\nfamilynames: NO\n"
    )
    subprocess.run(["convertf", "-p", "par"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    kept = open_source(tmp_path / "x.geno")
    bed = open_source(tmp_path / "b.bed")
    places = [list(bed.label("variant_id")).index(name) for name in kept.label("variant_id")]
    same = np.array_equal(kept.label("allele_1"), bed.label("allele_1")[places])
    values = values_of(tmp_path / "x.geno")
    assert same
    assert len(places) >= 70
    assert np.array_equal(values, calls[:, places], equal_nan=True)


def test_bad_files_are_one_line(tmp_path):
    calls = random_calls(11, 7, seed=1)
    write_text(tmp_path / "x", calls)
    text = (tmp_path / "x.geno").read_bytes()
    (tmp_path / "x.geno").write_bytes(text[:-20])
    with pytest.raises(InputError, match="64 bytes, but 11 samples and 7 variants take 84; the file is truncated"):
        open_source(tmp_path / "x.geno")
    (tmp_path / "x.geno").write_bytes(text.replace(b"1", b"7", 1))
    with pytest.raises(InputError, match=r"x.geno: line \d, column \d+ is '7'; expected 0, 1, 2 or 9"):
        values_of(tmp_path / "x.geno")
    write_packed(tmp_path / "x", calls)
    (tmp_path / "x.ind").write_text("a U p\nb U p\n")
    with pytest.raises(InputError, match="its header has 11 x 7 samples and variants, but x.ind has 2 and x.snp 7"):
        open_source(tmp_path / "x.geno")
    (tmp_path / "x.geno").write_bytes(b"TGENO" + bytes(100))
    with pytest.raises(InputError, match="is transposed .* convertf"):
        open_source(tmp_path / "x.geno")
