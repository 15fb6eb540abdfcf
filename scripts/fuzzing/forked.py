"""Programs that a run starts in processes of their own, forked: starting Python takes longer than most inputs."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from streampca.run import vcf
from streampca.sources import child_process, hdf5_check

# Of processor time; an input that takes longer hangs.
SECONDS = 10
PROGRAMS = {Path(module.__file__).name: module._main for module in (hdf5_check, vcf)}


class HangsError(Exception):
    """A program would not end by itself."""


class Forked(AbstractContextManager[Any]):
    """Stands for `child_process.Child`."""

    def __init__(self, program: str, *arguments: str):
        self.name, self.ended = Path(program).name, False
        self.output, self.errors = os.pipe(), os.pipe()
        self.process = os.fork()
        if self.process == 0:
            self._run(arguments)
        for _, end in (self.output, self.errors):
            os.close(end)

    def _run(self, arguments: tuple[str, ...]) -> None:
        code = 1
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            nothing, end = os.pipe()
            for descriptor, number in ((nothing, 0), (self.output[1], 1), (self.errors[1], 2)):
                os.dup2(descriptor, number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            PROGRAMS[self.name](*arguments)
            sys.stdout.flush()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def wait(self) -> tuple[int, str, list[str]]:
        found = {self.output[0]: b"", self.errors[0]: b""}
        left = set(found)
        while left:
            for end in select.select(left, [], [])[0]:
                part = os.read(end, 1 << 16)
                found[end] += part
                left -= set() if part else {end}
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        self.ended = True
        output, errors = (text.decode(errors="replace") for text in found.values())
        if code > 0 and "[E::" not in errors:
            raise RuntimeError(f"{self.name}: {errors.strip().splitlines()[-1:]}")
        if code == -signal.SIGXCPU and self.name == "vcf.py":
            raise HangsError(self.name)
        return code, output, errors.strip().splitlines() or [""]

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        for end, _ in (self.output, self.errors):
            os.close(end)


def install() -> None:
    """Let all programs be forked from now on."""
    child_process.Child = Forked  # type: ignore[misc, assignment]
