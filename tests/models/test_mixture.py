"""The mixture of probabilistic PCA: against a dense EM, the closed form, planted clusters, and awkward data."""

from __future__ import annotations

import dask
import dask.array
import numpy as np
import pytest
import zarr
from genotype_helpers import random_calls, write_bed
from helpers import CountingSource, UnreadableSource, assert_orthonormal, assert_same_subspace, one_line
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import check_estimator

from streampca import open_source
from streampca.errors import InputError, MemoryLimitError
from streampca.models.mixture.estimator import MixtureOfPPCA
from streampca.models.mixture.fit import fit_mixture, plan_mixture
from streampca.models.mixture.options import MixtureOptions
from streampca.solvers.base import know_scaling
from streampca.solvers.draw import uniforms
from streampca.solvers.mixture.loop import MixtureEM, emptied
from streampca.solvers.mixture.start import SeedDraw, begin, draw_seeds, points, random_axes
from streampca.solvers.mixture.statistics import ExpectedSums, Flats, Mixture

NAMES = ("weights_", "means_", "components_", "explained_variance_", "noise_variance_", "log_likelihoods_")


def planted(K=3, k=2, d=10, n=1500, *, apart=8.0, noise=0.3, seed=0):
    """Samples of K local subspaces, their labels, and the axes (K, k, d)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(K, size=n)
    axes = np.stack([np.linalg.qr(rng.standard_normal((d, k)))[0].T for _ in range(K)])
    means = rng.standard_normal((K, d)) * apart / np.sqrt(d)
    z = rng.standard_normal((n, k)) * np.linspace(3, 2, k)
    x = means[labels] + np.einsum("nk,nkd->nd", z, axes[labels]) + noise * rng.standard_normal((n, d))
    return x, labels, axes


def solver_of(x, K, k, *, tol=1e-3, max_iter=200, seed=0, scale=None):
    """An EM whose matrix knows its scaling."""
    options = MixtureOptions(n_clusters=K, n_components=k, scale=scale)
    source = open_source(x)
    sweeps = plan_mixture(source, options).over(source, "error", options.scale)
    trace = know_scaling(sweeps, sweeps.moments())
    return MixtureEM(sweeps, K, k, trace / x.shape[1], tol, max_iter, seed)


def started(solver):
    seeds = draw_seeds(solver.sweeps, solver.n_clusters, solver.seed)
    return begin(solver.sweeps, seeds, solver.n_components, solver.seed, solver.least)


def covariances(mixture):
    """C_c = W_c W_c' + s2_c I, (K, d, d)."""
    W = mixture.flats.axes * mixture.lengths[..., None]
    return np.swapaxes(W, 1, 2) @ W + mixture.noise[:, None, None] * np.eye(W.shape[2])


def dense_em(x, weights, means, Ws, noise, steps):
    """EM with d x d covariances and raw sums; returns weights, means, covariances, and likelihoods before each step."""
    weights, means, Ws, noise = weights.copy(), means.copy(), Ws.copy(), noise.copy()
    d, k = Ws.shape[1:]
    likelihoods = []
    for step in range(steps + 1):
        C = Ws @ np.swapaxes(Ws, 1, 2) + noise[:, None, None] * np.eye(d)
        joint = np.stack([multivariate_normal(m, c).logpdf(x) for m, c in zip(means, C, strict=True)]).T
        joint += np.log(weights)
        total = logsumexp(joint, axis=1)
        if step == steps:
            return weights, means, C, np.array(likelihoods)
        likelihoods.append(total.sum())
        for c, r in enumerate(np.exp(joint.T - total)):
            inverse = np.linalg.inv(Ws[c].T @ Ws[c] + noise[c] * np.eye(k))
            z = np.column_stack([(x - means[c]) @ Ws[c] @ inverse, np.ones(len(x))])
            second = (z.T * r) @ z
            second[:k, :k] += r.sum() * noise[c] * inverse
            cross = (z.T * r) @ x
            both = np.linalg.solve(second, cross)
            noise[c] = ((r @ x**2).sum() - (both * cross).sum()) / (r.sum() * d)
            z_mean = second[k, :k] / r.sum()
            z_covariance = second[:k, :k] / r.sum() - np.outer(z_mean, z_mean)
            means[c] = both[k] + z_mean @ both[:k]
            Ws[c] = both[:k].T @ np.linalg.cholesky(z_covariance)
            weights[c] = r.mean()


