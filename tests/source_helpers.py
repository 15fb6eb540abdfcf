"""What the tests of sources share: numbers in every type, and stores to hold them."""

from __future__ import annotations

import numpy as np
import xarray
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

N, D = 23, 17
DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "uint8", "bool", ">f4", ">i2")


def numbers(dtype="float32", shape=(N, D)):
    values = np.random.default_rng(1).integers(0, 120, shape)
    return (values % 2 == 0) if dtype == "bool" else values.astype(dtype)


def everything(source):
    return source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))[0]


def assert_reads_as(source, expected):
    """Check shape, type and values: of the whole, one row, one column, an inner range."""
    n, d = expected.shape
    assert source.shape == (n, d)
    assert source.dtype == expected.dtype
    assert source.n_bytes == expected.nbytes
    for rows in (slice(0, n), slice(0, 1), slice(n - 1, n), slice(n // 3, n // 2 + 1)):
        for columns in (slice(0, d), slice(0, 1), slice(d - 1, d), slice(d // 3, d // 2 + 1)):
            block, n_bytes = source.read(rows, columns)
            np.testing.assert_array_equal(block, expected[rows, columns])
            assert n_bytes >= 0


def zarr_array(path, x, *, zarr_format=3, chunks=(5, 4), name=None, **options):
    array = zarr.create_array(
        path, name=name, shape=x.shape, dtype=x.dtype, chunks=chunks, zarr_format=zarr_format,
        config={"write_empty_chunks": True}, **options,
    )  # fmt: skip
    array[...] = x
    return array


CODECS = {
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=3)},
    "zstd with checksum": {"compressors": ZstdCodec(level=1, checksum=True)},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="shuffle")},
    "gzip": {"compressors": GzipCodec(level=2)},
    "crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "crc32c alone": {"compressors": Crc32cCodec()},
    "sharded": {"shards": (10, 8), "compressors": ZstdCodec()},
    "big-endian": {"serializer": BytesCodec(endian="big")},
}


def labelled():
    return xarray.DataArray(
        numbers(shape=(6, 4, 5)),
        dims=("time", "lat", "lon"),
        coords={"time": np.arange(6) * 10, "lat": [1.0, 2.0, 3.0, 4.0], "season": ("time", np.arange(6) % 4)},
        name="t2m",
        attrs={"units": "K"},
    )
