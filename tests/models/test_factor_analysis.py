"""Factor analysis: against scikit-learn, a dense EM, and itself in other units."""

from __future__ import annotations

import dask
import dask.array
import numpy as np
import pytest
import zarr
from helpers import CountingSource, UnreadableSource, assert_close, falling, matrix_with_spectrum, one_line
from latent_helpers import (
    CUTS,
    ROWS,
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
from sklearn.decomposition import FactorAnalysis as SklearnFactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from streampca import FactorAnalysis, InputError, MemoryLimitError


def uneven(n, d, k, *, mean=3.0, seed=1):
    """Data whose features have noise of very different size."""
    return planted(n, d, k, noise=np.linspace(0.5, 2.0, d), mean=mean, seed=seed)


def store(x, way):
    return CountingSource(x, (8, x.shape[1]) if way == ROWS else (x.shape[0], 2))


def of_scikit_learn(x, k):
    """The model of scikit-learn, run far, and its log-likelihood of all samples."""
    x = x.astype(float)
    centred = x - x.mean(axis=0)
    theirs = SklearnFactorAnalysis(k, tol=1e-12, max_iter=20_000, svd_method="lapack").fit(centred)
    return theirs, theirs.score(centred) * len(x)


# ---------------------------------------------------------------- complete data

COMPLETE = {
    "tall": (lambda: uneven(300, 10, 2), 1e-8),
    "huge mean": (lambda: uneven(300, 10, 2) + 1e6, 1e-7),
    "float32": (lambda: uneven(300, 10, 2).astype(np.float32), 1e-6),
    "int16": (lambda: np.rint(100 * uneven(300, 10, 2)).astype(np.int16), 1e-6),
}


@pytest.mark.parametrize("method", ["auto", "em"])
@pytest.mark.parametrize("case", COMPLETE)
def test_complete_data_match_scikit_learn(case, method):
    make, within = COMPLETE[case]
    x = make()
    theirs, likelihood = of_scikit_learn(x, 2)
    ours = FactorAnalysis(2, method=method, tol=1e-6, max_iter=400).fit(x)
    assert ours.converged_
    assert ours.log_likelihood_ == pytest.approx(likelihood, rel=within)
    assert ours.score(x) * len(x) == pytest.approx(likelihood, rel=10 * within)
    np.testing.assert_allclose(ours.noise_variance_, theirs.noise_variance_, rtol=2e-3)
    assert_close(ours.get_covariance(), theirs.get_covariance(), rtol=1e-3)
    np.testing.assert_allclose(ours.mean_, x.astype(float).mean(axis=0), rtol=1e-6)
    assert_close(np.abs(ours.transform(x)), np.abs(_canonical(theirs, x)), rtol=1e-2)
    if method == "auto":
        # The covariance of one sweep is enough; where float32 does not reach the tolerance, that of a second one.
        assert ours.n_sweeps_ == 1


def _canonical(theirs, x):
    """Scores of scikit-learn's model along the axes where W' diag(1 / psi) W is diagonal, longest first."""
    W = theirs.components_.T
    R = np.linalg.eigh((W.T / theirs.noise_variance_) @ W)[1][:, ::-1]
    return theirs.transform(x - x.astype(float).mean(axis=0)) @ R


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(
    ("kind", "shape"),
    [("rows", (200, 10)), ("columns", (60, 80)), ("dask", (60, 80)), ("dask columns", (200, 10))],
)
def test_it_is_the_same_however_the_data_lie(tmp_path, kind, shape):
    x = uneven(*shape, 2)
    chunks = (20, shape[1]) if kind in ("rows", "dask") else (shape[0], 5)
    if kind in ("rows", "columns"):
        zarr.create_array(tmp_path / "x.zarr", data=x, chunks=chunks)
        given = tmp_path / "x.zarr"
    else:
        given = dask.array.from_array(x, chunks=chunks)
    model = FactorAnalysis(2, method="em", tol=1e-4).fit(given)
    _, likelihood = of_scikit_learn(x, 2)
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=1e-6)
    assert model.log_likelihood_ == pytest.approx(log_densities(x, *model_of(model)).sum(), rel=1e-9)


