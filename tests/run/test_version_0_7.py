"""Configurations, flags, calls and results of version 0.7: each works, or gets a message that shows the new form."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import yaml
import zarr

import streampca
from streampca.errors import InputError
from streampca.run.config import load, upgrade

RESULTS = Path(__file__).parents[1] / "results" / "results-0.7.tar.xz"
KINDS = ("pca", "ppca", "factor_analysis", "kpca", "pcr")

GENOTYPES = """
source:
  path: study.bed
  maf: 0.01
  mind: 0.1
  exclude_regions: GRCh38
  ld_prune: 0.2
  scale: auto
  missing: auto
model: {kind: pca, n_components: 20, seed: 3, outliers: remove, outlier_rounds: 2}
engine: {memory: 2GB}
output: {path: study.pca.zarr, export: plink}
"""
KERNEL = """
source: {path: points.zarr, scale: unit, missing: mean}
model: {kind: kpca, n_landmarks: auto, target: 0.9, fit_inverse: true, landmarks: kmeans}
engine: {kind: slurm, workers: 3, memory: 4GB, walltime: 04:00:00}
output: {path: points.kpca.zarr}
"""
KERNEL_AUTO = "source: {path: a, scale: auto, missing: auto}\nmodel: {kind: kpca}\noutput: {path: b}\n"
MISSING = "source: {path: a.zarr, missing: model}\nmodel: {kind: ppca, tol: 1e-4}\noutput: {path: b.zarr}\n"
FILES = {"genotypes": GENOTYPES, "kernel": KERNEL, "kernel with auto": KERNEL_AUTO, "missing": MISSING}


@pytest.fixture
def results(tmp_path):
    """Return a directory with results that version 0.7 wrote, and their data."""
    with tarfile.open(RESULTS) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


# ---------------------------------------------------------------- configurations


@pytest.mark.parametrize("name", FILES)
def test_an_old_file_gets_a_message_and_its_upgrade_loads(name, tmp_path, here):
    (tmp_path / "old.yaml").write_text(FILES[name])
    code, out, err = here("run", "old.yaml")
    assert (code, out) == (2, "")
    assert "the block source of version 0.7 is now data, filter and model" in err
    assert "`streampca config upgrade FILE` writes the new form" in err
    code, out, err = here("config", "upgrade", "old.yaml", "--out", "new.yaml")
    assert code == 0, err
    load(tmp_path / "new.yaml")
    code, _, err = here("config", "upgrade", "new.yaml")
    assert code == 2
    assert "nothing to upgrade" in err


def test_an_upgrade_keeps_all_values(tmp_path):
    (tmp_path / "g.yaml").write_text(GENOTYPES)
    (tmp_path / "k.yaml").write_text(KERNEL)
    assert yaml.safe_load(upgrade(tmp_path / "g.yaml")) == {
        "data": {"path": "study.bed"},
        "filter": {
            "maf": 0.01, "mind": 0.1, "exclude_regions": "GRCh38", "ld_prune": 0.2, "outliers": "remove",
            "outlier_rounds": 2,
        },
        "model": {"kind": "pca", "n_components": 20, "random_state": 3},
        "engine": {"memory_limit": "2GB"},
        "output": {"path": "study.pca.zarr", "export": "plink"},
    }  # fmt: skip
    assert yaml.safe_load(upgrade(tmp_path / "k.yaml")) == {
        "data": {"path": "points.zarr"},
        "model": {
            "kind": "kpca", "scale": "unit", "missing": "mean", "n_landmarks": "auto", "target_trace": 0.9,
            "fit_inverse_transform": True, "landmarks": "kmeans",
        },
        "engine": {"kind": "slurm", "workers": 3, "memory_limit": "4GB", "walltime": "04:00:00"},
        "output": {"path": "points.kpca.zarr"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "new"),
    [
        ("model.seed=1", "model.random_state"), ("model.outliers=report", "filter.outliers"),
        ("model.outlier_rounds=2", "filter.outlier_rounds"), ("engine.memory=2GB", "engine.memory_limit"),
        ("model={kind: kpca, target: 0.9}", "model.target_trace"),
        ("model={kind: kpca, fit_inverse: true}", "model.fit_inverse_transform"),
    ],
)  # fmt: skip
def test_an_old_key_names_its_new_place(setting, new, tmp_path):
    (tmp_path / "c.yaml").write_text("data: {path: a}\nmodel: {kind: pca}\noutput: {path: b}\n")
    with pytest.raises(InputError, match=f"since version 0.8 it is {new}$"):
        load(tmp_path / "c.yaml", [setting])


@pytest.mark.parametrize(("key", "home"), [("maf", "filter"), ("scale", "model"), ("missing", "model")])
def test_keys_of_the_old_block_name_their_block(key, home, tmp_path):
    (tmp_path / "c.yaml").write_text(f"data: {{path: a, {key}: x}}\nmodel: {{kind: pca}}\noutput: {{path: b}}\n")
    with pytest.raises(InputError, match=f"unknown key data.{key}; {key} belongs in {home}"):
        load(tmp_path / "c.yaml")


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (("pca", "x.npy", "--seed", "1"), "--random-state"),
        (("pcr", "x.npy", "--seed", "1"), "--random-state"),
        (("ppca", "x.npy", "--factor-analysis"), "the command factor_analysis"),
        (("kpca", "x.npy", "--choose", "kmeans"), "--landmarks"),
        (("kpca", "x.npy", "--landmarks", "500"), "--n-landmarks"),
        (("kpca", "x.npy", "--landmarks", "auto"), "--n-landmarks"),
        (("kpca", "x.npy", "--target", "0.9"), "--target-trace"),
        (("kpca", "x.npy", "--pre-image"), "--fit-inverse-transform"),
        (("run", "run.yaml", "--resume"), "--only-resume"),
    ],
)
def test_an_old_flag_names_the_new_one(words, new, tmp_path, here):
    code, out, err = here(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "since version 0.8" in err
    assert err.rstrip().endswith(f" is {new}")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_result_opens_and_can_be_used(kind, results, here):
    result = streampca.load(results / f"{kind}.zarr")
    assert result.attrs["kind"] == kind
    values = np.load(results / ("m.npy" if kind in ("ppca", "factor_analysis") else "x.npy"))
    model = streampca.load_model(results / f"{kind}.zarr")
    if kind == "pcr":
        assert model.predict(values).shape[0] == 24
    else:
        np.testing.assert_allclose(model.transform(values), result["scores"].values, atol=1e-6)
    for words in (("info", f"{kind}.zarr"), ("report", f"{kind}.zarr", "--out", "page.html")):
        code, _, err = here(*words)
        assert code == 0, err


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("project", "pca.zarr", "x.npy"), "pca"), (("project", "kpca.zarr", "x.npy"), "kpca"),
        (("project", "ppca.zarr", "m.npy"), "ppca"), (("impute", "factor_analysis.zarr", "m.npy"), ""),
        (("impute", "ppca.zarr", "m.npy"), ""), (("denoise", "pca.zarr", "x.npy"), ""),
        (("denoise", "kpca.zarr", "x.npy"), ""), (("predict", "pcr.zarr", "x.npy"), ""),
    ],
)  # fmt: skip
def test_an_old_result_is_applied(words, kind, results, here):
    code, _, err = here(*words, "--out", "out", "--quiet")
    assert code == 0, err
    if kind:
        scores = streampca.load(results / f"{kind}.zarr")["scores"].values
        np.testing.assert_allclose(zarr.open_group(results / "out", mode="r")["scores"][:], scores, atol=1e-6)


def test_an_old_result_is_not_taken_for_one_of_the_same_options(results, here):
    code, _, err = here("pca", "x.npy", "-k", 2, "--out", "pca.zarr", "--quiet")
    assert code == 2
    assert "exists already; choose another name or add --overwrite" in err
    assert here("pca", "x.npy", "-k", 2, "--out", "pca.zarr", "--quiet", "--overwrite")[0] == 0
    assert streampca.load(results / "pca.zarr").sizes["component"] == 2
