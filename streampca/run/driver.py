"""The driver: runs a task to its end, however often it is killed and started again."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask

from streampca import __version__
from streampca.errors import InputError, Stopped, redacted
from streampca.files import is_url
from streampca.models.dataset import peak_memory
from streampca.progress import Progress, Step, logger, silent
from streampca.results.output import add_attributes, attributes_in, put_in_place
from streampca.results.store import check_whole
from streampca.run.engine import describe, engine, lost_cluster, threads_of
from streampca.run.record import recorded_options, run_differences, run_in
from streampca.run.task import Task
from streampca.run.work_directory import WorkDirectory, folder_of, locked, now
from streampca.sources.remote import check_target, root_at, upload
from streampca.sweep.checkpoint import Checkpoint
from streampca.sweep.memory import Budget, memory_limit, show_bytes

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Signals:
    """Whether a signal has stopped the run, and whether it still may."""

    def __init__(self) -> None:
        self.received = ""
        self.ignored = False

    def check(self) -> None:
        """Stop if a signal came: an exception raised by a handler during Python's own clean-up is lost."""
        if self.received and not self.ignored:
            raise Stopped(f"stopped by {self.received}")

    def handle(self, number: int, _: Any) -> None:
        """Handle a signal: the first stops the run, a Ctrl-C after it ends the process at once."""
        if self.received and number == signal.SIGINT:
            os._exit(128 + number)
        # A queue may signal every process of a job, and its shell may forward it: once is enough.
        if not self.received:
            self.received = signal.Signals(number).name
            self.check()


