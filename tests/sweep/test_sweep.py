"""Sweeps: any cut gives the NumPy answer, and reads are counted as they are."""

from __future__ import annotations

import logging
import re
import threading

import dask
import dask.array
import numpy as np
import pytest
import zarr
from helpers import CountingSource, falling, matrix_with_spectrum
from hypothesis import given
from hypothesis import strategies as st

from streampca import PCA, InputError, open_source
from streampca.models.pca.fit import fit_pca, project
from streampca.models.pca.options import PCAOptions
from streampca.progress import BarProgress, LogProgress, Step
from streampca.sweep.matrix import Defects, Matrix
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import CrossProduct, Product, Projection, Scatter, symmetric
from streampca.sweep.sweep import Sweeps

ENGINES = ("covariance", "gram", "krylov")


def data(n=60, d=9):
    return np.random.default_rng(2).standard_normal((n, d)) * np.arange(1, d + 1) + 5


def sweeps_over(x, axis, partitions, slab_length, **options):
    matrix = Matrix(
        open_source(x), axis, np.dtype(np.float64), partitions=partitions, slab_length=slab_length, **options
    )
    return Sweeps(matrix, threads=2)


@st.composite
def any_cut(draw):
    """An axis of the 60 x 9 matrix, any ranges that cover it, and any length of one read."""
    axis = draw(st.integers(0, 1))
    length = (60, 9)[axis]
    stops = sorted(draw(st.sets(st.integers(1, length - 1), max_size=5)) | {length})
    partitions = tuple(zip([0, *stops[:-1]], stops, strict=True))
    return axis, partitions, draw(st.integers(1, length + 3))


@given(how=any_cut())
def test_any_cut_gives_the_scatter_and_moments_of_numpy(how):
    x = data()
    axis = how[0]
    sweeps = sweeps_over(x, *how)
    value, moments = sweeps.run(Scatter(), "scatter")
    centred = x - x.mean(axis=0)
    expected = centred.T @ centred if axis == 0 else centred @ centred.T
    np.testing.assert_allclose(symmetric(value), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moments.mean, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance(60), x.var(axis=0, ddof=1), rtol=1e-11)
    assert (sweeps.n_sweeps, sweeps.bytes_read) == (1, x.nbytes)


@given(how=any_cut(), known=st.booleans())
def test_any_cut_gives_the_block_product_of_numpy(how, known):
    x = data()
    centred = x - x.mean(axis=0)
    a = centred if how[0] == 0 else centred.T
    q = np.random.default_rng(3).standard_normal((a.shape[1], 3))
    sweeps = sweeps_over(x, *how, scaling=Scaling(x.mean(axis=0)) if known else None)
    value, moments = sweeps.run(Product(q), "product")
    np.testing.assert_allclose(value, a.T @ (a @ q), rtol=1e-10, atol=1e-9)
    assert (moments is None) == known


@given(how=any_cut())
def test_any_cut_gives_scores_and_lengths_in_order(how):
    x = data()
    scale = x.std(axis=0, ddof=1)
    z = (x - x.mean(axis=0)) / scale
    sweeps = sweeps_over(x, *how, scaling=Scaling(x.mean(axis=0), scale), scale="unit")
    m = np.random.default_rng(3).standard_normal((9, 2))
    if how[0] == 0:
        both = np.concatenate(sweeps.run(Projection(m), "scores")[0])
    else:
        both = sweeps.run(CrossProduct(m), "scores")[0]
    np.testing.assert_allclose(both, np.column_stack([z @ m, (z**2).sum(axis=1)]), rtol=1e-10, atol=1e-10)


@given(how=any_cut(), at=st.tuples(st.integers(0, 59), st.integers(0, 8)))
def test_any_cut_counts_missing_values_and_names_the_first(how, at):
    x = data()
    x[at] = x[59, 8] = np.nan
    count = int(np.isnan(x).sum())
    with pytest.raises(InputError, match=rf"{count} missing .* sample {at[0]}, feature {at[1]} "):
        sweeps_over(x, *how).run(Scatter(), "scatter")
    sweeps = sweeps_over(x, *how, missing="mean")
    assert sweeps.moments().missing.sum() == count


def test_the_first_defect_is_first_by_sample_then_feature():
    early, late = Defects(1, 0, (3, 9), None), Defects(2, 1, (4, 0), (7, 7))
    assert early + late == late + early == Defects(3, 1, (3, 9), (7, 7))
    assert early + Defects() == early


