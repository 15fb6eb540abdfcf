"""Workers as jobs of Slurm, PBS, SGE or LSF, through dask-jobqueue; jobs that end are replaced."""

from __future__ import annotations

import getpass
import importlib
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import dask

from streampca.errors import InputError
from streampca.progress import logger
from streampca.run.engine import (
    CLOSING_SECONDS,
    MEMORY,
    PATIENCE_SECONDS,
    connected,
    dashboard_options,
    dask_distributed,
    dask_settings,
    in_time,
)
from streampca.run.work_directory import KEYS

QUEUE_SECONDS = 60  # for a queue to answer
LOOK_SECONDS = 10  # between two queries of the queue about jobs without a worker
ORPHAN_SECONDS = 60  # until a job that cannot connect to its driver ends
# Jobs also hold the worker's nanny (60 MB), the shell, and pages of files, which some queues count. A job that exceeds
# its limit loses its place in the queue: its limit must be higher than the size at which the nanny restarts the worker.
JOB_FACTOR, JOB_RESERVE = 1.15, 256 << 20


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
def job_engine(settings: Any, threads: int, memory: int, keys: Path | None = None) -> Iterator[Any]:
    """Submit one job per worker; replace jobs that end, and cancel all when the context ends."""
    queue = QUEUES[settings.kind]
    dask_distributed()
    _jobqueue(settings.kind)
    if shutil.which(queue.submit) is None:
        raise InputError(
            f"{queue.submit} is not on the PATH; run on a machine that can submit jobs to {settings.kind}, or try "
            "it here with --set engine.kind=threads"
        )
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(dask_settings()))
        cluster = _job_cluster(settings, threads, memory, _keys(settings, keys or Path.cwd(), stack))
        stack.callback(in_time, partial(_close_jobs, cluster), "jobs of workers")
        client = stack.enter_context(connected(cluster, PATIENCE_SECONDS))
        keeper = _Keeper(cluster, client, queue, settings.workers)
        stack.callback(keeper.stop)
        try:
            keeper.submit()
        except (RuntimeError, OSError, ValueError) as error:
            raise InputError(
                f"{queue.submit} rejects the job of a worker ({_last_line(error)}); check the block engine"
            ) from error
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
        raise InputError(f"engine {kind} needs dask-jobqueue; run: pip install 'streampca[cluster]'") from error


def _close_jobs(cluster: Any, timeout: float) -> None:
    """Cancel the jobs. dask-jobqueue does not mark them as closing, and Dask raises for workers that are not."""
    for job in cluster.workers.values():
        job.status = dask_distributed().Status.closing
    cluster.close(timeout=timeout)


def _keys(settings: Any, parent: Path, stack: ExitStack) -> dict[str, Any]:
    """Return options that make scheduler and workers require TLS, with a key made for this run.

    Job scripts contain the paths of the key files, which only this user can read. They are removed at the end; those
    of a killed run are removed with its working directory.
    """
    if not settings.tls:
        return {}
    security = dask_distributed().Security
    made = security.temporary()
    folder = tempfile.TemporaryDirectory(prefix=KEYS, dir=parent, ignore_cleanup_errors=True)
    inside = Path(stack.enter_context(folder))
    cert, key = inside / "cert.pem", inside / "key.pem"
    for path, text in ((cert, made.tls_worker_cert), (key, made.tls_worker_key)):
        path.touch(0o600)
        path.write_text(text)
    roles = {
        f"tls_{role}_{what}": str(path)
        for role in ("scheduler", "worker", "client")
        for what, path in (("cert", cert), ("key", key))
    }
    return {"security": security(tls_ca_file=str(cert), require_encryption=True, **roles), "protocol": "tls://"}


def _job_cluster(settings: Any, threads: int, memory: int, keys: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Start the scheduler of a cluster, without jobs. Options that are None may be set in the site's jobqueue.yaml."""
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
        scheduler_options=dashboard_options(settings),
        **keys,
        **_requests(settings, threads, math.ceil((memory * JOB_FACTOR + JOB_RESERVE) / (1 << 20)), directives),
    )


def _text(path: Any) -> str | None:
    return None if path is None else str(path)


