"""EM of latent factors as sweeps: against a dense EM of its own, in both cuts, with and without acceleration."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import CountingSource, assert_same_subspace
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_helpers import (
    CUTS,
    PATTERNS,
    ROWS,
    closed_form,
    covariance_of,
    cut_along,
    dense_em,
    log_densities,
    mean_filled,
    planted,
    quick_sweeps,  # noqa: F401
    with_gaps,
)
from scipy.stats import multivariate_normal

from streampca.models.ppca.plan import latent_sweeps
from streampca.progress import silent
from streampca.solvers.em.factors import Factors, Packing, Posterior, dimensions
from streampca.solvers.em.loop import EM, ByFeatures, BySamples, ByScatter
from streampca.sweep.memory import Budget
from streampca.sweep.missing import MissingEntries
from streampca.sweep.scaling import Scaling

LEAST = 1e-10


class Recorder:
    """An iteration that remembers each likelihood, and what it was started from."""

    def __init__(self, iteration):
        self.iteration = iteration
        self.raw = []

    def begin(self, start):
        state, known = self.iteration.begin(start)
        self.raw += known
        return state, known

    def step(self, state):
        found = self.iteration.step(state)
        self.raw.append(found[0])
        return found


def iteration_of(x, cut, *, k, expand=False, dtype=np.float64, gaps=None):
    """A step by sweeps cut along samples or features, about the mean of the observed values."""
    centre = np.nan_to_num(np.nanmean(np.vstack([x, np.zeros((1, x.shape[1]))]), axis=0))
    chunks = (8, x.shape[1]) if cut == ROWS else (x.shape[0], 2)
    gaps = bool(np.isnan(x).any()) if gaps is None else gaps
    with cut_along(cut):
        sweeps = latent_sweeps(
            CountingSource(x, chunks), k, gaps, Scaling(centre), np.dtype(dtype), Budget.of(None), silent
        )
    assert sweeps.matrix.axis == CUTS[cut]
    squares = np.nansum((x - centre) ** 2, axis=0)
    way = BySamples if cut == ROWS else ByFeatures
    return way(sweeps, squares, gaps, expand, np.full(x.shape[1], LEAST * np.nanvar(x))), centre


def start_of(d, k, own=False, seed=3):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.5, 2.0, d) if own else 0.8
    return Factors(rng.standard_normal((d, k)), 0.1 * rng.standard_normal(d), noise)


def fitted(x, cut, start, *, steps, accelerate=False, tol=1e-14, dtype=np.float64, gaps=None):
    way, centre = iteration_of(x, cut, k=start.n_components, expand=accelerate, dtype=dtype, gaps=gaps)
    recorder = Recorder(way)
    with way.sweeps:
        fit = EM(recorder, 1, tol, steps, accelerate).fit(start)
    return fit, centre, recorder


# ---------------------------------------------------------------- the steps


def test_the_likelihood_to_check_by_is_scipys():
    x = with_gaps(planted(20, 6, 2), "samples")
    factors = start_of(6, 2, own=True)
    C = covariance_of(*_parts(factors))
    seen = [~np.isnan(row) for row in x]
    expected = [
        multivariate_normal(factors.shift[o], C[np.ix_(o, o)]).logpdf(row[o]) if o.any() else 0.0
        for row, o in zip(x, seen, strict=True)
    ]
    np.testing.assert_allclose(log_densities(x, *_parts(factors)), expected, rtol=1e-12)


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("own", [False, True], ids=["common noise", "own noise"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_iterations_are_those_of_a_dense_em(pattern, cut, own):
    x = with_gaps(planted(40, 9, 2), pattern)
    start = start_of(9, 2, own)
    fit, centre, _ = fitted(x, cut, start, steps=5)
    history = list(dense_em(x - centre, start.W, start.shift, start.noise, 5, own))
    # Cut along samples a sweep tells the likelihood of what it started from, cut along features of what it came to.
    reached = history[: len(fit.likelihoods)]
    assert len(reached) == (5 if cut == ROWS else 6)
    W, mu, noise = reached[-1]
    known = ~np.isnan(x).all(axis=0)
    np.testing.assert_allclose(fit.factors.W, W, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(fit.factors.shift, mu, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        np.broadcast_to(fit.factors.noise, 9)[known], np.broadcast_to(noise, 9)[known], rtol=1e-8
    )
    floored = [(W, mu, np.where(known, noise, 1.0) if np.ndim(noise) else noise) for W, mu, noise in reached]
    expected = [log_densities(x - centre, *model).sum() for model in floored]
    np.testing.assert_allclose(fit.likelihoods, expected, rtol=1e-9)


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("cut", CUTS)
def test_float32_tiles_lose_no_more_than_their_rounding(cut):
    x = with_gaps(planted(60, 9, 2, mean=100.0), 0.3).astype(np.float32)
    start = start_of(9, 2)
    fit, centre, _ = fitted(x, cut, start, steps=6, dtype=np.float32)
    reached = list(dense_em(x.astype(float) - centre, start.W, start.shift, start.noise, 6))[: len(fit.likelihoods)]
    np.testing.assert_allclose(covariance_of(*_parts(fit.factors)), covariance_of(*reached[-1]), rtol=1e-4, atol=1e-5)
    assert fit.likelihoods[-1] == pytest.approx(log_densities(x - centre, *reached[-1]).sum(), rel=1e-6)


def _parts(factors):
    return factors.W, factors.shift, factors.noise


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("own", [False, True])
def test_allowing_for_gaps_changes_nothing_where_there_are_none(cut, own):
    x = planted(50, 8, 2)
    start = start_of(8, 2, own)
    without, _, _ = fitted(x, cut, start, steps=6, gaps=False)
    allowed, _, _ = fitted(x, cut, start, steps=6, gaps=True)
    np.testing.assert_allclose(allowed.likelihoods, without.likelihoods, rtol=1e-11)
    np.testing.assert_allclose(allowed.factors.W, without.factors.W, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_scatter_alone_gives_the_same_iterations(own, accelerate):
    x = planted(50, 8, 2)
    start = Factors(start_of(8, 2).W, np.zeros(8), start_of(8, 2, own).noise)
    centred = x - x.mean(axis=0)
    least = np.full(8, 1e-12)
    by_scatter = EM(ByScatter(centred.T @ centred, 50, accelerate, least), 1, 1e-14, 12, accelerate).fit(start)
    way = BySamples(iteration_of(centred, ROWS, k=2)[0].sweeps, (centred**2).sum(axis=0), False, accelerate, least)
    by_sweeps = EM(way, 1, 1e-14, 12, accelerate).fit(start)
    np.testing.assert_allclose(by_scatter.likelihoods, by_sweeps.likelihoods, rtol=1e-9)
    np.testing.assert_allclose(
        covariance_of(*_parts(by_scatter.factors)), covariance_of(*_parts(by_sweeps.factors)), rtol=1e-7, atol=1e-9
    )


# ---------------------------------------------------------------- where it comes to


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("shape", [(80, 7), (15, 40)])
def test_complete_data_lead_to_the_closed_form_from_anywhere(cut, shape):
    x = planted(*shape, 2, noise=0.3)
    fit, centre, _ = fitted(x, cut, start_of(shape[1], 2), steps=100, accelerate=True, tol=1e-10)
    W, mu, noise = closed_form(x, 2)
    assert fit.converged
    assert_same_subspace(np.linalg.qr(W)[0].T, np.linalg.qr(fit.factors.W)[0].T, within=1e-8)
    assert fit.factors.noise == pytest.approx(noise, rel=1e-5)
    assert fit.likelihoods[-1] == pytest.approx(log_densities(x, W, mu, noise).sum(), rel=1e-8)
    np.testing.assert_allclose(fit.factors.shift + centre, mu, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_acceleration_saves_steps_and_keeps_the_answer(cut, own):
    x = with_gaps(planted(100, 8, 2, noise=1.0, seed=1), 0.3)
    W, _, noise = closed_form(mean_filled(x), 2)
    start = Factors(W, np.zeros(8), np.full(8, noise) if own else noise)
    plain, centre, _ = fitted(x, cut, start, steps=400, tol=1e-4)
    fast, _, _ = fitted(x, cut, start, steps=400, tol=1e-4, accelerate=True)
    assert plain.converged
    assert fast.converged
    assert fast.n_steps < plain.n_steps
    assert fast.likelihoods[-1] == pytest.approx(plain.likelihoods[-1], rel=1e-6)
    for fit in (plain, fast):
        assert fit.likelihoods[-1] == pytest.approx(log_densities(x - centre, *_parts(fit.factors)).sum(), rel=1e-9)


@settings(max_examples=20)
@given(
    st.integers(20, 45), st.integers(6, 11), st.integers(1, 2), st.floats(0.0, 0.5), st.floats(0.3, 2.0),
    st.sampled_from(sorted(CUTS)), st.booleans(), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_the_likelihood_never_falls(n, d, k, share, noise, cut, own, accelerate, seed):
    x = with_gaps(planted(n, d, k, noise=noise, seed=seed), share, seed)
    fit, centre, recorder = fitted(
        x, cut, start_of(d, k, own, seed), steps=25, accelerate=accelerate, tol=1e-9
    )  # fmt: skip
    raw, slack = np.array(recorder.raw), 1e-10 * np.abs(recorder.raw).max()
    # What is reported is a running maximum by construction: look at what the sweeps themselves gave.
    fallen = raw < np.maximum.accumulate(raw) - slack
    assert accelerate or not fallen.any()
    assert set(fit.likelihoods) <= set(raw[~fallen])
    assert np.diff(fit.likelihoods).min(initial=0) >= 0
    # The likelihood reported is that of the parameters returned.
    assert fit.likelihoods[-1] == pytest.approx(log_densities(x - centre, *_parts(fit.factors)).sum(), rel=1e-7)


@pytest.mark.parametrize("cut", CUTS)
def test_a_mean_that_does_not_fit_its_samples_is_put_right(cut):
    """Values missing for a reason: a feature seen only where the factor is large has a mean below those seen."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal(2000)
    x = np.outer(z, np.ones(6)) + 0.1 * rng.standard_normal((2000, 6))
    x[z < 0.5, 0] = np.nan
    fit, centre, _ = fitted(x, cut, start_of(6, 1), steps=500, accelerate=True, tol=1e-8)
    assert np.nanmean(x[:, 0]) > 1
    assert abs((fit.factors.shift + centre)[0]) < 0.1


