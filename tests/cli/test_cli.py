"""The command line: a few times as a user runs it, in a process of its own; else in this one, which takes no start."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import streampca


def run(*arguments: object, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streampca", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False, **options)


@pytest.fixture
def data(tmp_path):
    """A small store with three strong factors."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) @ (rng.normal(size=(3, 40)) * [[9], [5], [3]]) + rng.normal(size=(300, 40)) + 50
    zarr.create_array(tmp_path / "x.zarr", data=X.astype("f4"), chunks=(64, 40))
    np.save(tmp_path / "x.npy", X)
    return X.astype("f4").astype("f8")


def test_pca_writes_a_store_that_plain_xarray_opens(tmp_path, data):
    done = run("pca", "x.zarr", "-k", 3, "--out", "r.zarr", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "certificate" in done.stdout
    assert "result: r.zarr" in done.stdout
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = xr.open_zarr(tmp_path / "r.zarr")
        scores = result["scores"].values
    centred = data - data.mean(0)
    s, vt = np.linalg.svd(centred, full_matrices=False)[1:]
    assert result["scores"].dims == ("sample", "component")
    assert result["components"].dims == ("component", "feature")
    np.testing.assert_allclose(result["explained_variance"], s[:3] ** 2 / 299, rtol=1e-5)
    np.testing.assert_allclose(result["explained_variance_ratio"], s[:3] ** 2 / (s**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(np.abs(result["components"].values @ vt[:3].T), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(scores, centred @ result["components"].values.T, atol=1e-3)
    np.testing.assert_allclose(result["mean"], data.mean(0), rtol=1e-6)
    for name in (
        "source_fingerprint",
        "parameters",
        "versions",
        "n_sweeps",
        "bytes_read",
        "seconds",
        "peak_memory_bytes",
    ):
        assert result.attrs[name], name
    assert result.attrs["format_version"] == 1
    assert json.loads(result.attrs["parameters"])["random_state"] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.zarr", "x.npy", "x.zarr"]


@pytest.mark.usefixtures("data")
def test_json_says_what_the_table_says(tmp_path, here):
    _, out, err = here("pca", "x.npy", "-k", "0.9", "--json", "--quiet")
    said = json.loads(out)
    assert err == ""
    assert sum(said["explained_variance_ratio"]) > 0.9 > sum(said["explained_variance_ratio"][:-1])
    assert said["converged"] is True
    assert (tmp_path / said["result"]).name == "x.pca.zarr"
    again = json.loads(here("info", "x.pca.zarr", "--json")[1])
    assert again["explained_variance"] == said["explained_variance"]


def test_plan_reads_nothing_and_writes_nothing(tmp_path, here):
    array = zarr.create_array(tmp_path / "big.zarr", shape=(10**7, 10**4), chunks=(1000, 10**4), dtype="f4")
    assert array.nchunks_initialized == 0
    code, out, err = here("pca", "big.zarr", "-k", 20, "--plan", "--memory", "2GB")
    assert code == 0, err
    assert "solver" in out
    assert "400 GB" in out
    assert [p.name for p in tmp_path.iterdir()] == ["big.zarr"]
    plan = json.loads(here("pca", "big.zarr", "-k", 20, "--plan", "--json", "--memory", "2GB")[1])
    assert plan["peak_bytes"] <= 2e9


@pytest.mark.usefixtures("data")
def test_info_describes_data(here):
    _, out, _ = here("info", "x.zarr")
    assert "300 (sample)" in out
    assert "64 x 40" in out


@pytest.mark.usefixtures("data")
def test_overwrite_is_asked_for_and_spares_what_is_not_ours(tmp_path, here):
    assert here("pca", "x.zarr", "-k", 2, "--out", "r.zarr")[0] == 0
    code, _, err = here("pca", "x.zarr", "-k", 3, "--out", "r.zarr")
    assert code == 2
    assert "--overwrite" in err
    assert here("pca", "x.zarr", "-k", 3, "--out", "r.zarr", "--overwrite")[0] == 0
    assert streampca.load(tmp_path / "r.zarr").sizes["component"] == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keep").write_text("me")
    assert here("pca", "x.zarr", "--out", "mine", "--overwrite")[0] == 2
    assert (tmp_path / "mine" / "keep").read_text() == "me"


def test_help_and_import_do_not_load_heavy_parts(tmp_path):
    code = (
        "import sys, streampca, streampca.cli; sys.argv[1:] = ['--help']\n"
        "try: streampca.cli.main()\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy','dask','zarr','xarray','sklearn','pandas','matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_pca_command_does_not_load_scikit_learn(tmp_path, data):  # noqa: ARG001
    code = (
        "import sys, streampca.cli; sys.argv[1:] = ['pca', 'x.zarr', '--quiet']\n"
        "try: streampca.cli.main()\nexcept SystemExit: pass\n"
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_without_arguments_the_first_steps_are_shown(here):
    code, out, err = here()
    assert (code, err) == (0, "")
    assert "streampca demo" in out
    assert "streampca pca study.bed -k 20" in out


def test_help_lists_options_in_groups(here):
    _, out, _ = here("pca", "--help")
    titles = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Model:", "Data:", "Genotypes:", "Output:", "Run:"]
    assert out.index("Model:") < out.index("--tol") < out.index("Data:") < out.index("--variable") < out.index("--maf")
    assert out.index("Output:") < out.index("-o, --out") < out.index("Run:") < out.index("-q, --quiet")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("p", {"plain,pca", "plain,ppca", "plain,plot"}), ("pca --sol", {"plain,--solver"}),
     ("pca --solver k", {"plain,krylov"}), ("pca x", {"file,x"}), ("pca x.npy --keep x", {"file,x"}),
     ("plot --figure lo", {"plain,loadings"}), ("project x", {"file,x"})],
)  # fmt: skip
def test_commands_options_values_and_files_are_completed(typed, completed, monkeypatch, here):
    words = ["streampca", *typed.split()]
    for name, value in {"": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}.items():
        monkeypatch.setenv(name or "_STREAMPCA_COMPLETE", value)
    assert completed <= set(here()[1].splitlines())


def test_the_script_for_slurm_is_written_once(tmp_path, here):
    assert here("slurm-script", "-o", "submit.sh") == (0, "script: submit.sh\n", "")
    assert subprocess.run(["bash", "-n", tmp_path / "submit.sh"], check=False).returncode == 0
    assert "#SBATCH --requeue" in here("slurm-script")[1]
    assert here("slurm-script", "-o", "submit.sh")[0] == 2


def test_version():
    done = run("--version", cwd=Path.cwd())
    assert done.stdout == f"streampca, version {streampca.__version__}\n"


def test_netcdf_field_keeps_its_labels(tmp_path, here):
    rng = np.random.default_rng(0)
    field = xr.DataArray(
        rng.normal(size=(30, 5, 7)),
        dims=("time", "lat", "lon"),
        coords={"lat": np.linspace(-60, 60, 5), "lon": np.arange(7) * 10.0, "time": np.arange(30)},
        name="t2m",
    )
    field.to_netcdf(tmp_path / "f.nc", engine="h5netcdf")
    code, _, err = here("pca", "f.nc", "-k", 2, "--sample-dims", "time", "--out", "eof.zarr")
    assert code == 0, err
    result = xr.open_zarr(tmp_path / "eof.zarr")
    assert result["components"].dims == ("component", "lat", "lon")
    np.testing.assert_array_equal(result["lat"], field["lat"])
    assert result["scores"].dims == ("time", "component")
    flat = field.values.reshape(30, -1)
    s = np.linalg.svd(flat - flat.mean(0), compute_uv=False)
    np.testing.assert_allclose(result["explained_variance"], s[:2] ** 2 / 29, rtol=1e-8)


LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak_of(*arguments: object, cwd: Path) -> tuple[int, int]:
    """Exit code and peak bytes of a command; by a small launcher, for a child's peak starts at its parent's."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-m", "streampca", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=True)
    code, peak = map(int, done.stdout.split())
    return code, peak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "solver", "tall"),
    [("x.zarr", "auto", True), ("x.zarr", "krylov", True), ("x.zarr", "krylov", False), ("x.npy", "krylov", False)],
)
def test_peak_memory_stays_under_the_limit(tmp_path, name, solver, tall):
    rng = np.random.default_rng(0)
    shape, chunks = ((100_000, 1000), (5000, 1000)) if tall else ((4000, 25_000), (4000, 1250))
    if name == "x.zarr":
        array = zarr.create_array(tmp_path / name, shape=shape, chunks=chunks, dtype="f4")
    else:
        array = np.lib.format.open_memmap(tmp_path / name, mode="w+", dtype="f4", shape=shape)
    strip = rng.standard_normal(chunks, dtype="f4")
    for i in range(0, shape[0], chunks[0]):
        for j in range(0, shape[1], chunks[1]):
            array[i : i + chunks[0], j : j + chunks[1]] = strip * (1 + i + j)
    limit = ("--memory", "380MB", "--tol", "0.01")
    code, peak = peak_of("pca", name, "-k", 10, "--solver", solver, *limit, cwd=tmp_path)
    assert code == 0
    assert peak < 380e6


def test_demo_digits_draws_a_picture_and_a_page(tmp_path, here):
    code, out, err = here("demo", "digits")
    assert code == 0, err
    assert "21 of 64 components explain 90%" in out
    assert (tmp_path / "demo-output" / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert out.splitlines()[-1] == f"report: {Path('demo-output', 'digits.html')}"
    assert "scikit-learn&#39;s digits" in (tmp_path / "demo-output" / "digits.html").read_text()


@pytest.mark.slow
def test_demo_keeps_to_its_limit(tmp_path):
    done = run("demo", "--memory", "350MB", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = streampca.load(tmp_path / "demo-output" / "groups.pca.zarr")
    assert result.attrs["peak_memory_bytes"] < 350e6 < result.attrs["n_samples"] * result["mean"].size * 4
    assert sorted(p.name for p in (tmp_path / "demo-output").iterdir()) == [
        "groups.html",
        "groups.pca.zarr",
        "groups.png",
        "groups.tsv",
        "groups.zarr",
    ]
