"""Zarr arrays, format 2 and 3: by object, by path, or by URL.

Whole chunks of local stores are read and decoded straight into buffers that are used again. This takes less than half
the time of the general path of zarr-python, whose fresh buffers cost more than the decoding; all other stores and
codecs go through zarr-python itself.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import zarr
from numcodecs.blosc import Blosc
from numcodecs.gzip import GZip
from numcodecs.zstd import Zstd
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec
from zarr.storage import LocalStore

from streampca.buffers import scratch
from streampca.errors import InputError
from streampca.sources.base import Array, Axis, Source, digest, plain_axes
from streampca.sources.remote import RemoteStore, is_url, open_remote

ZarrArray: TypeAlias = Any  # zarr.Array, whose types differ from release to release

_DECODERS: dict[type, Any] = {ZstdCodec: Zstd, BloscCodec: Blosc, GzipCodec: GZip}
MARKERS = ("zarr.json", ".zarray", ".zgroup")


class ZarrSource(Source):
    """One Zarr array; the first dimension is samples, the others are features."""

    def __init__(self, array: ZarrArray, axes: tuple[Axis, Axis] | None = None):
        if array.ndim < 2:
            raise InputError(f"{array.store_path}: a Zarr array of {array.ndim} dimension(s); give samples x features")
        self._array = array
        self.name = str(array.store_path).removeprefix("file://")
        names = _names(array)
        self.samples, self.features = axes or plain_axes(
            array.shape, names if all(names) and len(set(names)) == array.ndim else None
        )
        self.dtype = np.dtype(array.dtype)
        self._grid = getattr(array, "shards", None) or array.chunks
        n_sample_dims = len(self.samples.dims)
        self.chunks = (
            min(_stacked_chunk(self._grid[:n_sample_dims], array.shape[:n_sample_dims]), self.shape[0]),
            min(_stacked_chunk(self._grid[n_sample_dims:], array.shape[n_sample_dims:]), self.shape[1]),
        )
        self._decoder = _direct_decoder(array)
        self.overhead = 1.0 if self._decoder else 3.0
        self.costly = True

    def read_block(self, outer_samples: slice, outer_features: slice) -> tuple[Array, int]:
        """Read whole chunks directly where that can be done, else through zarr-python."""
        n_sample_dims = len(self.samples.dims)
        region = [slice(0, size) for size in self._array.shape]
        region[0], region[n_sample_dims] = outer_samples, outer_features
        if self._decoder is None:
            self._refuse_empty_files(region)
            try:
                block = np.asarray(self._array[tuple(region)])
            except InputError:
                raise
            except (OSError, RuntimeError, ValueError) as error:
                raise InputError(f"{self.name}: cannot be read ({error}); check the store against a copy") from error
            return block, block.nbytes
        return self._read_chunks(region)

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

    def _chunk_path(self, index: tuple[int, ...]) -> Path:
        return Path(str(self._array.store.root), self._array.store_path.path, self._key(index))

    def _key(self, index: tuple[int, ...]) -> str:
        return str(self._array.metadata.encode_chunk_key(index))

    def _decode(self, index: tuple[int, ...], out: Array) -> int:
        """Decode one chunk into out; returns the bytes read from disk."""
        path = self._chunk_path(index)
        try:
            with path.open("rb") as file:
                n_bytes = path.stat().st_size
                packed = scratch("packed", (n_bytes,), np.uint8)
                n_read = file.readinto(packed.data)
        except FileNotFoundError:
            fill = self._array.fill_value
            out[...] = 0 if fill is None else fill
            return 0
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); check the disk and the permissions"
            ) from error
        if n_read != n_bytes or not _fills(self._decoder, packed, out):
            raise _damaged(path)
        return n_bytes

    def _refuse_empty_files(self, region: list[slice]) -> None:
        """Refuse what a full disk leaves behind, which zarr-python takes for chunks never written."""
        if isinstance(self._array.store, LocalStore):
            for index in itertools.product(*self._spans(region)):
                path = self._chunk_path(index)
                if path.exists() and path.stat().st_size == 0:
                    raise _damaged(path)

    def _spans(self, region: list[slice]) -> list[range]:
        """Chunks along each dimension that a region touches."""
        return [range(s.start // c, -(-s.stop // c)) for s, c in zip(region, self._grid, strict=True)]

    def fingerprint(self) -> str:
        """Hash of the metadata, and of size and time (of remote stores size and entity tag) of some chunks."""
        store = self._array.store
        stamps: list[Any] = []
        n_chunks = [-(-s // c) for s, c in zip(self._array.shape, self._grid, strict=True)]
        some = np.unique(np.linspace(0, math.prod(n_chunks) - 1, 64).astype(int))
        places = {int(flat): tuple(int(i) for i in np.unravel_index(flat, n_chunks)) for flat in some}
        if isinstance(store, LocalStore):
            for flat, index in places.items():
                path = self._chunk_path(index)
                if path.exists():
                    stamps.append((flat, path.stat().st_size, path.stat().st_mtime_ns))
        elif isinstance(store, RemoteStore):
            keys = (f"{self._array.store_path.path}/{self._key(index)}" for index in places.values())
            stamps = store.stamps(key.lstrip("/") for key in keys)
        return digest(
            "zarr", self._array.shape, self.dtype.str, self._grid, str(self._array.metadata.to_dict()), stamps
        )


def _stacked_chunk(chunks: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    """Rows (or columns) of a stacked axis that one step of its outermost dimension's chunks covers."""
    return chunks[0] * math.prod(sizes[1:])


