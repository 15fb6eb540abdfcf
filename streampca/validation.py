"""What a file says of its own size, held against the memory there is, before anything is made as large as that."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil

from streampca.errors import InputError


def available_memory() -> int:
    """Bytes that this process may still take: of the machine, of its control group, of its own limit (ulimit -v)."""
    free = int(psutil.virtual_memory().available)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):
        pass
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return free if most == resource.RLIM_INFINITY else min(free, most - int(psutil.Process().memory_info().vms))


def refuse_too_large(where: str, n_bytes: int) -> None:
    """Refuse what must be in memory as a whole, labels or one chunk, and claims more than half of what there is."""
    # Asking the system takes longer than reading a small array.
    if n_bytes > 1 << 20 and n_bytes > available_memory() // 2:
        raise InputError(
            f"{where}: claims {n_bytes / 1e9:.3g} GB, more than half of the memory there is; check it against a copy"
        )
