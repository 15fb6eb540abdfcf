"""What the benchmarks share: commands run with so many threads and measured from outside, and 1 - MEV."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 2
HERE = Path(__file__).parent


def say(text: str) -> None:
    print(text, flush=True)


def environment() -> dict[str, str]:
    """Return the environment in which every tool has as many threads."""
    numbers = {f"{v}_NUM_THREADS": str(THREADS) for v in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    return os.environ | numbers | {"DASK_NUM_WORKERS": str(THREADS)}


def run(
    command: str | list[str], log: Path, limit: float = float("inf"), may_fail: bool = False, folder: Path = Path()
) -> dict[str, Any]:
    """Run a command; returns seconds, CPU seconds and peak megabytes of all its processes, or how it failed.

    What it prints goes to the log. After `limit` seconds it is stopped. `may_fail`: also measure one that fails.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    noted = log.with_suffix(".measured").resolve()
    launch = [sys.executable, "-I", "-S", str(HERE / "launcher.py"), str(noted), str(limit), "sh", "-c", f"exec {text}"]
    with log.open("w") as output:
        subprocess.run(launch, env=environment(), stdout=output, stderr=subprocess.STDOUT, check=True, cwd=folder)
    found = json.loads(noted.read_text())
    noted.unlink()
    row = {**{name: found[name] for name in ("seconds", "cpu", "megabytes")}, "command": text}
    if found["stopped"]:
        return {"failed": f"stopped after {limit:g} s", **row}
    if found["code"] != 0 and not may_fail:
        return {"failed": (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1], "command": text}
    return row


def missed(vectors: np.ndarray, true: np.ndarray) -> float:
    """1 - MEV: mean over the true vectors (columns) of the squared length that the found subspace misses."""
    basis = np.linalg.qr(vectors.astype("f8"))[0]
    return float(max(0.0, 1 - (np.linalg.norm(basis.T @ true, axis=0) ** 2).mean()))
