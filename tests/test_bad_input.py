"""Damaged and made-up files, as scripts/fuzz finds them: refused in one line that names them, and nothing is run."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import struct
import tracemalloc
import zipfile

import numpy as np
import psutil
import pytest
import zarr
from genotype_helpers import write_bed
from helpers import one_line
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca.validation
from streampca import InputError
from streampca.cli import cli
from streampca.errors import LONGEST_MESSAGE
from streampca.models.pca.options import PCAOptions
from streampca.results.fit import FitJob
from streampca.results.kind import kind_of
from streampca.results.store import load
from streampca.results.write import save
from streampca.run.config import load as load_config
from streampca.run.config.blocks import Data, Filter
from streampca.run.fit import open_data
from streampca.run.work_directory import WorkDirectory, status
from streampca.sources import open_genotypes, open_source
from streampca.sources.formats.plink1 import read_bim, read_fam
from streampca.sources.formats.plink2 import read_psam, read_pvar
from streampca.sources.regions import read_regions
from streampca.sources.tables import Ids, read_table
from streampca.sweep.checkpoint import Checkpoint, read_record
from streampca.validation import available_memory, check_declared_size

MODEL = PCAOptions(n_components=1)


class Harm:
    """Makes a folder where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


@pytest.fixture(autouse=True)
def _nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "unpickled").exists()


def refused(path, use):
    with pytest.raises(InputError) as error:
        use(path)
    told = one_line(error)
    assert str(path) in told
    return told


def told_by(use, path):
    """Return what is said of a file that is refused, None if it is read; any other error passes."""
    try:
        use(path)
    except InputError as error:
        return str(error)
    return None


def plan(path):
    return FitJob(kind_of("pca"), open_data(Data(path=str(path)), Filter()), MODEL, "2GB").plan()


def test_a_message_is_one_line_of_bounded_length_whatever_it_quotes():
    message = str(InputError("a\nb\x1b[2J\u2028" + "x" * 100_000 + "the cure"))
    assert len(message) < LONGEST_MESSAGE + 10
    assert message.isprintable()
    assert message.startswith("a b?[2J")
    assert message.endswith("the cure")


def test_what_claims_more_than_the_memory_there_is_is_refused(monkeypatch):
    monkeypatch.setattr(streampca.validation, "available_memory", lambda: 10 << 20)
    check_declared_size("x", 4 << 20)
    with pytest.raises(InputError, match=r"x: declares 0.00629 GB, more than half"):
        check_declared_size("x", 6 << 20)


def test_memory_that_is_there_keeps_to_the_limit_of_the_process(monkeypatch):
    free = available_memory()
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda _: (used + (5 << 20), 0))
    assert available_memory() <= min(free, 6 << 20)


# Text.

READERS = {
    "x.bim": read_bim,
    "x.fam": read_fam,
    "x.pvar": read_pvar,
    "x.psam": read_psam,
    "regions.txt": read_regions,
    "table.tsv": lambda path: read_table(path, Ids(["a", "b"])).columns,
    "run.yaml": load_config,
}
WORDS = st.sampled_from(
    ["#CHROM POS ID REF ALT", "#IID", "1", "a", "b", "-1", "9" * 5000, "²", "NaN", "\t", " ", ",", '"', "\n", "\r",
     "\x00", "source:", "model: {kind: pca}", "&a", "*a", "[", "{", "- ", "x" * 3000,
     "!!python/object/apply:os.mkdir [unpickled]"]
)  # fmt: skip


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@given(content=st.one_of(st.binary(max_size=80), st.lists(WORDS, max_size=12).map(lambda w: " ".join(w).encode())))
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory, name, content):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    told = told_by(READERS[name], path)
    assert told is None or (told.isprintable() and str(path) in told)


