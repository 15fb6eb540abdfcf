"""Stores on S3, against a real server: reading, errors, a server that goes away, uploads that are killed."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import xarray
from helpers import matrix_with_spectrum, one_line
from s3 import PUBLIC, READER, READER_SECRET, copied
from source_helpers import CODECS, assert_reads_as, everything, labelled, numbers, zarr_array

import streampca as sp
from streampca import InputError
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.results.write import save
from streampca.sources import open_genotypes, open_source, remote
from streampca.sources.zarr_arrays import ZarrSource


def exists(url):
    return next(iter(remote._connect(url, 60, 30).list(chunk_size=1)), None) is not None


def kind_at(url):
    return (remote.root_at(url) or {"attributes": {}})["attributes"].get("kind")


@pytest.fixture
def url(s3, request, tmp_path):
    return s3.url(f"{tmp_path.name}/{request.node.name.partition('[')[0]}.zarr")


def names_at(url):
    return set(remote._listing(remote._connect(url, 60, 30)))


@pytest.fixture
def data(tmp_path):
    """A store of 20 chunks, and what is in it."""
    x = matrix_with_spectrum(400, 30, 0.8 ** np.arange(30), mean=3.0).astype("float32")
    zarr_array(tmp_path / "x.zarr", x, chunks=(20, 30))
    return tmp_path / "x.zarr", x


def bits(given):
    model = sp.PCA(n_components=4).fit(given)
    arrays = (model.components_, model.explained_variance_, model.mean_, model.transform(given))
    return [np.asarray(array).tobytes() for array in arrays]


@pytest.fixture
def result(tmp_path):
    """A labelled result of many files."""
    coords = {"sample": (("sample",), np.array([f"s{i}" for i in range(50)], dtype=np.dtypes.StringDType()))}
    variables = {f"v{i}": (("sample", "component"), np.full((50, 3), float(i))) for i in range(40)}
    save(variables, coords, {"format_version": 1, "kind": "pca"}, tmp_path / "result.zarr")
    return tmp_path / "result.zarr"


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(url, tmp_path, codec):
    x = numbers()
    zarr_array(tmp_path / "x.zarr", x, **CODECS[codec])
    copied(tmp_path / "x.zarr", url)
    np.testing.assert_array_equal(everything(open_source(url)), x)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_inside_a_group(url, tmp_path, zarr_format):
    x = numbers()
    zarr_array(tmp_path / "g.zarr", x, name="a/b", zarr_format=zarr_format)
    copied(tmp_path / "g.zarr", url)
    for source in (open_source(url), open_source(f"{url}/a/b"), open_source(url, variable="a/b")):
        assert_reads_as(source, x)
    assert source.name == f"{url}/a/b"


def test_labels_come_along(url, tmp_path):
    labelled().to_dataset().to_zarr(tmp_path / "l.zarr", zarr_format=3, consolidated=False)
    copied(tmp_path / "l.zarr", url)
    source = open_source(url, sample_dims="time")
    assert source.samples.dims == ("time",)
    np.testing.assert_array_equal(source.samples.coords["season"][1], np.arange(6) % 4)


@pytest.mark.usefixtures("small_partitions")
def test_pca_has_the_bits_of_the_local_copy(url, data):
    copied(data[0], url)
    assert bits(url) == bits(str(data[0]))


def test_vcf_zarr_has_the_bits_of_the_local_copy(url, tmp_path):
    simulate_genotypes(tmp_path / "g", n_samples=40, n_variants=300, seed=1)
    from streampca.run.convert import convert

    convert(tmp_path / "g.bed", tmp_path / "g.vcz")
    copied(tmp_path / "g.vcz", url)
    assert open_genotypes(url).shape == (40, 300)
    assert bits(url) == bits(str(tmp_path / "g.vcz"))


def test_an_absent_chunk_is_an_error_unless_it_is_to_be_filled(url, data):
    client = copied(data[0], url)
    client.delete("c/1/0")
    with pytest.raises(InputError, match="c/1/0: this chunk is missing; .*missing_chunks='fill'"):
        sp.PCA(n_components=4).fit(url)
    expected = data[1].copy()
    expected[20:40] = 0
    assert_reads_as(open_source(url, missing_chunks="fill"), expected)


def test_a_store_that_changes_during_the_run_is_refused(url, data):
    client = copied(data[0], url)
    source = open_source(url)
    source.watch()
    source.watch()
    client.put("c/7/0", (data[0] / "c/8/0").read_bytes())
    with pytest.raises(InputError, match="has changed since it was opened"):
        source.watch()


def test_changed_data_change_the_fingerprint(url, data):
    client = copied(data[0], url)
    before = open_source(url).fingerprint()
    assert open_source(url).fingerprint() == before
    client.put("c/7/0", (data[0] / "c/8/0").read_bytes())
    assert open_source(url).fingerprint() != before


def test_fingerprint_of_an_array_inside_a_group(url, tmp_path):
    zarr_array(tmp_path / "g.zarr", numbers(), name="a/b")
    client = copied(tmp_path / "g.zarr", url)
    before = open_source(url).fingerprint()
    client.delete("a/b/c/0/0")
    assert open_source(url).fingerprint() != before


def test_http_is_read(data, monkeypatch):
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = partial(SimpleHTTPRequestHandler, directory=str(data[0].parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        np.testing.assert_array_equal(everything(open_source(f"http://127.0.0.1:{server.server_port}/x.zarr")), data[1])
        server.shutdown()


@pytest.mark.usefixtures("s3")
def test_public_data_need_no_keys(data, monkeypatch):
    url = f"s3://{PUBLIC}/x.zarr"
    copied(data[0], url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for name in ("AWS_NO_SIGN_REQUEST", "AWS_SKIP_SIGNATURE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "true")
            assert_reads_as(open_source(url), data[1])


@pytest.mark.parametrize("profile", ["default", "lab"])
def test_keys_endpoint_and_region_of_a_profile(s3, url, data, tmp_path, monkeypatch, profile):
    copied(data[0], url)
    for name in s3.environment:
        monkeypatch.delenv(name)
    (tmp_path / "keys").write_text(f"[{profile}]\naws_access_key_id = {s3.key}\naws_secret_access_key = {s3.secret}\n")
    section = profile if profile == "default" else f"profile {profile}"
    (tmp_path / "config").write_text(f"[{section}]\nregion = us-east-1\nendpoint_url = {s3.endpoint}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    if profile != "default":
        monkeypatch.setenv("AWS_PROFILE", profile)
    assert_reads_as(open_source(url), data[1])


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


SECRET = "a-secret-that-nobody-must-see"
# What is set or unset (None) in the environment; what is asked for; what the message must hold.
WRONG = {
    "secret": ({"AWS_SECRET_ACCESS_KEY": SECRET}, "s3://bucket/x.zarr", ["AWS_SECRET_ACCESS_KEY"]),
    "key": ({"AWS_ACCESS_KEY_ID": SECRET}, "s3://bucket/x.zarr", ["AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL"]),
    "nobody": (
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
        "s3://bucket/x.zarr",
        ["no credentials", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_NO_SIGN_REQUEST"],
    ),
    "key alone": ({"AWS_SECRET_ACCESS_KEY": None}, "s3://bucket/x.zarr", ["no credentials"]),
    "no instance": (
        {
            "AWS_ACCESS_KEY_ID": None,
            "AWS_SECRET_ACCESS_KEY": None,
            "AWS_EC2_METADATA_DISABLED": None,
            "AWS_METADATA_ENDPOINT": "http://127.0.0.1:{port}",
        },
        "s3://bucket/x.zarr",
        ["no credentials"],
    ),
    "unsigned": ({"AWS_NO_SIGN_REQUEST": "YES"}, "s3://bucket/x.zarr", ["access was denied", "AWS_ACCESS_KEY_ID"]),
    "bucket": ({}, "s3://no-such-bucket/x.zarr", ["bucket does not exist", "AWS_ENDPOINT_URL"]),
    "server": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:{port}"}, "s3://bucket/x.zarr", ["no answer", "http://127.0.0.1"]),
    "host": ({"AWS_ENDPOINT_URL": "http://host.invalid"}, "s3://bucket/x.zarr", ["no answer", "http://host.invalid"]),
    "address": ({"AWS_ENDPOINT_URL": "localhost:8333"}, "s3://bucket/x.zarr", ["AWS_ENDPOINT_URL is not an address"]),
    "port": ({"AWS_ENDPOINT_URL": "http://localhost:x"}, "s3://bucket/x.zarr", ["AWS_ENDPOINT_URL is not an address"]),
    "line break": ({"AWS_ACCESS_KEY_ID": "key\n"}, "s3://bucket/x.zarr", ["AWS_ACCESS_KEY_ID contains"]),
    "no bucket": ({}, "s3:///x.zarr", ["has no bucket"]),
    "dots": ({}, "s3://bucket/../x.zarr", ["is not the URL of a store"]),
    "nothing": ({}, "s3://bucket/nothing.zarr", ["not a Zarr array or group"]),
    "profile": ({"AWS_PROFILE": "nosuch"}, "s3://bucket/x.zarr", ["AWS_PROFILE", "nosuch"]),
    "no keys in profile": (
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_CONFIG_FILE": "{folder}/config"},
        "s3://bucket/x.zarr",
        ["no keys of its own", "export-credentials"],
    ),
    "profiles": ({"AWS_SHARED_CREDENTIALS_FILE": __file__}, "s3://bucket/x.zarr", ["not a file of AWS profiles"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_say_what_to_set_and_no_secret(s3, tmp_path, monkeypatch, case):
    changed, url, told = WRONG[case]
    (tmp_path / "config").write_text("[default]\nsso_session = lab\n")
    port = closed_port()
    for name, value in changed.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(
            name, value.format(port=port, folder=tmp_path)
        )
    monkeypatch.setattr(remote, "FIRST_PATIENCE", 0.2)
    for ask in (open_source,) if case == "nothing" else (open_source, open_genotypes, remote.root_at):
        with pytest.raises(InputError) as caught:
            ask(url)
        message = one_line(caught)
        assert all(part in message for part in told), message
        assert "profile" in case or url in message
        assert SECRET not in message
        assert s3.secret not in message


def test_errors_of_keys_in_mid_sweep(url, data, monkeypatch):
    copied(data[0], url)
    source = open_source(url)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    stale = pickle.loads(pickle.dumps(source))  # as a worker with other keys has it
    with pytest.raises(InputError) as caught:
        sp.PCA(n_components=2).fit(stale)
    assert "AWS_SECRET_ACCESS_KEY" in one_line(caught)
    assert SECRET not in str(caught.getrepr(style="long"))


@pytest.mark.usefixtures("s3")
def test_a_server_that_never_answers_is_left(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PATIENCE", 0.5)
    monkeypatch.setattr(remote, "FIRST_SILENCE", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(InputError, match="no answer"):
            open_source("s3://bucket/x.zarr")


def stopping(server, at, away):
    """Return a `read_block` that stops the server at some read and has it back after some seconds, and what does so."""
    reads, whole, lock = [], ZarrSource.read_block, threading.Lock()

    def back():
        time.sleep(away)
        server.start()

    returning = threading.Thread(target=back)

    def read_block(source, *slices):
        with lock:
            reads.append(slices)
            if len(reads) == at:
                server.stop()
                if away is not None:
                    returning.start()
        return whole(source, *slices)

    return read_block, returning


@pytest.mark.usefixtures("small_partitions")
def test_a_server_that_goes_and_comes_back_changes_no_bit(s3, url, data, monkeypatch):
    copied(data[0], url)
    expected = bits(str(data[0]))
    read_block, returning = stopping(s3, at=3, away=1.0)
    monkeypatch.setattr(ZarrSource, "read_block", read_block)
    try:
        assert bits(url) == expected
    finally:
        returning.join()


@pytest.mark.usefixtures("small_partitions")
def test_a_server_that_stays_away_ends_the_run(s3, url, data, monkeypatch):
    copied(data[0], url)
    monkeypatch.setattr(remote, "PATIENCE", 1.0)
    monkeypatch.setattr(ZarrSource, "read_block", stopping(s3, at=3, away=None)[0])
    try:
        with pytest.raises(InputError) as caught:
            sp.PCA(n_components=2).fit(url)
        assert "no answer from http://127.0.0.1" in one_line(caught)
    finally:
        s3.start()


def test_pickles_hold_no_keys(s3, url, data):
    copied(data[0], url)
    pickled = pickle.dumps(open_source(url))
    assert s3.secret.encode() not in pickled
    assert s3.key.encode() not in pickled
    assert_reads_as(pickle.loads(pickled), data[1])


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_workers_of_dask_read_by_themselves(url, data):
    from distributed import Client, LocalCluster

    copied(data[0], url)
    expected = bits(str(data[0]))
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with Client(cluster):
            assert bits(url) == expected


def test_upload_gives_what_xarray_opens(url, result):
    assert not exists(url)
    assert kind_at(url) is None
    remote.check_target(url, overwrite=False)
    assert not exists(url)
    steps = []
    remote.upload(result, url, False, steps.append)
    assert exists(url)
    assert kind_at(url) == "pca"
    assert steps[-1].done == steps[-1].total == len(names_at(url)) - 1
    there = xarray.open_zarr(remote.open_remote(url), chunks=None)
    xarray.testing.assert_identical(there.load(), xarray.open_zarr(result, chunks=None).load())
    assert there.attrs["kind"] == "pca"
    assert remote.root_at(url) == json.loads((result / "zarr.json").read_text())


def test_an_upload_waits_for_a_server_that_comes_back(s3, url, result):
    returning = threading.Timer(1.0, s3.start)

    def progress(step):
        if step.done == 5:
            s3.stop()
            returning.start()

    try:
        remote.upload(result, url, False, progress)
    finally:
        returning.join()
    assert names_at(url) == {path.relative_to(result).as_posix() for path in result.rglob("*") if path.is_file()}
    assert kind_at(url) == "pca"


def test_upload_of_large_files_in_parts(url, result, monkeypatch):
    big = np.random.default_rng(0).bytes(11 << 20)
    (result / "v0" / "big").write_bytes(big)
    monkeypatch.setattr(remote, "PART_BYTES", 5 << 20)
    remote.upload(result, url, False)
    assert bytes(remote._connect(url, 60, 30).get("v0/big").bytes()) == big


def test_upload_refuses_what_is_there(s3, url, result, data):
    remote.upload(result, url, False)
    (result / "zarr.json").write_text((result / "zarr.json").read_text().replace("pca", "kpca"))
    for refuse in (remote.upload, lambda _, *rest: remote.check_target(*rest)):
        with pytest.raises(InputError, match="exists already"):
            refuse(result, url, False)
        assert kind_at(url) == "pca"
    other = f"{url}-other"
    copied(data[0], other)
    before = names_at(other)
    for overwrite, told in ((False, "exists already"), (True, "was not written by streampca")):
        with pytest.raises(InputError, match=told):
            remote.upload(result, other, overwrite)
    assert names_at(other) == before
    loose = s3.url("loose.zarr")
    remote._connect(f"{loose}/sub", 60, 30).put("file", b"mine")
    with pytest.raises(InputError, match="was not written by streampca"):
        remote.upload(result, loose, True)
    assert names_at(loose) == {"sub/file"}


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize(
    ("where", "told"),
    [("s3://bucket", "whole bucket"), ("s3://bucket/", "whole bucket"), ("memory://x/y", "cannot be written"),
     ("http://127.0.0.1/x", "cannot be written")],
)  # fmt: skip
def test_upload_refuses_where_it_cannot_write(result, where, told):
    with pytest.raises(InputError, match=told):
        remote.upload(result, where, True)


def test_upload_without_the_right_to_write(url, result, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
    for refuse in (partial(remote.upload, result), remote.check_target):
        with pytest.raises(InputError, match="access was denied"):
            refuse(url, False)


def test_overwriting_removes_what_is_stale_and_nothing_else(url, result):
    beside = f"{url}2"
    remote.upload(result, beside, False)
    remote.upload(result, url, False)
    remote._connect(url, 60, 30).put("notes/mine.txt", b"not ours")
    for name in list(result.glob("v1*")):
        for path in sorted(name.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        name.rmdir()
    (result / "zarr.json").write_text('{"attributes": {"format_version": 1, "kind": "kpca"}}')
    seen = []
    remote.upload(result, url, True, lambda _: seen.append(kind_at(url)))
    assert set(seen) == {None}  # nobody saw half of it
    assert kind_at(url) == "kpca"
    ours = {path.relative_to(result).as_posix() for path in result.rglob("*") if path.is_file()}
    assert names_at(url) == ours | {"notes/mine.txt"}
    assert kind_at(beside) == "pca"
    assert any(name.startswith("v1/") for name in names_at(beside))


KILLED = """
import os, signal, sys
from pathlib import Path
from streampca.sources import remote
def progress(step):
    if step.done == 20:
        os.kill(os.getpid(), signal.SIGKILL)
