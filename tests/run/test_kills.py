"""Runs that are killed, stopped or without space, and gone on with by the same command: same bits, bounded work."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from genotype_helpers import random_calls, write_bed
from helpers import run as streampca
from killing import FILES, PROCESSES, RECORDS, SIGNALS, Watched, bits, times_done, until, watched, write_config
from s3 import copied

from streampca.errors import InputError
from streampca.results.store import load
from streampca.run.config import load as load_config
from streampca.run.driver import run as run_here
from streampca.run.fit import FitTask
from streampca.sources import remote
from streampca.sweep.checkpoint import read_record

KINDS = ("driver", "worker", "all workers", "driver and workers")
# Seconds that each partition takes more, so that a kill finds others at work.
DELAY = 0.005
MODEL = {"solver": "krylov"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an array of 60 partitions."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((12000, 6)) @ rng.standard_normal((6, 40)) + 0.5 * rng.standard_normal((12000, 40))
    zarr.create_array(folder / "x.zarr", shape=values.shape, chunks=(200, 40), dtype="f4")[...] = values
    return folder / "x.zarr"


@pytest.fixture(scope="module")
def genotypes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bed(tmp_path_factory.mktemp("genotypes") / "study", random_calls(120, 6000, seed=4))


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """Return the bits of a run on threads that nobody disturbs, and how often each partition was done."""
    return alone(data, tmp_path_factory.mktemp("undisturbed"))


def alone(source: Path, folder: Path) -> tuple[dict, dict]:
    config = write_config(folder / "run.yaml", source, folder / "out.zarr", model=MODEL)
    with watched(folder / "watched", config) as run:
        run.whole()
        return bits(folder / "out.zarr"), times_done(run)


def kill_and_go_on(run: Watched, kinds: list[str], needed: int, rng: np.random.Generator) -> None:
    """Kill it, each time some partitions after the last time, and go on; then let it end.

    No more is begun than a few partitions beyond a kill's moment, so that each comes before the end, however late.
    """
    gap = (needed - 8) // len(kinds)
    run.start()
    for number, kind in enumerate(kinds):
        moment = run.count() + int(rng.integers(1, gap - 6))
        run.allow(moment + int(rng.integers(0, 6)))
        run.wait_for(moment)
        run.kill(kind, rng)
        if kind.startswith("driver"):
            assert run.process.returncode == -signal.SIGKILL, f"kill {number} came too late"
            run.start()
    run.allow(float("inf"))
    ended = run.end()
    assert ended.code == 0, ended.err
    run.wait_for_orphans()


def assert_little_was_done_twice(run: Watched, needed: dict, kills: int, partitions: int, each: int) -> None:
    done = times_done(run)
    assert set(done) == set(needed), "the same questions were asked"
    # Only what a kill found unfinished is done again.
    assert max(done.values()) <= 1 + kills
    extra = sum(done.values()) - sum(needed.values())
    assert extra <= each * kills, f"{extra} partitions were done again in {kills} kills, one {max(done.values())} times"
    assert each < partitions


@pytest.mark.slow
def test_the_driver_killed_on_threads(genotypes, tmp_path):
    expected, needed = alone(genotypes, tmp_path)
    config = write_config(tmp_path / "killed.yaml", genotypes, tmp_path / "killed.zarr", model=MODEL)
    with watched(tmp_path / "killed", config, delay=DELAY) as run:
        kill_and_go_on(run, ["driver"] * 6, sum(needed.values()), np.random.default_rng(1))
        # Lost are two partitions at work, and those that the record leaves out as small.
        assert_little_was_done_twice(run, needed, 6, 60, each=8)
    assert bits(tmp_path / "killed.zarr") == expected
    assert not (tmp_path / "killed.zarr.unfinished").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_drivers_and_workers_killed(seed, data, undisturbed, tmp_path):
    expected, needed = undisturbed
    config = write_config(tmp_path / "killed.yaml", data, tmp_path / "killed.zarr", model=MODEL, engine=PROCESSES)
    rng = np.random.default_rng(seed)
    kinds = [str(kind) for kind in rng.permutation(KINDS * 2)]
    with watched(tmp_path / "killed", config, delay=DELAY) as run:
        kill_and_go_on(run, kinds, sum(needed.values()), rng)
        # A worker takes with it what it holds and has not handed over, and the driver what it has not put on record:
        # some partitions, here fewer than half of a sweep.
        assert_little_was_done_twice(run, needed, len(kinds), 60, each=30)
    assert bits(tmp_path / "killed.zarr") == expected
    assert not (tmp_path / "killed.zarr.unfinished").exists()


def recorded(folder: Path) -> dict[int, set[tuple[int, int]]]:
    """Return the ranges of partitions on record, by sweep."""
    found: dict[int, set[tuple[int, int]]] = {}
    for path in (folder / "checkpoint").glob("*.npz"):
        sweep, start, stop = map(int, re.fullmatch(r"(\d+)-(\d+)-(\d+)\.npz", path.name).groups())
        found.setdefault(sweep, set()).add((start, stop))
    return found


@pytest.mark.slow
def test_what_is_on_record_is_not_done_again(data, undisturbed, tmp_path):
    expected, needed = undisturbed
    config = write_config(tmp_path / "run.yaml", data, tmp_path / "out.zarr", model=MODEL)
    unfinished = tmp_path / "out.zarr.unfinished"
    with watched(tmp_path / "watched", config) as run:
        # 30 partitions into the second sweep.
        run.allow(90)
        run.start()
        # Two more wait at the gate; all before them are done, and on record but for small ones.
        run.wait_for(92)
        until(lambda: sum(b - a for a, b in recorded(unfinished).get(2, ())) >= 24, "records of the second sweep")
        run.kill("driver", np.random.default_rng(0))
        kept = recorded(unfinished)
        assert kept[1] == {(0, 60)}, "a sweep that is done is one record"
        before = run.lines()
        run.allow(float("inf"))
        ended = run.whole()
        again = set(before) & set(run.lines()[len(before) :])
        starts = {int(line.split()[1]) // 200 for line in again}
    assert "attempt 2" in ended.err
    assert not any(a <= start < b for start in starts for a, b in kept[2])
    assert len(again) <= 92 - 60 - sum(b - a for a, b in kept[2])
    assert bits(tmp_path / "out.zarr") == expected
    summary = json.loads(zarr.open_group(tmp_path / "out.zarr", mode="r").attrs["run"])
    assert summary["attempts"] == 2
    assert summary["replayed_sweeps"] == 1
    assert summary["resumed_partitions"] == sum(b - a for a, b in kept[2])


def status_of(here, output: Path) -> dict:
    code, out, err = here("status", output, "--json")
    assert code == 0, err
    assert here("status", output)[1].startswith("state")
    return json.loads(out)


@pytest.mark.slow
def test_one_run_at_a_time_each_stop_can_be_gone_on_from_and_status_says_it(data, undisturbed, tmp_path, here):
    expected, needed = undisturbed
    output = tmp_path / "out.zarr"
    config = write_config(tmp_path / "run.yaml", data, output, model=MODEL)
    code, _, err = here("status", output)
    assert code == 2
    assert "no result and no run for one" in err
    with watched(tmp_path / "watched", config) as run:
        run.allow(70)
        run.start()
        run.wait_for(72)
        found = status_of(here, output)
        assert found["state"] == "running"
        assert (found["pid"], found["host"]) == (run.process.pid, socket.gethostname())
        assert (found["partitions"], found["attempts"]) == (60, 1)
        assert found["sweep"] in (1, 2), "it is told once a second, and at the end of a sweep"

        # Another run is refused, with another configuration too, and the first does not notice.
        for settings in ([], ["model.n_components=2"]):
            with pytest.raises(InputError, match=f"another run is writing it .process {run.process.pid} on "):
                run_here(FitTask(load_config(config, settings)))
        code, _, err = here("run", config)
        assert code == 2
        assert re.search(rf"process {run.process.pid} on {re.escape(socket.gethostname())}, since 20", err)
        assert err.count("\n") == 1
        assert run.process.poll() is None

        run.kill("driver", np.random.default_rng(0))
        assert status_of(here, output)["state"] == "killed"

        for attempt, (name, number) in enumerate(SIGNALS.items(), start=2):
            moment = run.count() + 20
            run.allow(moment)
            run.start("--set", "engine.checkpoint_minutes=60")
            run.wait_for(moment)
            assert status_of(here, output)["state"] == "running"
            records = run.count(RECORDS)
            run.signal(number)
            # It saves what it has, and waits for partitions at work, which are let go now.
            run.wait_for(records + 1, RECORDS)
            run.allow(float("inf"))
            ended = run.end()
            assert ended.code == 75, ended
            message = f"streampca: stopped by {name}; finished work is saved: run the same command to resume"
            assert ended.err.splitlines()[-1] == message
            found = status_of(here, output)
            assert (found["state"], found["reason"], found["attempts"]) == ("stopped", f"stopped by {name}", attempt)
            assert found["checkpoint_bytes"] > 0
        run.allow(float("inf"))
        run.whole()
        assert bits(output) == expected
        # One kill and three stops.
        assert_little_was_done_twice(run, needed, 6, 60, each=8)
    found = status_of(here, output)
    assert (found["state"], found["attempts"]) == ("finished", 5)


@pytest.mark.slow
def test_stopped_with_worker_processes(data, undisturbed, tmp_path):
    expected, needed = undisturbed
    output = tmp_path / "out.zarr"
    config = write_config(tmp_path / "run.yaml", data, output, model=MODEL, engine=PROCESSES)

    def kept() -> int:
        return sum(b - a for a, b in recorded(tmp_path / "out.zarr.unfinished").get(1, ()))

    with watched(tmp_path / "watched", config) as run:
        run.allow(30)
        run.start()
        run.wait_for(32)
        workers = run.workers()
        assert len(workers) == 2
        until(lambda: kept() >= 16, "the driver to take in what its workers have done")
        run.signal(signal.SIGTERM)
        until(lambda: "stopped" in (tmp_path / "out.zarr.unfinished/status.json").read_text(), "it to stop")
        run.allow(float("inf"))
        assert run.end().code == 75
        assert not any(worker.is_running() for worker in workers)
        begun, on_record = run.count(), kept()
        assert on_record >= 16
        # Another engine may go on.
        run.whole("--set", 'engine={"memory_limit": "2GB", "threads": 1, "kind": "threads"}')
        assert run.count() <= sum(needed.values()) + begun - on_record
    assert bits(output) == expected


@pytest.mark.slow
@pytest.mark.parametrize("saving", [True, False], ids=["while it saves", "while it waits for a partition"])
def test_a_second_signal_ends_it_at_once(saving, data, undisturbed, tmp_path):
    engine = {"checkpoint_minutes": 60}
    config = write_config(tmp_path / "run.yaml", data, tmp_path / "out.zarr", model=MODEL, engine=engine)
    with watched(tmp_path / "watched", config) as run:
        # The first sweep is put on record when it is done; then comes what is saved on a stop.
        run.allow(80)
        run.allow(1 if saving else float("inf"), RECORDS)
        run.start()
        run.wait_for(82)
        run.signal(signal.SIGINT)
        run.wait_for(2, RECORDS)
        run.signal(signal.SIGINT)
        assert run.end().code == 130
        assert recorded(tmp_path / "out.zarr.unfinished")[1] == {(0, 60)}
        run.allow(float("inf"))
        run.allow(float("inf"), RECORDS)
        run.whole()
    assert bits(tmp_path / "out.zarr") == undisturbed[0]


# ---------------------------------------------------------------- no space left


@contextmanager
def small_disk(folder: Path):
    """Mount a file system of 4 MB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount on this machine")
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small file system: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take all the space that is left."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    os.write(file, bytes(size))
    finally:
        os.close(file)
    assert shutil.disk_usage(path.parent).free == 0


