"""Memory that is used again: fresh pages cost more than what is written to them."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_local = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a buffer of this thread, the same memory at each call with this name.

    What it held before is lost; it is valid until the next call with the same name on the same thread.
    """
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    buffers: dict[str, NDArray[np.uint8]] = _local.__dict__
    if name not in buffers or buffers[name].size < n_bytes:
        buffers.pop(name, None)
        buffers[name] = np.empty(n_bytes, np.uint8)
    buffer: Array = buffers[name][:n_bytes].view(dtype)
    return buffer.reshape(shape)
