"""Dask in, lazy Dask out; xarray in, xarray out."""

from __future__ import annotations

import dask
import dask.array
import numpy as np
import pytest
import xarray
from helpers import assert_close, sample_data
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

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
