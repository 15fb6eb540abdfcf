"""The folder of one unfinished run: a lock, what was asked, how far it is, its checkpoints, the store being written.

study.pca.zarr.unfinished/
    lock            held by the run that works here; the system lets it go when that run ends, however
    run.json        what was asked, of which data
    status.json     how far it is, for `streampca status`
    checkpoint/     records of sweeps
    store/          the result as far as it is written
    old/            what had the result's name before, for a moment
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psutil

from streampca.errors import InputError
from streampca.progress import Step
from streampca.sweep.checkpoint import Journal

SUFFIX = ".unfinished"
# Seconds between two updates of status.json.
STATUS_EVERY = 1.0
# Seconds that a lock may be held before it is another run's.
PATIENCE = 0.5
# What run.json holds.
ASKED: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "fingerprint", "streampca", "begun"), str),
    **dict.fromkeys(("memory", "process", "attempts"), int),
    "config": dict,
    "exporting": bool,
}
# What status.json holds; what belongs together is there together.
TOLD: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        ("state", "output", "started", "begun", "host", "label", "note", "updated", "reason", "workers"), str
    ),
    **dict.fromkeys(
        ("pid", "attempts", "expected_sweeps", "limit_bytes", "sweep", "done", "partitions", "memory_bytes"), int
    ),
    "sweep_seconds": (int, float),
    "eta_seconds": (int, float, type(None)),
}
TOGETHER = (("pid", "host"), ("attempts", "begun"), ("sweep", "label", "done", "partitions"))


def folder_of(output: Path) -> Path:
    """Return where the unfinished work for an output is."""
    return output.with_name(output.name + SUFFIX)


class Workplace:
    """The folder of a run, while its lock is held."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._status: dict[str, Any] = {}
        self._written = 0.0

    @property
    def asked(self) -> dict[str, Any] | None:
        """What an earlier run here was asked; None if there was none, or none that can be read."""
        found = _read(self.folder / "run.json")
        return found if found is not None and _are(found, ASKED) and set(found) >= set(ASKED) else None

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Write down what is asked."""
        _write(self.folder / "run.json", asked)

    @property
    def failed(self) -> bool:
        """Tell whether the run before ended with an error, not by a signal or a kill."""
        return (_read(self.folder / "status.json") or {}).get("state") == "failed"

    def journal(self, interval: float) -> Journal:
        """Return the checkpoints."""
        return Journal(self.folder / "checkpoint", interval)

    @property
    def store(self) -> Path:
        """Where the result is written until it is whole."""
        return self.folder / "store"

    @property
    def old(self) -> Path:
        """Where what had the result's name before is put for a moment."""
        return self.folder / "old"

    def put_back(self, output: Path) -> None:
        """Give what had the result's name before its name again, if a run was killed in that moment."""
        if self.old.exists() and not output.exists():
            self.old.rename(output)

    @property
    def worth_keeping(self) -> bool:
        """Tell whether there is anything that a later attempt could use."""
        return any((self.folder / "checkpoint").glob("*.npz")) or (self.store / "zarr.json").exists()

    def tell(self, **facts: Any) -> None:
        """Put facts into status.json at once; where there is no room for it, the work goes on without."""
        self._status |= {"pid": os.getpid(), "host": socket.gethostname(), **facts}
        memory = psutil.Process().memory_info().rss
        with suppress(OSError):
            _write(self.folder / "status.json", self._status | {"memory_bytes": memory, "updated": now()})
        self._written = time.monotonic()

    def progress(self, step: Step) -> None:
        """Put how far a sweep is into status.json, not too often."""
        if time.monotonic() - self._written >= STATUS_EVERY or step.done in (step.earlier, step.total):
            self.tell(
                state="running", sweep=step.sweep, label=step.label, done=step.done, partitions=step.total,
                sweep_seconds=round(step.seconds, 1), eta_seconds=None if step.eta is None else round(step.eta, 1),
                note=step.note,
            )  # fmt: skip

    def clear(self) -> None:
        """Remove the work of another run."""
        for path in (self.folder / "checkpoint", self.store):
            if path.exists():
                shutil.rmtree(path)

    def remove(self) -> None:
        """Remove what was made here, and the folder if nothing else is in it; what was asked goes last but the lock."""
        self.clear()
        if self.old.exists():
            shutil.rmtree(self.old)
        for name in ("status.part", "status.json", "run.part", "run.json", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


@contextmanager
def locked(folder: Path, output: str) -> Iterator[Workplace]:
    """Hold the lock of a run's folder, which is made if need be; refuses while another run holds it."""
    file = _lock(folder)
    if file is None:
        status = _read(folder / "status.json") or {}
        who = (
            f" (process {status['pid']} on {status['host']}, since {status.get('started')})" if "pid" in status else ""
        )
        raise InputError(
            f"{output}: another run is writing to it{who}; wait for it, see `streampca status {output}`, or choose "
            "another output"
        )
    try:
        yield Workplace(folder)
    finally:
        file.close()


def _lock(folder: Path) -> IO[bytes] | None:
    """Take the lock, if it is free; who asks for the status holds it for a moment."""
    patience = time.monotonic() + PATIENCE
    while True:
        try:
            folder.mkdir(exist_ok=True)
            file = (folder / "lock").open("ab")
        except FileNotFoundError:
            if not folder.parent.is_dir():
                raise InputError(f"{folder}: the folder {folder.parent} does not exist; make it first") from None
            continue
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if not isinstance(error, BlockingIOError):
                raise InputError(
                    f"{folder}: this file system has no locks ({error.strerror}), which keep two runs apart; choose an "
                    "output elsewhere, or have it mounted with flock"
                ) from error
            if time.monotonic() > patience:
                return None
            time.sleep(0.05)
            continue
        # The run that held it may have removed the file in between.
        try:
            if os.path.samestat(os.fstat(file.fileno()), (folder / "lock").stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def is_running(folder: Path) -> bool:
    """Tell whether a run holds the lock of this folder."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def status(output: Path) -> dict[str, Any] | None:
    """Return how far the run for an output, or in a folder, is; None if there is no unfinished one."""
    folder = output if (output / "run.json").exists() else folder_of(output)
    found = _read(folder / "status.json")
    if found is not None and not (
        _are(found, TOLD) and "state" in found and all(set(keys) <= set(found) for keys in TOGETHER if keys[0] in found)
    ):
        # Damaged, as a full disk leaves it.
        found = {"state": "unknown"}
    if found is None:
        return {"state": "starting"} if is_running(folder) else None
    running = is_running(folder)
    if found.get("state") == "running" and not running:
        found["state"] = "killed"
    checkpoint = folder / "checkpoint"
    records = list(checkpoint.glob("*.npz")) if checkpoint.is_dir() else []
    found["checkpoint_bytes"] = sum(path.stat().st_size for path in records)
    found["saved"] = max((_time(path.stat().st_mtime) for path in records), default=None)
    return found


def now() -> str:
    """Return the time, as status and run summaries give it."""
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _are(found: dict[str, Any], types: Mapping[str, type | tuple[type, ...]]) -> bool:
    """Tell whether values are of their types, and numbers no larger than a machine has them."""
    return all(
        isinstance(value, types.get(key, object))
        and not (isinstance(value, (int, float)) and not abs(value) < 1 << 63)
        and all(isinstance(inner, dict) for inner in (value.values() if isinstance(value, dict) else ()))
        for key, value in found.items()
    )


def _write(path: Path, value: Mapping[str, Any]) -> None:
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1))
    os.replace(beside, path)
