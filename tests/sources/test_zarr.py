"""Zarr of both formats, any codec and chunks; damage is found and named."""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from helpers import one_line
from source_helpers import CODECS, DTYPES, D, N, assert_reads_as, everything, numbers, zarr_array
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

from streampca import InputError, open_source

# ---------------------------------------------------------------- Zarr


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("chunks", [(5, 4), (N, D), (100, 100), (1, D), (N, 1)])
def test_zarr_v3_reads_as_the_array_written(tmp_path, codec, chunks):
    x = numbers()
    options = dict(CODECS[codec])
    if "shards" in options:
        options["shards"] = tuple(2 * c for c in chunks)
    array = zarr_array(tmp_path / "x.zarr", x, chunks=chunks, **options)
    assert_reads_as(open_source(array), x)
    assert_reads_as(open_source(tmp_path / "x.zarr"), x)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressor", ["none", "zstd", "blosc", "zlib"])
def test_zarr_v2_reads_as_the_array_written(tmp_path, compressor, order):
    import numcodecs

    codecs = {"none": None, "zstd": numcodecs.Zstd(), "blosc": numcodecs.Blosc(), "zlib": numcodecs.Zlib()}
    x = numbers("int16")
    array = zarr_array(tmp_path / "x.zarr", x, zarr_format=2, compressors=codecs[compressor], order=order)
    assert_reads_as(open_source(array), x)
    assert_reads_as(open_source(str(tmp_path / "x.zarr")), x)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zarr_of_any_type_reads_as_written(tmp_path, dtype, zarr_format):
    x = numbers(dtype)
    zarr_array(tmp_path / "x.zarr", x, zarr_format=zarr_format)
    source = open_source(tmp_path / "x.zarr")
    np.testing.assert_array_equal(everything(source), x)
    assert source.dtype.newbyteorder("=") == x.dtype.newbyteorder("=")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("fill", [0, 7])
def test_chunks_never_written_read_as_the_fill_value_if_asked_for(tmp_path, zarr_format, fill):
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(8, 6), chunks=(3, 2), dtype="f4", fill_value=fill, zarr_format=zarr_format
    )
    array[:3] = 5
    expected = np.full((8, 6), fill, "f4")
    expected[:3] = 5
    assert_reads_as(open_source(tmp_path / "x.zarr", missing_chunks="fill"), expected)


def test_chunks_never_written_read_as_zero_if_asked_for_without_a_fill_value(tmp_path):
    store = tmp_path / "x.zarr"
    array = zarr.create(store=store, shape=(8, 6), chunks=(3, 2), dtype="f4", fill_value=None, zarr_format=2)
    array[:3] = 5
    expected = np.zeros((8, 6), "f4")
    expected[:3] = 5
    assert_reads_as(open_source(tmp_path / "x.zarr", missing_chunks="fill"), expected)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_path_goes_on_inside_a_group(tmp_path, zarr_format):
    x, other = numbers(), numbers("int8", (4, 3))
    store = tmp_path / "store.zarr"
    zarr.open_group(store, mode="w", zarr_format=zarr_format)
    zarr_array(store, x, name="a/b", zarr_format=zarr_format)
    zarr_array(store, other, name="c", chunks=(2, 2), zarr_format=zarr_format)
    assert_reads_as(open_source(store / "a" / "b"), x)
    assert_reads_as(open_source(f"{store}/c"), other)
    assert_reads_as(open_source(store, variable="a/b"), x)
    assert_reads_as(open_source(zarr.open_group(store, mode="r")["a/b"]), x)


def test_a_group_with_one_matrix_needs_no_name(tmp_path):
    x = numbers()
    zarr.open_group(tmp_path / "g.zarr", mode="w")
    zarr_array(tmp_path / "g.zarr", x, name="x")
    zarr_array(tmp_path / "g.zarr", np.arange(N), name="time", chunks=(N,))
    assert_reads_as(open_source(tmp_path / "g.zarr"), x)


def test_a_file_url_reads_as_the_path(tmp_path):
    x = numbers()
    zarr.open_group(tmp_path / "g.zarr", mode="w")
    zarr_array(tmp_path / "g.zarr", x, name="a/b")
    assert_reads_as(open_source(f"file://{tmp_path}/g.zarr/a/b"), x)
    assert_reads_as(open_source(f"file://{tmp_path}/g.zarr"), x)