@pytest.mark.parametrize("name", ["x.bim", "x.fam", "x.pvar", "x.psam", "table.tsv"])
def test_a_line_without_end_is_not_taken_apart(tmp_path, name):
    path = tmp_path / name
    path.write_text("a b " * (3 << 19))
    tracemalloc.start()
    try:
        refused(path, READERS[name])
        # The fields of the line alone would take 160 MB.
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_table_of_millions_of_columns_is_not_taken_apart(tmp_path):
    (tmp_path / "table.tsv").write_text("a" + "\t" * 3_000_000 + "\n")
    assert "more than 10000 cells" in refused(tmp_path / "table.tsv", READERS["table.tsv"])


def test_fields_of_one_line_do_not_make_up_for_those_of_another(tmp_path):
    lines = [f"f{i} i{i} 0 0 1 -9" for i in range(5)]
    # Five fields after a blank, and seven with a no-break space: as many as two lines have.
    lines[1], lines[3] = " i1 0 0 1 -9", "f3\xa0x i3 0 0 1 -9"
    (tmp_path / "x.fam").write_text("\n".join(lines))
    assert "line 2 has 5 columns" in refused(tmp_path / "x.fam", read_fam)


def test_a_position_of_thousands_of_digits_is_no_position(tmp_path):
    path = tmp_path / "regions.txt"
    path.write_text(f"1 5 {'9' * 5000}\n")
    assert "line 1" in refused(path, read_regions)


@pytest.mark.parametrize("code", ["²", "9" * 5000])
def test_a_chromosome_that_is_almost_a_number_is_a_name(tmp_path, code):
    path = write_bed(tmp_path / "x", np.ones((3, 2)), chromosome=["1", "x"])
    path.with_suffix(".bim").write_text(path.with_suffix(".bim").read_text().replace("x\t", f"{code}\t", 1))
    assert open_genotypes(path).shape == (3, 1)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 1500))


@pytest.mark.parametrize(
    ("text", "told"),
    [(BOMB, "values"), (CHAIN, "deep|values"), ("# " + "x" * (1 << 17), "bytes")],
    ids=["aliases", "chain", "large"],
)
def test_a_configuration_that_would_grow_is_refused(tmp_path, text, told):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert any(word in refused(path, load_config) for word in told.split("|"))


# Binary files.


def saved(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((3, 2)))
    return buffer.getvalue()


NPY = saved(np.ones((8, 5)))
DAMAGED_NPY = {
    "objects": saved(np.array([[Harm(), 1]], object), allow_pickle=True),
    "archive": npz(),
    "open bracket": NPY.replace(b"(8, 5), }", b"(8, 5,   "),
    "no python": NPY.replace(b"'descr': '<f8'", b"'descr': <f8>>"),
    "many rows": NPY.replace(b"(8, 5), }              ", b"(1000000000000000, 5), }"[:23]),
    "below zero": NPY.replace(b"(8, 5)", b"(-8,5)"),
    "no characters": saved(np.array([[""]], "U1")).replace(b"'<U1'", b"'<U0'"),
    "text for shape": NPY.replace(b"(8, 5)", b"'(8,5)"),
    "empty": b"",
}


@pytest.mark.parametrize("name", DAMAGED_NPY)
def test_a_damaged_npy_is_refused(tmp_path, name):
    path = tmp_path / "x.npy"
    path.write_bytes(DAMAGED_NPY[name])
    refused(path, open_source)


def test_a_pgen_that_claims_many_samples_is_refused_before_room_is_made(tmp_path):
    pytest.importorskip("pgenlib")
    path = tmp_path / "x.pgen"
    path.write_bytes(b"\x6c\x1b\x10" + struct.pack("<II", 1, 1 << 31) + bytes(20))
    path.with_suffix(".pvar").write_text("#CHROM POS ID REF ALT\n1 1 rs A G\n")
    path.with_suffix(".psam").write_text("#IID\na\nb\n")
    assert "2147483648 samples" in refused(path, open_genotypes)


# Zarr: the metadata of a store are changed.


def change(file, **changes):
    metadata = json.loads(file.read_text())
    metadata |= changes
    file.write_text(json.dumps(metadata))


