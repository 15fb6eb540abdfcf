"""Where a result comes from: what the run took, and the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from streampca.results.kind import kind_of
from streampca.results.wording import (
    CERTIFIED_BY,
    feature_noun,
    kernel_text,
    missing_share,
    number,
    parameters_of,
    percent,
)
from streampca.sweep.memory import show_bytes

# Names of data that were in memory, not in a file.
IN_MEMORY = ("array", "dask array", "DataArray", "")
# Flags that are not spelled like the parameter, as in streampca.cli.options.
FLAGS = {"n_components": "-k", "memory_limit": "--memory"}
# Parameters of version 0.7.
RENAMED = {
    "seed": "random_state", "fit_inverse": "fit_inverse_transform", "memory": "memory_limit", "own_noise": "",
}  # fmt: skip
# Defaults of parameters that are not options of a kind.
DEFAULTS = {"missing_chunks": "error", "external_files": "error", "outlier_rounds": 5, "all_chromosomes": False}


def command_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the command that repeats a run, quoted for a shell, without defaults; None for data in memory."""
    source = attributes["source"]
    if source in IN_MEMORY or source.startswith("DataArray "):
        return None
    kind = kind_of(attributes["kind"])
    # A leading minus would make it an option.
    words = ["streampca", kind.name, f"./{source}" if source.startswith("-") else source]
    fields = kind.options.fields
    for old, value in parameters_of(attributes).items():
        name = RENAMED.get(old, old)
        default = fields[name].default if name in fields else DEFAULTS.get(name)
        if name and value not in (default, "auto") or name == "n_components" and value is not None:
            words += _flag(name, value, name not in fields or fields[name].annotation is bool)
    return shlex.join(words)


def _flag(name: str, value: Any, switch: bool) -> list[str]:
    """Return the words of one option; a switch has no value."""
    flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        if switch:
            return [flag if value else f"--no-{flag[2:]}"]
        value = str(value).lower()
    if value is None:
        value = "none"
    return [flag, ",".join(map(str, value)) if isinstance(value, list) else f"{value}"]


def facts_of(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of a run, with their names."""
    a = attributes
    method = a.get("certificate_method")
    share = f"{a['n_missing']:,} values, {percent(missing_share(a))}" if a["n_missing"] else "none"
    created = str(a.get("created", "")).replace("T", " ").replace("+00:00", " UTC")
    versions = ", ".join(f"{name} {version}" for name, version in json.loads(a["versions"]).items())
    facts = [
        ("Source", a["source"]),
        ("Size", f"{a['n_samples']:,} samples \u00d7 {a['n_features']:,} {feature_noun(a)}"),
        ("Missing", share),
        ("Solver", a.get("solver", a.get("method"))),
        ("Estimates" if method == "none" else "Certificates", CERTIFIED_BY.get(method or "")),
        ("Kernel", _shown(a, "kernel", lambda name: ", ".join(filter(None, [name, kernel_text(a)])))),
        ("Landmarks", _shown(a, "n_landmarks", "{:,}".format)),
        ("Noise variance", _shown(a, "noise_variance", lambda value: number(value, 4))),
        ("Log-likelihood", _shown(a, "total_log_likelihood", "{:,.2f}".format)),
        ("Iterations", _shown(a, "n_iterations", "{:,}".format)),
        ("Sweeps", f"{a['n_sweeps']:,} over all the data"),
        ("Read", show_bytes(a["bytes_read"])),
        ("Time", _duration(a["seconds"])),
        ("Peak memory", show_bytes(a["peak_memory_bytes"])),
        ("Precision", a["tile_dtype"]),
        ("Created", created),
        ("Versions", versions),
        ("Fingerprint", a.get("source_fingerprint")),
    ]
    return [(name, str(text)) for name, text in facts if text not in (None, "")]


def _shown(attributes: Mapping[str, Any], name: str, text: Callable[[Any], str]) -> str | None:
    """Format an attribute; None if it is missing."""
    return text(attributes[name]) if name in attributes else None


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
