"""One table of solvers crossed with one table of matrices, against a float64 full SVD."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest
import zarr
from helpers import (
    CASES,
    Reference,
    assert_orthonormal,
    assert_same_subspace,
    falling,
    matrix_with_spectrum,
    mev_shortfall,
    true_residual,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811

from streampca import PCA, open_source
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.solvers.base import Wanted
from streampca.solvers.krylov import Krylov
from streampca.solvers.power import Power
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.sweep import Sweeps

SOLVERS = ("covariance", "gram", "krylov", "power")
EPS = np.finfo(np.float64).eps


def solve(x, k, solver, **options):
    return fit_pca(open_source(x), PCAOptions(n_components=k, solver=solver, **options))[0]


def assert_certified(found, reference):
    """Check order, orthonormality, and that the true errors are under the certificates."""
    values, certificate = found.explained_variance, found.certificate
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert (values >= 0).all()
    assert_orthonormal(found.components)
    some = certificate < 1
    residual = true_residual(reference, found.components[some], values[some])
    assert (residual <= certificate[some]).all(), (residual, certificate[some])
    error = np.abs(values - reference.values[: len(values)])[some]
    # The reference has rounding of its own.
    assert (error <= certificate[some] * values[some] + 8 * EPS * values[0]).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_agrees_with_the_full_svd(solver, name):
    case = CASES[name]
    x = case.make()
    reference = Reference.of(x)
    found = solve(x, case.k, solver)
    r = case.meaningful
    values = found.explained_variance

    assert found.components.shape == (case.k, x.shape[1])
    assert found.converged, found.advice
    assert (found.certificate[:r] <= 1e-3).all()
    assert_certified(found, reference)
    np.testing.assert_allclose(values[:r], reference.values[:r], rtol=1e-3)
    assert (values[r:] <= 1e-6 * values[0]).all()
    assert found.total_variance == pytest.approx(reference.total, rel=1e-6)

    # Davis & Kahan: the subspace is off by no more than the residuals over the gap.
    beyond = reference.values[r] if r < len(reference.values) else 0.0
    bound = np.sum((found.certificate[:r] * values[:r]) ** 2) / (r * (values[r - 1] - beyond) ** 2)
    shortfall = mev_shortfall(reference.vectors[:r], found.components[:r])
    assert shortfall <= bound + 1e-20
    assert shortfall <= 1e-4


@pytest.mark.parametrize("solver", SOLVERS)
def test_components_without_variance_are_said_to_be_arbitrary(solver):
    found = solve(CASES["k beyond the rank"].make(), 6, solver)
    assert found.converged
    assert "after the first 3 are zero" in found.advice
    assert_orthonormal(found.components)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["constant features", "huge mean"])
def test_constant_features_have_no_weight(solver, name):
    x = CASES[name].make()
    x[:, 3] = 1e6 / 7
    found = solve(x, 3, solver)
    assert np.abs(found.components[:, 3]).max() < 1e-12
    assert found.mean[3] == 1e6 / 7


# ---------------------------------------------------------------- tolerance


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-9])
def test_converged_means_within_tol(solver, tol):
    x = matrix_with_spectrum(150, 25, falling(25))
    found = solve(x, 3, solver, tol=tol)
    assert found.converged
    assert (found.certificate <= tol).all()
    assert_certified(found, Reference.of(x))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["float32", "wide float32", "int8"])
def test_a_tol_below_float32_switches_to_float64_tiles(solver, name):
    x = CASES[name].make()
    loose, tight = (solve(x, 3, solver, tol=tol) for tol in (1e-3, 1e-9))
    if solver == "krylov":
        assert (loose.tile_dtype, loose.certificate_method) == ("float32", "probe")
    assert (tight.tile_dtype, tight.certificate_method) == ("float64", "exact")
    assert tight.converged
    assert (tight.certificate <= 1e-9).all()
    reference = Reference.of(x)
    assert_certified(loose, reference)
    assert_certified(tight, reference)
    np.testing.assert_allclose(tight.explained_variance, reference.values[:3], rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_switch_to_float64_is_said(solver, caplog):
    caplog.set_level("INFO", "streampca")
    solve(CASES["float32"].make(), 3, solver, tol=1e-9)
    assert any("float64 tiles" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(200, 40), (40, 200)])
def test_small_eigenvalues_beside_a_large_one_are_certified_in_float64(solver, shape):
    # In float32 the sixth would have no digit left: rounding is relative to the largest eigenvalue.
    x = matrix_with_spectrum(*shape, falling(12, 0.05), seed=3).astype(np.float32)
    found = solve(x, 6, solver)
    assert found.tile_dtype == "float64"
    assert_certified(found, Reference.of(x))
    # Peeling leaves the error of the large ones in the small ones: there it is enough that the power method says so.
    assert found.converged or (solver == "power" and "use solver='krylov'" in found.advice), found.advice


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_what_double_precision_cannot_reach_is_said(solver):
    shape = (40, 60) if solver == "gram" else (60, 40)
    x = matrix_with_spectrum(*shape, [1.0, 1e-4, 1e-8, 1e-11])
    found = solve(x, 4, solver, tol=1e-12)
    assert not found.converged
    assert "miss tol=1e-12" in found.advice
    assert "float64 rounding limits tol to" in found.advice
    assert (found.certificate > 1e-12).any()


# ---------------------------------------------------------------- Krylov and power, stopped and restarted


def sweeps_for(x, axis=0):
    source = open_source(x)
    planned = source.cut(axis, 8)
    dtype = tile_dtype(source.dtype)
    return Sweeps(Matrix(source, axis, dtype, partitions=planned.partitions, slab_length=planned.slab_length))


@pytest.mark.parametrize("axis", [0, 1])
def test_thick_restart_finds_what_the_full_basis_finds(axis):
    x = matrix_with_spectrum(*((400, 150) if axis == 0 else (150, 400)), falling(140, 0.93), seed=11)
    wanted = Wanted(4, None, 1e-6)
    sweeps = sweeps_for(x, axis)
    small = Krylov(block_size=6, max_basis=4 + 2 * 6 + 2).solve(sweeps, wanted)
    full = Krylov(block_size=6, max_basis=150).solve(sweeps_for(x, axis), wanted)
    assert sweeps.n_sweeps * 6 > 18, "there was no restart to test"
    assert small.converged
    assert full.converged
    np.testing.assert_allclose(small.values, full.values, rtol=1e-9)
    assert_same_subspace(full.vectors.T, small.vectors.T)
    np.testing.assert_allclose(small.values, Reference.of(x).values[:4], rtol=1e-9)


@pytest.mark.parametrize("max_basis", [18, 150])
def test_rows_kept_along_the_way_are_those_of_the_answer(max_basis):
    x = matrix_with_spectrum(150, 400, falling(140, 0.93), mean=7.0, seed=11)
    found = Krylov(block_size=6, max_basis=max_basis, keep_rows=True).solve(sweeps_for(x, 1), Wanted(4, None, 1e-6))
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(found.rows, centred.T @ found.vectors, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("block_size", [1, 3, 40])
def test_any_block_size_finds_the_same(block_size):
    x = matrix_with_spectrum(120, 40, falling(40, 0.7), seed=12)
    found = Krylov(block_size, max_basis=40).solve(sweeps_for(x), Wanted(3, None, 1e-8))
    assert found.converged
    np.testing.assert_allclose(found.values, Reference.of(x).values[:3], rtol=1e-10)


@pytest.mark.parametrize("solver", [Krylov(8, 100, max_sweeps=2), Power(max_sweeps=3)])
def test_stopping_short_is_said_with_advice(solver):
    x = matrix_with_spectrum(400, 100, falling(100, 0.97), seed=13)
    sweeps = sweeps_for(x)
    found = solver.solve(sweeps, Wanted(4, None, 1e-8))
    assert sweeps.n_sweeps <= solver.max_sweeps
    assert not found.converged
    assert f"max_sweeps={solver.max_sweeps}; increase tol" in found.advice
    assert np.isfinite(found.errors.certificate).all()
    assert (found.errors.certificate > 1e-8).any()
    residual = true_residual(Reference.of(x), found.vectors.T, found.values)
    assert (residual <= found.errors.certificate).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_seed_decides_the_bits_and_not_the_answer(solver):
    x = matrix_with_spectrum(300, 60, falling(60, 0.5))
    a, b, c = (solve(x, 3, solver, random_state=seed, tol=1e-6) for seed in (1, 1, 2))
    assert np.array_equal(a.components, b.components)
    if solver in ("krylov", "power"):
        assert not np.array_equal(a.components, c.components)
    assert_same_subspace(a.components, c.components)


# ---------------------------------------------------------------- fractions of the variance


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(200, 30), (30, 200)])
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.9, 0.99])
def test_a_fraction_takes_as_many_components_as_scikit_learn(solver, shape, fraction):
    x = matrix_with_spectrum(*shape, falling(29), seed=14)
    theirs = SklearnPCA(n_components=fraction, svd_solver="full").fit(x)
    ours = PCA(fraction, solver=solver).fit(x)
    assert ours.n_components_ == theirs.n_components_
    np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-3)
    assert ours.explained_variance_ratio_.sum() >= fraction * (1 - 1e-9)
    assert ours.converged_


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
def test_a_fraction_of_a_flat_spectrum_takes_many_components(solver):
    x = np.random.default_rng(0).standard_normal((300, 120))
    x = x.T if solver == "gram" else x
    theirs = SklearnPCA(n_components=0.8, svd_solver="full").fit(x)
    ours = PCA(0.8, solver=solver).fit(x)
    assert ours.n_components_ == theirs.n_components_ > 50


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
def test_nearly_all_of_the_variance_of_few_directions(solver):
    x = matrix_with_spectrum(100, 40, falling(5), seed=15)
    assert PCA(0.999999, solver=solver).fit(x).n_components_ == 5


# ---------------------------------------------------------------- any chunking


chunk_sizes = st.tuples(st.integers(3, 70), st.integers(3, 45))


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
@given(chunks=chunk_sizes, dtype=st.sampled_from(["f4", "f8", "i1"]), wide=st.booleans())
@settings(max_examples=12)
def test_any_chunking_of_a_store_gives_the_same_components(solver, chunks, dtype, wide):
    x = (8 * matrix_with_spectrum(60, 40, falling(30, 0.5, 20.0), seed=16)).astype(dtype)
    x = x.T if wide else x
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=x.shape, dtype=x.dtype, chunks=chunks, compressors=None)
    array[...] = x
    found = solve(array, 3, solver, tol=1e-5)
    reference = Reference.of(x)
    assert found.converged
    assert_certified(found, reference)
    assert_same_subspace(reference.vectors[:3], found.components, within=1e-8)


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@given(chunks=chunk_sizes, scale=st.sampled_from([None, "unit"]))
@settings(max_examples=8)
def test_any_chunking_of_a_dask_array_gives_the_same_components(solver, chunks, scale):
    x = matrix_with_spectrum(60, 40, falling(30, 0.5, 20.0), mean=2.0, seed=17)
    found = solve(dask.array.from_array(x, chunks=chunks), 3, solver, tol=1e-6, scale=scale)
    z = (x - x.mean(axis=0)) / (1.0 if scale is None else x.std(axis=0, ddof=1))
    reference = Reference.of(z)
    np.testing.assert_allclose(found.explained_variance, reference.values[:3], rtol=1e-6)
    assert_same_subspace(reference.vectors[:3], found.components, within=1e-9)


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
@pytest.mark.parametrize("factor", [1e-30, 1e-22, 1e25])
def test_values_too_small_or_large_for_float32_products_are_certified_in_float64(solver, factor):
    x = (matrix_with_spectrum(60, 30, falling(20, 0.7), seed=5) * factor).astype(np.float32)
    found = solve(x, 3, solver)
    reference = Reference.of(x.astype(np.float64))
    assert found.tile_dtype == "float64"
    np.testing.assert_allclose(found.explained_variance, reference.values[:3], rtol=1e-3)
    assert (true_residual(reference, found.components, found.explained_variance) <= found.certificate).all()


@pytest.mark.parametrize("solver", ["covariance", "krylov"])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_rounding_that_always_goes_the_same_way_is_under_the_certificate(solver, scale):
    pattern = np.array([127, -128, 127, 127, -128, 127, -128, -128], np.int8)
    x = np.stack([np.tile(pattern, 2**15), np.tile(np.roll(pattern, 3), 2**15)], axis=1)
    found = solve(x, 2, solver, scale=scale)
    centred = x - x.mean(axis=0)
    centred /= 1.0 if scale is None else centred.std(axis=0, ddof=1)
    reference = Reference.of(centred)
    assert (true_residual(reference, found.components, found.explained_variance) <= found.certificate).all()
