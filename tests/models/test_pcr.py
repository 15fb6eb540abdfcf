"""Principal component regression against scikit-learn's parts and brute force, in every regime."""

from __future__ import annotations

import json
from types import SimpleNamespace

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from genotype_helpers import Truth, calls_in, labels_of, random_calls, table, write_bed, write_part
from helpers import CountingSource, UnreadableSource, assert_close, falling, matrix_with_spectrum, one_line
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from streampca import PCR, InputError, MemoryLimitError, load, open_source
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.targets import Targets, plan_pcr
from streampca.results.regression import targets_from
from streampca.run.apply import _write_predictions
from streampca.sources import Axis

# How data are cut, and what they are solved by: shape, chunks, solver.
REGIMES = {
    "covariance": ((150, 12), (16, 12), "covariance"),
    "gram": ((40, 120), (40, 16), "gram"),
    "krylov along samples": ((240, 150), (48, 150), "krylov"),
    "krylov along features": ((150, 240), (150, 48), "krylov"),
}
K = 6


def study(shape, *, seed=0, targets=2, covariates=2):
    """Features whose first directions tell the targets, covariates, and targets."""
    rng = np.random.default_rng(seed)
    n, d = shape
    x = matrix_with_spectrum(n, d, falling(min(n - 1, d), 0.75), mean=3.0, seed=seed)
    c = rng.standard_normal((n, covariates)) + [5.0, -2.0][:covariates]
    scores = SklearnPCA(4).fit_transform(x)
    y = scores @ rng.standard_normal((4, targets)) + c @ rng.standard_normal((covariates, targets))
    return x, c, y + rng.standard_normal((n, targets)) + 10.0


def foretold(x, c, y, training, k):
    """What regressions fitted on the training samples alone foretell for all, with m = 0 .. k components."""
    scores = SklearnPCA(k, svd_solver="full").fit(x[training]).transform(x) if k else np.empty((len(x), 0))
    values = []
    for m in range(k + 1):
        design = np.hstack([c, scores[:, :m]])
        if design.shape[1] == 0:
            values.append(np.repeat(y[training].mean(axis=0)[None], len(y), axis=0))
        else:
            values.append(LinearRegression().fit(design[training], y[training]).predict(design))
    return values


def brute_force(x, c, y, folds, k):
    """Errors of the folds (folds, targets, k + 1), by a refit for each fold and each m."""
    errors = np.empty((folds.max() + 1, y.shape[1], k + 1))
    for fold in range(folds.max() + 1):
        for m, values in enumerate(foretold(x, c, y, (folds >= 0) & (folds != fold), k)):
            errors[fold, :, m] = ((values - y)[folds == fold] ** 2).mean(axis=0)
    return errors


# ---------------------------------------------------------------- against scikit-learn


@pytest.mark.usefixtures("several_partitions")
@pytest.mark.parametrize("regime", REGIMES)
def test_every_m_equals_scikit_learn(regime):
    shape, chunks, solver = REGIMES[regime]
    x, c, y = study(shape)
    used = np.arange(len(x)) % 9 != 4
    y[~used, 1] = np.nan
    fresh = x[::-1] + 0.5
    for m in (2, K) if solver == "krylov" else range(1, K + 1):
        model = PCR(m, cv=0, solver=solver).fit(CountingSource(x, chunks), y, c)
        pca = SklearnPCA(m, svd_solver="full").fit(x[used])
        line = LinearRegression().fit(np.hstack([c, pca.transform(x)])[used], y[used])
        assert (model.n_components_ == m).all()
        assert_close(model.components_, pca.components_)
        assert_close(model.explained_variance_ratio_, pca.explained_variance_ratio_)
        assert_close(model.score_coef_, line.coef_[:, 2:])
        assert_close(model.covariate_coef_, line.coef_[:, :2])
        assert_close(model.coef_, line.coef_[:, 2:] @ pca.components_)
        values = line.predict(np.hstack([c, pca.transform(fresh)]))
        assert_close(model.predict(fresh, c), values)
        assert_close(fresh @ model.coef_.T + c @ model.covariate_coef_.T + model.intercept_, values)
        assert model.score(x, y, c) == pytest.approx(line.score(np.hstack([c, pca.transform(x)])[used], y[used]))
        assert_close(model.r2_[:, m].mean(), model.score(x, y, c))


