"""Compile loops with numba. They release the global interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Compile a function when it is first called.

    Machine code is kept next to the module or in the user's cache folder. Where neither can be written, each process
    compiles it again.
    """
    try:
        made: Any = njit(nogil=True, cache=True)(loop)
    except RuntimeError:
        made = njit(nogil=True)(loop)
    return cast("Loop", made)
