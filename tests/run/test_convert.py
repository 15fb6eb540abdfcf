"""Converting genotypes to VCF Zarr: read back, they are the same bits."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import struct
import subprocess
from importlib import import_module

import numpy as np
import pytest
import xarray
import zarr
from helpers import one_line
from source_helpers import everything

from streampca import PCA, InputError
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.run.convert import convert
from streampca.run.vcf import LAST_BLOCK
from streampca.sources import open_genotypes
from streampca.sources.formats.plink1 import BedSource

HAS_VCF = all(importlib.util.find_spec(name) for name in ("bio2zarr", "cyvcf2"))
LABELS = ("iid", "chromosome", "position", "variant_id", "allele_1", "allele_2")
VCF = """\
##fileformat=VCFv4.3
##contig=<ID=chr1>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
##FORMAT=<ID=DS,Number=1,Type=Float,Description="Dosage">
#CHROM	POS	ID	REF	ALT	QUAL	FILTER	INFO	FORMAT	a	b	c
chr1	10	rs1	A	G	.	.	.	GT:DS	0/0:0.25	0/1:1	1|1:2
chr1	20	.	A	G,T	.	.	.	GT:DS	0/2:0.5	1/2:.	./.:1
chr1	30	rs3	A	C	.	.	.	GT:DS	1:0	0/.:.	0:1
"""


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(import_module("streampca.run.convert"), "CHUNK", (16, 8))


def study(folder, n=21, m=50):
    simulate_genotypes(folder / "study", n, m, missing=0.1)
    return folder / "study.bed"


def assert_same(store, source):
    ours = open_genotypes(store, autosomes=False)
    m = source.shape[1]
    assert ours.shape == source.shape
    np.testing.assert_array_equal(ours.read_packed(0, m)[0].copy(), source.read_packed(0, m)[0])
    for name in LABELS:
        assert ours.label(name).tolist() == source.label(name).tolist()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n", [1, 7, 8, 21])
def test_a_bed_file_comes_back_as_it_was(tmp_path, n):
    bed = study(tmp_path, n)
    steps = []
    convert(bed, tmp_path / "new.vcz", progress=steps.append)
    assert_same(tmp_path / "new.vcz", BedSource(bed))
    assert [(step.done, step.total) for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_calls_are_those_of_another_reader(tmp_path):
    bed_reader = pytest.importorskip("bed_reader")
    bed = study(tmp_path)
    for table in (bed.with_suffix(".fam"), bed.with_suffix(".bim")):
        table.write_text(table.read_text().replace(" ", "\t"))
    convert(str(bed.with_suffix("")), tmp_path / "new.vcz")
    group = zarr.open_group(tmp_path / "new.vcz", mode="r")
    with bed_reader.open_bed(bed) as reader:
        copies, ref, alt = reader.read(dtype="int8").T, reader.allele_2, reader.allele_1
    calls = group["call_genotype"][...]
    np.testing.assert_array_equal(np.where((calls < 0).any(axis=2), -127, calls.sum(axis=2)), copies)
    np.testing.assert_array_equal(group["variant_allele"][...], np.stack([ref, alt], axis=1))
    assert (calls[..., 0] <= calls[..., 1]).all()


def test_the_layout_is_that_of_the_specification(tmp_path):
    bed = study(tmp_path)
    convert(bed, tmp_path / "new.vcz")
    group = zarr.open_group(tmp_path / "new.vcz", mode="r")
    dims = {name: array.metadata.dimension_names for name, array in group.arrays()}
    assert dims == {
        "call_genotype": ("variants", "samples", "ploidy"),
        "sample_id": ("samples",),
        "contig_id": ("contigs",),
        "variant_contig": ("variants",),
        "variant_position": ("variants",),
        "variant_id": ("variants",),
        "variant_allele": ("variants", "alleles"),
    }
    assert (group.metadata.zarr_format, group["call_genotype"].dtype) == (3, np.int8)
    assert group["variant_position"].dtype == np.int32
    attributes = dict(group.attrs)
    assert json.loads(attributes.pop("run"))["config"]["convert"] == {"source": str(bed)}
    assert attributes == {"kind": "vcf_zarr", "format_version": 1, "vcf_zarr_version": "0.4", "source": str(bed)}


def test_contigs_come_in_the_order_of_the_file(tmp_path):
    bed = study(tmp_path, m=6)
    chromosomes = ["X", "X", "2", "10", "10", "2"]
    bed.with_suffix(".bim").write_text(
        "".join(f"{c} s{j} 0 {3_000_000_000 + j} A G\n" for j, c in enumerate(chromosomes))
    )
    convert(bed, tmp_path / "new.vcz")
    assert zarr.open_group(tmp_path / "new.vcz", mode="r")["contig_id"][...].tolist() == ["X", "2", "10"]
    assert_same(tmp_path / "new.vcz", BedSource(bed))


def test_samples_whose_iid_repeats_are_told_apart_by_family(tmp_path):
    bed = study(tmp_path, n=3)
    bed.with_suffix(".fam").write_text("a 1 0 0 0 0\nb 1 0 0 0 0\nb 2 0 0 0 0\n")
    convert(bed, tmp_path / "new.vcz")
    assert open_genotypes(tmp_path / "new.vcz", autosomes=False).label("iid").tolist() == ["a_1", "b_1", "b_2"]
    bed.with_suffix(".fam").write_text("a b_c 0 0 0 0\na_b c 0 0 0 0\nx c 0 0 0 0\n")
    with pytest.raises(InputError, match="duplicate sample name a_b_c") as error:
        convert(bed, tmp_path / "other.vcz")
    one_line(error)
    assert not list(tmp_path.glob("*other*"))


@pytest.mark.usefixtures("small_chunks")
def test_a_choice_of_a_source(tmp_path):
    source = BedSource(study(tmp_path)).take(samples=np.arange(3, 20), features=np.arange(1, 50, 2))
    convert(source, tmp_path / "new.vcz")
    assert_same(tmp_path / "new.vcz", source)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not there")
def test_a_pgen_file(tmp_path):
    pytest.importorskip("pgenlib")
    bed = study(tmp_path)
    run = ["plink2", "--bfile", "study", "--make-pgen", "--out", "new", "--threads", "1"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    convert(tmp_path / "new", tmp_path / "new.vcz")
    assert_same(tmp_path / "new.vcz", BedSource(bed))


def test_only_a_store_of_ours_is_overwritten(tmp_path):
    bed, out = study(tmp_path), tmp_path / "new.vcz"
    convert(bed, out)
    simulate_genotypes(tmp_path / "study", 5, 7)
    with pytest.raises(InputError, match="exists already"):
        convert(bed, out)
    convert(bed, out, overwrite=True)
    assert_same(out, BedSource(bed))
    zarr.open_group(tmp_path / "theirs.zarr", mode="w")
    with pytest.raises(InputError, match="was not written by streampca"):
        convert(bed, tmp_path / "theirs.zarr", overwrite=True)


@pytest.mark.usefixtures("small_chunks")
def test_a_conversion_resumes_after_the_chunks_that_are_written(tmp_path, monkeypatch):
    bed, out = study(tmp_path), tmp_path / "out" / "new.vcz"
    out.parent.mkdir()

    def interrupt(step):
        if step.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(bed, out, progress=interrupt)
    assert [path.name for path in out.parent.iterdir()] == ["new.vcz.unfinished"]
    starts, read_packed = [], BedSource.read_packed
    monkeypatch.setattr(BedSource, "read_packed", lambda self, a, b: (starts.append(a), read_packed(self, a, b))[1])
    convert(bed, out)
    assert starts == [32, 48]
    assert_same(out, BedSource(bed))
    assert [path.name for path in out.parent.iterdir()] == ["new.vcz"]


@pytest.mark.parametrize("name", ["nothing", "nothing.bed", "nothing.vcf", "text.doc"])
def test_what_cannot_be_converted(tmp_path, name):
    (tmp_path / "text.doc").write_text("1,2\n")
    with pytest.raises(InputError) as error:
        convert(tmp_path / name, tmp_path / "new.vcz")
    assert name.removesuffix(".bed") in one_line(error)
    assert not (tmp_path / "new.vcz").exists()


# ---------------------------------------------------------------- VCF


def test_vcf_without_its_packages(tmp_path, monkeypatch):
    (tmp_path / "x.vcf").write_text(VCF)
    monkeypatch.setattr(import_module("streampca.run.convert"), "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"pip install 'streampca\[vcf\]'") as error:
        convert(tmp_path / "x.vcf", tmp_path / "new.vcz")
    one_line(error)


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_a_vcf_file(tmp_path):
    (tmp_path / "x.vcf").write_text(VCF)
    convert(tmp_path / "x.vcf", tmp_path / "new.vcz")
    convert(tmp_path / "x.vcf", tmp_path / "new.vcz", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"x.vcf", "new.vcz"}
    source = open_genotypes(tmp_path / "new.vcz", autosomes=False)
    np.testing.assert_array_equal(everything(source).T, [[0, 1, 2], [1, 2, np.nan], [2, np.nan, 0]])
    assert source.label("allele_1").tolist() == ["G", "G,T", "C"]
    assert source.label("iid").tolist() == ["a", "b", "c"]
    dosages = open_genotypes(tmp_path / "new.vcz", variable="call_DS", autosomes=False)
    np.testing.assert_array_equal(everything(dosages).T, [[0.25, 1, 2], [0.5, np.nan, 1], [0, np.nan, 1]])


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_a_vcf_file_that_bio2zarr_refuses(tmp_path):
    second = VCF.replace("chr1>", "chr1>\n##contig=<ID=chr2>").replace("chr1\t30", "chr2\t30")
    (tmp_path / "x.vcf").write_text(second)
    with pytest.raises(InputError, match="run: bcftools view .* && bcftools index") as error:
        convert(tmp_path / "x.vcf", tmp_path / "new.vcz")
    one_line(error)
    assert {path.name for path in tmp_path.iterdir()} == {"x.vcf"}


GZIPPED = gzip.compress(VCF.encode())
# One block of bgzip: gzip with its length in the header.
BLOCK = GZIPPED[:3] + b"\x04" + GZIPPED[4:10] + b"\x06\0BC\x02\0" + struct.pack("<H", len(GZIPPED) + 7) + GZIPPED[10:]


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.vcf", VCF.replace("##contig=<ID=chr1>\n", ""), "bcftools reheader --fai"),
        ("x.vcf", VCF[:-9], "does not match the number of samples"),
        ("x.vcf", "".join(VCF.splitlines(True)[:5]), "no variants"),
        ("x.vcf", VCF.replace("chr1\t10\t", "chr1\t2147483648\t"), "positions above 2,147,483,647"),
        ("x.vcf", VCF.replace("\tFORMAT\ta\tb\tc", ""), "no samples"),
        ("x.vcf", "chr1\t10", "not valid"),
        ("x.vcf.gz", GZIPPED[:-40], "truncated"),
        ("x.vcf.gz", BLOCK, "last block of bgzip is missing"),
        ("x.vcf.gz", BLOCK[:-40] + b"x" + BLOCK[-39:] + LAST_BLOCK, "cannot convert"),
    ],
)
def test_a_damaged_vcf_file_is_one_line(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=told) as error:
        convert(tmp_path / name, tmp_path / "new.vcz")
    assert str(tmp_path / name) in one_line(error)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_a_vcf_file_compressed_by_bgzip(tmp_path):
    (tmp_path / "x.vcf.gz").write_bytes(BLOCK + LAST_BLOCK)
    convert(tmp_path / "x.vcf.gz", tmp_path / "new.vcz")
    assert open_genotypes(tmp_path / "new.vcz", autosomes=False).shape == (3, 3)


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_a_crash_of_htslib_is_one_line(tmp_path, monkeypatch):
    crashing = tmp_path / "crashing.py"
    crashing.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(import_module("streampca.run.vcf"), "__file__", str(crashing))
    (tmp_path / "x.vcf").write_text(VCF)
    with pytest.raises(InputError, match=r"htslib crashes when it reads it \(signal 11\)") as error:
        convert(tmp_path / "x.vcf", tmp_path / "new.vcz")
    one_line(error)
    assert not (tmp_path / "new.vcz").exists()


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_an_error_by_which_htslib_ends_its_process_is_one_line(tmp_path, monkeypatch):
    ending = tmp_path / "ending.py"
    ending.write_text("import sys\nsys.exit('[E::bcf_get_format_values] Unexpected type 0 at 1:1\\na warning')")
    monkeypatch.setattr(import_module("streampca.run.vcf"), "__file__", str(ending))
    (tmp_path / "x.vcf").write_text(VCF)
    with pytest.raises(InputError, match=r"is damaged, htslib ends when it reads it \(Unexpected type 0 at 1:1\)"):
        convert(tmp_path / "x.vcf", tmp_path / "new.vcz")


@pytest.mark.skipif(not HAS_VCF, reason="bio2zarr or cyvcf2 is not there")
def test_records_that_the_index_does_not_lead_to_are_not_lost(tmp_path):
    # A tabix index: columns, one name, one bin with one chunk, counts, and one entry of the linear index.
    start, end = VCF.index("chr1\t10"), len(BLOCK) << 16
    index = b"TBI\1" + struct.pack("<8i", 1, 2, 1, 2, 0, ord("#"), 0, 5) + b"chr1\0" + struct.pack("<i", 2)
    index += struct.pack("<IiQQ", 4681, 1, start, end) + struct.pack("<IiQQQQ", 37450, 2, start, end, 3, 0)
    (tmp_path / "x.vcf.gz.tbi").write_bytes(gzip.compress(index + struct.pack("<iQQ", 1, start, 0)))
    (tmp_path / "x.vcf.gz").write_bytes(BLOCK + LAST_BLOCK)
    convert(tmp_path / "x.vcf.gz", tmp_path / "new.vcz")
    assert open_genotypes(tmp_path / "new.vcz", autosomes=False).shape == (3, 3)
    (tmp_path / "x.vcf.gz").write_bytes(BLOCK + BLOCK + LAST_BLOCK)
    with pytest.raises(InputError, match=r"index is of another file.*run: bcftools index --force .*x.vcf.gz$"):
        convert(tmp_path / "x.vcf.gz", tmp_path / "other.vcz")


TABLES = {
    "plain.csv": "1,2\n3,\n-5e-1,6\n",
    "named.csv": "height,weight\n1,2\n3,NA\n-0.5,6\n",
    "ids.tsv": "id\theight\tweight\na\t1\t2\nb\t3\t\nc\t-0.5\t6\n",
    "labels.csv": "id,height,weight,group\na,1,2,x\nb,3,,y\nc,-0.5,6,x\n",
    "spaces.txt": "1  2\n3 nan\n-0.5 6\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_becomes_an_array_with_its_names(tmp_path, name, monkeypatch):
    # Two rows a chunk, so that the last one is not full.
    monkeypatch.setattr("streampca.run.number_table.CHUNK_BYTES", 32)
    (tmp_path / name).write_text(TABLES[name])
    convert(tmp_path / name, tmp_path / "t.zarr")
    found = xarray.open_zarr(tmp_path / "t.zarr", consolidated=False)
    assert found["values"].dims == ("sample", "feature")
    np.testing.assert_array_equal(found["values"], [[1, 2], [3, np.nan], [-0.5, 6]])
    named = name not in ("plain.csv", "spaces.txt")
    assert ("feature" in found.coords) == named
    if named:
        assert found["feature"].values.tolist() == ["height", "weight"]
    if name.startswith(("ids", "labels")):
        assert found["sample"].values.tolist() == ["a", "b", "c"]
    assert found["label"].values.tolist() == ["x", "y", "x"] if name == "labels.csv" else "label" not in found
    model = PCA(1, missing="mean").fit(tmp_path / "t.zarr")
    assert model.n_features_in_ == 2


@pytest.mark.parametrize(
    ("text", "problem"), [("a,b\nx,y\n", "no column of numbers"), ("", "cannot be read as a table")]
)
def test_a_table_without_numbers_is_an_error(tmp_path, text, problem):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=f"t.csv: .*{problem}"):
        convert(tmp_path / "t.csv", tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()
