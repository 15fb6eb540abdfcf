"""Where sweeps run: threads of this process, worker processes, a Dask scheduler that is there already, or a job queue.

Sweeps take whatever `distributed.Client` is active, so an engine is only a context that has one:

    with engine(settings, threads=2, memory=2_000_000_000) as client:
        PCA(20).fit("study.bed")

Workers come and go: a process that is killed is started again, a job that ends is replaced by another, and what they
were at is done again elsewhere. What is found is the same.
"""

from __future__ import annotations

import getpass
import importlib
import logging
import math
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dask
from dask.system import CPU_COUNT

import streampca
from streampca.budget import show_bytes
from streampca.errors import InputError
from streampca.progress import logger

# Seconds: for a scheduler to answer; for its first worker; for jobs and processes to end; for a queue to answer.
ANSWER_SECONDS = 30
WORKER_SECONDS = 600
CLOSING_SECONDS = 30
QUEUE_SECONDS = 60
# How often the queue is asked about jobs whose workers are not there, at most.
LOOK_SECONDS = 10
# A job that does not reach its driver ends after so long.
ORPHAN_SECONDS = 60
# A job may be long in the queue: sweeps that find no worker wait for one, and Dask must not give up a job by itself.
PATIENCE_SECONDS = 30 * 24 * 3600

# A run plans its memory, and a partial is let go when it is merged. So nothing is written to disk: it would be read
# again at once. Nothing pauses: a worker may be as large as planned for as long as it lives, since freed memory need
# not go back to the system, and one that is paused would wait for ever. Only what is well beyond the plan ends a
# worker, before the machine or the queue ends more than that.
TERMINATE = 1.1
MEMORY = {"target": False, "spill": False, "pause": False, "terminate": TERMINATE}
# Jobs also hold the worker's nanny (60 MB), the shell, and pages of files that some queues count: a job that passes its
# limit is lost with its place in the queue, so its limit must be beyond where the nanny ends the worker.
JOB_FACTOR, JOB_RESERVE = 1.15, 256 << 20
# Tasks on a worker that dies are suspects. Wall times and preemption kill the innocent; a partition that is too large
# kills each worker it comes to, and must end with an error.
ALLOWED_FAILURES = 10


@contextmanager
def engine(settings: Any, threads: int, memory: int) -> Iterator[Any]:
    """Have the client of an engine active: yields it, or None for threads, where sweeps need none.

    Parameters
    ----------
    settings : `kind`, one of threads, processes, address, slurm, pbs, sge, lsf, and what that kind needs.
    threads : tasks at a time in each worker.
    memory : bytes that each worker may take. Jobs ask for 15% and 256 MB more.
    """
    if settings.kind == "threads":
        yield None
        return
    start: Callable[..., Any] = {"processes": _processes, "address": _address}.get(settings.kind, _jobs)
    with start(settings, threads, memory) as client:
        logger.info("sweeps run on %s", describe(client))
        yield client


def describe(client: Any) -> str:
    """Return in one line who works for a client: workers, threads, and where to watch them."""
    if client is None:
        return "threads of this process"
    threads = sorted(set(client.nthreads().values()))
    count, asked = len(client.nthreads()), len(getattr(client.cluster, "worker_spec", ()))
    line = f"{count} of {asked} workers" if asked > count else f"{count} worker{'s' * (count != 1)}"
    if threads:
        line += f" x {'-'.join(str(n) for n in {threads[0]: 0, threads[-1]: 0})} thread{'s' * (threads[-1] != 1)}"
    ours = getattr(client.cluster, "scheduler_spec", None) or {}
    shown = ours.get("options", {}).get("dashboard", True) and client.dashboard_link
    return f"{line}, dashboard at {shown}" if shown else line


def _distributed() -> Any:
    """Return Dask's distributed, which takes a while to import and which threads do without.

    It must be there before Dask's configuration is changed, or it would lose its defaults when that is undone.
    """
    return importlib.import_module("distributed")