UNITS = {
    "some": np.array([1, 3, 0.1, 1, 10, 1, 5, 0.2]),
    # Once: the least noise is a share of the mean variance of all features: more than all of a small feature's own.
    "far apart": np.array([1e-3, 1, 10, 100, 1e3, 1, 5, 0.2]),
}


@pytest.mark.parametrize("case", UNITS)
def test_other_units_change_nothing_but_the_units(case):
    x, units = uneven(200, 8, 2), UNITS[case]
    one, other, unit = (
        FactorAnalysis(2, tol=1e-6, max_iter=2000, scale=scale).fit(data)
        for data, scale in ((x, None), (x * units, None), (x * units, "unit"))
    )
    deviation = (x * units).std(axis=0, ddof=1)
    np.testing.assert_allclose(unit.scale_, deviation, rtol=1e-10)
    assert unit.log_likelihood_ == pytest.approx(one.log_likelihood_ + 200 * np.log(deviation / units).sum(), rel=1e-6)
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_ - 200 * np.log(units).sum(), rel=1e-6)
    np.testing.assert_allclose(other.noise_variance_ / units**2, one.noise_variance_, rtol=1e-2)


# ---------------------------------------------------------------- gaps


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("pattern", [0.3, 0.6, "samples"])
def test_iterations_are_those_of_a_dense_em(pattern, cut):  # noqa: F811
    x = with_gaps(uneven(60, 8, 2), pattern)
    model = FactorAnalysis(2, accelerate=False, max_iter=6, tol=1e-13).fit(store(x, cut))
    centred = mean_filled(x) - np.nanmean(x, axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(x))
    s2 = values[:-2].mean()
    W = vectors[:, -2:] * np.sqrt(values[-2:] - s2)
    variances = centred.var(axis=0)
    psi = np.maximum(variances - (W**2).sum(axis=1), 0.05 * variances)
    seen = x - np.nanmean(x, axis=0)
    history = list(dense_em(seen, W, np.zeros(8), psi, 6, own=True))[: len(model.log_likelihoods_)]
    assert len(history) == (6 if cut == ROWS else 7)
    np.testing.assert_allclose(model.log_likelihoods_, [log_densities(seen, *m).sum() for m in history], rtol=1e-8)
    np.testing.assert_allclose(model.get_covariance(), covariance_of(*history[-1]), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.noise_variance_, history[-1][2], rtol=1e-6)


# Once: cut along features, near a noise of zero, EM crept, and stopped short of what the other cut finds.
def test_both_cuts_come_to_the_same_maximum_near_a_noise_of_zero():
    x = planted(100, 8, 2, noise=1.0, seed=2)
    models = []
    for way in CUTS:
        with cut_along(way):
            models.append(FactorAnalysis(2, method="em", max_iter=300).fit(x))
    by_samples, by_features = models
    assert by_samples.converged_
    assert by_features.converged_
    assert by_features.n_iter_ < 4 * by_samples.n_iter_
    assert by_features.log_likelihood_ == pytest.approx(by_samples.log_likelihood_, rel=1e-4)


def test_scores_and_posteriors_are_those_of_the_observed_part(cut):  # noqa: F811
    x = with_gaps(uneven(60, 8, 2), "samples")
    model = FactorAnalysis(2).fit(with_gaps(uneven(60, 8, 2), 0.1))
    fitted = model_of(model)
    np.testing.assert_allclose(model.score_samples(store(x, cut)), log_densities(x, *fitted), rtol=1e-9, atol=1e-9)
    mean, covariance = model.posterior(store(x, cut))
    expected = [posterior_of(row, *fitted) for row in x]
    np.testing.assert_allclose(mean, [m for m, _ in expected], atol=1e-9)
    np.testing.assert_allclose(covariance, [c for _, c in expected], atol=1e-9)
    np.testing.assert_allclose(model.get_covariance() @ model.get_precision(), np.eye(8), atol=1e-9)
    inner = (model.components_ / model.noise_variance_) @ model.components_.T
    np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-8 * inner.max())
    assert inner[0, 0] > inner[1, 1]
    lazy = dask.array.from_array(x, chunks=(17, 8))
    np.testing.assert_allclose(model.transform(lazy).compute(), mean, atol=1e-9)
    filled = model.impute(x)
    absent = np.isnan(x)
    np.testing.assert_array_equal(filled[~absent], x[~absent])
    back = mean @ fitted[0].T + fitted[1]
    np.testing.assert_allclose(filled[absent], back[absent], atol=1e-9)


