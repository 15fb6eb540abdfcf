"""Programs in a process of their own: libraries in C may crash, or loop for ever, on damaged files."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from typing import Self


class Child(AbstractContextManager["Child"]):
    """A Python program that runs in another process until it is done, or the context ends.

    Parameters
    ----------
    program : path of the file. It runs as a script, so that it need not import this package.
    arguments : its command line.
    """

    def __init__(self, program: str, *arguments: str):
        # Standard input ends when this process does, however it ends.
        alive, self._alive = os.pipe()
        self._process = subprocess.Popen(
            # -P: modules are not searched for in the folder of the program.
            [sys.executable, "-P", program, *arguments],
            stdin=alive, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(alive)

    def wait(self) -> tuple[int, str, list[str]]:
        """Return the exit code (minus the signal, if one ended it), the output and the lines of the errors."""
        output, errors = (text.decode(errors="replace") for text in self._process.communicate())
        return self._process.returncode, output, errors.strip().splitlines() or [""]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()
        os.close(self._alive)