@contextmanager
def _client(where: Any, timeout: float, **options: Any) -> Iterator[Any]:
    """Connect, and leave the default client as it was."""
    client = _distributed().Client(where, timeout=timeout, **options)
    try:
        yield client
    finally:
        _in_time(client.close, "the client")


def _in_time(close: Callable[..., Any], what: str) -> None:
    """Close something in bounded time; what does not close is told, and left to end by itself."""
    try:
        close(timeout=CLOSING_SECONDS)
    except (TimeoutError, OSError, RuntimeError, AssertionError) as error:
        logger.warning("%s did not close in %d s: %s", what, CLOSING_SECONDS, error or type(error).__name__)


@contextmanager
def _processes(settings: Any, threads: int, memory: int) -> Iterator[Any]:
    """Worker processes on this machine, each with a nanny that starts it again when it dies."""
    distributed = _distributed()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="streampca-", ignore_cleanup_errors=True))
        preload = [*dask.config.get("distributed.worker.preload", []), __name__]
        stack.enter_context(dask.config.set({**_config(), "distributed.worker.preload": preload}))
        cluster = distributed.LocalCluster(
            n_workers=settings.workers or max(1, CPU_COUNT // threads),
            threads_per_worker=threads,
            processes=True,
            memory_limit=memory,
            local_directory=folder,
            scheduler_kwargs=_dashboard(settings),
            silence_logs=logging.ERROR,
        )
        stack.callback(_in_time, cluster.close, "worker processes")
        yield stack.enter_context(_client(cluster, PATIENCE_SECONDS))


def dask_setup(_worker: Any) -> None:
    """Let a worker process ignore Ctrl-C, which goes to all processes of a terminal: the driver ends it.

    Dask calls this by its name in modules that workers load first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _config() -> dict[str, Any]:
    """Return what Dask is told while we run a scheduler of our own."""
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        # A copy: without bokeh, schedulers add to it.
        "distributed.scheduler.http.routes": list(dask.config.get("distributed.scheduler.http.routes")),
        "distributed.deploy.lost-worker-timeout": f"{PATIENCE_SECONDS}s",
        **{f"distributed.worker.memory.{name}": value for name, value in MEMORY.items()},
    }


def _dashboard(settings: Any) -> dict[str, Any]:
    """Return the scheduler's options: the usual port, or any if that is taken. It has a port even with no dashboard."""
    if not settings.dashboard:
        return {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", 8787))
        except OSError:
            return {"dashboard": True, "dashboard_address": ":0"}
    return {"dashboard": True, "dashboard_address": ":8787"}


# A scheduler that is there already.


@contextmanager
def _address(settings: Any, threads: int, memory: int) -> Iterator[Any]:  # noqa: ARG001
    """Connect to a scheduler of someone else: its workers have threads and memory as they were started."""
    security = _security(settings)
    try:
        # One that cannot connect may stay the default client for ever: the first is not to become it.
        with _client(settings.address, ANSWER_SECONDS, security=security, set_as_default=False) as probe:
            _await_workers(probe, settings.address)
            _check_workers(probe, settings.address, memory)
    except InputError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {settings.address} within {ANSWER_SECONDS} s: is it running, can this "
            f"machine reach it, and does it speak {'TLS' if security else 'plain TCP'}? ({error})"
        ) from error
    with _client(settings.address, ANSWER_SECONDS, security=security) as client:
        yield client


def _security(settings: Any) -> Any:
    """Return the TLS settings, or None if there are none."""
    names = ("tls_ca_file", "tls_cert_file", "tls_key_file")
    given = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    if not given and (
        not settings.address.startswith("tls://") or dask.config.get("distributed.comm.tls.ca-file", None)
    ):
        return None
    absent = [name for name in names if name not in given]
    if absent:
        raise InputError(f"{settings.address}: TLS needs {', '.join(names)}; not given: {', '.join(absent)}")
    for name, path in given.items():
        if not Path(path).is_file():
            raise InputError(f"{name}={path} is not a file; it is what the scheduler's administrator handed out")
    ca, cert, key = (str(given[name]) for name in names)
    return _distributed().Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


def _await_workers(client: Any, address: str) -> None:
    if client.nthreads():
        return
    text = f"the scheduler at {address} has no workers yet"
    logger.warning("%s; waiting for one: dask worker %s", text, address)
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise InputError(f"{text}, and none came in {WORKER_SECONDS} s: start some by dask worker {address}") from error


def _check_workers(client: Any, address: str, memory: int) -> None:
    """Refuse workers that would not give the same results; say if they have less memory than is planned for."""

    def look(dask_worker: Any) -> tuple[str, str, int]:
        # Sent as it is, not by name: the worker may have no streampca.
        import platform

        try:
            from streampca import __version__
        except ImportError:
            __version__ = ""
        limit = dask_worker.memory_manager.memory_limit
        return ".".join(platform.python_version_tuple()[:2]), __version__, limit or sys.maxsize

    here = ".".join(map(str, sys.version_info[:2]))
    for worker, found in client.run(look, on_error="return").items():
        if isinstance(found, Exception):
            raise InputError(f"worker {worker} of {address} cannot run what is sent to it: {found!r}") from found
        python, version, limit = found
        if version != streampca.__version__:
            has = f"has streampca {version}" if version else "has no streampca"
            raise InputError(
                f"worker {worker} of {address} {has}, here it is {streampca.__version__}: "
                "install the same on all workers and start them again"
            )
        if python != here:
            raise InputError(f"worker {worker} of {address} has Python {python}, here it is {here}: use one for all")
        if limit < memory:
            logger.warning(
                "worker %s of %s has %s of memory, the plan is for %s",
                worker, address, show_bytes(limit), show_bytes(memory),
            )  # fmt: skip


# Job queues.


class _Queue(NamedTuple):
    """A job queue: its class in dask-jobqueue, and its commands to submit and to list a user's jobs."""

    cluster: str
    submit: str
    listing: str


QUEUES = {
    "slurm": _Queue("SLURMCluster", "sbatch", "squeue --noheader --format=%i --user"),
    "pbs": _Queue("PBSCluster", "qsub", "qstat -u"),
    "sge": _Queue("SGECluster", "qsub", "qstat -u"),
    "lsf": _Queue("LSFCluster", "bsub", "bjobs -noheader -u"),
}


@contextmanager
def _jobs(settings: Any, threads: int, memory: int) -> Iterator[Any]:
    """One worker a job; jobs that end are replaced until the body is done, and then all are cancelled."""
    queue = QUEUES[settings.kind]
    if shutil.which(queue.submit) is None:
        raise InputError(
            f"{queue.submit} is not on the PATH: run where jobs of {settings.kind} can be submitted, or use engine "
            "kind 'processes'"
        )
    _distributed()
    _jobqueue(settings.kind)
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(_config()))
        cluster = _job_cluster(settings, threads, memory)
        stack.callback(_in_time, partial(_close_jobs, cluster), "jobs of workers")
        client = stack.enter_context(_client(cluster, PATIENCE_SECONDS))
        keeper = _Keeper(cluster, client, queue, settings.workers)
        stack.callback(keeper.stop)
        try:
            keeper.submit()
        except (RuntimeError, OSError, ValueError) as error:
            raise InputError(f"{queue.submit} refuses the job of a worker: {_last_line(error)}") from error
        keeper.start()
        logger.info("waiting for the first of %d jobs of %s", settings.workers, settings.kind)
        try:
            while not client.nthreads():
                time.sleep(0.2)
            yield client
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if keeper.failure:
                raise InputError(keeper.failure) from error
            raise


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[-1]


