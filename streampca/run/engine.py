"""Where sweeps run: threads of this process, worker processes, a running Dask scheduler, or a job queue.

Sweeps take whatever `distributed.Client` is active, so an engine is only a context that has one:

    with engine(settings, threads=2, memory=2_000_000_000) as client:
        PCA(20).fit("study.bed")

Workers come and go: a killed process is restarted, a job that ends is replaced, and their tasks run elsewhere. The
results are the same.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import logging
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask
from dask.system import CPU_COUNT

import streampca
from streampca.errors import InputError
from streampca.progress import logger
from streampca.sweep.memory import show_bytes

# Seconds: for a scheduler to answer; for its first worker; for jobs and processes to end.
ANSWER_SECONDS = 30
WORKER_SECONDS = 600
CLOSING_SECONDS = 30
# Seconds between two looks at the workers, and without an answer until one is reported.
WATCH_SECONDS = 5
SILENT_SECONDS = 30
# Seconds without a heartbeat until a worker of our own schedulers counts as lost.
WORKER_TTL_SECONDS = 45
# A job may be long in the queue: sweeps that find no worker wait for one, and Dask must not give up a job by itself.
PATIENCE_SECONDS = 30 * 24 * 3600

# Prefix of the directory of TLS keys.
KEYS = ".streampca-keys-"

START_ATTEMPTS = 3

# A run plans its memory, and a partial is let go when it is merged. So nothing is written to disk: it would be read
# again at once. Nothing pauses: a worker may be as large as planned for as long as it lives, since freed memory need
# not go back to the system, and one that is paused would wait for ever. Only what is well beyond the plan ends a
# worker, before the machine or the queue ends more than that.
TERMINATE = 1.1
MEMORY = {"target": False, "spill": False, "pause": False, "terminate": TERMINATE}
# Tasks on a worker that dies are suspects. Wall times and preemption kill the innocent; a partition that is too large
# kills each worker it comes to, and must end with an error.
ALLOWED_FAILURES = 10


@contextmanager
def engine(
    settings: Any, threads: int, memory: int, keys: Path | None = None, report: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Have the client of an engine active: yields it, or None for threads, where sweeps need none.

    Parameters
    ----------
    settings : `kind`, one of threads, processes, address, slurm, pbs, sge, lsf, and what that kind needs.
    threads : tasks at a time in each worker.
    memory : bytes that each worker may take. Jobs ask for 15% and 256 MB more.
    keys : directory for the TLS keys of jobs, which all nodes can read; the current one by default.
    report : called with a line on the workers when they change.
    """
    if settings.kind == "threads":
        yield None
        return
    if settings.kind in ("processes", "address"):
        start: Callable[..., Any] = _processes if settings.kind == "processes" else _address
    else:
        # Only jobs need dask-jobqueue.
        from streampca.run.job_queue import job_engine

        start = partial(job_engine, keys=keys)
    with start(settings, threads, memory) as client:
        logger.info("sweeps run on %s", describe(client))
        watch = _WorkerWatch(client, report or (lambda _: None))
        watch.start()
        try:
            yield client
        finally:
            watch.stop()


class _WorkerWatch(threading.Thread):
    """Reports workers that leave, come back or do not answer."""

    def __init__(self, client: Any, report: Callable[[str], None]):
        super().__init__(name="streampca-workers", daemon=True)
        self._client, self._report, self._done = client, report, threading.Event()
        self._most, self._last, self._logged = len(client.nthreads()), "", 0.0

    def stop(self) -> None:
        """End the thread."""
        self._done.set()
        self.join(CLOSING_SECONDS)

    def run(self) -> None:
        """Look at the workers until the engine ends."""
        while not self._done.wait(WATCH_SECONDS):
            with suppress(OSError, TimeoutError, RuntimeError, KeyError, concurrent.futures.CancelledError):
                self._look()

    def _look(self) -> None:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        silent = [name for name, info in workers.items() if time.time() - info["last_seen"] > SILENT_SECONDS]
        count = len(workers) - len(silent)
        self._most = max(self._most, count)
        line = f"{count} of {self._most} workers left" if count else "no workers; waiting for one"
        line = describe(self._client) if count == self._most else line
        if silent:
            line += f"; {', '.join(sorted(silent)[:3])} did not answer for {SILENT_SECONDS} s"
        # What is wrong is repeated every minute.
        again = count < self._most and time.monotonic() - self._logged >= SILENT_SECONDS
        if line != self._last or again:
            if self._last or count < self._most:
                logger.warning("%s", line)
            self._report(line)
            self._last, self._logged = line, time.monotonic()


def lost_cluster(error: BaseException) -> str:
    """Return what is gone if an error comes from a lost scheduler or lost workers; else nothing."""
    # Without it, no cluster was used.
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return ""
    if isinstance(error, distributed.KilledWorker):
        return f"{ALLOWED_FAILURES} workers were lost with the same task, perhaps for lack of memory"
    gone = (distributed.comm.CommClosedError, distributed.client.CancelledError, concurrent.futures.CancelledError)
    if isinstance(error, gone) or (isinstance(error, OSError) and "scheduler" in str(error)):
        return "the connection to the Dask scheduler is lost"
    return ""


