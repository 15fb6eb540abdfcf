"""No run ends wrong without saying so: chunks that are gone, data that change, results and records that are damaged."""

from __future__ import annotations

import json
import os
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import zarr
from genotype_helpers import write_bed
from helpers import matrix_with_spectrum, one_line
from source_helpers import CODECS, everything, numbers, zarr_array
from zarr.codecs import Crc32cCodec

import streampca as sp
from streampca import InputError, open_genotypes, open_source
from streampca.cli import main
from streampca.demos.simulate import simulate_groups
from streampca.errors import redacted
from streampca.models.pca.options import PCAOptions
from streampca.results.fit import FitJob
from streampca.results.kind import kind_of
from streampca.results.store import load
from streampca.run.config import load as load_config
from streampca.run.config.blocks import Data, Filter
from streampca.run.convert import convert
from streampca.run.driver import run as execute
from streampca.run.fit import FitTask, open_data
from streampca.sources.completeness import check_damage
from streampca.sweep.checkpoint import Checkpoint, read_record

MODEL = PCAOptions(n_components=3, solver="krylov", tol=1e-7)
X = matrix_with_spectrum(400, 30, 0.8 ** np.arange(30), mean=3.0).astype("float32")

pytestmark = pytest.mark.usefixtures("several_partitions")


def chunks_in(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file() and path.name != "zarr.json")


def fit(path, store: Path, progress=lambda _: None):
    """Fit, reading the data in each sweep."""
    store.mkdir(exist_ok=True)
    data = open_data(Data(path=str(path)), Filter())
    data.costly = False
    FitJob(kind_of("pca"), data, MODEL, "1GB", progress).fit(store)
    return {name: variable.values.tobytes() for name, variable in load(store).variables.items()}


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Run a command here; returns its exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr("sys.argv", ["streampca", *words])
        try:
            main()
        except SystemExit as ended:
            return ended.code or 0, "".join(capfd.readouterr())
        return 0, "".join(capfd.readouterr())

    return call


def in_sweep(number: int, harm):
    """Return a progress that does harm once, in the middle of a sweep."""
    done = []

    def strike(step):
        if step.sweep == number and step.done >= 1 and not done:
            done.append(harm())

    return strike


# ---------------------------------------------------------------- chunks that are not there


@pytest.mark.parametrize("codec", ["zstd", "none", "crc32c", "sharded", "big-endian"])
def test_a_missing_chunk_is_named_with_the_cure_before_anything_is_read(tmp_path, codec):
    zarr_array(
        tmp_path / "x.zarr", X, chunks=(50, 30), **({"shards": (100, 30)} if codec == "sharded" else CODECS[codec])
    )
    (tmp_path / "x.zarr/c/2/0").unlink()
    steps = []
    with pytest.raises(InputError) as error:
        fit(tmp_path / "x.zarr", tmp_path / "out.zarr", steps.append)
    assert f"{tmp_path}/x.zarr/c/2/0: this chunk is missing" in one_line(error)
    assert "missing_chunks='fill'" in str(error.value)
    assert not steps
    with pytest.raises(InputError, match="c/2/0"):
        everything(open_source(tmp_path / "x.zarr"))


def test_missing_chunks_are_filled_where_asked_for(tmp_path, command):
    zarr_array(tmp_path / "x.zarr", X, chunks=(50, 30))
    shutil.rmtree(tmp_path / "x.zarr/c/2")
    expected = X.copy()
    expected[100:150] = 0
    array = zarr.open_array(tmp_path / "x.zarr", mode="r")
    with pytest.raises(InputError, match="c/2/0: this chunk is missing"):
        sp.PCA(3).fit(array)
    for data in (array, tmp_path / "x.zarr"):
        filled = sp.PCA(3).fit(open_source(data, missing_chunks="fill"))
        np.testing.assert_allclose(filled.mean_, expected.mean(axis=0), rtol=1e-5)
    assert command("pca", "x.zarr", "-k", "3", "--missing-chunks", "fill", "--quiet")[0] == 0
    assert json.loads(load(tmp_path / "x.pca.zarr").attrs["parameters"])["missing_chunks"] == "fill"
    with pytest.raises(InputError, match="missing_chunks must be 'error' or 'fill', got 'zero'"):
        open_source(tmp_path / "x.zarr", missing_chunks="zero")


def test_what_is_written_here_is_whole_even_if_it_is_all_zero(tmp_path):
    write_bed(tmp_path / "g", np.zeros((9, 6)))
    convert(tmp_path / "g.bed", tmp_path / "g.vcz")
    np.testing.assert_array_equal(everything(open_genotypes(tmp_path / "g.vcz", autosomes=False)), 0)
    simulate_groups(tmp_path / "s.zarr", 40, 5, chunk=20)
    for name in ("g.vcz", "s.zarr"):
        assert all(path.read_bytes() for path in chunks_in(tmp_path / name))
    assert isinstance(zarr.open_array(tmp_path / "s.zarr", mode="r").metadata.codecs[-1], Crc32cCodec)


