""".npy files."""

from __future__ import annotations

from pathlib import Path

from numpy.lib.format import open_memmap

from streampca.errors import InputError, opening
from streampca.sources.arrays import ArraySource
from streampca.sources.base import Source
from streampca.sources.registry import OpenOptions, register


@register(suffixes=(".npy",))
def open_npy(path: Path, options: OpenOptions) -> Source:
    """Open a .npy file without reading it."""
    if options.variable or options.sample_dims:
        given = f"variable={options.variable!r}" if options.variable else "sample_dims"
        raise InputError(f"{path}: is one array without names, with samples along its first axis; remove {given}")
    with opening(str(path), "opened as .npy", "write an array of numbers with numpy.save"):
        array = open_memmap(path, mode="r")
    return ArraySource(array, path=path)