def store(tmp_path, zarr_format=2):
    path = tmp_path / "x.zarr"
    zarr.create_array(path, data=np.ones((8, 5), "f4"), chunks=(4, 5), zarr_format=zarr_format)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [8, -5]},
        {"shape": [8]},
        {"shape": "8, 5"},
        {"shape": [10**30, 5]},
        {"chunks": [0, 5]},
        {"chunks": [4]},
        {"chunks": [10**15, 5]},
        {"dtype": "|O"},
        {"dtype": "<U1000000000"},
        {"dtype": [["a", "<f4"], ["b", "|O"]]},
        {"dtype": "|O", "filters": [{"id": "pickle"}]},
        {"filters": [{"id": "pickle"}]},
        {"filters": [{"id": "json2"}], "dtype": "|O"},
        {"filters": 7},
        {"compressor": {"id": "x"}},
        {"compressor": []},
        {"order": 1},
        {"zarr_format": "x"},
        {"dimension_separator": "abc"},
    ],
    ids=str,
)
def test_damaged_metadata_of_an_array_are_refused(tmp_path, changes):
    path = store(tmp_path)
    change(path / ".zarray", **changes)
    refused(path, lambda path: (plan(path), open_source(path).read(slice(0, 4), slice(0, 5))))


@pytest.mark.parametrize("attributes", ["[]", "5", "[" * 100_000, '{"_ARRAY_DIMENSIONS": 5}', '{"_FillValue": {}}'])
def test_attributes_that_are_none_do_no_harm(tmp_path, attributes):
    path = store(tmp_path)
    (path / ".zattrs").write_text(attributes)
    told = told_by(open_source, path)
    assert told is None or str(path) in told


def test_many_small_chunks_of_packed_values_are_refused(tmp_path):
    path = store(tmp_path)
    (path / ".zattrs").write_text('{"scale_factor": 2}')
    change(path / ".zarray", shape=[10**15, 5], chunks=[1, 5])
    assert "chunks" in refused(path, open_source)


def test_labels_that_claim_more_than_the_memory_are_refused(tmp_path):
    path = tmp_path / "x.zarr"
    group = zarr.open_group(path, mode="w")
    group.create_array("values", data=np.ones((8, 5)), dimension_names=("sample", "feature"))
    group.create_array("sample", data=np.arange(8), dimension_names=("sample",))
    change(path / "sample" / "zarr.json", shape=[10**14])
    assert "declares" in refused(path, open_source)


def test_a_damaged_member_of_a_group_leaves_no_errors_of_others(tmp_path, caplog):
    path = tmp_path / "x.zarr"
    group = zarr.open_group(path, mode="w")
    for name in "abcdef":
        group.create_array(name, data=np.ones((8, 5)))
    for name in "abc":
        (path / name / "zarr.json").write_text("{")
    refused(path, open_source)
    assert not caplog.records


def test_a_label_cannot_name_a_place_outside_the_store(tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    inside = tmp_path / "store"
    inside.mkdir()
    for name in ("../victim", "..", "a/b", "zarr.json"):
        with pytest.raises(InputError, match="rename"):
            save({}, {name: (("x",), np.arange(3))}, {}, inside)
    assert victim.is_dir()


# Results.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "r.zarr"
    data = path.with_name("data.npy")
    np.save(data, np.random.default_rng(0).normal(size=(12, 4)))
    cli(["pca", str(data), "-k", "2", "--quiet", "--out", str(path)], standalone_mode=False)
    return path


@pytest.fixture
def result(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "r.zarr")


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("n_samples", "12"), ("n_samples", -1), ("n_samples", 10**30), ("n_sweeps", None), ("seconds", "1"),
        ("total_variance", []), ("parameters", "{"), ("parameters", "[]"), ("parameters", "[" * 100_000),
        ("parameters", '{"maf": "x"}'), ("notes", "{}"), ("tile_dtype", "object"), ("kind", []), ("kind", "kpca"),
        ("format_version", "1"), ("genotypes", 1), ("converged", "yes"), ("advice", 3),
    ],
)  # fmt: skip
def test_a_result_with_a_damaged_attribute_is_refused(result, attribute, value):
    root = json.loads((result / "zarr.json").read_text())
    change(result / "zarr.json", attributes=root["attributes"] | {attribute: value})
    refused(result, load)


