"""Engines: who does the work, what they ask for, what they leave behind."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import dask
import distributed
import numpy as np
import psutil
import pytest
import zarr
from helpers import falling, matrix_with_spectrum

from streampca import PCA
from streampca.errors import InputError
from streampca.run import engine as engine_module
from streampca.run import job_queue as jobqueue
from streampca.run.config.blocks import JobQueue, Processes
from streampca.run.engine import describe, engine
from streampca.run.job_queue import _Keeper
from streampca.run.work_directory import WorkDirectory
from streampca.sweep.sweep import active_client

with suppress(ImportError):
    import dask_jobqueue  # noqa: F401  its defaults join the configuration here, not in the midst of a test

MEMORY = 1_000_000_000
TLS = ("tls_ca_file", "tls_cert_file", "tls_key_file")


def processes(workers=2, dashboard=False):
    return SimpleNamespace(kind="processes", workers=workers, dashboard=dashboard)


def address(where, **files):
    return SimpleNamespace(kind="address", address=where, **(dict.fromkeys(TLS) | files))


def jobs(kind, **options):
    nothing = dict.fromkeys(("queue", "account", "interface", "local_directory", "log_directory", "python"))
    given = {"workers": 2, "walltime": "01:00:00", "prologue": [], "directives": [], "dashboard": False, "tls": False}
    return SimpleNamespace(kind=kind, **(nothing | given | options))


def nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def stored(tmp_path):
    x = matrix_with_spectrum(3000, 40, falling(30), mean=3.0).astype(np.float32)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(100, 40))
    return tmp_path / "x.zarr"


@pytest.fixture
def left_as_it_was(tmp_path, monkeypatch):
    """Compare processes, threads, temporary folders, Dask's configuration and client before and after."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    config, client = copy.deepcopy(dask.config.config), active_client()
    workers = {child.pid for child in psutil.Process().children(recursive=True)}
    threads = set(threading.enumerate())
    yield
    assert dask.config.config == config
    assert active_client() is client
    # A worker that was just being started again may take a moment to end.
    new = [child for child in psutil.Process().children(recursive=True) if child.pid not in workers]
    # What keeps count of semaphores for spawned processes stays, once there was one.
    new = [child for child in new if not is_resource_tracker(child)]
    assert psutil.wait_procs(new, timeout=30)[1] == []
    # So may the threads of a cluster.
    ours = ("IO loop", "streampca-keeper", "Profile")
    left = [t for t in set(threading.enumerate()) - threads if t.name in ours or "Nanny" in t.name]
    for thread in left:
        thread.join(timeout=30)
    assert not [thread.name for thread in left if thread.is_alive()]
    assert not list((tmp_path / "tmp").glob("streampca-*"))


def is_resource_tracker(process):
    try:
        return "resource_tracker" in "".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def fitted(path, **options):
    return PCA(4, solver="krylov", tol=1e-3, **options).fit(path)


def assert_same_bits(a, b):
    for name in ("components_", "explained_variance_", "certificate_", "mean_"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.n_sweeps_ == b.n_sweeps_


@pytest.mark.usefixtures("left_as_it_was")
def test_threads_need_no_client():
    with engine(SimpleNamespace(kind="threads"), 2, MEMORY) as client:
        assert client is None
        assert active_client() is None
    assert describe(None) == "threads of this process"


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions", "left_as_it_was")
def test_processes_give_the_bits_of_threads_and_leave_nothing(stored):
    here = fitted(stored)
    with engine(processes(), 1, MEMORY) as client:
        assert active_client() is client
        assert describe(client) == "2 workers x 1 thread"
        assert client.cluster.scheduler.allowed_failures == engine_module.ALLOWED_FAILURES
        limits = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit)
        assert set(limits.values()) == {MEMORY}
        pids = client.run(os.getpid)
        for pid in pids.values():
            os.kill(pid, signal.SIGINT)
        assert_same_bits(here, fitted(stored))
        assert client.run(os.getpid) == pids


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions", "left_as_it_was")
def test_a_worker_that_is_killed_is_replaced_and_the_bits_are_the_same(stored):
    here = fitted(stored)
    killed = []

    def kill_one(step):
        if step.sweep == 2 and step.done == 3 and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with engine(processes(), 1, MEMORY) as client:
        assert_same_bits(here, fitted(stored, progress=kill_one))
        client.wait_for_workers(2, timeout=60)
        pids = set(client.run(os.getpid).values())
        assert killed
        assert len(pids) == 2
        assert killed[0] not in pids


