"""Labelled sources: xarray, NetCDF and Zarr written by xarray."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import xarray
import zarr
from helpers import one_line
from source_helpers import assert_reads_as, everything, labelled

from streampca import InputError, open_source


def test_labels_come_along():
    source = open_source(labelled())
    assert (source.samples.dims, source.features.dims) == (("time",), ("lat", "lon"))
    assert set(source.samples.coords) == {"time", "season"}
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
    assert source.fingerprint() == open_source(given, sample_dims=dims).fingerprint()


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
    expected = (labelled() + 1).values.reshape(6, -1)
    for given in (dataset, tmp_path / "x.nc", tmp_path / "x.zarr"):
        np.testing.assert_array_equal(everything(open_source(given, variable="b")), expected)
        with pytest.raises(InputError) as error:
            open_source(given)
        assert "a" in one_line(error)
        with pytest.raises(InputError, match="'nosuch'"):
            open_source(given, variable="nosuch")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("inside", ["", "/t2m"])
def test_packed_values_are_unpacked(tmp_path, zarr_format, inside):
    array = labelled().astype("f8") / 4
    packing = {"t2m": {"scale_factor": 0.25, "add_offset": 100.0, "dtype": "int16", "_FillValue": -9999}}
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
    assert set(source.samples.coords) == {"time", "season"}


CODINGS = {
    "fill value": {"dtype": "int16", "_FillValue": -9},
    "packed": {"dtype": "int16", "_FillValue": -9, "scale_factor": 0.5, "add_offset": 3.0},
    "unsigned": {"dtype": "int8", "_FillValue": -1, "_Unsigned": "true"},
    "float": {"dtype": "float32", "_FillValue": -999.0},
    "missing value": {"dtype": "int16", "missing_value": -9},
}


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("coding", CODINGS)
def test_values_of_zarr_are_decoded_as_xarray_does(tmp_path, coding, zarr_format, labels):
    x = np.arange(200.0, 240.0).reshape(8, 5) - (0 if coding == "unsigned" else 150)
    x[2, 3] = x[5, 0] = np.nan
    coords = {"sample": np.arange(8)} if labels else {}
    array = xarray.DataArray(x, dims=("sample", "feature"), coords=coords, name="v")
    path = tmp_path / "x.zarr"
    array.to_dataset().to_zarr(path, zarr_format=zarr_format, encoding={"v": CODINGS[coding]}, consolidated=False)
    shutil.copytree(path / "v", tmp_path / "alone.zarr")
    expected = xarray.open_zarr(path, consolidated=False)["v"].values
    np.testing.assert_array_equal(expected, x)
    for place in (path, path / "v", tmp_path / "alone.zarr"):
        assert_reads_as(open_source(place), expected)


def test_a_fill_value_of_other_programs_is_decoded(tmp_path):
    # A plain number, which xarray does not take for float32 in format 3, and labels that cannot be read.
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    group.create_array("v", data=x, dimension_names=("sample", "feature"), attributes={"_FillValue": 7.0})
    group.create_array("sample", data=np.arange(8), dimension_names=("sample",))
    assert_reads_as(open_source(tmp_path / "x.zarr"), np.where(x == 7, np.float32(np.nan), x))
    # The fill value of an array that is not xarray's stands for itself.
    zarr.create_array(tmp_path / "y.zarr", data=x, fill_value=7.0, zarr_format=2, config={"write_empty_chunks": True})
    assert_reads_as(open_source(tmp_path / "y.zarr"), x)