@pytest.mark.parametrize(
    ("array", "changes"),
    [
        ("components", {"shape": [2, 10**15]}),
        ("components", {"dimension_names": ["x", "y"]}),
        ("components", {"data_type": "string", "fill_value": ""}),
        ("certificate", {"node_type": "group"}),
        ("mean", {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**12]}}}),
        ("explained_variance", {"shape": [0]}),
        ("scale", {"codecs": [{"name": "x"}]}),
        ("certificate", {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}}),
        ("component", {"data_type": "r1000000000000"}),
    ],
    ids=str,
)
def test_a_result_with_a_damaged_array_is_refused(result, array, changes):
    change(result / array / "zarr.json", **changes)
    refused(result, load)


def test_names_in_consolidated_metadata_lead_nowhere(result, tmp_path):
    shutil.copytree(result / "mean", tmp_path / "elsewhere")
    root = json.loads((result / "zarr.json").read_text())
    inner = root["consolidated_metadata"]["metadata"]
    inner["../elsewhere"] = inner["mean"]
    (result / "zarr.json").write_text(json.dumps(root))
    assert "../elsewhere" not in load(result).variables


# Checkpoints and unfinished runs.


def test_a_checkpoint_is_not_unpickled(tmp_path):
    path = tmp_path / "00001-0-1.npz"
    tree = np.frombuffer(b'{"signature": {"array": 0}}', np.uint8)
    np.savez(path, tree=tree, a0=np.array([Harm()], object), allow_pickle=True)
    refused(path, read_record)


def test_a_checkpoint_without_its_question_is_none(tmp_path):
    tree = saved(np.frombuffer(b'{"value": 1}', np.uint8))
    with zipfile.ZipFile(tmp_path / "start.npz", "w") as archive:
        archive.writestr("tree.npy", tree)
    assert Checkpoint(tmp_path).recall("start", {"a": 1}) is None


@pytest.mark.parametrize(
    "signature", [{"exact": {"array": 0}}, {"exact": "x", "shape": {"array": 0}, "sketch": []},
                 {"exact": "x", "shape": "", "sketch": [[["y"], [1.0]]]}],
    ids=str,
)  # fmt: skip
def test_a_checkpoint_with_another_kind_of_question_is_none(tmp_path, signature):
    tree = np.frombuffer(json.dumps({"signature": signature, "value": 1}).encode(), np.uint8)
    for name in ("start", "00001-0-1"):
        np.savez(tmp_path / f"{name}.npz", tree=tree, a0=np.ones(3))
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.recall("start", {"a": 1}) is None
    assert checkpoint.sweep({"a": 1.0}).paths == {}


def test_more_chunks_than_can_be_looked_at_are_refused(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", shape=(10**12, 3), chunks=(1, 3), dtype="f4")
    assert "chunks" in refused(tmp_path / "x.zarr", lambda path: open_source(path).fingerprint())


@pytest.mark.parametrize(
    "told", [{}, {"state": 3}, {"state": "running", "sweep": 1}, {"state": "running", "pid": 1},
             {"state": "x", "sweep": "y"}, {"state": "running", "limit_bytes": 10**30}],
    ids=str,
)  # fmt: skip
def test_a_damaged_status_is_not_known(tmp_path, told):
    folder = tmp_path / "r.zarr.unfinished"
    folder.mkdir()
    (folder / "status.json").write_text(json.dumps(told))
    assert status(tmp_path / "r.zarr")["state"] == "unknown"
    cli(["status", str(tmp_path / "r.zarr")], standalone_mode=False)


def test_a_run_that_was_asked_something_else_than_a_run_is_none(tmp_path):
    asked = {"id": "a", "config": {"data": 3}, "fingerprint": "b", "streampca": "c", "begun": "d", "memory": 1,
             "attempts": 1, "exporting": False, "placing": False}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(asked))
    assert WorkDirectory(tmp_path).record is None
    (tmp_path / "run.json").write_text(json.dumps(asked | {"config": {"data": {}}}))
    assert WorkDirectory(tmp_path).record is not None
