"""Probabilistic PCA of genotype files: as of the same matrix in memory, new samples, and batches of missing calls."""

from __future__ import annotations

import dask
import numpy as np
import pytest
from genotype_helpers import Truth, calls_in, random_calls, unit_scores, write_bed, write_part
from helpers import mev_shortfall, one_line
from latent_helpers import (
    log_densities,
    posterior_of,
    quick_sweeps,  # noqa: F401
)

from streampca import PCA, PPCA, DualPPCA, FactorAnalysis, InputError, load, open_genotypes
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.genetics.matching import match_variants
from streampca.models.ppca.options import PPCAOptions
from streampca.models.ppca.record import PPCAFit
from streampca.results.apply import Application, impute_latent
from streampca.results.fit import fit_to_store
from streampca.results.store import variant_labels_in


def cohort():
    """Calls of three groups: 8% missing, two variants that do not vary, one seldom called."""
    calls = random_calls(90, 400, 1, missing=0.08)
    calls[:, 5], calls[:, 9] = 2, 0
    calls[:60, 11] = np.nan
    return calls


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    return write_bed(tmp_path_factory.mktemp("ppca") / "cohort", cohort())


@pytest.fixture(scope="module")
def model(bed):
    return PPCA(3, tol=1e-5).fit(bed)


def scaled(calls, mean, scale):
    return (calls - mean) / scale


# ---------------------------------------------------------------- the same as in memory


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("kind", [PPCA, FactorAnalysis])
def test_a_file_is_the_matrix_in_it(bed, kind):
    kept = Truth(cohort()).varies
    ours = kind(2, tol=1e-5, max_iter=60)
    scores = ours.fit_transform(bed)
    plain = kind(2, tol=1e-5, max_iter=60, scale="patterson")
    expected = plain.fit_transform(cohort()[:, kept])
    assert ours.n_features_in_ == kept.sum() == 398
    assert ours.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-6)
    np.testing.assert_allclose(ours.noise_variance_, plain.noise_variance_, rtol=5e-3)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=5e-3)
    np.testing.assert_allclose(ours.mean_, plain.mean_, atol=1e-3)
    p = np.nanmean(cohort()[:, kept], axis=0) / 2
    np.testing.assert_allclose(ours.scale_, np.sqrt(2 * p * (1 - p)), rtol=1e-6)
    assert any("2 monomorphic" in note for note in ours.notes_)
    assert ours.result_["missing"].values.sum() == np.isnan(cohort()[:, kept]).sum()
    np.testing.assert_array_equal(ours.result_["sample_missing"], np.isnan(cohort()[:, kept]).sum(axis=1))


def test_scores_and_likelihoods_of_a_file_are_those_of_its_calls(bed, model):
    kept = Truth(cohort()).varies
    standard = scaled(cohort()[:, kept], model.mean_, model.scale_)
    W, noise = model._fitted.factors.W, model.noise_variance_
    centre = np.zeros(len(W))
    np.testing.assert_allclose(model.score_samples(bed), log_densities(standard, W, centre, noise), rtol=1e-5)
    assert model.score_samples(bed).sum() == pytest.approx(model.log_likelihood_, rel=1e-6)
    mean, covariance = model.posterior(bed)
    expected = [posterior_of(row, W, centre, noise) for row in standard]
    np.testing.assert_allclose(mean, [m for m, _ in expected], atol=1e-4)
    np.testing.assert_allclose(covariance, [c for _, c in expected], atol=1e-4)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_any_number_of_threads(bed, workers):
    with dask.config.set(num_workers=workers):
        again = PPCA(3).fit(bed)
    first = PPCA(3).fit(bed)
    np.testing.assert_array_equal(again.components_, first.components_)
    np.testing.assert_array_equal(again.log_likelihoods_, first.log_likelihoods_)


