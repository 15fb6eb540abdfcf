"""Plans with their costs: memory, bytes and the time model; nothing here depends on how fast the machine is."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import dask
import numpy as np
import pytest
from helpers import PEAK

from streampca.models.pca.fit import plan_pca
from streampca.models.pca.options import PCAOptions
from streampca.run.config import build
from streampca.run.costs import measure, predict
from streampca.run.costs.measure import CALIBRATION_BYTES, Rates, driver_seconds, statistic_of
from streampca.run.costs.predict import WAITING, Costs, Sizes, predict_costs
from streampca.solvers.choose import Plan
from streampca.solvers.dense import Dense
from streampca.solvers.krylov import WARM_SWEEPS, Krylov
from streampca.solvers.power import Power
from streampca.sources.made_up import MadeUpArray, MadeUpGenotypes, made_up
from streampca.sources.thresholds import Thresholds
from streampca.sweep.memory import Cut, Footprint
from streampca.sweep.statistics import Product, ProductAndRows, Scatter
from streampca.sweep.sweep import Sweeps

NEED = Footprint(process=100, driver=1000, task=20, partial=5, waiting=4, after=0)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Measure little, and start no processes for it: tests look at what becomes of the numbers."""
    monkeypatch.setattr(measure, "CALIBRATION_SECONDS", 1e-3)
    monkeypatch.setattr(measure, "REPEATS", 2)
    monkeypatch.setattr(predict, "measure_tasks", lambda _: {"task": 0.002, "worker_task": 0.003, "loading": 1.0})


def blocks(shape, *, path="study.bed", k=4, engine=None, **model):
    return {
        "data": {"path": path, **({} if shape is None else {"shape": shape})},
        "model": {"kind": "pca", "n_components": k, **model},
        "engine": {"memory_limit": "2GB", **(engine or {})},
        "output": {"path": "out.zarr"},
    }


def predicted(*shape, **options):
    return predict_costs(build(blocks(*shape, **options)))


def sent_by(client):
    """Bytes that the workers of a client have written so far, to each other and to the driver."""

    def written(dask_worker):
        return sum(entry["compressed"] for entry in dask_worker.transfer_outgoing_log)

    return sum(client.run(written).values())


def small_plan(partitions=((0, 10), (10, 20), (20, 30), (30, 35)), solver=None, axis=1):
    return Plan(
        cut=Cut(axis, partitions, 10), threads=1, need=NEED, peak_bytes=0, limit_bytes=0, resident_bytes=0,
        dtype=np.dtype(np.float32), solver=solver or Krylov(8, 40), name="krylov", reason="", sweep_bytes=350, sweeps=8,
        seconds=1.0,
    )  # fmt: skip


def lines_of(found):
    return dict(found.lines())


def test_paper_genotypes_have_shape_and_packed_bytes_but_no_labels():
    source = made_up("x.bed", (1001, 5000), Thresholds(maf=0.1))
    assert isinstance(source, MadeUpGenotypes)
    assert source.shape == (1001, 5000)
    assert not source.samples.coords
    assert not source.features.coords
    packed, n_bytes = source.read_packed(100, 300)
    assert packed.shape == (200, 251)
    assert n_bytes == packed.nbytes
    assert source.filter.maf == 0.1
    values, _ = source.read(slice(0, 1001), slice(0, 50))
    assert np.nanvar(values, axis=0).min() > 0
    assert 0 < np.isnan(values).mean() < 0.05


@pytest.mark.parametrize("shape", [(100_000, 300), (300, 100_000), (2, 5_000_000)])
def test_paper_arrays_are_read_in_chunks_of_a_few_megabytes(shape):
    source = made_up("x.zarr", shape)
    assert isinstance(source, MadeUpArray)
    rows, columns = source.chunks
    assert min(shape) in (rows, columns)
    assert 4 * rows * columns <= 8 << 20
    block, n_bytes = source.read(slice(0, rows), slice(0, columns))
    assert block.shape == (rows, columns)
    assert n_bytes == block.nbytes
    assert np.isfinite(block).all()


def costs_of(plan=None, workers=0, engine="slurm", **more):
    """Costs of a small plan, with rates of which all but those given are 0."""
    rates = {"threads": 1, "row": 0.0, "first_row": 0.0, "last_row": 0.0, "merge": 0.0, "driver": 0.0}
    given = {name: value for name, value in more.items() if name != "sizes"}
    return Costs(plan or small_plan(), engine, workers, "variant", more.get("sizes"), Rates(**rates | given))


