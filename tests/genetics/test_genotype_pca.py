"""Principal components of genotype files against an eigendecomposition of their own, and against plink2."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import dask
import dask.array
import numpy as np
import pytest
from genotype_helpers import (
    Truth,
    calls_in,
    labels_of,
    needs_plink2,
    plink2,
    random_calls,
    table,
    unit_scores,
    write_bed,
    write_part,
)
from helpers import assert_orthonormal, assert_same_subspace, mev_shortfall, one_line

from streampca import PCA, InputError, MemoryLimitError, open_genotypes
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.models.genotypes import fit_genotypes
from streampca.models.pca.fit import fit_pca, plan_pca
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, not_distinguishable
from streampca.sources.formats.plink1 import BedSource
from streampca.sweep.scaling import Scaling

SOLVERS = ("gram", "krylov", "power")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("genotypes")


@pytest.fixture(scope="module")
def cohort(folder):
    """A file of 120 x 3,000 with missing calls; three components stand far apart from the others."""
    simulate_genotypes(folder / "cohort", 120, 3000, missing=0.02, seed=7)
    return folder / "cohort.bed"


@pytest.fixture(scope="module")
def truth(cohort):
    return Truth(calls_in(cohort))


@pytest.fixture(scope="module")
def many(folder):
    """A file that small partitions cut into so many that krylov starts warm."""
    simulate_genotypes(folder / "many", 90, 24_000, missing=0.01, seed=8)
    return folder / "many.bed"


@pytest.fixture(scope="module")
def true_of_many(many):
    return Truth(calls_in(many))


def tenths(partitions):
    """What a warm start takes: of every so many partitions, so that 16 or more are left, a part that makes a tenth."""
    stride = min(10, max(1, len(partitions) // 16))
    return [(start, start + -(-(stop - start) * stride // 10)) for start, stop in partitions[stride // 2 :: stride]]


def fit(path, k=3, solver="auto", *, tol=1e-3, scale="auto", missing="auto", workers=None, **choice):
    with dask.config.set(num_workers=workers):
        return fit_pca(
            open_genotypes(path, **choice),
            PCAOptions(n_components=k, scale=scale, missing=missing, solver=solver, tol=tol),
        )[0]


def assert_same_fit(a, b, rtol=1e-12):
    """Fits of the same samples and variants by the same solver, which may have been cut otherwise."""
    assert (a.n_samples, len(a.mean)) == (b.n_samples, len(b.mean))
    np.testing.assert_allclose(a.mean, b.mean, rtol=rtol)
    np.testing.assert_allclose(a.scale, b.scale, rtol=rtol)
    np.testing.assert_array_equal(a.missing, b.missing)
    np.testing.assert_allclose(a.explained_variance, b.explained_variance, rtol=1e-5)
    np.testing.assert_allclose(a.total_variance, b.total_variance, rtol=rtol)
    assert_same_subspace(a.components, b.components, within=1e-6)


# ---- simulated files


def bytes_of(folder, name):
    return {suffix: (folder / f"{name}.{suffix}").read_bytes() for suffix in ("bed", "bim", "fam", "pop")}


def test_simulation_is_the_same_on_any_number_of_threads(tmp_path, monkeypatch):
    groups = simulate_genotypes(tmp_path / "a", 41, 1500, seed=3)
    monkeypatch.setattr("streampca.demos.simulate_genotypes.thread_count", lambda: 1)
    again = simulate_genotypes(tmp_path / "b", 41, 1500, seed=3)
    simulate_genotypes(tmp_path / "c", 41, 1500, seed=4)
    assert bytes_of(tmp_path, "a") == bytes_of(tmp_path, "b")
    assert bytes_of(tmp_path, "a")["bed"] != bytes_of(tmp_path, "c")["bed"]
    np.testing.assert_array_equal(groups, again)
    listed = [line.split() for line in (tmp_path / "a.pop").read_text().splitlines()]
    assert [row[2] for row in listed] == [f"pop{group}" for group in groups]
    assert [row[:2] for row in listed] == [line.split()[:2] for line in (tmp_path / "a.fam").read_text().splitlines()]


def test_simulation_misses_what_is_asked(tmp_path):
    simulate_genotypes(tmp_path / "a", 203, 2000, missing=0.1, seed=1)
    simulate_genotypes(tmp_path / "b", 203, 2000, missing=0.0, seed=1)
    gaps, whole = np.isnan(calls_in(tmp_path / "a.bed")), calls_in(tmp_path / "b.bed")
    assert abs(gaps.mean() - 0.1) < 0.003
    assert abs(gaps.mean(axis=0) - 0.1).max() < 0.12
    assert not np.isnan(whole).any()
    np.testing.assert_array_equal(calls_in(tmp_path / "a.bed")[~gaps], whole[~gaps])


def test_simulated_populations_differ_by_their_place_in_the_tree(tmp_path):
    groups = simulate_genotypes(tmp_path / "a", 600, 3000, admixed=0.0, missing=0.0, seed=2)
    calls = calls_in(tmp_path / "a.bed") / 2
    assert sorted(set(groups)) == list(range(24))
    p = np.array([calls[groups == g].mean(axis=0) for g in range(24)])
    sizes = np.array([(groups == g).sum() for g in range(24)])

    def fst(i, j):
        """Hudson's estimate, a ratio of means over variants."""
        own = [p[g] * (1 - p[g]) / (2 * sizes[g] - 1) for g in (i, j)]
        return ((p[i] - p[j]) ** 2 - sum(own)).sum() / (p[i] * (1 - p[j]) + p[j] * (1 - p[i])).sum()

    # Hudson's F_ST is half of the sum of both branches' drift: all levels that are not shared.
    for (i, j), expected in (((0, 1), 0.006), ((0, 2), 0.026), ((0, 6), 0.086), ((5, 23), 0.086)):
        assert fst(i, j) == pytest.approx(expected, rel=0.35)
    assert fst(0, 1) < fst(0, 2) < fst(0, 6)


