"""The memory that a job or container leaves to a process, on made-up control groups and in made-up Slurm jobs."""

from __future__ import annotations

import resource
import subprocess
import sys

import psutil
import pytest

from streampca import validation
from streampca.sweep.memory import memory_limit

MB = 1 << 20
MACHINE = 64 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with 64 GB free and no limits."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": MACHINE}))
    monkeypatch.setattr(validation, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(validation, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)


def group(folder, version, limit, used, cached=0):
    folder.mkdir(parents=True, exist_ok=True)
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
             2: ("memory.max", "memory.current", "inactive_file")}[version]  # fmt: skip
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached}\n")


def test_without_limits_it_is_what_the_machine_has():
    assert validation.available_memory() == MACHINE


def test_the_group_of_the_process_limits_it(tmp_path):
    (tmp_path / "own").write_text("0::/system.slice/job7\n")
    group(tmp_path / "cgroup" / "system.slice" / "job7", 2, 400 * MB, 100 * MB, cached=30 * MB)
    assert validation.available_memory() == 330 * MB
    assert memory_limit(None) == 165 * MB


def test_a_group_above_limits_it_too(tmp_path):
    (tmp_path / "own").write_text("0::/slurm/job_1/step_0\n")
    group(tmp_path / "cgroup" / "slurm" / "job_1" / "step_0", 2, "max", 10 * MB)
    group(tmp_path / "cgroup" / "slurm" / "job_1", 2, 500 * MB, 50 * MB)
    assert validation.available_memory() == 450 * MB


def test_in_a_container_the_root_is_the_group(tmp_path):
    (tmp_path / "own").write_text("0::/../../docker/abc\n")
    group(tmp_path / "cgroup", 2, 300 * MB, 100 * MB)
    assert validation.available_memory() == 200 * MB


def test_version_1_is_read(tmp_path):
    (tmp_path / "own").write_text("5:cpu,cpuacct:/x\n4:memory:/pbs/job9\n1:name=systemd:/y\n")
    group(tmp_path / "cgroup" / "memory" / "pbs" / "job9", 1, 600 * MB, 200 * MB, cached=50 * MB)
    group(tmp_path / "cgroup" / "memory", 1, 1 << 62, 900 * MB)
    assert validation.available_memory() == 450 * MB


@pytest.mark.parametrize(
    ("variables", "megabytes"),
    [
        ({"SLURM_MEM_PER_NODE": "2000"}, 2000),
        ({"SLURM_MEM_PER_CPU": "500", "SLURM_CPUS_ON_NODE": "3"}, 1500),
        ({"SLURM_MEM_PER_CPU": "500"}, None),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_NODE": "lots"}, None),
    ],
)
def test_slurm_jobs_are_limited_by_what_they_were_given(monkeypatch, variables, megabytes):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = validation.available_memory()
    if megabytes is None:
        assert found == MACHINE
    else:
        assert megabytes * MB - (2 << 30) < found < megabytes * MB


def test_a_group_that_is_full_leaves_nothing(tmp_path):
    (tmp_path / "own").write_text("0::/x\n")
    group(tmp_path / "cgroup" / "x", 2, 100 * MB, 120 * MB)
    assert validation.available_memory() == 0


@pytest.mark.parametrize("option", ["-v", "-d"])
def test_ulimit_limits_it(option):
    code = "from streampca.validation import available_memory; print(available_memory())"
    script = f"ulimit {option} 3000000; {sys.executable} -c '{code}'"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert 0 < int(done.stdout) < 3_000_000 * 1024, done.stderr
