"""Sources: whatever the format, chunks and codec, a range read is that range of the plain array."""

from __future__ import annotations

import pickle
from pathlib import Path

import dask.array
import fsspec
import numpy as np
import pytest
import xarray
import zarr
from helpers import one_line
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

from streampca import InputError, open_source

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
        path, name=name, shape=x.shape, dtype=x.dtype, chunks=chunks, zarr_format=zarr_format, **options
    )
    array[...] = x
    return array


# ---------------------------------------------------------------- arrays in memory, .npy, Dask


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_reads_as_itself(dtype):
    x = numbers(dtype)
    assert_reads_as(open_source(x), x)
    assert_reads_as(open_source(np.asfortranarray(x)), x)
    assert_reads_as(open_source(x[::-1, ::2]), x[::-1, ::2])


def test_lists_read_as_arrays():
    assert_reads_as(open_source([[1, 2, 3], [4, 5, 6]]), np.array([[1, 2, 3], [4, 5, 6]]))


def test_three_dimensions_are_stacked_into_features():
    x = numbers(shape=(9, 4, 5))
    source = open_source(x)
    assert_reads_as(source, x.reshape(9, 20))
    assert source.features.sizes == (4, 5)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_reads_as_the_array_saved(tmp_path, dtype, order):
    x = np.array(numbers(dtype), order=order)
    np.save(tmp_path / "x.npy", x)
    source = open_source(tmp_path / "x.npy")
    assert_reads_as(source, x)
    assert str(tmp_path / "x.npy") == source.name


@pytest.mark.parametrize("chunks", [(5, 4), (N, 3), (6, D), ((1, 20, 2), (10, 7))])
def test_dask_reads_as_the_array_behind_it(chunks):
    x = numbers()
    assert_reads_as(open_source(dask.array.from_array(x, chunks=chunks)), x)


# ---------------------------------------------------------------- Zarr

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
def test_chunks_never_written_read_as_the_fill_value(tmp_path, zarr_format, fill):
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(8, 6), chunks=(3, 2), dtype="f4", fill_value=fill, zarr_format=zarr_format
    )
    array[:3] = 5
    expected = np.full((8, 6), fill, "f4")
    expected[:3] = 5
    assert_reads_as(open_source(tmp_path / "x.zarr"), expected)