def test_samples_drawn_have_the_moments_of_the_model():
    model = FactorAnalysis(2).fit(uneven(200, 8, 2))
    drawn = model.sample(40_000, random_state=0)
    spread = np.sqrt(np.diag(model.get_covariance()))
    error = (np.cov(drawn.T) - model.get_covariance()) / np.outer(spread, spread)
    assert np.abs(error).max() < 8 / np.sqrt(40_000)
    assert np.abs((drawn.mean(axis=0) - model.mean_) / spread).max() < 5 / np.sqrt(40_000)


# ---------------------------------------------------------------- contract, edges


def test_scikit_learns_own_checks_pass():
    results = check_estimator(FactorAnalysis(), on_skip=None, on_fail=None)
    assert not {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}


def test_a_clone_and_the_result():
    x = with_gaps(uneven(60, 8, 2), 0.1)
    model = FactorAnalysis(2, scale="unit", random_state=3)
    scores = model.fit_transform(x)
    assert clone(model).get_params() == model.get_params()
    result = model.result_
    assert result.attrs["kind"] == "factor_analysis"
    assert "noise_variance" not in result.attrs
    assert result["noise_variance"].dims == ("feature",)
    np.testing.assert_array_equal(result["noise_variance"], model.noise_variance_)
    np.testing.assert_array_equal(result["components"], model.components_)
    np.testing.assert_array_equal(result["scores"], scores)


@pytest.mark.usefixtures("small_partitions")
def test_every_read_of_complete_data_is_counted(cut):  # noqa: F811
    for method in ("auto", "em"):
        source = store(uneven(60, 8, 2), cut)
        model = FactorAnalysis(2, method=method).fit(source)
        times = source.times_read()
        assert times.min() == times.max() == model.n_sweeps_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_features_without_values_or_variance_stay_finite(cut):  # noqa: F811
    x = with_gaps(uneven(80, 9, 2), 0.1)
    x[:, 3] = np.nan
    x[:, 5] = 2.5
    model = FactorAnalysis(2, max_iter=40).fit(store(x, cut))
    assert any("1 feature(s) have no values" in note for note in model.notes_)
    for values in (model.components_, model.noise_variance_, model.log_likelihood_, model.transform(x)):
        assert np.isfinite(values).all()
    np.testing.assert_array_equal(model.components_[:, 3], 0)
    np.testing.assert_allclose(model.components_[:, 5], 0, atol=1e-6)
    assert model.mean_[5] == pytest.approx(2.5)


# Once: psi at its least (a Heywood case, the likelihood without bound) is not noted, as it is for PPCA.
def test_noise_of_zero_is_noted():
    x = matrix_with_spectrum(60, 8, falling(2), seed=3)
    model = FactorAnalysis(2).fit(x)
    assert np.isfinite(model.log_likelihood_)
    assert model.noise_variance_.max() < 1e-8
    assert any("noise" in note for note in model.notes_)


@pytest.mark.parametrize("cut", CUTS)
def test_a_fit_that_reaches_max_iter_warns_as_scikit_learn_does(cut):  # noqa: F811
    x = uneven(60, 8, 2)
    for model, data in ((SklearnFactorAnalysis(2, max_iter=2), x), (FactorAnalysis(2, max_iter=2), store(x, cut))):
        with pytest.warns(ConvergenceWarning, match="FactorAnalysis did not converge"):
            model.fit(data)


def test_what_is_refused():
    source = UnreadableSource((60, 9), (60, 9))
    with pytest.raises(InputError) as error:
        FactorAnalysis(2, method="closed").fit(source)
    assert "method must be auto or em" in one_line(error)
    with pytest.raises(InputError, match="at most 8"):
        FactorAnalysis(9).fit(source)
    with pytest.raises(InputError, match="an integer >= 1"):
        FactorAnalysis(2, max_iter=0).fit(source)
    with pytest.raises(MemoryLimitError, match="needs at least"):
        FactorAnalysis(10, memory_limit="160MB").fit(UnreadableSource((2000, 10**6), (2000, 1000)))
    with pytest.raises(InputError, match="missing='model'"):
        FactorAnalysis(2, missing="error").fit(with_gaps(uneven(60, 8, 2), 0.1))
