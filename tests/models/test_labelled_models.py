"""Dask in, lazy Dask out; xarray in, xarray out."""

from __future__ import annotations

import re

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from helpers import assert_close, sample_data
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

import streampca
from streampca import PCA, InputError


def test_dask_in_gives_lazy_dask_out():
    computed = []

    def scheduler(graph, keys, **options):
        computed.append(keys)
        return dask.get(graph, keys, **options)

    x = sample_data()
    lazy = dask.array.from_array(x, chunks=(40, 6))
    model = PCA(3).fit(lazy)
    with dask.config.set(scheduler=scheduler):
        scores = model.transform(lazy)
        back = model.inverse_transform(scores)
        assert isinstance(scores, dask.array.Array)
        assert (scores.shape, scores.dtype, back.shape) == ((200, 3), np.float64, x.shape)
        assert computed == []
        assert_close(scores.compute(), SklearnPCA(3).fit_transform(x))
        assert len(computed) == 1
        assert_close(back.compute(), PCA(3).fit(x).inverse_transform(PCA(3).fit_transform(x)))


def test_fit_transform_of_a_dask_array_gives_a_dask_array():
    lazy = dask.array.from_array(sample_data(), chunks=(40, 6))
    scores = PCA(3).fit_transform(lazy)
    assert isinstance(scores, dask.array.Array)
    assert_close(scores.compute(), SklearnPCA(3).fit_transform(sample_data()))


def test_a_gap_in_a_lazy_transform_is_refused_when_computed():
    x = sample_data()
    model = PCA(3).fit(x)
    x[120, 7] = np.nan
    lazy = model.transform(dask.array.from_array(x, chunks=(40, 15)))
    with pytest.raises(InputError, match="1 missing"):
        lazy.compute()


def cube():
    values = np.random.default_rng(8).standard_normal((30, 4, 5)) * np.linspace(1, 4, 20).reshape(4, 5)
    coords = {"time": np.arange(30) * 2, "lat": [10.0, 20.0, 30.0, 40.0], "lon": list("abcde")}
    return xarray.DataArray(values, dims=("time", "lat", "lon"), coords=coords, name="t")


def test_xarray_in_gives_labelled_scores_and_maps_out():
    array = cube()
    model = PCA(3)
    scores = model.fit_transform(array)
    expected = SklearnPCA(3).fit_transform(array.values.reshape(30, 20))
    assert scores.dims == ("time", "component")
    np.testing.assert_array_equal(scores["time"], array["time"])
    assert_close(scores.values, expected)
    xarray.testing.assert_allclose(model.transform(array), scores)
    maps = model.result_["components"]
    assert maps.dims == ("component", "lat", "lon")
    assert list(maps["lon"].values) == list("abcde")
    assert_close(maps.values.reshape(3, 20), model.components_)
    back = model.inverse_transform(scores)
    assert back.dims == array.dims
    assert_close(back.values.reshape(30, 20), model.inverse_transform(expected))
    np.testing.assert_array_equal(back["lat"], array["lat"])


@pytest.mark.parametrize("dims", [("lon",), ("lat", "time"), ("lon", "lat")])
@pytest.mark.parametrize("chunked", [False, True])
def test_sample_dimensions_of_the_fit_hold_for_the_transform(dims, chunked):
    array = cube().chunk({"time": 7}) if chunked else cube()
    rest = [dim for dim in array.dims if dim not in dims]
    flat = cube().transpose(*dims, *rest).values.reshape(np.prod([array.sizes[dim] for dim in dims]), -1)
    model = PCA(2)
    scores = model.fit_transform(array, sample_dims=dims)
    expected = SklearnPCA(2, svd_solver="full").fit_transform(flat)
    assert scores.dims == (*dims, "component")
    assert_close(scores.values.reshape(-1, 2), expected)
    again = model.transform(array)
    assert again.dims == scores.dims
    assert_close(again.values, scores.values)
    assert model.score(array) == pytest.approx(SklearnPCA(2, svd_solver="full").fit(flat).score(flat), rel=1e-6)


def field(order=("time", "lat", "lon")):
    """A small field with coordinates."""
    rng = np.random.default_rng(3)
    coords = {
        "time": np.arange("2000-01", "2003-01", dtype="M8[M]").astype("M8[ns]"),
        "lat": np.linspace(-60.0, 60.0, 5),
        "lon": np.arange(7) * 30.0,
    }
    values = rng.normal(size=(36, 5, 7))
    return xarray.DataArray(values, coords, ("time", "lat", "lon"), name="sst").transpose(*order)


def test_a_missing_or_infinite_value_is_named_by_its_coordinates():
    x = field()
    x[7, 4, 2] = np.nan
    where = "sample 7, feature 30 (counted from 0; time=2000-08-01; lat=60.0, lon=60.0)"
    with pytest.raises(InputError, match=re.escape(f"1 missing value(s) (NaN), the first at {where}")):
        PCA(2).fit(x)
    with pytest.raises(InputError, match=re.escape(where)):
        PCA(2).partial_fit(x)
    x[7, 4, 2] = np.inf
    with pytest.raises(InputError, match=re.escape(f"1 infinite value(s), the first at {where}")):
        PCA(2).fit(x)


def test_time_among_the_features_is_a_warning_unless_chosen(caplog):
    PCA(2).fit(field())
    assert not caplog.messages
    PCA(2).fit(field(("lat", "lon", "time")), sample_dims=("lat", "lon"))
    assert not caplog.messages
    PCA(2).fit(field(("lat", "lon", "time")))
    assert caplog.messages == [
        "samples are lat, and time is among the features; for one sample per time give sample_dims (--sample-dims time)"
    ]


