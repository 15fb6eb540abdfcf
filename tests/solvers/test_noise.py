"""The test of components against noise: published quantiles, another program's table, and simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import airy
from scipy.stats import kstest

from streampca.solvers.noise import Spectrum, after_last, noise_test, p_values, second_moment, tracy_widom_tail

# What EIGENSOFT's twstats prints for these eigenvalues: statistic, p-value, effective n.
EIGENVALUES = np.array(
    [9.1, 4.2, 2.6, 1.9, 1.7, 1.55, 1.4, 1.3, 1.2, 1.1, 1.0, 0.95, 0.9, 0.8, 0.75, 0.7, 0.6, 0.55, 0.5, 0.45, 0.4]
    + [0.35, 0.3, 0.25, 0.2]
)
TWSTATS = np.array(
    [
        [3.905, 0.000270398, 16.281],
        [3.948, 0.000246612, 39.196],
        [1.702, 0.016966, 62.883],
        [-0.991, 0.413603, 76.811],
        [-1.354, 0.527312, 80.550],
        [-1.499, 0.573451, 83.346],
        [-1.848, 0.681668, 85.843],
        [-1.809, 0.670041, 87.098],
    ]
)


def exact(values, k, **more):
    """Return the test of k of these eigenvalues, which are all of them."""
    second = float((values[k:] ** 2).sum())
    return noise_test(values[:k], Spectrum(order=len(values), trace=values.sum(), second=second, **more))


def test_quantiles_of_the_tracy_widom_distribution():
    # Bejan (2005), Largest eigenvalues and sample covariance matrices, table 1.
    quantiles = [-3.8954, -3.1804, -1.2686, 0.4501, 0.9793, 2.0234]
    assert tracy_widom_tail(np.array(quantiles)) == pytest.approx([0.99, 0.95, 0.5, 0.1, 0.05, 0.01], rel=3e-4)


def determinant(x):
    """Return P(X > x) as 1 - det(I - B), B(s, t) = Ai(s + t + x) on s, t > 0 (Ferrari & Spohn 2005), by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    nodes, roots = (nodes + 1) * 8, np.sqrt(weights * 8)
    parts = np.linalg.eigvalsh(roots[:, None] * airy(nodes[:, None] + nodes + x)[0] * roots)
    return -np.expm1(np.log1p(-parts).sum())


def test_the_table_of_the_tail_is_that_of_the_determinant():
    x = np.linspace(-5.9, 20, 300)
    expected = np.array([determinant(one) for one in x])
    assert tracy_widom_tail(x[x < 10]) == pytest.approx(expected[x < 10], rel=3e-5, abs=0)
    assert tracy_widom_tail(x) == pytest.approx(expected, rel=0.03, abs=0)
    assert (tracy_widom_tail(np.array([-6.0, -50.0])) > 1 - 1e-5).all()


def test_the_tail_is_monotone_and_keeps_its_digits():
    x = np.linspace(-12, 90, 200)
    tail = tracy_widom_tail(x)
    assert ((tail >= 0) & (tail <= 1)).all()
    assert (np.diff(tail) <= 1e-14).all()
    # The first term of the expansion for large x.
    expected = np.exp(-2 / 3 * 60**1.5) / (4 * np.sqrt(np.pi) * 60**0.75)
    assert tracy_widom_tail(np.array([60.0]))[0] == pytest.approx(expected, rel=0.03, abs=0)
    assert np.isnan(tracy_widom_tail(np.array([np.nan]))).all()


def test_the_table_of_twstats():
    test = exact(EIGENVALUES, 8)
    assert test.statistic == pytest.approx(TWSTATS[:, 0], abs=6e-4)
    assert test.p_value == pytest.approx(TWSTATS[:, 1], rel=2e-4)
    assert test.n_effective == pytest.approx(TWSTATS[:, 2], abs=6e-4)
    assert test.noise.tolist() == [False] * 3 + [True] * 5


