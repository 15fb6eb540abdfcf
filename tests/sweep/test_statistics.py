"""Accumulators: a true zero, exact merges in any order, means that cost no digits. No Dask here."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import matrix_with_spectrum
from hypothesis import given
from hypothesis import strategies as st

from streampca.sweep.statistics import (
    CrossProduct,
    Moments,
    NoStatistic,
    Product,
    Projection,
    Scatter,
    Statistic,
    between_means,
    centre_by_own_mean,
    combine_moments,
    symmetric,
)

FIELDS = ("count", "mean", "m2", "missing")


def data(n=40, d=6, mean=0.0, gaps=False):
    x = np.random.default_rng(3).standard_normal((n, d)) * np.arange(1, d + 1) + mean
    if gaps:
        x[np.random.default_rng(4).random((n, d)) < 0.3] = np.nan
    return x


def moments_of(x):
    x = np.asarray(x, np.float64)
    return centre_by_own_mean(x, np.empty_like(x), missing=True)


def assert_moments_of(moments, x, rtol=1e-12):
    count = (~np.isnan(x)).sum(axis=0)
    mean = np.nansum(x.astype(np.longdouble), axis=0) / np.maximum(count, 1)
    m2 = np.nansum((x.astype(np.longdouble) - mean) ** 2, axis=0)
    np.testing.assert_array_equal(moments.count, count)
    np.testing.assert_array_equal(moments.missing, len(x) - count)
    np.testing.assert_allclose(moments.mean, mean.astype(float), rtol=rtol, atol=1e-14)
    np.testing.assert_allclose(moments.m2, m2.astype(float), rtol=rtol, atol=1e-14)


def split_at(x, cuts):
    return [part for part in np.split(x, sorted(cuts)) if len(part)]


cuts = st.lists(st.integers(1, 39), max_size=6, unique=True)


@given(cuts=cuts, order=st.randoms(use_true_random=False), gaps=st.booleans())
def test_moments_of_any_split_in_any_order_are_those_of_the_whole(cuts, order, gaps):
    x = data(gaps=gaps)
    parts = [moments_of(part) for part in split_at(x, cuts)]
    order.shuffle(parts)
    while len(parts) > 1:
        a = parts.pop(order.randrange(len(parts)))
        b = parts.pop(order.randrange(len(parts)))
        parts.append(combine_moments(a, b))
    assert_moments_of(parts[0], x)


def test_zero_moments_change_no_bit():
    moments, zero = moments_of(data(gaps=True)), Moments.zero(6)
    for both in (combine_moments(moments, zero), combine_moments(zero, moments)):
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(both, field), getattr(moments, field))
    twice = combine_moments(zero, zero)
    assert all((getattr(twice, field) == 0).all() for field in FIELDS)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mean_a_million_times_the_deviation_costs_no_digits(dtype):
    x = (data(400) + 1e6 * np.arange(1, 7)).astype(dtype)
    parts = [moments_of(part) for part in np.array_split(x, 7)]
    total = parts[0]
    for part in parts[1:]:
        total = combine_moments(total, part)
    # The deviations are exact to about 1e-10 of themselves in float64 at this mean.
    assert_moments_of(total, x.astype(np.float64), rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_column_has_exactly_zero_variance(dtype):
    constant = dtype(1e6) / dtype(3)
    tile = np.full((37, 3), constant, dtype)
    tile[:, 1] = np.arange(37)
    moments = centre_by_own_mean(tile.copy(), tile)
    merged = combine_moments(moments, moments_of(np.full((5, 3), constant, dtype)))
    assert (tile[:, [0, 2]] == 0).all()
    assert (merged.m2[[0, 2]] == 0).all()
    assert merged.mean[0] == float(constant)
    assert merged.m2[1] > 0


def test_missing_values_are_counted_and_stand_at_the_mean():
    x = data(gaps=True)
    absent = np.isnan(x)
    tile = np.empty_like(x)
    moments = centre_by_own_mean(x, tile, missing=True)
    np.testing.assert_array_equal(moments.missing, absent.sum(axis=0))
    assert moments.missing.sum() > 0
    assert (tile[absent] == 0).all()
    np.testing.assert_allclose(tile[~absent], (x - np.nanmean(x, axis=0))[~absent], rtol=1e-12, atol=1e-13)


def test_an_all_missing_column_counts_nothing_and_stays_zero():
    x = data()
    x[:, 2] = np.nan
    moments = moments_of(x)
    assert (moments.count[2], moments.missing[2], moments.mean[2], moments.m2[2]) == (0, 40, 0.0, 0.0)
    seen_later = combine_moments(moments, moments_of(data() + 100))
    assert_moments_of(seen_later, np.vstack([x, data() + 100]))


def test_joined_features_keep_their_order():
    x = data(gaps=True)
    joined = Moments.concatenate([moments_of(x[:, :2]), moments_of(x[:, 2:5]), moments_of(x[:, 5:])])
    for field in FIELDS:
        np.testing.assert_allclose(getattr(joined, field), getattr(moments_of(x), field), rtol=1e-12)


def test_variance_divides_by_n_minus_one():
    np.testing.assert_allclose(moments_of(data()).variance(40), data().var(axis=0, ddof=1), rtol=1e-12)


# The statistics: (what, the value of all rows at once).
Q = np.random.default_rng(5).standard_normal((6, 2))
M = np.random.default_rng(6).standard_normal((40, 3))
STATISTICS = {
    "scatter": (Scatter(), lambda x: x.T @ x),
    "product": (Product(Q), lambda x: x.T @ (x @ Q)),
    "projection": (Projection(Q), lambda x: np.column_stack([x @ Q, (x**2).sum(axis=1)])),
    "cross product": (CrossProduct(M), lambda x: np.column_stack([x.T @ M, (x**2).sum(axis=0)])),
}


def whole(statistic, value):
    """Return a value as one array: scatter's other triangle filled, projection's pieces joined."""
    if isinstance(statistic, Scatter):
        return symmetric(value.copy())
    return np.concatenate(statistic.finish(value, 0)) if isinstance(statistic, Projection) else value


@pytest.mark.parametrize("name", STATISTICS)
@given(cuts=cuts, tile=st.integers(1, 41), at=st.integers(0, 100))
def test_a_statistic_of_any_split_is_that_of_the_whole(name, cuts, tile, at):
    statistic, expected = STATISTICS[name]
    x = data()
    parts, start = [], 0
    for part in split_at(x, cuts):
        value = statistic.zero(6)
        for i in range(0, len(part), tile):
            statistic.update(value, part[i : i + tile], start + i)
        parts.append(value)
        start += len(part)
    while len(parts) > 1:
        i = at % (len(parts) - 1)
        parts[i : i + 2] = [statistic.combine(parts[i], parts[i + 1])]
    np.testing.assert_allclose(whole(statistic, parts[0]), expected(x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["scatter", "product", "cross product"])
def test_zero_changes_no_bit_of_a_statistic_and_combine_no_argument(name):
    statistic, _ = STATISTICS[name]
    value = statistic.zero(6)
    assert not value.any()
    statistic.update(value, data(), 0)
    before, zero = value.copy(), statistic.zero(6)
    for both in (statistic.combine(value, zero), statistic.combine(zero, value)):
        np.testing.assert_array_equal(both, before)
        both += 1
    np.testing.assert_array_equal(value, before)
    assert not zero.any()


def test_projection_of_nothing_is_nothing():
    statistic = Projection(Q)
    assert statistic.zero(6) == []
    assert len(statistic.combine(statistic.zero(6), [np.ones((2, 3))])) == 1


def test_a_sink_gets_the_scores_and_nothing_is_handed_on():
    got = []
    statistic = Projection(Q, sink=lambda start, rows: got.append((start, rows)))
    value = statistic.zero(6)
    statistic.update(value, data()[:3], 10)
    statistic.update(value, data()[3:8], 13)
    assert statistic.finish(value, 10) == []
    assert [start for start, _ in got] == [10]
    np.testing.assert_allclose(got[0][1], data()[:8] @ Q, rtol=1e-12)


@pytest.mark.parametrize("name", ["scatter", "product"])
@given(cut=st.integers(1, 39), mean=st.sampled_from([0.0, 5.0, 1e6]))
def test_two_parts_and_the_row_between_their_means_are_the_whole(name, cut, mean):
    statistic, expected = STATISTICS[name]
    x = data(mean=mean)
    x[:cut] += 3.0
    parts, values = (x[:cut].copy(), x[cut:].copy()), []
    moments = [centre_by_own_mean(part.copy(), part) for part in parts]
    for part in parts:
        values.append(statistic.zero(6))
        statistic.update(values[-1], part, 0)
    both = statistic.combine(*values)
    statistic.update(both, between_means(*moments), 0)
    wide = x.astype(np.longdouble)
    centred = (wide - wide.mean(axis=0)).astype(float)
    np.testing.assert_allclose(whole(statistic, both), expected(centred), rtol=1e-8, atol=1e-8)


def test_scatter_wider_than_a_strip_is_whole(monkeypatch):
    monkeypatch.setattr("streampca.sweep.statistics.STRIP", 4)
    x = data(d=11)
    value = Scatter().zero(11)
    Scatter().update(value, x, 0)
    np.testing.assert_allclose(symmetric(value), x.T @ x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["scatter", "product", "cross product"])
def test_float32_tiles_are_summed_in_float64(name):
    statistic, expected = STATISTICS[name]
    value = statistic.zero(6)
    assert value.dtype == np.float64
    x = data().astype(np.float32)
    for i in range(0, 40, 2):
        statistic.update(value, x[i : i + 2], i)
    np.testing.assert_allclose(whole(statistic, value), expected(x.astype(float)), rtol=1e-4, atol=1e-4)


def test_no_statistic_is_nothing():
    nothing = NoStatistic()
    assert nothing.combine(nothing.zero(6), nothing.zero(6)) == 0


@pytest.mark.parametrize("statistic", [Statistic(), Scatter()])
@pytest.mark.parametrize("width", [1, 1000, 10**7])
def test_tiles_are_never_empty(statistic, width):
    assert statistic.tile_length(width, 4) >= statistic.tile_length(width, 8) >= 1


def test_prescribed_spectrum_is_what_the_helper_makes():
    x = matrix_with_spectrum(50, 8, [4.0, 2.0, 1.0], mean=7.0)
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(x.T))[::-1][:4], [4.0, 2.0, 1.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_sums_over_many_float32_rows_keep_their_digits(order):
    x = np.random.default_rng(0).normal(size=(200_000, 3)).astype(np.float32)
    x[0] += 100
    moments = centre_by_own_mean(x, np.empty(x.shape, np.float32, order=order))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), atol=2e-6)
    np.testing.assert_allclose(moments.m2, ((exact - exact.mean(axis=0)) ** 2).sum(axis=0), rtol=2e-6)
