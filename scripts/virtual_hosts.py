"""Four hosts as network namespaces of this machine: a switch between them, and a Dask cluster on them."""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD, NODES = "head", ("node1", "node2", "node3")
WAIT = 240.0  # seconds, far more than anything takes
# Dask notices sooner what is gone.
SHORT = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "6s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "12s",
}
# ioctl of TUN/TAP: attach to a device; a device of Ethernet frames without a header.
TUNSETIFF, TAP_WITHOUT_HEADER = 0x400454CA, 0x0002 | 0x1000


# ---------------------------------------------------------------- the network


@dataclass
class Port:
    """The network interface of a host: a TAP device whose frames this process forwards."""

    file: int
    down: bool = False
    loss: float = 0.0
    delay: float = 0.0


class Switch(threading.Thread):
    """Forwards frames between hosts, and loses or delays them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ports: dict[str, Port] = {}
        self._homes: dict[bytes, Port] = {}
        self._random = random.Random(0)

    def plug(self, host: str, number: int) -> None:
        """Make a host: its namespace, and its interface at this switch."""
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", f"tap{number}".encode(), TAP_WITHOUT_HEADER))
        for command in (
            f"ip netns add {host}",
            f"ip link set tap{number} netns {host}",
            f"ip -n {host} link set lo up",
            f"ip -n {host} addr add {address_of(host)}/24 dev tap{number}",
            f"ip -n {host} link set tap{number} up mtu 9000",
        ):
            subprocess.run(command.split(), check=True)
        self.ports[host] = Port(file)

    def run(self) -> None:
        """Forward frames for ever."""
        waiting: list[tuple[float, int, Port, bytes]] = []
        numbers = itertools.count()
        while True:
            timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([port.file for port in self.ports.values()], [], [], timeout)
            for port in self.ports.values():
                if port.file in ready:
                    with suppress(BlockingIOError):
                        frame = os.read(port.file, 65536)
                        for target in self._targets(port, frame):
                            when = time.monotonic() + max(port.delay, target.delay)
                            heapq.heappush(waiting, (when, next(numbers), target, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                *_, target, frame = heapq.heappop(waiting)
                with suppress(OSError):
                    os.write(target.file, frame)

    def _targets(self, port: Port, frame: bytes) -> list[Port]:
        self._homes[frame[6:12]] = port
        home = self._homes.get(frame[:6])
        targets = [home] if home else [other for other in self.ports.values() if other is not port]
        return [
            target for target in targets
            if not (port.down or target.down) and self._random.random() >= max(port.loss, target.loss)
        ]  # fmt: skip

    def repair(self) -> None:
        """Lose and delay nothing any more."""
        for port in self.ports.values():
            port.down, port.loss, port.delay = False, 0.0, 0.0


def address_of(host: str) -> str:
    """Return the address of a host."""
    return f"10.77.0.{1 + (HEAD, *NODES).index(host)}"


def start(host: str, command: list[str], log: Path, before: str = "", **environment: str) -> Any:
    """Start a program on a host, which has a host name and mounts of its own; `before` is a line of shell."""
    inside = ["unshare", "--uts", "--mount", "sh", "-c", f'hostname {host}; {before or ":"}; exec "$@"', "sh"]
    with log.open("ab") as file:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, *inside, *command],
            stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, **SHORT, **environment},
        )  # fmt: skip


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)
    return found


# ---------------------------------------------------------------- the cluster


@dataclass
class Process:
    """A program on a host, with its log."""

    running: Any
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.running.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.running.send_signal(number)

    def end(self) -> None:
        """End it, also if it is stopped."""
        self.running.kill()
        self.running.wait()


@dataclass
class Cluster:
    """A scheduler and a worker per node, on the switch."""

    folder: Path
    switch: Switch
    home: str = HEAD
    scheduler: Process | None = None
    workers: dict[str, Process] = field(default_factory=dict)
    guests: list[Process] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    count: int = 0

    @property
    def address(self) -> str:
        """Where drivers find the scheduler."""
        return f"tcp://{address_of(self.home)}:8786"

    def up(self, home: str = HEAD, **environment: str) -> None:
        """Start what does not run; a new scheduler if it is to be elsewhere or to have another environment."""
        self.switch.repair()
        for guest in self.guests:
            guest.end()
        self.guests.clear()
        same = self.home == home and self.environment == environment
        if self.scheduler is None or not self.scheduler.alive or not same:
            self.down()
            self.home, self.environment = home, environment
            options = ["--host", address_of(home), "--port", "8786", "--no-dashboard"]
            self.scheduler = self._start(home, "scheduler", options, **environment)
            self._await(self.scheduler, "Scheduler at:")
        for node in NODES:
            if node not in self.workers or not self.workers[node].alive:
                self.workers[node] = self._worker(node)
        for worker in self.workers.values():
            self._await(worker, "Registered to:")

    def down(self) -> None:
        """End all processes."""
        for process in (self.scheduler, *self.workers.values(), *self.guests):
            if process is not None:
                process.end()
        self.scheduler = None
        self.workers.clear()

    def join(self, node: str, **options: str) -> None:
        """Start one more worker, which is ended before the next fault."""
        self.guests.append(self._worker(node, **options))

    def _worker(self, node: str, preload: str = "slow.py", before: str = "", **environment: str) -> Process:
        options = [self.address, "--host", address_of(node), "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        options += ["--preload", str(self.folder / preload), "--local-directory", str(self.folder / "scratch")]
        return self._start(node, "worker", options, before, **environment)

    def _start(self, host: str, what: str, options: list[str], before: str = "", **environment: str) -> Process:
        self.count += 1
        log = self.folder / f"{self.count}-{what}-{host}.log"
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        return Process(start(host, command, log, before, **environment), log)

    def _await(self, process: Process, text: str) -> None:
        until(lambda: text in process.log.read_text() or not process.alive, f"{process.log.name}: {text}")
        if not process.alive:
            raise RuntimeError(f"{process.log.name}: {process.log.read_text()}")
