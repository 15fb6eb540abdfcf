"""Every option of PCA is read, and a bad one is refused before reading."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import (
    SHAPES,
    CountingSource,
    assert_close,
    assert_same_subspace,
    falling,
    matrix_with_spectrum,
    one_line,
    sample_data,
)
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

from streampca import PCA, InputError

# ---------------------------------------------------------------- every option is read


def test_n_components_is_read():
    assert PCA(2).fit(sample_data()).components_.shape == (2, 15)
    assert PCA().fit(sample_data()).components_.shape == (15, 15)
    assert PCA(np.int64(2)).fit(sample_data()).n_components_ == 2
    assert PCA(0.5).fit(sample_data()).n_components_ < PCA(0.99).fit(sample_data()).n_components_


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov", "power"])
def test_scale_is_read(shape, solver):
    x = sample_data(shape) * np.linspace(1, 50, SHAPES[shape][1])
    z = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    ours, theirs = PCA(3, scale="unit", solver=solver, tol=1e-9).fit(x), SklearnPCA(3, svd_solver="full").fit(z)
    assert_close(ours.explained_variance_, theirs.explained_variance_)
    assert_close(ours.components_, theirs.components_)
    assert_close(ours.transform(x), theirs.transform(z))
    assert_close(ours.scale_, x.std(axis=0, ddof=1))
    assert ours.total_variance_ == pytest.approx(x.shape[1], rel=1e-9)
    assert PCA(3).fit(x).scale_ is None


def test_scale_leaves_constant_features_alone():
    x = sample_data()
    x[:, 2] = 7.0
    model = PCA(3, scale="unit").fit(x)
    assert model.scale_[2] == 1
    assert np.abs(model.components_[:, 2]).max() < 1e-12
    assert model.total_variance_ == pytest.approx(14)


def test_whiten_is_read():
    scores = PCA(3, whiten=True).fit_transform(sample_data())
    np.testing.assert_allclose(scores.std(axis=0, ddof=1), 1, rtol=1e-9)
    assert PCA(3).fit_transform(sample_data()).std(axis=0, ddof=1)[0] > 2


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov", "power"])
def test_solver_is_read(solver):
    assert PCA(2, solver=solver).fit(sample_data()).result_.attrs["solver"] == solver


def test_tol_is_read():
    x = matrix_with_spectrum(300, 80, falling(80, 0.9))
    loose, tight = (PCA(2, solver="krylov", tol=tol).fit(x) for tol in (0.5, 1e-10))
    assert loose.n_sweeps_ < tight.n_sweeps_
    assert tight.certificate_.max() <= 1e-10 < loose.certificate_.max() <= 0.5


def test_memory_is_read():
    with pytest.raises(InputError, match="1 MB is allowed"):
        PCA(2, memory_limit="1MB").fit(sample_data())
    model = PCA(2, memory_limit="8GB").fit(sample_data())
    with pytest.raises(InputError, match="1 MB is allowed"):
        model.set_params(memory_limit="1MB").transform(sample_data())


def test_random_state_is_read():
    x = matrix_with_spectrum(300, 80, falling(80, 0.9))
    a, b, c = (PCA(2, solver="krylov", random_state=seed).fit(x).components_ for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert_same_subspace(a, c, within=1e-4)
    assert PCA(2, solver="krylov", random_state=np.random.RandomState(0)).fit(x).n_components_ == 2


def test_progress_is_read():
    steps = []
    model = PCA(2, progress=steps.append).fit(sample_data())
    assert steps[-1].done == steps[-1].total
    seen = len(steps)
    model.transform(sample_data())
    assert len(steps) > seen


def test_every_option_has_a_test_here():
    options = {"n_components", "scale", "missing", "whiten", "solver", "tol", "memory_limit", "random_state",
               "progress"}  # fmt: skip
    # Those of certificate and resolve are in test_certificate_option.py and test_resolve.py.
    assert set(PCA().get_params()) == options | {"certificate", "resolve"}


# ---------------------------------------------------------------- bad input


BAD = {
    "k too large": ({"n_components": 16}, "n_components must be at most 15"),
    "k zero": ({"n_components": 0}, "got 0"),
    "k negative": ({"n_components": -1}, "an integer >= 1, a number between 0 and 1 or all, got -1"),
    "fraction too large": ({"n_components": 1.5}, "a number between 0 and 1"),
    "fraction zero": ({"n_components": 0.0}, "a number between 0 and 1"),
    "true": ({"n_components": True}, "got True"),
    "mle": ({"n_components": "mle"}, "got 'mle'"),
    "unknown solver": ({"solver": "svd"}, "auto, covariance, gram, krylov or power"),
    "unknown scale": ({"scale": "log"}, "auto, none, unit, patterson, eigenstrat or coslat"),
    "unknown missing": ({"missing": "drop"}, "auto, error, mean or lsq"),
    "tol zero": ({"tol": 0}, "between 0 and 1"),
    "tol negative": ({"tol": -1e-3}, "between 0 and 1"),
    "tol nan": ({"tol": float("nan")}, "between 0 and 1"),
    "tol a word": ({"tol": "small"}, "between 0 and 1"),
    "memory a word": ({"memory_limit": "lots"}, "'600MB'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options_are_refused_before_reading(name):
    options, words = BAD[name]
    source = CountingSource(sample_data(), (10, 15))
    with pytest.raises(InputError) as error:
        PCA(**options).fit(source)
    assert words in one_line(error)
    assert source.reads == []


@pytest.mark.parametrize("solver", ["auto", "covariance", "gram", "krylov", "power"])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_data_without_variance_are_refused(solver, scale):
    with pytest.raises(InputError) as error:
        PCA(1, solver=solver, scale=scale).fit(np.full((20, 5), 1 / 3))
    assert "variance is zero" in one_line(error)


def test_one_sample_is_refused():
    with pytest.raises(InputError) as error:
        PCA(1).fit(np.ones((1, 5)))
    assert "2 samples" in one_line(error)


def test_other_features_than_fitted_are_refused(tmp_path):
    model = PCA(2).fit(sample_data())
    np.save(tmp_path / "narrow.npy", sample_data()[:, :9])
    with pytest.raises(InputError) as error:
        model.transform(tmp_path / "narrow.npy")
    assert "9 features" in one_line(error)
    assert "15 features" in one_line(error)
    with pytest.raises(ValueError, match="9 features"):
        model.transform(sample_data()[:, :9])