def test_admixed_samples_lie_between(tmp_path):
    same = {"missing": 0.0, "seed": 5}
    groups = simulate_genotypes(tmp_path / "a", 150, 2000, admixed=1.0, **same)
    pure = simulate_genotypes(tmp_path / "b", 150, 2000, admixed=0.0, **same)
    np.testing.assert_array_equal(groups, pure)
    spread = [Truth(calls_in(tmp_path / f"{x}.bed")).values[:3].sum() for x in "ab"]
    assert spread[0] < 0.8 * spread[1]


# ---- against an eigendecomposition of our own


@pytest.mark.parametrize("solver", SOLVERS)
def test_eigenpairs_to_a_tight_tolerance(cohort, truth, solver):
    # The power method takes hundreds of sweeps for more.
    k = 1 if solver == "power" else 3
    found = fit(cohort, k, solver, tol=1e-6)
    assert found.converged
    assert found.solver == solver
    np.testing.assert_allclose(found.eigenvalue, truth.values[:k], rtol=1e-6)
    assert mev_shortfall(truth.vectors[:k], unit_scores(found.scores)) < 1e-10
    for ours, theirs in zip(unit_scores(found.scores), truth.vectors, strict=False):
        assert abs(ours @ theirs) > 1 - 1e-9
    assert_orthonormal(found.components)
    loadings = truth.vectors[:k] @ truth.X
    assert mev_shortfall(loadings / np.linalg.norm(loadings, axis=1)[:, None], found.components) < 1e-10
    np.testing.assert_allclose(found.total_variance, (truth.X**2).sum() / 119, rtol=1e-9)
    np.testing.assert_allclose(found.explained_variance_ratio, truth.values[:k] / truth.values.sum(), rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_eigenpairs_to_the_default_tolerance(cohort, truth, solver):
    found = fit(cohort, 3, solver)
    assert mev_shortfall(truth.vectors[:3], unit_scores(found.scores)) <= 1e-3
    np.testing.assert_allclose(found.eigenvalue, truth.values[:3], rtol=1e-3)


def residuals(S, rows, values):
    return np.linalg.norm(rows @ S - values[:, None] * rows, axis=1) / values


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-6])
@pytest.mark.parametrize("solver", SOLVERS)
def test_certificates_hold_on_both_sides(cohort, truth, solver, tol):
    found = fit(cohort, 6 if solver != "power" else 1, solver, tol=tol)
    covariance = truth.X @ truth.X.T / 119
    assert (found.certificate <= tol).all()
    assert (residuals(covariance, unit_scores(found.scores), found.explained_variance) <= found.certificate).all()
    rows = found.components
    theirs = (rows @ truth.X.T) @ truth.X / 119
    true = np.linalg.norm(theirs - found.explained_variance[:, None] * rows, axis=1) / found.explained_variance
    # The components are X'u made orthonormal, which moves them by no more than their own residual does.
    assert (true <= 3 * found.certificate).all()


@pytest.mark.parametrize("keep_rows", [True, False])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.usefixtures("small_partitions")
def test_warm_start(many, true_of_many, monkeypatch, keep_rows, tol):
    if not keep_rows:
        monkeypatch.setattr("streampca.solvers.krylov.ROWS_SHARE", 0.0)
    options = PCAOptions(n_components=3, solver="krylov", tol=tol)
    plan = plan_pca(open_genotypes(many), options)
    assert len(plan.cut.partitions) > 8
    assert plan.solver.warm_start
    assert plan.solver.keep_rows == keep_rows
    found, sweeps = fit_pca(open_genotypes(many), options)
    assert sweeps.warm_seconds > 0
    assert found.converged
    assert mev_shortfall(true_of_many.vectors[:3], unit_scores(found.scores)) < (1e-10 if tol == 1e-6 else 1e-3)
    np.testing.assert_allclose(found.eigenvalue, true_of_many.values[:3], rtol=tol)
    covariance = true_of_many.X @ true_of_many.X.T / 89
    assert (residuals(covariance, unit_scores(found.scores), found.explained_variance) <= found.certificate).all()
    loadings = true_of_many.vectors[:3] @ true_of_many.X
    within = 1e-10 if tol == 1e-6 else 1e-3
    assert mev_shortfall(loadings / np.linalg.norm(loadings, axis=1)[:, None], found.components) < within
    assert_orthonormal(found.components)


@pytest.mark.usefixtures("small_partitions")
def test_warm_start_passes_over_variants_that_cannot_be_used(many, folder):
    """Of the variants that the warm start would take, none varies: it begins at random, and finds the same."""
    path = folder / "flat.bed"
    for suffix in (".bim", ".fam"):
        path.with_suffix(suffix).write_bytes(many.with_suffix(suffix).read_bytes())
    content = np.fromfile(many, np.uint8)
    rows = content[3:].reshape(24_000, -1)
    for start, stop in tenths(
        plan_pca(open_genotypes(many), PCAOptions(n_components=3, solver="krylov")).cut.partitions
    ):
        rows[start:stop] = 0
    content.tofile(path)
    calls = calls_in(path)
    found = fit(path, 3, "krylov")
    true = Truth(calls)
    assert len(found.mean) == true.X.shape[1] < 24_000
    assert mev_shortfall(true.vectors[:3], unit_scores(found.scores)) <= 1e-3


@needs_plink2
def test_eigenpairs_are_those_of_plink2(tmp_path):
    simulate_genotypes(tmp_path / "x", 130, 5000, missing=0.0, seed=12)
    # Without --mac 1, plink2 divides by variants that do not vary as well.
    plink2("--bfile", "x", "--mac", 1, "--pca", 5, "--out", "p", cwd=tmp_path)
    found = fit(tmp_path / "x.bed", 5, tol=1e-6)
    theirs = np.loadtxt(tmp_path / "p.eigenval")
    np.testing.assert_allclose(found.eigenvalue, theirs, rtol=1e-4)
    columns = table(tmp_path / "p.eigenvec")
    assert columns["IID"].tolist() == [f"s{i}" for i in range(130)]
    apart = [i for i in range(3) if min(abs(np.diff(theirs))[max(0, i - 1) : i + 1]) > 0.05 * theirs[i]]
    assert apart
    for i in apart:
        assert abs(unit_scores(found.scores)[i] @ columns[f"PC{i + 1}"].astype(float)) > 1 - 1e-4


