"""PLINK 2 files: .pgen (compressed genotypes), .pvar or .bim (variants), .psam or .fam (samples); through pgenlib."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numcodecs import zstd

from streampca._typing import Array
from streampca.errors import InputError, reading
from streampca.sources.base import file_stamp
from streampca.sources.formats.plink1 import (
    check_no_variable,
    open_binary,
    read_bim,
    read_fam,
    sample_labels,
    variant_labels,
)
from streampca.sources.genotypes import CHUNK, GenotypeSource, packed_loops, packed_width
from streampca.sources.registry import OpenOptions, register
from streampca.sources.scratch import scratch

MOST_COLUMNS = 10_000  # of one line
# Third byte of files whose header contains the numbers of variants and samples, four bytes each.
COUNTED_MODES = (0x02, 0x03, 0x04, 0x10, 0x11)


@register(suffixes=(".pgen",), genotypes=True)
class PgenSource(GenotypeSource):
    """Hard calls of a .pgen file. A1, which is counted, is ALT; at multiallelic sites all ALT alleles count as one."""

    def __init__(self, path: Path, options: OpenOptions | None = None):
        check_no_variable(path, options)
        variants, samples = _table_of(path, ".pvar", ".pvar.zst", ".bim"), _table_of(path, ".psam", ".fam")
        self._path, self._files = path, (path, variants, samples)
        super().__init__(
            str(path),
            read_psam(samples) if samples.suffix == ".psam" else read_fam(samples),
            read_bim(variants) if variants.suffix == ".bim" else read_pvar(variants),
        )
        n_alleles = 2 + np.strings.count(self.label("allele_1"), ",")
        self._offsets = np.concatenate([[0], np.cumsum(n_alleles)]).astype(np.uintp)
        self._readers = threading.local()
        self._check_counts()
        self._opened = self.stamp()

    def _check_counts(self) -> None:
        # The header first: pgenlib allocates memory for the numbers in it.
        counts = _header_counts(self._path)
        if counts in (None, self.shape):
            reader = self._open()
            counts = (reader.get_raw_sample_ct(), reader.get_variant_ct())
            reader.close()
        if counts != self.shape:
            _, variants, samples = self._files
            raise InputError(
                f"{self._path}: has {counts[0]} samples and {counts[1]} variants, but {samples.name} has "
                f"{self.shape[0]} and {variants.name} {self.shape[1]}; the files are not from the same set"
            )

    def _open(self, **counts: Any) -> Any:
        open_binary(self._path).close()
        try:
            return _pgenlib().PgenReader(str(self._path).encode(), **counts)
        except (RuntimeError, MemoryError) as error:
            raise _unreadable(self._path, error) from error

    def _reader(self) -> Any:
        """Return the reader of this thread; readers are not thread-safe."""
        if not hasattr(self._readers, "pgen"):
            n, m = self._n_stored, len(self._offsets) - 1
            self._readers.pgen = self._open(raw_sample_ct=n, variant_ct=m, allele_idx_offsets=self._offsets)
        return self._readers.pgen

    @property
    def overhead(self) -> float:  # type: ignore[override]
        """Bytes of the calls of one chunk, one each, and of the reader's index of variants."""
        calls, index = self.chunks[1] * self._n_stored, 16 * len(self._offsets)
        return super().overhead + (calls + index) / (math.prod(self.chunks) * self.item_bytes)

    def read_stored(self, start: int, stop: int) -> tuple[Array, int]:
        """Read a range of variants, one chunk at a time."""
        reader = self._reader()
        out = scratch("packed", (stop - start, packed_width(self._n_stored)), np.uint8)
        for first in range(start, stop, CHUNK):
            last = min(first + CHUNK, stop)
            calls = scratch("calls", (last - first, self._n_stored), np.int8)
            try:
                reader.read_range(first, last, calls, allele_idx=0)
            except RuntimeError as error:
                raise _unreadable(self._path, error) from error
            # Copies of REF become copies of ALT; a missing call, -9, becomes 11, whose last two bits mean missing.
            np.subtract(2, calls, out=calls)
            packed_loops(self.small).pack(calls, out[first - start : last - start])
        return out, out.nbytes

    def stamp(self) -> tuple[object, ...]:
        """Return sizes and times of the three files."""
        return ("plink2", *map(file_stamp, self._files))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_readers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._readers = threading.local()


