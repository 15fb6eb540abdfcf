""".npy files."""

from __future__ import annotations

from pathlib import Path

from streampca.sources.arrays import ArraySource
from streampca.sources.base import Source
from streampca.sources.registry import OpenOptions, register


@register(suffixes=(".npy",))
def open_npy(path: Path, options: OpenOptions) -> Source:  # noqa: ARG001
    """Open a .npy file without reading it."""
    return ArraySource.from_npy(path)
