"""Zarr stores that must be whole: a chunk that is not there is an error, not a chunk of fill values.

Zarr takes a chunk that is not there for one that was never written, and its values for the fill value. A copy that was
cut off looks the same, and would give wrong components without a word.
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

# What becomes of chunks that are not there.
MISSING_CHUNKS = ("error", "fill")
# How arrays of ours are written: each chunk, also those of nothing but the fill value, and with a checksum.
WRITTEN: dict[str, Any] = {"config": {"write_empty_chunks": True}, "compressors": (ZstdCodec(), Crc32cCodec())}
_METADATA = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}


class WholeStore(WrapperStore[Any]):
    """A store whose chunks must be there, and not be empty files, as a full disk leaves them."""

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


def whole(store: Any, missing_chunks: str) -> Any:
    """Return a store in which chunks that are not there are what `missing_chunks` says: "error" or "fill"."""
    if missing_chunks not in MISSING_CHUNKS:
        raise InputError(f"missing_chunks={missing_chunks!r} is not known; use one of 'error', 'fill'")
    return store if missing_chunks == "fill" or isinstance(store, WholeStore) else WholeStore(store)


def plain(store: Any) -> Any:
    """Return the store itself."""
    return store._store if isinstance(store, WholeStore) else store


def written_whole(arrays: Iterable[Any]) -> bool:
    """Tell whether arrays were written as ours are: with all their chunks, and checksums.

    Results of versions before 0.7, and those that xarray wrote, lack chunks of nothing but the fill value.
    """
    return all(isinstance(getattr(array.metadata, "codecs", [None])[-1], Crc32cCodec) for array in arrays)


def refuse_damage(folder: Path) -> None:
    """Refuse a local store of ours of which a part is missing or has not its checksum; nothing is decoded."""
    root = json.loads((folder / "zarr.json").read_text())
    for name in (root.get("consolidated_metadata") or {}).get("metadata", {}):
        if not (folder / name / "zarr.json").is_file():
            raise InputError(f"{folder / name / 'zarr.json'} is not there")
    for name, array in zarr.open_group(LocalStore(folder, read_only=True), mode="r", use_consolidated=False).arrays():
        checked = written_whole([array])
        counts = [-(-s // c) for s, c in zip(array.shape, array.chunks, strict=True)]
        for index in itertools.product(*map(range, counts)):
            path = folder / name / array.metadata.encode_chunk_key(index)
            try:
                packed = path.read_bytes()
            except FileNotFoundError:
                raise InputError(f"{path} is not there") from None
            except OSError as error:
                raise unreadable(path, error) from error
            if not packed or (checked and not has_checksum(packed)):
                raise InputError(f"{path} is damaged")


def has_checksum(packed: Any) -> bool:
    """Tell whether bytes end with the CRC-32C of all before it."""
    content = np.frombuffer(packed, np.uint8)
    return content.size > 4 and google_crc32c.value(content[:-4]) == int.from_bytes(content[-4:].tobytes(), "little")


def missing_chunk(where: object) -> InputError:
    """Say that a chunk is not there, and what may be the reason."""
    return InputError(
        f"{where}: this chunk is not there; copy the store again, or, if chunks of nothing but the fill value were "
        "left out as it was written (Zarr's default), say so by --missing-chunks fill (missing_chunks='fill')"
    )


def damaged_chunk(where: object) -> InputError:
    """Say that a chunk cannot be decoded."""
    return InputError(f"{where}: this chunk is damaged or cut short; restore it from a copy or write the store again")


def unreadable(where: object, error: OSError) -> InputError:
    """Say that the system does not let a chunk be read."""
    return InputError(f"{where}: cannot be read ({error.strerror}); check the disk and the permissions")
