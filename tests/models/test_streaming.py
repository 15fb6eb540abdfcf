"""partial_fit in any batches, merged fits, accumulators that travel."""

from __future__ import annotations

import numpy as np
import pytest
import xarray
from helpers import (
    Reference,
    assert_close,
    data_with_gaps,
    falling,
    matrix_with_spectrum,
    one_line,
    sample_data,
    true_residual,
)
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

from streampca import PCA, InputError


@pytest.mark.parametrize("sizes", [(200,), (100, 100), (1, 1, 198), (7, 93, 50, 50), (199, 1)])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_partial_fit_in_any_batches_equals_fit(sizes, scale):
    x = sample_data() + 1e4
    whole = PCA(4, scale=scale).fit(x)
    model = PCA(4, scale=scale)
    for batch in np.split(x, np.cumsum(sizes)[:-1]):
        model.partial_fit(batch)
    assert model.n_samples_ == 200
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "mean_", "singular_values_"):
        assert_close(getattr(model, name), getattr(whole, name))
    assert_close(model.transform(x), whole.transform(x))
    assert (model.certificate_ < 1e-10).all()


@pytest.mark.parametrize("far", [1e8, 1e12])
def test_certificates_of_batches_count_means_far_off(far):
    x = sample_data() + far
    model = PCA(3)
    for batch in np.array_split(x, 7):
        model.partial_fit(batch)
    # Exact: what is taken off is close to the values.
    residual = true_residual(Reference.of(x - far), model.components_, model.explained_variance_)
    assert (residual <= model.certificate_).all()


@pytest.mark.parametrize("scale", [None, "unit"])
def test_a_streamed_sketch_is_off_by_no_more_than_its_certificate(scale):
    # 5 * 8 * 300 * 300 bytes are more than is allowed: 72 rows of a sketch have to do.
    x = matrix_with_spectrum(600, 300, falling(200, 0.95), mean=2.0, seed=22) * np.linspace(0.5, 2, 300)
    model = PCA(8, memory_limit="3MB", scale=scale)
    for batch in np.array_split(x, 9):
        model.partial_fit(batch)
    assert model.result_.attrs["solver"] == "sketch"
    z = x / (1.0 if scale is None else x.std(axis=0, ddof=1))
    reference = Reference.of(z)
    residual = true_residual(reference, model.components_, model.explained_variance_)
    assert (residual <= model.certificate_).all()
    assert residual.max() > 1e-12, "nothing was cut off: the test tests nothing"
    error = np.abs(model.explained_variance_ - reference.values[:8])
    assert (error <= model.certificate_ * model.explained_variance_).all()
    assert model.converged_ == bool((model.certificate_ <= model.tol).all())
    assert model.total_variance_ == pytest.approx(reference.total, rel=1e-9)


@pytest.mark.parametrize("k", [None, 0.999, np.int64(150)])
def test_a_sketch_too_small_for_what_is_asked_says_so(k):
    x = matrix_with_spectrum(400, 200, falling(199, 0.99), seed=23)
    model = PCA(k, memory_limit="1kB").partial_fit(x)
    asked = SklearnPCA(k, svd_solver="full").fit(x).n_components_
    assert model.n_components_ == asked or (not model.converged_ and model.advice_)


@pytest.mark.parametrize("memory", [None, "1kB"])
def test_a_refused_batch_names_the_place_and_changes_nothing(memory):
    x = sample_data()
    bad = sample_data()
    bad[150, 6] = np.nan
    model = PCA(2, memory_limit=memory).partial_fit(x)
    with pytest.raises(InputError, match="sample 150, feature 6"):
        model.partial_fit(bad)
    assert model.n_samples_ == 200
    model.partial_fit(sample_data() + 1)
    both = PCA(2, memory_limit=memory).partial_fit(x).partial_fit(sample_data() + 1)
    assert model.n_samples_ == both.n_samples_ == 400
    assert_close(model.explained_variance_, both.explained_variance_)