@pytest.mark.parametrize("form", ["nc", "zarr"])
def test_a_run_shows_its_samples_and_features(form, tmp_path, here, caplog):
    x = field(("lat", "lon", "time")).to_dataset()
    if form == "nc":
        x.to_netcdf(tmp_path / "x.nc")
    else:
        x.to_zarr(tmp_path / "x.zarr", zarr_format=3, consolidated=False)
    code, _, error = here("pca", f"x.{form}", "-k", "2", "--sample-dims", "time", "--out", "a.zarr")
    assert code == 0, error
    assert "samples: time (36) x features: lat, lon (35)" in caplog.messages
    caplog.clear()
    code, _, error = here("pca", f"x.{form}", "-k", "2", "--out", "b.zarr")
    assert code == 0, error
    assert "samples: lat (5) x features: lon, time (252)" in caplog.messages
    assert sum("time is among the features" in message for message in caplog.messages) == 1


def with_land():
    """A field without values on land, and a mask of the features that have values."""
    x = field()
    x[:, 0, :3] = np.nan
    x[:, 3, 5] = np.nan
    return x, ~np.isnan(x.values[0].ravel())


@pytest.mark.parametrize("backing", ["memory", "dask", "nc", "zarr"])
@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_land_is_excluded_and_comes_back_as_nan(backing, solver, tmp_path):
    x, sea = with_land()
    given = x.chunk({"time": 8, "lat": 2}) if backing == "dask" else x
    if backing == "nc":
        given = tmp_path / "x.nc"
        x.to_netcdf(given)
    if backing == "zarr":
        given = tmp_path / "x.zarr"
        x.to_dataset().chunk({"time": 8, "lat": 2}).to_zarr(given, zarr_format=3, consolidated=False)
    values = x.values.reshape(36, 35)[:, sea]
    alone = PCA(3, solver=solver).fit(values)
    model = PCA(3, solver=solver).fit(given)
    assert model.n_features_in_ == sea.sum() == 31
    for name in ("components_", "explained_variance_", "noise_variance_", "mean_"):
        assert_close(getattr(model, name), getattr(alone, name))
    assert "features excluded: 4 of 35 are missing in every sample; they are NaN in the result" in model.notes_
    maps = model.result_["components"]
    assert maps.dims == ("component", "lat", "lon")
    np.testing.assert_array_equal(np.isnan(maps.values.reshape(3, 35)), np.tile(~sea, (3, 1)))
    assert_close(maps.values.reshape(3, 35)[:, sea], alone.components_)
    assert_close(model.transform(given), alone.transform(values))
    model.save(tmp_path / "m.zarr")
    loaded = streampca.load_model(tmp_path / "m.zarr")
    assert_close(loaded.transform(x).values, alone.transform(values))
    restored = loaded.inverse_transform(loaded.transform(x))
    np.testing.assert_array_equal(np.isnan(restored.values), np.isnan(x.values))
    assert_close(restored.values.reshape(36, 35)[:, sea], alone.inverse_transform(alone.transform(values)))


@pytest.mark.parametrize("backing", ["memory", "dask"])
def test_a_feature_that_only_the_first_sample_misses_is_an_error_unless_allowed(backing):
    x, _ = with_land()
    x[0, 2, 1] = np.nan
    given = x.chunk({"time": 8, "lat": 2}) if backing == "dask" else x
    where = "sample 0, feature 15 (counted from 0; time=2000-01-01; lat=0.0, lon=30.0) is missing, and not in every"
    with pytest.raises(InputError, match=re.escape(where)):
        PCA(2).fit(given)
    assert PCA(2, missing="mean").fit(given).n_features_in_ == 35
    assert streampca.PPCA(2).fit(given).n_features_in_ == 35


def test_new_data_with_values_on_land_are_an_error():
    x, _ = with_land()
    model = PCA(2).fit(x)
    with pytest.raises(InputError, match="lat=-60.0, lon=0.0"):
        model.transform(x.fillna(1.0))


@pytest.mark.parametrize("kind", ["KernelPCA", "MixtureOfPPCA", "PCR"])
def test_other_models_exclude_land(kind):
    x, sea = with_land()
    y = {"y": np.arange(36.0)} if kind == "PCR" else {}
    models = [getattr(streampca, kind)(2).fit(data, **y) for data in (x, x.values.reshape(36, 35)[:, sea])]
    assert models[0].n_features_in_ == models[1].n_features_in_ == 31
    assert_close(models[0].mean_, models[1].mean_)
    assert_close(*(model._fitted.explained_variance for model in models))
    assert any(note.startswith("features excluded: 4 of 35") for note in models[0].notes_)
    assert np.isnan(models[0].result_["mean"].values).sum() == 4


def test_commands_keep_land_as_nan(tmp_path, here):
    x, sea = with_land()
    x.to_netcdf(tmp_path / "x.nc")
    code, out, error = here("pca", "x.nc", "-k", "2", "--scale", "coslat", "--out", "r.zarr")
    assert code == 0, error
    assert "note: features excluded: 4 of 35" in out
    code, _, error = here("denoise", "r.zarr", "x.nc", "--out", "d.zarr")
    assert code == 0, error
    written = zarr.open_array(tmp_path / "d.zarr", path="denoised", mode="r")[...]
    np.testing.assert_array_equal(np.isnan(written), np.isnan(x.values))
    code, _, error = here("project", "r.zarr", "x.nc", "--out", "p.zarr")
    assert code == 0, error
    assert here("report", "r.zarr", "--out", "r.html")[0] == 0
    weights = np.sqrt(np.cos(np.radians(np.repeat(x["lat"].values, 7))))[sea]
    alone = PCA(2).fit(x.values.reshape(36, 35)[:, sea] * weights)
    assert_close(streampca.load(tmp_path / "r.zarr")["explained_variance"].values, alone.explained_variance_)