def test_a_store_of_one_contig_need_not_say_which(tmp_path):
    write_bed(tmp_path / "g", np.random.default_rng(0).integers(0, 3, (9, 6)).astype(float))
    convert(tmp_path / "g.bed", tmp_path / "g.vcz")
    shutil.rmtree(tmp_path / "g.vcz/variant_contig/c")
    assert open_genotypes(tmp_path / "g.vcz").label("chromosome").tolist() == ["1"] * 6
    shutil.rmtree(tmp_path / "g.vcz/variant_position/c")
    with pytest.raises(InputError, match="variant_position/c/0: this chunk is missing"):
        open_genotypes(tmp_path / "g.vcz")


# ---------------------------------------------------------------- flipped bytes


@pytest.mark.parametrize("codec", ["zstd with checksum", "gzip", "crc32c", "crc32c alone"])
def test_a_flipped_byte_is_found_by_the_checksum(tmp_path, codec):
    x = numbers()
    for place in (-1, -9, -15):
        zarr_array(tmp_path / "x.zarr", x, overwrite=True, **CODECS[codec])
        chunk = tmp_path / "x.zarr/c/1/1"
        content = bytearray(chunk.read_bytes())
        content[place] ^= 16
        chunk.write_bytes(content)
        with pytest.raises(InputError, match="c/1/1: this chunk is damaged"):
            everything(open_source(tmp_path / "x.zarr"))


# ---------------------------------------------------------------- data that change


def rewritten(path: Path):
    def harm():
        content = path.read_bytes()
        before = path.stat().st_mtime_ns
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes(40) + content[middle + 40 :])
        # Clocks of file systems may be coarse.
        os.utime(path, ns=(before + 10**9, before + 10**9))

    return harm


