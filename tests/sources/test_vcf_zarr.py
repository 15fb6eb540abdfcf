"""VCF Zarr stores of both formats: calls of every kind, labels, choices of samples and variants, damage."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import assert_close, assert_same_subspace, one_line
from source_helpers import everything

from streampca import InputError
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.sources import open_genotypes, open_source
from streampca.sources.formats.plink1 import BedSource
from streampca.sources.vcf_zarr import VcfZarrSource
from streampca.sources.wrappers import Cached

FORMATS = pytest.mark.parametrize("zarr_format", [2, 3])
M = 23


def open_vcf_zarr(data, variable=None, **options):
    """Open all chromosomes."""
    return open_genotypes(data, variable=variable, autosomes=False, **options)


def random_calls(n, ploidy=2, top=4, dtype="int8"):
    """Alleles up to `top` - 1, and all that can be wrong with them: missing, partial, padded."""
    return np.random.default_rng(n).integers(-2, top, (M, n, ploidy)).astype(dtype)


def counts(calls):
    """Copies of ALT, samples x variants, NaN for missing: one call after the other."""
    out = np.full(calls.shape[:2], np.nan)
    for v, s in np.ndindex(out.shape):
        alleles = [a for a in calls[v, s] if a != -2]
        padded_first = calls[v, s, 0] == -2
        if alleles and not padded_first and min(alleles) >= 0:
            out[v, s] = 2 / len(alleles) * sum(a > 0 for a in alleles)
    return out.T


def labels(calls, **changed):
    m, n = calls.shape[:2]
    alleles = np.array([["A", "C", "", ""], ["G", "T", "C", ""], ["T", "", "", ""]])[np.arange(m) % 3]
    return {
        "sample_id": np.array([f"s{i}" for i in range(n)]),
        "contig_id": np.array(["1", "chrX"]),
        "variant_contig": (np.arange(m) >= m // 2).astype("int8"),
        "variant_position": np.arange(m, dtype="int32") * 10,
        "variant_allele": alleles,
        "variant_id": np.array([f"rs{i}" if i % 2 else "." for i in range(m)]),
        **changed,
    }


def write(path, calls, *, zarr_format=3, chunks=None, name="call_genotype", text="T", **changed):
    """Write a store by hand; a label given as None is left out."""
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array(name, data=calls, chunks=chunks or calls.shape, config={"write_empty_chunks": True})
    for key, values in labels(calls, **changed).items():
        if values is not None:
            is_text = values.dtype.kind == "U" and text == "T"
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
                group.create_array(
                    key, data=values.astype(np.dtypes.StringDType()) if is_text else values,
                    config={"write_empty_chunks": True},
                )  # fmt: skip
    return path


@FORMATS
@pytest.mark.parametrize(
    ("n", "chunks"), [(1, (5, 3)), (2, (5, 3)), (4, (5, 3)), (7, (M, 100)), (12, (4, 4)), (13, (5, 3)), (13, (7, 1))]
)
def test_calls_count_copies_of_alt(tmp_path, zarr_format, n, chunks):
    calls = random_calls(n)
    path = write(tmp_path / "x.vcz", calls, zarr_format=zarr_format, chunks=(*chunks, 2))
    source = open_vcf_zarr(path)
    assert source.shape == (n, M)
    assert source.chunks == (n, min(M, chunks[0]))
    np.testing.assert_array_equal(everything(source), counts(calls))
    for start, stop in ((0, 1), (M - 1, M), (3, 11), (5, 10)):
        np.testing.assert_array_equal(source.read(slice(0, n), slice(start, stop))[0], counts(calls)[:, start:stop])


KINDS = {
    (0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 2, (0, 3): 1, (2, 3): 2, (2, 2): 2, (-1, -1): None, (0, -1): None,
    (-1, 1): None, (0, -2): 0, (1, -2): 2, (3, -2): 2, (-1, -2): None, (-2, -2): None,
    (0,): 0, (1,): 2, (2,): 2, (-1,): None, (-2,): None,
}  # fmt: skip


@pytest.mark.parametrize("ploidy", [1, 2])
def test_each_kind_of_call(tmp_path, ploidy):
    kinds = {call: copies for call, copies in KINDS.items() if len(call) == ploidy}
    source = open_vcf_zarr(write(tmp_path / "x.vcz", np.array([list(kinds)], "int8")))
    found = [None if np.isnan(value) else int(value) for value in everything(source)[:, 0]]
    assert dict(zip(kinds, found, strict=True)) == kinds


@FORMATS
@pytest.mark.parametrize("dtype", ["int8", "int16", ">i2", "int32"])
@pytest.mark.parametrize("ploidy", [1, 2])
def test_calls_of_any_integer_type(tmp_path, zarr_format, dtype, ploidy):
    calls = random_calls(6, ploidy, top=100, dtype=dtype)
    source = open_vcf_zarr(write(tmp_path / "x.vcz", calls, zarr_format=zarr_format, chunks=(4, 4, 1)))
    np.testing.assert_array_equal(everything(source), counts(calls))


def test_codecs_that_only_zarr_reads(tmp_path):
    calls = random_calls(9)
    path = write(tmp_path / "x.vcz", calls)
    group = zarr.open_group(path, mode="a")
    del group["call_genotype"]
    group.create_array("call_genotype", data=calls, chunks=(2, 3, 2), shards=(6, 6, 2))
    source = open_vcf_zarr(path)
    assert source.chunks == (9, 6)
    np.testing.assert_array_equal(everything(source), counts(calls))


@FORMATS
@pytest.mark.parametrize("text", ["T", "U"])
def test_labels(tmp_path, zarr_format, text):
    if (zarr_format, text) == (3, "U"):
        pytest.skip("format 3 has no text of a fixed length")
    source = open_vcf_zarr(write(tmp_path / "x.vcz", random_calls(3), zarr_format=zarr_format, text=text))
    assert source.samples.dims + source.features.dims == ("sample", "variant")
    assert source.label("iid").tolist() == ["s0", "s1", "s2"]
    assert source.label("fid").tolist() == ["0"] * 3
    assert source.label("chromosome").tolist() == ["1"] * 11 + ["chrX"] * 12
    assert source.label("position").tolist() == list(range(0, 10 * M, 10))
    assert source.label("variant_id").tolist()[:3] == [".", "rs1", "."]
    assert source.label("allele_1").tolist()[:4] == ["C", "T,C", ".", "C"]
    assert source.label("allele_2").tolist()[:4] == ["A", "G", "T", "A"]


def test_a_store_without_ids(tmp_path):
    source = open_vcf_zarr(write(tmp_path / "x.vcz", random_calls(3), variant_id=None))
    assert source.label("variant_id").tolist() == ["."] * M


def test_a_choice_of_samples_and_variants(tmp_path):
    calls = random_calls(11)
    source = open_vcf_zarr(write(tmp_path / "x.vcz", calls, chunks=(5, 4, 2)))
    samples, variants = np.array([7, 0, 3, 10, 2]), np.array([0, 1, 4, 9, 8, 22, 22, 3])
    chosen = source.take(samples=samples).take(features=variants)
    expected = counts(calls)[samples][:, variants]
    assert chosen.chunks == (5, 5)
    np.testing.assert_array_equal(everything(chosen), expected)
    np.testing.assert_array_equal(chosen.read(slice(1, 4), slice(2, 7))[0], expected[1:4, 2:7])
    assert chosen.label("position").tolist() == [0, 10, 40, 90, 80, 220, 220, 30]
    assert chosen.fingerprint() != source.fingerprint()


def test_a_chunk_is_decoded_once_for_variants_strewn_over_it(tmp_path):
    source = open_vcf_zarr(write(tmp_path / "x.vcz", random_calls(40), chunks=(M, 40, 2)))
    whole = source.read_packed(0, M)[1]
    chosen = source.take(features=np.array([0, 5, 11, 22]))
    assert chosen.read_packed(0, 4)[1] == whole > 0


def test_what_is_kept_is_not_read_again(tmp_path):
    calls = random_calls(8)
    source = open_vcf_zarr(write(tmp_path / "x.vcz", calls, chunks=(4, 8, 2)))
    keeper = Cached(source, 2 * 4 * 5)
    ranges = [(0, 4), (4, 8), (8, 12), (12, 16)]
    first = [(rows.copy(), n_bytes) for rows, n_bytes in (keeper.read_packed(*r) for r in ranges)]
    again = [(rows.copy(), n_bytes) for rows, n_bytes in (keeper.read_packed(*r) for r in ranges)]
    for (a, _), (b, _) in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(n_bytes > 0 for _, n_bytes in first)
    # There is room for five ranges' worth of bytes.
    assert [n_bytes == 0 for _, n_bytes in again] == [True] * 4
    assert [keeper.read_packed(16, 20)[1] for _ in range(2)][1] == 0
    assert all(keeper.read_packed(20, 23)[1] > 0 for _ in range(2))
    # Neither the source it came from nor a choice from it has what it keeps.
    assert source.read_packed(0, 4)[1] > 0
    chosen = keeper.take(features=np.arange(4, M))
    assert chosen.read_packed(0, 4)[1] > 0
    np.testing.assert_array_equal(chosen.read(slice(0, 8), slice(0, 4))[0], counts(calls)[:, 4:8])
    travelled = pickle.loads(pickle.dumps(keeper))
    assert travelled.read_packed(0, 4)[1] > 0
    np.testing.assert_array_equal(everything(travelled), counts(calls))


def test_overhead_covers_a_decoded_chunk_whatever_is_chosen(tmp_path):
    source = open_vcf_zarr(write(tmp_path / "x.vcz", random_calls(20), chunks=(10, 10, 2)))
    for s in (source, source.take(samples=np.arange(2)), source.take(features=np.arange(3))):
        assert s.overhead * np.prod(s.chunks) * s.item_bytes >= 2 * 10 * 10 * 2


@FORMATS
def test_what_bio2zarr_writes(tmp_path, zarr_format):
    plink = pytest.importorskip("bio2zarr.plink")
    simulate_genotypes(tmp_path / "study", 21, 40, missing=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plink.convert(
            tmp_path / "study", tmp_path / "study.vcz", variants_chunk_size=16, samples_chunk_size=6,
            zarr_format=zarr_format,
        )  # fmt: skip
    assert open_source(tmp_path / "study.vcz").is_genotypes
    ours, bed = open_vcf_zarr(tmp_path / "study.vcz"), BedSource(tmp_path / "study.bed")
    np.testing.assert_array_equal(ours.read_packed(0, 40)[0].copy(), bed.read_packed(0, 40)[0])
    for name in ("iid", "chromosome", "position", "variant_id", "allele_1", "allele_2"):
        assert ours.label(name).tolist() == bed.label(name).tolist()


@pytest.mark.usefixtures("small_partitions")
def test_components_are_those_of_the_bed_file(tmp_path):
    plink = pytest.importorskip("bio2zarr.plink")
    simulate_genotypes(tmp_path / "study", 60, 700, missing=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plink.convert(tmp_path / "study", tmp_path / "study.vcz", variants_chunk_size=50, samples_chunk_size=25)
    ours, _ = fit_pca(open_vcf_zarr(tmp_path / "study.vcz"), PCAOptions(n_components=3))
    bed, _ = fit_pca(BedSource(tmp_path / "study.bed"), PCAOptions(n_components=3))
    assert_close(ours.explained_variance, bed.explained_variance)
    assert_same_subspace(bed.components, ours.components, 1e-8)


# ---------------------------------------------------------------- dosages


@FORMATS
def test_dosages_are_samples_x_variants(tmp_path, zarr_format):
    x = np.random.default_rng(0).uniform(0, 2, (M, 7)).astype("f4")
    x[2, 3] = np.nan
    path = write(tmp_path / "x.vcz", x, name="call_dosage", chunks=(4, 3), zarr_format=zarr_format)
    source = open_vcf_zarr(path)
    assert open_source(path).is_genotypes
    assert (source.shape, source.chunks, source.dtype) == ((7, M), (3, 4), np.dtype("f4"))
    np.testing.assert_array_equal(everything(source), x.T)
    np.testing.assert_array_equal(source.read(slice(2, 5), slice(3, 9))[0], x.T[2:5, 3:9])
    assert source.features.coords["position"][1].tolist() == list(range(0, 10 * M, 10))
    assert pickle.loads(pickle.dumps(source)).fingerprint() == source.fingerprint()


def test_a_choice_of_dosages(tmp_path):
    x = np.random.default_rng(0).uniform(0, 2, (M, 9))
    source = open_vcf_zarr(write(tmp_path / "x.vcz", x, name="call_dosage", chunks=(4, 3)))
    samples, variants = np.array([7, 0, 3]), np.array([22, 1, 2, 9, 3])
    for chosen, expected in (
        (source.take(samples=samples), x.T[samples]),
        (source.take(features=variants), x.T[:, variants]),
        (source.take(samples=samples, features=variants, note="why"), x.T[samples][:, variants]),
    ):
        np.testing.assert_array_equal(everything(chosen), expected)
        np.testing.assert_array_equal(chosen.read(slice(1, 3), slice(2, 4))[0], expected[1:3, 2:4])
        assert chosen.fingerprint() != source.fingerprint()
    assert chosen.notes == ("why",)
    assert chosen.label("position").tolist() == [220, 10, 20, 90, 30]


def test_dosages_of_another_name_beside_calls(tmp_path):
    calls, x = random_calls(5), np.ones((M, 5), "f4")
    group = zarr.open_group(write(tmp_path / "x.vcz", calls), mode="a")
    group.create_array("call_DS", data=x)
    assert isinstance(open_vcf_zarr(group), VcfZarrSource)
    np.testing.assert_array_equal(everything(open_vcf_zarr(group, "call_DS")), x.T)


def test_components_of_dosages(tmp_path, rng):
    x = rng.uniform(0, 2, (M, 40))
    path = write(tmp_path / "x.vcz", x, name="call_dosage", chunks=(5, 10))
    p = x.mean(axis=1) / 2
    standard = x / np.sqrt(2 * p * (1 - p))[:, None]
    for scale, of in ((None, x), ("auto", standard)):
        found, _ = fit_pca(open_vcf_zarr(path), PCAOptions(n_components=3, scale=scale))
        assert_close(found.explained_variance, np.linalg.eigvalsh(np.cov(of))[::-1][:3])


# ---------------------------------------------------------------- what is refused


def test_what_is_no_vcf_zarr(tmp_path):
    zarr.create_array(tmp_path / "a.zarr", shape=(3, 3), dtype="f4")
    zarr.open_group(tmp_path / "g.zarr", mode="w")
    (tmp_path / "folder").mkdir()
    for name in ("a.zarr", "g.zarr", "folder", "nothing"):
        with pytest.raises(InputError) as error:
            open_vcf_zarr(tmp_path / name)
        assert name in one_line(error)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((M, 3, 4), "int8"), ((M, 3), "int8"), ((M, 3, 0), "int8"), ((M, 3, 2), "float32")]
)
def test_calls_that_are_not_read(tmp_path, shape, dtype):
    group = zarr.open_group(write(tmp_path / "x.vcz", random_calls(3)), mode="a")
    del group["call_genotype"]
    group.create_array("call_genotype", shape=shape, dtype=dtype)
    with pytest.raises(InputError, match="ploidy 1 or 2") as error:
        open_vcf_zarr(group)
    assert str(shape) in one_line(error)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sample_id": np.array(["a", "b"])}, "sample_id has the shape (2,)"),
        ({"sample_id": np.array(["a", "b", "a"])}, "duplicate sample a"),
        ({"sample_id": None}, "no array sample_id"),
        ({"variant_position": np.arange(3)}, "variant_position has the shape (3,)"),
        ({"variant_contig": np.full(M, 2)}, "variant_contig must index"),
        ({"variant_contig": np.full(M, -1)}, "variant_contig must index"),
        ({"variant_allele": np.array(["A"] * M)}, "variant_allele has the shape (23,)"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, changed, told):
    path = write(tmp_path / "x.vcz", random_calls(3), **changed)
    with pytest.raises(InputError) as error:
        open_vcf_zarr(path)
    assert told in one_line(error)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("variable", ["call_DP", "variant_position", "nothing"])
def test_variables_that_are_no_dosages(tmp_path, variable):
    group = zarr.open_group(write(tmp_path / "x.vcz", random_calls(3)), mode="a")
    group.create_array("call_DP", data=np.ones((M, 3), "int8"))
    with pytest.raises(InputError) as error:
        open_vcf_zarr(group, variable)
    assert variable in one_line(error)


@FORMATS
@pytest.mark.parametrize("damage", ["cut", "empty", "noise"])
def test_damaged_chunks_are_named(tmp_path, zarr_format, damage):
    path = write(tmp_path / "x.vcz", random_calls(30), zarr_format=zarr_format, chunks=(10, 30, 2))
    source = open_vcf_zarr(path)
    key = Path("c", "1", "0", "0") if zarr_format == 3 else Path("1.0.0")
    chunk = path / "call_genotype" / key
    data = chunk.read_bytes()
    chunk.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "noise": data[::-1]}[damage])
    source.read_packed(0, 10)
    with pytest.raises(InputError) as error:
        source.read_packed(5, 15)
    assert str(chunk) in one_line(error)
    assert open_vcf_zarr(path).fingerprint() == source.fingerprint()


@FORMATS
@pytest.mark.parametrize("name", ["call_genotype", "variant_id", "contig_id"])
def test_damaged_metadata_are_named(tmp_path, zarr_format, name):
    path = write(tmp_path / "x.vcz", random_calls(3), zarr_format=zarr_format)
    (path / name / ("zarr.json" if zarr_format == 3 else ".zarray")).write_bytes(b"\x80{")
    with pytest.raises(InputError) as error:
        open_vcf_zarr(path)
    assert name in one_line(error)


def test_a_damaged_label_is_named(tmp_path):
    path = write(tmp_path / "x.vcz", random_calls(3), zarr_format=2)
    (path / "sample_id" / "0").write_bytes(b"\x07" * 20)
    with pytest.raises(InputError, match="sample_id") as error:
        open_vcf_zarr(path)
    one_line(error)


@pytest.mark.parametrize("changed", [{"filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}}])
@pytest.mark.parametrize("name", ["sample_id", "variant_position", "call_genotype"])
def test_nothing_is_unpickled(tmp_path, name, changed):
    path = write(tmp_path / "x.vcz", random_calls(3), zarr_format=2)
    metadata = path / name / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), **changed}))
    for chunk in (path / name).glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(pytest.fail))
    with pytest.raises(InputError, match="pickle") as error:
        open_vcf_zarr(path)
    assert name in one_line(error)


def test_a_changed_chunk_changes_the_fingerprint(tmp_path):
    calls = random_calls(6)
    path = write(tmp_path / "x.vcz", calls)
    before = open_vcf_zarr(path).fingerprint()
    assert open_vcf_zarr(path).fingerprint() == before
    zarr.open_group(path, mode="a")["call_genotype"][...] = calls[::-1]
    assert open_vcf_zarr(path).fingerprint() != before
