"""Components that cannot be distinguished from noise: marked, and resolved only on request."""

from __future__ import annotations

import numpy as np
import pytest

from streampca import PCA, load_model
from tests.genotype_helpers import random_calls, write_bed
from tests.helpers import assert_same_subspace


def real_and_noise(n=600, d=900, real=3, seed=0):
    """Return data with real components in noise, whose strengths fall to twice the edge."""
    rng = np.random.default_rng(seed)
    strengths = np.sqrt(np.linspace(12.0, 3.0, real))
    planted = (rng.normal(size=(n, real)) * strengths) @ np.linalg.qr(rng.normal(size=(d, real)))[0].T * 4
    return planted + rng.normal(size=(n, d))


@pytest.fixture(scope="module")
def data():
    return real_and_noise()


def test_noise_takes_fewer_sweeps_and_changes_no_real_component(data):
    signal = PCA(8, solver="krylov", tol=1e-6).fit(data)
    every = PCA(8, solver="krylov", tol=1e-6, resolve="all").fit(data)
    assert signal.noise_.tolist() == every.noise_.tolist() == [False] * 3 + [True] * 5
    assert signal.converged_
    assert every.converged_
    assert signal.n_sweeps_ <= every.n_sweeps_ / 2
    assert (signal.certificate_[:3] <= 1e-6).all()
    assert (signal.certificate_ <= 0.05).all()
    assert (every.certificate_ <= 1e-6).all()
    assert_same_subspace(every.components_[:3], signal.components_[:3], 1e-9)


def test_a_note_names_the_components_that_were_not_resolved(data):
    signal = PCA(8, solver="krylov", tol=1e-6).fit(data)
    assert any("PCs 4 to 8 cannot be distinguished from noise" in note for note in signal.notes_)
    assert any("resolve='all'" in note for note in signal.notes_)
    assert not any("noise" in note for note in PCA(8, solver="krylov", resolve="all").fit(data).notes_)


@pytest.mark.parametrize("wide", [False, True])
def test_solvers_agree_on_the_test(data, wide):
    x = data if wide else data.T
    dense = PCA(6, solver="gram" if wide else "covariance").fit(x)
    krylov = PCA(6, solver="krylov", resolve="all").fit(x)
    # The second moment is exact in one and estimated in the other: statistics differ by a few standard errors.
    np.testing.assert_allclose(dense.tracy_widom_[3:], krylov.tracy_widom_[3:], atol=6)
    np.testing.assert_allclose(dense.squared_cosine_, krylov.squared_cosine_, atol=0.15)
    assert dense.noise_.tolist() == krylov.noise_.tolist() == [False] * 3 + [True] * 3
    assert (dense.squared_cosine_[:3] > 0.5).all()
    assert (dense.squared_cosine_[4:] < 0.2).all()


def test_an_accumulator_makes_the_same_test(data):
    x = data.T
    added = PCA(5)
    for rows in np.array_split(x, 4):
        added.partial_fit(rows)
    np.testing.assert_allclose(added.p_value_, PCA(5, solver="covariance").fit(x).p_value_, rtol=1e-3)


def test_a_store_keeps_the_test(data, tmp_path):
    model = PCA(5).fit(data)
    model.save(tmp_path / "x.zarr")
    loaded = load_model(tmp_path / "x.zarr")
    for name in ("tracy_widom_", "p_value_", "squared_cosine_", "noise_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))


def test_a_table_shows_p_values_and_resolve_all_is_an_option(here, tmp_path):
    write_bed(tmp_path / "study", random_calls(200, 1500, 4))
    code, out, _ = here("pca", "study.bed", "-k", "4", "--resolve", "all", "--out", "r.zarr")
    assert code == 0
    assert "p-value" in out
    assert here("pca", "study.bed", "--resolve", "some", "--out", "x.zarr")[0] == 2


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 3), (40, 1)])
def test_small_data_are_not_tested(shape, rng):
    model = PCA(1, solver="krylov").fit(rng.normal(size=shape))
    assert model.converged_
    assert not model.noise_.any()