def test_filters_leave_out_what_they_name(bed):
    source = open_genotypes(bed, maf=0.1, geno=0.5, mind=0.1)
    model = PPCA(2)
    scores = model.fit_transform(source)
    calls = cohort()
    varies = Truth(calls).varies
    # As in plink, a sample's missing calls are counted over all variants that there are.
    sparse = np.isnan(calls).mean(axis=1) > 0.1
    assert 0 < sparse.sum() < 20
    assert len(scores) == 90 - sparse.sum()
    assert any(f"samples excluded: {sparse.sum()} with more than 0.1 missing" in note for note in model.notes_)
    p = np.nanmean(calls[~sparse], axis=0) / 2
    again = varies & (np.minimum(p, 1 - p) >= 0.1) & (np.isnan(calls[~sparse]).mean(axis=0) <= 0.5)
    assert model.n_features_in_ == again.sum()
    alone = PPCA(2, scale="patterson").fit(calls[~sparse][:, again])
    assert model.log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-5)


def test_what_is_refused(bed):
    with pytest.raises(InputError, match="method='em' or 'auto'"):
        PPCA(2, method="closed").fit(bed)
    with pytest.raises(InputError) as error:
        PPCA(2, missing="error").fit(bed)
    assert "missing='model'" in one_line(error)
    with pytest.raises(InputError, match="genotypes"):
        PPCA(2).fit(bed).transform(cohort()[:, :398])


def test_complete_calls_have_a_closed_form(tmp_path):
    calls = random_calls(60, 300, 2, missing=0.0)
    model = PPCA(2, tol=1e-6).fit(write_bed(tmp_path / "x", calls))
    truth = Truth(calls)
    assert model.method_ == "closed"
    values = np.linalg.eigvalsh(truth.X @ truth.X.T / 60)[::-1]
    np.testing.assert_allclose(model.explained_variance_, values[:2], rtol=1e-5)
    assert model.noise_variance_ == pytest.approx(values[2:].sum() / (truth.X.shape[1] - 2), rel=1e-5)
    dual = DualPPCA(2, tol=1e-6).fit(write_bed(tmp_path / "y", calls))
    assert mev_shortfall(truth.vectors[:2], unit_scores(dual.latent_)) < 1e-8


# ---------------------------------------------------------------- new samples


def flipped(path, prefix, which):
    """Write the same calls counting the other allele of some variants."""
    calls = calls_in(path)
    calls[:, which] = 2 - calls[:, which]
    first, second = np.full(calls.shape[1], "A"), np.full(calls.shape[1], "G")
    first[which], second[which] = "G", "A"
    return write_bed(prefix, calls, allele_1=first, allele_2=second)


def test_new_samples_with_other_alleles_order_and_fewer_variants(tmp_path, bed, model):
    scores = model.transform(bed)
    turned = flipped(bed, tmp_path / "turned", np.arange(0, 400, 3))
    np.testing.assert_allclose(model.transform(turned), scores, atol=1e-5)
    some = np.random.default_rng(0).permutation(400)[:250]
    fewer = write_part(tmp_path / "fewer", bed, samples=slice(10, 30), variants=some)
    kept = np.flatnonzero(Truth(cohort()).varies)
    there = np.isin(kept, some)
    standard = scaled(cohort()[10:30][:, kept], model.mean_, model.scale_)
    standard[:, ~there] = np.nan
    W, noise = model._fitted.factors.W, model.noise_variance_
    expected = [posterior_of(row, W, np.zeros(len(W)), noise)[0] for row in standard]
    np.testing.assert_allclose(model.transform(fewer), expected, atol=1e-4)
    np.testing.assert_allclose(
        model.score_samples(fewer), log_densities(standard, W, np.zeros(len(W)), noise), rtol=1e-5
    )


def test_imputed_stores_keep_calls_and_stay_within_their_range(tmp_path, bed):
    fit_to_store(PPCAOptions(n_components=3), open_genotypes(bed), tmp_path / "r.zarr")
    result = load(tmp_path / "r.zarr")
    found = PPCAFit.from_dataset(result, scores=True)
    turned = flipped(bed, tmp_path / "turned", np.arange(0, 400, 3))
    filled = []
    for name, path in (("plain", bed), ("turned", turned)):
        source = open_genotypes(path, autosomes=False)
        match = match_variants(variant_labels_in(result), source)
        target = tmp_path / f"{name}.zarr"
        target.mkdir()
        count = impute_latent(Application(source, result, target, "r.zarr"))["values"]
        import xarray

        opened = xarray.open_zarr(target)
        calls = calls_in(path)[:, match.new]
        absent = np.isnan(calls)
        assert count == absent.sum()
        values = opened["imputed"].values
        np.testing.assert_array_equal(values[~absent], calls[~absent])
        assert 0 <= values.min() <= values.max() <= 2
        assert list(opened["variant_id"].values[:3]) == ["rs0", "rs1", "rs2"]
        assert list(opened["iid"].values[:2]) == ["i0", "i1"]
        filled.append((values, absent, match.flipped))
    (values, absent, _), (other, _, turn) = filled
    np.testing.assert_allclose(np.where(turn, 2 - other, other), values, atol=1e-4)
    # Better than the mean of the variant, as far as there is anything to know.
    W, z = found.factors.W, found.posterior.mean
    expected = np.clip((z @ W.T) * found.scaling.scale + found.mean, 0, 2)
    np.testing.assert_allclose(values[absent], expected[absent], atol=1e-3)