def threads_of(settings: Any) -> int | None:
    """Return the tasks at a time that are asked for in each process; None for all cores."""
    return settings.threads or (1 if settings.kind == "processes" else None)


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


def dask_distributed() -> Any:
    """Return Dask's distributed, which takes a while to import and which threads do without.

    It must be there before Dask's configuration is changed, or it would lose its defaults when that is undone.
    """
    return importlib.import_module("distributed")


@contextmanager
def connected(where: Any, timeout: float, **options: Any) -> Iterator[Any]:
    """Connect, and leave the default client as it was."""
    client = dask_distributed().Client(where, timeout=timeout, **options)
    try:
        yield client
    finally:
        in_time(client.close, "the client")


def in_time(close: Callable[..., Any], what: str) -> None:
    """Close something in bounded time; what does not close is told, and left to end by itself."""
    try:
        close(timeout=CLOSING_SECONDS)
    except (TimeoutError, OSError, RuntimeError, AssertionError) as error:
        logger.warning("%s did not close in %d s: %s", what, CLOSING_SECONDS, error or type(error).__name__)


@contextmanager
def _processes(settings: Any, threads: int, memory: int) -> Iterator[Any]:
    """Worker processes on this machine, each with a nanny that starts it again when it dies."""
    distributed = dask_distributed()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="streampca-", ignore_cleanup_errors=True))
        given = dask.config.get("distributed.worker.preload", [])
        preload = [*([given] if isinstance(given, str) else given), __name__]
        stack.enter_context(dask.config.set({**dask_settings(), "distributed.worker.preload": preload}))
        start = partial(
            distributed.LocalCluster,
            n_workers=settings.workers or max(1, CPU_COUNT // threads),
            threads_per_worker=threads,
            processes=True,
            memory_limit=memory,
            local_directory=folder,
            scheduler_kwargs=dashboard_options(settings),
            silence_logs=logging.ERROR,
            # Without keys, any user of this machine could send code to the scheduler.
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),
        )
        cluster = _started(start)
        stack.callback(in_time, cluster.close, "worker processes")
        yield stack.enter_context(connected(cluster, PATIENCE_SECONDS))


def _started(start: Callable[[], Any]) -> Any:
    """Start worker processes; try again if one of them is killed meanwhile."""
    for attempt in range(START_ATTEMPTS):
        try:
            return start()
        except RuntimeError as error:
            logger.warning("worker processes did not start (attempt %d of %d): %s", attempt + 1, START_ATTEMPTS, error)
    raise InputError(f"worker processes did not start in {START_ATTEMPTS} attempts; check the memory of the machine")


def dask_setup(_worker: Any) -> None:
    """Let a worker process ignore Ctrl-C, which goes to all processes of a terminal: the driver ends it.

    Dask calls this by its name in modules that workers load first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_settings() -> dict[str, Any]:
    """Return what Dask is told while we run a scheduler of our own."""
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        # A copy: without bokeh, schedulers add to it.
        "distributed.scheduler.http.routes": list(dask.config.get("distributed.scheduler.http.routes")),
        "distributed.deploy.lost-worker-timeout": f"{PATIENCE_SECONDS}s",
        # A worker that hangs is given up, and its tasks go to others.
        "distributed.scheduler.worker-ttl": f"{WORKER_TTL_SECONDS}s",
        **{f"distributed.worker.memory.{name}": value for name, value in MEMORY.items()},
    }


def dashboard_options(settings: Any) -> dict[str, Any]:
    """Return the scheduler's options: a dashboard on loopback, at the usual port or any other if that is taken.

    The scheduler has an HTTP port even without a dashboard.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 8787))
            port = 8787 if settings.dashboard else 0
        except OSError:
            port = 0
    return {"dashboard": settings.dashboard, "dashboard_address": f"127.0.0.1:{port}"}


@contextmanager
def _address(settings: Any, threads: int, memory: int) -> Iterator[Any]:  # noqa: ARG001
    """Connect to a scheduler of someone else: its workers have threads and memory as they were started."""
    security = _security(settings)
    try:
        # One that cannot connect may stay the default client for ever: the first is not to become it.
        with connected(settings.address, ANSWER_SECONDS, security=security, set_as_default=False) as probe:
            _await_workers(probe, settings.address)
            _check_workers(probe, settings.address, memory)
    except InputError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {settings.address} within {ANSWER_SECONDS} s: is it running, can this "
            f"machine reach it, and does it speak {'TLS' if security else 'plain TCP'}? ({error})"
        ) from error
    with connected(settings.address, ANSWER_SECONDS, security=security) as client:
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
    return dask_distributed().Security(
        tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
    )


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
    """Raise for workers that would give other results; warn of workers with less memory than planned."""

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
