"""The software that numbers depend on: sent with each sweep, and checked by every worker that takes part in it."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from streampca import __version__
from streampca.errors import InputError


@cache
def environment() -> dict[str, str]:
    """Return the versions of Python, streampca, NumPy with its BLAS, and SciPy."""
    # As built, not as loaded: libraries that a process happens to have loaded do not matter.
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    return {
        "streampca": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "BLAS": f"{blas['name']} {blas['version']}",
        "scipy": version("scipy"),
    }


def check_environment(expected: Mapping[str, str]) -> None:
    """Raise `InputError` if this process has other versions than the driver: it would compute other numbers."""
    own = environment()
    different = [
        f"{name} {own[name]} (the driver has {value})" for name, value in expected.items() if own[name] != value
    ]
    if different:
        raise InputError(
            f"a worker on host {socket.gethostname()} has {', '.join(different)}; install the same versions on all "
            "workers and start them again"
        )
