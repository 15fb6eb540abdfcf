"""A run that finishes: from one configuration to a result, killed and begun again as often as need be."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from streampca import __version__
from streampca.errors import InputError, Stopped, redacted
from streampca.files import text_paths
from streampca.models.dataset import peak_memory
from streampca.progress import Progress, Step, logger, silent
from streampca.results.export import FORMATS
from streampca.results.store import add_attributes, attributes_in, check_output, check_whole, load, put_in_place
from streampca.run.config import changed
from streampca.run.engine import describe, engine, threads_of
from streampca.run.fit import Job, export_prefix, open_data, write_export
from streampca.run.work_directory import Workplace, folder_of, locked, now
from streampca.sources.remote import check_target, is_url, root_at, upload
from streampca.sources.tables import Ids, Table, ids_of, read_table, source_ids, split_column
from streampca.sweep.memory import PROCESS_KEY, memory_limit, process_bytes, show_bytes

if TYPE_CHECKING:
    from streampca.run.config import Config


STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
# The size of the process counts in steps, and with what checkpoints take for a moment.
PROCESS_STEP, JOURNAL_BYTES = 64 << 20, 32 << 20


class Signals:
    """Whether a signal has told the run to stop, and whether it still may."""

    def __init__(self) -> None:
        self.told = ""
        self.ignored = False

    def look(self) -> None:
        """Stop if told to: an exception that a signal raises in the middle of Python's own tidying up is lost."""
        if self.told and not self.ignored:
            raise Stopped(f"stopped by {self.told}")

    def stop(self, number: int, _: Any) -> None:
        """Handle a signal: the first stops the run, a Ctrl-C after it ends the process at once."""
        if self.told and number == signal.SIGINT:
            os._exit(128 + number)
        # A queue may signal every process of a job, and its shell pass it on: once is enough.
        if not self.told:
            self.told = signal.Signals(number).name
            self.look()