def test_blas_has_one_thread_inside_tasks():
    from threadpoolctl import threadpool_info

    seen = []

    class Looking(Product):
        def update(self, value, A, start):  # noqa: N803
            seen.extend(info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas")
            super().update(value, A, start)

    before = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    sweeps_over(data(), 0, ((0, 30), (30, 60)), 10).run(Looking(np.eye(9)), "product")
    assert seen
    assert set(seen) == {1}
    assert [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"] == before


# ---------------------------------------------------------------- reads are counted


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("scale", [None, "unit"])
def test_covariance_reads_everything_once(scale):
    source = CountingSource(data(500, 20), (10, 20))
    model = PCA(3, solver="covariance", scale=scale).fit(source)
    assert model.n_sweeps_ == 1
    assert (source.times_read() == 1).all()
    assert len(source.reads) > 10


@pytest.mark.usefixtures("small_partitions")
def test_gram_reads_everything_once_and_once_more_for_components():
    source = CountingSource(data(20, 500), (20, 10))
    model = PCA(3, solver="gram").fit(source)
    assert model.n_sweeps_ == 2
    assert (source.times_read() == 2).all()
    assert model.result_.attrs["bytes_read"] == 2 * source.n_bytes


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(("scale", "missing", "more"), [(None, "error", 0), ("unit", "error", 1), (None, "mean", 1)])
def test_krylov_reads_everything_once_a_block(scale, missing, more):
    x = matrix_with_spectrum(1000, 60, falling(60, 0.8))
    # Cut along samples, as these chunks are: means come along with the first product, scales or gaps do not.
    source = CountingSource(x, (10, 60))
    steps = []
    model = PCA(3, solver="krylov", scale=scale, missing=missing, progress=steps.append).fit(source)
    products = len({step.sweep for step in steps if step.label == "krylov"})
    assert products >= 2
    assert model.n_sweeps_ == products + more
    assert (source.times_read() == model.n_sweeps_).all()
    assert model.result_.attrs["bytes_read"] == model.n_sweeps_ * x.nbytes


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("chunks", [(10, 40), (300, 4), (25, 10)])
def test_transform_reads_everything_once(chunks):
    x = data(300, 40)
    model = PCA(3).fit(x)
    source = CountingSource(x, chunks)
    scores = model.transform(source)
    assert (source.times_read() == 1).all()
    np.testing.assert_allclose(scores, model.transform(x), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("small_partitions")
def test_fit_transform_reads_everything_at_most_once_more_than_fit():
    for solver, x, chunks in (("covariance", data(300, 20), (10, 20)), ("gram", data(20, 300), (20, 10))):
        fitted, transformed = CountingSource(x, chunks), CountingSource(x, chunks)
        model = PCA(2, solver=solver).fit(fitted)
        again = PCA(2, solver=solver)
        again.fit_transform(transformed)
        extra = {"covariance": 1, "gram": 0}[solver]
        assert (transformed.times_read() == fitted.times_read() + extra).all()
        assert again.n_sweeps_ == model.n_sweeps_ + extra


@pytest.mark.usefixtures("small_partitions")
def test_what_fits_in_memory_is_read_once_however_many_sweeps():
    x = matrix_with_spectrum(500, 60, falling(60, 0.8))
    source = CountingSource(x, (10, 60), costly=True)
    found, _ = fit_pca(source, PCAOptions(n_components=3, solver="krylov"), memory="8GB")
    assert found.n_sweeps > 2
    assert (source.times_read() == 1).all()
    assert found.bytes_read == x.nbytes
    plain, _ = fit_pca(open_source(x), PCAOptions(n_components=3, solver="krylov"), memory="8GB")
    np.testing.assert_allclose(found.explained_variance, plain.explained_variance, rtol=1e-9)


def test_blocks_of_a_dask_array_are_computed_once_a_sweep():
    lock, computed = threading.Lock(), []

    def look(block, block_id=None):
        with lock:
            computed.append(block_id)
        return block

    x = dask.array.from_array(data(80, 12), chunks=(10, 4)).map_blocks(look, meta=np.empty((0, 0)))
    PCA(2, solver="covariance").fit(x)
    assert sorted(computed) == sorted(set(computed))
    assert len(computed) == 24


def test_compressed_bytes_are_counted_as_read(tmp_path):
    array = zarr.create_array(tmp_path / "x.zarr", shape=(1000, 50), dtype="f4", chunks=(100, 50))
    array[...] = np.repeat(np.arange(50, dtype="f4")[None], 1000, axis=0) + np.arange(1000, dtype="f4")[:, None]
    on_disk = sum(path.stat().st_size for path in (tmp_path / "x.zarr" / "c").rglob("*") if path.is_file())
    found, _ = fit_pca(open_source(tmp_path / "x.zarr"), PCAOptions(n_components=1, solver="covariance"))
    assert found.bytes_read == on_disk < 1000 * 50 * 4


def test_projecting_counts_no_partition_twice():
    x = data(200, 12)
    found, _ = fit_pca(open_source(x), PCAOptions(n_components=2))
    scores, squares = project(CountingSource(x, (7, 12)), found, "error")
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(scores, centred @ found.components.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(squares, (centred**2).sum(axis=1), rtol=1e-10)


# ---------------------------------------------------------------- progress


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("solver", ENGINES)
def test_progress_counts_up_to_the_total_of_every_sweep(solver):
    steps = []
    x = data(20, 600) if solver == "gram" else data(600, 20)
    model = PCA(3, solver=solver, progress=steps.append).fit(CountingSource(x, (10, 10)))
    assert sorted({step.sweep for step in steps}) == list(range(1, model.n_sweeps_ + 1))
    for sweep in range(1, model.n_sweeps_ + 1):
        of_it = [step for step in steps if step.sweep == sweep]
        assert [step.done for step in of_it] == list(range(of_it[0].total + 1))
        assert of_it[-1].done == of_it[-1].total > 1
        seconds = [step.seconds for step in of_it]
        assert seconds == sorted(seconds)
        assert of_it[0].eta is None
        assert of_it[-1].eta == 0


def test_eta_is_what_is_left_at_the_pace_so_far():
    assert Step(1, "x", 2, 10, 4.0).eta == pytest.approx(16.0)


def test_log_lines_tell_the_end_of_each_sweep(caplog):
    caplog.set_level(logging.INFO, "streampca")
    show = LogProgress(every=1e9)
    for done in range(4):
        show(Step(2, "krylov", done, 3, 1.5, "certificate 1e-2"))
    assert [re.sub(r"\d+ MB", "70 MB", record.getMessage()) for record in caplog.records] == [
        "sweep 2, krylov: 3 of 3 partitions in 1.5 s, 70 MB (certificate 1e-2)"
    ]
    LogProgress(every=0.0)(Step(2, "krylov", 1, 3, 1.5))
    assert "3 s left in this sweep" in caplog.records[-1].getMessage()


def test_bars_are_drawn_without_complaint():
    with BarProgress() as show:
        for sweep in (1, 2):
            for done in range(3):
                show(Step(sweep, "krylov", done, 2, 0.1))


def test_an_error_in_a_partition_reaches_the_caller():
    class Broken(CountingSource):
        def read_block(self, *_):
            raise InputError("broken.bin: cannot be read; restore it")

    with pytest.raises(InputError, match="broken.bin"):
        PCA(2).fit(Broken(data(), (10, 9)))


def workers():
    return {thread.ident for thread in threading.enumerate() if thread.name.startswith("streampca")}


def test_a_with_block_keeps_the_threads_and_releases_them_even_after_an_error():
    before = workers()
    sweeps = sweeps_over(data(), 0, ((0, 30), (30, 60)), 30)
    sweeps.run(Scatter(), "alone")
    assert workers() == before
    with sweeps, sweeps:
        sweeps.run(Scatter(), "one")
        kept = workers() - before
        sweeps.thinned(2).run(Scatter(), "thinned")
        sweeps.run(Scatter(), "two")
        assert kept <= workers() - before
    assert workers() == before
    assert kept
    with pytest.raises(InputError), sweeps:
        sweeps_over(np.full((60, 9), np.inf), 0, ((0, 60),), 30).run(Scatter(), "three")
    assert workers() == before


def test_krylov_needs_no_sweep_for_the_other_side_where_memory_allows(tmp_path):
    x = matrix_with_spectrum(60, 3000, falling(50, 0.8), seed=3)
    array = zarr.create_array(tmp_path / "wide.zarr", shape=x.shape, dtype=x.dtype, chunks=(60, 300))
    array[...] = x
    labels = []
    options = PCAOptions(n_components=3, solver="krylov")
    found, _ = fit_pca(
        open_source(tmp_path / "wide.zarr"), options, memory="8GB",
        progress=lambda step: labels.append((step.sweep, step.label)),
    )  # fmt: skip
    assert {label for _, label in labels} == {"krylov"}
    assert found.n_sweeps == len(set(labels))
    scores = (x - x.mean(axis=0)) @ found.components.T
    np.testing.assert_allclose(found.scores, scores, rtol=1e-3, atol=1e-3)