def _constant_features(x):
    x[:, [0, 7]] = [3.25, -1e6 / 3]
    return x


@pytest.mark.parametrize("solver", ["covariance", "gram"])
@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda x: x + 1e6, {}),
        (_constant_features, {"scale": "unit"}),
        (lambda x: x * np.geomspace(1e-6, 1e6, x.shape[1]) + 2.0, {"scale": "unit"}),
    ],
)  # fmt: skip
def test_hard_numbers_equal_scikit_learn_too(solver, change, options):
    x, _, y = study((90, 20))
    x = change(x)
    scaled = x.copy()
    if options:
        spread = x.std(axis=0, ddof=1)
        scaled = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    model = PCR(4, cv=0, solver=solver, **options).fit(x, y)
    pca = SklearnPCA(4, svd_solver="full").fit(scaled)
    line = LinearRegression().fit(pca.transform(scaled), y)
    assert_close(model.predict(x), line.predict(pca.transform(scaled)), rtol=1e-7)
    assert_close(model.explained_variance_, pca.explained_variance_, rtol=1e-7)


def test_a_first_sample_far_from_the_mean_costs_a_sweep_and_no_digits(monkeypatch):
    x, c, y = study((90, 20))
    x[0] += 1e4
    usual, careful = PCR(4).fit(x, y, c), None
    monkeypatch.setattr("streampca.solvers.folds.sums.FAR", 1.0)
    careful = PCR(4).fit(x, y, c)
    assert (usual.n_sweeps_, careful.n_sweeps_) == (1, 2)
    for model in (usual, careful):
        assert_close(model.predict(x, c)[:, 0], foretold(x, c, y, model.folds_ >= 0, model.n_components_[0])[-1][:, 0])


@pytest.mark.parametrize(
    ("shape", "solver"), [((80, 400), "gram"), ((120, 30), "covariance"), ((120, 30), "krylov"), ((80, 300), "krylov")]
)
def test_samples_that_are_not_used_cost_no_digits_however_far_they_are(shape, solver):
    x, c, y = study(shape)
    y[:5, 1] = np.nan
    near = PCR(K, solver=solver).fit(x, y, c)
    far = x.copy()
    far[:5] = -1e9
    model = PCR(K, solver=solver).fit(far, y, c, folds=near.folds_)
    assert model.certificate_.max() < 1e-6
    assert_close(model.cv_mse_, near.cv_mse_, rtol=1e-6)
    assert_close(model.predict(x, c), near.predict(x, c), rtol=1e-6)


@pytest.mark.parametrize("solver", ["gram", "covariance", "krylov"])
def test_samples_used_that_are_all_the_same_are_told_so(solver):
    x, y = np.full((40, 12), 0.1), np.arange(40.0)
    x[:3], y[:3] = np.arange(36).reshape(3, 12), np.nan
    with pytest.raises(InputError, match="same in all features; give features that vary among these"):
        PCR(2, solver=solver).fit(x, y)


def test_certificates_know_how_far_the_samples_used_are_from_the_mean_of_all():
    """Missing values stand at the mean of all samples, which these are then about."""
    x, c, y = study((90, 20))
    y[:9] = np.nan
    for solver in ("covariance", "gram", "krylov"):
        x[:9], x[0, 3] = 1e7, np.nan
        model = PCR(4, missing="mean", solver=solver).fit(x, y, c)
        assert not model.result_.attrs["converged"]
        assert "samples that are not used are far from the others" in model.result_.attrs["advice"]
        x[1:9] = 1e10
        with pytest.raises(InputError, match="up to rounding at .* remove the other samples"):
            PCR(4, missing="mean", solver=solver).fit(x, y, c)


