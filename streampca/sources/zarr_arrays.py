"""Zarr arrays, format 2 and 3.

Whole chunks of local stores are decoded directly into scratch buffers. This takes less than half the time of
zarr-python, whose new buffers cost more than the decoding. Other stores and codecs are read through zarr-python.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import zarr
from numcodecs.blosc import Blosc
from numcodecs.gzip import GZip
from numcodecs.zstd import Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, ZstdCodec
from zarr.storage import LocalStore

from streampca._typing import Array
from streampca.errors import InputError, opening, redacted
from streampca.files import is_url
from streampca.sources.base import Axis, Source, changed, digest, plain_axes
from streampca.sources.completeness import (
    CompleteStore,
    complete,
    damaged_chunk,
    has_checksum,
    inner_store,
    missing_chunk,
    unreadable,
)
from streampca.sources.contained import ContainedStore, local_store
from streampca.sources.formats.zarr import MARKERS
from streampca.sources.remote import RemoteStore, open_remote
from streampca.sources.scratch import scratch
from streampca.validation import check_declared_size

MOST_BLOCKS = 1_000_000  # of a Dask graph
MOST_CHUNKS = 10_000_000  # whose files are checked one by one
LABEL_BYTES = 32  # of one label as text
UNSAFE = frozenset({"pickle", "numcodecs.pickle"})  # codecs that execute code from the file
GONE = -1  # stamp of a missing chunk

ZarrArray: TypeAlias = Any  # zarr.Array and zarr.Group, whose types differ between releases
ZarrGroup: TypeAlias = Any

_COMPRESSIONS: dict[type, Any] = {ZstdCodec: Zstd, BloscCodec: Blosc, GzipCodec: GZip}


class ZarrSource(Source):
    """One Zarr array; the first dimension is samples, the others are features.

    Each chunk must exist, unless the store was opened with missing_chunks="fill". All chunks of a local store are
    checked before the first sweep, and must not change after that; some chunks of a remote one before and after each
    sweep.
    """

    def __init__(self, array: ZarrArray, axes: tuple[Axis, Axis] | None = None):
        self.name = place_of(array)
        check_array(array)
        if array.ndim < 2:
            raise InputError(f"{self.name}: a Zarr array of {array.ndim} dimension(s); give samples x features")
        self._array, self._store = array, inner_store(array.store)
        self._stamps: Array | None = None
        names = dimension_names(array)
        self.samples, self.features = axes or plain_axes(
            array.shape, names if names and all(names) and len(set(names)) == array.ndim else None
        )
        self.dtype = np.dtype(array.dtype)
        self._grid = array.shards or array.chunks
        rows = self._grid[0] * math.prod(self.samples.sizes[1:])
        columns = self._grid[len(self.samples.dims)] * math.prod(self.features.sizes[1:])
        self.chunks = (min(rows, self.shape[0]), min(columns, self.shape[1]))
        self._decoder: Any = _direct_decoder(array)
        self.notes = _notes(array)
        # A chunk that extends beyond the array is decoded completely.
        beyond = max(1.0, math.prod(self._grid) / max(1, math.prod(self.chunks)))
        self.overhead = beyond * (1.0 if self._decoder else 4.0 if array.shards else 3.0)
        self.costly = True

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read whole chunks directly if possible, else through zarr-python."""
        region = [slice(0, size) for size in self._array.shape]
        region[0], region[len(self.samples.dims)] = outer_samples, outer_features
        if self._decoder is not None:
            return self._read_chunks(region)
        with opening(self.name, "read", "check the store against a copy"):
            block = np.asarray(self._array[tuple(region)])
        if self._stamps is not None:
            for index in itertools.product(*self._spans(region)):
                self._check_unchanged(index, _stamp(os.stat, self._chunk_path(index)))
        return block, block.nbytes

    def _read_chunks(self, region: list[slice]) -> tuple[Array, int]:
        shape = tuple(s.stop - s.start for s in region)
        spans = self._spans(region)
        out = scratch("slab", shape, self.dtype)
        if math.prod(map(len, spans)) == 1 and shape == self._grid:
            return out, self._decode(tuple(s[0] for s in spans), out)
        whole = scratch("chunk", self._grid, self.dtype)
        n_bytes = 0
        for index in itertools.product(*spans):
            n_bytes += self._decode(index, whole)
            source, target = [], []
            for i, c, s in zip(index, self._grid, region, strict=True):
                start, stop = max(i * c, s.start), min((i + 1) * c, s.stop)
                source.append(slice(start - i * c, stop - i * c))
                target.append(slice(start - s.start, stop - s.start))
            out[tuple(target)] = whole[tuple(source)]
        return out, n_bytes

    def _chunk_path(self, index: tuple[int, ...]) -> str:
        return f"{self._store.root}/{self._array.store_path.path}/{self._key(index)}".replace("//", "/")

    def _key(self, index: tuple[int, ...]) -> str:
        return str(self._array.metadata.encode_chunk_key(index))

    def _decode(self, index: tuple[int, ...], out: Array) -> int:
        """Decode one chunk into out; returns the bytes read from disk."""
        path = self._chunk_path(index)
        if isinstance(self._store, ContainedStore):
            self._store.check(path)
        try:
            with open(path, "rb", buffering=0) as file:
                n_bytes = os.fstat(file.fileno()).st_size
                packed = scratch("packed", (n_bytes,), np.uint8)
                n_read = file.readinto(packed.data)
                stamp = _stamp(os.fstat, file.fileno())
        except FileNotFoundError:
            self._check_unchanged(index, GONE)
            if self._must_be_complete:
                raise missing_chunk(path) from None
            fill = self._array.fill_value
            out[...] = 0 if fill is None else fill
            return 0
        except OSError as error:
            raise unreadable(path, error) from error
        self._check_unchanged(index, stamp)
        if n_read != n_bytes or not self._decoder.fills(packed, out):
            raise damaged_chunk(path)
        return n_bytes

    @property
    def _must_be_complete(self) -> bool:
        return isinstance(self._array.store, CompleteStore)

    @property
    def _n_chunks(self) -> list[int]:
        """Chunks along each dimension."""
        return [-(-s // c) for s, c in zip(self._array.shape, self._grid, strict=True)]

    def _check_unchanged(self, index: tuple[int, ...], stamp: int) -> None:
        """Raise if a chunk has changed since the first sweep."""
        if self._stamps is not None and self._stamps[np.ravel_multi_index(index, self._n_chunks)] != stamp:
            raise changed(self._chunk_path(index))

    def _spans(self, region: list[slice]) -> list[range]:
        """Return the chunks along each dimension that a region intersects."""
        return [range(s.start // c, -(-s.stop // c)) for s, c in zip(region, self._grid, strict=True)]

    def _chunk_stamps(self) -> Array:
        """Return the stamp of each chunk of a local store, GONE for missing ones."""
        if math.prod(self._n_chunks) > MOST_CHUNKS:
            raise InputError(f"{self.name}: has more than {MOST_CHUNKS} chunks; check it, or use larger chunks")
        indices = itertools.product(*map(range, self._n_chunks))
        stamps = (_stamp(os.stat, self._chunk_path(index)) for index in indices)
        return np.fromiter(stamps, np.int64, math.prod(self._n_chunks))

    def watch(self) -> None:
        """Check all chunks of a local store once, and some of a remote one each time; raise if one is missing."""
        if not isinstance(self._store, LocalStore):
            super().watch()
        elif self._stamps is None:
            stamps = self._chunk_stamps()
            if self._must_be_complete and (stamps == GONE).any():
                first = np.unravel_index(int((stamps == GONE).argmax()), self._n_chunks)
                raise missing_chunk(self._chunk_path(tuple(int(i) for i in first)))
            self._stamps = stamps

    def stamp(self) -> object:
        """Return sizes and times of all chunks of a local store, sizes and entity tags of some of a remote one."""
        if isinstance(self._store, LocalStore):
            return self._chunk_stamps().tobytes()
        if isinstance(self._store, RemoteStore):
            some = np.unique(np.linspace(0, math.prod(self._n_chunks) - 1, 64).astype(int))
            places = [tuple(int(i) for i in np.unravel_index(flat, self._n_chunks)) for flat in some]
            keys = (f"{self._array.store_path.path}/{self._key(index)}" for index in places)
            return self._store.stamps(key.lstrip("/") for key in keys)
        return None

    def fingerprint(self) -> str:
        """Return a hash of the metadata and of the stamp before the first sweep."""
        metadata = str(self._array.metadata.to_dict())
        stamp = self.stamp() if self._stamps is None else self._stamps.tobytes()
        return digest("zarr", self._array.shape, self.dtype.str, self._grid, metadata, stamp)


def _notes(array: ZarrArray) -> tuple[str, ...]:
    """Return a note on shards whose index, which says where their chunks are, has no checksum."""
    shards = [codec for codec in getattr(array.metadata, "codecs", ()) if isinstance(codec, ShardingCodec)]
    if all(any(isinstance(codec, Crc32cCodec) for codec in shard.index_codecs) for shard in shards):
        return ()
    return ("the shards of this store have no checksum: a damaged index can give wrong values that are not noticed",)


def _stamp(stat: Callable[[Any], os.stat_result], file: str | int) -> int:
    """Return a number that changes when a file is written, or GONE."""
    try:
        status = stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return GONE
    return (status.st_mtime_ns ^ status.st_size * 0x9E3779B97F4A7C15) & (1 << 63) - 1


class _Decoder(NamedTuple):
    """How the file of a chunk is decoded: little-endian bytes, then a compression and a checksum at most."""

    compression: Any
    checksum: bool = False

    def fills(self, packed: Array, out: Array) -> bool:
        """Decode into out; returns whether all of out was written.

        Blosc trusts the sizes in its header, so they are compared with the file and with out. Other codecs may decode
        to fewer bytes and leave the end untouched: the last byte is set before to one value and, if it still has that
        value (the data may end with it), to another one.
        """
        flat = out.reshape(-1).view(np.uint8)
        if self.checksum:
            if not has_checksum(packed):
                return False
            packed = packed[:-4]
        if self.compression is None:
            if packed.size == flat.size:
                flat[:] = packed
            return packed.size == flat.size
        if isinstance(self.compression, Blosc):
            sizes = packed[4:16].view("<u4") if packed.size >= 16 else (0, 0, 0)
            if sizes[0] != flat.size or sizes[2] != packed.size:
                return False
        for mark in (0x5A, 0xA5):
            flat[-1:] = mark
            try:
                self.compression.decode(packed, out)
            except (RuntimeError, ValueError, TypeError, OSError, EOFError):
                return False
            if flat[-1] != mark:
                return True
        return False


def _direct_decoder(array: ZarrArray) -> _Decoder | None:
    """Return the decoder of a chunk's file, or None if zarr-python has to read it."""
    dtype, metadata = np.dtype(array.dtype), array.metadata
    if not isinstance(inner_store(array.store), LocalStore) or dtype.byteorder == ">":
        return None
    if metadata.zarr_format == 2:
        known = metadata.compressor is None or isinstance(metadata.compressor, tuple(_COMPRESSIONS.values()))
        return _Decoder(metadata.compressor) if known and not metadata.filters and metadata.order == "C" else None
    return _decoder_of(dtype, metadata.codecs)


def _decoder_of(dtype: np.dtype[Any], codecs: Sequence[Any]) -> _Decoder | None:
    """Return the decoder of codecs of format 3, if they are known."""
    first, *others = codecs
    endian = getattr(getattr(first, "endian", None), "value", None)
    if not isinstance(first, BytesCodec) or (dtype.itemsize > 1 and endian != "little"):
        return None
    kinds = [type(codec) for codec in others]
    checksum = kinds[-1:] == [Crc32cCodec]
    compressions = kinds[:-1] if checksum else kinds
    if len(compressions) > 1 or not set(compressions) <= set(_COMPRESSIONS):
        return None
    return _Decoder(_COMPRESSIONS[compressions[0]]() if compressions else None, checksum)


def place_of(array: ZarrArray) -> str:
    """Return the path or URL of an array or a group."""
    return redacted(str(array.store_path).removeprefix("file://"))


def check_array(array: ZarrArray) -> None:
    """Raise if metadata are invalid, or if a codec would execute code from the file."""
    where = place_of(array)
    with opening(where):
        np.dtype(array.dtype).itemsize, dict(array.attrs)
        sizes = (*array.shape, *array.chunks, *(array.shards or ()))
        codecs = _codec_names(array.metadata)
    if codecs & UNSAFE:
        raise InputError(f"{where}: contains pickled Python objects, which are not safe to read; write the store again")
    if min(array.shape, default=0) < 0 or min(array.chunks, default=1) < 1 or max(sizes, default=0) >= 1 << 63:
        raise InputError(f"{where}: has the shape {array.shape} in chunks of {array.chunks}; write the store again")


def _codec_names(metadata: Any) -> set[str]:
    """Return the names of the codecs of an array."""
    if metadata.zarr_format == 2:
        return {str(codec.codec_id) for codec in (*(metadata.filters or ()), metadata.compressor) if codec is not None}
    return {str(getattr(codec, "codec_name", "")) for codec in metadata.codecs}


def check_size(array: ZarrArray) -> None:
    """Raise if an array that is read completely, such as labels, declares more than the available memory."""
    check_array(array)
    itemsize = max(np.dtype(array.dtype).itemsize, LABEL_BYTES)
    chunk = array.shards or array.chunks
    check_declared_size(place_of(array), itemsize * max(math.prod(array.shape), math.prod(chunk)))


def check_block_count(array: ZarrArray) -> None:
    """Raise if an array has too many chunks for a Dask graph."""
    blocks = math.prod(-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True))
    if blocks > MOST_BLOCKS:
        raise InputError(f"{place_of(array)}: has {blocks} chunks, more than {MOST_BLOCKS}; use larger chunks")


def open_store(location: str, missing_chunks: str, external_files: str = "error") -> Any:
    """Return the store at a path or URL."""
    location = location.removeprefix("file://")
    store = open_remote(location) if is_url(location) else local_store(location, external_files)
    return complete(store, missing_chunks)


def arrays_in(group: Any, deep: bool = True) -> Iterator[ZarrArray]:
    """Yield the arrays of a group, and of the groups in it if `deep`.

    Arrays of a local store are opened one by one: zarr-python opens all at once, and if one fails, the others log
    errors of their own.
    """
    store = inner_store(group.store)
    if not isinstance(store, LocalStore):
        members = group.members(max_depth=None if deep else 0)
        yield from (node for _, node in members if isinstance(node, zarr.Array))
        return
    for place in sorted(Path(str(store.root), group.path).iterdir()):
        if any((place / marker).exists() for marker in MARKERS):
            node = group[place.name]
            if isinstance(node, zarr.Array):
                yield node
            elif deep:
                yield from arrays_in(node)


def dimension_names(array: ZarrArray) -> tuple[str, ...]:
    """Return the names of the dimensions, "" for one without a name; () if none has."""
    attributes = array.metadata.attributes
    names = getattr(array.metadata, "dimension_names", None) or (
        attributes.get("_ARRAY_DIMENSIONS") if isinstance(attributes, dict) else None
    )
    if not isinstance(names, (list, tuple)) or len(names) != array.ndim:
        return ()
    return tuple(name if isinstance(name, str) else "" for name in names)
