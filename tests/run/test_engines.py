"""The same bits on any engine: threads, processes, any number of them."""

from __future__ import annotations

import dask
import dask.array
import numpy as np
import pytest
import zarr
from helpers import falling, matrix_with_spectrum

from streampca import PCA, open_source
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.progress import silent
from streampca.sweep.sweep import active_client

ENGINES = ("covariance", "gram", "krylov")


def data(n=60, d=9):
    return np.random.default_rng(2).standard_normal((n, d)) * np.arange(1, d + 1) + 5


def stored(tmp_path, solver, dtype=np.float32):
    shape, chunks = ((40, 3000), (20, 100)) if solver == "gram" else ((3000, 40), (100, 20))
    x = matrix_with_spectrum(*shape, falling(30), mean=3.0).astype(dtype)
    array = zarr.create_array(tmp_path / f"{solver}.zarr", shape=shape, dtype=dtype, chunks=chunks)
    array[...] = x
    return tmp_path / f"{solver}.zarr"


def found_by(given, solver, workers, progress=silent, **changed):
    options = PCAOptions(n_components=4, solver=solver, **changed)
    with dask.config.set(num_workers=workers):
        found, sweeps = fit_pca(open_source(given), options, progress=progress)
    assert len(sweeps.matrix.partitions) > 4
    return found


def assert_same_bits(a, b):
    for name in ("components", "explained_variance", "certificate", "mean", "total_variance", "missing"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert (a.n_sweeps, a.tile_dtype, a.solver) == (b.n_sweeps, b.tile_dtype, b.solver)


@pytest.mark.parametrize(
    ("solver", "tol"), [(solver, tol) for solver in ENGINES for tol in (1e-3, 1e-9)] + [("power", 1e-2)]
)
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_any_number_of_threads(tmp_path, solver, tol):
    path = stored(tmp_path, solver)
    one = found_by(path, solver, 1, tol=tol)
    for workers in (2, 4):
        assert_same_bits(one, found_by(path, solver, workers, tol=tol))


@pytest.mark.parametrize("solver", ENGINES)
def test_same_bits_of_a_dask_array_on_any_number_of_threads(tmp_path, solver):
    x = dask.array.from_zarr(stored(tmp_path, solver))
    one = found_by(x, solver, 1)
    assert_same_bits(one, found_by(x, solver, 4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zarr", "dask"])
@pytest.mark.parametrize("solver", ENGINES)
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_two_processes(tmp_path, two_workers, solver, kind):
    from distributed import Client

    path = stored(tmp_path, solver)
    given = path if kind == "zarr" else dask.array.from_zarr(path).rechunk((500, 500))
    here = found_by(given, solver, 2)
    steps = []
    with Client(two_workers):
        assert active_client() is not None
        there = found_by(given, solver, 2, progress=steps.append)
        scores = PCA(4, solver=solver).fit_transform(given)
    assert active_client() is None
    assert_same_bits(here, there)
    assert [s.done for s in steps if s.sweep == 1] == list(range(steps[0].total + 1))
    np.testing.assert_array_equal(scores, PCA(4, solver=solver).fit_transform(given))


@pytest.mark.slow
def test_one_partition_is_enough_for_a_cluster(two_workers):
    from distributed import Client

    x = data()
    with Client(two_workers):
        model = PCA(3).fit(x)
    assert_same_bits(model._fitted, PCA(3).fit(x)._fitted)
