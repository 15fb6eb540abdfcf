"""Runs from one configuration: begun, gone on with, refused, summed up; the configurations that we ship."""

from __future__ import annotations

import errno
import json
import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import xarray
import zarr
from genotype_helpers import random_calls, write_bed
from killing import PROCESSES, bits, write_config

from streampca import __version__
from streampca.errors import InputError, Stopped
from streampca.progress import Step
from streampca.results.store import load
from streampca.run.config import load as load_config
from streampca.run.driver import run as run_task
from streampca.run.fit import FitTask
from streampca.run.work_directory import WorkDirectory, folder_of, status
from streampca.sweep.checkpoint import Checkpoint, read_record
from streampca.sweep.matrix import Defects
from streampca.sweep.merge_tree import Nodes, Partial, halves_of
from streampca.sweep.sweep import _compute_on

CONFIGS = Path(__file__).parents[2] / "configs"

pytestmark = pytest.mark.usefixtures("several_partitions")


def made_up(n=2000, d=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 6)) @ rng.standard_normal((6, d)) + 0.5 * rng.standard_normal((n, d))


def stored(path: Path, values: np.ndarray, chunks=(150, 30)) -> Path:
    zarr.create_array(path, shape=values.shape, chunks=chunks, dtype="f4", overwrite=True)[...] = values
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return stored(tmp_path / "x.zarr", made_up())


@pytest.fixture
def config(tmp_path: Path, data: Path) -> Path:
    """Write one of four sweeps of 14 partitions."""
    engine = {"checkpoint_minutes": 60}
    return write_config(
        tmp_path / "run.yaml", data, tmp_path / "out.pca.zarr", model={"solver": "krylov"}, engine=engine
    )


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.pca.zarr"


def run(config, **options):
    return run_task(FitTask(config), **options)


def stop_at(number: int):
    """Return a progress that stops a run at its step of this number, counted from 1."""
    steps = iter(range(number - 1))

    def progress(step: Step) -> None:
        if step.sweep and next(steps, None) is None:
            raise Stopped("enough")

    return progress


def stopped(config: Path, *settings: str, at: int = 25) -> None:
    with pytest.raises(Stopped):
        run(load_config(config, settings), progress=stop_at(at))


def summary(result: Path) -> dict:
    return json.loads(zarr.open_group(result, mode="r").attrs["run"])


# ---------------------------------------------------------------- one run