def _jobqueue(kind: str) -> Any:
    try:
        return importlib.import_module("dask_jobqueue")
    except ImportError as error:
        raise InputError(f"engine {kind} needs dask-jobqueue: pip install 'streampca[cluster]'") from error


def _close_jobs(cluster: Any, timeout: float) -> None:
    """Cancel the jobs. dask-jobqueue does not mark them as closed, and Dask minds those that it still finds."""
    for job in cluster.workers.values():
        job.status = _distributed().Status.closing
    cluster.close(timeout=timeout)


def _job_cluster(settings: Any, threads: int, memory: int) -> Any:
    """Return the cluster with its scheduler, and no jobs yet. What is None here may be in the site's jobqueue.yaml."""
    directives = list(settings.directives)
    exports = [f"export DASK_DISTRIBUTED__WORKER__MEMORY__{key.upper()}={value}" for key, value in MEMORY.items()]
    return getattr(_jobqueue(settings.kind), QUEUES[settings.kind].cluster)(
        cores=threads,
        processes=1,
        memory=memory,
        queue=settings.queue,
        interface=settings.interface,
        local_directory=_text(settings.local_directory),
        log_directory=_text(settings.log_directory),
        python=shlex.quote(_text(settings.python) or sys.executable),
        job_script_prologue=[*exports, *settings.prologue],
        worker_extra_args=["--no-dashboard", *_lifetime(_seconds(settings.walltime))],
        death_timeout=ORPHAN_SECONDS,
        job_name="streampca-worker",
        scheduler_options=_dashboard(settings),
        **_requests(settings, threads, math.ceil((memory * JOB_FACTOR + JOB_RESERVE) / (1 << 20)), directives),
    )