@pytest.mark.slow
@pytest.mark.usefixtures("left_as_it_was")
def test_a_task_that_kills_each_worker_ends_with_an_error(monkeypatch):
    monkeypatch.setattr(engine_module, "ALLOWED_FAILURES", 1)
    with engine(processes(workers=1), 1, MEMORY) as client, pytest.raises(distributed.KilledWorker):
        client.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result(timeout=60)


def interrupted(client):
    client.submit(time.sleep, 600)
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.usefixtures("left_as_it_was")
def test_an_interrupted_body_closes_processes():
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), engine(processes(workers=1), 1, MEMORY) as client:
        interrupted(client)
    assert time.monotonic() - started < engine_module.CLOSING_SECONDS + 20


@pytest.mark.slow
@pytest.mark.usefixtures("left_as_it_was")
def test_dashboard_takes_another_port_and_the_outer_client_comes_back():
    with engine(processes(workers=1, dashboard=True), 1, MEMORY) as outer:
        with engine(processes(workers=1, dashboard=True), 1, MEMORY) as inner:
            assert active_client() is inner
            links = {client.dashboard_link for client in (outer, inner)}
            assert len(links) == 2
            assert describe(inner) == f"1 worker x 1 thread, dashboard at {inner.dashboard_link}"
        assert active_client() is outer