remote.upload(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True", progress)
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_upload_goes_on_after_sigkill(url, result, monkeypatch, overwrite):
    if overwrite:
        remote.upload(result, url, False)
        for path in result.glob("v*/c/0/0"):
            path.write_bytes(path.read_bytes() + b"more")
    done = subprocess.run([sys.executable, "-c", KILLED, str(result), url, str(overwrite)], check=False)
    assert done.returncode == -9
    assert kind_at(url) is None
    assert exists(url)
    with pytest.raises(InputError, match="not a Zarr array or group"):
        open_source(url)
    sent, connect = [], remote._connect

    class Recorder:
        def __init__(self, *arguments):
            self._client = connect(*arguments)

        def __getattr__(self, name):
            return getattr(self._client, name)

        def put(self, name, *arguments, **options):
            sent.append(name)
            return self._client.put(name, *arguments, **options)

    monkeypatch.setattr(remote, "_connect", Recorder)
    remote.check_target(url, False)
    remote.upload(result, url, False)
    assert sent[-1] == "zarr.json"
    files = {path.relative_to(result).as_posix(): path for path in result.rglob("*") if path.is_file()}
    assert len(sent) <= len(files) - 20 + 1  # and the mark
    client = connect(url, 60, 30)
    assert names_at(url) == set(files)
    assert all(bytes(client.get(name).bytes()) == path.read_bytes() for name, path in files.items())
    remote.upload(result, url, False)  # the same once more


@pytest.mark.usefixtures("s3")
def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InputError, match=r"pip install 'streampca\[s3\]'"):
        open_source("s3://bucket/x.zarr")


def test_passwords_in_addresses_are_not_shown():
    store = remote.RemoteStore("http://me:secret@127.0.0.1/x.zarr")
    assert str(store) == "http://127.0.0.1/x.zarr"


def test_upload_of_what_is_no_store(url, tmp_path):
    with pytest.raises(InputError, match="is not a Zarr store"):
        remote.upload(tmp_path, url, True)
    assert not exists(url)