def test_a_component_before_a_real_one_is_real():
    assert after_last(np.array([True, False, True, False, False])).tolist() == [False] * 3 + [True] * 2
    # The test takes few equal strong components for noise of few degrees of freedom, except the last of them.
    values = np.concatenate([np.full(10, 1e4), np.linspace(1.5, 0.5, 4000)])
    assert exact(values, 12).noise.tolist() == [False] * 10 + [True] * 2


def test_equal_eigenvalues_are_not_called_noise():
    assert not exact(np.ones(50), 3).noise.any()


def test_two_eigenvalues_are_not_tested():
    assert np.isnan(exact(np.array([2.0, 1.0]), 2).p_value).all()
    assert not exact(np.array([2.0, 1.0]), 2).noise.any()


def test_p_values_of_structureless_data_are_uniform():
    p_values = []
    for seed in range(150):
        X = np.random.default_rng(seed).normal(size=(120, 600))
        X -= X.mean(axis=0)
        values = np.linalg.eigvalsh(X @ X.T)[::-1][:-1]
        p_values.append(exact(values, 3).p_value[0])
    assert kstest(p_values, "uniform").pvalue > 0.01


def test_the_second_moment_from_eight_random_vectors(rng):
    Q, _ = np.linalg.qr(rng.normal(size=(400, 400)))
    values = np.sort(np.concatenate([[90.0, 40.0, 12.0], rng.gamma(4, 0.3, 396), [0.0]]))[::-1]
    S, k = (Q * values) @ Q.T, 5
    U, expected = Q[:, :k], float((values[k:] ** 2).sum())
    estimates = []
    for seed in range(60):
        G = np.random.default_rng(seed).normal(size=(400, 8))
        estimates.append(second_moment(G, S @ G, U, S @ U, float(values[k:].sum()), Q[:, -1]))
    moment, error = np.array(estimates).T
    assert moment == pytest.approx([expected] * 60, rel=0.06)
    assert moment.mean() == pytest.approx(expected, rel=0.005)
    assert error.mean() == pytest.approx(moment.std(), rel=0.3)


def test_p_values_allow_for_the_error_of_the_statistic(rng):
    # The distribution of X + e Z by simulation: X from the largest eigenvalue of a Wishart matrix.
    x, error = np.array([-3.0, -1.0, 0.5, 2.0, 4.0]), np.full(5, 1.5)
    quantiles = np.linspace(-9, 9, 4001)
    draws = np.interp(rng.random(200_000), 1 - tracy_widom_tail(quantiles), quantiles) + 1.5 * rng.normal(size=200_000)
    assert p_values(x, error) == pytest.approx([(draws > one).mean() for one in x], rel=0.04)
    assert (p_values(x, np.zeros(5)) == tracy_widom_tail(x)).all()
    # Far from the edge an error changes nothing that matters.
    assert p_values(np.array([60.0, 900.0]), np.full(2, 1.5)) == pytest.approx([0, 0], abs=1e-100)


@pytest.mark.parametrize("other_side", [False, True])
@pytest.mark.parametrize("strength", [0.8, 1.5, 4.0])
def test_squared_cosines_are_those_of_simulations(strength, other_side):
    # A component of variance 1 + strength in noise of variance 1.
    m, n, cosines, estimates = 150, 500, [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        direction, weights = rng.normal(size=m), rng.normal(size=n)
        direction /= np.linalg.norm(direction)
        A = rng.normal(size=(n, m)) + np.sqrt(strength) * np.outer(weights, direction)
        values, vectors = np.linalg.eigh(A.T @ A / n)
        values, u = values[::-1], vectors[:, -1]
        y = A @ u / np.linalg.norm(A @ u)
        truth = weights / np.linalg.norm(weights)
        cosines.append((y @ truth) ** 2 if other_side else (u @ direction) ** 2)
        estimates.append(exact(values, 3, other_side=other_side).squared_cosine[0])
    assert np.mean(estimates) == pytest.approx(np.mean(cosines), abs=0.04)
