"""Check of an HDF5 file in a process of its own, before this process opens it.

The HDF5 library trusts the metadata of a file: damaged ones may crash it or make it loop for ever. The other process
does what opening the file does, so that this shows there, and looks for data that lie in other files. It imports h5py
only, and runs while this process imports xarray.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS = 10  # of processor time; 10 million chunks take as long
MOST_READ = 1 << 20  # texts of one variable, which are read as labels


@contextmanager
def checking(path: Path, external_files: str) -> Iterator[None]:
    """Check a file while the body runs, which must not open it; raise `InputError` after the body if it is unsafe."""
    # This file is also the program of the other process, which does not need the package.
    from streampca.errors import InputError
    from streampca.sources.child_process import Child
    from streampca.validation import check_declared_size

    with Child(__file__, str(path.absolute()), external_files) as child:
        yield
        code, output, errors = child.wait()
    if code < 0:
        what = "loops for ever" if code == -signal.SIGXCPU else "crashes"
        raise InputError(f"{path}: is damaged, the HDF5 library {what} when it opens it; restore it from a copy")
    if code > 0:
        raise InputError(
            f"{path}: cannot be checked before it is opened ({errors[-1]}); check the installation of h5py"
        )
    found = json.loads(output)
    if found["problem"]:
        raise InputError(f"{path}: cannot be opened as NetCDF ({found['problem']}); restore it from a copy")
    if found["external"]:
        raise InputError(
            f"{path}: {found['external']}, which could be a private file of yours; use "
            "external_files='read' if you trust it"
        )
    for name, n_bytes in found["labels"].items():
        check_declared_size(f"{path}: {name}", n_bytes)


class _Walk:
    """What opening the root group of a file does, and the data in other files that it would read."""

    def __init__(self, path: str, external_files: str):
        # An optional package.
        import h5py

        self.h5py, self.path, self.allowed = h5py, path, external_files == "read"
        self.problem = self.external = ""
        self.labels: dict[str, int] = {}

    def run(self) -> None:
        """Open all members of the root group. Errors of one of them appear again where xarray opens the file."""
        try:
            with self.h5py.File(self.path, "r") as file:
                self._attributes(file)
                for name in file:
                    with suppress(Exception):
                        self._member(file, name)
        except Exception as error:
            self.problem = str(error).partition("\n")[0] or type(error).__name__

    def _member(self, file: Any, name: str) -> None:
        try:
            self.external = self.external or self._outside(file, name)
        except Exception as error:
            self.external = f"its {name!r} cannot be checked ({error})"
        if not self.external:
            self._attributes(file[name])
            if isinstance(file[name], self.h5py.Dataset):
                self._dataset(name, file[name])

    def _outside(self, file: Any, name: str) -> str:
        """Return where a member of the file has data in another one, in words; "" if it has none."""
        if self.allowed:
            return ""
        link = file.get(name, getlink=True)
        if not isinstance(link, (self.h5py.HardLink, self.h5py.SoftLink)):
            return f"its {name!r} is a link to {getattr(link, 'filename', 'elsewhere')!r}"
        member = file[name]
        # A link within the file may lead through another one to the outside.
        if member.file.filename != file.filename:
            return f"its {name!r} is in {member.file.filename!r}"
        if isinstance(member, self.h5py.Dataset) and member.is_virtual:
            return f"values of {name!r} are in {member.virtual_sources()[0].file_name!r}"
        if isinstance(member, self.h5py.Dataset) and member.external:
            return f"values of {name!r} are in {member.external[0][0]!r}"
        return ""

    def _attributes(self, member: Any) -> None:
        for name in member.attrs:
            with suppress(Exception):
                value = member.attrs[name]
                for item in value.ravel()[:MOST_READ] if hasattr(value, "ravel") else ():
                    for reference in item if hasattr(item, "__len__") else (item,):
                        if isinstance(reference, self.h5py.Reference):
                            member.file[reference].name  # noqa: B018

    def _dataset(self, name: str, dataset: Any) -> None:
        dataset.fillvalue, dataset.maxshape, dataset.compression, dataset.shuffle, dataset.fletcher32  # noqa: B018
        if dataset.chunks is not None:
            dataset.id.chunk_iter(lambda _: None)
        if dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
            # xarray reads these when it opens a file.
            self.labels[name] = dataset.size * dataset.dtype.itemsize
        if dataset.dtype.hasobject and dataset.size <= MOST_READ:
            dataset[()]


def _main(path: str, external_files: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    walk = _Walk(path, external_files)
    walk.run()
    json.dump({"problem": walk.problem, "external": walk.external, "labels": walk.labels}, sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
