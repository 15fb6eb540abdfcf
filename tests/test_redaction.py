"""Passwords and tokens do not reach messages, records or results."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streampca.errors import InputError, redacted
from streampca.run.config import load
from streampca.run.record import recorded_options


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@bucket/x.zarr", "s3://bucket/x.zarr"),
        ("s3://KEY:SEC/RET@bucket/x.zarr", "s3://bucket/x.zarr"),
        ("tcp://user:secret@host:8786", "tcp://host:8786"),
        ("https://user:pw@host/x", "https://host/x"),
        ("https://token@host/x", "https://host/x"),
        ("https:/user:pw@host/x", "https:/host/x"),
        ("https://host/x?token=abc&b=1: not found", "https://host/x: not found"),
        ("https://host/x#token=abc", "https://host/x"),
        ("https:/host/x?sig=abc", "https:/host/x"),
        ("failed with access_token=abc, retry", "failed with access_token=***, retry"),
        ("AWS_SECRET=abc", "AWS_SECRET=***"),
        ("abfs://container@account/x", "abfs://container@account/x"),
        ("http://host:8080/x.zarr", "http://host:8080/x.zarr"),
        ("s3://bucket/a:b.zarr", "s3://bucket/a:b.zarr"),
        ("C: a note; nothing here?", "C: a note; nothing here?"),
    ],
)
def test_secrets_are_removed_and_nothing_else(text, shown):
    assert redacted(text) == shown
    assert str(InputError(text)) == shown
    assert redacted({"a": [text]}) == {"a": [shown]}


def test_lines_for_the_shell_are_not_recorded(tmp_path):
    blocks = {
        "data": {"path": "x.npy"}, "model": {"kind": "pca"}, "output": {"path": "out.zarr"},
        "engine": {"kind": "slurm", "workers": 1, "memory_limit": "1GB", "prologue": ["export PASS=hunter2"],
                   "directives": ["--comment=hunter3"]},
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(json.dumps(blocks))
    recorded = json.dumps(recorded_options(load(tmp_path / "run.yaml").as_dict()))
    assert "hunter" not in recorded
    assert '"memory_limit": "1GB"' in recorded


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:hunter2@bucket/x.zarr",
        "https:/user:hunter2@127.0.0.1:9/x.zarr",
        "http://127.0.0.1:9/x.zarr?token=hunter2",
        "http://127.0.0.1:9/x.zarr#token=hunter2",
        "tcp://user:hunter2@127.0.0.1:9/x.zarr",
    ],
)
@pytest.mark.parametrize("where", ["data", "output"])
def test_a_run_that_fails_writes_and_prints_no_secret_of_its_urls(url, where, here, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("streampca.sources.remote.FIRST_PATIENCE", 0.1)
    np.save(tmp_path / "x.npy", np.eye(5, dtype="f4"))
    (tmp_path / "work").mkdir()
    paths = {"data": "x.npy", "output": "work/out.zarr"} | {where: url}
    output = {"path": paths["output"]} | ({"work": "work"} if "://" in paths["output"] else {})
    blocks = {"data": {"path": paths["data"]}, "model": {"kind": "pca"}, "output": output}
    (tmp_path / "run.yaml").write_text(json.dumps(blocks))
    code, out, error = here("run", "run.yaml")
    assert code == 2, error
    written = [path for path in (tmp_path / "work").rglob("*")]
    assert "hunter2" not in out + error + "".join(map(str, written))
    assert not [path for path in written if path.is_file() and b"hunter2" in path.read_bytes()]


def test_an_address_with_a_password_is_rejected_without_showing_it(here, tmp_path):
    engine = {"kind": "address", "address": "tcp://user:hunter2@host:8786"}
    blocks = {"data": {"path": "x.npy"}, "model": {"kind": "pca"}, "output": {"path": "o.zarr"}, "engine": engine}
    (tmp_path / "run.yaml").write_text(json.dumps(blocks))
    code, _, error = here("run", "run.yaml")
    assert code == 2
    assert "engine.address" in error
    assert "hunter2" not in error