def rows_of(count, length):
    return [(i * length, (i + 1) * length) for i in range(count)]


def test_memory_of_worker_and_driver_is_what_each_holds():
    # Process, tasks with their partials, partials that wait, and a copy of what is shared.
    plan = replace(small_plan(), threads=3)
    costs = costs_of(plan, workers=2, sizes=Sizes(7, 0))
    assert costs.worker_bytes == 100 + 3 * (20 + 5) + 4 * 5 + 7
    assert costs.driver_bytes == 100 + 1000 + 7 + (4 + 2) * 5
    after = replace(plan, need=replace(NEED, after=9999))
    assert costs_of(after, workers=2, sizes=Sizes(7, 0)).driver_bytes == 100 + 9999
    alone = costs_of(replace(plan, peak_bytes=123))
    assert (alone.worker_bytes, alone.driver_bytes) == (0, 123)


@pytest.mark.parametrize("keep_rows", [False, True])
def test_sizes_count_block_scaling_and_partials(keep_rows):
    data, plan = MadeUpGenotypes("x", (1000, 35)), small_plan()
    statistic = statistic_of(Krylov(8, 40, keep_rows), 1000, plan.dtype)
    assert isinstance(statistic, ProductAndRows if keep_rows else Product)
    sizes = Sizes.of(plan, data, statistic)
    assert 4 * 1000 * 8 + 16 * 35 < sizes.shared < 4 * 1000 * 8 + 16 * 35 + 2000
    assert sizes.partial == 8 * 1000 * 8 + 8 * 1000
    assert sizes.row == (4 * 8 if keep_rows else 0)
    assert sizes.partial_of(10) == sizes.partial + 10 * sizes.row


def test_sizes_of_a_scatter_are_those_of_the_matrix():
    data, plan = MadeUpArray("x", (500, 20)), small_plan(solver=Dense(), axis=0)
    sizes = Sizes.of(plan, data, statistic_of(Dense(), 20, plan.dtype))
    assert isinstance(statistic_of(Dense(), 20, plan.dtype), Scatter)
    assert sizes.partial == 8 * 20 * 20 + 32 * 20


def test_network_counts_each_partial_once_and_each_copy():
    sizes = Sizes(shared=1000, partial=100, row=2)
    # The tree: two pairs of 10 + 10 and 10 + 5 rows, then 20 + 15.
    merging = sum(100 + 2 * rows for rows in (10, 10, 10, 5, 20, 15))
    partitions = small_plan().cut.partitions
    assert sizes.network(partitions, 2) == {
        "broadcast": 2000, "merging": merging, "merging_likely": (120 + 120 + 140) // 2, "home": 100 + 2 * 35,
        "most": 2000 + merging + 170,
    }  # fmt: skip
    alone = sizes.network(partitions, 1)
    assert (alone["merging"], alone["merging_likely"]) == (0, 0)
    assert alone["most"] == 1000 + 170


def test_a_sweep_takes_rounds_of_partitions_and_scales_with_threads():
    def seconds(workers, threads, driver=0.0):
        costs = costs_of(replace(small_plan(), threads=threads), workers)
        return costs.sweep(rows_of(64, 10), 0.5, driver)

    assert seconds(1, 1, 0.25) == {
        "computing": WAITING * 320.0, "merging": 0.0, "network": 0.0, "scheduling": 0.0, "driver": WAITING * 0.25,
    }  # fmt: skip
    for threads in (2, 4, 8):
        assert seconds(1, threads)["computing"] == pytest.approx(WAITING * 320 / threads)
    # 64 partitions on 60 threads come in two rounds.
    assert seconds(30, 2)["computing"] == WAITING * 10


def test_merges_are_shared_and_then_a_tree():
    def merging(count, workers, threads):
        costs = costs_of(replace(small_plan(), threads=threads), workers, merge=2.0)
        return costs.sweep(rows_of(count, 1), 0.0, 0.0)["merging"]

    assert merging(64, 1, 1) == pytest.approx(WAITING * 63 * 2)
    assert merging(64, 2, 4) == pytest.approx(WAITING * (56 / 8 + 3) * 2)
    assert merging(1, 2, 4) == 0


