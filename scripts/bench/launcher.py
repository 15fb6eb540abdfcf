"""Run a command; note its seconds, CPU seconds, peak megabytes and exit code: `launcher.py NOTED LIMIT COMMAND...`.

A process of its own, started without site packages, since a child's peak begins at the size of its parent: here a few
MB. The peak is the larger of two: that of the largest process, by the kernel, and the sum over all processes of the
command, seen every fifth of a second (pages that two of them share count twice).
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

EVERY = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(session: int) -> int:
    """Return the resident size of all processes of a session."""
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            # One that ends meanwhile takes its files with it.
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    total += int(fields[21]) * PAGE
    return total


def kill(session: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


class Watch(threading.Thread):
    """Looks at the command now and then: its size, and whether its time is up."""

    def __init__(self, session: int, limit: float):
        super().__init__(daemon=True)
        self.session, self.limit, self.peak, self.stopped = session, limit, 0, False
        self.over = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(EVERY):
            self.peak = max(self.peak, resident_bytes(self.session))
            if time.monotonic() - began > self.limit:
                self.stopped = True
                kill(self.session)
                return


def main(noted: str, limit: str, *command: str) -> None:
    started = time.perf_counter()
    process = os.posix_spawnp(command[0], command, os.environ, setsid=True)
    watch = Watch(process, float(limit))
    watch.start()
    try:
        _, status, usage = os.wait4(process, 0)
        seconds = time.perf_counter() - started
    finally:
        # The command has a session of its own, and would go on when this process is interrupted.
        kill(process)
    watch.over.set()
    watch.join()
    found = {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "megabytes": max(watch.peak, usage.ru_maxrss * 1024) / 1e6,
        "code": os.waitstatus_to_exitcode(status),
        "stopped": watch.stopped,
    }
    Path(noted).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