def assert_records_are_whole(unfinished: Path, at_least: int) -> None:
    paths = list((unfinished / "checkpoint").iterdir())
    assert len(paths) >= at_least
    for path in paths:
        assert path.suffix == ".npz"
        assert {"signature", "partial", "seconds"} <= set(read_record(path))


@pytest.mark.slow
def test_a_full_disk_while_a_checkpoint_or_the_result_is_written(data, undisturbed, tmp_path):
    expected, _ = undisturbed
    with small_disk(tmp_path / "small") as small:
        output, ballast, unfinished = small / "out.zarr", small / "ballast", small / "out.zarr.unfinished"
        config = write_config(tmp_path / "run.yaml", data, output, model=MODEL)
        with watched(tmp_path / "watched", config) as run:
            run.allow(80)
            run.start()
            run.wait_for(82)
            fill(ballast)
            run.allow(float("inf"))
            line = run.end().line
            assert f"{unfinished}/checkpoint: no space left for a checkpoint" in line
            assert "free some space and run the same command again" in line
            assert_records_are_whole(unfinished, 2)
            ballast.unlink()

            # In the last sweep tasks write scores, and here no checkpoint comes before it ends.
            run.allow(run.count() + 120)
            run.start("--set", "engine.checkpoint_minutes=60")
            until(lambda: any(line.startswith("Projection") for line in run.lines()), "the sweep for scores")
            fill(ballast)
            run.allow(float("inf"))
            line = run.end().line
            assert "no space left for the output" in line
            assert str(unfinished) in line
            assert "free some space and run the same command again" in line
            assert_records_are_whole(unfinished, 3)
            assert not output.exists()
            ballast.unlink()

            run.whole()
        assert bits(output) == expected
        assert [path.name for path in small.iterdir()] == ["out.zarr"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["project", "denoise"])