def test_workers_pay_for_network_and_tasks_but_threads_do_not():
    rates = {"task": 0.002, "worker_task": 0.01}
    many = costs_of(workers=9, sizes=Sizes(10**9, 0), **rates).sweep(rows_of(8, 1), 0.0, 0.0)
    # To the first worker, then in two rounds of two each to nine.
    assert many["network"] == pytest.approx(1 + 2 * 2)
    assert many["scheduling"] == pytest.approx(WAITING * 15 * (0.002 + 0.01 / 9))
    alone = costs_of(replace(small_plan(), threads=9), **rates).sweep(rows_of(8, 1), 0.0, 0.0)
    assert (alone["network"], alone["scheduling"]) == (0.0, 0.0)


def test_seconds_add_the_sweeps_up():
    costs = costs_of(loading=3.0)
    costs.__dict__["sweeps"] = {"warm": {"computing": 1.0}, "first": {"computing": 20.0}, "later": {"computing": 10.0}}
    assert costs.seconds(4) == 3 + WARM_SWEEPS + 20 + 3 * 10
    assert costs.seconds() == 3 + WARM_SWEEPS + 20 + 7 * 10
    costs.__dict__["sweeps"] = {"first": {"computing": 20.0}, "later": {"computing": 10.0}, "last": {"computing": 5.0}}
    assert costs.seconds(4) == 3 + 20 + 2 * 10 + 5
    assert costs.seconds(1) == 3 + 20


def test_driver_is_measured_on_fewer_rows_and_in_proportion(monkeypatch):
    monkeypatch.setattr(measure, "BASIS_ROWS", 200)
    assert driver_seconds(small_plan(), 10_000, 4) > 0
    assert driver_seconds(small_plan(solver=Dense()), 50, 4) > 0
    assert driver_seconds(small_plan(solver=Power()), 50, 4) == 0


@pytest.mark.parametrize(
    ("path", "shape", "solver", "row"),
    [
        ("x.bed", (600, 40_000), "krylov", "variant"),
        ("x.bed", (300, 20_000), "gram", "variant"),
        ("x.zarr", (40_000, 60), "covariance", "sample"),
        ("x.zarr", (20_000, 400), "krylov", "sample"),
        ("x.zarr", (200, 30_000), "gram", "feature"),
        ("x.zarr", (200, 30_000), "power", "sample"),
    ],
)
def test_every_solver_is_calibrated(path, shape, solver, row):
    found = predicted(shape, path=path, solver=solver)
    assert found.plan.name == solver
    assert found.network is None
    rates, sweeps = found.rates, found.sweeps
    assert min(rates.row, rates.first_row, found.seconds()) > 0
    assert min(sum(parts.values()) for parts in sweeps.values()) > 0
    assert f"a {row} and thread" in lines_of(found)["measured here"]
    assert ("warm" in sweeps) == (solver == "krylov" and path == "x.bed")
    # Scores of samples, or loadings of features, take a sweep unless rows were kept.
    assert (rates.last_row > 0) == (not getattr(found.plan.solver, "keep_rows", False))


def test_other_models_fall_back_to_the_rough_model_and_say_so():
    engine = {"kind": "processes", "workers": 2}
    common = {"path": "x.zarr", "engine": engine, "k": 3}
    for model in ({"kind": "ppca"}, {"kind": "kpca", "n_landmarks": 100}):
        found = predicted((3000, 40), **common, **model)
        assert found.rates is None
        assert found.worker_bytes > 0
        assert "rough model" in lines_of(found)["time"]
        assert json.loads(json.dumps(found.facts()))["calibrated"] is False
    assert predicted((3000, 40), **common, kind="ppca", method="closed").rates is not None