def test_a_run_sums_itself_up(config, output, tmp_path, here):
    code, out, err = here("run", config)
    assert code == 0, err
    assert f"result: {output}" in out
    assert "attempt 1" in err
    assert not folder_of(output).exists()
    found = summary(output)
    assert found["attempts"] == 1
    assert (found["replayed_sweeps"], found["resumed_partitions"]) == (0, 0)
    assert found["streampca"] == __version__
    assert found["engine"] == "threads"
    assert found["config"]["model"]["n_components"] == 4
    assert found["config"]["data"]["path"] == str(tmp_path / "x.zarr")
    assert {"opening", "fitting", "starting workers"} <= set(found["phase_seconds"])
    assert all(seconds >= 0 for seconds in found["phase_seconds"].values())
    assert found["begun"] <= found["finished"]
    assert 0 <= found["sweep_seconds"] <= found["phase_seconds"]["fitting"]
    attributes = load(output).attrs
    assert len(json.loads(attributes["sweep_seconds"])) == attributes["n_sweeps"] > 1
    code, out, _ = here("status", output, "--json")
    assert code == 0
    assert json.loads(out)["state"] == "finished"
    assert json.loads(out)["id"] == found["id"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out.pca.zarr"]


def test_what_is_printed_and_logged_for_programs_is_json(config, output, here):
    code, out, err = here("run", config, "--json", "--log-json", "--set", "model.n_components=3")
    assert code == 0, err
    printed = json.loads(out)
    assert printed["result"] == str(output)
    assert len(printed["explained_variance"]) == 3
    assert summary(output)["config"]["model"]["n_components"] == 3
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    sweeps = [line for line in lines if "sweep" in line]
    assert {line["sweep"] for line in sweeps} == set(range(1, printed["n_sweeps"] + 1))
    assert all(line["done"] == line["total"] for line in sweeps)
    assert here("run", config, "--json", "--quiet", "--set", "model.n_components=3")[1:] == (out, "")


def test_a_plan_leaves_nothing(config, output, here):
    code, out, err = here("run", config, "--plan")
    assert code == 0, err
    assert out
    assert not output.exists()
    assert not folder_of(output).exists()


# ---------------------------------------------------------------- going on, or not


def test_gone_on_with_after_a_stop_at_any_step(config, output, tmp_path):
    run(load_config(config, [f"output.path={tmp_path / 'whole.zarr'}"]))
    expected = bits(tmp_path / "whole.zarr")
    attempts = 0
    while not output.exists():
        attempts += 1
        assert attempts < 200, "it does not get on"
        with suppress(Stopped):
            run(load_config(config), progress=stop_at(9))
            break
        found = status(output) or {}
        assert (found.get("state"), found.get("reason")) == ("stopped", "enough")
    assert summary(output)["attempts"] == attempts > 5
    assert bits(output) == expected


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.n_components=5", "model.n_components was 4, is 5"),
        ("model.random_state=1", "model.random_state was 0, is 1"),
        ("model.tol=1e-5", "model.tol was 0.001, is 1e-05"),
        ("model.scale=unit", "model.scale was auto, is unit"),
        ("engine.memory_limit=3GB", "engine.memory_limit was 2GB, is 3GB"),
        ("data.path=other.zarr", "data.path was "),
        ("output.export=tsv", "output.export was null, is tsv"),
    ],
)
def test_a_changed_configuration_is_refused_by_name(setting, said, config, output, tmp_path, here):
    stored(tmp_path / "other.zarr", made_up(seed=1))
    stopped(config)
    before = {path.name: path.read_bytes() for path in (folder_of(output) / "checkpoint").iterdir()}
    code, _, err = here("run", config, "--quiet", "--set", setting)
    assert code == 2
    assert err.startswith(f"streampca: {folder_of(output)}: holds unfinished work of other options: ")
    assert said in err
    assert "undo the change to resume, or add --fresh to start over" in err
    assert err.count("\n") == 1
    after = {path.name: path.read_bytes() for path in (folder_of(output) / "checkpoint").iterdir()}
    assert after == before
    code, _, err = here("run", config)
    assert code == 0, err
    assert summary(output)["attempts"] == 2


def test_changed_data_are_refused(config, data, output, here):
    stopped(config)
    stored(data, made_up(seed=1))
    code, _, err = here("run", config, "--quiet")
    assert code == 2
    assert "the data have changed" in err
    assert (folder_of(output) / "checkpoint").is_dir()


def test_another_version_of_the_program_is_refused(config, monkeypatch, here):
    stopped(config)
    monkeypatch.setattr("streampca.run.driver.__version__", "99.0")
    code, _, err = here("run", config, "--quiet")
    assert code == 2
    assert f"streampca was {__version__}, is 99.0" in err


