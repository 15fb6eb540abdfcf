"""Local Zarr stores whose files are all inside them: a link out of a store is an error.

A store of someone else, as unpacked from an archive, may contain links to private files of its reader, whose content
would be in the result.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

from streampca.errors import InputError


class ContainedStore(LocalStore):
    """A local store that does not follow links out of its directory."""

    def check(self, path: str) -> None:
        """Raise if a file is not in the directory of the store."""
        root = str(self.root)
        if _is_inside(root, os.path.dirname(path)) and not os.path.islink(path):
            return
        if not os.path.realpath(path).startswith(os.path.realpath(root) + os.sep):
            raise InputError(
                f"{path}: is a link out of the store; copy the store with its files (cp -rL), or use "
                "external_files='read' if you trust it"
            )

    async def get(self, key: str, *arguments: Any, **options: Any) -> Any:
        """Return a file, or a part of it; None if it does not exist."""
        self.check(f"{self.root}/{key}")
        return await super().get(key, *arguments, **options)

    def get_sync(self, key: str, **options: Any) -> Any:
        """Return a file, or a part of it, at once."""
        self.check(f"{self.root}/{key}")
        return super().get_sync(key, **options)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        """Return parts of files."""
        ranges = list(key_ranges)
        for key, _ in ranges:
            self.check(f"{self.root}/{key}")
        return await super().get_partial_values(prototype, ranges)


def local_store(location: str, external_files: str) -> LocalStore:
    """Return the store in a directory, whose links to files elsewhere are an "error", or are "read"."""
    return (LocalStore if external_files == "read" else ContainedStore)(Path(location), read_only=True)


@lru_cache(1 << 16)
def _is_inside(root: str, folder: str) -> bool:
    """Whether a directory is the store or in it: one answer for all chunks in the directory."""
    return f"{os.path.realpath(folder)}{os.sep}".startswith(f"{os.path.realpath(root)}{os.sep}")
