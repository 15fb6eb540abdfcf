"""Landmarks: rows by index as NumPy gives them, k-means and ridge leverage against their definitions, awkward data."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest
import zarr
from helpers import CountingSource
from hypothesis import given
from hypothesis import strategies as st

from streampca import InputError, open_source
from streampca.solvers.kernel import kernels, landmarks
from streampca.solvers.kernel.kernels import Kernel
from streampca.solvers.kernel.landmarks import (
    Leverage,
    NearestCentres,
    draw_rows,
    inclusion,
    kmeans_landmarks,
    leverage_landmarks,
    recursive_leverage,
    sample_rows,
    seed_centres,
    systematic,
)
from streampca.sources.wrappers import Cached
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.scaling import Scaling
from streampca.sweep.sweep import Sweeps

RBF = Kernel("rbf", gamma=0.1)


def sweeps_over(x, threads=2, *, length=None, slab_length=None, dtype=None, **options):
    """Sweeps over data that are taken as they are, or about a mean; partitions of a length, or as planned."""
    source = open_source(x)
    n, d = source.shape
    plan = source.cut(0, 0)
    partitions = plan.partitions if length is None else tuple((i, min(i + length, n)) for i in range(0, n, length))
    options.setdefault("scaling", Scaling(np.zeros(d)))
    matrix = Matrix(
        source,
        0,
        np.dtype(dtype or tile_dtype(source.dtype)),
        partitions=partitions,
        slab_length=slab_length or min(plan.slab_length, length or n),
        **options,
    )
    return Sweeps(matrix, threads=threads)


def data(n=1000, d=6, dtype=np.float32):
    return np.random.default_rng(4).standard_normal((n, d)).astype(dtype)


def clusters(n=2000, d=4, apart=10.0, sizes=(1, 1, 1, 1, 1)):
    """Clusters of these relative sizes, and their centres."""
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((len(sizes), d)) * apart
    labels = rng.choice(len(sizes), n, p=np.array(sizes) / sum(sizes))
    return centres[labels] + rng.standard_normal((n, d)), centres


# ---------------------------------------------------------------- rows by their index


@given(
    rows=st.sets(st.integers(0, 999), max_size=40),
    order=st.randoms(use_true_random=False),
    length=st.integers(90, 1200),
    slab_length=st.integers(1, 400),
    chunk=st.integers(1, 300),
    resident=st.booleans(),
)
def test_any_rows_of_any_cut_are_those_of_numpy(rows, order, length, slab_length, chunk, resident):
    x = data()
    chosen = sorted(rows)
    order.shuffle(chosen)
    source = CountingSource(x, (chunk, 6))
    sweeps = sweeps_over(Cached(source, 1 << 20) if resident else source, length=length, slab_length=slab_length)
    found = sample_rows(sweeps, np.array(chosen, np.int64))
    assert found.dtype == np.float32
    assert np.array_equal(found, x[chosen])


@pytest.mark.parametrize("kind", ["numpy", "column-major", "npy", "zarr", "dask"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_rows_of_any_source_are_scaled_copies(tmp_path, kind, dtype):
    x = (data(1003, dtype=np.float64) * 100).astype(dtype)
    given_as = x
    if kind == "column-major":
        given_as = np.asfortranarray(x)
    elif kind == "npy":
        np.save(tmp_path / "x.npy", x)
        given_as = tmp_path / "x.npy"
    elif kind == "zarr":
        zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(100, 4))
        given_as = tmp_path / "x.zarr"
    elif kind == "dask":
        given_as = dask.array.from_array(x, chunks=((400, 3, 500, 100), 4))
    mean, scale = np.arange(6.0), np.arange(6.0) + 0.5
    sweeps = sweeps_over(given_as, scaling=Scaling(mean, scale))
    rows = draw_rows(1003, 57, 1)
    expected = np.empty((57, 6), sweeps.matrix.dtype)
    Scaling(mean, scale).apply(expected, x[rows])
    found = sample_rows(sweeps, rows)
    assert np.array_equal(found, expected)
    assert found.base is None
    assert found.flags.c_contiguous
    # What lies in memory is not read twice, nor changed by another look.
    again = sample_rows(sweeps, rows[::-1])
    assert np.array_equal(again, found[::-1])


def test_only_chunks_with_chosen_rows_are_read():
    x = data(2000)
    source = CountingSource(x, (50, 6))
    sweeps = sweeps_over(source, length=500, slab_length=100)
    sample_rows(sweeps, np.array([1999, 7, 12, 820, 1050, 1101, 1149]))
    assert np.flatnonzero(source.times_read()[::50, 0]).tolist() == [0, 16, 21, 22, 39]
    assert source.times_read().max() == 1
    assert sweeps.bytes_read == 5 * 50 * 6 * 4
    assert sweeps.n_sweeps == 0


def test_chunks_longer_than_a_slab_are_read_slab_by_slab():
    source = CountingSource(data(2000), (400, 6))
    sample_rows(sweeps_over(source, length=100, slab_length=100), np.array([10, 110, 210, 310, 1999]))
    # There may be no memory for more than a slab.
    assert sorted(r[:2] for r in source.reads) == [(i, i + 100) for i in (*range(0, 400, 100), *range(1600, 2000, 100))]


def test_many_scattered_rows_are_few_tasks(monkeypatch):
    monkeypatch.setattr(landmarks, "MAX_RANGES", 10)
    x = data(2000)
    source = CountingSource(x, (5, 6))
    rows = draw_rows(2000, 60, 3)
    sweeps = sweeps_over(source, length=1000, slab_length=5)
    assert np.array_equal(sample_rows(sweeps, rows), x[rows])
    assert len(landmarks._holding(sweeps.matrix, np.sort(rows)).partitions) <= 11
    assert not source.times_read().all()


def test_blocks_of_dask_are_computed_only_if_they_hold_a_row():
    x = data(1000)
    computed = []

    def look(block, block_info=None):
        if block_info:
            computed.append(block_info[0]["chunk-location"][0])
        return block

    lazy = dask.array.from_array(x, chunks=(100, 6)).map_blocks(look, dtype=x.dtype, meta=x[:0])
    rows = np.array([950, 120, 199, 0])
    assert np.array_equal(sample_rows(sweeps_over(lazy), rows), x[rows])
    assert sorted(computed) == [0, 1, 9]


def test_what_is_kept_is_not_read_again_by_the_next_sweep():
    source = CountingSource(data(2000), (50, 6), costly=True)
    sweeps = sweeps_over(Cached(source, 1 << 20), length=500, slab_length=100)
    sample_rows(sweeps, np.array([7, 820, 1999]))
    kmeans_landmarks(sweeps, data(3), 0)
    assert (source.times_read() == 1).all()


def test_rows_that_cannot_be_used_are_refused():
    x = data()
    x[500, 2] = np.nan
    with pytest.raises(InputError, match="sample 500, feature 2"):
        sample_rows(sweeps_over(x), np.array([499]))
    found = sample_rows(sweeps_over(x, missing="mean"), np.array([500]))
    assert np.array_equal(found[0], np.nan_to_num(x[500]))


def test_an_even_draw_has_different_rows_and_the_same_each_time():
    rows = draw_rows(10**12, 1000, 5)
    assert len(set(rows.tolist())) == 1000
    assert np.array_equal(rows, draw_rows(10**12, 1000, 5))
    assert not np.array_equal(rows, draw_rows(10**12, 1000, 6))
    assert sorted(draw_rows(50, 50, 0)) == list(range(50))


# ---------------------------------------------------------------- k-means


def quantisation(x, centres):
    return float(((x[:, None, :] - centres[None].astype(np.float64)) ** 2).sum(axis=2).min(axis=1).mean())


def test_nearest_centres_and_sums_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr(kernels, "STRIP_BYTES", 1 << 10)
    x, centres = data(700), data(41)[30:]
    found, _ = sweeps_over(x, length=130, slab_length=130).run(NearestCentres(centres), "sums")
    nearest = ((x[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(found.counts, np.bincount(nearest, minlength=11))
    expected = np.stack([x[nearest == c].sum(axis=0, dtype=np.float64) for c in range(11)])
    np.testing.assert_allclose(found.sums, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("length", [100, 1000])
def test_kmeans_finds_planted_clusters_and_lowers_the_error(length):
    x, centres = clusters()
    sweeps = sweeps_over(x, length=length)
    start = centres + np.random.default_rng(1).standard_normal(centres.shape)
    found = kmeans_landmarks(sweeps, start, 0)
    assert quantisation(x, found) < 0.9 * quantisation(x, start)
    assert np.abs(found - centres).max() < 0.25
    reads = 1 if length == 100 else landmarks.ROUNDS
    assert (sweeps.n_sweeps, sweeps.bytes_read) == (reads, reads * x.nbytes)


def test_one_read_by_batches_is_close_to_lloyd():
    x = data(2000, dtype=np.float64)
    start = seed_centres(x[:200], 20, 0)
    dealt = kmeans_landmarks(sweeps_over(x, length=100), start, 0)
    whole = kmeans_landmarks(sweeps_over(x, length=1000), start, 0)
    assert quantisation(x, whole) < quantisation(x, start)
    assert quantisation(x, dealt) < 1.05 * quantisation(x, whole)


def test_kmeans_has_the_same_bits_on_any_number_of_threads():
    x = data(3000)
    found = [kmeans_landmarks(sweeps_over(x, threads, length=100), x[:40], 3) for threads in (1, 4)]
    assert found[0].dtype == np.float32
    assert np.array_equal(*found)


def test_centres_that_nobody_is_near_stay():
    x = data(500)
    far = np.full((1, 6), 1e3, np.float32)
    start = np.concatenate([x[:3], far, x[3:4], far])
    found = kmeans_landmarks(sweeps_over(x, length=50), start, 0)
    assert (found == start).all(axis=1).tolist() == [False, False, False, True, False, True]


def test_float32_rows_are_summed_in_float64():
    x = np.full((200_000, 1), 0.1, np.float32)
    found = kmeans_landmarks(sweeps_over(x), np.ones((1, 1), np.float32), 0)
    assert found[0, 0] == np.float32(0.1)


def test_missing_values_are_refused_by_kmeans_and_leverage():
    x = data()
    x[321, 1] = np.nan
    with pytest.raises(InputError, match="sample 321"):
        kmeans_landmarks(sweeps_over(x), data(5), 0)
    with pytest.raises(InputError, match="sample 321"):
        leverage_landmarks(sweeps_over(x), RBF, data(50), 5, 0)


def test_seeds_are_rows_of_the_sample_one_in_each_cluster():
    x, centres = clusters()
    seeds = seed_centres(x, 5, 0)
    assert len({row.tobytes() for row in seeds} & {row.tobytes() for row in x}) == 5
    nearest = ((seeds[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert sorted(nearest) == [0, 1, 2, 3, 4]
    assert np.array_equal(seeds, seed_centres(x, 5, 0))


def test_there_are_no_more_seeds_than_different_rows():
    x = np.repeat(data(3), 20, axis=0)
    x[0, 0], x[1:20, 0] = 0.0, -0.0
    assert len(seed_centres(x, 10, 0)) == 3
    assert len(np.unique(seed_centres(x, 2, 0), axis=0)) == 2
    assert np.array_equal(seed_centres(np.ones((9, 2)), 4, 0), np.ones((1, 2)))


# ---------------------------------------------------------------- ridge leverage


def exact_leverage(kernel, x, ridge):
    K = kernel.values(x, x)
    return np.diagonal(np.linalg.solve(K + ridge * np.eye(len(x)), K))


KERNELS = [RBF, Kernel("laplacian", 0.1), Kernel("poly", 0.2, 2.0), Kernel("linear"), Kernel("cosine")]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_leverage_by_all_rows_is_exact_and_by_some_an_overestimate(kernel, monkeypatch):
    monkeypatch.setattr(kernels, "STRIP_BYTES", 1 << 10)
    x = data(200, dtype=np.float64)
    # Linear kernels have no tail beyond their rank.
    whole = Leverage.of(kernel, x, np.ones(200), 5)
    exact = exact_leverage(kernel, x, whole.ridge)
    tail = np.linalg.eigvalsh(kernel.values(x, x))[:-5].sum() / 5
    assert whole.ridge == pytest.approx(tail)
    np.testing.assert_allclose(whole.scores(x), exact, rtol=1e-8)
    assert exact.sum() < 2 * 5
    some = Leverage.of(kernel, x[:60], np.ones(60), 5)
    assert (some.scores(x) >= exact_leverage(kernel, x, some.ridge) * (1 - 1e-8)).all()
    # A row of chance p stands for 1 / p like it: the same as that many copies of it.
    weighed, copied = (
        Leverage.of(kernel, r, p, 5) for r, p in ((x[:60], np.full(60, 0.25)), (x[:60].repeat(4, 0), np.ones(240)))
    )
    np.testing.assert_allclose(weighed.scores(x), copied.scores(x), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gamma", [0.03, 0.3])
def test_recursive_leverage_is_within_a_factor_of_the_exact_one(gamma, dtype):
    x, kernel = data(800, dtype=np.float64), Kernel("rbf", gamma)
    found = recursive_leverage(kernel, x.astype(dtype), 80, 0)
    assert found.rows.shape == (80, 6)
    exact, scores = exact_leverage(kernel, x, found.ridge), found.scores(x.astype(dtype))
    ratio = scores / exact
    assert 0.5 < ratio.min()
    assert ratio.max() < 2.5
    assert 0.9 < np.median(ratio) < 1.5


def test_chances_sum_to_the_count_and_are_kept():
    rng = np.random.default_rng(0)
    scores = rng.random(300) ** 20
    chances = inclusion(scores, 40)
    assert chances.sum() == pytest.approx(40)
    assert chances.max() == 1
    free = chances < 1
    np.testing.assert_allclose(chances[free] / scores[free], (chances[free] / scores[free])[0])
    counts = np.zeros(300)
    for begin in (np.arange(1000) + 0.5) / 1000:
        chosen = systematic(chances, begin)
        assert len(chosen) == 40
        counts[chosen] += 1
    np.testing.assert_allclose(counts / 1000, chances, atol=2e-3)
    assert np.array_equal(inclusion(np.array([0.0, 3.0, 1e-9]), 2), [0, 1, 1])
    assert np.array_equal(systematic(np.zeros(4), 0.9), [])


def draw(x, sample, count, seed=0, kernel=RBF, **options):
    return leverage_landmarks(sweeps_over(x, **options), kernel, sample, count, seed)


def test_rows_are_drawn_once_each_and_in_one_sweep():
    x = data(3000)
    sweeps = sweeps_over(x, length=200, slab_length=100)
    found = leverage_landmarks(sweeps, RBF, x[draw_rows(3000, 400, 1)], 50, 2)
    assert (found.shape, found.dtype) == ((50, 6), np.dtype(np.float32))
    assert len({row.tobytes() for row in found}) == 50
    assert {row.tobytes() for row in found} <= {row.tobytes() for row in x}
    assert (sweeps.n_sweeps, sweeps.bytes_read) == (1, x.nbytes)
    assert not np.array_equal(found, draw(x, x[:400], 50, 3))


def test_rare_kinds_of_rows_are_drawn_about_as_often_as_frequent_ones():
    kinds = np.eye(8) * 100
    x = np.repeat(kinds, [1000] * 4 + [20] * 4, axis=0)
    counts = np.zeros(8)
    for seed in range(10):
        rows = draw(x, x[draw_rows(len(x), 800, [seed, 1])], 60, seed, Kernel("rbf", 1.0))
        counts += (rows != 0).sum(axis=0)
    assert counts.sum() == 600
    assert counts[:4].min() > 50
    # By an even draw they differ by fifty.
    assert counts[4:].sum() > 0.25 * counts[:4].sum()


def test_the_draw_finds_a_small_far_cluster_that_an_even_one_misses():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 2))
    x[rng.choice(4000, 8, replace=False)] += 30
    found = {"even": 0, "leverage": 0}
    for seed in range(10):
        sample = x[draw_rows(4000, 400, [seed, 1])]
        found["even"] += bool((sample[:50].mean(axis=1) > 15).any())
        found["leverage"] += bool((draw(x, sample, 50, seed, Kernel("rbf", 0.02)).mean(axis=1) > 15).any())
    assert found["even"] <= 3
    assert found["leverage"] == 10


def test_leverage_has_the_same_bits_on_any_number_of_threads_and_any_chunks(tmp_path):
    x = data(3000)
    sample = x[draw_rows(3000, 400, 1)]
    expected = draw(x, sample, 60, 5, threads=1, length=250)
    for i, chunks in enumerate([(100, 6), (77, 3), (640, 6)]):
        zarr.create_array(tmp_path / f"{i}.zarr", data=x, chunks=chunks)
        for threads in (1, 4):
            options = {"threads": threads, "length": 4 * chunks[0], "slab_length": chunks[0]}
            assert np.array_equal(draw(tmp_path / f"{i}.zarr", sample, 60, 5, **options), expected)
            rows = draw_rows(3000, 100, 9)
            assert np.array_equal(sample_rows(sweeps_over(tmp_path / f"{i}.zarr", **options), rows), x[rows])


# ---------------------------------------------------------------- awkward data


@pytest.mark.parametrize("kernel", [*KERNELS, Kernel("sigmoid", 0.1, coef0=-0.5)], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e6])
def test_constant_data_give_rows_and_no_nan(kernel, dtype, value):
    x = np.full((300, 4), value, dtype)
    found = draw(x, x[:100], 10, kernel=kernel)
    assert np.isfinite(found).all()
    vanishes = kernel.diagonal(x[:1])[0] <= 0
    assert np.array_equal(found, x[: 0 if vanishes else 10])


def test_rows_of_no_leverage_are_not_drawn():
    x = np.zeros((500, 6))
    x[::100] = data(5)
    found = draw(x, x, 20, kernel=Kernel("linear"))
    assert len(found) == 5
    assert np.array_equal(np.unique(found, axis=0), np.unique(x[::100], axis=0))


def test_a_few_different_rows_many_times():
    x = np.repeat(data(4), 100, axis=0)
    found = draw(x, x, 30)
    assert found.shape == (30, 6)
    assert len(np.unique(found, axis=0)) == 4
    assert np.isfinite(kmeans_landmarks(sweeps_over(x), seed_centres(x, 30, 0), 0)).all()


def test_as_many_landmarks_as_rows_are_all_of_them():
    x = data(40)
    found = draw(x, x, 40)
    assert np.array_equal(np.unique(found, axis=0), np.unique(x, axis=0))


def test_a_kernel_without_numbers_is_refused():
    x = data(200)
    with pytest.raises(InputError, match="not a number"):
        draw(x, x, 20, kernel=Kernel("poly", 1.0, 0.5, 0.0))
