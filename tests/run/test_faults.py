"""Faults of a cluster: a lost scheduler, workers that hang, leave, or run other software. One line, no wrong number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import pytest
import zarr
from killing import PARTITION, SLAB, bits

from streampca.errors import InputError
from streampca.run import engine as engine_module
from streampca.sweep import sweep as sweep_module
from streampca.sweep.checkpoint import read_record, write_record

pytestmark = pytest.mark.slow
WAIT = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((6000, 6)) @ rng.standard_normal((6, 40)) + 0.5 * rng.standard_normal((6000, 40))
    zarr.create_array(folder / "x.zarr", shape=values.shape, chunks=(200, 40), dtype="f4")[...] = values
    return folder / "x.zarr"


@contextmanager
def process(*command, **options):
    """A process of its own, killed at the end."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def scheduler(folder):
    """A Dask scheduler; yields its process and address."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    command = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with process(sys.executable, "-m", *command, "--scheduler-file", str(file)) as running:
        yield running, wait_for(lambda: address_in(file))


def address_in(file):
    """Return the address in the file of a scheduler; None if it is not written yet."""
    with suppress(FileNotFoundError, ValueError):
        return json.loads(file.read_text())["address"]


def worker(address, *options):
    command = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    return process(sys.executable, "-m", *command, *options)


def address_settings(address):
    files = dict.fromkeys(("tls_ca_file", "tls_cert_file", "tls_key_file"))
    return SimpleNamespace(kind="address", address=address, **files)


def wait_for(condition):
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.fixture
def held(tmp_path):
    """Return options by which a worker waits for ever after some partitions, so that a fault finds the run at work."""
    script = tmp_path / "held.py"
    # Dask loads the script twice.
    script.write_text(
        "import threading\nfrom streampca.sweep import sweep\n"
        "real, done = getattr(sweep.run_partition, 'real', (sweep.run_partition, []))\n"
        "def held(*arguments):\n"
        "    done.append(1)\n"
        "    return real(*arguments) if len(done) < 50 else threading.Event().wait()\n"
        "held.real, sweep.run_partition = (real, done), held\n"
    )
    return "--preload", str(script)


def write_config(path, data, result, **blocks):
    """Write a configuration; JSON is YAML."""
    whole = {
        "data": {"path": str(data)},
        "model": {"kind": "pca", "n_components": 4} | blocks.get("model", {}),
        "engine": {"memory_limit": "1GB", "checkpoint_minutes": 1e-6} | blocks.get("engine", {}),
        "output": {"path": str(result)},
    }
    path.write_text(json.dumps(whole))
    return path


def configured(folder, data, address, name="out.zarr"):
    engine = {"kind": "address", "address": address}
    model = {"solver": "krylov", "tol": 1e-9}
    return write_config(folder / "run.yaml", data, folder / name, engine=engine, model=model)


PROGRAM = f"""
import streampca.sources.base as base
base.SLAB_BYTES, base.PARTITION_BYTES = {SLAB}, {PARTITION}
from streampca.cli import main
main()
"""


def started(folder, config):
    """Start a run with many partitions; return its process."""
    with (folder / "err").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "run", str(config)], stdout=subprocess.DEVNULL, stderr=err, cwd=folder
        )


def recorded(folder, driver):
    """Wait until a run has written a checkpoint."""
    records = folder / "out.zarr.unfinished" / "checkpoint"
    wait_for(lambda: list(records.glob("*.npz")) or driver.poll() is not None)
    assert driver.poll() is None, (folder / "err").read_text()


def test_a_killed_scheduler_is_one_line_and_the_run_resumes_to_the_same_bits(data, tmp_path, held):
    with scheduler(tmp_path) as (running, address), worker(address, *held):
        driver = started(tmp_path, configured(tmp_path, data, address))
        recorded(tmp_path, driver)
        running.kill()
        assert driver.wait(WAIT) == 75
    lines = [line for line in (tmp_path / "err").read_text().splitlines() if line.startswith("streampca: ")]
    saved = "finished work is saved: run the same command to resume"
    assert lines == [f"streampca: the connection to the Dask scheduler is lost; {saved}"]
    assert "Traceback" not in (tmp_path / "err").read_text()
    with scheduler(tmp_path) as (_, address), worker(address):
        assert started(tmp_path, configured(tmp_path, data, address)).wait(WAIT) == 0
        assert started(tmp_path, configured(tmp_path, data, address, "whole.zarr")).wait(WAIT) == 0
    assert bits(tmp_path / "out.zarr") == bits(tmp_path / "whole.zarr")


def test_a_worker_with_other_software_that_joins_later_ends_the_run(data, tmp_path, held):
    other = tmp_path / "other.py"
    # Dask loads the script twice.
    other.write_text(
        "from streampca.sweep import environment\n"
        "real = getattr(environment.environment, 'real', environment.environment)\n"
        "def other():\n    return real() | {'numpy': '1.0'}\n"
        "other.real, environment.environment = real, other\n"
    )
    with scheduler(tmp_path) as (_, address), worker(address, *held):
        driver = started(tmp_path, configured(tmp_path, data, address))
        recorded(tmp_path, driver)
        with worker(address, "--preload", str(other)):
            assert driver.wait(WAIT) == 2
    error = (tmp_path / "err").read_text()
    assert f"has numpy 1.0 (the driver has {np.__version__}); install the same versions" in error
    assert "Traceback" not in error
    assert not (tmp_path / "out.zarr").exists()


def test_a_worker_that_hangs_or_leaves_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(engine_module, "SILENT_SECONDS", 2)
    lines = []
    with scheduler(tmp_path) as (_, address), worker(address) as first, worker(address) as second:
        with engine_module.engine(address_settings(address), 1, 10**9, report=lines.append) as client:
            client.wait_for_workers(2)
            wait_for(lambda: any(line.startswith("2 workers") for line in lines))
            os.kill(first.pid, signal.SIGSTOP)
            wait_for(lambda: any("1 of 2 workers left" in line and "did not answer" in line for line in lines))
            second.kill()
            wait_for(lambda: any(line.startswith("no workers; waiting for one") for line in lines))
            os.kill(first.pid, signal.SIGCONT)
            wait_for(lambda: lines[-1].startswith("1 of 2 workers left"))


def test_a_scheduler_that_hangs_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(engine_module, "SILENT_SECONDS", 2)
    lines = []
    with scheduler(tmp_path) as (running, address), worker(address):
        with engine_module.engine(address_settings(address), 1, 10**9, report=lines.append):
            wait_for(lambda: any(line.startswith("1 worker x 1 thread") for line in lines))
            os.kill(running.pid, signal.SIGSTOP)
            wait_for(lambda: lines[-1] == "the scheduler does not answer")
            os.kill(running.pid, signal.SIGCONT)
            wait_for(lambda: lines[-1].startswith("1 worker x 1 thread"))


def test_workers_are_not_reported_as_lost_when_the_client_asks_for_the_scheduler_only(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "WATCH_SECONDS", 0.001)
    checks, check = [], engine_module._WorkerWatch._check
    monkeypatch.setattr(engine_module._WorkerWatch, "_check", lambda watch: checks.append(check(watch)))
    lines = []
    with scheduler(tmp_path) as (_, address), worker(address):
        with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}):
            with engine_module.engine(address_settings(address), 1, 10**9, report=lines.append):
                wait_for(lambda: len(checks) > 200)
    assert {line.partition(",")[0] for line in lines} == {"1 worker x 1 thread"}


@pytest.mark.parametrize(("allowed", "shown"), [(0, "1 worker lost"), (3, "4 workers lost")])
def test_a_task_that_loses_its_workers_names_their_number(allowed, shown):
    lost = engine_module.lost_cluster(distributed.KilledWorker("task", None, allowed))
    assert lost == f"{shown} with the same task, perhaps for lack of memory"


def test_worker_processes_that_die_while_they_start_are_tried_again(monkeypatch):
    calls = []

    def start():
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("Nanny failed to start.")
        return "cluster"

    assert engine_module._started(start) == "cluster"
    calls.clear()
    monkeypatch.setattr(engine_module, "START_ATTEMPTS", 2)
    with pytest.raises(InputError, match="did not start in 2 attempts"):
        engine_module._started(start)


def test_an_error_about_data_on_a_worker_names_its_host(monkeypatch):
    def fails(*_):
        raise InputError("x.zarr: has changed since it was opened")

    monkeypatch.setattr(sweep_module, "run_partition", fails)
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    with pytest.raises(InputError, match=r"has changed since it was opened \(on host node7\)"):
        sweep_module._run_on_worker()


@pytest.mark.parametrize("address", ["host:8786", "tcp://host", "tcp:/host:1", "tcp://host:port", "http://host:8786"])
def test_a_malformed_address_is_rejected_at_once(here, tmp_path, address):
    config = write_config(tmp_path / "c.yaml", "x.zarr", "out.zarr", engine={"kind": "address", "address": address})
    code, _, error = here("run", config)
    assert code == 2
    assert "engine.address must be text such as tcp://host:8786 or tls://host:8786" in error


@pytest.fixture
def interrupted(data, tmp_path, here, monkeypatch, small_partitions):  # noqa: ARG001
    """An unfinished run with records of some partitions; returns its directory and the command."""
    config = write_config(tmp_path / "run.yaml", data, tmp_path / "out.zarr", model={"solver": "krylov"})
    original, done = sweep_module.run_partition, []

    def stops(*arguments):
        done.append(1)
        if len(done) > 20:
            raise InputError("stopped here")
        return original(*arguments)

    monkeypatch.setattr(sweep_module, "run_partition", stops)
    assert here("run", config)[0] == 2
    monkeypatch.setattr(sweep_module, "run_partition", original)
    return tmp_path / "out.zarr.unfinished" / "checkpoint", lambda: here("run", config)


def test_keys_of_a_killed_run_are_removed_before_it_resumes(interrupted, monkeypatch):
    records, resume = interrupted
    keys = records.parent / ".streampca-keys-abc"
    keys.mkdir()
    (keys / "key.pem").write_text("secret")
    seen = []

    def engine(*arguments, **options):
        seen.append(keys.exists())
        return engine_module.engine(*arguments, **options)

    monkeypatch.setattr("streampca.run.driver.engine", engine)
    assert resume()[0] == 0
    assert seen == [False]


def test_a_record_of_another_range_is_not_used(interrupted, tmp_path, data, here):
    records, resume = interrupted
    one, *_ = sorted(records.glob("*.npz"))
    number, start, stop = one.stem.split("-")
    length = int(stop) - int(start)
    other = records / f"{number}-{int(stop)}-{int(stop) + length}.npz"
    other.write_bytes(one.read_bytes())
    code, _, error = resume()
    assert code == 0, error
    config = write_config(tmp_path / "whole.yaml", data, tmp_path / "whole.zarr", model={"solver": "krylov"})
    assert here("run", config)[0] == 0
    assert bits(tmp_path / "out.zarr") == bits(tmp_path / "whole.zarr")


def test_a_record_of_another_shape_is_not_used(interrupted, tmp_path, data, here):
    records, resume = interrupted
    one, *_ = sorted(records.glob("*.npz"))
    tree = read_record(one)
    value = tree["partial"].value
    write_record(one, tree | {"partial": replace(tree["partial"], value=(value[0][:-1], *value[1:]))})
    code, _, error = resume()
    assert code == 0, error
    config = write_config(tmp_path / "whole.yaml", data, tmp_path / "whole.zarr", model={"solver": "krylov"})
    assert here("run", config)[0] == 0
    assert bits(tmp_path / "out.zarr") == bits(tmp_path / "whole.zarr")
