"""Probabilistic PCA: against the closed form, scikit-learn and scipy; its promises, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from helpers import (
    CASES,
    PEAK,
    CountingSource,
    UnreadableSource,
    assert_close,
    assert_orthonormal,
    assert_same_subspace,
    falling,
    matrix_with_spectrum,
    one_line,
)
from latent_helpers import (
    COLUMNS,
    ROWS,
    closed_form,
    covariance_of,
    cut,  # noqa: F401
    cut_along,
    dense_em,
    log_densities,
    mean_filled,
    model_of,
    planted,
    posterior_of,
    quick_sweeps,  # noqa: F401
    with_gaps,
)
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from streampca import PCA, PPCA, DualPPCA, FactorAnalysis, InputError, MemoryLimitError
from streampca.models.ppca.fit import check_memory, plan_ppca
from streampca.models.ppca.options import PPCAOptions


def store(x, way):
    """A source whose chunks are whole samples, or whole features."""
    return CountingSource(x, (8, x.shape[1]) if way == ROWS else (x.shape[0], 2))


def small():
    return planted(60, 9, 2)


def gappy(pattern=0.2):
    return with_gaps(small(), pattern)


# ---------------------------------------------------------------- complete data


def _constant_features():
    x = planted(120, 15, 3, seed=2)
    x[:, [0, 7]] = 3.25
    x[:, 14] = -1e6 / 3
    return x


COMPLETE = {
    "tall": (lambda: planted(150, 12, 3), 1e-8),
    "wide": (lambda: planted(20, 60, 3), 1e-8),
    "huge mean": (lambda: planted(150, 12, 3) + 1e6, 1e-8),
    "constant features": (_constant_features, 1e-8),
    "float32": (lambda: planted(150, 12, 3).astype(np.float32), 1e-5),
    "wide float32": (lambda: planted(20, 60, 3).astype(np.float32), 1e-5),
    "int8": (lambda: np.rint(4 * planted(150, 12, 3)).astype(np.int8), 1e-5),
}


@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("case", COMPLETE)
def test_complete_data_match_the_dense_closed_form(case, method):
    make, within = COMPLETE[case]
    x = make()
    W, mu, noise = closed_form(x, 3)
    # Certificates count what a mean so far off costs.
    model = PPCA(3, method=method, tol=1e-7 if case == "huge mean" else 1e-9).fit(x)
    assert model.method_ == method
    assert model.converged_
    assert_same_subspace(np.linalg.qr(W)[0].T, model.components_, within=max(within**2, 1e-12))
    assert_orthonormal(model.components_, within=1e-8)
    assert model.noise_variance_ == pytest.approx(noise, rel=within)
    np.testing.assert_allclose(model.mean_, mu, rtol=1e-6 if within > 1e-6 else 1e-12, atol=within)
    centred = (x.astype(np.longdouble) - mu).astype(float)
    likelihood = log_densities(centred, W, np.zeros(len(mu)), noise).sum()
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=within)
    assert model.score_samples(x).sum() == pytest.approx(likelihood, rel=within)
    values = np.linalg.eigvalsh(centred.T @ centred / len(x))[::-1]
    assert_close(model.explained_variance_, values[:3], rtol=within)
    assert_close(model.explained_variance_ratio_, values[:3] / values.sum(), rtol=within)


@pytest.mark.parametrize("case", ["tall", "huge mean", "constant features", "float32"])
def test_scikit_learn_scores_the_same(case):
    make, within = COMPLETE[case]
    x = make()
    n = len(x)
    ours = PPCA(3).fit(x)
    theirs = SklearnPCA(3, svd_solver="full").fit(x.astype(float))
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_ * (n - 1) / n, rel=within)
    centred = x.astype(float) - x.astype(float).mean(axis=0)
    likely = SklearnPCA(3, svd_solver="full").fit(centred * np.sqrt((n - 1) / n))
    assert_close(ours.score_samples(x), likely.score_samples(centred), rtol=10 * within)
    assert ours.score(x) == pytest.approx(likely.score(centred), rel=within)


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("rows", (150, 12)),
        ("columns", (150, 12)),
        ("columns", (20, 60)),
        ("dask", (20, 60)),
        ("dask columns", (150, 12)),
    ],
)
def test_em_is_the_closed_form_however_the_data_lie(tmp_path, kind, shape):
    x = planted(*shape, 3)
    chunks = (7, shape[1]) if kind in ("rows", "dask") else (shape[0], 5)
    if kind in ("rows", "columns"):
        zarr.create_array(tmp_path / "x.zarr", data=x, chunks=chunks)
        given = tmp_path / "x.zarr"
    else:
        given = dask.array.from_array(x, chunks=chunks)
    closed, em = (PPCA(3, method=method, tol=1e-9).fit(given) for method in ("closed", "em"))
    assert_same_subspace(closed.components_, em.components_, within=1e-8)
    assert em.noise_variance_ == pytest.approx(closed.noise_variance_, rel=1e-6)
    assert em.log_likelihood_ == pytest.approx(closed.log_likelihood_, rel=1e-8)
    assert closed.noise_variance_ == pytest.approx(closed_form(x, 3)[2], rel=1e-8)
    assert np.asarray(em.transform(given)) == pytest.approx(closed.transform(x), abs=1e-6)


# Once: s2 is taken from float32 products: a quarter too large here, and worthless for less noise (1e-4: 40 times).
@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("noise", [1e-2, 1e-3])
def test_little_noise_in_float32_data_is_found(noise, method):
    x = planted(2000, 30, 3, noise=noise, mean=0.0).astype(np.float32)
    W, mu, s2 = closed_form(x, 3)
    model = PPCA(3, method=method).fit(x)
    assert model.noise_variance_ == pytest.approx(s2, rel=1e-3)
    assert model.log_likelihood_ == pytest.approx(log_densities(x, W, mu, s2).sum(), rel=1e-3)


# Once: the fit is float64 where noise is small, but transform and score go back to float32 tiles.
def test_the_score_of_float32_data_with_little_noise_is_that_of_the_fit():
    x = planted(2000, 30, 3, noise=1e-3, mean=0.0).astype(np.float32)
    model = PPCA(3, method="em").fit(x)
    expected = log_densities(x.astype(float), *model_of(model)).sum()
    assert model.score_samples(x).sum() == pytest.approx(expected, rel=1e-4)


# Once: whether float32 will do is judged by what mean-filled components leave, which is much where values are missing.
def test_little_noise_in_float32_data_with_gaps_is_found():
    x = with_gaps(planted(1000, 20, 3, noise=1e-3, mean=0.0), 0.1).astype(np.float32)
    single, double = PPCA(3).fit(x), PPCA(3).fit(x.astype(np.float64))
    assert single.noise_variance_ == pytest.approx(double.noise_variance_, rel=1e-2)
    assert single.log_likelihood_ == pytest.approx(double.log_likelihood_, rel=1e-3)
    assert single.score_samples(x).sum() == pytest.approx(single.log_likelihood_, rel=1e-4)


# ---------------------------------------------------------------- gaps


def started(x, k, scale=None):
    """Where the estimator starts from: the closed form of mean-filled data; scaled ones in units of those observed."""
    centred = mean_filled(x) - np.nanmean(x, axis=0)
    if scale is None:
        W, _, noise = closed_form(centred, k)
        return W, np.zeros(len(W)), noise, centred
    filled = centred / np.sqrt((centred**2).sum(axis=0) / (len(x) - 1))
    W, _, noise = closed_form(filled, k)
    deviation = np.nanstd(x, axis=0, ddof=1)
    ratio = deviation / np.sqrt((centred**2).sum(axis=0) / (len(x) - 1))
    return W / ratio[:, None], np.zeros(len(W)), noise, centred / deviation


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("scale", [None, "unit"])
@pytest.mark.parametrize("pattern", [0.3, "samples", "blocks"])
def test_iterations_of_the_estimator_are_those_of_a_dense_em(pattern, cut, scale):  # noqa: F811
    x = gappy(pattern)
    model = PPCA(2, accelerate=False, max_iter=4, tol=1e-13, scale=scale).fit(store(x, cut))
    W, mu, noise, standard = started(x, 2, scale)
    standard = np.where(np.isnan(x), np.nan, standard)
    history = list(dense_em(standard, W, mu, noise, 4))[: len(model.log_likelihoods_)]
    assert len(history) == (4 if cut == ROWS else 5)
    np.testing.assert_allclose(model.log_likelihoods_, [log_densities(standard, *m).sum() for m in history], rtol=1e-8)
    np.testing.assert_allclose(model.get_covariance(), covariance_of(*history[-1]), rtol=1e-6, atol=1e-7)
    deviation = 1.0 if scale is None else np.nanstd(x, axis=0, ddof=1)
    np.testing.assert_allclose(model.mean_, np.nanmean(x, axis=0) + history[-1][1] * deviation, rtol=1e-7, atol=1e-8)
    assert model.noise_variance_ == pytest.approx(history[-1][2], rel=1e-7)


def test_both_cuts_come_to_the_same_maximum(cut):  # noqa: F811
    x = with_gaps(planted(200, 12, 3, noise=1.0, seed=1), 0.25)
    model = PPCA(3, tol=1e-5, max_iter=400).fit(store(x, cut))
    assert model.converged_
    W, mu, noise = model_of(model)
    likelihood = log_densities(x, W, mu, noise).sum()
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=1e-9)
    # A maximum: no small change of any kind makes the data likelier.
    rng = np.random.default_rng(0)
    for _ in range(20):
        nudge = rng.standard_normal(W.shape), rng.standard_normal(len(mu)), rng.standard_normal()
        step = 1e-2 / np.sqrt(sum(np.sum(np.square(part)) for part in nudge))
        moved = W + step * nudge[0], mu + step * nudge[1], noise * np.exp(step * nudge[2])
        assert log_densities(x, *moved).sum() < likelihood + 1e-6 * abs(likelihood)


# Once: differences that Anderson mixing keeps in float32 overflowed for values of 1e20 and more: RuntimeWarning.
@pytest.mark.parametrize("factor", [1e-60, 1e25])
def test_units_do_not_matter_to_the_maximum(factor):
    with cut_along(ROWS):
        one, other = (PPCA(2, tol=1e-6).fit(gappy() * unit) for unit in (1.0, factor))
    assert one.converged_
    assert other.converged_
    assert other.noise_variance_ == pytest.approx(one.noise_variance_ * factor**2, rel=1e-5)


def test_missing_values_are_not_mistaken_for_the_mean():
    """Half the samples miss half the features: mean-filled components shrink, those of the likelihood do not."""
    x = planted(2000, 10, 1, noise=0.3, seed=4)
    absent = np.zeros(x.shape, bool)
    absent[:1000, :5] = True
    truth = closed_form(x, 1)[0]
    model = PPCA(1).fit(np.where(absent, np.nan, x))
    filled = closed_form(mean_filled(np.where(absent, np.nan, x)), 1)[0]
    error = np.linalg.norm(covariance_of(*model_of(model)) - truth @ truth.T)
    assert error < 0.2 * np.linalg.norm(filled @ filled.T - truth @ truth.T)


# ---------------------------------------------------------------- what a model is for


@pytest.mark.parametrize("pattern", [0.0, 0.3, "samples"])
def test_scores_and_posteriors_are_those_of_the_observed_part(cut, pattern):  # noqa: F811
    x = gappy(pattern)
    model = PPCA(2).fit(gappy(0.1))
    fitted = model_of(model)
    source = store(x, cut)
    np.testing.assert_allclose(model.score_samples(source), log_densities(x, *fitted), rtol=1e-9, atol=1e-9)
    assert model.score(source) == pytest.approx(log_densities(x, *fitted).mean(), rel=1e-9)
    mean, covariance = model.posterior(source)
    expected = [posterior_of(row, *fitted) for row in x]
    np.testing.assert_allclose(mean, [m for m, _ in expected], atol=1e-10)
    np.testing.assert_allclose(covariance, [c for _, c in expected], atol=1e-10)
    np.testing.assert_allclose(model.transform(source), mean, atol=1e-12)
    if pattern == "samples":
        np.testing.assert_array_equal(mean[0], 0)
        np.testing.assert_allclose(covariance[0], np.eye(2), atol=1e-12)


@pytest.mark.parametrize("scale", [None, "unit"])
def test_covariance_precision_and_maps_belong_together(scale):
    x = gappy()
    model = PPCA(2, scale=scale).fit(x)
    np.testing.assert_allclose(model.get_covariance() @ model.get_precision(), np.eye(9), atol=1e-10)
    W, s = model._fitted.factors.W, 1.0 if scale is None else model.scale_
    np.testing.assert_allclose(model.get_covariance(), covariance_of(W, 0, model.noise_variance_), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(W, axis=0) ** 2 + model.noise_variance_, model.explained_variance_)
    np.testing.assert_allclose(W / np.linalg.norm(W, axis=0), model.components_.T, atol=1e-12)
    z = np.random.default_rng(0).standard_normal((5, 2))
    np.testing.assert_allclose(model.inverse_transform(z), z @ W.T * s + model.mean_)
    np.testing.assert_allclose(model.reconstruct(x), model.transform(x) @ W.T * s + model.mean_)
    if scale == "unit":
        np.testing.assert_allclose(model.scale_, np.nanstd(x, axis=0, ddof=1), rtol=1e-12)


def test_samples_drawn_have_the_moments_of_the_model():
    model = PPCA(2, scale="unit").fit(gappy())
    drawn = model.sample(40_000, random_state=1)
    covariance = model.get_covariance() * np.outer(model.scale_, model.scale_)
    spread = np.sqrt(np.diag(covariance))
    assert np.abs((drawn.mean(axis=0) - model.mean_) / spread).max() < 5 / np.sqrt(40_000)
    error = (np.cov(drawn.T) - covariance) / np.outer(spread, spread)
    assert np.abs(error).max() < 8 / np.sqrt(40_000)
    np.testing.assert_array_equal(model.sample(3, random_state=1), model.sample(3, random_state=1))


@pytest.mark.parametrize("shape", [(60, 9), (20, 40)])
def test_the_orthogonal_reconstruction_is_that_of_pca(shape):
    x = planted(*shape, 2)
    model = PPCA(2, tol=1e-9).fit(x)
    pca = SklearnPCA(2, svd_solver="full").fit(x)
    assert_close(model.reconstruct(x, projection="orthogonal"), pca.inverse_transform(pca.transform(x)), rtol=1e-7)
    lengths = model.explained_variance_ - model.noise_variance_
    shrunk = pca.transform(x) * lengths / model.explained_variance_
    assert_close(model.reconstruct(x), pca.inverse_transform(shrunk), rtol=1e-7)
    with pytest.raises(InputError, match="must be posterior or orthogonal"):
        model.reconstruct(x, projection="oblique")


# Once: noise times 1e-12 leaves W'W singular to rounding where a sample has fewer values than components.
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_orthogonal_reconstruction_of_few_values_goes_through_them(dtype):
    x = (50 * planted(200, 12, 3, noise=0.01, mean=0.0)).astype(dtype)
    model = PPCA(3).fit(x)
    few = np.full((3, 12), np.nan, dtype)
    for i in range(3):
        few[i, : i + 1] = x[i, : i + 1]
    back = model.reconstruct(few, projection="orthogonal")
    W, mu, _ = model_of(model)
    for i in range(3):
        nearest = mu + W @ np.linalg.lstsq(W[: i + 1], few[i, : i + 1] - mu[: i + 1], rcond=None)[0]
        np.testing.assert_allclose(back[i], nearest, rtol=1e-3, atol=1e-2 * np.abs(x).std())


# ---------------------------------------------------------------- scikit-learn, xarray, Dask


@pytest.mark.parametrize("options", [{}, {"method": "em", "missing": "error"}])
def test_scikit_learns_own_checks_pass(options):
    results = check_estimator(PPCA(**options), on_skip=None, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    assert sum(result["status"] == "passed" for result in results) > 40


def test_a_clone_has_the_same_options_and_nothing_else():
    model = PPCA(2, method="em", scale="unit", missing="error", criterion="bic", solver="krylov", tol=1e-4, max_iter=7,
                 accelerate=False, memory_limit="1GB", random_state=7)  # fmt: skip
    copy = clone(model.fit(small()))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "components_")
    with pytest.raises(NotFittedError):
        copy.transform(small())


def test_it_drops_into_a_pipeline():
    x, y = small(), small()[:, 0]
    ours = make_pipeline(StandardScaler(), PPCA(2), LinearRegression()).fit(x, y)
    theirs = make_pipeline(StandardScaler(), SklearnPCA(2), LinearRegression()).fit(x, y)
    assert_close(ours.predict(x), theirs.predict(x))
    assert list(PPCA(2).fit(x).get_feature_names_out()) == ["ppca0", "ppca1"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_of_floats_is_kept(dtype):
    x = gappy().astype(dtype)
    model = PPCA(2)
    first = model.fit_transform(x)
    assert first.dtype == model.transform(x).dtype == dtype
    np.testing.assert_allclose(first, model.transform(x), atol=1e-5)


def cube():
    values = planted(40, 12, 2).reshape(40, 3, 4)
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    coords = {"time": np.arange(40) * 2, "lat": [10.0, 20.0, 30.0], "lon": list("abcd")}
    return xarray.DataArray(values, dims=("time", "lat", "lon"), coords=coords)


def test_xarray_in_gives_xarray_out_with_its_labels():
    array = cube()
    model = PPCA(2)
    scores = model.fit_transform(array)
    assert scores.dims == ("time", "component")
    np.testing.assert_array_equal(scores["time"], array["time"])
    flat = PPCA(2).fit(array.values.reshape(40, 12))
    assert_close(scores.values, flat.transform(array.values.reshape(40, 12)))
    xarray.testing.assert_allclose(model.transform(array), scores)
    result = model.result_
    assert result["components"].dims == ("component", "lat", "lon")
    assert list(result["lon"].values) == list("abcd")
    assert result["mean"].dims == ("lat", "lon")
    turned = model.fit_transform(array.transpose("lat", "time", "lon"), sample_dims=["time"])
    np.testing.assert_allclose(turned.values, scores.values, atol=1e-10)


# Once: DESIGN promises xarray in, xarray out; PCA.inverse_transform keeps the labels, PPCA's loses them.
def test_inverse_transform_of_labelled_scores_is_labelled():
    array = cube()
    model = PPCA(2)
    scores = model.fit_transform(array)
    back = model.inverse_transform(scores)
    assert back.dims == array.dims
    np.testing.assert_array_equal(back["lat"], array["lat"])


def test_labelled_samples_are_imputed_and_reconstructed_with_their_labels():
    array = cube()
    array[3, 1, 2] = np.nan
    model = PPCA(2).fit(array)
    for back in (model.impute(array), model.reconstruct(array)):
        assert back.dims == array.dims
        np.testing.assert_array_equal(back["lat"], array["lat"])
    filled = model.impute(array)
    assert filled.notnull().all()
    np.testing.assert_array_equal(filled.where(array.notnull()), array)


@pytest.mark.parametrize("pattern", [0.0, 0.2, "samples"])
def test_a_lazy_transform_is_the_numpy_one(pattern):
    x = gappy(pattern)
    lazy = dask.array.from_array(x, chunks=(17, 4))
    model = PPCA(2).fit(lazy)
    scores = model.transform(lazy)
    assert isinstance(scores, dask.array.Array)
    assert (scores.shape, scores.dtype) == ((60, 2), np.float64)
    np.testing.assert_allclose(scores.compute(), model.transform(x), atol=1e-12)
    assert isinstance(model.inverse_transform(scores), dask.array.Array)
    np.testing.assert_allclose(model.inverse_transform(scores).compute(), model.reconstruct(x), atol=1e-12)
    x[3, 2] = np.inf
    with pytest.raises(InputError, match="1 infinite"):
        model.transform(dask.array.from_array(x, chunks=(17, 4))).compute()


# Once: PCA.fit_transform of a Dask array is a Dask array, as DESIGN promises; PPCA's is NumPy.
def test_fit_transform_of_a_dask_array_gives_a_dask_array():
    assert isinstance(PPCA(2).fit_transform(dask.array.from_array(small(), chunks=(20, 9))), dask.array.Array)


def test_the_result_holds_what_is_documented():
    x = gappy()
    model = PPCA(2, scale="unit", random_state=5)
    scores = model.fit_transform(x)
    result = model.result_
    dims = {
        "components": ("component", "feature"), "mean": ("feature",), "scale": ("feature",), "missing": ("feature",),
        "explained_variance": ("component",), "explained_variance_ratio": ("component",),
        "loadings": ("component", "feature"), "scaling_mean": ("feature",), "shift": ("feature",),
        "log_likelihood": ("iteration",), "scores": ("sample", "component"), "score_deviation": ("sample", "component"),
    }  # fmt: skip
    assert {name: array.dims for name, array in result.data_vars.items()} == dims
    np.testing.assert_array_equal(result["scores"], scores)
    np.testing.assert_array_equal(result["components"], model.components_)
    np.testing.assert_array_equal(result["mean"], model.mean_)
    np.testing.assert_array_equal(result["scale"], model.scale_)
    np.testing.assert_array_equal(result["missing"], np.isnan(x).sum(axis=0))
    np.testing.assert_array_equal(result["log_likelihood"], model.log_likelihoods_)
    _, covariance = model.posterior(x)
    np.testing.assert_allclose(result["score_deviation"] ** 2, np.diagonal(covariance, axis1=1, axis2=2), atol=1e-12)
    a = result.attrs
    assert (a["kind"], a["method"], a["n_samples"], a["n_features"]) == ("ppca", "em", 60, 9)
    assert (a["n_missing"], a["n_iterations"], a["converged"]) == (np.isnan(x).sum(), model.n_iter_, 1)
    assert a["total_log_likelihood"] == model.log_likelihood_ == model.log_likelihoods_[-1]
    assert a["noise_variance"] == model.noise_variance_
    assert a["n_sweeps"] == model.n_sweeps_
    assert json.loads(a["parameters"])["random_state"] == 5
    complete = PPCA(2).fit(small()).result_
    assert complete["certificate"].dims == ("component",)
    assert complete.attrs["method"] == "closed"
    assert "scores" not in complete


# Once: the label is that of PCA (n - 1); these variances are of maximum likelihood (1 / n).
def test_the_result_says_which_variances_these_are():
    assert "n - 1" not in PPCA(2).fit(small()).result_["explained_variance"].attrs["long_name"]


# ---------------------------------------------------------------- promises


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("transform", [False, True])
@pytest.mark.parametrize("method", ["closed", "em"])
def test_every_read_of_complete_data_is_counted(cut, method, transform):  # noqa: F811
    source = store(small(), cut)
    model = PPCA(2, method=method)
    (model.fit_transform if transform else model.fit)(source)
    times = source.times_read()
    assert times.min() == times.max() == model.n_sweeps_


# Once: the sweep that finds out that there are gaps is not counted.
@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("n_components", [2, "auto"])
def test_every_read_of_data_with_gaps_is_counted(cut, n_components):  # noqa: F811
    source = store(gappy(), cut)
    model = PPCA(n_components).fit(source)
    times = source.times_read()
    assert times.min() == times.max() == model.n_sweeps_


def test_an_iteration_is_one_sweep(cut):  # noqa: F811
    few, more = (store(gappy(), cut) for _ in range(2))
    models = [PPCA(2, max_iter=i, tol=1e-9).fit(s) for i, s in ((3, few), (5, more))]
    assert [m.n_iter_ for m in models] == [3, 5]
    assert not models[0].converged_
    assert "max_iter" in models[0].advice_
    assert more.times_read().max() - few.times_read().max() == 2


# Once: bytes of the sweep for the scores are not counted.
def test_bytes_read_are_those_of_all_sweeps():
    x = small()
    model = PPCA(2)
    model.fit_transform(store(x, ROWS))
    assert model.n_sweeps_ == 2
    assert model.result_.attrs["bytes_read"] == 2 * x.nbytes


def everything(model, given):
    scores = model.fit_transform(given)
    found = model._fitted
    parts = (found.factors.W, found.factors.shift, found.factors.noise, found.log_likelihoods, scores)
    return [np.asarray(part) for part in parts]


def stored(tmp_path, shape, chunks, dtype=np.float32):
    x = with_gaps(planted(*shape, 3), 0.1).astype(dtype)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=chunks)
    return tmp_path / "x.zarr"


LAYOUTS = {ROWS: ((600, 20), (100, 20)), COLUMNS: ((40, 200), (40, 40))}


@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_any_number_of_threads(tmp_path, cut):  # noqa: F811
    path = stored(tmp_path, *LAYOUTS[cut])
    found = []
    for workers in (1, 2):
        with dask.config.set(num_workers=workers):
            found.append(everything(PPCA(3), path))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_two_processes(tmp_path, two_workers):
    from distributed import Client

    for way, (shape, chunks) in LAYOUTS.items():
        (tmp_path / way).mkdir()
        path = stored(tmp_path / way, shape, chunks)
        lazy = dask.array.from_zarr(path).rechunk((300, -1))
        both = (path, lazy) if way == ROWS else (path,)
        with cut_along(way):
            here = [everything(PPCA(3, max_iter=2), given) for given in both]
            with Client(two_workers):
                there = [everything(PPCA(3, max_iter=2), given) for given in both]
        for one, other in zip(here, there, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_missing_values_cost_one_sweep_and_complete_data_none(dtype):
    x = planted(400, 12, 2).astype(dtype)
    gaps = x.copy()
    gaps[::7, ::5] = np.nan
    complete = PPCA(2, solver="covariance").fit(CountingSource(x, (50, 12)))
    assert complete.n_sweeps_ == 1
    # The first sweep counts missing values and learns the mean, the second is the covariance about it.
    source = CountingSource(gaps, (50, 12))
    model = PPCA(2, solver="covariance").fit(source)
    assert model.n_sweeps_ == 2 + model.n_iter_ == source.times_read().max() == source.times_read().min()
    # Along features the first sweep needs no means of other tiles; the second gives the components.
    wide = PPCA(2, solver="gram").fit(CountingSource(gaps.T.copy(), (12, 50)))
    assert wide.n_sweeps_ <= 3 + wide.n_iter_


@pytest.mark.parametrize(("shape", "chunks"), [((10**6, 1000), (10_000, 1000)), ((2000, 10**6), (2000, 1000))])
def test_too_little_memory_is_refused_before_reading_with_the_least_needed(shape, chunks):
    source = UnreadableSource(shape, chunks)
    with pytest.raises(MemoryLimitError) as error:
        PPCA(10, memory_limit="160MB").fit(source)
    text = one_line(error)
    assert "160 MB is allowed" in text
    assert "missing='error' needs less" in text
    least = int(text.split("at least ")[1].split(" MB")[0])
    with pytest.raises(MemoryLimitError):
        check_memory(source, PPCAOptions(n_components=10), f"{least - 1}MB")
    check_memory(source, PPCAOptions(n_components=10), f"{least}MB")
    planned = plan_ppca(source, PPCAOptions(n_components=10), memory="8GB")
    assert least * 1e6 * 0.99 < planned.peak_bytes < 8e9
    assert "EM" in planned.reason


# ---------------------------------------------------------------- what is refused


BAD = {
    "k too large": ({"n_components": 9}, "at most 8"),
    "k zero": ({"n_components": 0}, "an integer >= 1 or auto"),
    "k a fraction": ({"n_components": 0.5}, "an integer >= 1 or auto"),
    "k a truth": ({"n_components": True}, "an integer >= 1 or auto"),
    "k a word": ({"n_components": "many"}, "got 'many'"),
    "method": ({"method": "svd"}, "auto, closed or em"),
    "missing": ({"missing": "mean"}, "model or error"),
    "criterion": ({"criterion": "aic"}, "evidence, bic or heldout"),
    "scale": ({"scale": "log"}, "unit or patterson"),
    "solver": ({"solver": "qr"}, "krylov or power"),
    "max_iter": ({"max_iter": 0}, "an integer >= 1"),
    "max_iter no number": ({"max_iter": 2.5}, "an integer >= 1"),
    "tol": ({"tol": 0}, "between 0 and 1"),
    "memory": ({"memory_limit": "much"}, "600MB"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused_before_reading(name):
    options, cure = BAD[name]
    with pytest.raises(InputError) as error:
        PPCA(**{"n_components": 2, **options}).fit(UnreadableSource((60, 9), (60, 9)))
    assert cure in one_line(error)


def test_gaps_are_refused_where_they_are_not_wanted():
    x = gappy()
    place = tuple(np.argwhere(np.isnan(x))[0])
    with pytest.raises(InputError) as error:
        PPCA(2, missing="error").fit(x)
    assert f"{np.isnan(x).sum()} missing value(s) (NaN), the first at sample {place[0]}, feature {place[1]}" in str(
        error.value
    )
    assert "missing='model'" in one_line(error)
    with pytest.raises(InputError, match="missing"):
        PPCA(2, missing="error").fit(small()).transform(x)
    with pytest.raises(InputError, match="method='em' or 'auto'"):
        PPCA(2, method="closed").fit(x)
    with pytest.raises(InputError, match="missing='model'"):
        PPCA(2, missing="error").fit(small()).impute(x)


# Once: transform names missing='mean', which PPCA does not take.
def test_the_cure_named_by_transform_is_one_that_works():
    with pytest.raises(InputError) as error:
        PPCA(2, missing="error").fit(small()).transform(gappy())
    assert "missing='model'" in one_line(error)


def test_infinite_values_are_refused(cut):  # noqa: F811
    x = gappy()
    model = PPCA(2).fit(x)
    x[7, 3] = np.inf
    with pytest.raises(InputError) as error:
        PPCA(2).fit(store(x, cut))
    assert "1 infinite value(s), the first at sample 7, feature 3" in one_line(error)
    with pytest.raises(InputError, match="sample 7, feature 3"):
        model.transform(store(x, cut))
    with pytest.raises(InputError, match="sample 7, feature 3"):
        model.impute(x)


def test_other_features_are_refused():
    with pytest.raises(ValueError, match="9 features"):
        PPCA(2).fit(small()).transform(small()[:, :8])
    with pytest.raises(InputError, match="same features"):
        PPCA(2).fit(small()).transform(store(small()[:, :8], ROWS))


@pytest.mark.parametrize("shape", [(1, 9), (60, 1)])
def test_one_sample_or_feature_leaves_nothing(shape):
    with pytest.raises(InputError, match="leave no component"):
        PPCA().fit(store(np.ones(shape), ROWS))


def test_constant_data_are_refused():
    with pytest.raises(InputError, match="total variance is zero"):
        PPCA(2).fit(np.full((20, 4), 3.3))


def test_nothing_but_gaps_is_refused():
    with pytest.raises(InputError):
        PPCA(2).fit(np.full((20, 4), np.nan))


# ---------------------------------------------------------------- edges


def test_features_and_samples_without_values_are_noted(cut):  # noqa: F811
    x = gappy("both")
    model = PPCA(2)
    scores = model.fit_transform(store(x, cut))
    assert any("2 feature(s) have no values" in note for note in model.notes_)
    assert any("2 sample(s) have no values" in note for note in model.notes_)
    assert (model.components_[:, [1, 8]] == 0).all()
    np.testing.assert_allclose(scores[[0, 30]], 0, atol=1e-10)
    rest = np.delete(np.delete(x, [1, 8], axis=1), [0, 30], axis=0)
    alone = PPCA(2, tol=1e-7, max_iter=100).fit(rest)
    model = PPCA(2, tol=1e-7, max_iter=100).fit(store(x, cut))
    assert model.noise_variance_ == pytest.approx(alone.noise_variance_, rel=1e-4)
    assert model.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-6)


@pytest.mark.parametrize("method", ["closed", "em"])
@pytest.mark.parametrize("k", [3, 5])
def test_data_without_noise_are_noted_and_stay_finite(method, k):
    x = matrix_with_spectrum(40, 12, falling(3), seed=3)
    model = PPCA(k, method=method).fit(x)
    assert any("the noise is zero" in note for note in model.notes_)
    assert 0 < model.noise_variance_ < 1e-9
    for values in (model.components_, model.log_likelihood_, model.transform(x), model.score_samples(x)):
        assert np.isfinite(values).all()
    assert_close(model.reconstruct(x), x, rtol=1e-4)


# Once: where the noise is held at its least, the closed form's likelihood is not that of its parameters.
def test_the_likelihood_of_data_without_noise_is_that_of_the_model():
    x = matrix_with_spectrum(40, 12, falling(3), seed=3)
    model = PPCA(5).fit(x)
    W, mu, noise = model_of(model)
    C = covariance_of(W, mu, noise)
    distance = np.trace((x - mu) @ np.linalg.solve(C, (x - mu).T))
    likelihood = -0.5 * (40 * (12 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1]) + distance)
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=1e-4)


# Once: Anderson mixing of log s2 overflows, the NaN is taken for progress, and LinAlgError ends it.
@pytest.mark.parametrize("k", [3, 5])
def test_gaps_in_data_without_noise_are_noted_and_stay_finite(cut, k):  # noqa: F811
    x = with_gaps(matrix_with_spectrum(40, 30, falling(3), seed=3), 0.2)
    model = PPCA(k).fit(store(x, cut))
    assert any("the noise is zero" in note for note in model.notes_)
    assert np.isfinite(model.log_likelihood_)
    assert np.isfinite(model.transform(x)).all()


def test_as_many_components_as_there_can_be(cut):  # noqa: F811
    x = planted(30, 6, 2)
    model = PPCA().fit(store(x, cut))
    assert model.n_components_ == 5
    assert model.noise_variance_ == pytest.approx(closed_form(x, 5)[2], rel=1e-8)
    assert_close(model.get_covariance(), np.cov(x.T, ddof=0))
    few = with_gaps(planted(7, 30, 2), 0.05)
    assert PPCA(max_iter=20).fit(store(few, cut)).n_components_ == 6


def test_ties_are_one_space(cut):  # noqa: F811
    x = matrix_with_spectrum(90, 12, [9, 9, 9, 4, 4, 1, 1, 1, 1, 1, 1, 1], seed=4)
    for method in ("closed", "em"):
        model = PPCA(5, method=method, tol=1e-9).fit(store(x, cut))
        assert_close(model.explained_variance_, np.array([9, 9, 9, 4, 4]) * 89 / 90)
        assert model.noise_variance_ == pytest.approx(89 / 90, rel=1e-8)
        assert_orthonormal(model.components_)
        assert_close(model.get_covariance(), np.cov(x.T, ddof=0), rtol=1e-7)
        assert any("PCs 1 to 3 are not distinguishable" in note for note in model.notes_)
    # No component stands out from the noise: W has columns of zeros, and nothing is divided by them.
    flat = matrix_with_spectrum(40, 6, np.ones(6), seed=4)
    model = PPCA(2, method="em").fit(store(flat, cut))
    assert np.isfinite(model.transform(flat)).all()
    assert_close(model.get_covariance(), np.cov(flat.T, ddof=0), rtol=1e-7)


def test_two_samples_and_two_features_are_enough():
    x = np.array([[0.0, 1.0], [3.0, 5.0]])
    assert PPCA(1).fit(x).components_ @ [3, 4] == pytest.approx(5)
    x = np.array([[0.0, 1.0], [3.0, 5.0], [1.0, np.nan], [np.nan, 2.0], [2.0, 2.5]])
    assert np.isfinite(PPCA(1).fit(x).transform(x)).all()


# ---------------------------------------------------------------- the dual


@pytest.mark.parametrize("shape", [(25, 120), (80, 12), (12, 12)])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_the_dual_has_the_scores_of_ppca_and_the_likelihood_of_its_contrasts(shape, scale):
    x = planted(*shape, 3)
    dual = DualPPCA(3, scale=scale)
    latent = dual.fit_transform(x)
    n, d = x.shape
    primal = PPCA(3, scale=scale, tol=1e-9).fit_transform(x)
    assert_same_subspace(np.linalg.qr(primal)[0].T, np.linalg.qr(latent)[0].T, within=1e-10)
    y = (x - x.mean(axis=0)) / (1.0 if scale is None else x.std(axis=0, ddof=1))
    contrasts = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    seen = contrasts.T @ latent
    likelihood = log_densities((contrasts.T @ y).T, seen, np.zeros(n - 1), dual.noise_variance_).sum()
    assert dual.log_likelihood_ == pytest.approx(likelihood, rel=1e-9)
    # A maximum over both: the noise, and the length of each column.
    for change in (0.98, 1.02):
        moved = log_densities((contrasts.T @ y).T, seen, np.zeros(n - 1), dual.noise_variance_ * change).sum()
        assert moved < likelihood
        moved = log_densities((contrasts.T @ y).T, seen * change, np.zeros(n - 1), dual.noise_variance_).sum()
        assert moved < likelihood
    values = np.linalg.eigvalsh(y @ y.T / d)[::-1]
    assert_close(dual.eigenvalues_, values[:3])
    assert dual.noise_variance_ == pytest.approx(values[3 : n - 1].mean(), rel=1e-9)
    kernel = latent @ latent.T + dual.noise_variance_ * np.eye(n)
    process = latent @ latent.T @ np.linalg.solve(kernel, y)
    back = x.mean(axis=0) + process * (1.0 if scale is None else x.std(axis=0, ddof=1))
    assert_close(dual.inverse_transform(latent), back)


def test_the_dual_of_a_dask_array_and_a_clone():
    x = planted(25, 120, 3)
    whole = DualPPCA(3).fit(x)
    assert_close(DualPPCA(3).fit(dask.array.from_array(x, chunks=(25, 30))).latent_, whole.latent_)
    assert clone(whole).get_params() == whole.get_params()
    with pytest.raises(NotFittedError):
        clone(whole).inverse_transform(x)


# Once: n_components='auto' is not offered by DualPPCA, but is taken for as many as there can be, up to 50.
def test_the_dual_does_not_choose_its_dimensions():
    with pytest.raises(InputError):
        DualPPCA("auto").fit(small())


# Once: log of eigenvalues below the least noise, and d for the distance: not the likelihood of its parameters.
def test_the_dual_of_data_without_noise_has_the_likelihood_of_its_parameters():
    x = matrix_with_spectrum(12, 40, falling(3), seed=3)
    dual = DualPPCA(5).fit(x)
    contrasts = np.linalg.qr(np.column_stack([np.ones(12), np.eye(12)[:, 1:]]))[0][:, 1:]
    seen, y = contrasts.T @ dual.latent_, contrasts.T @ (x - x.mean(axis=0))
    C = seen @ seen.T + dual.noise_variance_ * np.eye(11)
    likelihood = -0.5 * (
        40 * (11 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1]) + np.trace(y.T @ np.linalg.solve(C, y))
    )
    assert dual.log_likelihood_ == pytest.approx(likelihood, rel=1e-4)


def test_the_dual_of_gaps_says_what_to_do():
    with pytest.raises(InputError, match="missing"):
        DualPPCA(2).fit(gappy())


def test_cases_of_pca_run():
    """The table that PCA is tested by: nothing breaks, and components agree where there are that many."""
    for name, case in CASES.items():
        x = case.make()
        k = min(case.k, min(x.shape) - 1)
        if k < 1:
            continue
        model, pca = PPCA(k).fit(x), PCA(k).fit(x)
        meaningful = min(k, case.meaningful)
        assert_same_subspace(pca.components_[:meaningful], model.components_[:meaningful])
        assert np.isfinite(model.log_likelihood_), name


# ---------------------------------------------------------------- memory, measured


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("pattern", [0.0, 0.05])
def test_the_whole_process_keeps_to_the_limit(tmp_path, pattern):
    # Many samples of few features: what is found of each sample is larger than the data.
    x = with_gaps(planted(150_000, 20, 12), pattern).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    limit = 580_000_000
    command = ["streampca", "ppca", "x.npy", "-k", "12", "--memory", str(limit), "--max-iter", "3", "--quiet"]
    for arguments in (command, ["streampca", "impute", "x.ppca.zarr", "x.npy", "--memory", str(limit), "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert int(done.stdout.split("PEAK")[1]) < limit


# ---------------------------------------------------------------- found by reading


def test_the_dual_of_few_dimensions_has_no_nan():
    x = np.outer(np.arange(8.0), [1.0, 2, 3, 4, 5])
    dual = DualPPCA(3).fit(x)
    assert np.isfinite(dual.latent_).all()
    assert dual.latent_[:, 1:] == pytest.approx(0, abs=1e-6)


def test_the_closed_form_of_gaps_is_refused_after_one_sweep():
    source = store(gappy(), ROWS)
    with pytest.raises(InputError, match="method='em' or 'auto'"):
        PPCA(2, method="closed").fit(source)
    assert source.times_read().max() == 1


def test_squared_loadings_are_what_factor_analysis_explains():
    model = FactorAnalysis(2).fit(small())
    result = model.result_
    np.testing.assert_allclose(result["explained_variance"], (model.components_**2).sum(axis=1))
    assert "loadings" in result["explained_variance"].attrs["long_name"]


def test_criteria_for_other_models_are_refused_before_reading():
    with pytest.raises(InputError, match="criterion must be auto or heldout, got 'bic'"):
        FactorAnalysis("auto", criterion="bic").fit(small())