def test_float32_store_dask_and_xarray_give_the_same(tmp_path):
    x, c, y = study((120, 24))
    x = x.astype(np.float32)
    zarr.save_array(tmp_path / "x.zarr", x)
    labelled = xarray.DataArray(
        x.reshape(120, 4, 6), dims=("run", "row", "column"), coords={"run": np.arange(120) + 7, "row": list("abcd")}
    )
    theirs = PCR(5).fit(x.astype(np.float64), y, c)
    for data in (tmp_path / "x.zarr", dask.array.from_array(x, chunks=(50, 24)), labelled):
        model = PCR(5).fit(data, y, c)
        assert_close(model.coef_, theirs.coef_, rtol=1e-9)
        assert_close(model.cv_mse_, theirs.cv_mse_, rtol=1e-9)
        assert_close(np.asarray(model.predict(data, c)), theirs.predict(x, c))
    assert model.predict(labelled, c).dims == ("run", "target")
    assert model.result_["coefficient"].dims == ("target", "row", "column")
    assert model.result_["fold"].dims == ("run",)
    lazy = model.predict(dask.array.from_array(x, chunks=(50, 24)), c)
    assert isinstance(lazy, dask.array.Array)
    assert model.result_.attrs["tile_dtype"] == "float64"


def test_scikit_learns_own_checks_pass():
    results = check_estimator(PCR(), on_skip=None, on_fail=None)
    assert not {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert sum(result["status"] == "passed" for result in results) > 40
    model = PCR(3, cv=4, scale="unit", missing="mean", solver="gram", tol=1e-4, memory_limit="1GB", random_state=3)
    assert clone(model).get_params() == model.get_params()


# ---------------------------------------------------------------- cross-validation


@pytest.mark.usefixtures("several_partitions")
@pytest.mark.parametrize("regime", REGIMES)
def test_cross_validation_equals_brute_force(regime):
    shape, chunks, solver = REGIMES[regime]
    x, c, y = study(shape, seed=3)
    y[[5, 17], 0] = np.nan
    c[30, 1] = np.nan
    source = CountingSource(x, chunks)
    model = PCR(K, solver=solver, random_state=2).fit(source, y, c)
    used = np.isfinite(y).all(axis=1) & np.isfinite(c).all(axis=1)
    np.testing.assert_array_equal(model.folds_ >= 0, used)
    sizes = np.bincount(model.folds_[used])
    assert len(sizes) == 5
    assert np.ptp(sizes) <= 1
    errors = brute_force(x, np.nan_to_num(c), np.nan_to_num(y), model.folds_, K)
    assert_close(model.cv_mse_, errors.mean(axis=0))
    assert_close(model.cv_mse_deviation_, errors.std(axis=0, ddof=1) / np.sqrt(5))
    np.testing.assert_array_equal(model.n_components_, errors.mean(axis=0).argmin(axis=1))
    squares = ((y[used] - y[used].mean(axis=0)) ** 2).sum(axis=0)[:, None]
    assert_close(model.cv_r2_, 1 - (errors * sizes[:, None, None]).sum(axis=0) / squares)
    assert model.converged_
    # All folds come from the same reads; the first sample is looked at beforehand.
    times = source.times_read()
    assert set(np.unique(times[1:]).tolist()) == {model.n_sweeps_}
    assert model.n_sweeps_ == {"covariance": 1, "gram": 2}.get(regime, model.n_sweeps_) <= 9


@pytest.mark.usefixtures("several_partitions")
@pytest.mark.parametrize("regime", REGIMES)
def test_any_number_of_threads_gives_the_same_bits(regime):
    shape, chunks, solver = REGIMES[regime]
    x, c, y = study(shape)
    models = []
    for threads in (1, 3):
        with dask.config.set(num_workers=threads):
            models.append(PCR(2, cv=2, solver=solver).fit(CountingSource(x, chunks), y, c))
    for name in ("coef_", "cv_mse_", "components_"):
        np.testing.assert_array_equal(getattr(models[0], name), getattr(models[1], name))


def test_the_choice_is_that_of_a_grid_search_over_a_pipeline():
    x, _, y = study((80, 15), covariates=0, targets=1)
    folds = np.random.default_rng(1).integers(0, 4, 80)
    ours = PCR(8).fit(x, y[:, 0], folds=folds)
    pipeline = make_pipeline(SklearnPCA(svd_solver="full"), LinearRegression())
    search = GridSearchCV(
        pipeline, {"pca__n_components": list(range(1, 9))}, scoring="neg_mean_squared_error", cv=PredefinedSplit(folds)
    ).fit(x, y[:, 0])
    assert_close(ours.cv_mse_[1:], -search.cv_results_["mean_test_score"])
    assert ours.n_components_ == search.best_params_["pca__n_components"]
    assert_close(ours.predict(x), search.predict(x))
    assert ours.coef_.shape == (15,)


def test_folds_come_from_the_seed_and_noise_chooses_no_components():
    x, c, y = study((60, 10))
    noise = np.random.default_rng(1).standard_normal(60)
    same, other = (PCR(random_state=seed).fit(x, noise, c) for seed in (0, 1))
    np.testing.assert_array_equal(same.folds_, PCR(random_state=0).fit(x, y, c).folds_)
    assert (same.folds_ != other.folds_).any()
    model = PCR().fit(x, y[:, 0] * 0 + 0.1)
    assert model.n_components_ == 0
    assert np.isnan(model.r2_).all()
    assert_close(model.predict(x), np.full(60, 0.1))
    assert model.cv_mse_.max() < 1e-30


def test_what_adds_nothing_is_left_out():
    """Components without variance, fewer in the training sets than in all, and covariates that repeat each other."""
    x, c, y = study((40, 30))
    x = SklearnPCA(3).fit(x).inverse_transform(SklearnPCA(3).fit_transform(x))
    # One sample alone makes the fourth direction: the fold without it has three.
    x[7] += np.linspace(-1, 1, 30)
    repeated = np.column_stack([c, c[:, 0] - 2 * c[:, 1], np.ones(40)])
    folds = np.arange(40) % 4
    for solver in ("covariance", "gram", "krylov"):
        model = PCR(6, solver=solver).fit(x, y, repeated, folds=folds)
        assert len(model.components_) == 4
        assert any("the first 4 components" in note for note in json.loads(model.result_.attrs["notes"]))
        errors = brute_force(x, c, y, folds, 3)
        assert_close(model.cv_mse_[:, :4], errors.mean(axis=0))
        assert_close(model.predict(x, repeated)[:, 0], foretold(x, c, y, folds >= 0, model.n_components_[0])[-1][:, 0])


# ---------------------------------------------------------------- missing values, genotypes


def test_missing_features_stand_at_the_mean():
    x, c, y = study((70, 18))
    gaps = x.copy()
    gaps[np.random.default_rng(4).random(x.shape) < 0.05] = np.nan
    filled = np.where(np.isnan(gaps), np.nanmean(gaps, axis=0), gaps)
    scaled = (filled - filled.mean(axis=0)) / np.sqrt(((filled - filled.mean(axis=0)) ** 2).sum(axis=0) / 69)
    for solver, sweeps in (("covariance", 2), ("gram", 2), ("krylov", None)):
        model = PCR(4, missing="mean", scale="unit", solver=solver).fit(gaps, y, c)
        assert model.n_sweeps_ == sweeps or sweeps is None
        assert_close(model.cv_mse_, brute_force(scaled, c, y, model.folds_, 4).mean(axis=0))
        for j, m in enumerate(model.n_components_):
            expected = foretold(scaled, c, y, model.folds_ >= 0, m)[-1][:, j]
            assert_close(model.predict(gaps, c)[:, j], expected)
        with pytest.raises(InputError, match="missing value"):
            PCR(4, solver=solver).fit(gaps, y, c)


@pytest.fixture
def genotypes(tmp_path):
    """A .bed of 60 samples and 300 variants, its matrix, and a trait with its covariate."""
    path = write_bed(tmp_path / "study", random_calls(60, 300, seed=2))
    X = Truth(calls_in(path)).X
    rng = np.random.default_rng(3)
    age = rng.uniform(20, 70, 60)
    return path, X, SklearnPCA(2).fit_transform(X) @ [1.0, 0.5] + age / 10 + rng.standard_normal(60), age


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_genotypes_equal_their_matrix(genotypes, solver, tmp_path):
    path, X, trait, age = genotypes
    trait[:2] = np.nan
    model = PCR(5, solver=solver).fit(path, trait, age)
    errors = brute_force(X, age[:, None], np.nan_to_num(trait)[:, None], model.folds_, 5)
    assert_close(model.cv_mse_, errors.mean(axis=0)[0])
    expected = foretold(X, age[:, None], np.nan_to_num(trait)[:, None], model.folds_ >= 0, model.n_components_)[-1][
        :, 0
    ]
    assert_close(model.predict(path, age), expected)
    # The same variants in another order, some counted by the other allele.
    calls, (_, variants) = calls_in(path), labels_of(path)
    order, flip = np.random.default_rng(5).permutation(300), np.arange(300) % 3 == 0
    swapped = {name: np.array(values)[order] for name, values in variants.items()}
    first, second = swapped["allele_1"], swapped["allele_2"]
    swapped["allele_1"], swapped["allele_2"] = np.where(flip, second, first), np.where(flip, first, second)
    turned = np.ascontiguousarray(np.where(flip, 2 - calls[:, order], calls[:, order]))
    other = write_bed(tmp_path / "other", turned[10:20], **swapped)
    assert_close(model.predict(other, age[10:20]), expected[10:20])
    assert set(model.result_["coefficient"].coords) >= {"variant_id", "allele_1", "allele_2", "target"}


def test_samples_with_few_calls_are_left_out(genotypes, tmp_path):
    from streampca import open_genotypes

    path, _, trait, age = genotypes
    calls = calls_in(path)
    calls[[4, 30], :200] = np.nan
    sparse = write_bed(tmp_path / "sparse", calls)
    kept = np.setdiff1d(np.arange(60), [4, 30])
    model = PCR(4).fit(open_genotypes(sparse, mind=0.5), trait, age)
    theirs = PCR(4).fit(write_part(tmp_path / "kept", sparse, kept), trait[kept], age[kept])
    assert_close(model.coef_, theirs.coef_)
    assert len(model.folds_) == 58


# ---------------------------------------------------------------- memory


def test_memory_is_counted_for_all_folds_and_refused_before_reading():
    source, y = UnreadableSource((20_000, 3000), (500, 3000)), np.arange(20_000.0)
    peaks = []
    for cv in (0, 5, 10):
        options = PCROptions(n_components=10, cv=cv, solver="covariance")
        peaks.append(plan_pcr(source, options, Targets.of(y), memory="64GB").peak_bytes)
    assert peaks[1] - peaks[0] > 4 * 8 * 3000**2
    assert peaks[2] > peaks[1]
    with pytest.raises(MemoryLimitError, match=r"covariance on 20000 x 3000 with 5 folds needs at least \d+ MB"):
        PCR(10, solver="covariance", memory_limit="400MB").fit(source, y)
    # What does not fit as a whole is found by blocks.
    tall = UnreadableSource((400_000, 60_000), (1000, 60_000))
    assert plan_pcr(tall, PCROptions(n_components=10), Targets.of(np.arange(4e5)), memory="16GB").name == "krylov"


# ---------------------------------------------------------------- commands


def test_commands_fit_and_predict(here, genotypes, tmp_path):
    path, X, trait, age = genotypes
    sex = np.where(np.arange(60) % 3 == 0, "M", "F")
    ids = [f"i{i}" for i in range(60)]
    lines = [f"{i}\t{t:.17g}\t{-t:.17g}\t{a:.17g}\t{s}" for i, t, a, s in zip(ids, trait, age, sex, strict=True)]
    lines[3] = f"i3\tNA\tNA\t{age[3]:.17g}\tM"
    (tmp_path / "traits.tsv").write_text("IID\theight\tdepth\tage\tsex\n" + "\n".join(reversed(lines)) + "\n")
    fit = ("pcr", path, "--target", "traits.tsv:height,depth", "--covariates", "traits.tsv:age,sex", "-k", 4, "--quiet")
    code, out, err = here(*fit)
    assert code == 0, err
    assert "59 of 60 samples are used" in out
    assert "gram: 2 sweeps, " in out
    result = load(tmp_path / "study.pcr.zarr")
    others = np.column_stack([age, sex == "M"])
    both = np.column_stack([trait, -trait])
    folds = result["fold"].values
    assert folds[3] == -1
    errors = brute_force(X, others, both, folds, 4).mean(axis=0)
    assert_close(result["cv_error"].values, errors)
    m = int(errors[0].argmin())
    assert result["chosen"].values.tolist() == [m, m]
    assert result["covariate"].values.tolist() == ["age", "sex=M"]
    code, out, err = here("predict", "study.pcr.zarr", path, "--covariates", "traits.tsv", "--quiet", "--json")
    assert code == 0, err
    assert json.loads(out)["n_samples"] == 60
    told = table(tmp_path / "study.pcr.predicted.tsv")
    assert told["IID"].tolist() == ids
    expected = foretold(X, others, both, folds >= 0, m)[-1]
    assert_close(told["height"].astype(float), expected[:, 0])
    assert_close(told["depth"].astype(float), -told["height"].astype(float), rtol=1e-8)
    assert "height" in here("info", "study.pcr.zarr")[1]
    assert "gram" in here(*fit, "--plan")[1]
    # What a user may get wrong is one line that names the cure.
    for arguments, words in (
        ((*fit, "--cv", 3), "exists already"),
        ((*fit[:3], "traits.tsv:weight", "--overwrite"), "has no column 'weight'; it has height"),
        ((*fit[:3], "traits.tsv", "--overwrite"), "names no column"),
        ((*fit[:3], "traits.tsv:sex", "--overwrite"), "must be numeric"),
        ((*fit[:4], "-k", 59, "--plan"), "--n-components must be at most"),
        (("predict", "study.pcr.zarr", path, "--overwrite"), "give a table with age, sex"),
        (("predict", "study.pcr.zarr", path), "exists already"),
        (("predict", "nothing.zarr", path), "nothing.zarr: does not exist"),
    ):
        code, _, err = here(*arguments)
        assert code == 2, arguments
        assert words in err
        assert err.count("\n") == 1


def test_commands_take_arrays(here, tmp_path):
    x, _, y = study((50, 8), targets=1)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "new.npy", x[:7] + 1)
    np.save(tmp_path / "narrow.npy", x[:, :5])
    (tmp_path / "y.csv").write_text("sample,y\n" + "".join(f"{i},{v:.17g}\n" for i, v in enumerate(y[:, 0])))
    code, out, err = here("pcr", "x.npy", "--target", "y.csv:y", "--scale", "unit", "--cv", 4, "--json", "--quiet")
    assert code == 0, err
    model = PCR(scale="unit", cv=4, random_state=0)
    facts, result = json.loads(out), load(tmp_path / "x.pcr.zarr")
    model.fit(x, y[:, 0], folds=result["fold"].values)
    assert (facts["n_sweeps"], facts["n_components"]) == (1, [int(model.n_components_)])
    assert_close(result["coefficient"].values[0], model.coef_)
    assert here("predict", "x.pcr.zarr", "new.npy", "--quiet")[0] == 0
    assert_close(table(tmp_path / "new.pcr.predicted.tsv")["y"].astype(float), model.predict(x[:7] + 1), rtol=1e-8)
    code, _, err = here("predict", "x.pcr.zarr", "narrow.npy")
    assert code == 2
    assert "has the features feature 5, the result feature 8" in err


