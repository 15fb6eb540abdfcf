"""A run that finishes: from one configuration to a result, killed and begun again as often as need be."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from streampca import __version__
from streampca.budget import memory_limit, show_bytes
from streampca.config import changed
from streampca.engine import describe, engine
from streampca.errors import InputError, Stopped
from streampca.jobs import Job, export_prefix, open_data, write_export
from streampca.models.dataset import peak_memory
from streampca.progress import Progress, Step, logger, silent
from streampca.results import add_attributes, attributes_in, check_output, put_in_place
from streampca.sources.remote import check_target, is_url, root_at, upload
from streampca.workplace import Workplace, folder_of, locked, now

if TYPE_CHECKING:
    from streampca.config import Config


@contextmanager
def stopping() -> Iterator[Callable[[], None]]:
    """Let SIGTERM, SIGINT and SIGUSR1 stop the run; a second Ctrl-C ends the process at once.

    Yields what looks again whether the run was told to stop: an exception that a signal raises in the middle of
    Python's own tidying up is lost.
    """
    told: list[str] = []

    def look() -> None:
        if told:
            raise Stopped(f"stopped by {told[0]}")

    def stop(number: int, _: Any) -> None:
        told.append(signal.Signals(number).name)
        if number == signal.SIGINT and told.count("SIGINT") > 1:
            os._exit(128 + number)
        # A queue may signal every process of a job, and its shell pass it on: once is enough.
        if len(told) == 1:
            look()

    if threading.current_thread() is not threading.main_thread():
        yield look
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        yield look
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    name = output.rstrip("/").rpartition("/")[2]
    folder = Path(work or folder_of(Path(name))) if is_url(output) else folder_of(Path(output))
    with stopping() as look, locked(folder, output) as place:
        try:
            return _Run(config, place, progress, look).result(resume)
        except Stopped as stopped:
            place.tell(state="stopped", reason=str(stopped))
            raise
        except OSError as error:
            place.tell(state="failed", reason=str(error))
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InputError(
                f"{output}: no space left for the result in {folder}; what was done before is kept: free some space "
                "and run the same command again"
            ) from error
        except Exception as error:
            place.tell(state="failed", reason=str(error))
            raise
        finally:
            if folder.exists() and not place.worth_keeping:
                place.remove()


class _Run:
    """One attempt at a run."""

    def __init__(self, config: Config, place: Workplace, progress: Progress, look: Callable[[], None]):
        self.config, self.place, self.progress, self.look = config, place, progress, look
        self.output = config.output.path
        self.remote = is_url(self.output)
        self.phases: dict[str, float] = {}

    def result(self, resume: bool) -> str | Path:
        """Go from where an earlier attempt was to the end."""
        there = _attributes_at(self.output)
        begun = self.place.asked if self.place.worth_keeping else None
        if there is not None and begun is not None and _run_of(there).get("id") == begun["id"]:
            # Put in place by an attempt that was killed before it could tidy up.
            return self.finished()
        source = self.config.source.model_dump()
        with self.phase("opening"):
            data = open_data(source["path"], source)
            fingerprint = data.fingerprint()
        asked = {"config": self.config.model_dump(mode="json"), "fingerprint": fingerprint, "streampca": __version__}
        if begun is None and there is not None and (resume or not self.config.output.overwrite):
            if not _differences(_run_of(there), asked):
                logger.info("%s: is whole already", self.output)
                return self.where
        if begun is None:
            if resume:
                raise InputError(f"{self.output}: there is nothing to go on with; leave out --resume to begin")
            limit = memory_limit(self.config.engine.memory)
            begun = asked | {"id": uuid.uuid4().hex, "begun": now(), "memory": limit, "attempts": 0}
        elif different := _differences(begun, asked):
            raise InputError(
                f"{self.place.folder}: holds a run that was not finished, and is another: {'; '.join(different)}; undo "
                "the change to go on, or remove the folder to begin anew"
            )
        begun["attempts"] += 1
        if "run" not in (attributes_in(self.place.store) or {}):
            self.fit(data, source, begun)
        with self.phase("placing"):
            self.put()
        return self.finished()

    def fit(self, data: Any, source: dict[str, Any], begun: dict[str, Any]) -> None:
        """Fit the model into the store of the workplace."""
        config = self.config
        threads = config.engine.threads or (1 if config.engine.kind == "processes" else None)
        with dask.config.set(num_workers=threads):
            job = Job.of(data, source, config.model.model_dump(), begun["memory"], self.watched)
            self.check(job)
            chosen = job.plan()
            self.place.begin(begun)
            self.place.tell(
                state="running", output=self.output, started=now(), begun=begun["begun"], attempts=begun["attempts"],
                expected_sweeps=chosen.sweeps, limit_bytes=begun["memory"],
            )  # fmt: skip
            self.place.store.mkdir(exist_ok=True)
            journal = self.place.journal(60 * config.engine.checkpoint_minutes, begun["fingerprint"])
            entered = time.monotonic()
            with engine(config.engine, chosen.threads, begun["memory"]) as client:
                self.phases["starting workers"] = time.monotonic() - entered
                if client is not None:
                    self.place.tell(workers=describe(client))
                if begun["attempts"] > 1:
                    logger.info("going on with the run of %s, attempt %d", begun["begun"], begun["attempts"])
                with journal.active(), self.phase("fitting"):
                    _, attributes = job.fit(self.place.store)
                peak = None if client is None else max(client.run(peak_memory).values(), default=None)
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
        else:
            check_output(Path(self.output), overwrite)
        if form is not None:
            job.check_export(form, self.prefix, overwrite)

    def put(self) -> None:
        """Write the exports, and give the result its name."""
        overwrite, form = self.config.output.overwrite, self.config.output.export
        if form is not None:
            # Those of an attempt that was killed here are written again.
            write_export(self.place.store, form, self.prefix, overwrite=True)
        if self.remote:
            upload(self.place.store, self.output, overwrite)
        else:
            put_in_place(self.place.store, Path(self.output), overwrite, self.place.folder / "old")

    def finished(self) -> str | Path:
        """Tidy up."""
        self.place.remove()
        return self.where

    @property
    def where(self) -> str | Path:
        """Where the result is."""
        return self.output if self.remote else Path(self.output)

    @property
    def prefix(self) -> Path:
        """How the names of exported files begin: beside the result, or in this folder for one behind a URL."""
        return export_prefix(Path(self.output.rpartition("/")[2]) if self.remote else Path(self.output))

    def watched(self, step: Step) -> None:
        """Show how far it is, here and to those who ask for the status; stop if told to."""
        self.look()
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


def _run_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return what a result says of the run that made it."""
    try:
        found = json.loads(attributes["run"])
    except (KeyError, ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _differences(begun: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Say in what a run that began differs from the one that is asked for."""
    if "config" not in begun:
        return ["it was not made by `streampca run`"]
    different = changed(begun["config"], asked["config"])
    if begun["streampca"] != asked["streampca"]:
        different.append(f"streampca was {begun['streampca']}, is {asked['streampca']}")
    if not different and begun["fingerprint"] != asked["fingerprint"]:
        different = [f"the data at {asked['config']['source']['path']} have changed"]
    return different
