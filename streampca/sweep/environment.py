"""Software and rounding that results depend on: sent with each sweep, and checked by every worker."""

from __future__ import annotations

import hashlib
import platform
import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from streampca import __version__
from streampca._typing import Array
from streampca.errors import InputError


@cache
def environment() -> dict[str, str]:
    """Return the versions of Python, streampca, NumPy with its BLAS, and SciPy, and how this processor rounds."""
    # As built, not as loaded: other libraries that a process has loaded do not matter.
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    return {
        "streampca": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "BLAS": f"{blas['name']} {blas['version']}",
        "scipy": version("scipy"),
        **_rounding(),
    }


def _rounding() -> dict[str, str]:
    """Return a hash of small products and functions, and the BLAS kernel, which depends on the processor.

    Kernels of different names may round alike.
    """
    libraries = ThreadpoolController().select(user_api="blas")
    content = hashlib.blake2b(digest_size=8)
    with libraries.limit(limits=1):
        for dtype in (np.float32, np.float64):
            x: Array = np.sin(np.arange(600 * 48)).reshape(600, 48).astype(dtype)
            thin = np.ascontiguousarray(x[:48, :7])
            for value in (x.T @ x, x @ thin, x.T @ (x @ thin), np.exp(x), np.log(2 + x)):
                content.update(value.tobytes())
    kernels = {str(library.get("architecture", "")) for library in libraries.info()}
    return {"rounding": content.hexdigest(), "kernel": " and ".join(sorted(kernels))}


def check_environment(expected: Mapping[str, str]) -> None:
    """Raise `InputError` if this process has other versions than the driver: it would compute other numbers."""
    own = environment()
    different = [
        f"{name} {own[name]} (the driver has {value})"
        for name, value in expected.items()
        if own[name] != value and name not in ("rounding", "kernel")
    ]
    if different:
        raise InputError(
            f"a worker on host {socket.gethostname()} has {', '.join(different)}; install the same versions on all "
            "workers and start them again"
        )
    if own["rounding"] != expected["rounding"]:
        raise InputError(
            f"a worker on host {socket.gethostname()} rounds differently from the driver (its BLAS kernel is "
            f"{own['kernel']}, the driver's {expected['kernel']}), so that the same run would not give the same bits; "
            "use hosts of one kind, or set OPENBLAS_CORETYPE=Haswell for the driver and all workers"
        )