@pytest.mark.parametrize("cut", CUTS)
def test_stopping_early_is_said(cut):
    x = with_gaps(planted(60, 9, 2), 0.3)
    fit, _, _ = fitted(x, cut, start_of(9, 2), steps=3, tol=1e-9)
    assert not fit.converged
    assert fit.n_steps == 3
    assert fit.change > 1e-9


# ---------------------------------------------------------------- parts


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.sampled_from("CF"), st.integers(0, 99))
def test_sums_over_gaps_are_those_of_a_mask(t, N, share, order, seed):
    rng = np.random.default_rng(seed)
    absent = rng.random((t, N)) < share
    values = rng.standard_normal((t, N))
    A = np.array(np.where(absent, np.nan, values), order=order)
    gaps = MissingEntries.taken(A)
    np.testing.assert_array_equal(A, np.where(absent, 0, values))
    full, rows = rng.standard_normal((N, 3)), rng.standard_normal((t, 2))
    np.testing.assert_allclose(gaps.sums_of_rows(full), absent @ full, atol=1e-12)
    total = rng.standard_normal((N, 2))
    expected = total + absent.T @ rows
    gaps.add_to_columns(rows, total)
    np.testing.assert_allclose(total, expected, atol=1e-12)
    np.testing.assert_array_equal(gaps.of_each_row, absent.sum(axis=1))
    np.testing.assert_array_equal(gaps.columns * t + gaps.rows, np.flatnonzero(absent.T.ravel()))


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_packed_matrices_come_back(k):
    rng = np.random.default_rng(k)
    root = rng.standard_normal((4, k, k))
    matrices = root @ np.swapaxes(root, 1, 2)
    packing = Packing(k)
    packed = packing.packed(matrices)
    assert packed.shape == (4, k * (k + 1) // 2)
    np.testing.assert_array_equal(packing.unpacked(packed), matrices)
    rows, weights = rng.standard_normal((4, k)), rng.random(4)
    np.testing.assert_allclose(
        packing.unpacked(packing.outer(rows, weights)), np.einsum("n,ni,nj->nij", weights, rows, rows)
    )
    assert dimensions(np.zeros((k + 1) * (k + 2) // 2 + 1)) == k


@pytest.mark.parametrize("own", [False, True])
def test_turning_to_principal_axes_keeps_the_model(own):
    factors = start_of(7, 3, own)
    turned, R = factors.rotated()
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(turned.W, factors.W @ R, atol=1e-12)
    np.testing.assert_allclose(covariance_of(*_parts(turned)), covariance_of(*_parts(factors)), atol=1e-12)
    inner = turned.W.T @ (turned.W / np.reshape(factors.noise if own else np.ones(7), (-1, 1)))
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-12)
    assert (np.diff(np.diag(inner)) <= 0).all()
    assert (turned.W[np.abs(turned.W).argmax(axis=0), range(3)] > 0).all()
    packing = Packing(3)
    covariance = np.stack([np.diag([1.0, 0.5, 0.2]), np.eye(3)])
    posterior = Posterior(np.ones((2, 3)), packing.packed(covariance)).rotated(R)
    np.testing.assert_allclose(posterior.mean, np.ones((2, 3)) @ R)
    np.testing.assert_allclose(packing.unpacked(posterior.covariance), R.T @ covariance @ R, atol=1e-12)
    np.testing.assert_allclose(posterior.deviations() ** 2, [np.diag(R.T @ c @ R) for c in covariance])