# ---------------------------------------------------------------- the answer


@pytest.mark.parametrize("scale", [None, "unit"])
def test_iterations_are_those_of_a_dense_em(scale):
    x, _, _ = planted(K=3, k=2, d=7, n=400, apart=3.0, noise=0.8)
    solver = solver_of(x, 3, 2, tol=1e-12, max_iter=12, scale=scale)
    start = started(solver)
    fit = solver.iterate(start)
    standard = (x - x.mean(axis=0)) / (1.0 if scale is None else x.std(axis=0, ddof=1))
    Ws = np.swapaxes(start.flats.axes * start.lengths[..., None], 1, 2)
    weights, means, C, likelihoods = dense_em(standard, start.weights, start.flats.centres, Ws, start.noise, 12)
    np.testing.assert_allclose(fit.likelihoods, likelihoods, rtol=1e-10)
    np.testing.assert_allclose(fit.mixture.weights, weights, rtol=1e-8)
    np.testing.assert_allclose(fit.mixture.flats.centres, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(covariances(fit.mixture), C, rtol=1e-7, atol=1e-9)


@settings(max_examples=12)
@given(st.integers(1, 4), st.integers(1, 3), st.floats(0.0, 6.0), st.floats(0.05, 2.0), st.integers(0, 99))
def test_the_likelihood_never_falls(K, k, apart, noise, seed):
    x, _, _ = planted(K, k, 6, 120, apart=apart, noise=noise, seed=seed)
    solver = solver_of(x, K, k, tol=1e-9, max_iter=25, seed=seed)
    fit = solver.iterate(started(solver))
    if not fit.notes:
        assert np.diff(fit.likelihoods).min() >= -1e-9 * abs(fit.likelihoods[-1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(3, 2, 10, 8.0), (5, 3, 30, 6.0), (3, 2, 20, 0.0)])
def test_planted_subspaces_are_found(shape, dtype):
    K, k, d, apart = shape
    x, labels, axes = planted(K, k, d, 3000, apart=apart, noise=0.2)
    model = MixtureOfPPCA(K, k).fit(x.astype(dtype))
    predicted = model.predict(x.astype(dtype))
    # Subspaces through the same point share the samples near it.
    assert adjusted_rand_score(labels, predicted) > (0.99 if apart else 0.9)
    for c in range(K):
        own = np.bincount(labels[predicted == c]).argmax()
        assert_same_subspace(axes[own], model.components_[c], within=1e-3)
        assert_orthonormal(model.components_[c])
        assert model.noise_variance_[c] == pytest.approx(0.04, rel=0.1)
        np.testing.assert_allclose(model.explained_variance_[c][[0, -1]], [9, 4], rtol=0.25)
    assert model.converged_
    assert model.advice_ == ""
    assert (np.diff(model.weights_) <= 0).all()


def test_one_cluster_is_ppca_in_closed_form():
    x, _, _ = planted(K=2, k=3, d=8, n=500, apart=3.0, noise=1.0)
    model = MixtureOfPPCA(1, 3, tol=1e-9, max_iter=2000).fit(x)
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1]
    s2 = values[3:].mean()
    likelihood = -250 * (8 * np.log(2 * np.pi) + np.log(values[:3]).sum() + 5 * np.log(s2) + 8)
    assert model.converged_
    np.testing.assert_allclose(model.means_[0], x.mean(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.explained_variance_[0], values[:3], rtol=1e-6)
    assert model.noise_variance_[0] == pytest.approx(s2, rel=1e-8)
    assert model.log_likelihoods_[-1] == pytest.approx(likelihood, rel=1e-10)
    assert model.score(x) * 500 == pytest.approx(likelihood, rel=1e-10)
    assert_same_subspace(vectors[:, :3].T, model.components_[0], within=1e-8)


def test_density_probabilities_and_bic_are_those_of_the_gaussians():
    x, _, _ = planted(apart=2.0)
    model = MixtureOfPPCA(3, 2, scale="unit", max_iter=5).fit(x)
    C = covariances(model._fitted.mixture)
    standard = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    means = (model.means_ - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    joint = np.stack([multivariate_normal(m, c).logpdf(standard) for m, c in zip(means, C, strict=True)]).T
    joint += np.log(model.weights_)
    total = logsumexp(joint, axis=1)
    np.testing.assert_allclose(model.score_samples(x), total, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(x), np.exp(joint - total[:, None]), atol=1e-9)
    np.testing.assert_array_equal(model.predict(x), joint.argmax(axis=1))
    free = 2 + 3 * (10 + 1 + 2 * 10 - 1)
    assert model.bic(x) == pytest.approx(-2 * total.sum() + free * np.log(len(x)), rel=1e-10)
    assert not model.converged_
    assert "max_iter=5" in model.advice_


def test_bic_tells_the_number_of_clusters():
    x, _, _ = planted(n=800)
    criterion = [MixtureOfPPCA(K, 2).fit(x).bic(x) for K in (1, 2, 3, 4)]
    assert np.argmin(criterion) == 2


@pytest.mark.parametrize("scale", [None, "unit"])
def test_samples_have_the_moments_of_the_mixture(scale):
    model = MixtureOfPPCA(2, 2, scale=scale).fit(planted(K=2, d=6, seed=4)[0] * np.arange(1, 7) + 50)
    drawn, labels = model.sample(40000)
    factor = np.ones(6) if scale is None else model.scale_
    np.testing.assert_allclose(np.bincount(labels) / 40000, model.weights_, atol=0.01)
    for c, C in enumerate(covariances(model._fitted.mixture)):
        expected = C * np.outer(factor, factor)
        size = np.sqrt(np.diag(expected))
        own = drawn[labels == c]
        np.testing.assert_allclose((own.mean(axis=0) - model.means_[c]) / size, 0, atol=0.03)
        np.testing.assert_allclose((np.cov(own.T) - expected) / np.outer(size, size), 0, atol=0.04)
    np.testing.assert_array_equal(model.predict(drawn[:500]) == labels[:500], True)


# ---------------------------------------------------------------- the start


def test_draws_follow_the_squared_distance_however_rows_are_cut():
    rows = np.array([[0.0], [1.0], [2.0], [4.0]])
    chosen = []
    for turn in range(1500):
        draw = SeedDraw(2, 7, turn, points(np.zeros((1, 1))), np.empty((0, 1)))
        whole, first, second = draw.zero(1), draw.zero(1), draw.zero(1)
        draw.update(whole, rows, 0)
        draw.update(first, rows[:3], 0)
        draw.update(second, rows[3:], 3)
        (cut,), _ = draw.combine(first, second)
        (whole,), _ = draw.finish(whole, 0)
        np.testing.assert_array_equal(cut.times, whole.times)
        np.testing.assert_array_equal(cut.rows, whole.rows)
        chosen.append(whole.rows[0, 0])
    share = [np.mean(np.array(chosen) == value) for value in (0.0, 1.0, 2.0, 4.0)]
    np.testing.assert_allclose(share, [0, 1 / 21, 4 / 21, 16 / 21], atol=0.04)


def test_random_numbers_belong_to_the_row():
    whole = uniforms(3, 5, 0, 100)
    np.testing.assert_array_equal(np.concatenate([uniforms(3, 5, 0, 33), uniforms(3, 5, 33, 67)]), whole)
    assert len(set(whole) | set(uniforms(3, 6, 0, 100)) | set(uniforms(4, 5, 0, 100))) == 300
    assert abs(whole.mean() - 0.5) < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_each_far_cluster_gets_a_seed(seed):
    x, labels, _ = planted(K=6, k=1, d=12, n=600, apart=60.0, seed=seed)
    solver = solver_of(x, 6, 1, seed=seed)
    seeds = draw_seeds(solver.sweeps, 6, seed) + x.mean(axis=0)
    nearest = ((x[:, None] - seeds) ** 2).sum(axis=2).argmin(axis=0)
    np.testing.assert_allclose(x[nearest], seeds, rtol=1e-10)
    assert len(set(labels[nearest])) == 6


# ---------------------------------------------------------------- awkward data


def test_an_emptied_component_restarts_and_is_dropped_at_last(caplog):
    x, labels, _ = planted(K=2, k=1, d=5, n=400, apart=20.0)
    solver = solver_of(x, 2, 1)
    start = started(solver)
    away = Flats(start.flats.centres + [[0.0] * 5, [1e3] * 5], start.flats.axes)
    one = Mixture(away, start.weights, start.lengths, start.noise)
    fit = solver.iterate(one)
    assert ["it restarts at" in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        True
    ]
    assert len(fit.notes) == 1
    assert adjusted_rand_score(labels, _labels(x, fit.mixture)) > 0.99
    solver._replaced = solver.n_clusters
    fit = solver.iterate(one)
    assert "was dropped" in fit.notes[-1]
    assert len(fit.mixture.weights) == 1
    assert fit.mixture.weights.sum() == pytest.approx(1.0)
    assert np.isfinite(fit.likelihoods).all()


def _labels(x, mixture):
    return mixture.log_joint(*mixture.flats.measure(x - x.mean(axis=0))).argmax(axis=1)


def test_few_samples_in_a_flat_are_no_component():
    flats = Flats(np.zeros((3, 4)), np.zeros((3, 1, 4)))
    sums = ExpectedSums(flats, None).zero(4)
    sums.counts[:] = 5.0, 2.9, 90.0
    lengths = np.ones((3, 1))
    one, floor = np.ones(3), np.array([1e-9, 1.0, 1.0])
    np.testing.assert_array_equal(emptied(sums, Mixture(flats, one, lengths, one), 1e-9), [False, True, False])
    np.testing.assert_array_equal(emptied(sums, Mixture(flats, one, lengths, floor), 1e-9), [True, True, False])
    np.testing.assert_array_equal(emptied(sums, Mixture(flats, one, lengths, one * 1e-9), 1e-9), [False, True, False])
    sums.counts[:] = 1.0, 2.0, 1.5
    np.testing.assert_array_equal(emptied(sums, Mixture(flats, one, lengths, one), 1e-9), [True, False, True])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_outliers_leave_finite_numbers(dtype):
    x, _, _ = planted(K=1, n=200, seed=3)
    x[:3] += [[1e4], [-2e4], [3e4]]
    model = MixtureOfPPCA(3, 2).fit(x.astype(dtype))
    for name in NAMES:
        assert np.isfinite(getattr(model, name)).all(), name
    assert model.weights_.sum() == pytest.approx(1.0)
    assert any("it restarts at a sample" in note for note in model.notes_)


@pytest.mark.parametrize("K", [3, 5])
def test_duplicates_make_a_component_each(K):
    three = np.random.default_rng(1).standard_normal((3, 6))
    x = np.repeat(three, 20, axis=0)
    model = MixtureOfPPCA(K, 1).fit(x)
    assert adjusted_rand_score(np.repeat(range(3), 20), model.predict(x)) == 1.0
    np.testing.assert_allclose(sorted(model.means_[:, 0]), sorted(three[:, 0]), rtol=1e-9)
    assert any("only 3 distinct samples" in note for note in model.notes_) == (K == 5)
    for name in NAMES:
        assert np.isfinite(getattr(model, name)).all(), name


@pytest.mark.parametrize("scale", [None, "unit"])
def test_a_constant_feature_is_harmless(scale):
    x, labels, _ = planted()
    x[:, 4] = -7.25
    model = MixtureOfPPCA(3, 2, scale=scale).fit(x)
    np.testing.assert_allclose(model.means_[:, 4], -7.25, rtol=1e-12)
    np.testing.assert_allclose(model.components_[:, :, 4], 0, atol=1e-9)
    assert adjusted_rand_score(labels, model.predict(x)) > 0.98


def test_data_without_noise_stop_at_its_floor():
    x, labels, _ = planted(noise=0.0)
    model = MixtureOfPPCA(3, 2).fit(x)
    assert adjusted_rand_score(labels, model.predict(x)) > 0.99
    assert (model.noise_variance_ > 0).all()
    assert np.isfinite(model.score_samples(x)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_huge_mean_changes_nothing(dtype):
    # Whole multiples of 1/16 are the same in float32 about any such mean.
    x = np.rint(planted(apart=12.0)[0] * 16) / 16
    near, far = (MixtureOfPPCA(3, 2).fit((x + shift).astype(dtype)) for shift in (0.0, 2.0**19))
    for name in ("weights_", "explained_variance_", "noise_variance_", "components_"):
        np.testing.assert_allclose(getattr(far, name), getattr(near, name), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(far.means_ - 2.0**19, near.means_, atol=1e-3)
    np.testing.assert_allclose(far.log_likelihoods_, near.log_likelihoods_, rtol=1e-5)


@pytest.mark.parametrize("factor", [1e-25, 1e18])
def test_units_of_float32_data_do_not_matter(factor):
    x = planted(n=300)[0]
    near, far = (MixtureOfPPCA(3, 2).fit((x * unit).astype(np.float32)) for unit in (1.0, factor))
    np.testing.assert_allclose(far.weights_, near.weights_, rtol=1e-4)
    np.testing.assert_allclose(far.noise_variance_, near.noise_variance_ * factor**2, rtol=1e-3)


def test_float32_data_agree_with_float64_and_small_noise_asks_for_it(caplog):
    caplog.set_level("INFO", "streampca")
    for noise, switches in ((0.5, False), (1e-3, True)):
        caplog.clear()
        x = planted(noise=noise)[0].astype(np.float32)
        single, double = MixtureOfPPCA(3, 2).fit(x), MixtureOfPPCA(3, 2).fit(x.astype(float))
        for name in ("weights_", "means_", "explained_variance_", "noise_variance_"):
            np.testing.assert_allclose(getattr(single, name), getattr(double, name), rtol=1e-3, atol=1e-4 * noise**2)
        assert any("float64 tiles" in record.getMessage() for record in caplog.records) == switches


# ---------------------------------------------------------------- sweeps, memory, engines


def test_an_iteration_is_one_sweep_and_all_are_counted():
    x, _, _ = planted(n=300)
    source = CountingSource(x, (64, 10))
    steps = []
    model = MixtureOfPPCA(3, 2, progress=steps.append).fit(source)
    # Moments, K seeds and the choice of the last, the start, and EM.
    assert model.n_sweeps_ == 1 + (3 + 1) + 1 + model.n_iter_
    assert (source.times_read() == model.n_sweeps_).all()
    assert len(model.log_likelihoods_) == model.n_iter_
    assert steps[-1].sweep == model.n_sweeps_
    assert "log-likelihood" in steps[-1].note
    model.predict(source)
    assert (source.times_read() == model.n_sweeps_ + 1).all()


def test_what_is_costly_to_read_is_kept():
    source = CountingSource(planted(n=300)[0], (64, 10), costly=True)
    MixtureOfPPCA(3, 2).fit(source)
    assert (source.times_read() == 1).all()


def test_too_little_memory_is_refused_before_reading():
    source = UnreadableSource((100000, 50000), (100, 50000))
    with pytest.raises(MemoryLimitError) as error:
        MixtureOfPPCA(10, 20, memory_limit="300MB").fit(source)
    assert "a mixture of 10 models needs at least" in one_line(error)


def stored(tmp_path):
    x = planted(n=1600)[0].astype(np.float32)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(50, 10))
    return tmp_path / "x.zarr"


def fitted_by(given, workers):
    with dask.config.set(num_workers=workers):
        options = MixtureOptions(n_clusters=3, n_components=2, max_iter=4, random_state=1)
        fitted, sweeps = fit_mixture(open_source(given), options)
    assert len(sweeps.matrix.partitions) > 4
    return fitted


def assert_same_bits(a, b):
    for name in NAMES:
        assert np.array_equal(getattr(a, name[:-1]), getattr(b, name[:-1])), name


@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_any_number_of_threads(tmp_path):
    path = stored(tmp_path)
    assert_same_bits(fitted_by(path, 1), fitted_by(path, 2))
    blocks = dask.array.from_zarr(path).rechunk((300, 10))
    assert_same_bits(fitted_by(blocks, 1), fitted_by(blocks, 2))


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_two_processes(tmp_path, two_workers):
    from distributed import Client

    path = stored(tmp_path)
    here = fitted_by(path, 2)
    with Client(two_workers):
        there = fitted_by(path, 2)
    assert_same_bits(here, there)


# ---------------------------------------------------------------- the contract


def test_scikit_learns_own_checks_pass():
    results = check_estimator(MixtureOfPPCA(), on_skip=None, on_fail=None)
    assert not {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert sum(result["status"] == "passed" for result in results) > 30


def test_a_clone_has_the_same_options_and_nothing_else():
    options = {"scale": "unit", "tol": 1e-2, "max_iter": 9, "memory_limit": "1GB", "random_state": 3, "progress": None}
    model = MixtureOfPPCA(3, 2, **options)
    copy = clone(model.fit(planted(n=100)[0]))
    assert copy.get_params() == model.get_params() == {"n_clusters": 3, "n_components": 2, **options}
    for method in (copy.predict, copy.predict_proba, copy.score_samples, copy.bic):
        with pytest.raises(NotFittedError):
            method(planted(n=100)[0])
    with pytest.raises(NotFittedError):
        copy.sample()


def test_the_seed_decides():
    x = planted(K=4, apart=1.0, noise=1.5, n=200)[0]
    same = [MixtureOfPPCA(4, 2, max_iter=3, random_state=seed).fit(x).log_likelihoods_ for seed in (0, 0, 1)]
    np.testing.assert_array_equal(same[0], same[1])
    assert same[0][0] != same[2][0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_clusters": 0}, "n_clusters must be an integer >= 1, got 0"),
        ({"n_clusters": 2.5}, "n_clusters must be an integer >= 1, got 2.5"),
        ({"n_components": True}, "n_components must be an integer >= 1, got True"),
        ({"n_components": 10}, "n_components=10 leaves no noise of n_features = 10: give 1 to 9"),
        ({"n_clusters": 40}, "needs 120 samples or more"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1, got 0"),
        ({"tol": 0}, "tol must be a number between 0 and 1, got 0"),
        ({"scale": "patterson"}, "scale must be none or unit, got 'patterson'"),
        ({"memory_limit": "lots"}, "memory_limit must be an amount"),
    ],
)
def test_options_that_cannot_be_used(options, said):
    with pytest.raises(InputError) as error:
        MixtureOfPPCA(**options).fit(planted(n=60)[0])
    assert said in one_line(error)


@pytest.mark.parametrize(("value", "said"), [(np.nan, "1 missing value(s)"), (np.inf, "1 infinite value(s)")])
def test_values_that_are_no_numbers_are_refused(value, said):
    x = planted(n=60)[0]
    model = MixtureOfPPCA().fit(x)
    x[7, 3] = value
    for use in (MixtureOfPPCA().fit, model.predict):
        with pytest.raises(InputError) as error:
            use(x)
        assert said in one_line(error)
        assert "sample 7, feature 3" in one_line(error)


def test_other_data_than_it_is_for_are_refused(tmp_path):
    write_bed(tmp_path / "study", random_calls(20, 30, 0))
    with pytest.raises(InputError) as error:
        MixtureOfPPCA().fit(tmp_path / "study.bed")
    assert "a mixture is not for genotypes; fit it to the scores of PCA" in one_line(error)
    model = MixtureOfPPCA().fit(planted(n=60)[0])
    with pytest.raises(InputError) as error:
        model.predict(open_source(planted(n=60, d=9)[0]))
    assert "X has 9 features, but the model was fitted on 10 features" in one_line(error)
    with pytest.raises(InputError, match="all samples are equal"):
        MixtureOfPPCA().fit(np.ones((20, 4)))
    for factor in (1e-100, 1e100):
        with pytest.raises(InputError, match="values are too (small|large)"):
            MixtureOfPPCA().fit(planted(n=60)[0] * factor)
    with pytest.raises(InputError, match="n_samples must be an integer >= 1, got 0"):
        model.sample(0)


def test_random_axes_are_orthonormal():
    assert_orthonormal(random_axes(4, 9, 0, 1))