def test_chunks_never_written_read_as_zero_without_a_fill_value(tmp_path):
    array = zarr.create(store=tmp_path / "x.zarr", shape=(8, 6), chunks=(3, 2), dtype="f4", fill_value=None, zarr_format=2)
    array[:3] = 5
    expected = np.zeros((8, 6), "f4")
    expected[:3] = 5
    assert_reads_as(open_source(tmp_path / "x.zarr"), expected)


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


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same numbers behind every kind of source, with its chunks not dividing its shape."""
    where = tmp_path_factory.mktemp("stored")
    x = numbers(shape=(N, 5, 7))
    np.save(where / "x.npy", x)
    zarr_array(where / "direct.zarr", x, chunks=(4, 2, 3), compressors=ZstdCodec())
    zarr_array(where / "shards.zarr", x, chunks=(2, 2, 3), shards=(4, 4, 6))
    zarr_array(where / "v2.zarr", x, chunks=(4, 2, 3), zarr_format=2)
    labelled = xarray.DataArray(x, dims=("t", "lat", "lon"), name="x")
    labelled.to_netcdf(where / "x.nc", engine="h5netcdf", encoding={"x": {"chunksizes": (4, 2, 3)}})
    return x, {
        "numpy": open_source(x),
        "npy": open_source(where / "x.npy"),
        "dask": open_source(dask.array.from_array(x, chunks=(4, 2, 3))),
        "zarr v3": open_source(where / "direct.zarr"),
        "zarr shards": open_source(where / "shards.zarr"),
        "zarr v2": open_source(where / "v2.zarr"),
        "netcdf": open_source(where / "x.nc"),
        "two sample dimensions": open_source(labelled, sample_dims=("lon", "t")),
        "last dimension": open_source(where / "x.nc", sample_dims=("lon",)),
    }


PLAIN = ("numpy", "npy", "dask", "zarr v3", "zarr shards", "zarr v2", "netcdf")


@pytest.mark.parametrize("kind", [*PLAIN, "two sample dimensions", "last dimension"])
@given(ends=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 4))
def test_any_range_reads_as_that_range(stored, kind, ends):
    x, sources = stored
    flat = {
        "two sample dimensions": x.transpose(2, 0, 1).reshape(7 * N, 5),
        "last dimension": x.transpose(2, 0, 1).reshape(7, N * 5),
    }.get(kind, x.reshape(N, 35))
    a, b = sorted(int(e * flat.shape[0]) for e in ends[:2])
    c, d = sorted(int(e * flat.shape[1]) for e in ends[2:])
    block, _ = sources[kind].read(slice(a, b + 1), slice(c, d + 1))
    np.testing.assert_array_equal(block, flat[a : b + 1, c : d + 1])


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind != "dask"])
def test_a_pickled_source_reads_the_same(stored, kind):
    x, sources = stored
    packed = pickle.dumps(sources[kind])
    again = pickle.loads(packed)
    assert again.fingerprint() == sources[kind].fingerprint()
    assert again.chunks == sources[kind].chunks
    np.testing.assert_array_equal(everything(again), x.reshape(N, 35))


@pytest.mark.parametrize("kind", ["npy", "zarr v3", "zarr v2", "netcdf"])
def test_a_pickled_file_source_ships_no_data(tmp_path, kind):
    x = np.random.default_rng(0).standard_normal((400, 100))
    path = tmp_path / {"npy": "x.npy", "netcdf": "x.nc"}.get(kind, "x.zarr")
    if kind == "npy":
        np.save(path, x)
    elif kind == "netcdf":
        xarray.DataArray(x, dims=("t", "p"), name="x").to_netcdf(path, engine="h5netcdf")
    else:
        zarr_array(path, x, chunks=(50, 100), zarr_format=int(kind[-1]))
    source = open_source(path)
    everything(source)
    assert len(pickle.dumps(source)) < x.nbytes / 10


# ---------------------------------------------------------------- labels


def labelled():
    return xarray.DataArray(
        numbers(shape=(6, 4, 5)),
        dims=("time", "lat", "lon"),
        coords={"time": np.arange(6) * 10, "lat": [1.0, 2.0, 3.0, 4.0], "name": ("time", list("abcdef"))},
        name="t2m",
        attrs={"units": "K"},
    )


def test_labels_come_along():
    source = open_source(labelled())
    assert (source.samples.dims, source.features.dims) == (("time",), ("lat", "lon"))
    assert set(source.samples.coords) == {"time", "name"}
    assert set(source.features.coords) == {"lat"}


@pytest.mark.parametrize("backing", ["memory", "dask", "netcdf", "zarr"])
@pytest.mark.parametrize("dims", [("time",), ("lon",), ("time", "lon"), ("lon", "time")])
def test_named_dimensions_make_up_the_samples(tmp_path, backing, dims):
    array = labelled()
    rest = [dim for dim in array.dims if dim not in dims]
    expected = array.transpose(*dims, *rest).values.reshape(np.prod([array.sizes[dim] for dim in dims]), -1)
    given = array
    if backing == "dask":
        given = array.chunk({"time": 4, "lat": 3, "lon": 2})
    if backing == "netcdf":
        given = tmp_path / "x.nc"
        array.to_netcdf(given, engine="h5netcdf", encoding={"t2m": {"chunksizes": (2, 3, 2)}})
    if backing == "zarr":
        given = tmp_path / "x.zarr"
        array.chunk({"time": 4, "lat": 3, "lon": 2}).to_zarr(given, consolidated=False)
    source = open_source(given, sample_dims=dims)
    assert_reads_as(source, expected)
    assert source.samples.dims == dims
    assert tuple(source.features.dims) == tuple(rest)


def test_one_sample_dimension_may_be_given_as_a_word():
    assert open_source(labelled(), sample_dims="lon").samples.dims == ("lon",)


def test_chunks_of_netcdf_follow_the_dimensions_when_they_change_places(tmp_path):
    x = xarray.DataArray(np.zeros((4000, 300)), dims=("p", "t"), name="x")
    x.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding={"x": {"chunksizes": (1000, 100)}})
    assert open_source(tmp_path / "x.nc", sample_dims=("t",)).chunks[1] % 1000 == 0


def test_a_variable_of_a_dataset_is_named(tmp_path):
    dataset = xarray.Dataset({"a": labelled(), "b": labelled() + 1})
    dataset.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    dataset.to_zarr(tmp_path / "x.zarr", consolidated=False)
    for given in (dataset, tmp_path / "x.nc", tmp_path / "x.zarr"):
        np.testing.assert_array_equal(everything(open_source(given, variable="b")), (labelled() + 1).values.reshape(6, -1))
        with pytest.raises(InputError) as error:
            open_source(given)
        assert "a" in one_line(error)
        with pytest.raises(InputError, match="'nosuch'"):
            open_source(given, variable="nosuch")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("inside", ["", "/t2m"])
def test_packed_values_are_unpacked(tmp_path, zarr_format, inside):
    array = labelled().astype("f8") / 4
    packing = {"t2m": {"scale_factor": 0.25, "add_offset": 100.0, "dtype": "int16"}}
    array.to_zarr(tmp_path / "x.zarr", encoding=packing, consolidated=False, zarr_format=zarr_format)
    source = open_source(f"{tmp_path}/x.zarr{inside}")
    np.testing.assert_allclose(everything(source), array.values.reshape(6, -1))


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_declared_fill_values_of_integers_are_missing(tmp_path, suffix):
    array = labelled().astype("f8")
    array[2, 1, 3] = np.nan
    encoding = {"t2m": {"dtype": "int16", "_FillValue": -9999}}
    if suffix == "nc":
        array.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=encoding)
    else:
        array.to_zarr(tmp_path / "x.zarr", encoding=encoding, consolidated=False)
    np.testing.assert_array_equal(everything(open_source(tmp_path / f"x.{suffix}")), array.values.reshape(6, -1))


@pytest.mark.parametrize("inside", ["", "/t2m"])
def test_labels_of_a_zarr_store_come_along(tmp_path, inside):
    labelled().to_zarr(tmp_path / "x.zarr", consolidated=False)
    source = open_source(f"{tmp_path}/x.zarr{inside}")
    assert source.samples.dims == ("time",)
    assert set(source.samples.coords) == {"time", "name"}


# ---------------------------------------------------------------- fingerprints


@pytest.mark.parametrize("kind", ["numpy", "npy", "dask", "zarr", "netcdf", "lazy"])
def test_fingerprint_changes_with_the_data_and_only_then(tmp_path, kind):
    def source_of(x, name):
        if kind == "numpy":
            return open_source(x)
        if kind == "dask":
            return open_source(dask.array.from_array(x, chunks=(4, 4)))
        path = tmp_path / f"{name}.{ {'npy': 'npy', 'zarr': 'zarr'}.get(kind, 'nc') }"
        if not path.exists():
            if kind == "npy":
                np.save(path, x)
            elif kind == "zarr":
                zarr_array(path, x)
            else:
                xarray.DataArray(x, dims=("t", "p"), name="x").to_netcdf(path, engine="h5netcdf")
        if kind == "lazy":
            with xarray.open_dataset(path, engine="h5netcdf", cache=False) as dataset:
                return open_source(dataset["x"])
        return open_source(path)

    x = numbers()
    first = source_of(x, "a").fingerprint()
    assert first == source_of(x, "a").fingerprint()
    assert first != source_of(x + 1, "b").fingerprint()


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


@pytest.mark.parametrize("how", [cut_to(0), cut_to(1), cut_to(10), cut_to(-1), garbage])
@pytest.mark.parametrize("codec", ["none", "zstd", "blosc", "gzip", "crc32c", "sharded"])
def test_a_damaged_chunk_is_named(tmp_path, codec, how):
    options = dict(CODECS[codec])
    if "shards" in options:
        options = {"shards": (5, 4), "chunks": (5, 2), "compressors": ZstdCodec()}
    path, chunk = damaged(tmp_path, how, **options)
    with pytest.raises(InputError) as error:
        everything(open_source(path))
    direct = codec in ("none", "zstd", "blosc", "gzip")
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


# ---------------------------------------------------------------- bad input


def _two_arrays(where):
    zarr.open_group(where / "g.zarr", mode="w")
    for name in ("a", "b"):
        zarr_array(where / "g.zarr", numbers(), name=name)
    return where / "g.zarr"


def _saved(where, x):
    np.save(where / "x.npy", x)
    return where / "x.npy"


def _text_file(where, name, text="no numbers here\n" * 20):
    (where / name).write_text(text)
    return where / name


BAD = {
    "missing path": (lambda p: p / "nosuch.zarr", "does not exist"),
    "missing npy": (lambda p: p / "nosuch.npy", "does not exist"),
    "missing url": (lambda p: f"file://{p}/nosuch.zarr", "nosuch.zarr"),
    "unknown scheme": (lambda _: "nosuch://store.zarr", "nosuch://store.zarr"),
    "folder": (lambda p: p, "not a Zarr store"),
    "unknown kind of file": (lambda p: _text_file(p, "x.xyz"), "not a known kind"),
    "npy that is not": (lambda p: _text_file(p, "x.npy"), "not a whole .npy"),
    "netcdf that is not": (lambda p: _text_file(p, "x.nc"), "x.nc"),
    "nothing inside the group": (lambda p: f"{_two_arrays(p)}/nosuch", "nosuch"),
    "group of several": (_two_arrays, "name one of its arrays"),
    "group object": (lambda p: zarr.open_group(_two_arrays(p), mode="r"), "group"),
    "object array": (lambda _: np.array([["a", 1], [None, 2]], dtype=object), "objects"),
    "object npy": (lambda p: _saved(p, np.array([[None, 1]], dtype=object)), "objects"),
    "ragged list": (lambda _: [[1, 2, 3], [4, 5]], "differ in length"),
    "strings": (lambda _: np.array([["a", "b"], ["c", "d"]]), "convert"),
    "complex": (lambda _: np.zeros((3, 2), complex), "complex"),
    "dates": (lambda _: np.zeros((3, 2), "M8[s]"), "datetime64"),
    "complex dask": (lambda _: dask.array.zeros((3, 2), dtype=complex), "complex"),
    "no samples": (lambda _: np.zeros((0, 3)), "no samples"),
    "no features": (lambda _: np.zeros((3, 0)), "no features"),
    "empty zarr": (lambda p: zarr.create_array(p / "e.zarr", shape=(0, 3), dtype="f4", chunks=(1, 3)), "no samples"),
    "one dimension": (lambda _: np.zeros(5), "1 dimension"),
    "number": (lambda _: 5.0, "0 dimension"),
    "dask of one dimension": (lambda _: dask.array.zeros(5), "1 dimension"),
    "zarr of one dimension": (lambda p: zarr.create_array(p / "o.zarr", shape=(5,), dtype="f4"), "1 dimension"),
    "unknown chunks": (lambda _: dask.array.zeros((5, 2))[dask.array.zeros(5) == 0], "compute_chunk_sizes"),
    "labelled, one dimension": (lambda _: xarray.DataArray(np.zeros(5), dims=("t",)), "features"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_that_says_what_is_wrong(tmp_path, name):
    make, words = BAD[name]
    with pytest.raises(InputError) as error:
        open_source(make(tmp_path))
    assert words in one_line(error)


def test_sparse_matrices_are_refused_with_the_cure():
    import scipy.sparse

    with pytest.raises(InputError, match=r"toarray\(\)"):
        open_source(scipy.sparse.eye(3, format="csr"))


def test_an_unknown_sample_dimension_is_named():
    with pytest.raises(InputError, match="'nosuch'.*time, lat, lon"):
        open_source(labelled(), sample_dims=("nosuch",))
    with pytest.raises(InputError, match="no dimension is left for features"):
        open_source(labelled(), sample_dims=("time", "lat", "lon"))
