"""The software that numbers depend on: sent with each sweep, and checked by every worker that takes part in it."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from functools import cache

import numpy as np
import scipy.linalg  # noqa: F401, SciPy has its own BLAS, which threadpoolctl lists only once it is loaded
from threadpoolctl import threadpool_info

from streampca import __version__
from streampca.errors import InputError


@cache
def environment() -> dict[str, str]:
    """Return the versions of Python, streampca, NumPy and the BLAS of this process."""
    blas = {f"{info['internal_api']} {info['version']}" for info in threadpool_info() if info["user_api"] == "blas"}
    return {
        "streampca": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "BLAS": ", ".join(sorted(blas)),
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
