"""Missing and infinite values: counted, placed, filled or refused."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import SHAPES, CountingSource, assert_close, data_with_gaps, one_line, sample_data
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from streampca import PCA, InputError


@pytest.mark.parametrize("solver", ["auto", "covariance", "gram", "krylov", "power"])
def test_missing_values_are_refused_with_their_number_and_place(solver):
    x = sample_data()
    x[17, 3] = x[18, 2] = x[150, 14] = np.nan
    with pytest.raises(InputError) as error:
        PCA(2, solver=solver).fit(x)
    text = one_line(error)
    assert "3 missing" in text
    assert "sample 17, feature 3" in text
    assert "missing='mean'" in text
    with pytest.raises(InputError, match="sample 17, feature 3"):
        PCA(2, solver=solver).fit(sample_data()).transform(x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov", "power"])
def test_mean_filling_equals_imputing_first(shape, solver):
    x = data_with_gaps(shape)
    pipeline = make_pipeline(SimpleImputer(), SklearnPCA(3, svd_solver="full"))
    expected = pipeline.fit_transform(x)
    model = PCA(3, missing="mean", solver=solver, tol=1e-9)
    assert_close(model.fit_transform(x), expected)
    assert_close(model.components_, pipeline[-1].components_)
    assert_close(model.explained_variance_, pipeline[-1].explained_variance_)
    assert_close(model.transform(x), expected)
    assert model.total_variance_ == pytest.approx(SimpleImputer().fit_transform(x).var(axis=0, ddof=1).sum(), rel=1e-9)
    assert model.result_.attrs["n_missing"] == np.isnan(x).sum()
    np.testing.assert_array_equal(model.result_["missing"], np.isnan(x).sum(axis=0))


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("chunks", [(10, 15), (200, 2), (30, 4)])
@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_mean_filling_is_the_same_however_the_store_is_cut(chunks, solver):
    x = data_with_gaps()
    expected = SklearnPCA(3, svd_solver="full").fit(SimpleImputer().fit_transform(x))
    model = PCA(3, missing="mean", solver=solver, tol=1e-9).fit(CountingSource(x, chunks))
    assert_close(model.components_, expected.components_)
    assert_close(model.transform(CountingSource(x, chunks)), expected.transform(SimpleImputer().fit_transform(x)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [None, "unit"])
def test_a_feature_that_is_all_missing_has_no_weight(shape, scale):
    x = data_with_gaps(shape)
    x[:, 4] = np.nan
    model = PCA(3, missing="mean", scale=scale).fit(x)
    assert (model.components_[:, 4] == 0).all() or np.abs(model.components_[:, 4]).max() < 1e-12
    others = PCA(3, missing="mean", scale=scale).fit(np.delete(x, 4, axis=1))
    assert_close(model.explained_variance_, others.explained_variance_)
    assert np.isfinite(model.transform(x)).all()


@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov", "power"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_always_refused(missing, solver, value):
    x = sample_data()
    x[9, 5] = value
    x[11, 5] = -value
    x[3, 1] = np.nan
    model = PCA(2, missing=missing, solver=solver)
    with pytest.raises(InputError) as error:
        model.fit(x)
    assert "2 infinite" in one_line(error)
    assert "sample 9, feature 5" in one_line(error)
    with pytest.raises(InputError, match="2 infinite"):
        model.fit(sample_data()).transform(x)


def test_values_too_large_to_square_are_refused():
    with pytest.raises(InputError, match="overflows"):
        PCA(2).fit(sample_data() * 1e200)


def least_squares(model, x):
    """Scores over the observed values of each sample."""
    centred = (x - model.mean_) / (1 if model.scale_ is None else model.scale_)
    V = model.components_.T
    return np.array([np.linalg.lstsq(V[k], row[k], rcond=None)[0] for row in centred for k in [~np.isnan(row)]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [None, "unit"])
def test_least_squares_scores(shape, scale):
    x = data_with_gaps(shape)
    model = PCA(3, missing="lsq", scale=scale, tol=1e-9)
    scores = model.fit_transform(x)
    assert_close(model.components_, PCA(3, missing="mean", scale=scale, tol=1e-9).fit(x).components_)
    np.testing.assert_allclose(scores, least_squares(model, x), rtol=1e-8, atol=1e-8 * np.abs(scores).max())
    np.testing.assert_allclose(model.transform(x), scores, rtol=1e-10, atol=1e-10)
    import dask.array

    lazy = model.transform(dask.array.from_array(x, chunks=(7, -1)))
    np.testing.assert_allclose(lazy.compute(), scores, rtol=1e-8, atol=1e-8 * np.abs(scores).max())


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("chunks", [(10, 15), (200, 2), (30, 4)])
def test_least_squares_scores_are_the_same_however_the_store_is_cut(chunks):
    x = data_with_gaps()
    model = PCA(3, missing="lsq", tol=1e-9)
    scores = model.fit_transform(CountingSource(x, chunks))
    np.testing.assert_allclose(scores, least_squares(model, x), rtol=1e-8, atol=1e-8 * np.abs(scores).max())


def test_samples_with_fewer_values_than_components_have_no_least_squares_scores():
    x = data_with_gaps()
    x[5], x[6, 2:] = np.nan, np.nan
    model = PCA(3, missing="lsq")
    scores = model.fit_transform(x)
    assert np.flatnonzero(np.isnan(scores).all(axis=1)).tolist() == [5, 6]
    assert np.isfinite(np.delete(scores, [5, 6], axis=0)).all()
    assert any("samples without scores" in note and note.endswith(": 2") for note in model.notes_)
