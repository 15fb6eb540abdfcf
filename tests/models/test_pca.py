"""The estimator: scikit-learn's conventions and contract."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import SHAPES, Reference, assert_close, sample_data
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from streampca import PCA

# ---------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("solver", ["auto", "covariance", "gram", "krylov", "power"])
def test_conventions_match_scikit_learn(shape, whiten, solver):
    x = sample_data(shape)
    fresh = sample_data(shape) + 0.1
    theirs = SklearnPCA(4, whiten=whiten, svd_solver="full").fit(x)
    ours = PCA(4, whiten=whiten, solver=solver, tol=1e-9).fit(x)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        assert_close(getattr(ours, name), getattr(theirs, name))
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, rel=1e-6)
    assert (ours.n_components_, ours.n_samples_, ours.n_features_in_) == (4, *x.shape)
    scores = theirs.transform(fresh)
    assert_close(ours.transform(fresh), scores)
    assert_close(ours.fit_transform(x), theirs.fit_transform(x))
    assert_close(ours.inverse_transform(scores), theirs.inverse_transform(scores))
    # Whitening is of the scores alone: the model of the data is that of the plain fit. (scikit-learn's own covariance
    # takes the variances twice when it whitens.)
    plain = SklearnPCA(4, svd_solver="full").fit(x)
    assert_close(ours.get_covariance(), plain.get_covariance())
    assert_close(ours.get_precision(), plain.get_precision())
    assert_close(ours.score_samples(fresh), plain.score_samples(fresh))
    assert ours.score(fresh) == pytest.approx(plain.score(fresh), rel=1e-6)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


def test_all_components_match_scikit_learn():
    x = sample_data("tall")
    theirs, ours = SklearnPCA().fit(x), PCA().fit(x)
    assert_close(ours.components_, theirs.components_)
    assert_close(ours.score_samples(x), theirs.score_samples(x))
    assert_close(ours.get_precision(), theirs.get_precision())
    assert_close(ours.inverse_transform(ours.transform(x)), x)
    assert ours.noise_variance_ == theirs.noise_variance_ == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_in_gives_float32_out(shape):
    x = sample_data(shape).astype(np.float32)
    model = PCA(3)
    assert model.fit_transform(x).dtype == np.float32
    scores = model.transform(x)
    assert scores.dtype == np.float32
    assert model.inverse_transform(scores).dtype == np.float32
    assert_close(scores, SklearnPCA(3, svd_solver="full").fit_transform(x.astype(float)), rtol=1e-4)


def test_scikit_learns_own_checks_pass():
    results = check_estimator(PCA(), on_skip=None, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    assert sum(result["status"] == "passed" for result in results) > 40


@pytest.mark.parametrize("options", [{"solver": "krylov"}, {"missing": "mean"}, {"n_components": 1, "whiten": True}])
def test_scikit_learns_own_checks_pass_with_options(options):
    results = check_estimator(PCA(**options), on_skip=None, on_fail=None)
    assert not {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}


def test_it_drops_into_a_pipeline_and_a_grid_search():
    x, y = sample_data(), sample_data()[:, 0]
    pipeline = make_pipeline(StandardScaler(), PCA(3), LinearRegression()).fit(x, y)
    theirs = make_pipeline(StandardScaler(), SklearnPCA(3), LinearRegression()).fit(x, y)
    assert_close(pipeline.predict(x), theirs.predict(x))
    grid = {"n_components": [1, 3, 5]}
    ours, expected = (GridSearchCV(model, grid, cv=3).fit(x) for model in (PCA(), SklearnPCA()))
    assert_close(ours.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])
    assert ours.best_params_ == expected.best_params_


def test_a_clone_has_the_same_options_and_nothing_else():
    model = PCA(
        3, scale="unit", missing="mean", whiten=True, solver="krylov", tol=1e-4, memory_limit="1GB", random_state=7
    )
    copy = clone(model.fit(sample_data()))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "components_")
    with pytest.raises(NotFittedError):
        copy.transform(sample_data())


def test_set_output_gives_a_data_frame():
    import pandas

    frame = pandas.DataFrame(sample_data(), columns=[f"f{i}" for i in range(15)])
    model = PCA(2).set_output(transform="pandas").fit(frame)
    scores = model.transform(frame)
    assert list(scores.columns) == ["pca0", "pca1"]
    assert list(model.feature_names_in_) == list(frame.columns)
    assert_close(scores.to_numpy(), SklearnPCA(2).fit_transform(sample_data()))


# ---------------------------------------------------------------- reconstruction


@pytest.mark.parametrize("scale", [None, "unit"])
def test_reconstruction_error_is_the_distance_from_the_subspace(scale):
    x = sample_data()
    model = PCA(3, scale=scale).fit(x)
    z = x / (1.0 if scale is None else x.std(axis=0, ddof=1))
    back = model.inverse_transform(model.transform(x)) / (1.0 if scale is None else x.std(axis=0, ddof=1))
    assert_close(model.reconstruction_error(x), ((z - back) ** 2).sum(axis=1))


def test_reconstruction_curve_is_the_sum_of_what_is_left_out():
    x = sample_data()
    values = Reference.of(x).values
    curve = PCA().fit(x).reconstruction_curve()
    assert_close(curve, [values[m:].sum() for m in range(16)])
    few = PCA(4).fit(x)
    assert_close(few.reconstruction_curve(), curve[:5])
    assert few.reconstruction_error(x).sum() / 199 == pytest.approx(curve[4], rel=1e-9)


def test_digits_are_rebuilt_as_by_scikit_learn():
    x = load_digits().data
    ours, theirs = PCA(10).fit(x), SklearnPCA(10, svd_solver="full").fit(x)
    assert_close(ours.components_, theirs.components_)
    assert_close(ours.inverse_transform(ours.transform(x)), theirs.inverse_transform(theirs.transform(x)))


# ---------------------------------------------------------------- result_


def test_the_result_holds_what_is_documented():
    model = PCA(3, scale="unit", random_state=5)
    scores = model.fit_transform(sample_data())
    result = model.result_
    shapes = {
        "scores": ("sample", "component"), "components": ("component", "feature"), "mean": ("feature",),
        "scale": ("feature",), "missing": ("feature",), "explained_variance": ("component",),
        "explained_variance_ratio": ("component",), "certificate": ("component",), "tracy_widom": ("component",),
        "p_value": ("component",), "n_effective": ("component",), "squared_cosine": ("component",),
    }  # fmt: skip
    assert {name: array.dims for name, array in result.data_vars.items()} == shapes
    np.testing.assert_array_equal(result["component"], [1, 2, 3])
    np.testing.assert_array_equal(result["scores"], scores)
    np.testing.assert_array_equal(result["components"], model.components_)
    np.testing.assert_array_equal(result["explained_variance"], model.explained_variance_)
    np.testing.assert_array_equal(result["certificate"], model.certificate_)
    np.testing.assert_array_equal(result["scale"], model.scale_)
    attributes = result.attrs
    assert (attributes["format_version"], attributes["kind"], attributes["n_samples"]) == (1, "pca", 200)
    assert attributes["n_sweeps"] == model.n_sweeps_
    assert attributes["bytes_read"] == model.n_sweeps_ * sample_data().nbytes
    assert attributes["converged"] == 1
    assert attributes["seconds"] > 0
    assert attributes["peak_memory_bytes"] > 1e6
    assert len(attributes["source_fingerprint"]) == 32
    assert attributes["total_variance"] == model.total_variance_
    parameters = json.loads(attributes["parameters"])
    assert (parameters["n_components"], parameters["scale"], parameters["random_state"]) == (3, "unit", 5)
    assert {"streampca", "numpy", "dask", "zarr", "xarray", "python"} <= set(json.loads(attributes["versions"]))


def test_the_result_has_scores_only_where_they_are_known():
    assert "scores" not in PCA(2, solver="covariance").fit(sample_data()).result_
    known = PCA(2, solver="gram").fit(sample_data("wide")).result_["scores"].values
    assert_close(known, SklearnPCA(2).fit_transform(sample_data("wide")))


# ---------------------------------------------------------------- the food table


COUNTRIES = ["England", "Northern Ireland", "Scotland", "Wales"]
FOODS = np.array([
    [375, 57, 245, 1472, 105, 54, 193, 147, 1102, 720, 253, 685, 488, 198, 360, 1374, 156],
    [135, 47, 267, 1494, 66, 41, 209, 93, 674, 1033, 143, 586, 355, 187, 334, 1506, 139],
    [458, 53, 242, 1462, 103, 62, 184, 122, 957, 566, 171, 750, 418, 220, 337, 1572, 147],
    [475, 73, 227, 1582, 103, 64, 235, 160, 1137, 874, 265, 803, 570, 203, 365, 1256, 175],
])  # fmt: skip


@pytest.mark.parametrize("solver", ["auto", "covariance", "gram", "krylov", "power"])
def test_northern_ireland_eats_apart(solver):
    model = PCA(2, solver=solver)
    first = model.fit_transform(FOODS)[:, 0]
    assert model.explained_variance_ratio_[0] == pytest.approx(0.674, abs=5e-4)
    assert model.explained_variance_ratio_.sum() == pytest.approx(0.965, abs=5e-4)
    apart = COUNTRIES.index("Northern Ireland")
    others = np.delete(first, apart)
    assert np.abs(first[apart] - others).min() > 2 * (others.max() - others.min())


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
@pytest.mark.parametrize("whiten", [False, True])
def test_scores_have_the_type_of_the_data_also_if_the_fit_moved_to_float64(solver, whiten, rng):
    x = (rng.normal(size=(120, 30)) * np.linspace(5, 1, 30)).astype(np.float32)
    model = PCA(2, solver=solver, tol=1e-9, whiten=whiten)
    scores = model.fit_transform(x)
    assert scores.dtype == model.transform(x).dtype == np.float32
    assert_close(scores, model.transform(x), rtol=1e-4)
