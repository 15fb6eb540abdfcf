import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parent.parent / "scripts" / "bench"
PYTHON = f"{sys.executable} -I -S -c"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)


@pytest.fixture
def two_processes():
    """A tool of two processes that hold 60 MB each, both of them there."""
    hold = f"{PYTHON} 'x = b\"x\" * 60_000_000; print(1, flush=True); import time; time.sleep(1000)'"
    tool = subprocess.Popen(["sh", "-c", f"{hold} & {hold}; wait"], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert [tool.stdout.readline() for _ in range(2)] == [b"1\n"] * 2
        yield tool
    finally:
        with suppress(ProcessLookupError):
            os.killpg(tool.pid, signal.SIGKILL)
        tool.stdout.close()
        tool.wait()


def test_memory_counts_all_processes_of_a_tool(two_processes):
    from launcher import resident_bytes

    assert 120e6 < resident_bytes(two_processes.pid) < 200e6


def test_a_tool_that_is_stopped_takes_with_it_all_that_it_started(two_processes):
    from launcher import kill

    kill(two_processes.pid)
    # Ends only when no process is left that could write.
    assert two_processes.stdout.read() == b""


def test_a_tool_is_stopped_at_its_limit(tmp_path):
    from measuring import run

    assert run("sleep 1000", tmp_path / "log", limit=0.3)["failed"] == "stopped after 0.3 s"


def test_a_tool_that_fails_says_its_last_line(tmp_path):
    from measuring import run

    assert run("sh -c 'echo first; echo second >&2; exit 3'", tmp_path / "log")["failed"] == "second"


def test_what_a_subspace_misses_does_not_depend_on_its_basis():
    from measuring import missed

    rng = np.random.default_rng(0)
    true = np.linalg.qr(rng.standard_normal((30, 4)))[0]
    assert missed(true @ rng.standard_normal((4, 4)), true) < 1e-14
    assert missed(np.linalg.svd(true)[0][:, 4:8], true) == pytest.approx(1)
    assert missed(true[:, :3], true) == pytest.approx(0.25)


def rows():
    common = {"version": "1", "memory": "whole", "note": "", "megabytes": 300.0}
    return [
        {"tool": "streampca", "seconds": 5.0, "missed": 1e-8, **common, "memory": "bounded"},
        {"tool": "streampca `--tol 1e-6`", "seconds": 10.0, "missed": 1e-14, **common, "memory": "bounded"},
        {"tool": "coarse", "seconds": 4.0, "missed": 1e-2, **common},
        {"tool": "exact", "seconds": 8.0, "missed": 1e-13, **common, "megabytes": 100.0},
        {"tool": "slow", "failed": "stopped after 9 s", "seconds": 9.0, **common},
        {"tool": "absent", "failed": "absent is not installed", **common, "version": None},
    ]


def test_the_line_below_a_table_names_all_that_were_faster_or_smaller():
    from comparison import judged
    from comparison_pages import standing

    found = rows()
    judged(found)
    assert found[3]["ratio"] == pytest.approx(1.6)
    assert found[3]["ratio_as_accurate"] == pytest.approx(0.8)  # the first run misses more
    said = standing(found)
    first, second, third = said.split(". ")
    assert "coarse" in first
    assert "exact" not in first
    assert "exact" in second
    assert "exact" in third
    assert "coarse" not in third


def test_pages_hold_every_tool_that_could_not_be_measured(tmp_path):
    from comparison import judged
    from comparison_pages import write_pages

    found = rows()
    judged(found)
    about = {"date": "today", "cores": 2, "threads": 2, "limit": 9, "processor": "p", "python": "3", "blas": "libblas"}
    kept = tmp_path / "comparison.json"
    write_pages({"about": about, "cases": {"one": {"title": "One", "rows": found}}}, kept, tmp_path / "figure.png")
    text = kept.with_suffix(".md").read_text()
    assert "| slow, 1 | stopped after 9 s |" in text
    assert "| absent | absent is not installed |" in text
    assert len(kept.with_suffix(".csv").read_text().splitlines()) == 7
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_every_cell_of_the_table_of_features_is_there_and_every_note_is_used():
    from features import FEATURES, NOTES, TOOLS, feature_table

    text = feature_table()
    assert all(len(cells) == len(TOOLS) for cells in FEATURES.values())
    cells = json.dumps(list(FEATURES.values()))
    assert [number for number in range(1, 100) if f"[{number}]" in cells] == list(range(1, len(NOTES) + 1))
    assert text.count("\n| ") == len(FEATURES) + 1