def test_predictions_are_a_table_whatever_ids_are_called(tmp_path):
    named = {"sample": (("sample",), np.array(["a\tb", 'c\n"d"', "e"]))}
    data = SimpleNamespace(samples=Axis(("sample",), (3,), named))
    _write_predictions(tmp_path / "p.tsv", data, ("y\t1",), np.arange(3.0)[:, None])
    assert (tmp_path / "p.tsv").read_text() == '#IID\ty 1\na b\t0\n"c ""d"""\t1\ne\t2\n'


@pytest.mark.parametrize(("values", "count"), [([-9, 1.5, 2, -9], 2), ([-9, -1, 2, 3], 0), ([1, 2, 3, 4], 0)])
def test_codes_of_plink_for_missing_traits_are_noted(values, count, tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("id\theight\n" + "".join(f"{i}\t{value}\n" for i, value in enumerate(values)))
    targets, _, notes = targets_from(open_source(np.eye(4)), f"{path}:height")
    assert targets.y[:, 0].tolist() == values
    assert [note for note in notes if "write NA for missing" in note] == [
        f"height is -9 in {count} samples, PLINK's code for missing; here it is a number: write NA for missing"
    ][:count]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({}, {"y": np.full(30, np.nan)}, "0 of n_samples = 30 samples have values"),
        ({}, {"y": np.ones(29)}, "y has 29 rows for 30 samples"),
        ({}, {"y": np.r_[np.inf, np.ones(29)]}, "Input y contains infinity"),
        ({}, {"covariates": np.ones((5, 2))}, "covariates has 5 rows"),
        ({}, {"folds": np.r_[np.zeros(15, int), np.full(15, 2)]}, "fold 1 has no used samples"),
        ({}, {"folds": np.zeros(30, int)}, "there is only one fold"),
        ({}, {"folds": np.full(30, 0.5)}, "folds must be one integer per sample"),
        ({"n_components": 9}, {}, "n_components must be at most 8"),
        ({"n_components": 0}, {}, "an integer >= 1, got 0"),
        ({"n_components": 0.5}, {}, "an integer >= 1, got 0.5"),
        ({"cv": 1}, {}, "cv must be 0 or an integer >= 2, got 1"),
        ({"cv": 31}, {}, "cv must be at most 30"),
        ({"cv": 0}, {"folds": np.arange(30) % 3}, "cv=0 is no cross-validation, but folds are given"),
        ({"solver": "power"}, {}, "auto, covariance, gram or krylov, got 'power'"),
        ({"cv": 2}, {"covariates": np.random.default_rng(0).normal(size=(30, 14))}, "too few for an intercept"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(options, arguments, words):
    x = np.random.default_rng(0).standard_normal((30, 8))
    with pytest.raises(InputError) as error:
        PCR(**options).fit(x, **({"y": x[:, 0]} | arguments))
    assert words in one_line(error)


def test_prediction_wants_the_covariates_and_features_that_were_fitted():
    x, c, y = study((40, 8))
    model = PCR(3).fit(x, y, c)
    for arguments, words in (
        ((x,), r"the regression has 2 covariates \(c1, c2\)"),
        ((x, c[:5]), "covariates have the shape"),
        ((x[:, :4], c), "4 features"),
    ):
        with pytest.raises(ValueError, match=words):
            model.predict(*arguments)
    assert_close(PCR(3, cv=None).fit(x, y, c).n_components_, [3, 3])
    assert_close(
        make_pipeline(StandardScaler(), PCR(3, cv=0)).fit(x, y).predict(x),
        PCR(3, cv=0, scale="unit").fit(x, y).predict(x),
    )


@pytest.mark.parametrize("power", [300, 200, -200, -300])
@pytest.mark.parametrize("cv", [0, 5])
def test_targets_whose_squares_leave_the_range_of_numbers_are_rejected(rng, power, cv):
    X = rng.normal(size=(30, 4)) * [5, 1, 1, 1]
    y = X[:, 0] + 0.1 * rng.normal(size=30)
    with pytest.raises(InputError, match=r"y1: values are too large or too small"):
        PCR(2, cv=cv).fit(X, y * 10.0**power)
    with pytest.raises(InputError, match=r"c1: values are too large or too small"):
        PCR(2, cv=cv).fit(X, y, covariates=rng.normal(size=30) * 10.0**power)
    # Large numbers that can be squared do.
    near = PCR(2, cv=cv).fit(X, y)
    np.testing.assert_allclose(PCR(2, cv=cv).fit(X, y * 1e130).coef_ / 1e130, near.coef_, rtol=1e-10)
