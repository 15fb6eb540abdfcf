"""Passwords and tokens do not reach messages, records or results."""

from __future__ import annotations

import json

import pytest

from streampca.errors import InputError, redacted
from streampca.run.config import load
from streampca.run.driver import _recorded


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
    recorded = json.dumps(_recorded(load(tmp_path / "run.yaml").as_dict()))
    assert "hunter" not in recorded
    assert '"memory_limit": "1GB"' in recorded