def _direct_decoder(array: ZarrArray) -> Any:
    """Return what turns a chunk's file into its values, or None where only zarr-python can."""
    if not isinstance(array.store, LocalStore) or np.dtype(array.dtype).byteorder == ">":
        return None
    metadata = array.metadata
    if metadata.zarr_format == 2:
        plain = not metadata.filters and metadata.order == "C"
        known = metadata.compressor is None or isinstance(metadata.compressor, tuple(_DECODERS.values()))
        return (metadata.compressor or _Stored()) if plain and known else None
    codecs = list(metadata.codecs)
    if not codecs or not isinstance(codecs[0], BytesCodec) or len(codecs) > 2:
        return None
    if np.dtype(array.dtype).itemsize > 1 and getattr(codecs[0].endian, "value", None) != "little":
        return None
    if len(codecs) == 1:
        return _Stored()
    decoder = _DECODERS.get(type(codecs[1]))
    return decoder() if decoder else None


class _Stored:
    """Chunks that are not compressed."""

    def decode(self, packed: Array, out: Array) -> None:
        if packed.nbytes != out.nbytes:
            raise ValueError("not the size of a chunk")
        out.reshape(-1).view(np.uint8)[:] = packed


def _fills(decoder: Any, packed: Array, out: Array) -> bool:
    """Decode into out and tell whether all of out was written.

    Blosc believes the sizes that its header claims, so these are compared with those of the file and of out. The others
    may decode to fewer bytes and leave the end as it was: the last byte is stamped before, with one value and, if it
    seems untouched (the data may end like that), with another.
    """
    if isinstance(decoder, Blosc):
        sizes = packed[4:16].view("<u4") if packed.size >= 16 else (0, 0, 0)
        if sizes[0] != out.nbytes or sizes[2] != packed.size:
            return False
    last = out.reshape(-1).view(np.uint8)[-1:]
    for stamp in (0x5A, 0xA5):
        last[:] = stamp
        try:
            decoder.decode(packed, out)
        except (RuntimeError, ValueError, TypeError, OSError, EOFError):
            return False
        if last[0] != stamp:
            return True
    return False


def _damaged(path: Path) -> InputError:
    return InputError(f"{path}: this chunk is damaged or cut short; restore it from a copy or write the store again")


def is_zarr(path: Path) -> bool:
    """Tell whether a path lies at or below a Zarr array or group."""
    return any((place / marker).exists() for place in (path, *path.parents) for marker in MARKERS)


def open_zarr(location: str, variable: str | None) -> ZarrArray:
    """Open one array of a local path or a URL; `store.zarr/path` and `variable` both name one inside a group."""
    try:
        node = zarr.open(open_remote(location) if is_url(location) else location, mode="r")
        if isinstance(node, zarr.Array):
            return node
        if variable is not None and variable in node:
            node = node[variable]
            return node if isinstance(node, zarr.Array) else open_zarr(f"{location}/{variable}", None)
        arrays = {name: array for name, array in node.members(max_depth=None) if isinstance(array, zarr.Array)}
    except InputError:
        raise
    except (FileNotFoundError, KeyError) as error:
        raise InputError(f"{location}: there is no Zarr array or group here; check the path") from error
    except (ImportError, AttributeError, ValueError, OSError, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{location}: cannot be opened as Zarr ({first}); write the store again") from error
    if variable is not None:
        raise InputError(f"{location}: has no array {variable!r}; it has {_listing(arrays)}")
    matrices = {name: array for name, array in arrays.items() if array.ndim >= 2}
    if len(matrices) == 1:
        return next(iter(matrices.values()))
    raise InputError(f"{location}: is a group; name one of its arrays, as {location}/NAME: it has {_listing(arrays)}")


def has_labels(array: ZarrArray, dims: tuple[str, ...]) -> bool:
    """Tell whether the group of an array holds labels of its dimensions; without them, xarray need not be loaded."""
    parent, _, name = array.path.rpartition("/")
    try:
        if name:
            group = zarr.open_group(array.store, path=parent or None, mode="r")
        elif isinstance(array.store, LocalStore):
            group = zarr.open_group(Path(str(array.store.root)).parent, mode="r")
        else:
            return False
        return any({*_names(other)} & {*dims} for _, other in group.arrays() if other.ndim == 1)
    except (OSError, KeyError, ValueError, TypeError):
        return False


def _names(array: ZarrArray) -> tuple[str, ...]:
    """Return the names of an array's dimensions, if it has any."""
    return tuple(getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ())


def _listing(arrays: dict[str, ZarrArray]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in itertools.islice(arrays.items(), 8)) or "no arrays"
