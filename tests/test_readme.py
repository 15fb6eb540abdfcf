"""README code is run."""

from __future__ import annotations

import doctest
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_readme_examples_give_what_they_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 5
    assert failed == 0


def test_every_readme_command_exists():
    text = (ROOT / "README.md").read_text()
    scripts = {word for line in text.splitlines() if line.startswith("bash ") for word in line.split()[1:2]}
    assert scripts == {"scripts/demo", "scripts/test"}
    for script in scripts:
        assert (ROOT / script).exists()
