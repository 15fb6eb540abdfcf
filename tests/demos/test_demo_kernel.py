"""What kernel PCA does that PCA cannot: separate circles, unroll a Swiss roll, denoise digits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_circles, make_swiss_roll
from sklearn.linear_model import LinearRegression, LogisticRegression

from streampca import PCA, KernelPCA

NOISE = 4.0


def circles():
    return make_circles(1000, factor=0.3, noise=0.05, random_state=0)


def separated(Z, labels):
    return LogisticRegression().fit(Z, labels).score(Z, labels)


def explained(Z, position):
    """R2 of a position by linear regression, fitted to every second sample and scored on the others."""
    return LinearRegression().fit(Z[::2], position[::2]).score(Z[1::2], position[1::2])


def squared(X, Y):
    return float(np.mean((X - Y) ** 2))


def test_no_line_separates_circles_by_linear_scores():
    X, circle = circles()
    assert separated(PCA(2).fit_transform(X), circle) < 0.7


@pytest.mark.parametrize("n_landmarks", [100, 1000])
def test_a_line_separates_circles_by_kernel_scores(n_landmarks):
    X, circle = circles()
    assert separated(KernelPCA(2, gamma=3, n_landmarks=n_landmarks).fit_transform(X), circle) == 1


@pytest.mark.parametrize("n_landmarks", [100, 500])
def test_a_line_separates_circles_out_of_sample(n_landmarks):
    X, circle = circles()
    model = KernelPCA(2, gamma=3, n_landmarks=n_landmarks)
    line = LogisticRegression().fit(model.fit_transform(X[::2]), circle[::2])
    assert line.score(model.transform(X[1::2]), circle[1::2]) == 1


@pytest.mark.parametrize("n_landmarks", [100, 1500])
def test_the_position_along_a_roll_is_linear_in_kernel_scores(n_landmarks):
    X, position = make_swiss_roll(1500, noise=0.3, random_state=0)
    X = X[:, [0, 2]]
    assert explained(PCA().fit_transform(X), position) < 0.2
    Z = KernelPCA(10, gamma=0.07, n_landmarks=n_landmarks).fit_transform(X)
    assert explained(Z, position) > 0.93
    # It is bent less in the plane, but not flat.
    assert 0.35 < explained(Z[:, :2], position) < 0.6


@pytest.fixture(scope="module")
def digits():
    """Half of the digits, the other half, this with noise, and the least error that PCA leaves of it with any k."""
    rng = np.random.default_rng(0)
    X = rng.permutation(load_digits().data)
    fitted, clean = X[: len(X) // 2], X[len(X) // 2 :]
    noisy = clean + NOISE * rng.standard_normal(clean.shape)
    model = PCA().fit(fitted)
    V, centred = model.components_, noisy - model.mean_
    errors = [squared(centred @ V[:k].T @ V[:k] + model.mean_, clean) for k in range(len(V) + 1)]
    assert 6 < min(errors) < 8
    return fitted, clean, noisy, min(errors)


def test_kernel_pca_halves_the_noise_that_pca_leaves(digits):
    fitted, clean, noisy, linear = digits
    model = KernelPCA(400, gamma=0.001).fit(fitted)
    assert squared(model.denoise(noisy), clean) < 0.55 * linear
    # Scores alone lead to the same place as a start at the sample itself.
    assert squared(model.inverse_transform(model.transform(noisy)), clean) < 0.55 * linear


def test_few_landmarks_leave_less_noise_than_pca(digits):
    fitted, clean, noisy, linear = digits
    model = KernelPCA(200, gamma=0.0005, n_landmarks=300).fit(fitted)
    assert squared(model.denoise(noisy), clean) < 0.8 * linear


def test_a_learnt_pre_image_leaves_less_noise_than_pca(digits):
    fitted, clean, noisy, linear = digits
    model = KernelPCA(200, gamma=0.0005, fit_inverse_transform=True).fit(fitted)
    assert squared(model.denoise(noisy), clean) < 0.9 * linear


def test_kernel_pca_of_noisy_digits_leaves_less_noise_than_pca(digits):
    fitted, clean, noisy, linear = digits
    seen = fitted + NOISE * np.random.default_rng(1).standard_normal(fitted.shape)
    model = KernelPCA(400, gamma=0.001).fit(seen)
    assert squared(model.denoise(noisy), clean) < 0.8 * linear


def test_demo_kernel_draws_both_pictures(tmp_path, here):
    code, out, err = here("demo", "kernel", "--out", "here")
    assert code == 0, err
    assert "a linear classifier gets 100.0% of the points right" in out
    for name in ("kernel.png", "denoising.png"):
        assert f"picture: here/{name}" in out
        assert (tmp_path / "here" / name).read_bytes().startswith(b"\x89PNG")
