"""Zarr stores, by path, URL or object: arrays, labelled arrays of xarray, and genotypes of VCF Zarr."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streampca.errors import InputError
from streampca.sources.base import Source
from streampca.sources.registry import OpenOptions, register

GROUP_MARKERS = ("zarr.json", ".zgroup")
MARKERS = (*GROUP_MARKERS, ".zarray")


def is_zarr(path: Path) -> bool:
    """Whether a path lies at or below a Zarr array or group."""
    return any((place / marker).exists() for place in (path, *path.parents) for marker in MARKERS)


def _store(data: Any) -> Any:
    """Return Zarr objects, URLs, folders, and paths inside of stores; None for anything else."""
    if type(data).__module__.startswith("zarr."):
        return data
    if not isinstance(data, (str, Path)):
        return None
    path = Path(data)
    inside = "://" in str(data) or path.is_dir() or not path.exists() and is_zarr(path)
    return str(data) if inside else None


@register(recognise=_store, suffixes=(".vcz",), genotypes=True)
def open_zarr(data: Any, options: OpenOptions) -> Source:
    """Open an array of a store, or its genotypes."""
    if isinstance(data, str) and "://" not in data and not is_zarr(Path(data)):
        images = f"for a folder of images: streampca convert {data} {Path(data).name or 'images'}.zarr"
        raise InputError(f"{data}: is a folder but not a Zarr store; check the path, or {images}")
    # zarr is slow to import, and other formats do not need it.
    from streampca.sources.zarr_stores import open_node

    return open_node(data, options)
