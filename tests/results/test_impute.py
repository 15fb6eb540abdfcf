"""Imputation: what is there stays, what is missing is foretold, better than by means and no worse than by SVD."""

from __future__ import annotations

import json

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from helpers import CountingSource, one_line
from latent_helpers import (
    ROWS,
    cut,  # noqa: F401
    mask,
    mean_filled,
    model_of,
    planted,
    posterior_of,
    psi_of,
    quick_sweeps,  # noqa: F401
    with_gaps,
)

from streampca import PPCA, FactorAnalysis, InputError, MemoryLimitError, load, open_source
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.models.ppca.record import FactorAnalysisFit, PPCAFit
from streampca.results.apply import Application, impute_latent
from streampca.results.fit import fit_to_store
from streampca.results.write import writing


def impute_to(data, model, path, **options):
    """Impute into a store; return the number of values."""
    with writing(path, overwrite=False) as store:
        return impute_latent(Application(open_source(data), model.result_, store, "r.zarr", **options))["values"]


def iterated_svd(x, k, steps=400):
    """Fill in by a truncated SVD of the centred data, again and again."""
    absent, filled = np.isnan(x), mean_filled(x)
    for _ in range(steps):
        mean = filled.mean(axis=0)
        u, s, vt = np.linalg.svd(filled - mean, full_matrices=False)
        before, filled = filled, np.where(absent, mean + (u[:, :k] * s[:k]) @ vt[:k], x)
        if np.abs(filled - before).max() < 1e-8:
            break
    return filled


def conditional_mean(row, W, mu, noise):
    """Mean of the missing part given the observed one, from the dense joint covariance."""
    o = ~np.isnan(row)
    C = W @ W.T + np.diag(psi_of(noise, len(W)))
    filled = row.copy()
    filled[~o] = mu[~o] + C[np.ix_(~o, o)] @ np.linalg.solve(C[np.ix_(o, o)], row[o] - mu[o])
    return filled


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6])
@pytest.mark.parametrize("shape", [(200, 15), (40, 120)])
def test_it_is_better_than_means_and_no_worse_than_iterated_svd(share, shape):
    x = planted(*shape, 3, noise=0.5, seed=3)
    absent = mask(share, shape)
    gaps = np.where(absent, np.nan, x)
    model = PPCA(3, tol=1e-4).fit(gaps)

    def error(filled):
        return np.sqrt(np.mean((filled - x)[absent] ** 2))

    ours, svd, means = error(model.impute(gaps)), error(iterated_svd(gaps, 3)), error(mean_filled(gaps))
    assert ours < 0.5 * means
    assert ours < 1.02 * svd


@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
@pytest.mark.parametrize("pattern", [0.3, "samples", "features"])
def test_missing_values_are_at_their_mean_given_the_others(kind, pattern):
    x = with_gaps(planted(50, 9, 2), pattern)
    model = kind(2).fit(x)
    fitted = model_of(model)
    filled = model.impute(x)
    absent = np.isnan(x)
    np.testing.assert_array_equal(filled[~absent], x[~absent])
    assert np.isfinite(filled).all()
    expected = np.array([conditional_mean(row, *fitted) for row in x])
    np.testing.assert_allclose(filled, expected, rtol=1e-8, atol=1e-8)
    if pattern == "samples":
        np.testing.assert_allclose(filled[0], model.mean_, atol=1e-9)


def test_new_samples_scaled_ones_and_float32():
    x = with_gaps(planted(80, 9, 2), 0.2)
    fresh = with_gaps(planted(80, 9, 2), 0.2, seed=9)[:10]
    model = PPCA(2, scale="unit").fit(x)
    filled = model.impute(fresh)
    W, s = model._fitted.factors.W, model.scale_
    z = np.array([posterior_of((row - model.mean_) / s, W, np.zeros(9), model.noise_variance_)[0] for row in fresh])
    absent = np.isnan(fresh)
    np.testing.assert_allclose(filled[absent], (z @ W.T * s + model.mean_)[absent], rtol=1e-8)
    single = fresh.astype(np.float32)
    np.testing.assert_array_equal(model.impute(single)[~absent], single[~absent])
    whole = np.arange(90).reshape(10, 9)
    np.testing.assert_array_equal(model.impute(whole), whole)


# ---------------------------------------------------------------- stores