@pytest.mark.slow
def test_first_use_leaves_the_configuration_whole():
    # In an interpreter of its own: distributed adds its defaults when it is imported, and they must stay.
    code = (
        "from types import SimpleNamespace; from streampca.run.engine import engine; import dask, sys\n"
        "assert 'distributed' not in sys.modules\n"
        "with engine(SimpleNamespace(kind='processes', workers=1, dashboard=False), 1, 10**9): pass\n"
        "print(*(dask.config.get(f'distributed.{key}') for key in ('comm.timeouts.connect', 'worker.memory.spill')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout.split() == ["30s", "0.7"], out.stderr
    assert not out.stderr


# A scheduler that is there already.


@pytest.fixture(scope="module")
def cluster():
    options = {"dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, **options) as local:
        yield local


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_an_address_gives_the_bits_of_threads_and_goes_on_after_us(stored, cluster):
    here = fitted(stored)
    with engine(address(cluster.scheduler_address), 1, 1000) as client:
        assert describe(client).startswith("1 worker x 2 threads, dashboard at http")
        assert_same_bits(here, fitted(stored))
    assert active_client() is None
    with distributed.Client(cluster, set_as_default=False) as after:
        assert after.nthreads()


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_a_plan_asks_the_scheduler_for_its_workers(stored, cluster, here):
    where = {"kind": "address", "address": cluster.scheduler_address}
    config = {"data": {"path": str(stored)}, "model": {"kind": "pca", "n_components": 4}, "engine": where}
    Path("run.yaml").write_text(json.dumps(config | {"output": {"path": "out.zarr"}}))
    cluster.scale(3)
    try:
        with distributed.Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(3)
        code, out, error = here("run", "run.yaml", "--plan", "--json")
        assert code == 0, error
        plan = json.loads(out)
        assert (plan["workers"], plan["threads"]) == (3, 2)
        assert "the workers that the scheduler has now" in here("run", "run.yaml", "--plan")[1]
        assert active_client() is None
    finally:
        cluster.scale(1)


@pytest.mark.slow
def test_workers_with_less_memory_than_planned_are_told(cluster, caplog):
    with engine(address(cluster.scheduler_address), 1, 10**18):
        pass
    assert "of memory, the plan is for 1e+06 TB" in caplog.text


@pytest.mark.slow
def test_workers_with_another_version_are_refused(cluster, monkeypatch):
    other = engine_module.environment() | {"streampca": "9.9.9"}
    monkeypatch.setattr(engine_module, "environment", lambda: other)
    with pytest.raises(InputError, match=r"has streampca .* \(the driver has 9.9.9\); install the same versions"):
        with engine(address(cluster.scheduler_address), 1, 1000):
            pass
    assert active_client() is None


@pytest.mark.slow
def test_workers_without_streampca_are_refused(cluster):
    def hide(hidden):
        sys.modules.update({"streampca": None} if hidden else {})
        if not hidden:
            del sys.modules["streampca"]

    with distributed.Client(cluster, set_as_default=False) as other:
        other.run(hide, True)
        try:
            with pytest.raises(InputError, match="cannot load streampca"):
                with engine(address(cluster.scheduler_address), 1, 1000):
                    pass
        finally:
            other.run(hide, False)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_waited_for_and_then_refused(monkeypatch, caplog):
    monkeypatch.setattr(engine_module, "WORKER_SECONDS", 1)
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty:
        with pytest.raises(InputError, match="has no workers after 1 s; start some with: dask worker tcp://"):
            with engine(address(empty.scheduler_address), 1, 1000):
                pass
    assert "has no workers; waiting for the first" in caplog.text


def test_no_scheduler_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(engine_module, "ANSWER_SECONDS", 1)
    where = nobody_listens()
    with pytest.raises(InputError, match=f"no Dask scheduler answers at {where} within 1 s") as caught:
        with engine(address(where), 1, MEMORY):
            pass
    assert "\n" not in str(caught.value)
    assert active_client() is None


@pytest.mark.parametrize("where", ["nonsense://a:1", "tcp://no.such.host.invalid:8786"])
def test_addresses_that_cannot_be(where, monkeypatch):
    monkeypatch.setattr(engine_module, "ANSWER_SECONDS", 1)
    with pytest.raises(InputError, match="no Dask scheduler answers at"):
        with engine(address(where), 1, MEMORY):
            pass
    assert active_client() is None


def test_tls_files_must_be_there(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.touch()
    files = {"tls_ca_file": ca, "tls_cert_file": tmp_path / "no.pem", "tls_key_file": ca}
    with pytest.raises(InputError, match=r"tls_cert_file=.*no.pem is not a file"):
        with engine(address("tls://a:1", **files), 1, MEMORY):
            pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.usefixtures("small_partitions")
def test_tls(stored, tmp_path, monkeypatch):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=streampca -keyout".split()
    subprocess.run([*command, key, "-out", cert], check=True, capture_output=True)
    roles = {f"tls_{role}_{part}": str(path) for role in ("scheduler", "worker", "client")
             for part, path in (("cert", cert), ("key", key))}  # fmt: skip
    security = distributed.Security(tls_ca_file=str(cert), require_encryption=True, **roles)
    here = fitted(stored)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="tls", security=security, dashboard_address=":0", silence_logs=50
    ) as local:
        files = dict(zip(TLS, (cert, cert, key), strict=True))
        with engine(address(local.scheduler_address, **files), 1, 1000):
            assert_same_bits(here, fitted(stored))
        monkeypatch.setattr(engine_module, "ANSWER_SECONDS", 1)
        with pytest.raises(InputError, match="that it uses plain TCP"):
            with engine(address(local.scheduler_address.replace("tls", "tcp")), 1, 1000):
                pass


# Job queues: what is submitted, without one.


def script(settings, threads=2, memory=MEMORY):
    with dask.config.set({}), jobqueue._job_cluster(settings, threads, memory) as made:
        return made.job_script()


ASKED = {
    "slurm": ["-p short", "-A lab", "--mem=1353M", "--cpus-per-task=2", "-t 01:30:00", "--constraint=avx2"],
    "pbs": ["-q short", "-A lab", "-l select=1:ncpus=2:mem=1353MB", "-l walltime=01:30:00", "--constraint=avx2"],
    "sge": ["-q short", "-P lab", "-l mem_free=677M", "-pe smp 2", "-l h_rt=01:30:00", "--constraint=avx2"],
    "lsf": ["-q short", '-P "lab"', "-M 1419", "-n 2", "-W 01:30", "--constraint=avx2"],
}


@pytest.mark.parametrize("kind", ASKED)
def test_jobs_ask_for_what_they_need(kind, tmp_path):
    pytest.importorskip("dask_jobqueue")
    options = {"queue": "short", "account": "lab", "walltime": "01:30:00", "directives": ["--constraint=avx2"]}
    paths = {"local_directory": "/scratch/here", "log_directory": tmp_path / "logs", "python": "/opt/python"}
    with dask.config.set({"jobqueue.lsf.lsf-units": "mb"}):
        text = script(jobs(kind, **options, **paths, prologue=["module load something"]))
    for line in ASKED[kind]:
        assert line in text
    command = text.splitlines()[-1]
    assert command.startswith("/opt/python -m distributed.cli.dask_worker tcp://")
    for option in ("--nthreads 2", "--memory-limit 0.93GiB", "--nanny", "--death-timeout 60", "--no-dashboard"):
        assert option in command
    assert "--lifetime 4800s --lifetime-stagger 300s" in command
    assert "--local-directory /scratch/here" in command
    assert str(tmp_path / "logs") in text
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False\n" in text
    assert text.index("MEMORY__TERMINATE=1.1") < text.index("module load something") < text.index("/opt/python")


@pytest.mark.parametrize(
    ("kind", "directive", "ours"),
    [
        ("slurm", "--mem-per-cpu=3G", "--mem="),
        ("pbs", "-l nodes=1:ppn=2", "select="),
        ("sge", "-l h_vmem=4G", "mem_free="),
        ("sge", "-pe threaded 2", "-pe smp"),
        ("lsf", "-M 4000", "-M 14"),
    ],
)
def test_directives_go_before_what_we_ask_for(kind, directive, ours):
    pytest.importorskip("dask_jobqueue")
    text = script(jobs(kind, directives=[directive]))
    assert directive in text
    assert ours not in text


def test_wall_times():
    if "dask_jobqueue" in sys.modules:
        assert "-l walltime=25:00:30\n" in script(jobs("pbs", walltime="1-01:00:30"))
    assert jobqueue._seconds("01:02:03") == 3723
    assert jobqueue._seconds("2-00:00:01") == 2 * 86400 + 1
    assert jobqueue._lifetime(30) == []


@pytest.mark.parametrize("kind", ASKED)
def test_no_queue_is_an_error_that_says_so(kind, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"(sbatch|qsub|bsub) is not on the PATH"):
        with engine(jobs(kind), 1, MEMORY):
            pass


def test_no_dask_jobqueue_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    with pytest.raises(InputError, match=r"pip install 'streampca\[cluster\]'"):
        with engine(jobs("slurm"), 1, MEMORY):
            pass


# A queue of three shell scripts: jobs are processes of this machine.

SBATCH = """#!/bin/sh
[ ! -e {0}/refuse ] || {{ echo 'sbatch: error: no such account' >&2; exit 1; }}
cp "$1" {0}/script.$$
setsid bash {0}/script.$$ >{0}/log.$$ 2>&1 &
touch {0}/job.$!
echo "Submitted batch job $!"
"""
SQUEUE = """#!/bin/sh
for file in {0}/job.*; do
    id=${{file##*.}}
    case $(ps -o stat= -p "$id") in ''|Z*) ;; *) echo "$id" ;; esac
done
"""
SCANCEL = """#!/bin/sh
kill -- "-$1"
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    folder = tmp_path / "queue"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
        (folder / name).write_text(text.format(folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(jobqueue, "LOOK_SECONDS", 0.3)
    # What a worker asks of one that is gone is given up sooner.
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "3s")
    return folder


def running(folder):
    return set(subprocess.run([folder / "squeue"], capture_output=True, text=True).stdout.split())


def ended(folder):
    for _ in range(100):
        if not running(folder):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions", "left_as_it_was")
def test_a_cancelled_job_is_replaced_and_the_bits_are_the_same(stored, queue):
    here = fitted(stored)
    cancelled = []

    def cancel_one(step):
        if step.sweep == 2 and step.done == 3 and not cancelled:
            cancelled.append(sorted(running(queue))[0])
            subprocess.run([queue / "scancel", cancelled[0]], check=True)

    with engine(jobs("slurm"), 1, MEMORY) as client:
        client.wait_for_workers(2, timeout=60)
        assert_same_bits(here, fitted(stored, progress=cancel_one))
        client.wait_for_workers(2, timeout=60)
        assert cancelled
        assert len(running(queue) - set(cancelled)) == 2
    assert ended(queue)


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions", "left_as_it_was")
def test_jobs_speak_tls_by_a_key_that_no_script_holds_and_that_goes_with_the_run(stored, queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = fitted(stored)
    with engine(jobs("slurm", workers=1, tls=True), 1, MEMORY) as client:
        assert client.scheduler.address.startswith("tls://")
        assert all(worker.startswith("tls://") for worker in client.nthreads())
        assert_same_bits(here, fitted(stored))
        folder = next(tmp_path.glob(".streampca-keys-*"))
        assert folder.stat().st_mode & 0o077 == 0
        keys = [path for path in folder.iterdir() if "PRIVATE KEY" in path.read_text()]
        assert keys
        assert all(path.stat().st_mode & 0o077 == 0 for path in keys)
        scripts = "".join(path.read_text() for path in queue.glob("script.*"))
        assert str(keys[0]) in scripts
        assert "PRIVATE KEY" not in scripts
        assert client.cluster.security.require_encryption
        assert intrusions(client.scheduler.address) == ["rejected", "rejected"]
    assert not folder.exists()
    assert ended(queue)


@pytest.mark.slow
@pytest.mark.usefixtures("left_as_it_was")
def test_jobs_that_end_before_their_worker_is_there_are_an_error(queue):
    with pytest.raises(InputError, match="jobs in a row ended before their worker connected"):
        with engine(jobs("slurm", workers=1, prologue=["exit 1"]), 1, MEMORY):
            pass
    assert ended(queue)


@pytest.mark.usefixtures("left_as_it_was")
def test_a_job_that_is_refused_is_an_error(queue):
    (queue / "refuse").touch()
    with pytest.raises(InputError, match=r"sbatch rejects the job of a worker \(sbatch: error: no such account"):
        with engine(jobs("slurm"), 1, MEMORY):
            pass


def test_a_queue_that_is_away_is_no_reason_to_submit_again(queue):
    (queue / "squeue").write_text("#!/bin/sh\necho slurmctld is away >&2\nexit 1\n")
    keeper = _Keeper(None, None, jobqueue.QUEUES["slurm"], 1)
    with pytest.raises(OSError, match="slurmctld is away"):
        keeper._listed()


# ---------------------------------------------------------------- who may connect


INTRUDER = """
import os, sys, distributed
if os.geteuid() == 0:
    os.setuid(65534)
others = distributed.Security.temporary()
for where, security in ((sys.argv[1], others), (sys.argv[1].replace("tls", "tcp"), None)):
    try:
        with distributed.Client(where, timeout=3, security=security) as intruder:
            print("ran as", intruder.submit(os.getuid).result(timeout=3))
    except Exception as error:
        print("rejected")
"""


def intrusions(address):
    """Return how another user fares, who sends code with keys of their own and without TLS."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", INTRUDER, address]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/")
    return done.stdout.splitlines()


def test_nobody_without_the_key_can_send_code_to_worker_processes():
    with engine(processes(workers=1), 1, MEMORY) as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert all(worker.startswith("tls://127.0.0.1:") for worker in client.nthreads())
        assert intrusions(address) == ["rejected", "rejected"]
        assert client.submit(os.getuid).result() == os.getuid()


@pytest.mark.parametrize("dashboard", [False, True])
def test_servers_of_worker_processes_listen_on_loopback_alone(dashboard):
    def listening():
        me = psutil.Process()
        sockets = [c for p in (me, *me.children(recursive=True)) for c in p.net_connections("inet")]
        return {c.laddr for c in sockets if c.status == psutil.CONN_LISTEN}

    # Other tests of this process may have clusters of their own.
    before = listening()
    with engine(processes(workers=1, dashboard=dashboard), 1, MEMORY):
        ours = listening() - before
    assert ours
    assert {address.ip for address in ours} == {"127.0.0.1"}


def test_defaults_are_private():
    assert JobQueue(kind="slurm", workers=1, memory_limit="1GB").tls is True
    assert JobQueue(kind="slurm", workers=1, memory_limit="1GB").dashboard is False
    assert Processes(kind="processes").dashboard is False


def test_keys_of_a_killed_run_are_removed_with_its_directory(tmp_path):
    work = WorkDirectory(tmp_path / "x.unfinished")
    keys = work.folder / ".streampca-keys-abc"
    keys.mkdir(parents=True)
    (keys / "key.pem").write_text("secret")
    work.remove()
    assert not work.folder.exists()
