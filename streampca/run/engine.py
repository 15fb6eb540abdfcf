"""Where sweeps run: threads of this process, worker processes, a running Dask scheduler, or a job queue.

Sweeps use the active `distributed.Client`, so an engine is a context manager that provides one:

    with engine(settings, threads=2, memory=2_000_000_000) as client:
        PCA(20).fit("study.bed")

A worker process that is killed is restarted, a job that ends is replaced, and their tasks run on other workers. The
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
from streampca.progress import logger, show_bytes
from streampca.sweep.environment import check_environment, environment

ANSWER_SECONDS = 30  # for a scheduler to answer
WORKER_SECONDS = 600  # for the first worker of a running scheduler
CLOSING_SECONDS = 30  # for jobs and processes to end
WATCH_SECONDS = 5  # between two checks of the workers
SILENT_SECONDS = 30  # without a heartbeat until a worker is reported
WORKER_TTL_SECONDS = 45  # without a heartbeat until a worker of our own schedulers counts as lost
# Jobs may wait in the queue for days: sweeps wait for the first worker, and Dask must not give up jobs.
PATIENCE_SECONDS = 30 * 24 * 3600
START_ATTEMPTS = 3

# Memory of workers, as shares of their limit. Dask neither spills nor pauses: the plan keeps partials within the limit
# and frees them when they are merged, freed memory need not return to the system, and a paused worker would never
# resume. A worker that exceeds the limit by 10% is restarted, before the machine or the queue kills more than it.
MEMORY = {"target": False, "spill": False, "pause": False, "terminate": 1.1}
# Workers that may be lost with the same task. Time limits and preemption kill workers at any task; a partition that is
# too large kills every worker that it runs on, and must end with an error.
ALLOWED_FAILURES = 10


@contextmanager
def engine(
    settings: Any, threads: int, memory: int, keys: Path | None = None, report: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Start an engine and yield its active client; None for threads, which need no client.

    Parameters
    ----------
    settings : the block `engine` of a configuration.
    threads : tasks at a time in each worker.
    memory : limit of each worker, in bytes. Jobs request 15% and 256 MB more.
    keys : directory for the TLS keys of jobs, which all nodes can read; the current one by default.
    report : called with a line about the workers when they change.
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
        """Check the workers until the engine ends."""
        while not self._done.wait(WATCH_SECONDS):
            with suppress(OSError, TimeoutError, RuntimeError, KeyError, concurrent.futures.CancelledError):
                self._check()

    def _check(self) -> None:
        try:
            # Not `scheduler_info`: the client itself asks for less now and then, and it may return that answer.
            found = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=SILENT_SECONDS)
        except OSError:
            self._log("the scheduler does not answer", wrong=True)
            return
        workers = found["workers"]
        silent = [name for name, info in workers.items() if time.time() - info["last_seen"] > SILENT_SECONDS]
        count = len(workers) - len(silent)
        self._most = max(self._most, count)
        line = f"{count} of {self._most} workers left" if count else "no workers; waiting for one"
        line = describe(self._client) if count == self._most else line
        if silent:
            line += f"; {', '.join(sorted(silent)[:3])} did not answer for {SILENT_SECONDS} s"
        self._log(line, wrong=count < self._most)

    def _log(self, line: str, wrong: bool) -> None:
        """Log a line that is new; repeat it twice a minute while something is wrong."""
        again = wrong and time.monotonic() - self._logged >= SILENT_SECONDS
        if line != self._last or again:
            if self._last or wrong:
                logger.warning("%s", line)
            self._report(line)
            self._last, self._logged = line, time.monotonic()


def lost_cluster(error: BaseException) -> str:
    """Return what was lost, if an error comes from a lost scheduler or lost workers; else an empty text."""
    # If it is not imported, no cluster was used.
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return ""
    if isinstance(error, distributed.KilledWorker):
        count = error.allowed_failures + 1
        return f"{count} worker{'s' * (count > 1)} lost with the same task, perhaps for lack of memory"
    gone = (distributed.comm.CommClosedError, distributed.client.CancelledError, concurrent.futures.CancelledError)
    if isinstance(error, gone) or (isinstance(error, OSError) and "scheduler" in str(error)):
        return "the connection to the Dask scheduler is lost"
    return ""


def threads_of(settings: Any) -> int | None:
    """Return the requested number of tasks at a time in each process; None for all cores."""
    return settings.threads or (1 if settings.kind == "processes" else None)


def describe(client: Any) -> str:
    """Describe the workers of a client in one line: their number, threads and dashboard."""
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
    """Import Dask's distributed, which is slow to load and not needed by threads.

    It must be imported before Dask's configuration is changed: its defaults would be lost when the change is undone.
    """
    return importlib.import_module("distributed")


@contextmanager
def connected(where: Any, timeout: float, **options: Any) -> Iterator[Any]:
    """Connect, and leave the default client as it was."""
    distributed = dask_distributed()
    # Its log of a lost connection has tracebacks; our own messages tell of it.
    with distributed.utils.silence_logging_cmgr(logging.CRITICAL):
        client = distributed.Client(where, timeout=timeout, **options)
        try:
            yield client
        finally:
            in_time(client.close, "the client")


def in_time(close: Callable[..., Any], what: str) -> None:
    """Close something in bounded time; log a warning if it does not close."""
    try:
        close(timeout=CLOSING_SECONDS)
    except (TimeoutError, OSError, RuntimeError, AssertionError) as error:
        logger.warning("%s did not close in %d s: %s", what, CLOSING_SECONDS, error or type(error).__name__)


@contextmanager
def _processes(settings: Any, threads: int, memory: int) -> Iterator[Any]:
    """Start worker processes on this machine, each with a nanny that restarts it when it dies."""
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
            silence_logs=logging.CRITICAL,
            # Without keys, any user of this machine could send code to the scheduler.
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),
        )
        cluster = _started(start)
        stack.callback(in_time, cluster.close, "worker processes")
        yield stack.enter_context(connected(cluster, PATIENCE_SECONDS))


def _started(start: Callable[[], Any]) -> Any:
    """Start worker processes; try again if one of them is killed while it starts."""
    for attempt in range(START_ATTEMPTS):
        try:
            return start()
        except RuntimeError as error:
            logger.warning("worker processes did not start (attempt %d of %d): %s", attempt + 1, START_ATTEMPTS, error)
    raise InputError(f"worker processes did not start in {START_ATTEMPTS} attempts; check the memory of the machine")


def dask_setup(_worker: Any) -> None:
    """Ignore Ctrl-C in a worker process: a terminal sends it to all processes, and the driver ends its workers.

    Dask calls the function of this name in modules that workers preload.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def dask_settings() -> dict[str, Any]:
    """Return Dask's configuration for a scheduler of our own."""
    return {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        # A copy: schedulers without bokeh append to the list.
        "distributed.scheduler.http.routes": list(dask.config.get("distributed.scheduler.http.routes")),
        "distributed.deploy.lost-worker-timeout": f"{PATIENCE_SECONDS}s",
        # The tasks of a worker that hangs go to others.
        "distributed.scheduler.worker-ttl": f"{WORKER_TTL_SECONDS}s",
        **{f"distributed.worker.memory.{name}": value for name, value in MEMORY.items()},
    }