def _requests(settings: Any, threads: int, megabytes: int, directives: list[str]) -> dict[str, Any]:
    """Return what a job requests, in the options of its queue; the user's directives take precedence."""
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
        # Amounts are per slot. h_vmem would limit virtual memory, of which the BLAS and numba reserve more than needed.
        wanted |= {"project": settings.account, "resource_spec": f"mem_free={math.ceil(megabytes / threads)}M"}
        if "mem" in given:
            wanted["job_directives_skip"] = ["-l mem_free="]
        if threads > 1 and "-pe " not in given:
            directives.append(f"-pe smp {threads}")
    else:
        # LSF takes no seconds.
        wanted |= {"project": settings.account, "mem": megabytes << 20, "walltime": walltime[:-3]}
        if re.search(r"-M\b", given):
            wanted["job_directives_skip"] = ["-M "]
    return wanted


def _seconds(walltime: str) -> int:
    """Return the seconds of HH:MM:SS, or D-HH:MM:SS."""
    days, _, time_of_day = walltime.rpartition("-")
    hours, minutes, seconds = map(int, time_of_day.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _lifetime(walltime: int) -> list[str]:
    """Return options that make a worker leave before the time limit of its job.

    A worker that leaves sends its results to others, and its tasks do not count as failed. Jobs that started together
    leave at different times, so that other workers can take over.
    """
    margin = min(walltime // 10, 300)
    if margin < 5:
        return []
    return ["--lifetime", f"{walltime - 2 * margin}s", "--lifetime-stagger", f"{margin}s"]


class _Keeper(threading.Thread):
    """Keeps the wanted number of jobs: those without a worker that are no longer in the queue are submitted again.

    Dask replaces only jobs whose worker was connected, and would wait for ever for a job that was cancelled in the
    queue or that failed before it connected. If many jobs in a row fail so, the client is closed, and `failure` is the
    reason.
    """

    def __init__(self, cluster: Any, client: Any, queue: _Queue, wanted: int):
        super().__init__(name="streampca-keeper", daemon=True)
        self.failure = ""
        self._cluster, self.connected, self._queue, self._wanted = cluster, client, queue, wanted
        self._done = threading.Event()
        self._seen: set[str] = set()
        self._missed: set[str] = set()
        self._failed_jobs = 0

    def submit(self) -> None:
        """Submit the jobs that are missing, and wait until the queue has accepted them."""

        async def scale() -> None:
            while len(self._cluster.worker_spec) < self._wanted:
                self._cluster.worker_spec.update(self._cluster.new_worker_spec())
            await self._cluster

        self._cluster.sync(scale, callback_timeout=QUEUE_SECONDS)

    def stop(self) -> None:
        """Submit no more jobs."""
        self._done.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(CLOSING_SECONDS)

    def run(self) -> None:
        """Check the jobs until `stop` is called."""
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
                # Queues may not answer for a while; running jobs do not need them.
                if not self._done.is_set():
                    logger.warning("cannot check the jobs of workers: %s", _last_line(error))
            looked = time.monotonic()
            if self._failed_jobs > self._wanted + 3:
                self.failure = (
                    f"{self._failed_jobs} jobs in a row ended before their worker connected; see their logs (set "
                    "log_directory), and check python, prologue and interface"
                )
                self.connected.close(timeout=CLOSING_SECONDS)
                return

    def _without_worker(self) -> dict[str, str]:
        """Return the ids of jobs without a worker, by the names of the workers."""
        observed = self._cluster.observed
        ids = {name: str(job.job_id) for name, job in self._cluster.workers.copy().items()}
        there = {ids[name] for name in observed if name in ids}
        if there - self._seen:
            self._failed_jobs = 0
            self._seen |= there
        return {name: job_id for name, job_id in ids.items() if name not in observed}

    def _forget_ended(self, absent: dict[str, str]) -> None:
        """Forget jobs that are not in the queue twice in a row: once, their worker may have been about to connect."""
        listed = self._listed()
        missed = {name: job_id for name, job_id in absent.items() if job_id not in listed}
        for name, job_id in missed.items():
            if job_id in self._missed:
                self._failed_jobs += job_id not in self._seen
                logger.info("job %s of worker %s has ended; submitting another", job_id, name)
                self._cluster.worker_spec.pop(name, None)
                self._cluster.workers.pop(name).status = dask_distributed().Status.closed
        self._missed = set(missed.values())

    def _listed(self) -> set[str]:
        """Return the ids of all jobs of this user."""
        command = [*shlex.split(self._queue.listing), getpass.getuser()]
        out = subprocess.run(command, capture_output=True, text=True, timeout=QUEUE_SECONDS)
        if out.returncode and "No unfinished job" not in out.stderr:
            raise OSError(f"{command[0]}: {out.stderr.strip() or f'exit code {out.returncode}'}")
        return set(re.findall(r"^\s*(\d+)", out.stdout, flags=re.MULTILINE))