def _text(path: Any) -> str | None:
    return None if path is None else str(path)


def _requests(settings: Any, threads: int, megabytes: int, directives: list[str]) -> dict[str, Any]:
    """Return what a job asks for, in the words of its queue; directives of the user's go before ours."""
    given = " ".join(directives)
    minutes, seconds = divmod(_seconds(settings.walltime), 60)
    walltime = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    wanted: dict[str, Any] = {"walltime": walltime, "job_extra_directives": directives}
    if settings.kind == "slurm":
        wanted |= {"account": settings.account, "job_mem": f"{megabytes}M"}
        if "--mem" in given:
            wanted["job_directives_skip"] = ["--mem="]
    elif settings.kind == "pbs":
        wanted |= {"account": settings.account, "resource_spec": f"select=1:ncpus={threads}:mem={megabytes}MB"}
        if "select=" in given or "nodes=" in given:
            wanted["job_directives_skip"] = ["-l select="]
    elif settings.kind == "sge":
        # Amounts are for each slot. h_vmem would limit addresses, of which the BLAS and numba take many and use few.
        wanted |= {"project": settings.account, "resource_spec": f"mem_free={math.ceil(megabytes / threads)}M"}
        if "mem" in given:
            wanted["job_directives_skip"] = ["-l mem_free="]
        if threads > 1 and "-pe " not in given:
            directives.append(f"-pe smp {threads}")
    else:
        # Its wall times have no seconds.
        wanted |= {"project": settings.account, "mem": megabytes << 20, "walltime": walltime[:-3]}
        if re.search(r"-M\b", given):
            wanted["job_directives_skip"] = ["-M "]
    return wanted


