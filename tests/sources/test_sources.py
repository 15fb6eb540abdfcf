"""Sources: whatever the format, a range read is that range of the plain array; bad input says what is wrong."""

from __future__ import annotations

import pickle

import dask.array
import numpy as np
import pytest
import xarray
import zarr
from helpers import one_line
from hypothesis import given
from hypothesis import strategies as st
from source_helpers import DTYPES, D, N, assert_reads_as, everything, labelled, numbers, zarr_array
from zarr.codecs import ZstdCodec

from streampca import InputError, open_source

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


# ---------------------------------------------------------------- any range


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
    "unknown kind of file": (lambda p: _text_file(p, "x.xyz"), "unknown file format"),
    "npy that is not": (lambda p: _text_file(p, "x.npy"), "cannot be opened as .npy"),
    "netcdf that is not": (lambda p: _text_file(p, "x.nc"), "x.nc"),
    "nothing inside the group": (lambda p: f"{_two_arrays(p)}/nosuch", "nosuch"),
    "group of several": (_two_arrays, "give an array in it"),
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
