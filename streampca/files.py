"""Paths, and atomic writing of files."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from streampca.errors import InputError, nearest

MOST_NAMES = 10_000  # of a directory in which the nearest name is searched


def is_url(place: object) -> bool:
    """Whether a place is a URL."""
    return "://" in str(place)


def absent(path: str | Path) -> InputError:
    """Return the error for a path that does not exist; it suggests the nearest name."""
    path = Path(path)
    if not path.parent.is_dir():
        return InputError(f"{path}: does not exist, nor does the directory {path.parent}; check the path")
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, MOST_NAMES) if not entry.name.startswith(".")]
    near = nearest(path.name, names, 0.8)
    return InputError(
        f"{path}: does not exist; {f'did you mean {path.with_name(near)}?' if near else 'check the path'}"
    )


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file that belongs to this user, without following a link; return its descriptor.

    Raises OSError for links, devices and pipes, and for files of other users.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    problem = "belongs to another user" if stat.S_ISREG(status.st_mode) else "is not a regular file"
    raise OSError(errno.EPERM, problem, str(path))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, to which the file is renamed when it is complete."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        if str(error.filename) == str(unfinished):
            error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def writing_text(path: Path) -> Iterator[TextIO]:
    """Yield a file that gets its name when it is complete."""
    # "x" follows no link that someone else may have put there.
    with replacing(path) as unfinished, unfinished.open("x", encoding="utf-8") as file:
        yield file


def text_paths(prefix: Path, suffixes: tuple[str, ...], overwrite: bool) -> list[Path]:
    """Return the paths of text files with a prefix; raise if they exist or cannot be written."""
    paths = [prefix.with_name(prefix.name + suffix) for suffix in suffixes]
    existing = [path for path in paths if path.exists()]
    if existing and not overwrite:
        raise InputError(f"{existing[0]}: exists already; choose another --out or add --overwrite")
    if not prefix.parent.is_dir():
        raise InputError(f"{prefix}: the folder {prefix.parent} does not exist; create it first")
    return paths


def table_cell(value: Any) -> str:
    """Return the text of one cell of a tab-separated table: on one line, quoted if it contains a quote."""
    if not isinstance(value, str):
        return f"{value:.9g}"
    text = " ".join(value.split())
    return '"' + text.replace('"', '""') + '"' if '"' in text else text