def _seconds(walltime: str) -> int:
    """Return the seconds of HH:MM:SS, or D-HH:MM:SS."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", walltime)
    if match is None:
        raise InputError(f"walltime={walltime!r} is not HH:MM:SS; write an hour as '01:00:00'")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _lifetime(walltime: int) -> list[str]:
    """Return options by which a worker leaves before its job is ended.

    One that leaves hands over what it holds, and what it was at is not suspected of killing it. Jobs that began
    together leave at different times, so that others are there to take it.
    """
    margin = min(walltime // 10, 300)
    if margin < 5:
        return []
    return ["--lifetime", f"{walltime - 2 * margin}s", "--lifetime-stagger", f"{margin}s"]


class _Keeper(threading.Thread):
    """Keeps as many jobs as wanted: those that are no longer in the queue, and have no worker, are submitted again.

    Dask alone replaces none but those whose worker it has seen, and so would wait for ever for a job that was cancelled
    in the queue, or that failed before it could connect. If job after job does, the client is closed, and `failure`
    says why.
    """

    def __init__(self, cluster: Any, client: Any, queue: _Queue, wanted: int):
        super().__init__(name="streampca-keeper", daemon=True)
        self.failure = ""
        self._cluster, self._client, self._queue, self._wanted = cluster, client, queue, wanted
        self._done = threading.Event()
        self._seen: set[str] = set()
        self._missed: set[str] = set()
        self._stillborn = 0

    def submit(self) -> None:
        """Submit as many jobs as are wanting, and wait until the queue has them."""

        async def scale() -> None:
            while len(self._cluster.worker_spec) < self._wanted:
                self._cluster.worker_spec.update(self._cluster.new_worker_spec())
            await self._cluster

        self._cluster.sync(scale, callback_timeout=QUEUE_SECONDS)

    def stop(self) -> None:
        """Submit no more."""
        self._done.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(CLOSING_SECONDS)

    def run(self) -> None:
        """Look after the jobs until told to stop."""
        looked = time.monotonic()
        while not self._done.wait(min(1, LOOK_SECONDS)):
            absent = self._without_worker()
            if time.monotonic() - looked < LOOK_SECONDS:
                continue
            try:
                if absent:
                    self._forget_ended(absent)
                if len(self._cluster.workers) < self._wanted:
                    self.submit()
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                # Queues are away at times; the jobs that run do not need them.
                if not self._done.is_set():
                    logger.warning("cannot look after the jobs of workers: %s", _last_line(error))
            looked = time.monotonic()
            if self._stillborn > self._wanted + 3:
                self.failure = (
                    f"{self._stillborn} jobs in a row ended before their worker could connect: see their logs (set "
                    "log_directory), python, prologue and interface"
                )
                self._client.close(timeout=CLOSING_SECONDS)
                return

    def _without_worker(self) -> dict[str, str]:
        """Return the ids of jobs whose workers are not there, by the workers' names."""
        observed = self._cluster.observed
        ids = {name: str(job.job_id) for name, job in self._cluster.workers.copy().items()}
        there = {ids[name] for name in observed if name in ids}
        if there - self._seen:
            self._stillborn = 0
            self._seen |= there
        return {name: job_id for name, job_id in ids.items() if name not in observed}

    def _forget_ended(self, absent: dict[str, str]) -> None:
        """Forget those that are not in the queue, twice in a row: their worker may have been on the way."""
        listed = self._listed()
        missed = {name: job_id for name, job_id in absent.items() if job_id not in listed}
        for name, job_id in missed.items():
            if job_id in self._missed:
                self._stillborn += job_id not in self._seen
                logger.info("job %s of worker %s has ended; another is submitted", job_id, name)
                self._cluster.worker_spec.pop(name, None)
                self._cluster.workers.pop(name).status = _distributed().Status.closed
        self._missed = set(missed.values())

    def _listed(self) -> set[str]:
        """Return the ids of all jobs of this user."""
        command = [*shlex.split(self._queue.listing), getpass.getuser()]
        out = subprocess.run(command, capture_output=True, text=True, timeout=QUEUE_SECONDS)
        if out.returncode and "No unfinished job" not in out.stderr:
            raise OSError(f"{command[0]}: {out.stderr.strip() or f'exit code {out.returncode}'}")
        return set(re.findall(r"^\s*(\d+)", out.stdout, flags=re.MULTILINE))