# ---- hard cases


@pytest.fixture
def odd(tmp_path):
    """40 samples; of the variants, 5 are constant, 3 have no calls, 2 only heterozygous, 2 with one call."""
    calls = random_calls(40, 300, 4)
    calls[:, [0, 50, 299]] = 0
    calls[:, [1, 128]] = 2
    calls[:, [2, 60, 130]] = np.nan
    calls[:, [3, 200]] = 1
    calls[:, [4, 201]] = np.nan
    calls[7, 4], calls[8, 201] = 1, 2
    return write_bed(tmp_path / "odd", calls), calls


@pytest.mark.parametrize("solver", SOLVERS)
def test_variants_that_do_not_vary_are_left_out_and_counted(odd, solver):
    path, calls = odd
    found = fit(path, 2, solver, tol=1e-4)
    true = Truth(calls)
    # The one call of variant 201 is two of A1; variants 3, 200 and 4 have both alleles, but no variance.
    assert true.varies.sum() == 291
    assert len(found.mean) == 291
    np.testing.assert_array_equal(found.used, true.varies)
    assert "variants excluded: 9 monomorphic" in found.notes
    np.testing.assert_allclose(found.eigenvalue, true.values[:2], rtol=1e-4)
    assert mev_shortfall(true.vectors[:2], unit_scores(found.scores)) < 1e-6
    # 300 variants are numbered before, and 291 after.
    still = np.flatnonzero(true.varies).tolist()
    for variant in (3, 200, 4):
        assert (np.abs(found.components[:, still.index(variant)]) < 1e-12).all()
    np.testing.assert_array_equal(found.missing, np.isnan(calls[:, true.varies]).sum(axis=0))
    np.testing.assert_array_equal(found.sample_missing, np.isnan(calls[:, true.varies]).sum(axis=1))


def test_file_without_odd_variants_has_no_notes_of_them(cohort):
    assert not [note for note in fit(cohort, 2).notes if "excluded" in note]


def test_two_samples(tmp_path):
    calls = random_calls(2, 50, 1, missing=0.0)
    for solver in ("gram", "krylov"):
        found = fit(write_bed(tmp_path / "two", calls), 1, solver)
        np.testing.assert_allclose(found.eigenvalue, Truth(calls).values[:1], rtol=1e-5)
    both = fit(tmp_path / "two.bed", 2)
    assert both.eigenvalue[1] < 1e-6 * both.eigenvalue[0]
    assert_orthonormal(both.components)
    assert PCA().fit(tmp_path / "two.bed").n_components_ == 2


def test_one_sample_is_refused(tmp_path):
    path = write_bed(tmp_path / "one", random_calls(1, 50, 1, missing=0.0))
    with pytest.raises(InputError) as error:
        fit(path, 1)
    assert "at least 2 samples" in one_line(error)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_as_many_components_as_samples(tmp_path, solver):
    calls = random_calls(12, 300, 2)
    found = fit(write_bed(tmp_path / "x", calls), 12, solver)
    assert_orthonormal(found.components)
    np.testing.assert_allclose(found.eigenvalue[:11], Truth(calls).values[:11], rtol=1e-5)
    # Missing calls at the mean leave a little variance to the last one.
    assert found.eigenvalue[11] < 0.1 * found.eigenvalue[10] + 1e-6
    with pytest.raises(InputError) as error:
        fit(tmp_path / "x.bed", 13, solver)
    assert "at most 12" in one_line(error)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_fewer_variants_than_samples(tmp_path, solver):
    calls = random_calls(60, 12, 2)
    found = fit(write_bed(tmp_path / "x", calls), 12, solver, tol=1e-6)
    assert found.components.shape == (12, 12)
    assert_orthonormal(found.components)
    np.testing.assert_allclose(found.eigenvalue, Truth(calls).values[:12], rtol=1e-5)


@pytest.mark.parametrize("solver", ["auto", "krylov"])
def test_more_components_than_variants_that_vary(tmp_path, solver):
    """12 variants, of which 4 vary: no more than 4 components can be had, or the number is refused in words."""
    calls = random_calls(60, 12, 2, missing=0.0)
    calls[:, 4:] = 1
    calls[:, 4:8] = 0
    calls[:, 8:] = 2
    path = write_bed(tmp_path / "x", calls)
    number, said = 0, ""
    try:
        number = len(fit(path, 10, solver).components)
    except InputError as error:
        said = str(error)
    assert number == 4 or ("4" in said and "\n" not in said)
    # Ten by default, or as many as there are.
    few = PCA(solver=solver).fit(path)
    assert few.n_components_ == 4
    assert_orthonormal(few.components_)


CONSTANT = np.full((6, 5), 2.0)


@pytest.mark.parametrize(
    ("calls", "choice", "words"),
    [
        (CONSTANT, {}, "5 monomorphic"),
        (np.full((6, 5), np.nan), {}, "5 monomorphic"),
        (random_calls(20, 30, 1, missing=0.3), {"geno": 0.01}, "missing"),
        (np.where(np.arange(20) < 5, 1, 0)[:, None] * np.ones(30), {"maf": 0.2}, "rarer than 0.2"),
    ],
)
@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_nothing_left_is_refused_with_the_reason(tmp_path, calls, choice, words, solver):
    with pytest.raises(InputError) as error:
        fit(write_bed(tmp_path / "x", calls), 2, solver, **choice)
    text = one_line(error)
    assert "no variant is left" in text
    assert words in text
    assert "x.bed" in text


def test_all_samples_the_same(tmp_path):
    with pytest.raises(InputError) as error:
        fit(write_bed(tmp_path / "x", np.ones((6, 5))), 2)
    assert "total variance is zero" in one_line(error)


