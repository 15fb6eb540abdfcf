"""Kernels and feature maps against scikit-learn's functions and formulas; gamma; features as a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import CountingSource, one_line
from scipy.spatial.distance import pdist
from sklearn.metrics import pairwise

from streampca import InputError
from streampca.solvers.kernel.kernels import KERNELS, FourierMap, Kernel, LandmarkMap, draw_frequencies, gamma_of
from streampca.sweep.matrix import FeatureMatrix, Matrix
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Scatter, symmetric
from streampca.sweep.sweep import Sweeps

GAMMA, DEGREE, COEF0 = 0.07, 3.0, 0.5

THEIRS = {
    "linear": pairwise.linear_kernel,
    "poly": lambda x, y: pairwise.polynomial_kernel(x, y, degree=DEGREE, gamma=GAMMA, coef0=COEF0),
    "rbf": lambda x, y: pairwise.rbf_kernel(x, y, gamma=GAMMA),
    "laplacian": lambda x, y: pairwise.laplacian_kernel(x, y, gamma=GAMMA),
    "cosine": pairwise.cosine_similarity,
    "sigmoid": lambda x, y: pairwise.sigmoid_kernel(x, y, gamma=GAMMA, coef0=COEF0),
}


def points(n=300, d=7, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def kernel(name):
    return Kernel(name, GAMMA, DEGREE, COEF0)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-13), (np.float32, 3e-6)])
@pytest.mark.parametrize("name", KERNELS)
def test_values_are_those_of_scikit_learn(name, dtype, within):
    x, y = points(dtype=dtype), points(40, seed=1, dtype=dtype)
    expected = THEIRS[name](x.astype(float), y.astype(float))
    found = kernel(name).values(x, y)
    assert (found.shape, found.dtype) == ((300, 40), np.dtype(dtype))
    np.testing.assert_allclose(found, expected, atol=within * np.abs(expected).max())
    into = np.full((300, 41), np.nan, dtype)
    assert np.array_equal(kernel(name).with_prepared(x, kernel(name).prepared(y, dtype), into[:, :40]), found)
    assert np.isnan(into[:, 40]).all()


@pytest.mark.parametrize("name", KERNELS)
def test_the_diagonal_is_that_of_all_pairs(name):
    x = points()
    x[3] = 0
    np.testing.assert_allclose(kernel(name).diagonal(x), np.diag(THEIRS[name](x, x)), atol=1e-12)


def test_strips_of_many_rows_are_joined(monkeypatch):
    monkeypatch.setattr("streampca.solvers.kernel.kernels.STRIP_BYTES", 1 << 10)
    x, y = points(1003), points(50, seed=1)
    np.testing.assert_allclose(kernel("rbf").values(x, y), THEIRS["rbf"](x, y), atol=1e-14)
    frequencies = draw_frequencies(kernel("rbf"), 40, 7, 0)
    expected = np.hstack([np.cos(x @ frequencies.T), np.sin(x @ frequencies.T)]) / np.sqrt(40)
    np.testing.assert_allclose(FourierMap(frequencies)(x), expected, atol=1e-14)


def test_rbf_is_never_above_one():
    x = points(dtype=np.float32) * 100
    assert kernel("rbf").values(x, x).max() <= 1
    assert Kernel("rbf", 1e-12).values(x, x).max() <= 1


@pytest.mark.parametrize("factor", [1e-200, 1e-310, 1e200])
def test_cosine_does_not_depend_on_length(factor):
    x, y = points(), points(40, seed=1)
    found = kernel("cosine").values(x * factor, y)
    np.testing.assert_allclose(found, THEIRS["cosine"](x, y), atol=1e-5 if factor < 1e-300 else 1e-13)


def test_cosine_with_nothing_is_zero():
    x = points()
    x[5] = 0
    K = kernel("cosine").values(x, x)
    assert not K[5].any()
    assert not K[:, 5].any()
    assert np.isfinite(K).all()


def test_a_function_gives_all_pairs():
    custom = Kernel("mine", function=pairwise.chi2_kernel)
    x = np.abs(points(37))
    np.testing.assert_array_equal(custom.values(x, x[:9]), pairwise.chi2_kernel(x, x[:9]))
    np.testing.assert_allclose(custom.diagonal(x), np.diag(pairwise.chi2_kernel(x, x)))
    with pytest.raises(InputError) as error:
        Kernel("mine", function=lambda x, _: x @ x.T).values(x, x[:9])
    assert "(37, 37)" in one_line(error)
    assert "(37, 9)" in one_line(error)


# ---------------------------------------------------------------- gamma


def test_gamma_is_by_its_formula():
    x = points(200) * 3 + 5
    assert gamma_of(0.3, "rbf", x) == 0.3
    assert gamma_of(None, "rbf", x) == pytest.approx(1 / 7)
    assert gamma_of("scale", "rbf", x) == pytest.approx(1 / (7 * x.var()))
    assert gamma_of("scale", "poly", x) == pytest.approx(1 / (7 * x.var()))
    assert gamma_of("median", "rbf", x) == pytest.approx(1 / (2 * np.median(pdist(x)) ** 2))
    assert gamma_of("median", "laplacian", x) == pytest.approx(1 / np.median(pdist(x, "cityblock")))


@pytest.mark.parametrize("gamma", ["scale", "median"])
def test_gamma_of_samples_that_are_the_same_names_the_cure(gamma):
    with pytest.raises(InputError) as error:
        gamma_of(gamma, "rbf", np.full((50, 3), 2.5))
    assert "give gamma as a number" in one_line(error)


# ---------------------------------------------------------------- random Fourier features


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_the_error_of_fourier_features_falls_as_their_root(name):
    x = points(150, 4)
    exact = THEIRS[name](x, x)
    errors = []
    for count in (50, 800, 12_800):
        features = FourierMap(draw_frequencies(kernel(name), count, 4, seed=1))
        F = np.array(features(x))
        assert F.shape == (150, features.n_features) == (150, 2 * count)
        np.testing.assert_allclose((F**2).sum(axis=1), 1, rtol=1e-12)
        errors.append(np.sqrt(np.mean((F @ F.T - exact) ** 2)))
    # Four times smaller for sixteen times as many.
    assert errors[1] < errors[0] / 2
    assert errors[2] < errors[1] / 2
    assert errors[2] < 0.01


def test_fourier_features_of_other_kernels_are_refused():
    with pytest.raises(InputError, match="use landmarks"):
        draw_frequencies(kernel("poly"), 4, 2, 0)


# ---------------------------------------------------------------- features as a matrix


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_are_swept_as_any_matrix(dtype):
    x = points(1003, dtype=dtype)
    source = CountingSource(x, (50, 7))
    scaling = Scaling(np.arange(7.0), np.arange(7.0) + 0.5)
    parts = tuple((i, min(i + 300, 1003)) for i in range(0, 1003, 300))
    inputs = Matrix(source, 0, np.dtype(dtype), scaling=scaling, partitions=parts, slab_length=100)
    landmarks = points(20, seed=2, dtype=dtype)
    matrix = FeatureMatrix.of(inputs, LandmarkMap(kernel("rbf"), landmarks, with_diagonal=True))
    assert matrix.n_full == 22
    scatter, moments = Sweeps(matrix, 2).run(Scatter(), "features")
    scaled = (x.astype(float) - np.arange(7)) / (np.arange(7) + 0.5)
    K = THEIRS["rbf"](scaled, landmarks.astype(float))
    r = K.mean(axis=1, keepdims=True)
    F = np.hstack([K - r, r, np.ones((1003, 1))])
    within = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(moments.mean, F.mean(axis=0), atol=within)
    centred = F - F.mean(axis=0)
    np.testing.assert_allclose(symmetric(scatter), centred.T @ centred, atol=within * 1003)
    assert source.times_read().min() == source.times_read().max() == 1