@pytest.mark.parametrize("which", ["zarr", "shards", "npy", "bed", "bim"])
def test_data_that_change_during_a_run_are_refused(tmp_path, which):
    if which in ("zarr", "shards"):
        options = {"shards": (100, 30)} if which == "shards" else {}
        zarr_array(tmp_path / "x.zarr", X, chunks=(50, 30), compressors=None, **options)
        path, changed = tmp_path / "x.zarr", tmp_path / "x.zarr/c/2/0"
    elif which == "npy":
        path = changed = tmp_path / "x.npy"
        np.save(path, X)
    else:
        write_bed(tmp_path / "g", np.random.default_rng(0).integers(0, 3, (90, 2000)).astype(float))
        path, changed = tmp_path / "g.bed", tmp_path / f"g.{which}"
    with pytest.raises(InputError, match="has changed since it was opened") as error:
        fit(path, tmp_path / "out.zarr", in_sweep(2, rewritten(changed)))
    one_line(error)


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_that_is_cut_while_it_is_read_is_an_error(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    source = open_source(tmp_path / "x.npy")
    np.testing.assert_array_equal(source.read(slice(7, 90), slice(3, 21))[0], X[7:90, 3:21])
    os.truncate(tmp_path / "x.npy", 10_000)
    with pytest.raises(InputError, match="was truncated while it was read"):
        everything(source)


def test_what_a_changed_sweep_came_to_is_not_put_on_record(tmp_path):
    np.save(tmp_path / "x.npy", X)
    checkpoint = tmp_path / "checkpoint"
    before: list[Path] = []

    def harm():
        before.extend(checkpoint.glob("*.npz"))
        rewritten(tmp_path / "x.npy")()

    strike = in_sweep(2, harm)
    with Checkpoint(checkpoint, 0.0).active(), pytest.raises(InputError, match="has changed"):
        fit(tmp_path / "x.npy", tmp_path / "out.zarr", strike)
    assert before
    assert set(checkpoint.glob("*.npz")) <= set(before)


# ---------------------------------------------------------------- results and records


@pytest.fixture
def result(tmp_path):
    zarr_array(tmp_path / "x.zarr", X, chunks=(50, 30))
    fit(tmp_path / "x.zarr", tmp_path / "out.zarr")
    return tmp_path / "out.zarr"


@pytest.mark.parametrize("array", ["scores", "components"])
@pytest.mark.parametrize("harm", ["missing", "flipped", "cut", "array", "metadata"])
def test_a_damaged_result_is_refused(result, array, harm):
    chunk = chunks_in(result / array)[-1]
    if harm == "missing":
        chunk.unlink()
    elif harm == "array":
        shutil.rmtree(result / array)
    elif harm == "metadata":
        (result / array / "zarr.json").write_text('{"zarr_f')
    else:
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 1
        chunk.write_bytes(content if harm == "flipped" else content[:-3])
    with pytest.raises(InputError, match=r"out.zarr: .*(damaged|incomplete).*again") as error:
        load(result)
    one_line(error)


@pytest.mark.parametrize("use", [("export", "--format", "tsv"), ("report",), ("project", "x.zarr")])
def test_commands_refuse_a_result_without_a_chunk(result, use, command):
    chunks_in(result / "components")[0].unlink()
    code, told = command(use[0], "out.zarr", *use[1:])
    assert code == 2
    assert "the result is damaged" in told
    assert len(told.strip().splitlines()) == 1


def test_any_flipped_bit_of_a_record_is_found_or_harmless(tmp_path):
    zarr_array(tmp_path / "x.zarr", X, chunks=(50, 30))
    with Checkpoint(tmp_path / "checkpoint", 0.0).active():
        fit(tmp_path / "x.zarr", tmp_path / "out.zarr")
    path = sorted((tmp_path / "checkpoint").glob("*.npz"))[1]
    content, sound = path.read_bytes(), repr(read_record(path))
    rng, found = np.random.default_rng(0), 0
    for place in rng.choice(len(content), 150, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            assert repr(read_record(path)) == sound
        except InputError:
            found += 1
    assert found > 50


def test_scores_of_an_attempt_before_are_checked_before_the_result_gets_its_name(tmp_path, monkeypatch):
    zarr_array(tmp_path / "x.zarr", X, chunks=(50, 30))
    path = tmp_path / "run.yaml"
    path.write_text(
        f"data: {{path: {tmp_path}/x.zarr}}\nmodel: {{kind: pca, n_components: 3, solver: krylov}}\n"
        f"output: {{path: {tmp_path}/out.zarr}}\n"
    )
    config = load_config(path)

    def no_room(*_):
        raise InputError("no room")

    # The work is done, and something that may be cured comes between it and the name.
    monkeypatch.setattr("streampca.run.driver.put_in_place", no_room)
    with pytest.raises(InputError, match="no room"):
        execute(FitTask(config))
    monkeypatch.undo()
    store = tmp_path / "out.zarr.unfinished/store"
    chunk = chunks_in(store / "scores")[0]
    content = chunk.read_bytes()
    chunk.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"scores.* is damaged; remove .*out.zarr.unfinished and run again"):
        execute(FitTask(config))
    assert not (tmp_path / "out.zarr").exists()
    chunk.write_bytes(content)
    execute(FitTask(config))
    check_damage(tmp_path / "out.zarr")


# ---------------------------------------------------------------- secrets


def test_urls_are_told_without_what_is_secret_in_them():
    known = {
        "https://me:pw@host/x.zarr": "https://host/x.zarr",
        "https://pw@host/x.zarr?X-Amz-Signature=pw&a=b: no answer": "https://host/x.zarr: no answer",
        "ftp://me:p@w@host/x: and s3://b/k?token=pw.": "ftp://host/x: and s3://b/k.",
        "GET 'https://h/x?sig=pw' failed": "GET 'https://h/x' failed",
        "abfs://container@account/x": "abfs://container@account/x",
        "what is this? a path/x@y": "what is this? a path/x@y",
    }
    for given, told in known.items():
        assert redacted(given) == told
        assert str(InputError(given)) == told
    assert redacted({"a": ["https://u:pw@h/x", 1], "b": None}) == {"a": ["https://h/x", 1], "b": None}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=tmp_path / "served"))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()


def everything_written(folder: Path) -> bytes:
    return b"".join(path.name.encode() + path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_secret_of_a_url_or_the_environment_is_written_nowhere(tmp_path, server, monkeypatch, command):
    pytest.importorskip("obstore")
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    zarr_array(tmp_path / "served/x.zarr", X, chunks=(100, 30))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    url = f"http://me:hunter2@{server}/x.zarr"
    Path("run.yaml").write_text("model: {kind: pca, n_components: 3}\noutput: {path: out.zarr, report: out.html}\n")
    code, told = command("run", "run.yaml", "--set", f"data.path={url}", "--log-json")
    assert code == 0, told
    code, more = command("pca", url, "-k", "3", "--json")
    assert code == 0, more
    # One that fails leaves its unfinished work.
    (tmp_path / "served/x.zarr/c/3/0").unlink()
    tokens = f"data.path={url}?token=hunter2"
    code, failed = command(
        "run", "run.yaml", "--set", tokens, "--set", "output.path=b.zarr", "--set", "output.report=b"
    )
    assert code == 2
    assert "hunter2" not in told + more + failed
    assert b"hunter2" not in everything_written(work)
    assert server.encode() in everything_written(work / "out.zarr")


def test_a_model_keeps_the_secret_of_its_data(tmp_path, server):
    pytest.importorskip("obstore")
    zarr_array(tmp_path / "served/x.zarr", X, chunks=(100, 30))
    source = open_source(f"http://me:hunter2@{server}/x.zarr")
    assert source.name == f"http://{server}/x.zarr"
    assert "hunter2" not in str(sp.PCA(3).fit(source).result_.attrs)