@pytest.mark.parametrize("solver", SOLVERS)
def test_missing_calls_are_refused_if_asked(tmp_path, solver):
    calls = random_calls(20, 400, 1, missing=0.0)
    calls[11, 270] = np.nan
    path = write_bed(tmp_path / "x", calls)
    with pytest.raises(InputError) as error:
        fit(path, 2, solver, missing="error")
    assert "1 missing value(s)" in one_line(error)
    assert "sample 11, feature 270" in str(error.value)
    assert "missing='mean'" in str(error.value)
    calls[11, 270] = 1
    fit(write_bed(tmp_path / "x", calls), 2, solver, missing="error")


@pytest.mark.usefixtures("small_partitions")
def test_the_first_missing_call_is_the_same_however_the_file_is_cut(tmp_path, monkeypatch):
    calls = random_calls(20, 400, 1, missing=0.0)
    calls[5, 2] = calls[0, 300] = np.nan
    path = write_bed(tmp_path / "x", calls)
    said = []
    for chunk in (8, 128, 1024):
        monkeypatch.setattr("streampca.sources.genotypes.CHUNK", chunk)
        assert (plan_pca(open_genotypes(path), PCAOptions(n_components=2, solver="gram")).cut.slab_length < 400) == (
            chunk < 400
        )
        with pytest.raises(InputError, match="2 missing value") as error:
            fit(path, 2, "gram", missing="error")
        said.append(one_line(error))
    assert said == said[:1] * 3


@pytest.mark.parametrize("scale", [None, "unit"])
@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_other_scales(cohort, truth, scale, solver):
    g = truth.calls[:, truth.varies]
    X = np.where(np.isnan(g), 0, g - np.nanmean(g, axis=0))
    if scale == "unit":
        X /= np.sqrt((X**2).sum(axis=0) / 119)
    found = fit(cohort, 3, solver, scale=scale, tol=1e-6)
    values, vectors = np.linalg.eigh(X @ X.T / 119)
    np.testing.assert_allclose(found.explained_variance, values[::-1][:3], rtol=1e-6)
    assert mev_shortfall(vectors.T[::-1][:3], unit_scores(found.scores)) < 1e-10


def test_covariance_is_refused_in_words(cohort):
    with pytest.raises(InputError) as error:
        fit(cohort, 3, "covariance")
    assert "'gram'" in one_line(error)
    assert "genotypes" in str(error.value)


# ---- filters: as if the file had been made without what they leave out


def without(path, folder, samples, variants):
    return write_part(folder / "reduced", path, samples, variants)


@pytest.fixture
def gappy(tmp_path):
    """60 x 700: some variants rare, some samples and variants with many missing calls."""
    rng = np.random.default_rng(9)
    calls = random_calls(60, 700, 9, missing=0.01)
    calls[:, ::7] = (rng.random((60, 100)) < rng.uniform(0, 0.1, 100)).astype(float)
    calls[:, 3::11][rng.random(calls[:, 3::11].shape) < 0.2] = np.nan
    calls[[4, 17, 44]] = np.where(rng.random((3, 700)) < 0.3, np.nan, calls[[4, 17, 44]])
    return write_bed(tmp_path / "gappy", calls), calls


def frequency(calls):
    return np.nanmean(calls, axis=0) / 2


def rarer(calls):
    return np.minimum(frequency(calls), 1 - frequency(calls))


ALL = slice(None)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_maf_and_geno(gappy, tmp_path, solver):
    path, calls = gappy
    masks = {"maf": rarer(calls) >= 0.05, "geno": np.isnan(calls).mean(axis=0) <= 0.1}
    masks["both"] = masks["maf"] & masks["geno"]
    choices = {"maf": {"maf": 0.05}, "geno": {"geno": 0.1}, "both": {"maf": 0.05, "geno": 0.1}}
    counts = set()
    for name, mask in masks.items():
        assert 0 < mask.sum() < 700
        counts.add(int(mask.sum()))
        found = fit(path, 2, solver, **choices[name])
        expected = fit(without(path, tmp_path, ALL, mask), 2, solver)
        assert_same_fit(found, expected)
        np.testing.assert_array_equal(found.used, mask & (rarer(calls) > 0))
        assert any("variants excluded" in note for note in found.notes)
    assert len(counts) == 3


def test_maf_is_the_same_for_either_allele(tmp_path):
    """A frequency of 0.1 is not below 0.1, whichever allele is counted."""
    calls = random_calls(50, 200, 3, missing=0.0)
    calls[:, 0] = 0
    calls[:10, 0] = 1
    calls[:, 1] = 2 - calls[:, 0]
    found = fit(write_bed(tmp_path / "x", calls), 2, maf=0.1)
    used = np.ones(200, bool) if found.used is None else found.used
    assert used[:2].tolist() == [True, True]


def test_a_share_at_the_limit_is_within_it(tmp_path):
    calls = random_calls(50, 100, 3, missing=0.0)
    calls[20, :29] = np.nan
    calls[:15, 60] = np.nan
    path = write_bed(tmp_path / "x", calls)
    for share in (0.29, 0.3):
        assert fit(path, 2, mind=share).n_samples == 50
    assert fit(path, 2, mind=0.28).n_samples == 49
    assert len(fit(path, 2, geno=0.3).mean) == 100
    assert len(fit(path, 2, geno=0.299).mean) == 99


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_mind(gappy, tmp_path, solver):
    path, calls = gappy
    full = np.isnan(calls).mean(axis=1) <= 0.15
    assert full.sum() == 57
    for more in ({}, {"geno": 0.1, "maf": 0.02}):
        found, sweeps = fit_pca(open_genotypes(path, mind=0.15, **more), PCAOptions(n_components=2, solver=solver))
        expected, direct = fit_pca(
            open_genotypes(without(path, tmp_path, full, ALL), **more), PCAOptions(n_components=2, solver=solver)
        )
        assert_same_fit(found, expected)
        assert_same_subspace(unit_scores(expected.scores), unit_scores(found.scores), within=1e-8)
        left = sweeps.matrix.source
        assert left.label("iid").tolist() == [f"i{i}" for i in np.flatnonzero(full)]
        assert direct.matrix.source.shape[0] == found.n_samples == len(found.scores) == 57
        assert "samples excluded: 3 with more than 0.15 missing" in found.notes
        np.testing.assert_array_equal(found.sample_missing, expected.sample_missing)