def _pgenlib() -> Any:
    try:
        # Optional: the extra pgen.
        import pgenlib
    except ImportError as error:
        raise InputError("reading .pgen needs pgenlib: pip install 'streampca[pgen]'") from error
    return pgenlib


def _header_counts(path: Path) -> tuple[int, int] | None:
    """Return the numbers of samples and variants in the header; None for modes without them."""
    with open_binary(path) as file:
        head = file.read(11)
    if len(head) < 11 or head[2] not in COUNTED_MODES:
        return None
    return int.from_bytes(head[7:], "little"), int.from_bytes(head[3:7], "little")


def _unreadable(path: Path, error: Exception) -> InputError:
    text = error.args[0] if error.args else ""
    reason = (text.decode(errors="replace") if isinstance(text, bytes) else str(text)).strip().rstrip(".")
    return InputError(f"{path}: cannot be read ({reason}); restore it from a copy or write it again")


def _table_of(path: Path, *suffixes: str) -> Path:
    """Return the first existing table of a .pgen file."""
    for suffix in suffixes:
        if path.with_suffix(suffix).exists():
            return path.with_suffix(suffix)
    raise InputError(f"{path}: has no {' or '.join(suffixes)}; put it next to the file")


def read_psam(path: Path) -> dict[str, Array]:
    """Read the samples' labels; a missing FID is 0, as in PLINK."""
    table = _read_columns(path, ("#FID", "#IID"), ("IID",), ("FID",))
    return sample_labels(path, table.get("FID", ["0"] * len(table["IID"])), table["IID"])


def read_pvar(path: Path) -> dict[str, Array]:
    """Read the variants' labels."""
    names = ("CHROM", "POS", "ID", "ALT", "REF")
    table = _read_columns(path, ("#CHROM",), names)
    return variant_labels(path, *(table[name] for name in names))


def _read_columns(
    path: Path, first: tuple[str, ...], needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, list[str]]:
    """Read columns of a table by name; its header starts with one of `first`, after lines that start with ##."""
    lines = _lines(path)
    number, header = next(lines, (0, []))
    names = [field.lstrip("#") for field in header]
    if number and (header[0] not in first or not set(needed) <= set(names)):
        raise InputError(
            f"{path}: line {number} is not a header with the columns {' '.join(needed)}; "
            "write it again with plink2 --make-pgen"
        )
    wanted = [names.index(name) for name in (*needed, *optional) if name in names]
    columns: dict[str, list[str]] = {names[place]: [] for place in wanted}
    for number, fields in lines:
        if len(fields) != len(names):
            raise InputError(f"{path}: line {number} has {len(fields)} columns, the header has {len(names)}")
        for values, place in zip(columns.values(), wanted, strict=True):
            values.append(fields[place])
    if not columns or not columns[needed[0]]:
        raise InputError(f"{path}: is empty; expected one line per sample or variant")
    return columns


def _opened_text(path: Path) -> IO[str]:
    """Open a text file, which may be compressed by zstd."""
    if path.suffix != ".zst":
        return path.open()
    try:
        return io.StringIO(bytes(zstd.decompress(path.read_bytes())).decode())
    except RuntimeError as error:
        raise InputError(f"{path}: cannot be decompressed ({error}); restore it from a copy") from error


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of the lines that are neither blank nor start with ##."""
    with reading(path, "check the file"), _opened_text(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.split(maxsplit=MOST_COLUMNS)
            if len(fields) > MOST_COLUMNS:
                raise InputError(f"{path}: line {number} has more than {MOST_COLUMNS} columns; fix the line")
            if fields and not line.startswith("##"):
                yield number, fields