@pytest.mark.parametrize("setting", ["engine.threads=1", "engine.checkpoint_minutes=3", "output.overwrite=true"])
def test_what_does_not_change_the_result_may_change(setting, config, output, here):
    stopped(config)
    code, _, err = here("run", config, "--set", setting)
    assert code == 0, err
    assert summary(output)["attempts"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("tol", ["1e-3", "1e-6"])
def test_the_engine_may_change(tol, config, output, tmp_path, begun):
    run(load_config(config, [f"output.path={tmp_path / 'whole.zarr'}", f"model.tol={tol}"]))
    needed = len(begun)
    stopped(config, f"model.tol={tol}")
    done = len(begun) - needed
    run(load_config(config, [f"engine={json.dumps({'memory_limit': '2GB'} | PROCESSES)}", f"model.tol={tol}"]))
    assert len(begun) - needed == done, "the rest was done elsewhere"
    assert bits(output) == bits(tmp_path / "whole.zarr")
    found = summary(output)
    assert (found["engine"], found["attempts"]) == ("processes", 2)
    assert found["replayed_sweeps"] == 1
    assert found["resumed_partitions"] > 0
    assert found["worker_peak_bytes"] > 1e7


def test_a_run_writes_a_report_with_the_table_and_refuses_before_it_reads(config, output, tmp_path, begun, here):
    page, table = tmp_path / "page.html", tmp_path / "pops.tsv"
    asked = ("run", config, "--set", f"output.report={page}", "--set", f"output.labels={table}")
    code, _, err = here(*asked)
    assert code == 2
    assert str(table) in err
    table.write_text("id\tgroup\n" + "".join(f"{i}\tteam{i % 3}\n" for i in range(2000)))
    page.write_text("mine")
    code, _, err = here(*asked)
    assert code == 2
    assert str(page) in err
    assert page.read_text() == "mine"
    assert begun == []
    page.unlink()
    code, _, err = here(*asked)
    assert code == 0, err
    assert "team2" in page.read_text()
    assert output.exists()


def test_resume_goes_on_and_never_begins(config, output, begun, here):
    code, _, err = here("run", config, "--only-resume", "--quiet")
    assert code == 2
    assert "no checkpoint to resume; remove --only-resume to start" in err
    assert not folder_of(output).exists()
    assert begun == []
    stopped(config)
    code, _, err = here("run", config, "--only-resume")
    assert code == 0, err
    assert summary(output)["attempts"] == 2
    begun.clear()
    # Of a whole result there is nothing left to do, whether it may be overwritten or not.
    for setting in ("false", "true"):
        code, _, err = here("run", config, "--only-resume", "--set", f"output.overwrite={setting}")
        assert code == 0, err
        assert "exists already, with the same options and data; nothing to do" in err
    assert begun == []
    assert not folder_of(output).exists()


def test_a_whole_result_is_left_alone(config, data, output, begun, here):
    assert here("run", config)[0] == 0
    files = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    begun.clear()
    code, out, err = here("run", config)
    assert code == 0
    assert "exists already, with the same options and data; nothing to do" in err
    assert f"result: {output}" in out
    for setting in ("model.n_components=2", "engine.memory_limit=1GB"):
        code, _, err = here("run", config, "--quiet", "--set", setting)
        assert code == 2
        assert f"{output}: exists already; choose another name or add --overwrite" in err
        assert not folder_of(output).exists()
    stored(data, made_up(seed=1))
    code, _, err = here("run", config, "--quiet")
    assert code == 2
    assert "exists already" in err
    assert begun == []
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == files


def test_overwriting(config, output, here):
    assert here("run", config)[0] == 0
    first = summary(output)["id"]
    for asked in (["--overwrite"], ["--set", "output.overwrite=true"]):
        code, _, err = here("run", config, *asked, "--set", "model.n_components=2")
        assert code == 0, err
    assert summary(output)["id"] != first
    assert load(output).sizes["component"] == 2
    assert not folder_of(output).exists()


def test_nothing_of_others_is_overwritten(config, output, here):
    zarr.create_group(output)
    code, _, err = here("run", config, "--quiet", "--set", "output.overwrite=true")
    assert code == 2
    assert "was not written by streampca" in err
    assert not folder_of(output).exists()


@pytest.mark.parametrize(
    "wrong",
    ["data.path=nowhere.zarr", "data.sample_dims=what", "filter.maf=0.1", "model.solver=gram",
     "engine.memory_limit=1MB", "output.export=plink", "output.work=work"],
)  # fmt: skip
def test_what_is_refused_before_the_work_leaves_nothing(wrong, config, tmp_path, here):
    if wrong == "model.solver=gram":
        # Too large for the limit.
        stored(tmp_path / "x.zarr", made_up(40000, 4), chunks=(20000, 4))
        wrong = "engine.memory_limit=300MB\nmodel.solver=gram"
    before = {path.name for path in tmp_path.iterdir()}
    settings = [part for setting in wrong.split("\n") for part in ("--set", setting)]
    code, out, err = here("run", config, "--quiet", *settings)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_folder_that_is_not_there_is_said(config, tmp_path, here):
    code, _, err = here("run", config, "--quiet", "--set", f"output.path={tmp_path / 'no' / 'out.zarr'}")
    assert code == 2
    assert f"the directory {tmp_path / 'no'} does not exist; create it first" in err


def test_data_that_are_refused_within_a_sweep_leave_nothing(config, data, output, here):
    values = made_up()
    values[1900, 3] = np.nan
    stored(data, values)
    code, _, err = here("run", config, "--quiet", "--set", "model.missing=error", "--set", "model.solver=covariance",
                        "--set", "engine.checkpoint_minutes=60")  # fmt: skip
    assert code == 2
    assert "missing" in err
    assert not output.exists()


# ---------------------------------------------------------------- the end of a run


class Killed(BaseException):
    """Stands for a kill: nothing is tidied up."""


@contextmanager
def killed_at(name: str, call: int = 1):
    """Let a run end as if it was killed when it comes to something for the n-th time; its lock goes with it."""
    calls = iter(range(call - 1))
    original = resolve_name(name)

    def killed(*given, **options):
        if next(calls, None) is None:
            raise Killed
        return original(*given, **options)

    def dead(*_, **__):
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(WorkDirectory, "remove", dead)
        patched.setattr(WorkDirectory, "tell", lambda *_, **__: None)
        patched.setattr(name, killed)
        with pytest.raises(Killed):  # noqa: PT012
            yield


POINTS = {
    "the arrays are written": ("streampca.results.write._write_arrays", 1),
    "it sums itself up": ("streampca.run.driver.add_attributes", 1),
    "it exports": ("streampca.run.fit.write_export", 1),
    "it takes its place": ("streampca.run.driver.put_in_place", 1),
    "it is renamed": ("streampca.results.output.os.rename", 1),
    "it tidies up": ("streampca.run.work_directory.WorkDirectory.remove", 1),
}


@pytest.mark.parametrize(
    ("point", "overwrite"),
    [*((point, way) for point in POINTS for way in (False, True)), ("the old one is away", True)],
)
def test_killed_as(point, overwrite, config, output, begun):
    settings = ["output.export=tsv", f"output.overwrite={json.dumps(overwrite)}"]
    if overwrite:
        run(load_config(config, [*settings, "model.n_components=2"]))
    begun.clear()
    # Of two renames, the first puts away what is to be overwritten.
    name, call = POINTS.get(point, ("streampca.results.output.os.rename", 2))
    with killed_at(name, call):
        run(load_config(config, settings))
    done = len(begun)
    assert folder_of(output).exists()
    assert run(load_config(config, settings)) == output
    assert len(begun) == done, "nothing was swept again"
    assert not folder_of(output).exists()
    assert load(output).sizes["component"] == 4
    assert len(list(output.parent.glob("out*"))) == 4, "the result and three texts"


def test_a_result_in_its_place_is_whole_even_if_the_data_went(config, data, output):
    with killed_at("streampca.run.work_directory.WorkDirectory.remove"):
        run(load_config(config))
    assert folder_of(output).exists()
    data.rename(data.with_name("gone.zarr"))
    assert run(load_config(config)) == output
    assert not folder_of(output).exists()


NO_SPACE = {
    "a checkpoint": "streampca.sweep.checkpoint.np.savez",
    "a checkpoint, flushed": "streampca.sweep.checkpoint.os.fsync",
    "scores": "streampca.results.write.BlockWriter.__call__",
    "components": "streampca.results.write._write_arrays",
    "metadata": "streampca.run.driver.add_attributes",
    "texts": "streampca.run.fit.write_export",
    "what was asked": "streampca.run.work_directory.WorkDirectory.begin",
}


@pytest.mark.parametrize(
    ("what", "number"),
    [(what, errno.ENOSPC) for what in NO_SPACE] + [("a checkpoint", errno.EDQUOT), ("components", errno.EDQUOT)],
)
def test_no_space_left(what, number, config, output, here):
    settings = ["--set", "output.export=tsv", "--quiet"]
    assert here("run", config, *settings, "--set", f"output.path={output.with_name('whole.zarr')}")[0] == 0
    calls = iter(range(2 if what.startswith("a checkpoint") else 0))

    def full(*given, **options):
        if next(calls, None) is None:
            raise OSError(number, os.strerror(number))
        return original(*given, **options)

    original = resolve_name(NO_SPACE[what])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NO_SPACE[what], full)
        code, out, err = here("run", config, *settings)
    assert (code, out) == (2, ""), err
    assert err.count("\n") == 1
    assert str(folder_of(output)) in err
    assert "no space left for a checkpoint" in err if what.startswith("a ch") else "no space left for the output" in err
    assert "free some space and run the same command again" in err
    assert not output.exists()
    records = list((folder_of(output) / "checkpoint").glob("*"))
    assert len(records) == {"a": 2, "s": 3, "w": 0}.get(what[0], 4)
    assert all("partial" in read_record(path) for path in records)
    code, _, err = here("run", config, *settings)
    assert code == 0, err
    assert bits(output) == bits(output.with_name("whole.zarr"))
    assert not folder_of(output).exists()