def test_mind_that_leaves_too_few(gappy):
    with pytest.raises(InputError) as error:
        fit(gappy[0], 2, mind=0.0)
    assert "mind" in one_line(error)


def test_default_number_of_components_follows_mind(tmp_path):
    calls = random_calls(12, 300, 3, missing=0.0)
    calls[:5, ::2] = np.nan
    path = write_bed(tmp_path / "x", calls)
    assert PCA().fit(open_genotypes(path, mind=0.2)).n_components_ == 7


@pytest.mark.parametrize("option", ["keep", "remove"])
@pytest.mark.parametrize("form", ["FID IID", "IID", "header", "more columns", "pairs", "ids"])
def test_lists_of_samples(cohort, tmp_path, option, form):
    samples, _ = labels_of(cohort)
    chosen = np.arange(120) % 5 != 1
    listed = chosen if option == "keep" else ~chosen
    pairs = [pair for pair, inside in zip(zip(*samples.values(), strict=True), listed, strict=True) if inside]
    text = {
        "FID IID": "\n".join(map(" ".join, pairs)) + "\nnobody nobody\n",
        "IID": "\n".join(iid for _, iid in pairs),
        "header": "#FID\tIID\n" + "\n\n".join(map("\t".join, pairs)),
        "more columns": "\n".join(f"{fid} {iid} 1 2" for fid, iid in pairs),
    }
    given = pairs if form == "pairs" else [iid for _, iid in pairs]
    if form in text:
        given = tmp_path / "list.txt"
        given.write_text(text[form])
    source = open_genotypes(cohort, **{option: given})
    assert source.label("iid").tolist() == [f"s{i}" for i in np.flatnonzero(chosen)]
    assert any("samples excluded: 24 by " + option in note for note in source.notes)
    if form == "FID IID":
        found = fit(cohort, 3, "gram", **{option: given})
        assert found.n_samples == chosen.sum() == 96
        assert_same_fit(found, fit(without(cohort, tmp_path, chosen, ALL), 3, "gram"))


def test_family_and_individual_must_both_match(tmp_path):
    path = write_bed(tmp_path / "x", random_calls(9, 40, 1), fid=list("aaabbbccc"), iid=list("123123123"))
    source = open_genotypes(path, keep=[("a", "1"), ("b", "1"), ("b", "3"), ("d", "2")])
    assert source.label("fid").tolist() == ["a", "b", "b"]
    assert open_genotypes(path, keep=["1"]).label("fid").tolist() == ["a", "b", "c"]
    both = open_genotypes(path, keep=["1", "2"], remove=[("a", "1")])
    assert list(zip(both.label("fid"), both.label("iid"), strict=True))[0] == ("a", "2")
    assert both.shape[0] == 5


@pytest.mark.parametrize("option", ["extract", "exclude"])
@pytest.mark.parametrize("as_file", [True, False])
def test_lists_of_variants(cohort, tmp_path, option, as_file):
    chosen = np.arange(3000) % 3 != 1
    ids = [f"snp{j}" for j in np.flatnonzero(chosen if option == "extract" else ~chosen)[::-1]]
    given = [*ids, "rs0"]
    if as_file:
        given = tmp_path / "ids.txt"
        given.write_text("\n".join(ids) + "\n\nrs0\n")
    found = fit(cohort, 3, "gram", **{option: given})
    assert len(found.mean) == chosen.sum()
    assert_same_fit(found, fit(without(cohort, tmp_path, ALL, chosen), 3, "gram"))
    assert any(f"variants excluded: 1000 by {option}" in note for note in found.notes)


@pytest.mark.parametrize("option", ["keep", "remove", "extract", "exclude", "exclude_regions"])
def test_lists_that_cannot_be_used(cohort, tmp_path, option):
    def refused(given):
        with pytest.raises(InputError) as error:
            open_genotypes(cohort, **{option: given})
        return one_line(error)

    (tmp_path / "other.txt").write_text("nobody nowhere\n" if option != "exclude_regions" else "6 x y\n")
    (tmp_path / "empty.txt").write_text("\n# nothing\n")
    assert "other.txt" in refused(tmp_path / "other.txt")
    assert "empty.txt" in refused(tmp_path / "empty.txt")
    assert "absent.txt" in refused(tmp_path / "absent.txt")
    assert str(tmp_path) in refused(tmp_path)
    if option != "exclude_regions":
        assert "the list" in refused(["nobody"])
        assert "empty" in refused([])


@pytest.mark.parametrize("option", ["remove", "exclude"])
def test_lists_that_leave_nothing(cohort, option):
    samples, variants = labels_of(cohort)
    with pytest.raises(InputError) as error:
        open_genotypes(cohort, **{option: samples["iid"] if option == "remove" else variants["sid"]})
    assert f"no {'samples' if option == 'remove' else 'variants'} are left" in one_line(error)


CHROMOSOMES = {
    "human": ("1 2 22 X 23 Y 25 MT 0 XY".split(), 3),
    "prefix": ("chr1 chr2 Chr22 chrX CHRY chrM chr10 chr23".split(), 4),
    "lower case": ("1 x y mt".split(), 1),
    "cattle": ("1 2 28 29 X 30".split(), 6),
    "scaffolds": ("1 2 scaffold_12 X chrUn_KI270742v1".split(), 2),
    "scaffolds alone": ("scaffold_1 scaffold_2".split(), 2),
    "all zero": (["0", "0", "0"], 3),
    "sex alone": (["X", "23"], 2),
}