def test_a_full_disk_is_one_line_for_commands_that_apply_a_model(data, tmp_path, command):
    assert streampca("pca", data, "-k", 30, "--quiet", "--out", "fit.zarr", cwd=tmp_path).returncode == 0
    with small_disk(tmp_path / "small") as small:
        # Enough for some of the output.
        for space in (1 << 16, 3 << 17):
            fill(small / "ballast")
            os.truncate(small / "ballast", (small / "ballast").stat().st_size - space)
            ended = streampca(command, "fit.zarr", data, "--quiet", "--out", small / "out.zarr", cwd=tmp_path)
            assert ended.returncode == 2
            assert re.fullmatch(r"streampca: .*no space left for .* run the same command again\n", ended.stderr)
        (small / "ballast").unlink()
        assert (
            streampca(command, "fit.zarr", data, "--quiet", "--out", small / "out.zarr", cwd=tmp_path).returncode == 0
        )


# ---------------------------------------------------------------- object stores


@pytest.mark.slow
def test_from_one_bucket_to_another_killed_at_work_and_while_it_uploads(s3, data, undisturbed, tmp_path):
    expected, needed = undisturbed
    source, output, work = s3.url("kills/in/x.zarr"), s3.url("kills/out.pca.zarr"), tmp_path / "work"
    copied(data, source)
    work.mkdir()
    config = write_config(tmp_path / "run.yaml", source, output, model=MODEL, output={"work": str(work)})

    with watched(tmp_path / "refused", config, environment={"AWS_SECRET_ACCESS_KEY": "not-the-secret"}) as refused:
        refused.start()
        line = refused.end().line
        assert "the secret does not belong to the access key; check AWS_SECRET_ACCESS_KEY" in line
        assert refused.count() == 0
    assert not any(work.iterdir())

    with watched(tmp_path / "watched", config) as run:
        run.allow(80)
        run.start()
        run.wait_for(82)
        until(lambda: recorded(work / "out.pca.zarr.unfinished").get(2), "records of the second sweep")
        run.kill("driver", np.random.default_rng(0))

        run.allow(float("inf"))
        run.allow(5, FILES)
        run.start()
        run.wait_for(6, FILES)
        run.kill("driver", np.random.default_rng(0))
        done = run.count()
        assert remote.root_at(output) is None, "what is not whole cannot be opened"
        assert remote._listing(remote._connect(output, 60, 30))

        run.allow(float("inf"), FILES)
        run.whole()
        assert run.count() == done, "only the upload was done again"
        assert_little_was_done_twice(run, needed, 2, 60, each=16)
        again = run.whole("--only-resume")
        assert "exists already, with the same options and data; nothing to do" in again.err
        assert run.count() == done
    assert not any(work.iterdir())
    assert not (tmp_path / "out.pca.zarr").exists()
    names = set(remote._listing(remote._connect(output, 60, 30)))
    assert remote.UNFINISHED not in names
    result = load(output)
    for name in ("components", "scores", "explained_variance", "mean"):
        assert result[name].values.tobytes() == expected[name], name
    assert json.loads(result.attrs["run"])["attempts"] == 2, "of those that fitted"