def dashboard_options(settings: Any) -> dict[str, Any]:
    """Return the scheduler's options: a dashboard on loopback, at its usual port or any other if that is in use.

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
    """Connect to a running scheduler, whose workers have their own threads and memory limits."""
    with _probe(settings) as probe:
        _await_workers(probe, settings.address)
        _check_workers(probe, settings.address, memory)
    with connected(settings.address, ANSWER_SECONDS, security=_security(settings)) as client:
        yield client


def threads_at(settings: Any) -> list[int]:
    """Return the threads of each worker of a running scheduler."""
    with _probe(settings) as probe:
        return sorted(probe.nthreads().values())


@contextmanager
def _probe(settings: Any) -> Iterator[Any]:
    """Connect to a running scheduler for a moment; raise if it does not answer."""
    security = _security(settings)
    try:
        # A client that cannot connect may stay the default client: this one must not become it.
        with connected(settings.address, ANSWER_SECONDS, security=security, set_as_default=False) as probe:
            yield probe
    except InputError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {settings.address} within {ANSWER_SECONDS} s ({error}); check that it is "
            f"running, that this machine can reach it, and that it uses {'TLS' if security else 'plain TCP'}"
        ) from error


def _security(settings: Any) -> Any:
    """Return the TLS settings of a tls:// address; None for others."""
    if not settings.address.startswith("tls://"):
        return None
    files = {name: getattr(settings, name) for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")}
    for name, path in files.items():
        if not Path(path).is_file():
            raise InputError(f"{name}={path} is not a file; ask the administrator of the scheduler for it")
    ca, cert, key = map(str, files.values())
    return dask_distributed().Security(
        tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
    )


def _await_workers(client: Any, address: str) -> None:
    if client.nthreads():
        return
    text = f"the scheduler at {address} has no workers"
    logger.warning("%s; waiting for the first; start one with: dask worker %s", text, address)
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise InputError(f"{text} after {WORKER_SECONDS} s; start some with: dask worker {address}") from error


def _check_workers(client: Any, address: str, memory: int) -> None:
    """Raise if workers have other software or round differently; warn if they have less memory than planned."""
    for worker, problem in client.run(check_environment, environment(), on_error="return").items():
        if isinstance(problem, InputError):
            raise problem
        if isinstance(problem, Exception):
            raise InputError(
                f"worker {worker} of {address} cannot load streampca {streampca.__version__} ({problem!r}); install "
                "it on all workers and restart them"
            ) from problem
    for worker, info in client.scheduler_info(n_workers=-1)["workers"].items():
        if info["memory_limit"] and info["memory_limit"] < memory:
            logger.warning(
                "worker %s of %s has %s of memory, the plan is for %s",
                worker, address, show_bytes(info["memory_limit"]), show_bytes(memory),
            )  # fmt: skip