# Once: `impute` of a file takes all its variants in their own order and alleles, the model those fitted in theirs.
def test_impute_of_a_file_is_of_the_variants_fitted(bed, model):
    filled = model.impute(bed)
    kept = Truth(cohort()).varies
    calls = cohort()[:, kept]
    assert filled.shape == calls.shape
    np.testing.assert_array_equal(filled[~np.isnan(calls)], calls[~np.isnan(calls)])


# Once: as above; where no variant is left out there is no error, but values of other variants or alleles.
def test_impute_of_a_file_counts_the_alleles_of_the_file(tmp_path):
    calls = random_calls(60, 200, 2, missing=0.1)
    path = write_bed(tmp_path / "x", calls)
    model = PPCA(2).fit(path)
    which = np.arange(0, 200, 2)
    plain, turned = model.impute(path), model.impute(flipped(path, tmp_path / "turned", which))
    turned[:, which] = 2 - turned[:, which]
    np.testing.assert_allclose(turned, plain, atol=1e-4)


# ---------------------------------------------------------------- missing by batch


def share_of_batch(scores, batch, population):
    """Share of the variance within populations that the batch explains there, of each component (adjusted R2)."""
    found = []
    groups = [population == p for p in np.unique(population)]
    parts = [g & b for g in groups for b in (batch, ~batch) if (g & b).any()]
    for column in np.asarray(scores, float).T:
        within, left = (
            sum(((column[g] - column[g].mean()) ** 2).sum() for g in sets) / (len(column) - len(sets))
            for sets in (groups, parts)
        )
        found.append(1 - left / within)
    return np.array(found)


def test_a_batch_of_missing_calls_is_no_component(tmp_path):
    n, m, k = 400, 6000, 8
    batch = np.random.default_rng(5).random(n) < 0.3
    missing = np.where(batch, 0.5, 0.003)
    population = simulate_genotypes(tmp_path / "gaps", n, m, admixed=0, missing=missing, seed=2)
    simulate_genotypes(tmp_path / "whole", n, m, admixed=0, missing=0.0, seed=2)
    gaps, whole = calls_in(tmp_path / "gaps.bed"), calls_in(tmp_path / "whole.bed")
    assert np.isnan(gaps[batch]).mean() == pytest.approx(0.5, abs=0.01)
    there = ~np.isnan(gaps)
    np.testing.assert_array_equal(gaps[there], whole[there])
    filled = PCA(k).fit_transform(tmp_path / "gaps.bed")
    modelled = PPCA(k).fit_transform(tmp_path / "gaps.bed")
    # Samples with few calls are drawn to the mean of all, and so away from their population.
    assert share_of_batch(filled, batch, population).max() > 0.5
    # Of eight components and 24 populations, chance alone comes to 0.01 to 0.04 in complete genotypes (eight seeds);
    # with half of a batch missing its scores are less sure, and it comes to 0.02 to 0.07.
    assert share_of_batch(modelled, batch, population).max() < 0.1
    truth = Truth(whole).vectors[:k]
    ours, theirs = (mev_shortfall(truth, unit_scores(scores)) for scores in (modelled, filled))
    assert ours < 0.5 * theirs


def test_more_components_than_variants_that_vary_are_refused(tmp_path):
    calls = np.zeros((30, 12))
    calls[:, :4] = random_calls(30, 4, 3, missing=0.0)
    path = write_bed(tmp_path / "few", calls)
    with pytest.raises(InputError, match="4 components of 4 used features leave no noise"):
        PPCA(4).fit(path)
    assert PPCA(2).fit(path).n_components_ == 2
