"""PLINK 2 files: calls, labels and choices as pgenlib and plink2 have them; what is refused."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import assert_close, assert_same_subspace, one_line
from source_helpers import everything

from streampca import InputError
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.sources.formats.plink1 import BedSource
from streampca.sources.formats.plink2 import PgenSource

pgenlib = pytest.importorskip("pgenlib")
M = 300
plink2 = pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not there")


def random_counts(n, m=M):
    """Copies of ALT, variants x samples, -9 for missing."""
    return np.random.default_rng(n).choice(np.array([0, 1, 2, -9], np.int8), (m, n), p=[0.4, 0.3, 0.2, 0.1])


def as_floats(counts):
    return np.where(counts < 0, np.nan, counts).T


def write_tables(prefix, n, m, alt=None):
    with open(f"{prefix}.pvar", "w") as file:
        file.write("##fileformat=VCFv4.2\n##contig=<ID=1>\n#CHROM\tPOS\tID\tREF\tALT\tINFO\n")
        for j in range(m):
            file.write(f"{1 + j % 2}\t{j + 1}\trs{j}\tA\t{alt[j] if alt else 'G'}\tPR\n")
    with open(f"{prefix}.psam", "w") as file:
        file.write("#IID\tSEX\n" + "".join(f"s{i}\tNA\n" for i in range(n)))


def write(prefix, counts):
    m, n = counts.shape
    with pgenlib.PgenWriter(f"{prefix}.pgen".encode(), n, variant_ct=m, nonref_flags=False) as writer:
        for row in counts:
            writer.append_biallelic(np.ascontiguousarray(row))
    write_tables(prefix, n, m)
    return prefix.with_suffix(".pgen")


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "x", random_counts(9))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13])
def test_calls_count_copies_of_alt(tmp_path, n):
    counts = random_counts(n)
    source = PgenSource(write(tmp_path / "x", counts))
    assert source.shape == (n, M)
    np.testing.assert_array_equal(everything(source), as_floats(counts))
    np.testing.assert_array_equal(source.read(slice(0, n), slice(120, 140))[0], as_floats(counts)[:, 120:140])


def test_several_alt_alleles_count_as_one(tmp_path):
    alleles = np.array([[0, 0, 0, 1, 1, 1, -9, -9], [0, 2, 1, 2, 2, 2, 0, 0], [3, 3, 0, 3, -9, -9, 1, 2]], np.int32)
    prefix = tmp_path / "x"
    with pgenlib.PgenWriter(b"%b.pgen" % str(prefix).encode(), 4, variant_ct=3, allele_ct_limit=4) as writer:
        for row, n_alleles in zip(alleles, (2, 3, 4), strict=True):
            writer.append_alleles(row, allele_ct=n_alleles)
    write_tables(prefix, 4, 3, ["G", "G,T", "G,T,C"])
    source = PgenSource(prefix.with_suffix(".pgen"))
    expected = [[0, 1, 2, np.nan], [1, 2, 2, 0], [2, 1, np.nan, 2]]
    np.testing.assert_array_equal(everything(source).T, expected)
    assert source.label("allele_1").tolist() == ["G", "G,T", "G,T,C"]


def test_labels(path):
    source = PgenSource(path)
    assert source.label("iid").tolist() == [f"s{i}" for i in range(9)]
    assert source.label("fid").tolist() == ["0"] * 9
    assert source.label("chromosome").tolist()[:3] == ["1", "2", "1"]
    assert source.label("position").tolist() == list(range(1, M + 1))
    assert source.label("variant_id").tolist()[:2] == ["rs0", "rs1"]
    assert source.label("allele_1").tolist() == ["G"] * M
    assert source.label("allele_2").tolist() == ["A"] * M


def test_families_and_other_columns(path):
    path.with_suffix(".psam").write_text("##note\n#FID IID PAT\n" + "".join(f"f{i} s{i} 0\n" for i in range(9)))
    assert PgenSource(path).label("fid").tolist() == [f"f{i}" for i in range(9)]


def test_tables_of_plink_1_beside_it(path):
    path.with_suffix(".pvar").unlink()
    path.with_suffix(".psam").unlink()
    path.with_suffix(".bim").write_text("".join(f"1 rs{j} 0 {j} G A\n" for j in range(M)))
    path.with_suffix(".fam").write_text("".join(f"f s{i} 0 0 0 -9\n" for i in range(9)))
    source = PgenSource(path)
    np.testing.assert_array_equal(everything(source), as_floats(random_counts(9)))
    assert source.label("allele_1")[0] == "G"


def test_a_choice_of_samples_and_variants(path):
    samples, variants = np.array([8, 0, 3]), np.array([0, 1, 299, 298, 4, 4, 150])
    chosen = PgenSource(path).take(samples=samples).take(features=variants)
    np.testing.assert_array_equal(everything(chosen), as_floats(random_counts(9))[samples][:, variants])


def test_threads_and_copies_have_readers_of_their_own(path):
    source = PgenSource(path)
    expected = everything(source).copy()
    travelled = pickle.loads(pickle.dumps(source))
    assert travelled.fingerprint() == source.fingerprint()
    for one in (source, travelled):
        with ThreadPoolExecutor(4) as pool:
            for j, column in enumerate(
                pool.map(lambda j, s=one: s.read(slice(0, 9), slice(j, j + 1))[0].copy(), range(M))
            ):
                np.testing.assert_array_equal(column[:, 0], expected[:, j])


@plink2
def test_what_plink2_makes_of_a_bed_file(tmp_path):
    simulate_genotypes(tmp_path / "study", 61, 700, missing=0.02)
    run = ["plink2", "--bfile", "study", "--make-pgen", "--out", "new", "--threads", "1"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    ours, bed = PgenSource(tmp_path / "new.pgen"), BedSource(tmp_path / "study.bed")
    np.testing.assert_array_equal(ours.read_packed(0, 700)[0].copy(), bed.read_packed(0, 700)[0])
    for name in ("fid", "iid", "chromosome", "position", "variant_id", "allele_1", "allele_2"):
        assert ours.label(name).tolist() == bed.label(name).tolist()
    found, _ = fit_pca(ours, PCAOptions(n_components=3))
    expected, _ = fit_pca(bed, PCAOptions(n_components=3))
    assert_close(found.explained_variance, expected.explained_variance)
    assert_same_subspace(expected.components, found.components, 1e-8)


@plink2
@pytest.mark.parametrize("n_variants", [50, 40_000])
def test_a_compressed_pvar_has_the_same_variants(tmp_path, n_variants):
    simulate_genotypes(tmp_path / "study", 8, n_variants)
    for name, how in (("packed", ["vzs"]), ("plain", [])):
        run = ["plink2", "--bfile", "study", "--make-pgen", *how, "--out", name, "--threads", "1"]
        subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "packed.pvar").exists()
    packed, plain = (PgenSource(tmp_path / f"{name}.pgen") for name in ("packed", "plain"))
    assert packed.shape == (8, n_variants)
    for name in ("variant_id", "position", "allele_1", "chromosome"):
        np.testing.assert_array_equal(packed.label(name), plain.label(name))
    broken = (tmp_path / "packed.pvar.zst").read_bytes()[:-20]
    (tmp_path / "packed.pvar.zst").write_bytes(broken)
    with pytest.raises(InputError) as error:
        PgenSource(tmp_path / "packed.pgen")
    assert "packed.pvar.zst" in one_line(error)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("suffix", [".pvar", ".psam"])
def test_tables_that_are_not_there(path, suffix):
    path.with_suffix(suffix).unlink()
    with pytest.raises(InputError, match=suffix) as error:
        PgenSource(path)
    one_line(error)


@pytest.mark.parametrize(
    ("suffix", "text", "told"),
    [
        (".psam", "#IID\na\nb\n", "9 samples and 300 variants, but x.psam has 2"),
        (".pvar", "#CHROM POS ID REF ALT\n1 1 a A G\n", "x.pvar 1"),
        (".psam", "#IID SEX\na NA\nb\n", "line 3 has 1 columns, the header has 2"),
        (".psam", "#IID\na\na\n", "duplicate sample 0 a"),
        (".psam", "f a 0 0 0 -9\n", "line 1 is not a header"),
        (".pvar", "##x\n#CHROM POS ID REF\n1 1 a A\n", "line 2 is not a header"),
        (".pvar", "#CHROM POS ID REF ALT\n1 one a A G\n", "positions must be integers"),
        (".pvar", "#CHROM POS ID REF ALT\n", "is empty"),
        (".pvar", "", "is empty"),
    ],
)
def test_tables_that_do_not_fit(path, suffix, text, told):
    path.with_suffix(suffix).write_text(text)
    with pytest.raises(InputError) as error:
        PgenSource(path)
    assert told in one_line(error)


def test_a_table_that_is_not_text(path):
    path.with_suffix(".pvar").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text") as error:
        PgenSource(path)
    one_line(error)


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "gone", "folder"])
def test_damaged_files_are_named(path, damage):
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes({"cut": data[:-200], "empty": b"", "noise": data[::-1]}[damage])
    with pytest.raises(InputError) as error:
        everything(PgenSource(path))
    assert str(path) in one_line(error)


def test_without_pgenlib(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pgenlib", None)
    with pytest.raises(InputError, match=r"pip install 'streampca\[pgen\]'") as error:
        PgenSource(path)
    one_line(error)
