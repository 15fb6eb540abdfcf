"""The directory of an unfinished run: lock, options, status, checkpoints, and the store that is written.

study.pca.zarr.unfinished/
    lock            held by the run; the system releases it when the run ends, for whatever reason
    run.json        options, fingerprint of the data, memory limit
    status.json     progress, for `streampca status`
    checkpoint/     records of sweeps
    store/          the output so far
    old/            the previous output, while the new one is renamed
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from streampca.errors import InputError
from streampca.files import open_regular, writing_text
from streampca.progress import Step, system

SUFFIX = ".unfinished"
# Prefix of the directory of TLS keys.
KEYS = ".streampca-keys-"
# Seconds between two updates of status.json.
STATUS_EVERY = 1.0
# Seconds to wait for a lock before it counts as held by another run.
PATIENCE = 0.5
# Types of run.json.
RECORD: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "fingerprint", "streampca", "begun"), str),
    **dict.fromkeys(("memory", "attempts"), int),
    "config": dict,
    "exporting": bool,
    "placing": bool,
}
# Types of status.json, and keys that come together.
STATUS: dict[str, type | tuple[type, ...]] = {
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
    """Return the directory of the unfinished work for an output."""
    return output.with_name(output.name + SUFFIX)


class WorkDirectory:
    """The directory of a run, while its lock is held."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._status: dict[str, Any] = {}
        self._written = 0.0

    @property
    def record(self) -> dict[str, Any] | None:
        """The record of an earlier run here; None if there is none, or none that can be read."""
        found = _read(self.folder / "run.json")
        return found if found is not None and _are(found, RECORD) and set(found) >= set(RECORD) else None

    def begin(self, record: Mapping[str, Any]) -> None:
        """Write the record of this run."""
        _write(self.folder / "run.json", record)

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.folder / "checkpoint"

    @property
    def store(self) -> Path:
        """Where the output is written until it is finished."""
        return self.folder / "store"

    @property
    def old(self) -> Path:
        """Where the previous output is while the new one is renamed."""
        return self.folder / "old"

    def put_back(self, output: Path) -> None:
        """Restore the previous output, if a run was killed while it renamed the new one."""
        if self.old.exists() and not output.exists():
            self.old.rename(output)

    @property
    def worth_keeping(self) -> bool:
        """Whether a later attempt could use what is here."""
        placing = (self.record or {}).get("placing", False)
        return placing or any(self.checkpoints.glob("*.npz")) or (self.store / "zarr.json").exists()

    def tell(self, **facts: Any) -> None:
        """Write facts to status.json; a full disk does not stop the work."""
        self._status |= {"pid": os.getpid(), "host": socket.gethostname(), **facts}
        memory = system().Process().memory_info().rss
        with suppress(OSError):
            _write(self.folder / "status.json", self._status | {"memory_bytes": memory, "updated": now()})
        self._written = time.monotonic()

    def progress(self, step: Step) -> None:
        """Write the progress of a sweep to status.json, at most once a second."""
        if time.monotonic() - self._written >= STATUS_EVERY or step.done in (step.earlier, step.total):
            self.tell(
                state="running", sweep=step.sweep, label=step.label, done=step.done, partitions=step.total,
                sweep_seconds=round(step.seconds, 1), eta_seconds=None if step.eta is None else round(step.eta, 1),
                note=step.note,
            )  # fmt: skip

    def remove_partial_files(self) -> None:
        """Remove files of the store that a killed attempt did not finish and rename."""
        for pattern in ("*.partial", ".*.unfinished"):
            for path in self.store.rglob(pattern):
                path.unlink()

    def clear(self) -> None:
        """Remove checkpoints, store, and TLS keys of a killed run."""
        self.remove_keys()
        for path in (self.checkpoints, self.store):
            if path.exists():
                shutil.rmtree(path)

    def remove_keys(self) -> None:
        """Remove the TLS keys that a killed run left."""
        for path in self.folder.glob(f"{KEYS}*"):
            shutil.rmtree(path)

    def remove(self) -> None:
        """Remove what the run made, run.json and lock last, and the directory if it is empty."""
        self.clear()
        if self.old.exists():
            shutil.rmtree(self.old)
        # Files that a kill left half-written, then status, record and lock.
        parts = [path.name for name in ("status", "run") for path in self.folder.glob(f".{name}.json.*.unfinished")]
        for name in (*parts, "status.json", "run.json", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


@contextmanager
def locked(folder: Path, output: str) -> Iterator[WorkDirectory]:
    """Hold the lock of a run's directory, which is created if needed; raise while another run holds it."""
    file = _lock(folder, output)
    if file is None:
        status = _read(folder / "status.json") or {}
        who = (
            f" (process {status['pid']} on {status['host']}, since {status.get('started')})" if "pid" in status else ""
        )
        raise InputError(
            f"{output}: another run is writing it{who}; wait for it (`streampca status {output}`), or choose "
            "another output"
        )
    try:
        yield WorkDirectory(folder)
    finally:
        file.close()


def _lock(folder: Path, output: str) -> IO[bytes] | None:
    """Take the lock if it is free; `streampca status` holds it for a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            folder.mkdir(exist_ok=True)
            _check_own(folder)
            file = os.fdopen(open_regular(folder / "lock", os.O_RDWR | os.O_CREAT), "r+b")
        except FileNotFoundError as error:
            if not folder.parent.is_dir():
                raise InputError(f"{output}: the directory {folder.parent} does not exist; create it first") from None
            # The run that held the lock may have removed the directory meanwhile.
            if time.monotonic() > deadline:
                raise InputError(f"{output}: cannot be created ({error.strerror}); choose another output") from None
            continue
        except OSError as error:
            raise InputError(f"{folder}: cannot be used ({error.strerror}); choose another output") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if not isinstance(error, BlockingIOError):
                raise InputError(
                    f"{folder}: this file system does not support locks ({error.strerror}); choose an output "
                    "elsewhere, or mount it with flock"
                ) from error
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
            continue
        # The run that held it may have removed the file meanwhile.
        try:
            if os.path.samestat(os.fstat(file.fileno()), (folder / "lock").stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _check_own(folder: Path) -> None:
    """Raise unless this is a directory that belongs to this user, and neither it nor a part of it is a link."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, "it is not a directory", str(folder))
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(folder))
    linked = [name for name in ("checkpoint", "store", "old") if (folder / name).is_symlink()]
    if linked:
        raise OSError(errno.EPERM, f"{linked[0]} in it is a link", str(folder))