@contextmanager
def stopping() -> Iterator[Signals]:
    """Let SIGTERM, SIGINT and SIGUSR1 stop the run."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.signal(number, signals.stop) for number in STOPS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def run(config: Config, *, resume: bool = False, progress: Progress = silent) -> str | Path:
    """Do what a configuration asks for, or go on with it; returns where the result is.

    Parameters
    ----------
    resume : go on, and refuse to begin anew. Without it too, unfinished work is gone on with, and a result that is
        whole and of the same configuration and data is left as it is, unless it is to be overwritten.
    """
    if config.source.shape is not None:
        raise InputError("source.shape is for --plan of data that are not there yet; leave it out to run")
    output, work = config.output.path, config.output.work
    if work and not is_url(output):
        raise InputError(f"output.work is for an output behind a URL; leave it out: {output} has its work beside it")
    name = redacted(output).rstrip("/").rpartition("/")[2] if is_url(output) else Path(output).name
    if not name:
        raise InputError(f"output.path is {output!r}, which names no store; write it as result.zarr")
    folder = folder_of(Path(work or ".") / name) if is_url(output) else folder_of(Path(output))
    with stopping() as signals, locked(folder, output) as place:
        try:
            return _Run(config, place, progress, signals).result(resume)
        except Stopped as stopped:
            place.tell(state="stopped", reason=str(stopped))
            raise
        except OSError as error:
            place.tell(state="failed", reason=redacted(str(error)))
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InputError(
                f"{output}: no space left for the result in {folder}; what was done before is kept: free some space "
                "and run the same command again"
            ) from error
        except Exception as error:
            place.tell(state="failed", reason=redacted(str(error)))
            raise
        finally:
            if folder.exists() and not place.worth_keeping:
                place.remove()


class _Run:
    """One attempt at a run."""

    def __init__(self, config: Config, place: Workplace, progress: Progress, signals: Signals):
        self.config, self.place, self.progress, self.signals = config, place, progress, signals
        self.output = config.output.path
        self.remote = is_url(self.output)
        self.phases: dict[str, float] = {}

    def result(self, resume: bool) -> str | Path:
        """Go from where an earlier attempt was to the end."""
        made_by = _run_of(_attributes_at(self.output))
        begun = self.place.asked
        if begun is not None and made_by.get("id") == begun["id"]:
            # Put in place by an attempt that was killed before it could tidy up.
            return self.finished()
        if not self.remote:
            self.place.put_back(Path(self.output))
        source = self.config.source.model_dump()
        with self.phase("opening"):
            data = open_data(source["path"], source)
            data.watch()
            fingerprint = data.fingerprint()
        written = redacted(self.config.model_dump(mode="json"))
        asked = {"config": written, "fingerprint": fingerprint, "streampca": __version__}
        begun = begun if self.place.worth_keeping else None
        keeps = resume or not self.config.output.overwrite
        if begun is None and keeps and made_by and not _differences(made_by, asked):
            logger.info("%s: exists already, of the same configuration and data; nothing to do", redacted(self.output))
            return self.finished()
        begun = self.taken_up(begun, asked, resume)
        if _run_of(attributes_in(self.place.store)).get("id") != begun["id"]:
            self.fit(data, source, begun)
        self.put(begun)
        return self.finished()

    def taken_up(self, begun: dict[str, Any] | None, asked: dict[str, Any], resume: bool) -> dict[str, Any]:
        """Return what the run that is gone on with was asked, or that of a new one; refuses to mix two of them."""
        different = [] if begun is None else _differences(begun, asked)
        if different and not self.place.failed:
            raise InputError(
                f"{self.place.folder}: holds a run that was not finished, and is another: {'; '.join(different)}; undo "
                "the change to go on, or remove the folder to begin anew"
            )
        if begun is None or different:
            if resume:
                raise InputError(f"{self.output}: there is nothing to go on with; leave out --resume to begin")
            if different:
                logger.info("the run before failed, and was another (%s): beginning anew", "; ".join(different))
            self.place.clear()
            limit = memory_limit(self.config.engine.memory)
            # The size of this process, roughly: what is planned must not depend on when and by what engine it is run.
            process = -(-process_bytes() // PROCESS_STEP) * PROCESS_STEP + JOURNAL_BYTES
            begun = asked | {
                "id": uuid.uuid4().hex, "begun": now(), "memory": limit, "process": process, "attempts": 0,
                "exporting": False,
            }  # fmt: skip
        begun["attempts"] += 1
        return begun

    def fit(self, data: Any, source: dict[str, Any], begun: dict[str, Any]) -> None:
        """Fit the model into the store of the workplace."""
        config = self.config
        with dask.config.set({"num_workers": threads_of(config.engine), PROCESS_KEY: begun["process"]}):
            job = Job.of(data, source, config.model.model_dump(), begun["memory"], self.watched)
            self.check(job)
            chosen = job.plan()
            self.place.begin(begun)
            self.place.tell(
                state="running", output=redacted(self.output), started=now(), begun=begun["begun"],
                attempts=begun["attempts"], expected_sweeps=chosen.sweeps, limit_bytes=begun["memory"],
            )  # fmt: skip
            self.place.store.mkdir(exist_ok=True)
            journal = self.place.journal(60 * config.engine.checkpoint_minutes)
            entered = time.monotonic()
            with engine(config.engine, chosen.threads, begun["memory"]) as client:
                self.phases["starting workers"] = time.monotonic() - entered
                if client is not None:
                    self.place.tell(workers=describe(client))
                if begun["attempts"] > 1:
                    logger.info("going on with the run of %s, attempt %d", begun["begun"], begun["attempts"])
                with journal.active(), self.phase("fitting"):
                    _, attributes = job.fit(self.place.store)
                peak = None if client is None else _most(client.run(peak_memory, on_error="ignore"))
        summary = {
            **{key: begun[key] for key in ("id", "begun", "attempts", "config", "fingerprint", "streampca")},
            "finished": now(),
            "engine": config.engine.kind,
            "phase_seconds": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "sweep_seconds": round(sum(json.loads(attributes["sweep_seconds"])), 3),
            "replayed_sweeps": journal.replayed,
            "resumed_partitions": journal.resumed,
            "worker_peak_bytes": peak,
        }
        add_attributes(self.place.store, {"run": json.dumps(summary)})
        logger.info(
            "%d sweeps, %s read, peak memory %s, attempt %d", attributes["n_sweeps"],
            show_bytes(attributes["bytes_read"]), show_bytes(attributes["peak_memory_bytes"]), begun["attempts"],
        )  # fmt: skip

    def check(self, job: Job) -> None:
        """Refuse what could not be written at the end, before the work begins."""
        overwrite, form = self.config.output.overwrite, self.config.output.export
        if self.remote:
            check_target(self.output, overwrite)
        elif Path(self.output).exists() and not overwrite:
            raise InputError(
                f"{self.output}: exists already; choose another output.path, or set output.overwrite to true"
            )
        else:
            check_output(Path(self.output), overwrite)
        if form is not None:
            job.check_export(form, self.prefix, overwrite)
        if self.config.output.report is not None:
            text_paths(Path(self.config.output.report), ("",), overwrite)
            self.table(source_ids(job.data.samples))

    def table(self, ids: Ids) -> tuple[Table | None, str | None]:
        """Read the table about the samples, if there is to be one, and the column to begin with."""
        labels = self.config.output.labels
        if labels is None:
            return None, None
        path, names = split_column(labels)
        table = read_table(path, ids)
        for name in names:
            table.label(name)
        return table, next(iter(names), None)

    def put(self, begun: dict[str, Any]) -> None:
        """Write the exports, and give the result its name."""
        output = self.config.output
        # Also what an attempt that was killed has written, perhaps long ago.
        check_whole(self.place.store, f"remove {self.place.folder} and run again")
        overwrite, form, page = output.overwrite, output.export, output.report
        # Those of an attempt that was killed here are written again, those of others are not.
        if form is not None:
            text_paths(self.prefix, FORMATS[form], overwrite or begun["exporting"])
        if page is not None:
            text_paths(Path(page), ("",), overwrite or begun["exporting"])
        if form is not None or page is not None:
            self.place.begin(begun | {"exporting": True})
        if form is not None:
            write_export(self.place.store, form, self.prefix, overwrite=True)
        if page is not None:
            from streampca.report import write_report

            result = load(self.place.store)
            table, colour = self.table(ids_of(result))
            write_report(result, Path(page), table=table, colour=colour, overwrite=True)
        if self.remote:
            upload(self.place.store, self.output, overwrite, self.watched)
        else:
            put_in_place(self.place.store, Path(self.output), overwrite, self.place.old)

    def finished(self) -> str | Path:
        """Tidy up; what is whole need not be saved."""
        self.signals.ignored = True
        self.place.remove()
        return self.where

    @property
    def where(self) -> str | Path:
        """Where the result is."""
        return self.output if self.remote else Path(self.output)

    @property
    def prefix(self) -> Path:
        """How the names of exported files begin: beside the result, or in this folder for one behind a URL."""
        return export_prefix(Path(redacted(self.output).rpartition("/")[2]) if self.remote else Path(self.output))

    def watched(self, step: Step) -> None:
        """Show how far it is, here and to those who ask for the status; stop if told to."""
        self.signals.look()
        self.progress(step)
        self.place.progress(step)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a phase."""
        began = time.monotonic()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began


def _attributes_at(output: str) -> dict[str, Any] | None:
    """Return the attributes of the store at a path or URL; None if there is none."""
    if not is_url(output):
        return attributes_in(Path(output))
    root = root_at(output)
    return None if root is None else root.get("attributes")


def _most(numbers: dict[str, int]) -> int | None:
    """Return the largest, if there are any."""
    return max(numbers.values(), default=None)


def _run_of(attributes: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a result says of the run that made it; nothing if there is none."""
    try:
        found = json.loads((attributes or {})["run"])
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _differences(begun: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Say in what a run that began differs from the one that is asked for."""
    different = changed(begun["config"], asked["config"])
    if begun["streampca"] != asked["streampca"]:
        different.append(f"streampca was {begun['streampca']}, is {asked['streampca']}")
    if not different and begun["fingerprint"] != asked["fingerprint"]:
        different = [f"the data at {asked['config']['source']['path']} have changed"]
    return different