def test_workers_of_an_engine_have_memory_and_network_within_the_plan():
    engine = {"kind": "slurm", "workers": 8, "threads": 2, "memory_limit": "1GB"}
    found = predicted((2000, 60_000), engine=engine, solver="krylov")
    plan = found.plan
    assert (found.workers, plan.threads, plan.resident_bytes) == (8, 2, 0)
    # A process that did both would hold less than the two together, and all are within the limit.
    assert max(found.worker_bytes, found.driver_bytes) < 1e9
    assert plan.need.peak(2) <= found.worker_bytes + found.driver_bytes
    assert found.network["broadcast"] == 8 * found.sizes.shared
    assert found.network["merging_likely"] <= found.network["merging"]
    lines = lines_of(found)
    for name in ("solver", "sweeps", "partitions", "memory of a worker", "memory of the driver", "reading",
                 "network a sweep", "measured here", "time", "assumed"):  # fmt: skip
        assert lines[name], name
    assert "memory" not in lines
    facts = json.loads(json.dumps(found.facts()))
    assert facts["network_bytes"]["most"] == found.network["most"]
    assert facts["sweep_seconds"]["later"]["seconds"] == pytest.approx(sum(found.sweeps["later"].values()))
    assert {"warm", "first", "later"} <= set(facts["sweep_seconds"])
    assert facts["measured"]["task"] == 0.002


def test_calibration_shortens_rows_that_would_take_too_much_memory(monkeypatch):
    monkeypatch.setattr(measure, "CALIBRATION_BYTES", 40 << 20)
    found = predicted((200_000, 5_000), engine={"memory_limit": "20GB"}, solver="krylov")
    assert 0 < found.rates.side < 200_000
    assert "in proportion" in lines_of(found)["measured here"]


def test_data_that_are_there_are_opened_and_measured(tmp_path):
    x = np.random.default_rng(0).standard_normal((3000, 30)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    found = predicted(None, path=str(tmp_path / "x.npy"))
    assert found.plan.sweep_bytes == x.nbytes
    assert "simulated" not in lines_of(found)["assumed"]
    assert found.workers == 0


@pytest.mark.slow
def test_the_cluster_plan_on_paper_takes_bounded_memory(tmp_path):
    engine = {"kind": "slurm", "workers": 32, "threads": 4, "memory_limit": "8GB"}
    (tmp_path / "paper.yaml").write_text(json.dumps(blocks([500_000, 1_000_000], k=20, engine=engine)))
    command = [sys.executable, "-c", PEAK, "streampca", "run", "paper.yaml", "--plan", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    text, _, peak = done.stdout.rpartition("PEAK")
    facts = json.loads(text)
    assert int(peak) < CALIBRATION_BYTES + (600 << 20)
    assert (facts["name"], facts["workers"], facts["threads"]) == ("krylov", 32, 4)
    assert facts["sweep_bytes"] == 125_000 * 1_000_000
    assert 96e6 * 4 < facts["worker_bytes"] < 8e9
    assert facts["driver_bytes"] < 8e9
    # Block, mean and scale to each worker.
    assert facts["network_bytes"]["broadcast"] == pytest.approx(32 * (4 * 500_000 * 24 + 16e6), rel=0.01)
    assert facts["network_bytes"]["merging"] > facts["partitions"] * 8 * 500_000 * 24
    assert min(facts["measured"]["row"], facts["measured"]["task"], facts["measured"]["worker_task"]) > 0
    assert facts["seconds"] > facts["sweep_seconds"]["later"]["seconds"] > facts["sweep_seconds"]["later"]["driver"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("keep_rows", [False, True])
def test_workers_send_no_more_than_the_bound(keep_rows, monkeypatch):
    from types import SimpleNamespace

    from streampca.run.engine import engine
    from streampca.solvers.base import first_sweep

    monkeypatch.setattr("streampca.sources.base.PARTITION_BYTES", 1 << 18)
    data = MadeUpGenotypes("x", (2000, 6000))
    with dask.config.set(num_workers=1):
        plan = plan_pca(data, PCAOptions(n_components=4, solver="krylov"), memory="1GB")
    statistic = statistic_of(replace(plan.solver, keep_rows=keep_rows), 2000, plan.dtype)
    assert len(plan.cut.partitions) > 8
    sizes = Sizes.of(plan, data, statistic)
    with engine(SimpleNamespace(kind="processes", workers=2, dashboard=False), 1, 10**9) as client:
        client.wait_for_workers(2)
        sweeps = Sweeps(plan.matrix(data, plan.timed.missing, plan.timed.scale))
        first_sweep(sweeps, statistic, "first")
        before = sent_by(client)
        sweeps.run(statistic, "counted")
        sent = sent_by(client) - before
    bound = sizes.network(plan.cut.partitions, 2)
    # Frames have headers; the first copy of what is broadcast comes from the driver.
    assert bound["home"] < sent <= 1.05 * (bound["most"] - sizes.shared)
