"""README code is run, as are the examples in docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_readme_examples_give_what_they_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 5
    assert failed == 0


@pytest.mark.parametrize("name", ["streampca.models.pca"])
def test_docstring_examples_give_what_they_show(name):
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0


def test_every_readme_command_exists():
    text = (ROOT / "README.md").read_text()
    scripts = {word for line in text.splitlines() if line.startswith("bash ") for word in line.split()[1:2]}
    assert scripts == {"scripts/demo", "scripts/test"}
    for script in scripts:
        assert (ROOT / script).exists()