def given_as(kind, x, tmp_path):
    if kind == "npy":
        np.save(tmp_path / "x.npy", x)
        return tmp_path / "x.npy"
    if kind == "dask":
        return dask.array.from_array(x, chunks=((30, 7, 43, 20), 9))
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(13, 9) if kind == "rows" else (100, 2))
    return tmp_path / "x.zarr"


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["npy", "rows", "columns", "dask"])
def test_a_store_holds_what_impute_gives(tmp_path, kind, dtype):
    x = with_gaps(planted(100, 9, 2), "samples").astype(dtype)
    model = PPCA(2).fit(x)
    given = given_as(kind, x, tmp_path)
    with dask.config.set(num_workers=2):
        count = impute_to(given, model, tmp_path / "out.zarr")
    absent = np.isnan(x)
    assert count == absent.sum()
    opened = xarray.open_zarr(tmp_path / "out.zarr")
    assert opened.attrs["kind"] == "imputed"
    assert opened.attrs["result"] == "r.zarr"
    filled = opened["imputed"].values
    assert filled.dtype == dtype
    np.testing.assert_array_equal(filled[~absent], x[~absent])
    np.testing.assert_allclose(filled, model.impute(x), rtol=1e-5 if dtype == np.float32 else 1e-10, atol=1e-5)
    again = open_source(tmp_path / "out.zarr")
    assert again.shape == (100, 9)
    assert PPCA(2).fit(again).method_ == "closed"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_labels_of_a_field_are_kept(tmp_path):
    values = planted(30, 12, 2).reshape(30, 3, 4)
    values[2, 1, 1] = values[5, 0, 3] = np.nan
    coords = {"time": np.arange(30) * 3, "lat": [1.0, 2.0, 4.0], "lon": list("abcd")}
    field = xarray.DataArray(values, dims=("time", "lat", "lon"), coords=coords)
    model = PPCA(2).fit(field)
    assert impute_to(field, model, tmp_path / "out.zarr") == 2
    out = xarray.open_zarr(tmp_path / "out.zarr")["imputed"]
    assert out.dims == field.dims
    assert list(out["lon"].values) == list("abcd")
    np.testing.assert_array_equal(out["time"], field["time"])
    np.testing.assert_array_equal(out.values[~np.isnan(values)], values[~np.isnan(values)])
    np.testing.assert_allclose(out.values, model.impute(field).values, atol=1e-10)


def test_what_is_refused_leaves_nothing_behind(tmp_path):
    x = with_gaps(planted(60, 9, 2), 0.1)
    model = PPCA(2).fit(x)
    out = tmp_path / "out.zarr"
    with pytest.raises(InputError, match="same features"):
        impute_to(x[:, :8], model, out)
    x[4, 4] = np.inf
    with pytest.raises(InputError) as error:
        impute_to(x, model, out)
    assert "sample 4, feature 4" in one_line(error)
    with pytest.raises(MemoryLimitError, match="needs at least"):
        impute_to(x, model, out, memory_limit="20MB")
    with pytest.raises(InputError, match="missing='model'"):
        PPCA(2, missing="error").fit(planted(60, 9, 2)).impute(x)
    assert list(tmp_path.iterdir()) == []


def test_a_reconstruction_is_one_sweep():
    x = with_gaps(planted(60, 9, 2), 0.1)
    model = PPCA(2).fit(x)
    source = CountingSource(x, (10, 9))
    model.reconstruct(source)
    assert source.times_read().max() == 1


# ---------------------------------------------------------------- a model from its store


@pytest.mark.parametrize(
    ("pattern", "own", "scale"), [(0.0, False, None), (0.2, False, "unit"), (0.0, True, "unit"), (0.2, True, None)]
)
def test_a_stored_model_comes_back(tmp_path, pattern, own, scale):
    x = with_gaps(planted(60, 9, 2), pattern)
    options = (FactorAnalysisOptions if own else PPCAOptions)(n_components=2, scale=scale)
    _, attributes = fit_to_store(options, open_source(x), tmp_path / "r.zarr")
    result = load(tmp_path / "r.zarr")
    again = (FactorAnalysisFit if own else PPCAFit).from_dataset(result)
    model = (FactorAnalysis if own else PPCA)(2, scale=scale).fit(x)
    found = model._fitted
    np.testing.assert_allclose(again.factors.W, found.factors.W, atol=1e-12)
    np.testing.assert_allclose(again.factors.noise, found.factors.noise, rtol=1e-14)
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-14)
    assert again.log_likelihood == found.log_likelihood == attributes["total_log_likelihood"]
    np.testing.assert_array_equal(again.log_likelihoods, found.log_likelihoods)
    assert (again.method, again.n_samples, again.converged) == (found.method, 60, found.converged)
    np.testing.assert_array_equal(again.missing, np.isnan(x).sum(axis=0))
    np.testing.assert_allclose(again.explained_variance, result["explained_variance"], rtol=1e-12)
    np.testing.assert_allclose(result["scores"], model.transform(x), atol=1e-6)
    deviations = np.sqrt(np.diagonal(model.posterior(x)[1], axis1=1, axis2=2))
    np.testing.assert_allclose(result["score_deviation"], deviations, atol=1e-6)
    assert attributes["n_sweeps"] == result.attrs["n_sweeps"]


@pytest.mark.usefixtures("small_partitions")
def test_scores_in_a_store_are_those_of_transform_however_it_is_cut(tmp_path, cut):  # noqa: F811
    x = with_gaps(planted(90, 40, 2), "samples").astype(np.float32)
    source = CountingSource(x, (8, 40) if cut == ROWS else (90, 3))
    _, attributes = fit_to_store(PPCAOptions(n_components=2), source, tmp_path / "r.zarr")
    result = load(tmp_path / "r.zarr")
    model = PPCA(2).fit(source)
    np.testing.assert_allclose(result["scores"], model.transform(x), atol=1e-5)
    assert any("2 sample(s) have no values" in note for note in json.loads(attributes["notes"]))
    np.testing.assert_allclose(result["score_deviation"][0], 1.0, atol=1e-6)
