"""Per-thread scratch buffers; reusing pages is faster than faulting in new ones."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca._typing import Array

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


def scratch_like(name: str, array: Array, dtype: Any) -> Array:
    """Return a buffer of this thread with the shape and the order of a matrix, in another type."""
    by_column = abs(array.strides[0]) < abs(array.strides[1])
    return scratch(name, array.shape[::-1], dtype).T if by_column else scratch(name, array.shape, dtype)
