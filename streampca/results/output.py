"""The output of a run as a directory: what it holds already, whether it may be replaced, and its name when complete.

Only files are read and renamed here: commands that need no more start without NumPy and Zarr.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streampca.errors import InputError
from streampca.files import writing_text


def put_in_place(store: Path, path: Path, overwrite: bool, old: Path) -> None:
    """Give a complete store its name; the store that had it moves to `old` for a moment."""
    if path.exists():
        check_output(path, overwrite)
        if old.exists():
            shutil.rmtree(old)
        path.rename(old)
    os.rename(store, path)
    if old.exists():
        shutil.rmtree(old)


def add_attributes(store: Path, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a store that is written."""
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"] |= attributes
    with writing_text(store / "zarr.json") as file:
        file.write(json.dumps(root))


def check_output(path: Path, overwrite: bool) -> None:
    """Raise if an output exists, is a link, was not written by streampca, or if its directory does not exist."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the directory {path.parent} does not exist; create it first")
    if path.is_symlink():
        raise InputError(f"{path}: is a link, which would be replaced; use the path that it points to")
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; choose another name or add --overwrite")
    if kind_at(path) is None:
        raise InputError(f"{path}: was not written by streampca and is not overwritten; choose another name")


def kind_at(path: Path) -> str | None:
    """Return the kind of the store at a path, such as "scores"; None if streampca did not write it."""
    attributes = attributes_in(path) or {}
    return str(attributes["kind"]) if {"kind", "format_version"} <= set(attributes) else None


def attributes_in(path: Path) -> dict[str, Any] | None:
    """Return the attributes of the store at a path; None if there is none."""
    try:
        found = json.loads((path / "zarr.json").read_text())["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
