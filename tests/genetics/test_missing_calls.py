"""Samples with many missing calls: drawn to the centre by mean filling, placed by least squares, projected likewise."""

from __future__ import annotations

import json

import numpy as np
import pytest
from genotype_helpers import Truth, random_calls, write_bed

from streampca import PCA, load, open_genotypes
from streampca.genetics.matching import match_samples
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions

SPARSE = np.arange(240) >= 210  # of the third population, genotyped on another array


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """Three populations, complete and with 40% of the calls of some samples missing; the last sample has no call."""
    folder = tmp_path_factory.mktemp("cohort")
    complete = random_calls(240, 4000, 7, missing=0.0)
    calls = complete.copy()
    calls[np.outer(SPARSE, np.ones(4000)) * np.random.default_rng(1).random(calls.shape) > 0.6] = np.nan
    calls[-1] = np.nan
    write_bed(folder / "complete", complete)
    write_bed(folder / "sparse", calls)
    return folder, complete, calls


def place(folder, missing):
    """PC 1 and 2 of the sparse samples relative to those of the same samples without missing calls."""
    true = PCA(2).fit_transform(folder / "complete.bed")
    model = PCA(2, missing=missing)
    ours = model.fit_transform(folder / "sparse.bed")
    left, _, right = np.linalg.svd(ours[~SPARSE].T @ true[~SPARSE])
    ours, here = (ours @ left @ right)[SPARSE][:-1], true[SPARSE][:-1]
    return (ours.mean(axis=0) @ here.mean(axis=0)) / (here.mean(axis=0) @ here.mean(axis=0)), model


def test_mean_filling_shrinks_and_says_so_least_squares_does_not(cohort):
    shrunk, filled = place(cohort[0], "mean")
    assert shrunk == pytest.approx(0.6, abs=0.05)
    notes = [note for note in filled.notes_ if "missing calls" in note]
    assert len(notes) == 1
    assert notes[0].startswith("30 samples have more missing calls than most")
    assert "39% to 100%; fit with --missing lsq, or with ppca" in notes[0]
    right, observed = place(cohort[0], "lsq")
    assert right == pytest.approx(1.0, abs=0.05)
    assert not [note for note in observed.notes_ if "missing calls" in note]
    # The same components, in one sweep more.
    np.testing.assert_array_equal(observed.components_, filled.components_)
    assert observed.n_sweeps_ == filled.n_sweeps_ + 1


def test_scores_are_those_of_a_least_squares_solver(cohort):
    folder, _, calls = cohort
    model = PCA(3, missing="lsq").fit(folder / "sparse.bed")
    true = Truth(calls)
    scores = model.result_["scores"].values
    for i in (0, 170, 238):
        called = ~np.isnan(calls[i, true.varies])
        best = np.linalg.lstsq(model.components_[:, called].T, true.X[i, called], rcond=None)[0]
        np.testing.assert_allclose(scores[i], best, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.transform(folder / "sparse.bed"), scores, rtol=1e-5, atol=1e-5)


def test_sample_without_calls_has_no_scores(cohort):
    model = PCA(2, missing="lsq").fit(cohort[0] / "sparse.bed")
    assert np.flatnonzero(np.isnan(model.result_["scores"].values).any(axis=1)).tolist() == [239]
    assert "samples without scores, because they have no or too few values: 1" in model.notes_


def test_complete_genotypes_have_the_same_bits_either_way(cohort):
    mean, lsq = (PCA(2, missing=how).fit(cohort[0] / "complete.bed") for how in ("mean", "lsq"))
    np.testing.assert_array_equal(mean.result_["scores"], lsq.result_["scores"])
    assert mean.n_sweeps_ == lsq.n_sweeps_
    assert not [note for note in mean.notes_ if "missing" in note]


def test_even_missingness_has_no_note(tmp_path):
    write_bed(tmp_path / "x", random_calls(60, 1500, 2, missing=0.3))
    assert not [note for note in PCA(2).fit(tmp_path / "x.bed").notes_ if "missing calls" in note]


def test_missing_calls_of_excluded_variants_do_not_count(tmp_path):
    """A sample misses every call of variants that are filtered out: no share of the others is missing."""
    calls = random_calls(40, 800, 3, missing=0.0)
    calls[:20, 500:] = np.nan
    path = write_bed(tmp_path / "x", calls)
    for mind in (1.0, 0.9):
        source = open_genotypes(path, geno=0.2, mind=mind)
        fitted, _ = fit_pca(source, PCAOptions(n_components=2))
        assert fitted.n_features == 500
        assert not fitted.sample_missing.any()
        assert not [note for note in fitted.notes if "missing calls" in note]
    # All variants count for mind, as in plink.
    fitted, sweeps = fit_pca(open_genotypes(path, geno=0.2, mind=0.3), PCAOptions(n_components=2))
    assert sweeps.matrix.source.shape[0] == 20
    assert fitted.n_samples == 20