def test_a_batch_after_fit_goes_on_from_the_fit():
    x = sample_data()
    model = PCA(3, solver="covariance").fit(x[:120]).partial_fit(x[120:])
    assert model.n_samples_ == 200
    assert_close(model.components_, PCA(3).fit(x).components_)


@pytest.mark.parametrize("scale", [None, "unit"])
def test_merged_fits_equal_a_fit_on_the_union(scale):
    x = sample_data()
    x[:70] += 5
    options = {"n_components": 4, "solver": "covariance", "scale": scale}
    left, right, whole = (PCA(**options).fit(part) for part in (x[:70], x[70:], x))
    for merged in (left.merge(right), right.merge(left), PCA(**options).partial_fit(x[:70]).merge(right)):
        assert merged.n_samples_ == 200
        assert_close(merged.components_, whole.components_)
        assert_close(merged.explained_variance_, whole.explained_variance_)
        assert_close(merged.mean_, whole.mean_)
        assert_close(merged.transform(x), whole.transform(x))
        assert (merged.certificate_ < 1e-10).all()
    assert left.n_samples_ == 70


def test_an_accumulator_survives_a_store_and_merges(tmp_path):
    x = sample_data()
    left, right = (PCA(3, solver="covariance").fit(part) for part in (x[:90], x[90:]))
    right.accumulator_.to_zarr(tmp_path / "right.zarr", consolidated=False)
    with xarray.open_zarr(tmp_path / "right.zarr", consolidated=False) as sent:
        received = PCA.from_accumulator(sent.load(), n_components=3)
    assert_close(received.components_, right.components_)
    assert_close(left.merge(received).components_, PCA(3).fit(x).components_)
    received.partial_fit(x[:90])
    assert_close(received.components_, PCA(3).fit(x).components_)
    with pytest.raises(InputError, match="not an accumulator"):
        PCA.from_accumulator(left.result_, n_components=3)


@pytest.mark.parametrize("solver", ["krylov", "gram", "power"])
def test_merging_what_kept_no_accumulator_is_refused_with_the_cure(solver):
    model = PCA(2, solver=solver).fit(sample_data())
    with pytest.raises(InputError) as error:
        model.merge(PCA(2, solver="covariance").fit(sample_data()))
    assert "solver='covariance'" in one_line(error)


def test_merging_other_features_is_refused():
    with pytest.raises(InputError, match="15 with 14 features"):
        PCA(2, solver="covariance").fit(sample_data()).merge(PCA(2, solver="covariance").fit(sample_data()[:, :14]))


def test_merging_fits_with_filled_gaps_is_exact_or_refused():
    x = data_with_gaps()
    x[:70] += 5
    options = {"n_components": 2, "missing": "mean", "solver": "covariance"}
    left, right, whole = (PCA(**options).fit(part) for part in (x[:70], x[70:], x))
    try:
        merged = left.merge(right)
    except InputError:
        return
    assert_close(merged.explained_variance_, whole.explained_variance_)
    assert_close(merged.components_, whole.components_)


def test_a_sketch_survives_a_decomposition_that_does_not_converge(monkeypatch):
    x = np.random.default_rng(0).standard_normal((400, 90))
    whole = PCA(3, memory_limit=1_000).partial_fit(x)

    def fails(*_given, **_options):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fails)
    again = PCA(3, memory_limit=1_000).partial_fit(x)
    np.testing.assert_allclose(again.explained_variance_, whole.explained_variance_, rtol=1e-9)


def test_batches_with_fewer_features_than_components_are_rejected(rng):
    with pytest.raises(InputError) as error:
        PCA(10).partial_fit(rng.normal(size=(50, 3)))
    assert one_line(error) == "n_components must be at most 3, the number of features, got 10"
    # More samples may follow; more features may not.
    assert PCA(10).partial_fit(rng.normal(size=(5, 30))).n_components_ == 5


def test_notebooks_show_a_fit_that_has_no_accumulator():
    wide = PCA(2).fit(np.random.default_rng(0).normal(size=(8, 40)))
    assert not hasattr(wide, "accumulator_")
    assert "PCA" in wide._repr_html_()