# ---------------------------------------------------------------- every kind of model, and the configurations we ship


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    calls = random_calls(90, 1500, seed=3, missing=0.01)
    # Neighbours in linkage, for pruning.
    calls[:, 1::10] = calls[:, ::10]
    chromosomes = ["1"] * 800 + ["2"] * 700
    return write_bed(tmp_path / "study", calls, chromosome=chromosomes)


LATENT = {"kind": "ppca", "n_components": 3}
KERNEL = {"kind": "kpca", "n_components": 3, "n_landmarks": 50, "landmarks": "kmeans"}
SAME = {
    "pca": (["pca", "-k", 3], {"n_components": 3}, {}, "x.zarr"),
    "factor analysis": (["factor_analysis", "-k", 3], LATENT | {"kind": "factor_analysis"}, {}, "gaps.zarr"),
    "ppca": (["ppca", "-k", 3], LATENT, {}, "gaps.zarr"),
    "kpca": (["kpca", "-k", 3, "--n-landmarks", 50, "--landmarks", "kmeans"], KERNEL, {}, "x.zarr"),
    "genotypes": (
        ["pca", "-k", 3, "--ld-prune", 0.5, "--maf", 0.05, "--outliers", "remove"],
        {"n_components": 3}, {"ld_prune": 0.5, "maf": 0.05, "outliers": "remove"}, "study.bed",
    ),
    "ppca of genotypes": (["ppca", "-k", 3], LATENT, {}, "study.bed"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
@pytest.mark.usefixtures("data", "bed")
def test_a_run_stopped_and_gone_on_with_finds_what_the_command_finds(case, tmp_path, here):
    command, model, chosen, name = SAME[case]
    gaps = made_up()
    gaps[np.random.default_rng(1).random(gaps.shape) < 0.1] = np.nan
    stored(tmp_path / "gaps.zarr", gaps)
    code, _, err = here(command[0], name, *command[1:], "--memory", "2GB", "--out", "alone.zarr", "--quiet")
    assert code == 0, err
    config = write_config(tmp_path / "run.yaml", name, "out.zarr", model=model, filter=chosen)
    stopped(config, at=10)
    code, _, err = here("run", config)
    assert code == 0, err
    assert "attempt 2" in err
    assert bits(tmp_path / "out.zarr") == bits(tmp_path / "alone.zarr")
    if case == "genotypes":
        assert "by pruning" in load(tmp_path / "out.zarr").attrs["notes"]


def settings(**pairs):
    return [part for key, value in pairs.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


def faces(folder: Path) -> Path:
    pictures = made_up(120, 48).reshape(120, 8, 6).astype("f4")
    xarray.Dataset({"images": (("sample", "y", "x"), pictures)}).to_zarr(
        folder / "faces.zarr", zarr_format=3, consolidated=False
    )
    return folder / "faces.zarr" / "images"


@pytest.mark.slow
def test_eigenfaces(tmp_path, here):
    code, _, err = here(
        "run", CONFIGS / "eigenfaces.yaml", *settings(data__path=faces(tmp_path), engine__dashboard="false")
    )
    assert code == 0, err
    assert "2 workers x 1 thread" in err
    result = load(tmp_path / "faces.pca.zarr")
    assert result["components"].dims == ("component", "y", "x")
    assert result["explained_variance_ratio"].values.sum() >= 0.9
    assert result["explained_variance_ratio"].values[:-1].sum() < 0.9


def test_genotypes_local(bed, tmp_path, here):
    given = settings(data__path=bed, output__path=tmp_path / "study.pca.zarr")
    assert here("run", CONFIGS / "genotypes-local.yaml", *given, "--plan")[0] == 0
    code, _, err = here("run", CONFIGS / "genotypes-local.yaml", *given)
    assert code == 0, err
    result = load(tmp_path / "study.pca.zarr")
    assert result.sizes["component"] == 20
    assert result["outlier"].dtype == bool
    assert "by pruning" in result.attrs["notes"]
    for suffix in (".eigenvec", ".eigenval", ".eigenvec.var"):
        assert (tmp_path / f"study{suffix}").stat().st_size > 0
    assert len((tmp_path / "study.eigenvec").read_text().splitlines()) == 91


def test_genotypes_of_a_biobank(bed, tmp_path, here):
    assert here("prune", bed, "--r2", 0.5)[0] == 0
    kept = (tmp_path / "study.prune.in").read_text().split()
    given = settings(
        data__path=bed, filter__extract=tmp_path / "study.prune.in", output__path=tmp_path / "out.zarr",
        engine=json.dumps({"kind": "threads", "memory_limit": "2GB"}),
    )  # fmt: skip
    code, _, err = here("run", CONFIGS / "genotypes-slurm.yaml", *given)
    assert code == 0, err
    result = load(tmp_path / "out.zarr")
    assert result.sizes["component"] == 40
    assert 0 < result.attrs["n_features"] <= len(kept) < 1500


def test_kernel(tmp_path, here):
    path = stored(tmp_path / "points.zarr", made_up(600, 5), chunks=(100, 5))
    given = settings(data__path=path, output__path=tmp_path / "points.kpca.zarr", model__n_landmarks=100)
    code, _, err = here("run", CONFIGS / "kernel.yaml", *given)
    assert code == 0, err
    result = load(tmp_path / "points.kpca.zarr")
    assert result.sizes["component"] == 10
    assert 0.5 < result.attrs["kept_trace"] <= 1
    assert "anchors" in result
    assert here("denoise", tmp_path / "points.kpca.zarr", path)[0] == 0


def test_netcdf_field(tmp_path, here):
    values = made_up(200, 35).reshape(200, 5, 7).astype("f4")
    field = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": np.arange(5.0), "lon": np.arange(7.0)})
    field.to_dataset(name="t2m").to_netcdf(tmp_path / "field.nc", engine="h5netcdf")
    code, _, err = here("run", CONFIGS / "netcdf-field.yaml")
    assert code == 0, err
    result = load(tmp_path / "field.pca.zarr")
    assert result["components"].dims == ("component", "lat", "lon")
    assert result["scores"].dims == ("time", "component")
    assert (result["scale"].values != 1).all()
    for name in ("scores", "loadings", "components"):
        assert (tmp_path / f"field.{name}.tsv").stat().st_size > 0


def test_ppca_missing(tmp_path, here):
    values = made_up(400, 20)
    values[np.random.default_rng(1).random(values.shape) < 0.2] = np.nan
    path = stored(tmp_path / "measured.zarr", values, chunks=(100, 20))
    code, _, err = here("run", CONFIGS / "ppca-missing.yaml")
    assert code == 0, err
    result = load(tmp_path / "measured.ppca.zarr")
    assert result.attrs["n_missing"] == int(np.isnan(values).sum())
    assert result.sizes["component"] == 10
    assert here("impute", tmp_path / "measured.ppca.zarr", path)[0] == 0
    code, _, err = here(
        "run", CONFIGS / "ppca-missing.yaml",
        *settings(model__kind="factor_analysis", output__path="factors.zarr", model__n_components=3),
    )  # fmt: skip
    assert code == 0, err
    assert load(tmp_path / "factors.zarr").attrs["kind"] == "factor_analysis"


def test_every_configuration_is_tried_here():
    assert {path.name for path in CONFIGS.iterdir()} == {
        "eigenfaces.yaml", "genotypes-local.yaml", "genotypes-slurm.yaml", "kernel.yaml", "netcdf-field.yaml",
        "ppca-missing.yaml",
    }  # fmt: skip


# ---------------------------------------------------------------- parts


def test_status_says_at_once_that_a_sweep_has_begun(tmp_path):
    (tmp_path / "out.zarr.unfinished").mkdir()
    place = WorkDirectory(tmp_path / "out.zarr.unfinished")
    place.progress(Step(1, "krylov", 60, 60, 1.0))
    place.progress(Step(2, "scores", 0, 60, 0.0))
    found = status(tmp_path / "out.zarr")
    assert (found["sweep"], found["label"], found["done"]) == (2, "scores", 0)


class Told:
    """A future whose value is known."""

    status = "finished"

    def __init__(self, key, value):
        self.key, self.value = key, value

    def release(self):
        """Do nothing."""


class Cluster:
    """A client whose futures are done in any order that keeps parents behind their children."""

    def __init__(self, rng):
        self._rng = rng

    def compute(self, tasks):
        return [Told(span, Partial([*range(*span)], (), Defects(), 0)) for span in tasks]

    def _gather(self):
        """Stand for what `sync` is asked to call."""

    def sync(self, _, futures, callback_timeout=None):  # noqa: ARG002
        return [future.value for future in futures]

    def completed(self, futures):
        waiting = {future.key: future for future in futures}
        while waiting:
            ready = [s for s in waiting if s[1] - s[0] == 1 or not any(half in waiting for half in halves_of(s))]
            yield waiting.pop(ready[int(self._rng.integers(len(ready)))])


def test_nodes_of_a_cluster_are_saved_in_any_order_they_come(tmp_path, monkeypatch):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        cluster, count = Cluster(rng), int(rng.integers(1, 70))
        monkeypatch.setattr("distributed.as_completed", cluster.completed)
        there = {(a, a + 1): Partial([a], (), Defects(), 0) for a in range(count) if rng.random() < 0.2}
        records = Checkpoint(tmp_path / str(seed), interval=0.0).sweep({"seed": seed})
        nodes = Nodes(count, lambda a, b: Partial(a.value + b.value, (), Defects(), 0), there, records)
        _compute_on(cluster, {span: span for span in nodes.to_do}, nodes, lambda: None)
        assert nodes.live[0, count].value == [*range(count)]
        nodes.save()
        assert list(records.read(lambda *_: True)) == [(0, count)]


# ---------------------------------------------------------------- what is not ours, and what is left over


def test_files_that_a_user_has_in_the_folder_stay(config, output, here):
    folder_of(output).mkdir()
    (folder_of(output) / "mine.txt").write_text("precious")
    assert here("run", config)[0] == 0
    assert [path.name for path in folder_of(output).iterdir()] == ["mine.txt"]
    assert summary(output)["attempts"] == 1


def test_files_that_a_user_has_in_the_folder_for_work_stay(config, tmp_path, here, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.txt").write_text("precious")
    code, _, err = here(
        "run", config, "--set", "output.path=s3://bucket/r.zarr", "--set", f"output.work={tmp_path / 'work'}"
    )
    assert code == 2, err
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("path", [".", "/", "ftp://host/x.zarr", "file:///tmp/x.zarr"])
def test_outputs_that_are_none_are_refused_in_a_line(path, config, tmp_path, here):
    code, _, err = here("run", config, "--set", f"output.path={path}", *settings_if_url(path, tmp_path))
    assert code == 2
    assert len(err.strip().splitlines()) == 1


def settings_if_url(path, tmp_path):
    return ("--set", f"output.work={tmp_path}") if "://" in path else ()


def test_records_without_a_run_are_not_taken_for_ours(bed, tmp_path, here):
    config = write_config(tmp_path / "g.yaml", bed, tmp_path / "g.zarr", filter={"ld_prune": 0.9})
    stopped(config, at=2)
    folder = folder_of(tmp_path / "g.zarr")
    assert any(path.name.startswith("pruned") for path in (folder / "checkpoint").iterdir())
    (folder / "run.json").unlink()
    assert here("run", config, "--set", "filter.ld_prune=0.02")[0] == 0
    expected = write_config(tmp_path / "h.yaml", bed, tmp_path / "h.zarr", filter={"ld_prune": 0.02})
    assert here("run", expected)[0] == 0
    assert bits(tmp_path / "g.zarr") == bits(tmp_path / "h.zarr")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"id": "x", "config": {}}', "no JSON"])
def test_a_damaged_run_json_begins_anew(text, config, output, here):
    stopped(config)
    (folder_of(output) / "run.json").write_text(text)
    code, _, err = here("run", config)
    assert code == 0, err
    assert summary(output)["attempts"] == 1


def test_what_an_error_advises_can_be_done(tmp_path, here):
    values = made_up()
    values[1900, 3] = np.nan
    config = write_config(tmp_path / "n.yaml", stored(tmp_path / "n.zarr", values), tmp_path / "out.zarr")
    # An error within the checkpoint interval leaves nothing; later, the next message names --fresh.
    for minutes, fresh in ((60, []), (1e-6, ["--fresh"])):
        given = ("run", config, "--overwrite", "--set", f"engine.checkpoint_minutes={minutes}")
        code, _, err = here(*given)
        assert code == 2
        assert "missing value" in err
        assert folder_of(tmp_path / "out.zarr").exists() == bool(fresh)
        if fresh:
            code, _, err = here(*given, "--set", "model.missing=mean")
            assert code == 2
            assert "model.missing was auto, is mean; undo the change to resume, or add --fresh to start over" in err
        code, _, err = here(*given, "--set", "model.missing=mean", *fresh)
        assert code == 0, err


def test_the_page_of_a_run_begins_with_the_column_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(40, 5))
    (tmp_path / "t.tsv").write_text("id\tpop\tsex\n" + "".join(f"{i}\t{i % 3}\t{i % 2}\n" for i in range(40)))
    output = {"report": "r.html", "labels": "t.tsv:pop"}
    config = write_config(tmp_path / "c.yaml", stored(tmp_path / "n.zarr", values), "out.zarr", output=output)
    with pytest.raises(InputError, match="has no column 'site'; it has pop, sex"):
        run(load_config(config, ["output.labels=t.tsv:site"]))
    run(load_config(config))
    assert '"colour":"pop"' in (tmp_path / "r.html").read_text().replace(": ", ":")


def test_plans_of_a_run_do_not_depend_on_what_is_loaded(config, output, monkeypatch):
    """A process that has grown meanwhile chooses the same solver and basis."""
    stopped(config)
    monkeypatch.setattr("psutil.Process.memory_info", lambda _: type("M", (), {"rss": 700_000_000}))
    run(load_config(config))
    assert summary(output)["replayed_sweeps"] > 0


def test_a_signal_when_all_is_done_changes_nothing(config, output, monkeypatch):
    remove = WorkDirectory.remove

    def told(self):
        os.kill(os.getpid(), signal.SIGTERM)
        remove(self)

    monkeypatch.setattr(WorkDirectory, "remove", told)
    run(load_config(config))
    assert not folder_of(output).exists()
    assert summary(output)["attempts"] == 1


def test_status_is_of_results_alone(data, here):
    code, _, err = here("status", data)
    assert code == 2
    assert "no result and no run for one" in err


def test_rows_are_on_disk_before_a_record_counts_on_them(config, monkeypatch):
    """The order of what is made safe: rows of scores, then the record."""
    order, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(
        "os.fsync", lambda number: (order.append(os.readlink(f"/proc/self/fd/{number}")), fsync(number))
    )
    monkeypatch.setattr("os.replace", lambda a, b: (order.append(str(b)), replace(a, b)))
    run(load_config(config, ["model.solver=covariance"]))
    chunks = [i for i, name in enumerate(order) if "/scores/c/" in name]
    last = max(i for i, name in enumerate(order) if name.endswith(".npz"))
    assert len(chunks) == 14
    assert max(chunks) < last
