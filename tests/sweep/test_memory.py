"""The budget: limits are read, refused with the least needed, and planned from shapes alone."""

from __future__ import annotations

import re

import dask
import dask.array
import numpy as np
import pytest
from helpers import UnreadableSource, one_line

from streampca import PCA, InputError, MemoryLimitError, open_source
from streampca.models.pca.fit import plan_pca
from streampca.models.pca.options import PCAOptions
from streampca.sources.genotypes import COMPILED_BYTES, SMALL_BYTES
from streampca.sources.made_up import MadeUpGenotypes
from streampca.sweep.memory import (
    PROCESS_RESERVE,
    Budget,
    Footprint,
    Needs,
    available_memory,
    footprint,
    memory_limit,
    plan_sweeps,
    show_bytes,
    threads_that_fit,
)


@pytest.mark.parametrize(
    ("given", "limit"),
    [("600MB", 600_000_000), ("2GB", 2 * 10**9), ("1GiB", 1 << 30), ("2 kB", 2000), (10**9, 10**9), (5e8, 500_000_000)],
)
def test_amounts_of_memory_are_read(given, limit):
    assert memory_limit(given) == limit


def test_half_of_what_is_available_is_the_default():
    assert 0 < memory_limit(None) <= available_memory()


@pytest.mark.parametrize("given", ["lots", "10 parsecs", 0, -5, "-3GB", [1], object()])
def test_what_is_no_amount_is_refused(given):
    with pytest.raises(InputError) as error:
        memory_limit(given)
    assert "'600MB'" in one_line(error)


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(3, "3 B"), (1500, "1.5 kB"), (6e8, "600 MB"), (1.6e9, "1.6 GB"), (4e12, "4 TB")]
)
def test_amounts_are_shown_as_people_write_them(n_bytes, text):
    assert show_bytes(n_bytes) == text