@pytest.mark.parametrize("name", CHROMOSOMES)
def test_autosomes(tmp_path, name):
    codes, expected = CHROMOSOMES[name]
    chromosomes = np.repeat(codes, 30)
    calls = random_calls(30, len(chromosomes), 6)
    path = write_bed(tmp_path / "x", calls, chromosome=chromosomes)
    source = open_genotypes(path)
    assert source.shape[1] == 30 * expected
    assert open_genotypes(path, autosomes=False).shape[1] == 30 * len(codes)
    some = expected < len(codes)
    assert bool(source.notes) == (some or name in ("cattle", "scaffolds alone", "all zero", "sex alone"))
    if source.notes and not some:
        codes = ", ".join(sorted(set(codes)))
        assert source.notes == (f"all chromosomes are used, because their codes are not human: {codes}",)
    if some:
        assert f"{30 * (len(codes) - expected)} not on chromosomes 1 to 22" in source.notes[0]
        kept = np.isin(chromosomes, source.label("chromosome"))
        reduced = without(path, tmp_path, ALL, kept)
        assert_same_fit(fit(path, 2, "gram"), fit(reduced, 2, "gram", autosomes=False))


def test_regions_of_a_file(cohort, tmp_path):
    _, variants = labels_of(cohort)
    codes, positions = np.array(variants["chromosome"]), np.array(variants["bp_position"])
    inside = (codes == "3") & (positions >= 5000) & (positions <= 40000) | (codes == "21") & (positions <= 100000)
    (tmp_path / "regions.txt").write_text("3 5000 40000 first\nchr21 1 100000\n99 1 10\n")
    found = fit(cohort, 3, "gram", exclude_regions=tmp_path / "regions.txt")
    assert inside.sum() == 136
    assert_same_fit(found, fit(without(cohort, tmp_path, ALL, ~inside), 3, "gram"))
    assert any("136 in regions of" in note for note in found.notes)


def test_all_filters_at_once(gappy, tmp_path):
    path, calls = gappy
    (tmp_path / "regions.txt").write_text("1 1000 50000\n")
    rows = np.arange(60) >= 10
    columns = np.arange(700) >= 50
    columns[100] = False
    some = calls[rows]
    columns &= (rarer(some) >= 0.05) & (np.isnan(some).mean(axis=0) <= 0.1)
    found = fit(
        path, 2, "gram", remove=[f"i{i}" for i in range(10)], exclude=["rs100"], maf=0.05, geno=0.1,
        exclude_regions=tmp_path / "regions.txt",
    )  # fmt: skip
    assert_same_fit(found, fit(without(path, tmp_path, rows, columns), 2, "gram"))


@pytest.mark.parametrize("choice", [{"maf": 0.6}, {"maf": -0.1}, {"geno": 1.1}, {"mind": "x"}, {"maf": float("nan")}])
def test_limits_out_of_range(cohort, choice):
    with pytest.raises(InputError) as error:
        open_genotypes(cohort, **choice)
    assert next(iter(choice)) in one_line(error)


@needs_plink2
def test_maf_geno_and_mind_keep_what_plink2_keeps(gappy, tmp_path):
    path, _ = gappy
    arguments = ("--mind", 0.15, "--geno", 0.1, "--maf", 0.05)
    plink2("--bfile", "gappy", *arguments, "--write-snplist", "--write-samples", "--out", "p", cwd=tmp_path)
    source = open_genotypes(path, mind=0.15, geno=0.1, maf=0.05)
    found, sweeps = fit_pca(source, PCAOptions(n_components=2))
    samples, variants = found.axes(sweeps.matrix.source)
    assert variants.coords["variant_id"][1].tolist() == (tmp_path / "p.snplist").read_text().split()
    assert samples.coords["iid"][1].tolist() == table(tmp_path / "p.id")["IID"].tolist()


# ---- the same bits, what is read, memory