@contextmanager
def stopping() -> Iterator[Signals]:
    """Let SIGTERM, SIGINT and SIGUSR1 stop the run."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.signal(number, signals.handle) for number in STOPS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def run(task: Task, *, only_resume: bool = False, fresh: bool = False, progress: Progress = silent) -> str | Path:
    """Run a task, or resume it; return the path or URL of its output.

    A finished output of the same options and data is left as it is, unless it is to be overwritten.

    Parameters
    ----------
    only_resume : raise unless there is a checkpoint to resume.
    fresh : discard unfinished work.
    """
    folder = _work_folder(task)
    with stopping() as signals, locked(folder, task.output) as work:
        try:
            return _Attempt(task, work, progress, signals).run(only_resume, fresh)
        except Stopped as stopped:
            work.tell(state="stopped", reason=str(stopped))
            raise
        except Exception as error:
            shown = _explained(error, task, work)
            if shown is error:
                raise
            raise shown from error
        finally:
            if folder.exists() and not work.worth_keeping:
                work.remove()


def _work_folder(task: Task) -> Path:
    """Return the directory of the unfinished work of a task."""
    output = task.output
    if not is_url(output):
        if task.work:
            raise InputError(f"output.work is for an output with a URL; remove it: unfinished work is next to {output}")
        if not Path(output).name:
            raise InputError(f"the output {output!r} names no file; use a name such as result.zarr")
        return folder_of(Path(output))
    name = redacted(output).rstrip("/").rpartition("/")[2]
    if not name:
        raise InputError(f"the output {output!r} names no file; use a name such as result.zarr")
    return folder_of(Path(task.work or ".") / name)


def _explained(error: Exception, task: Task, work: WorkDirectory) -> BaseException:
    """Return an error as users see it, and write it to the status: a lost cluster and a full disk in one line."""
    lost = lost_cluster(error)
    work.tell(state="stopped" if lost else "failed", reason=lost or redacted(str(error)))
    if lost:
        return Stopped(lost)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            f"{task.output}: no space left for the output in {work.folder}; finished work is kept: free some space and "
            "run the same command again"
        )
    return error


class _Attempt:
    """One attempt at a task."""

    def __init__(self, task: Task, work: WorkDirectory, progress: Progress, signals: Signals):
        self.task, self.work, self.progress, self.signals = task, work, progress, signals
        self.remote = is_url(task.output)
        self.phases: dict[str, float] = {}

    def run(self, only_resume: bool, fresh: bool) -> str | Path:
        """Continue from the state of the last attempt to the end."""
        task, work = self.task, self.work
        made_by = {} if task.files is not None else run_in(_attributes_at(task.output))
        record = work.record
        if record is not None and (made_by.get("id") == record["id"] or self._placed(record)):
            # The last attempt was killed after it renamed the output.
            return self._done()
        if not self.remote:
            work.put_back(Path(task.output))
        with self._phase("opening"):
            fingerprint = task.open()
        asked = {"config": recorded_options(task.options()), "fingerprint": fingerprint, "streampca": __version__}
        if fresh:
            work.clear()
        record = record if work.worth_keeping and not fresh else None
        keeps = only_resume or not task.overwrite
        if record is None and keeps and made_by and not run_differences(made_by, asked):
            logger.info("%s: exists already, with the same options and data; nothing to do", redacted(task.output))
            return self._done()
        record = self._taken_up(record, asked, only_resume)
        if not self._executed(record):
            self._execute(record)
        self._finish(record)
        return self._done()

    def _placed(self, record: Mapping[str, Any]) -> bool:
        """Whether all text files have their final names."""
        files = self.task.files
        left = [name for name in files or () if (self.work.store / name).exists()]
        return files is not None and bool(record["placing"]) and not left

    def _executed(self, record: Mapping[str, Any]) -> bool:
        """Whether an earlier attempt has finished the work."""
        if self.task.files is not None:
            return bool(record["placing"])
        return bool(run_in(attributes_in(self.work.store)).get("id") == record["id"])

    def _taken_up(self, record: dict[str, Any] | None, asked: dict[str, Any], only_resume: bool) -> dict[str, Any]:
        """Return the record of the run that is resumed, or that of a new one; raise if the options differ."""
        different = [] if record is None else run_differences(record, asked)
        if different:
            raise InputError(
                f"{self.work.folder}: holds unfinished work of other options: {'; '.join(different)}; undo the change "
                "to resume, or add --fresh to start over"
            )
        if record is None:
            if only_resume:
                raise InputError(f"{self.task.output}: no checkpoint to resume; remove --only-resume to start")
            self.work.clear()
            limit = memory_limit(self.task.engine.memory_limit)
            record = asked | {
                "id": uuid.uuid4().hex, "begun": now(), "memory": limit, "attempts": 0, "exporting": False,
                "placing": False,
            }  # fmt: skip
        record["attempts"] += 1
        return record

    def _execute(self, record: dict[str, Any]) -> None:
        """Do the work, in the store of the working directory."""
        task, work, memory = self.task, self.work, record["memory"]
        with dask.config.set(num_workers=threads_of(task.engine)):
            self._check()
            budget = Budget(memory, task.baseline)
            expected = task.expected(budget, self._watched)
            work.begin(record)
            work.tell(
                state="running", output=redacted(task.output), started=now(), begun=record["begun"],
                attempts=record["attempts"], expected_sweeps=expected.sweeps or 0, limit_bytes=memory,
            )  # fmt: skip
            work.remove_keys()
            work.store.mkdir(exist_ok=True)
            checkpoint = Checkpoint(work.checkpoints, 60 * task.engine.checkpoint_minutes)
            entered = time.monotonic()
            keys = work.folder.resolve()
            with engine(
                task.engine, expected.threads or 1, memory, keys, lambda line: work.tell(workers=line)
            ) as client:
                self.phases["starting workers"] = time.monotonic() - entered
                if client is not None:
                    work.tell(workers=describe(client))
                if record["attempts"] > 1:
                    logger.info("resuming the run of %s, attempt %d", record["begun"], record["attempts"])
                with checkpoint.active(), self._phase("fitting"), self._invalid_input(record):
                    task.execute(work.store, budget, self._watched)
                peaks = {} if client is None else client.run(peak_memory, on_error="ignore")
        if task.files is None:
            self._sign(record, checkpoint, max(peaks.values(), default=None))

    @contextmanager
    def _invalid_input(self, record: Mapping[str, Any]) -> Iterator[None]:
        """Discard the little work of a first attempt that ends soon, because data or options are invalid."""
        start = time.monotonic()
        try:
            yield
        except InputError as error:
            early = time.monotonic() - start < 60 * self.task.engine.checkpoint_minutes
            # An error with a cause comes from the system, as a full disk, and may be gone when the run resumes.
            if early and record["attempts"] == 1 and error.__cause__ is None:
                self.work.clear()
            raise

    def _sign(self, record: Mapping[str, Any], checkpoint: Any, peak: int | None) -> None:
        """Add the record of the run to the attributes of its store."""
        attributes = attributes_in(self.work.store) or {}
        summary = {
            **{key: record[key] for key in ("id", "begun", "attempts", "config", "fingerprint", "streampca")},
            "finished": now(),
            "engine": self.task.engine.kind,
            "phase_seconds": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "sweep_seconds": round(sum(json.loads(attributes.get("sweep_seconds", "[]"))), 3),
            "replayed_sweeps": checkpoint.replayed,
            "resumed_partitions": checkpoint.resumed,
            "worker_peak_bytes": peak,
        }
        add_attributes(self.work.store, {"run": json.dumps(summary)})
        if "n_sweeps" in attributes:
            logger.info(
                "%d sweeps, %s read, peak memory %s, attempt %d", attributes["n_sweeps"],
                show_bytes(attributes["bytes_read"]), show_bytes(attributes["peak_memory_bytes"]), record["attempts"],
            )  # fmt: skip

    def _check(self) -> None:
        """Raise before the work starts if its output could not be written."""
        if self.remote:
            check_target(self.task.output, self.task.overwrite)
        self.task.check()

    def _finish(self, record: dict[str, Any]) -> None:
        """Write exports, and give the output its name."""
        task, work = self.task, self.work
        if task.files is not None:
            work.begin(record | {"placing": True})
            for name, path in zip(task.files, task.paths, strict=True):
                if (work.store / name).exists():
                    os.replace(work.store / name, path)
            return
        work.remove_partial_files()
        # Also what a killed attempt wrote, perhaps long ago.
        check_whole(work.store, f"remove {work.folder} and run again")
        again = record["exporting"]
        work.begin(record | {"exporting": True})
        task.finish(work.store, again)
        if self.remote:
            upload(work.store, task.output, task.overwrite, self._watched)
        else:
            put_in_place(work.store, Path(task.output), task.overwrite, work.old)

    def _done(self) -> str | Path:
        """Remove the working directory; from here on nothing needs to be saved."""
        self.signals.ignored = True
        self.work.remove()
        return self.task.output if self.remote else Path(self.task.output)

    def _watched(self, step: Step) -> None:
        """Show the progress, also in status.json; stop if a signal came."""
        self.signals.check()
        self.progress(step)
        self.work.progress(step)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a phase."""
        start = time.monotonic()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - start


def _attributes_at(output: str) -> dict[str, Any] | None:
    """Return the attributes of the store at a path or URL; None if there is none."""
    if not is_url(output):
        return attributes_in(Path(output))
    root = root_at(output)
    return None if root is None else root.get("attributes")
