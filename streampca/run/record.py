"""The record of a run in its store: its options and data, by which a later run recognises its own output.

`check_paths` finds errors that need no more than these, before the libraries of a fit are loaded.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streampca import __version__
from streampca.errors import redacted
from streampca.files import absent, is_url
from streampca.results.output import attributes_in, check_output
from streampca.run.config.blocks import Config, differences
from streampca.run.work_directory import folder_of


def recorded_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as run.json and results hold them: without secrets, and of the engine what numbers depend on.

    Lines for the shell and for the scheduler may contain passwords.
    """
    engine = {key: value for key, value in options.get("engine", {}).items() if key in ("kind", "memory_limit")}
    return redacted({**options, "engine": engine})


def run_in(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the record of the run that made a store; nothing if there is none."""
    try:
        record = json.loads((attributes or {})["run"])
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("config"), dict) else {}


def run_differences(record: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Return what differs between a recorded run and this one, in words."""
    different = differences(record["config"], asked["config"])
    if record.get("streampca") != asked["streampca"]:
        different.append(f"streampca was {record.get('streampca')}, is {asked['streampca']}")
    if not different and record.get("fingerprint") != asked["fingerprint"]:
        different = ["the data have changed"]
    return different


def check_paths(config: Config, only_resume: bool = False) -> None:
    """Raise if the data do not exist, or if the output exists and was made with other options.

    The driver checks both, and more, once it has opened the data.
    """
    data, output = config.data.path, Path(config.output.path)
    if config.data.shape is None and not _may_exist(data):
        raise absent(data)
    unknown = is_url(config.output.path) or not output.name or only_resume or config.output.overwrite
    if not unknown and output.exists() and not folder_of(output).exists():
        record = run_in(attributes_in(output))
        asked = {"config": recorded_options(config.as_dict()), "streampca": __version__}
        if not record or run_differences(record, asked | {"fingerprint": record.get("fingerprint")}):
            check_output(output, overwrite=False)


def _may_exist(data: str) -> bool:
    """Whether data may be at a path: a file, a store, a URL, a pattern, a prefix, or an array inside a store."""
    path = Path(data)
    inside = any(parent.suffix for parent in path.parents)
    known = is_url(data) or glob.has_magic(data) or inside or path.exists()
    return known or any(path.parent.glob(f"{glob.escape(path.name)}.*"))