SHAPES = {
    "tall": ((10**6, 1000), (10_000, 1000)),
    "wide": ((2000, 10**6), (2000, 1000)),
    "both": ((200_000, 100_000), (1000, 1000)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("solver", ["auto", "covariance", "gram", "krylov", "power"])
def test_a_refusal_names_the_least_needed_and_that_is_accepted(shape, solver):
    source = UnreadableSource(*SHAPES[shape])
    with pytest.raises(MemoryLimitError) as error:
        plan_pca(source, PCAOptions(n_components=10, solver=solver), memory="20MB")
    text = one_line(error)
    assert "20 MB is allowed" in text
    advised = re.search(r"use memory_limit='(\d+MB)' or more", text).group(1)
    accepted = plan_pca(source, PCAOptions(n_components=10, solver=solver), memory=advised)
    assert accepted.peak_bytes <= memory_limit(advised)
    least = int(re.search(r"at least (\d+) MB", text).group(1))
    with pytest.raises(MemoryLimitError):
        plan_pca(source, PCAOptions(n_components=10, solver=solver), memory=f"{least - 1}MB")
    assert plan_pca(source, PCAOptions(n_components=10, solver=solver), memory=f"{least}MB").threads >= 1


def test_the_estimator_refuses_before_reading():
    with pytest.raises(MemoryLimitError, match="needs at least"):
        PCA(10, memory_limit="20MB").fit(UnreadableSource(*SHAPES["both"]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("memory", ["1GB", "2GB", "30GB"])
def test_a_plan_stays_under_its_limit(shape, memory):
    plan = plan_pca(UnreadableSource(*SHAPES[shape]), PCAOptions(n_components=10, solver="krylov"), memory=memory)
    assert PROCESS_RESERVE < plan.peak_bytes <= plan.limit_bytes == memory_limit(memory)
    assert dict(plan.lines())["solver"].startswith("krylov")


def test_threads_are_given_up_when_memory_is_tight():
    source = UnreadableSource(*SHAPES["tall"])
    with dask.config.set(num_workers=8):
        rich = plan_pca(source, PCAOptions(n_components=10, solver="covariance"), memory="8GB")
        tight = plan_pca(source, PCAOptions(n_components=10, solver="covariance"), memory="500MB")
    assert rich.threads == 8
    assert 1 <= tight.threads < 8
    assert tight.cut == rich.cut


def test_as_many_tasks_run_as_fit():
    need = Footprint(process=100, driver=50, task=20, partial=5, waiting=4)
    assert need.peak(2) == 100 + 50 + 2 * 25 + 20
    assert threads_that_fit(need, need.peak(3), 8, "it") == 3
    assert threads_that_fit(need, need.peak(3) - 1, 8, "it") == 2
    assert threads_that_fit(need, 10**9, 8, "it") == 8
    with pytest.raises(MemoryLimitError):
        threads_that_fit(need, need.peak(1) - 1, 8, "it")


def test_what_is_declared_is_added_up():
    source = UnreadableSource((1000, 50), (100, 50))
    needs = Needs(0, tile=10**6, row=1000, partial=10**5, driver=3 * 10**6, after=2 * 10**6, held=500, libraries=10**7)
    cut, need = footprint(source, needs, Budget(10**9, baseline=10**8, threads=2))
    bare_cut, bare = footprint(source, Needs(0, 0, partial=10**5), Budget(10**9, threads=2))
    assert cut == bare_cut
    assert need.process - bare.process == 10**8 + 500 + 10**7
    assert need.task - bare.task == 10**6 + 1000 * max(stop - start for start, stop in cut.partitions)
    assert (need.driver, need.after, need.partial) == (3 * 10**6, 2 * 10**6, 10**5)
    large = footprint(source, Needs(0, 0, after=10**9), Budget(10**9))[1]
    assert large.peak(1) == large.peak(50) == large.process + 10**9
    genotypes = MadeUpGenotypes("x", (1000, 2000)), MadeUpGenotypes("x", (1000, 5000))
    assert [g.library_bytes for g in genotypes] == [SMALL_BYTES, COMPILED_BYTES]
    assert SMALL_BYTES < COMPILED_BYTES
    assert source.library_bytes == 0


def test_the_needs_with_the_smallest_peak_are_planned():
    source = UnreadableSource((1000, 50), (100, 50))
    either = [Needs(0, 10**8), Needs(1, 10**6)]
    assert plan_sweeps(source, either, Budget(10**9), "it").cut.axis == 1
    with pytest.raises(MemoryLimitError) as error:
        plan_sweeps(source, either, Budget(10**7), "it")
    least = plan_sweeps(source, either[1], Budget(10**9, threads=1), "it").peak_bytes
    assert f"it needs at least {-(-least // 10**6)} MB" in one_line(error)


@pytest.mark.parametrize("baseline", [0, 10**8])
def test_a_plan_is_a_function_of_source_options_and_budget(baseline):
    source = UnreadableSource(*SHAPES["both"])
    options = PCAOptions(n_components=10)
    ballast = []
    plans = set()
    for _ in range(3):
        plan = plan_pca(source, options, memory=Budget(10**9, baseline, 2))
        plans.add((plan.cut, plan.need, plan.threads, plan.peak_bytes, plan.resident_bytes, plan.solver))
        # What the process holds must not matter.
        ballast.append(np.ones(8 << 20))
    assert len(plans) == 1


def test_a_baseline_counts_against_the_limit():
    source = UnreadableSource(*SHAPES["tall"])
    options = PCAOptions(n_components=10, solver="covariance")
    alone, shell = (plan_pca(source, options, memory=Budget(10**9, more, 1)) for more in (0, 10**8))
    assert shell.peak_bytes == alone.peak_bytes + 10**8
    assert shell.cut == alone.cut


def test_budgets_pass_through_unchanged():
    budget = Budget(10**9, 10**8, 3)
    assert Budget.of(budget) is budget
    with dask.config.set(num_workers=5):
        assert Budget.of("1GB", 7) == Budget(10**9, 7, 5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [10, 0.5])
def test_the_plan_does_not_depend_on_the_number_of_workers(shape, k):
    source = UnreadableSource(*SHAPES[shape])
    for memory in (*range(300, 1000, 50), 2000, 16000):
        plans_of = []
        for workers in (1, 2, 4, 16):
            with dask.config.set(num_workers=workers):
                try:
                    plan = plan_pca(source, PCAOptions(n_components=k), memory=f"{memory}MB")
                except MemoryLimitError:
                    plans_of.append("refused")
                else:
                    plans_of.append((plan.name, plan.solver, plan.cut))
        assert all(plan == plans_of[0] for plan in plans_of), f"{memory} MB: {plans_of}"


@pytest.mark.parametrize("k", [20, 0.9])
def test_shapes_too_big_to_hold_are_planned_without_reading(k):
    source = UnreadableSource((10**7, 10**5), (1000, 5000))
    plan = plan_pca(source, PCAOptions(n_components=k), memory="64GB")
    assert plan.name == "krylov"
    assert plan.sweep_bytes == 4 * 10**12
    assert plan.peak_bytes <= 64 * 10**9
    assert plan.sweeps > 1
    assert plan.seconds > 100
    with pytest.raises(MemoryLimitError):
        plan_pca(source, PCAOptions(n_components=k), memory="500MB")


def test_a_dask_array_too_big_to_compute_is_planned_from_its_shape():
    def never(_):
        raise AssertionError("a plan must not compute")

    x = dask.array.zeros((10**7, 10**5), chunks=(10**4, 10**5), dtype="f4")
    x = x.map_blocks(never, dtype="f4", meta=np.empty((0, 0), "f4"))
    plan = plan_pca(open_source(x), PCAOptions(n_components=20), memory="64GB")
    assert plan.name == "krylov"
    assert plan.cut.partitions == tuple((i, i + 10**4) for i in range(0, 10**7, 10**4))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("chunks", [(10_000, 1000), (7, 13), (10**6, 1000), (1, 1000), (10**6, 1)])
def test_partitions_cover_the_axis_in_whole_chunks(axis, chunks):
    source = UnreadableSource((10**6, 1000), chunks)
    for partial_bytes in (8, 1 << 20, 1 << 30):
        planned = source.cut(axis, partial_bytes)
        stops = [stop for _, stop in planned.partitions]
        assert [start for start, _ in planned.partitions] == [0, *stops[:-1]]
        assert stops[-1] == source.shape[axis]
        assert all(stop % chunks[axis] == 0 for stop in stops[:-1])
        assert 1 <= planned.slab_length <= source.shape[axis]
        assert len(planned.partitions) <= 512


def test_few_features_call_for_the_covariance_and_few_samples_for_the_gram_matrix():
    assert (
        plan_pca(UnreadableSource((10**6, 300), (10_000, 300)), PCAOptions(n_components=10), memory="8GB").name
        == "covariance"
    )
    assert (
        plan_pca(UnreadableSource((300, 10**6), (300, 10_000)), PCAOptions(n_components=10), memory="8GB").name
        == "gram"
    )
    assert (
        plan_pca(UnreadableSource((10**5, 10**5), (1000, 1000)), PCAOptions(n_components=10), memory="8GB").name
        == "krylov"
    )


def test_a_reason_is_given_for_the_choice():
    source = UnreadableSource((10**6, 300), (10_000, 300))
    chosen = plan_pca(source, PCAOptions(n_components=10), memory="8GB")
    assert "300 x 300" in chosen.reason
    assert plan_pca(source, PCAOptions(n_components=10, solver="krylov"), memory="8GB").reason == "as asked"
    lines = dict(chosen.lines())
    assert set(lines) == {"solver", "sweeps", "partitions", "memory", "time"}
    assert "8 GB" in lines["memory"]


def test_decoded_data_are_kept_only_where_they_are_read_again():
    costly = UnreadableSource((100_000, 1000), (10_000, 1000))
    assert plan_pca(costly, PCAOptions(n_components=10, solver="covariance"), memory="4GB").resident_bytes == 0
    assert plan_pca(costly, PCAOptions(n_components=10, solver="krylov"), memory="4GB").resident_bytes == costly.n_bytes
    cheap = UnreadableSource((100_000, 1000), (10_000, 1000), costly=False)
    assert plan_pca(cheap, PCAOptions(n_components=10, solver="krylov"), memory="4GB").resident_bytes == 0