def assert_same_bits(a, b):
    for name in ("components", "explained_variance", "certificate", "mean", "scale", "total_variance", "scores"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert (a.n_sweeps, a.bytes_read, a.tile_dtype) == (b.n_sweeps, b.bytes_read, b.tile_dtype)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_any_number_of_threads(many, solver, tol):
    one, two = (fit(many, 3, solver, tol=tol, workers=workers, maf=0.05) for workers in (1, 2))
    assert_same_bits(one, two)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_processes(many, two_workers):
    from distributed import Client

    here = [fit(many, 3, solver, maf=0.05) for solver in ("gram", "krylov")]
    with Client(two_workers):
        there = [fit(many, 3, solver, maf=0.05) for solver in ("gram", "krylov")]
    for a, b in zip(here, there, strict=True):
        assert_same_bits(a, b)


@pytest.fixture
def counted(monkeypatch):
    """Bytes that reads of .bed files bring, as a list."""
    read, sizes = BedSource.read_stored, []

    def counting(self, start, stop):
        out, n_bytes = read(self, start, stop)
        sizes.append(out.nbytes)
        return out, n_bytes

    monkeypatch.setattr(BedSource, "read_stored", counting)
    return sizes


@pytest.mark.parametrize("solver", SOLVERS)
def test_reads_are_counted(cohort, counted, solver):
    size = cohort.stat().st_size - 3
    found = fit(cohort, 2, solver)
    assert found.bytes_read == sum(counted) == found.n_sweeps * size
    if solver == "gram":
        assert found.n_sweeps == 2
    assert len(found.sweep_seconds) == found.n_sweeps


@pytest.mark.usefixtures("small_partitions")
def test_warm_start_reads_a_tenth(many, counted):
    size = many.stat().st_size - 3
    found, sweeps = fit_pca(open_genotypes(many), PCAOptions(n_components=3, solver="krylov"))
    warm = found.bytes_read - found.n_sweeps * size
    tenth = sum(b - a for a, b in tenths(sweeps.matrix.partitions)) * size // 24_000
    assert found.bytes_read == sum(counted)
    assert 0.08 < tenth / size < 0.12
    assert warm in [count * tenth for count in range(1, 6)]
    cold = fit(many, 3, "krylov", tol=1e-3, workers=1)
    assert cold.bytes_read == found.bytes_read


def test_reads_before_samples_were_left_out_are_counted(gappy, counted):
    found = fit(gappy[0], 2, "gram", mind=0.15)
    assert found.n_samples == 57
    assert found.bytes_read == sum(counted)
    assert found.n_sweeps == 3


def test_filters_read_no_more_than_the_file(cohort, counted):
    found = fit(cohort, 2, "gram", keep=[f"s{i}" for i in range(50)], extract=[f"snp{i}" for i in range(0, 3000, 2)])
    assert found.bytes_read == sum(counted) <= 2 * (cohort.stat().st_size - 3)
    alone = fit(cohort, 2, "gram", extract=[f"snp{i}" for i in range(400)])
    assert alone.bytes_read == 2 * 400 * 30


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_too_little_memory_is_refused_before_reading(cohort, counted, solver):
    with pytest.raises(MemoryLimitError) as error:
        fit_pca(open_genotypes(cohort), PCAOptions(n_components=3, solver=solver), memory="20MB")
    assert "use memory_limit=" in one_line(error)
    assert counted == []


def test_plan_reads_nothing(cohort, counted):
    plan = plan_pca(open_genotypes(cohort), PCAOptions())
    assert counted == []
    assert plan.cut.axis == 1
    assert plan.sweep_bytes == cohort.stat().st_size - 3


# ---- the estimator


def test_nothing_but_a_path(cohort, truth):
    model = PCA().fit(str(cohort))
    assert model.n_components_ == 10
    assert model.components_.shape == (10, truth.X.shape[1])
    eigenvalues = model.explained_variance_ * 119 / truth.X.shape[1]
    np.testing.assert_allclose(eigenvalues, truth.values[:10], rtol=1e-3)
    assert mev_shortfall(truth.vectors[:3], unit_scores(model.result_["scores"].values[:, :3])) <= 1e-3
    p = model.mean_ / 2
    np.testing.assert_allclose(model.scale_, np.sqrt(2 * p * (1 - p)), rtol=1e-12)
    assert model.n_samples_ == 120


def test_nothing_but_a_path_uses_autosomes(tmp_path):
    calls = random_calls(30, 200, 6)
    path = write_bed(tmp_path / "x", calls, chromosome=["1"] * 150 + ["X"] * 50)
    model = PCA().fit(path)
    assert model.components_.shape == (10, 150)
    assert any("50 not on chromosomes" in note for note in model._fitted.notes)


def test_an_array_with_gaps_gives_the_same(tmp_path):
    calls = random_calls(40, 300, 8)
    calls[:, 5] = 2
    path = write_bed(tmp_path / "x", calls)
    file = PCA(3, tol=1e-6).fit(path)
    array = PCA(3, tol=1e-6, scale="patterson", missing="mean").fit(calls)
    np.testing.assert_allclose(file.explained_variance_, array.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(file.total_variance_, array.total_variance_, rtol=1e-9)
    # Arrays keep their features: that which does not vary has zero in each component.
    assert array.components_.shape == (3, 300)
    assert file.components_.shape == (3, 299)
    assert (array.components_[:, 5] == 0).all()
    assert_same_subspace(np.delete(array.components_, 5, axis=1), file.components_)
    np.testing.assert_allclose(np.delete(array.mean_, 5), file.mean_, rtol=1e-12)


def test_patterson_is_for_counts():
    with pytest.raises(InputError) as error:
        PCA(2, scale="patterson").fit(np.random.default_rng(0).normal(5, 1, (20, 6)))
    assert "patterson" in one_line(error)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_transform_gives_the_scores_of_the_fit(cohort, tol):
    model = PCA(3, tol=tol)
    scores = model.fit_transform(cohort)
    again = model.transform(cohort)
    # float32 tiles, sums of thousands of terms
    np.testing.assert_allclose(again, scores, atol=max(tol, 1e-5) * np.abs(scores).max())
    np.testing.assert_array_equal(model.result_["scores"].astype(scores.dtype), scores)
    np.testing.assert_allclose((scores.astype(float) ** 2).sum(axis=0) / 119, model.explained_variance_, rtol=1e-5)
    assert model.singular_values_ == pytest.approx(np.linalg.norm(scores.astype(float), axis=0), rel=1e-5)


def test_transform_of_a_part(cohort, tmp_path):
    model = PCA(3).fit(cohort)
    scores = model.result_["scores"].values
    part = write_part(tmp_path / "part", cohort, np.arange(10, 40))
    np.testing.assert_allclose(model.transform(part), scores[10:40], atol=2e-3 * np.abs(scores).max())
    whitened = PCA(3, whiten=True).fit(cohort).transform(part)
    np.testing.assert_allclose(
        whitened * np.sqrt(model.explained_variance_), scores[10:40], atol=2e-3 * np.abs(scores).max()
    )


def test_transform_of_other_things_is_refused(cohort):
    model = PCA(3).fit(cohort)
    with pytest.raises(InputError) as error:
        model.transform(np.zeros((3, len(model.mean_))))
    assert "genotype" in one_line(error)
    with pytest.raises(InputError, match="genotype"):
        model.transform(dask.array.zeros((3, len(model.mean_))))


def test_transform_uses_the_variants_of_the_fit_on_any_chromosome(tmp_path):
    path = write_bed(tmp_path / "x", random_calls(30, 200, 6), chromosome=["1"] * 150 + ["X"] * 50)
    model = PCA(2, tol=1e-6).fit(open_genotypes(path, autosomes=False))
    scores = model.result_["scores"].values
    assert model.n_features_in_ == 200
    np.testing.assert_allclose(model.transform(path), scores, atol=1e-5 * np.abs(scores).max())


def test_fitted_model_can_be_pickled(cohort):
    model = PCA(2).fit(cohort)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(cohort), model.transform(cohort))
    assert again.result_["iid"].values.tolist() == [f"s{i}" for i in range(120)]


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_fraction_of_the_variance(cohort, truth, solver):
    found = fit(cohort, 0.2, solver)
    share = np.cumsum(truth.values) / truth.values.sum()
    assert len(found.components) == int(np.argmax(share > 0.2)) + 1


def test_result_has_labels(odd):
    path, calls = odd
    model = PCA(2).fit(path)
    result = model.result_
    varies = Truth(calls).varies
    assert result["scores"].dims == ("sample", "component")
    assert result["components"].dims == ("component", "variant")
    assert result["iid"].values.tolist() == [f"i{i}" for i in range(40)]
    assert result["fid"].dims == ("sample",)
    assert result["variant_id"].values.tolist() == [f"rs{j}" for j in np.flatnonzero(varies)]
    assert result["position"].values.tolist() == (1000 * (np.flatnonzero(varies) + 1)).tolist()
    assert set(result["allele_1"].values.tolist()) == {"A"}
    np.testing.assert_array_equal(result["sample_missing"], np.isnan(calls[:, varies]).sum(axis=1))
    np.testing.assert_allclose(result["eigenvalue"], result["explained_variance"] * 39 / varies.sum())
    assert result.attrs["genotypes"] == 1
    assert "9 monomorphic" in result.attrs["notes"]


def test_result_of_chosen_samples_has_their_labels(gappy):
    path, calls = gappy
    model = PCA(2).fit(open_genotypes(path, mind=0.15, remove=["i0"]))
    full = np.isnan(calls).mean(axis=1) <= 0.15
    full[0] = False
    assert model.result_["iid"].values.tolist() == [f"i{i}" for i in np.flatnonzero(full)]
    assert model.result_["scores"].shape == (56, 2)
    scores = PCA(2).fit_transform(open_genotypes(path, mind=0.15, remove=["i0"]))
    assert scores.shape == (56, 2)


def test_more_of_the_estimator_on_genotypes(odd):
    """Likelihood and reconstruction take the file that was fitted, though some of its variants were left out."""
    path, calls = odd
    model = PCA(2, tol=1e-6).fit(path)
    true = Truth(calls)
    left = (true.X**2).sum(axis=1) - (unit_scores(model.result_["scores"]).T ** 2 * true.values[:2] * 291).sum(axis=1)
    np.testing.assert_allclose(model.reconstruction_error(path), left, rtol=1e-4)
    assert np.isfinite(model.score_samples(path)).all()


# ---- components that cannot be told apart


def made(values, following, m=20_000, n=1000, genotypes=True):
    """Components of which only the eigenvalues matter."""
    return PCAFit(
        components=np.empty((len(values), m)), explained_variance=np.array(values, float), total_variance=1.0,
        solver="", scaling=Scaling(np.zeros(m)), missing=np.zeros(m, int), n_samples=n, genotypes=genotypes,
        following=following,
    )  # fmt: skip


# 20,000 variants: an eigenvalue has a sampling error of a hundredth of itself.
NORTH = {
    "all apart": ([9, 7, 5], 3, []),
    "none follows": ([9, 7, 5], None, []),
    "start": ([9, 8.95, 5, 3], 1, ["PCs 1 and 2 are not distinguishable"]),
    "middle": ([9, 5, 4.97, 4.95, 2], 1, ["PCs 2 to 4 are not distinguishable"]),
    "end among themselves": ([9, 5, 4.97], 1, ["PCs 2 and 3 are not distinguishable"]),
    "end with what follows": ([9, 5, 4.97], 4.95, ["PCs 2 and 3, and those that follow them, are not"]),
    "last alone": ([9, 7, 5], 4.96, ["PC 3 is not distinguishable from those that follow it"]),
    "two groups": ([9, 8.95, 5, 4.97], 2, ["PCs 1 and 2 are", "PCs 3 and 4 are"]),
    "three groups": ([9, 8.95, 7, 6.97, 5, 4.97, 4.95], 2, ["PCs 1 and 2, 3 and 4, 5 to 7 are not"]),
    "groups at both ends": ([9, 8.95, 5, 4.97], 4.96, ["PCs 1 and 2 are", "PCs 3 and 4, and those that follow them"]),
    "all": ([5, 4.99, 4.98], 4.97, ["PCs 1 to 3, and those that follow them"]),
    "equal": ([5, 5], None, ["PCs 1 and 2 are not distinguishable"]),
    "one": ([5], None, []),
    "one that something follows": ([5], 4.99, ["PC 1 is not distinguishable from those that follow it"]),
}  # fmt: skip


@pytest.mark.parametrize("name", NORTH)
def test_norths_rule(name):
    values, following, words = NORTH[name]
    said = not_distinguishable(made(values, following))
    assert len(said) == len(words)
    for note, start in zip(said, words, strict=True):
        assert note.startswith(start)
        assert "sampling error" in note


def test_norths_rule_counts_variants_of_genotypes_and_samples_of_others():
    values = [9, 8.5, 5]
    assert not not_distinguishable(made(values, 1))
    # 1,000 samples: 9 sqrt(2 / 1000) = 0.4; 200: 0.9.
    assert not not_distinguishable(made(values, 1, genotypes=False))
    assert len(not_distinguishable(made(values, 1, n=200, genotypes=False))) == 1
    assert len(not_distinguishable(made(values, 1, m=200))) == 1


def test_norths_rule_in_a_fit(cohort):
    """The three splits of the first level stand apart; the noise after the 24 populations does not."""
    found = fit(cohort, 3)
    assert not [note for note in found.notes if "distinguishable" in note and "PC 1" in note]
    noise = fit(cohort, 60, "gram")
    assert noise.following is not None
    assert any("those that follow" in note for note in noise.notes)


def test_fit_genotypes_is_fit_pca_with_notes(cohort):
    source, options = open_genotypes(cohort), PCAOptions(n_components=3, solver="gram")
    found, _, apart = fit_genotypes(source, partial(fit_pca, options=options))
    assert apart is None
    plain = fit_pca(source, options)[0]
    assert_same_bits(found, plain)
    assert replace(found, notes=()).notes == ()
    assert set(plain.notes) <= set(found.notes)
