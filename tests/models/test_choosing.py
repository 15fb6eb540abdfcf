"""How many components: evidence and BIC from the spectrum, and the likelihood of values left out."""

from __future__ import annotations

import dask
import dask.array
import numpy as np
import pytest
import zarr
from helpers import CountingSource, falling, matrix_with_spectrum, one_line
from hypothesis import given
from hypothesis import strategies as st
from latent_helpers import (
    ROWS,
    closed_form,
    cut,  # noqa: F401
    log_densities,
    planted,
    quick_sweeps,  # noqa: F401
    with_gaps,
)
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811
from sklearn.decomposition._pca import _assess_dimension

from streampca import PPCA, FactorAnalysis, InputError, open_source
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.record import Choice
from streampca.models.ppca.spectrum import bic, closed_likelihood, evidence, simplest
from streampca.sources.wrappers import HeldOut, uniform


def factors(n, d, k, *, strength=2.0, seed=0):
    """Planted data whose factors are equally strong, in noise of 1."""
    rng = np.random.default_rng(seed)
    W = strength * np.linalg.qr(rng.standard_normal((d, k)))[0] * np.sqrt(d / k)
    return rng.standard_normal((n, k)) @ W.T + rng.standard_normal((n, d))


def spectrum_of(x):
    """Eigenvalues of the covariance (1 / n), falling."""
    return np.linalg.eigvalsh(np.cov(x.T, ddof=0))[::-1]


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("n", [40, 1000])
def test_evidence_is_minkas_as_scikit_learn_has_it(k, n):
    x = factors(n, 9, k)
    values = spectrum_of(x)
    ours = evidence(values[:8], values.sum(), n, 9)
    theirs = [_assess_dimension(values, rank, n) for rank in range(1, 9)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_evidence_from_a_part_of_the_spectrum_takes_the_rest_at_its_mean():
    values = spectrum_of(factors(200, 12, 3))
    flat = np.append(values[:5], np.full(7, values[5:].mean()))
    ours = evidence(values[:5], values.sum(), 200, 12)
    # Where the next eigenvalue equals the mean of the rest all is known; scikit-learn has no name for equal ones.
    theirs = [_assess_dimension(flat, rank, 200) for rank in range(1, 5)]
    np.testing.assert_allclose(ours[:4], theirs, rtol=1e-9)


@pytest.mark.parametrize("shape", [(100, 8), (12, 30)])
def test_bic_is_the_likelihood_less_its_parameters(shape):
    x = planted(*shape, 2)
    n, d = shape
    values = spectrum_of(x)[: min(shape) - 1]
    ours = bic(values, x.var(axis=0).sum(), n, d)
    for k in range(1, min(5, len(values))):
        W, mu, noise = closed_form(x, k)
        likelihood = log_densities(x, W, mu, noise).sum()
        # W up to rotation, the noise, the mean.
        parameters = d * k - k * (k - 1) / 2 + 1 + d
        assert ours[k - 1] == pytest.approx(likelihood - parameters * np.log(n) / 2, rel=1e-9)
        assert closed_likelihood(values[:k], x.var(axis=0).sum(), n, d) == pytest.approx(likelihood, rel=1e-9)


def test_the_simplest_within_the_error_is_taken():
    rng = np.random.default_rng(0)
    base = rng.standard_normal(400)
    clear = np.stack([base - 1, base, base + 1e-3 * rng.standard_normal(400) + 1e-6])
    assert np.argmax(clear.sum(axis=1)) in (1, 2)
    assert simplest(clear) == 2
    assert simplest(np.stack([base, base - 0.5, base - 1])) == 1
    assert simplest(np.stack([base, base + 0.5, base + 1])) == 3


def test_a_choice_at_the_end_of_what_was_looked_at_says_so():
    assert "more may be better" in Choice("bic", np.arange(1, 4), np.arange(3.0), 3).note
    assert "more may be better" not in Choice("bic", np.arange(1, 4), np.arange(3.0), 2).note


# ---------------------------------------------------------------- planted numbers


@pytest.mark.parametrize(("n", "d", "k"), [(300, 10, 1), (300, 10, 3), (500, 20, 5), (60, 12, 2), (200, 15, 9)])
def test_evidence_chooses_as_scikit_learn_does(n, d, k):
    x = factors(n, d, k, seed=k)
    theirs = SklearnPCA("mle", svd_solver="full").fit(x)
    ours = PPCA("auto").fit(x)
    assert ours.choice_.criterion == "evidence"
    assert ours.n_components_ == theirs.n_components_ == k
    assert ours.components_.shape == (k, d)
    np.testing.assert_array_equal(ours.choice_.candidates, np.arange(1, d))
    values = spectrum_of(x)
    np.testing.assert_allclose(
        ours.choice_.values, [_assess_dimension(values, rank, n) for rank in range(1, d)], rtol=1e-7
    )
    assert any(f"{k} components chosen by Minka's evidence" in note for note in ours.notes_)
    assert ours.log_likelihood_ == pytest.approx(PPCA(k).fit(x).log_likelihood_, rel=1e-9)


@pytest.mark.parametrize("k", [1, 4])
def test_bic_finds_the_planted_number(k):
    model = PPCA("auto", criterion="bic").fit(factors(400, 12, k, seed=k))
    assert model.n_components_ == k
    assert model.choice_.values.argmax() + 1 == k
    assert model.result_.attrs["criterion"] == "bic"
    np.testing.assert_array_equal(model.result_["criterion"], model.choice_.values)
    np.testing.assert_array_equal(model.result_["candidate"], np.arange(1, 12))


@pytest.mark.parametrize("k", [1, 3])
def test_held_out_values_find_the_planted_number_among_gaps(k, cut):  # noqa: F811
    x = with_gaps(factors(300, 15, k, seed=k), 0.2)
    model = PPCA("auto").fit(CountingSource(x, (50, 15) if cut == ROWS else (300, 4)))
    assert model.choice_.criterion == "heldout"
    assert model.n_components_ == k
    assert len(model.choice_.values) < 14
    assert model.choice_.best == k


def test_held_out_values_of_more_features_than_samples_and_of_factor_analysis():
    assert PPCA("auto").fit(factors(60, 100, 2)).n_components_ == 2
    model = FactorAnalysis("auto").fit(with_gaps(factors(200, 10, 2, seed=3), 0.1))
    assert (model.n_components_, model.choice_.criterion) == (2, "heldout")


def test_the_likelihood_of_what_is_left_out_is_that_of_the_missing_given_the_rest():
    """Of one candidate: log p(all) - log p(left in), at a model fitted to what is left in."""
    x = with_gaps(factors(120, 8, 1), 0.1)
    model = PPCA("auto", criterion="heldout", tol=1e-6, random_state=4).fit(x)
    held = HeldOut(open_source(x), 0.05, PPCA(random_state=4)._checked_options().random_state)
    left_in = np.array(held.read(slice(0, 120), slice(0, 8))[0])
    assert 0 < (np.isnan(left_in) & ~np.isnan(x)).sum() < 0.1 * x.size
    for k in (1, 2):
        fitted = PPCA(k, tol=1e-6).fit(left_in)
        W, mu, noise = fitted._fitted.factors.W, fitted.mean_, fitted.noise_variance_
        expected = log_densities(x, W, mu, noise).sum() - log_densities(left_in, W, mu, noise).sum()
        assert model.choice_.values[k - 1] == pytest.approx(expected, rel=1e-3)


def test_a_dask_array_can_be_chosen_from():
    x = with_gaps(factors(200, 8, 2), 0.1)
    lazy = dask.array.from_array(x, chunks=(100, 8))
    assert PPCA("auto").fit(lazy).n_components_ == PPCA("auto").fit(x).n_components_ == 2


# Once: `Components.leading` keeps the eigenvalue that followed all candidates, not the one that follows the choice.
def test_a_chosen_component_that_equals_the_next_is_noted():
    spectrum = [30.0, 8.0, 7.9, *falling(9, 0.95, 1.0)]
    x = matrix_with_spectrum(60, 12, spectrum, seed=1)
    asked = PPCA(2).fit(x)
    assert any("PC 2 is not distinguishable from those that follow" in note for note in asked.notes_)
    from streampca.models.pca.fit import fit_pca, not_distinguishable

    found = fit_pca(open_source(x), PCAOptions(n_components=8))[0].leading(2)
    assert any("PC 2 is not distinguishable from those that follow" in note for note in not_distinguishable(found))


@pytest.mark.parametrize("criterion", ["evidence", "bic"])
def test_criteria_of_complete_data_are_refused_for_gaps(criterion):
    with pytest.raises(InputError) as error:
        PPCA("auto", criterion=criterion).fit(with_gaps(factors(60, 8, 2), 0.1))
    assert "criterion='heldout'" in one_line(error)


# ---------------------------------------------------------------- values left out


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99), st.data())
def test_the_same_values_are_left_out_however_they_are_read(n, d, seed, data):
    x = np.arange(n * d, dtype=float).reshape(n, d)
    held = HeldOut(open_source(x), 0.3, seed)
    whole = np.array(held.read(slice(0, n), slice(0, d))[0])
    a = data.draw(st.integers(0, n - 1))
    b = data.draw(st.integers(a + 1, n))
    c = data.draw(st.integers(0, d - 1))
    e = data.draw(st.integers(c + 1, d))
    part, n_bytes = held.read(slice(a, b), slice(c, e))
    np.testing.assert_array_equal(part, whole[a:b, c:e])
    assert n_bytes == 8 * (b - a) * (e - c)
    kept = ~np.isnan(whole)
    np.testing.assert_array_equal(whole[kept], x[kept])
    np.testing.assert_array_equal(x, np.arange(n * d).reshape(n, d))


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_about_the_right_share_is_left_out_in_every_sample_and_feature(share):
    held = HeldOut(open_source(np.zeros((400, 300))), share, 1)
    absent = np.isnan(held.read(slice(0, 400), slice(0, 300))[0])
    error = np.sqrt(share * (1 - share))
    assert abs(absent.mean() - share) < 4 * error / np.sqrt(absent.size)
    assert np.abs(absent.mean(axis=0) - share).max() < 5 * error / np.sqrt(400)
    assert np.abs(absent.mean(axis=1) - share).max() < 5 * error / np.sqrt(300)
    other = np.isnan(HeldOut(open_source(np.zeros((400, 300))), share, 2).read(slice(0, 400), slice(0, 300))[0])
    assert abs((absent & other).mean() - share**2) < 5 * share / np.sqrt(absent.size)


def test_numbers_by_counter_are_uniform_and_their_own():
    u = uniform(np.arange(100_000, dtype=np.uint64), 3)
    assert 0 <= u.min() < u.max() < 1
    assert len(np.unique(u)) == len(u)
    counts = np.histogram(u, 50, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 100
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02


def test_integers_become_floats_and_gaps_stay(tmp_path):
    held = HeldOut(open_source(np.ones((50, 6), np.int8)), 0.2, 0)
    assert held.dtype == np.float32
    assert HeldOut(open_source(np.ones((50, 6), np.int64)), 0.2, 0).dtype == np.float64
    x = with_gaps(factors(50, 6, 1), 0.1)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(7, 6))
    stored = HeldOut(open_source(tmp_path / "x.zarr"), 0.2, 0)
    left = np.array(stored.read(slice(0, 50), slice(0, 6))[0])
    assert np.isnan(left[np.isnan(x)]).all()
    assert stored.fingerprint() != HeldOut(open_source(tmp_path / "x.zarr"), 0.2, 1).fingerprint()
    counts = np.rint(9 * factors(500, 8, 1)).clip(-128, 127).astype(np.int8)
    assert PPCA("auto", criterion="heldout").fit(counts).n_components_ == 1