def test_outliers_are_found_among_samples_with_scores(cohort, here, monkeypatch):
    monkeypatch.chdir(cohort[0])
    args = (
        "pca",
        "sparse",
        "-k",
        2,
        "--missing",
        "lsq",
        "--outliers",
        "report",
        "--quiet",
        "--json",
        "--out",
        "o.zarr",
    )
    code, out, err = here(*args)
    assert code == 0, err
    assert "samples without scores" in " ".join(json.loads(out)["notes"])
    assert not load("o.zarr")["outlier"].values[-1]
    for command in (("report", "o.zarr"), ("export", "o.zarr", "--format", "tsv"), ("info", "o.zarr")):
        assert here(*command)[0] == 0
    assert "least squares" in (cohort[0] / "o.html").read_text()


# ---- projection


@pytest.fixture(scope="module")
def reference(cohort):
    """A fit on the even samples of the complete file, and the odd ones: complete, and with missing calls."""
    folder, complete, calls = cohort
    for name, values, rows in (("even", complete, slice(0, None, 2)), ("odd", complete, slice(1, None, 2)),
                               ("odd-sparse", calls, slice(1, None, 2))):  # fmt: skip
        ids = [f"i{i}" for i in range(240)][rows]
        write_bed(folder / name, np.ascontiguousarray(values[rows]), fid=ids, iid=ids)
    return folder


def projected(folder, here, name, *more):
    """Project a file on the fit of the even samples; return the facts and the store."""
    if not (folder / "even.pca.zarr").exists():
        assert here("pca", "even", "-k", 4, "--quiet")[0] == 0
    out = f"{name}-{'-'.join(more) or 'default'}.zarr"
    code, text, err = here("project", "even.pca.zarr", name, *more, "--json", "--quiet", "--out", out)
    assert code == 0, err
    import xarray as xr

    return json.loads(text), xr.open_zarr(folder / out, consolidated=False)


def test_projection_of_samples_with_missing_calls(reference, here, monkeypatch):
    monkeypatch.chdir(reference)
    sparse = SPARSE[1::2][:-1]

    def relative(how):
        mine, full = (projected(reference, here, name, *how)[1]["scores"].values[:-1, :2][sparse].mean(axis=0)
                      for name in ("odd-sparse", "odd"))  # fmt: skip
        return mine @ full / (full @ full)

    assert relative(("--method", "simple")) == pytest.approx(0.6, abs=0.05)
    assert relative(("--method", "lsq")) == pytest.approx(1.0, abs=0.03)
    assert relative(()) == pytest.approx(1.0, abs=0.03)
    facts, store = projected(reference, here, "odd-sparse", "--projection", "lsq")
    assert facts["n_without_scores"] == 1
    assert np.isnan(store["scores"].values[-1]).all()


def test_standard_errors_are_those_of_repeated_samples(reference, here, monkeypatch):
    """The same samples, each with another random half of their calls: scores vary as their standard errors state."""
    monkeypatch.chdir(reference)
    rng, base = np.random.default_rng(5), random_calls(240, 4000, 7, missing=0.0)[1::2]
    scores, errors = [], []
    for i in range(6):
        calls = np.where(rng.random(base.shape) < 0.5, base, np.nan)
        ids = [f"r{j}" for j in range(120)]
        write_bed(reference / f"half{i}", calls, fid=ids, iid=ids)
        _, store = projected(reference, here, f"half{i}", "--method", "lsq")
        scores.append(store["scores"].values)
        errors.append(store["score_deviation"].values)
    # Half of the calls are those of the others too, and vary half as much as calls of other samples would.
    varied = np.stack(scores).var(axis=0, ddof=1).mean()
    assert varied == pytest.approx(0.5 * np.mean(np.square(errors)), rel=0.15)


def test_samples_of_the_fit_keep_their_scores(reference, here, monkeypatch):
    monkeypatch.chdir(reference)
    facts, store = projected(reference, here, "even")
    assert (facts["n_fitted"], facts["n_same_id"]) == (120, 0)
    np.testing.assert_array_equal(store["scores"].values, load("even.pca.zarr")["scores"].values)
    # Other samples under the same ids are projected like any others.
    ids = [f"i{i}" for i in range(0, 240, 2)]
    other = random_calls(240, 4000, 7, missing=0.0)[1::2].copy()
    write_bed(reference / "impostors", other, fid=ids, iid=ids)
    facts, store = projected(reference, here, "impostors")
    assert (facts["n_fitted"], facts["n_same_id"]) == (0, 120)
    _, expected = projected(reference, here, "odd")
    np.testing.assert_array_equal(store["scores"].values, expected["scores"].values)
    assert "n_fitted" not in projected(reference, here, "odd")[0]


def test_samples_are_matched_by_family_if_both_have_families():
    fitted = [("f1", "a"), ("f2", "b"), ("0", "c"), ("f3", "d"), ("f4", "d")]
    new = [("f1", "a"), ("f9", "a"), ("0", "b"), ("b", "b"), ("f7", "c"), ("f4", "d"), ("0", "d"), ("f1", "z")]
    assert match_samples(fitted, new).tolist() == [0, -1, 1, 1, 2, 4, -1, -1]