def test_a_memory_url_is_read_through_fsspec(tmp_path):
    x = numbers()
    zarr_array(tmp_path / "x.zarr", x)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/x.zarr", "/streampca-test/x.zarr", recursive=True)
    assert_reads_as(open_source("memory://streampca-test/x.zarr"), x)


def test_a_zarr_array_in_memory_is_read():
    x = numbers()
    assert_reads_as(open_source(zarr_array(zarr.storage.MemoryStore(), x)), x)


def test_zarr_of_three_dimensions_is_stacked_into_features(tmp_path):
    x = numbers(shape=(9, 4, 5))
    zarr_array(tmp_path / "x.zarr", x, chunks=(4, 3, 2))
    assert_reads_as(open_source(tmp_path / "x.zarr"), x.reshape(9, 20))


# ---------------------------------------------------------------- damage


def damaged(tmp_path, how, zarr_format=3, **options):
    """A store whose chunk at (5.., 4..) is damaged; returns its path and the chunk's."""
    zarr_array(tmp_path / "x.zarr", numbers(), zarr_format=zarr_format, **options)
    chunk = tmp_path / "x.zarr" / ("1.1" if zarr_format == 2 else "c/1/1")
    how(chunk)
    return tmp_path / "x.zarr", chunk


def cut_to(length):
    def cut(chunk: Path):
        packed = chunk.read_bytes()
        chunk.write_bytes(packed[: length if length >= 0 else len(packed) + length])

    return cut


def garbage(chunk: Path):
    chunk.write_bytes(bytes(range(40)))


HARM = {
    "empty": cut_to(0),
    "one byte": cut_to(1),
    "ten bytes": cut_to(10),
    "one byte less": cut_to(-1),
    "garbage": garbage,
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("codec", ["none", "zstd", "blosc", "gzip", "crc32c", "sharded"])
def test_a_damaged_chunk_is_named(tmp_path, codec, harm):
    options = dict(CODECS[codec])
    if "shards" in options:
        options = {"shards": (5, 4), "chunks": (5, 2), "compressors": ZstdCodec()}
    path, chunk = damaged(tmp_path, HARM[harm], **options)
    with pytest.raises(InputError) as error:
        everything(open_source(path))
    direct = codec != "sharded" or harm == "empty"
    assert str(chunk if direct else path) in one_line(error)


@pytest.mark.parametrize("codec", ["zstd", "blosc", "gzip", "none"])
@pytest.mark.parametrize("values", [1, 10, 19, 21, 40])
def test_a_chunk_that_decodes_to_another_length_is_named(tmp_path, codec, values):
    def rewrite(chunk: Path):
        donor = zarr_array(tmp_path / "donor.zarr", np.ones((1, values), "f4"), chunks=(1, values), **CODECS[codec])
        assert donor.nchunks == 1
        chunk.write_bytes((tmp_path / "donor.zarr" / "c/0/0").read_bytes())

    path, chunk = damaged(tmp_path, rewrite, **CODECS[codec])
    with pytest.raises(InputError) as error:
        everything(open_source(path))
    assert str(chunk) in one_line(error)


@pytest.mark.parametrize("tail", [0x5A, 0xA5])
def test_a_chunk_that_ends_like_the_stamp_is_not_taken_for_damage(tmp_path, tail):
    x = numbers("uint8")
    x[:, :] = tail
    zarr_array(tmp_path / "x.zarr", x)
    assert_reads_as(open_source(tmp_path / "x.zarr"), x)


@pytest.mark.parametrize(("codecs", "noted"), [((BytesCodec(), Crc32cCodec()), False), ((BytesCodec(),), True)])
def test_shards_without_a_checksum_are_noted(tmp_path, codecs, noted):
    x = numbers(shape=(8, 5))
    sharding = ShardingCodec(chunk_shape=(2, 5), codecs=(BytesCodec(),), index_codecs=codecs)
    array = zarr.create(
        store=tmp_path / "x.zarr", shape=x.shape, chunks=(4, 5), dtype=x.dtype, codecs=[sharding], zarr_format=3,
        config={"write_empty_chunks": True},
    )  # fmt: skip
    array[...] = x
    source = open_source(tmp_path / "x.zarr")
    assert_reads_as(source, x)
    assert [note for note in source.notes if "no checksum" in note] == list(source.notes)
    assert bool(source.notes) is noted