def is_running(folder: Path) -> bool:
    """Whether a run holds the lock of this directory."""
    try:
        with os.fdopen(open_regular(folder / "lock", os.O_RDONLY), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def status(output: Path) -> dict[str, Any] | None:
    """Return the status of the run for an output, or in a directory; None if there is no unfinished run."""
    output = Path(os.path.abspath(output))
    folder = output if (output / "run.json").exists() or not output.name else folder_of(output)
    found = _read(folder / "status.json")
    if found is not None and not (
        _are(found, STATUS)
        and "state" in found
        and all(set(keys) <= set(found) for keys in TOGETHER if keys[0] in found)
    ):
        # Damaged, for example by a full disk.
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
    """Return the time in the format of status and run records."""
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _are(found: dict[str, Any], types: Mapping[str, type | tuple[type, ...]]) -> bool:
    """Whether values have their types, and numbers are in the range of int64."""
    return all(
        isinstance(value, types.get(key, object))
        and not (isinstance(value, (int, float)) and not abs(value) < 1 << 63)
        and all(isinstance(inner, dict) for inner in (value.values() if isinstance(value, dict) else ()))
        for key, value in found.items()
    )


def _write(path: Path, value: Mapping[str, Any]) -> None:
    with writing_text(path) as file:
        json.dump(value, file, indent=1)
