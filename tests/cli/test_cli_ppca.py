"""`streampca ppca` and `streampca impute`: in a process of its own where exit codes count, else called directly."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import xarray
import zarr
from genotype_helpers import Truth, calls_in, random_calls, table, write_bed
from latent_helpers import (
    planted,
    quick_sweeps,  # noqa: F401
    with_gaps,
)

from streampca import PPCA, FactorAnalysis, load, open_source
from streampca.models.ppca.record import FactorAnalysisFit


def gaps():
    return with_gaps(planted(150, 12, 3), 0.1)


@pytest.fixture
def data(tmp_path):
    """The same values as .npy and as Zarr, chunked either way; complete ones; genotypes."""
    np.save(tmp_path / "x.npy", gaps())
    np.save(tmp_path / "full.npy", planted(150, 12, 3))
    zarr.create_array(tmp_path / "rows.zarr", data=gaps(), chunks=(40, 12))
    zarr.create_array(tmp_path / "columns.zarr", data=gaps(), chunks=(150, 2))
    calls = random_calls(60, 300, 1, missing=0.05)
    calls[:, 7] = 0
    write_bed(tmp_path / "g", calls)
    return tmp_path


FILES = ["columns.zarr", "full.npy", "g.bed", "g.bim", "g.fam", "rows.zarr", "x.npy"]


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# ---------------------------------------------------------------- ppca


@pytest.mark.parametrize("name", ["x.npy", "rows.zarr", "columns.zarr"])
def test_ppca_writes_what_the_estimator_finds(data, here, name):
    code, out, _ = here("ppca", name, "-k", 3, "--quiet", "--json", "--tol", "1e-6", "--out", "r.zarr")
    assert code == 0
    said = json.loads(out)
    model = PPCA(3, tol=1e-6).fit(data / name)
    assert said["noise_variance"] == pytest.approx(model.noise_variance_, rel=1e-10)
    assert said["total_log_likelihood"] == pytest.approx(model.log_likelihood_, rel=1e-10)
    np.testing.assert_allclose(said["explained_variance"], model.explained_variance_, rtol=1e-10)
    assert (said["kind"], said["method"], said["converged"]) == ("ppca", "em", True)
    assert (said["n_samples"], said["n_features"], said["n_missing"]) == (150, 12, np.isnan(gaps()).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = xarray.open_zarr(data / "r.zarr").load()
    np.testing.assert_allclose(result["scores"], model.transform(data / name), atol=1e-8)
    assert result["score_deviation"].dims == ("sample", "component")
    assert json.loads(result.attrs["parameters"])["tol"] == 1e-6
    code, out, _ = here("info", "r.zarr", "--json")
    again = json.loads(out)
    assert {key: again[key] for key in said if key != "result"} == {key: said[key] for key in said if key != "result"}
    assert names(data) == sorted([*FILES, "r.zarr"])


def test_the_table_says_what_was_done(data, here):
    code, out, _ = here("ppca", "x.npy", "-k", 2, "--quiet")
    assert code == 0
    assert "noise variance" in out
    assert "150 samples x 12 features" in out
    assert "EM, " in out
    assert "certificate" not in out
    assert "result: x.ppca.zarr" in out
    assert here("info", "x.ppca.zarr")[1] == out
    code, out, _ = here("ppca", "full.npy", "-k", 2, "--quiet")
    assert "closed form: 2 sweeps" in out
    assert "certificate" in out
    assert (data / "full.ppca.zarr").is_dir()


def test_options_reach_the_model(data, here):
    code, out, _ = here("ppca", "full.npy", "-k", 2, "--method", "em", "--max-iter", 3, "--scale", "unit", "--quiet",
                        "--json")  # fmt: skip
    assert code == 0
    assert json.loads(out)["method"] == "em"
    assert json.loads(out)["total_log_likelihood"] == pytest.approx(
        PPCA(2, method="em", scale="unit").fit(data / "full.npy").log_likelihood_, rel=1e-6
    )
    code, out, _ = here("ppca", "x.npy", "-k", 2, "--max-iter", 2, "--tol", "1e-9", "--quiet", "--overwrite")
    assert "note: EM stopped after max_iter=2" in out


def test_factor_analysis(data, here):
    code, out, _ = here("factor_analysis", "x.npy", "-k", 2, "--quiet", "--json")
    assert code == 0
    model = FactorAnalysis(2).fit(data / "x.npy")
    said, result = json.loads(out), load(data / "x.factor_analysis.zarr")
    assert said["kind"] == "factor_analysis"
    assert said["total_log_likelihood"] == pytest.approx(model.log_likelihood_, rel=1e-6)
    np.testing.assert_allclose(result["noise_variance"], model.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(FactorAnalysisFit.from_dataset(result).factors.W, result["components"].values.T)
    assert "log-likelihood" in here("info", "x.factor_analysis.zarr")[1]


def test_k_is_chosen(data, here):
    code, out, _ = here("ppca", "full.npy", "-k", "auto", "--quiet", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["criterion"] == "evidence"
    assert len(said["explained_variance"]) == 3
    assert load(data / "full.ppca.zarr")["criterion"].sizes == {"candidate": 11}
    code, out, _ = here("ppca", "x.npy", "-k", "auto", "--quiet")
    assert "3 components chosen by the likelihood of held-out values" in out
    code, out, _ = here("ppca", "full.npy", "-k", "auto", "--criterion", "bic", "--quiet", "--overwrite")
    assert "3 components chosen by BIC" in out


def test_ten_components_unless_asked_or_as_many_as_there_can_be(data, here):
    assert len(json.loads(here("ppca", "full.npy", "--quiet", "--json")[1])["explained_variance"]) == 10
    np.save(data / "few.npy", planted(30, 6, 2))
    assert len(json.loads(here("ppca", "few.npy", "--quiet", "--json")[1])["explained_variance"]) == 5


def test_a_plan_reads_and_writes_nothing(tmp_path, here):
    array = zarr.create_array(tmp_path / "big.zarr", shape=(10**6, 10**4), chunks=(1000, 10**4), dtype="f4")
    assert array.nchunks_initialized == 0
    code, out, _ = here("ppca", "big.zarr", "-k", 10, "--plan", "--memory", "4GB")
    assert code == 0
    assert "EM" in out
    assert "40 GB" in out
    plan = json.loads(here("ppca", "big.zarr", "-k", 10, "--plan", "--json", "--memory", "4GB")[1])
    assert 0 < plan["peak_bytes"] <= 4e9
    assert names(tmp_path) == ["big.zarr"]


def test_overwrite_is_asked_for(data, here):
    asked = ("ppca", "full.npy", "--out", "r.zarr", "--quiet")
    assert here(*asked, "-k", 2)[0] == 0
    code, _, err = here(*asked, "-k", 3)
    assert code == 2
    assert "--overwrite" in err
    assert load(data / "r.zarr").sizes["component"] == 2
    assert here(*asked, "-k", 3, "--overwrite")[0] == 0
    assert load(data / "r.zarr").sizes["component"] == 3


# ---------------------------------------------------------------- genotypes and text


def test_genotypes_and_plink_files(data, here):
    code, out, _ = here("ppca", "g.bed", "-k", 3, "--quiet", "--export", "plink", "--json")
    assert code == 0
    said = json.loads(out)
    assert (said["n_samples"], said["n_features"]) == (60, 299)
    assert any("1 monomorphic" in note for note in said["notes"])
    result = load(data / "g.ppca.zarr")
    scores = result["scores"].values
    text = table(data / "g.ppca.eigenvec")
    unit = np.column_stack([text[f"PC{i}"] for i in (1, 2, 3)]).astype(float)
    np.testing.assert_allclose(unit, scores / np.linalg.norm(scores, axis=0), atol=1e-6)
    assert list(text["IID"][:2]) == ["i0", "i1"]
    values = np.loadtxt(data / "g.ppca.eigenval")
    np.testing.assert_allclose(values, np.array(said["explained_variance"]) * 60 / 299, rtol=1e-6)
    code, out, _ = here("ppca", "g.bed", "-k", 2, "--maf", "0.2", "--quiet", "--json", "--overwrite")
    p = np.nanmean(calls_in(data / "g.bed"), axis=0) / 2
    assert json.loads(out)["n_features"] == (np.minimum(p, 1 - p) >= 0.2).sum()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("full.npy", "ppca"),
        # Once: after EM there is no certificate, and the table of components failed for want of it.
        ("x.npy", "ppca"),
        ("g.bed", "ppca"),
        ("full.npy", "factor_analysis"),
    ],
)
def test_tables_beside_the_result(data, here, name, kind):
    code, _, err = here(kind, name, "-k", 2, "--quiet", "--export", "tsv")
    assert code == 0, err
    stem = name.partition(".")[0]
    scores = table(data / f"{stem}.{kind}.scores.tsv")
    result = load(data / f"{stem}.{kind}.zarr")
    np.testing.assert_allclose(scores["PC1"].astype(float), result["scores"][:, 0], rtol=1e-6, atol=1e-8)
    assert "explained_variance" in table(data / f"{stem}.{kind}.components.tsv")


# Once: a result of ppca was let through as if it were of pca, and ended in a KeyError.
def test_projected_samples_are_where_the_fit_has_them(data, here):
    assert here("ppca", "g.bed", "-k", 2, "--quiet")[0] == 0
    code, out, err = here("project", "g.ppca.zarr", "g.bed", "--quiet")
    assert code == 0, err
    assert "posterior" in out
    import xarray

    fitted = load(data / "g.ppca.zarr")
    projected = xarray.open_zarr(data / "g.ppca.scores.zarr", consolidated=False)
    for name in ("scores", "score_deviation"):
        np.testing.assert_allclose(projected[name], fitted[name], atol=1e-4)


# ---------------------------------------------------------------- impute


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("x.npy", PPCA(3)), ("columns.zarr", PPCA(3)), ("rows.zarr", FactorAnalysis(3)),
        ("rows.zarr", PPCA(3, scale="unit")),
    ],
)  # fmt: skip
def test_impute_fills_in_what_is_missing_and_nothing_else(data, here, name, model):
    kind = "factor_analysis" if isinstance(model, FactorAnalysis) else "ppca"
    assert here(kind, name, "-k", 3, "--quiet", "--out", "r.zarr", "--scale", model.scale)[0] == 0
    code, out, _ = here("impute", "r.zarr", name, "--quiet", "--out", "filled.zarr")
    absent = np.isnan(gaps())
    assert code == 0
    assert f"{absent.sum()} filled in" in out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = xarray.open_zarr(data / "filled.zarr")["imputed"].values
    np.testing.assert_array_equal(filled[~absent], gaps()[~absent])
    expected = model.fit(data / name).impute(gaps())
    np.testing.assert_allclose(filled, expected, atol=1e-6)
    assert open_source(data / "filled.zarr").shape == (150, 12)
    code, out, _ = here("ppca", "filled.zarr", "-k", 2, "--quiet", "--json")
    assert json.loads(out)["method"] == "closed"
    assert "150 (sample)" in here("info", "filled.zarr")[1]


def test_impute_genotypes(data, here):
    assert here("ppca", "g.bed", "-k", 3, "--quiet")[0] == 0
    code, out, _ = here("impute", "g.ppca.zarr", "g.bed", "--quiet", "--json")
    assert code == 0
    calls = calls_in(data / "g.bed")
    calls = calls[:, Truth(calls).varies]
    absent = np.isnan(calls)
    said = json.loads(out)
    assert said["values"] == absent.sum()
    assert said["share"] == pytest.approx(absent.mean())
    assert said["variants"] == "299 of 299 variants match"
    opened = xarray.open_zarr(data / "g.ppca.imputed.zarr")
    filled = opened["imputed"].values
    np.testing.assert_array_equal(filled[~absent], calls[~absent])
    assert 0 <= filled.min() <= filled.max() <= 2
    assert len(np.unique(filled[absent])) > 0.5 * absent.sum()
    assert opened["imputed"].dims == ("sample", "variant")
    assert opened["variant_id"].values[7] == "rs8"
    code, _, err = here("impute", "g.ppca.zarr", "g.bed", "--quiet", "--memory", "3GB")
    assert code == 2
    assert "--overwrite" in err
    assert here("impute", "g.ppca.zarr", "g.bed", "--quiet", "--memory", "3GB", "--overwrite")[0] == 0


# ---------------------------------------------------------------- bad input


def test_features_in_another_order_are_refused(data, here):
    import zarr

    field = np.random.default_rng(0).normal(size=(30, 3, 4))
    field[3, 1, 2] = np.nan
    zarr.create_array(data / "field.zarr", data=field, chunks=(10, 3, 4))
    zarr.create_array(data / "turned.zarr", data=field.transpose(0, 2, 1).copy(), chunks=(10, 4, 3))
    assert here("ppca", "field.zarr", "-k", 2, "--quiet")[0] == 0
    assert here("impute", "field.ppca.zarr", "field.zarr", "--quiet")[0] == 0
    code, _, err = here("impute", "field.ppca.zarr", "turned.zarr", "--quiet")
    assert code == 2
    assert "same features in the same order" in err
