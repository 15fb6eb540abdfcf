"""Complete Zarr stores: a missing chunk is an error, not a chunk of fill values.

Zarr reads a missing chunk as the fill value, as if it had never been written. A truncated copy looks the same, and
would silently give wrong components.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore, WrapperStore

from streampca.errors import InputError, redacted

MISSING_CHUNKS = ("error", "fill")
# Options of arrays that we write: every chunk, even those of fill values only, with a checksum.
WRITTEN: dict[str, Any] = {"config": {"write_empty_chunks": True}, "compressors": (ZstdCodec(), Crc32cCodec())}
_METADATA = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}


class CompleteStore(WrapperStore[Any]):
    """A store whose chunks must exist, and must not be empty files, which a full disk leaves."""

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        """Return an object, or a part of it."""
        try:
            found = await self._store.get(key, *arguments, **options)
        except (IsADirectoryError, PermissionError) as error:
            raise unreadable(f"{self}/{key}", error) from error
        if key.rpartition("/")[2] in _METADATA:
            return found
        if found is None:
            raise missing_chunk(f"{self}/{key}")
        if len(found) == 0:
            raise damaged_chunk(f"{self}/{key}")
        return found

    def __str__(self) -> str:
        return redacted(str(self._store).removeprefix("file://"))


def complete(store: Any, missing_chunks: str) -> Any:
    """Return a store whose missing chunks are an "error", or "fill" values."""
    if missing_chunks not in MISSING_CHUNKS:
        raise InputError(f"missing_chunks must be 'error' or 'fill', got {missing_chunks!r}")
    return store if missing_chunks == "fill" or isinstance(store, CompleteStore) else CompleteStore(store)


def inner_store(store: Any) -> Any:
    """Return the store inside of a CompleteStore."""
    return store._store if isinstance(store, CompleteStore) else store


def written_completely(arrays: Iterable[Any]) -> bool:
    """Whether arrays were written with all chunks and checksums.

    Results of versions before 0.7, and of xarray, lack chunks of fill values only.
    """
    return all(isinstance(getattr(array.metadata, "codecs", [None])[-1], Crc32cCodec) for array in arrays)


def check_damage(folder: Path) -> None:
    """Raise if a part of a local result is missing or has a wrong checksum; nothing is decoded."""
    root = json.loads((folder / "zarr.json").read_text())
    for name in (root.get("consolidated_metadata") or {}).get("metadata", {}):
        if not (folder / name / "zarr.json").is_file():
            raise InputError(f"{folder / name / 'zarr.json'} is missing")
    for name, array in zarr.open_group(LocalStore(folder, read_only=True), mode="r", use_consolidated=False).arrays():
        checked = written_completely([array])
        counts = [-(-s // c) for s, c in zip(array.shape, array.chunks, strict=True)]
        for index in itertools.product(*map(range, counts)):
            path = folder / name / array.metadata.encode_chunk_key(index)
            try:
                packed = path.read_bytes()
            except FileNotFoundError:
                raise InputError(f"{path} is missing") from None
            except OSError as error:
                raise unreadable(path, error) from error
            if not packed or (checked and not has_checksum(packed)):
                raise InputError(f"{path} is damaged")


def has_checksum(packed: Any) -> bool:
    """Whether bytes end with their CRC-32C."""
    content = np.frombuffer(packed, np.uint8)
    return content.size > 4 and google_crc32c.value(content[:-4]) == int.from_bytes(content[-4:].tobytes(), "little")


def missing_chunk(where: object) -> InputError:
    """Return the error for a missing chunk."""
    return InputError(
        f"{where}: this chunk is missing; copy the store again, or use missing_chunks='fill' "
        "if it was written without chunks of fill values (Zarr's default)"
    )


def damaged_chunk(where: object) -> InputError:
    """Return the error for a chunk that cannot be decoded."""
    return InputError(f"{where}: this chunk is damaged or truncated; restore it from a copy or write the store again")


def unreadable(where: object, error: OSError) -> InputError:
    """Return the error for a chunk that cannot be read."""
    return InputError(f"{where}: cannot be read ({error.strerror}); check the disk and the permissions")
