"""Every command that fits, applies or converts, killed with SIGKILL at file operations and run again: same bits.

`STREAMPCA_KILL_STEP=1` kills each command at every one of its operations, and at twenty points of a larger case. By
default it is one operation in forty, each command at other ones, and two points.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from genotype_helpers import random_calls, write_bed
from kill_points import killed_anywhere

from streampca.cli import cli
from streampca.demos.simulate_faces import simulate_faces
from streampca.results.kind import kind_names, kind_of

STEP = int(os.environ.get("STREAMPCA_KILL_STEP", "40"))
LARGER = 20 if STEP == 1 else 2
MODELS = {
    "pca": ["pca", "x.zarr", "-k", "3"],
    "bed": ["pca", "study.bed", "-k", "3"],
    "ppca": ["ppca", "missing.zarr", "-k", "2", "--max-iter", "2"],
    "factor_analysis": ["factor_analysis", "missing.zarr", "-k", "2", "--max-iter", "2"],
    "kpca": ["kpca", "x.zarr", "-k", "3", "--n-landmarks", "20"],
    "pcr": ["pcr", "x.zarr", "-k", "3", "--cv", "2", "--target", "traits.tsv:height"],
    "mixture": ["mixture", "x.zarr", "--n-clusters", "2", "-k", "2", "--max-iter", "2"],
    "dual": ["dual", "x.zarr", "-k", "2"],
}
APPLIED = {
    "project": ["project", "pca.zarr", "x.zarr"],
    "impute": ["impute", "ppca.zarr", "missing.zarr"],
    "denoise": ["denoise", "pca.zarr", "x.zarr"],
    "predict": ["predict", "pcr.zarr", "x.zarr"],
}
CONVERTED = {"convert": ["convert", "study.bed"], "images": ["convert", "faces"]}
COMMANDS = {name: words for name, words in MODELS.items() if kind_of(words[0]).fit} | APPLIED | CONVERTED


def write_inputs(folder: Path, n: int, chunk: int) -> Path:
    """Write data, and a result of each kind that is applied."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 4)) @ rng.standard_normal((4, 16)) + 0.5 * rng.standard_normal((n, 16))
    zarr.create_array(folder / "x.zarr", data=x.astype("f4"), chunks=(chunk, 16))
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    zarr.create_array(folder / "missing.zarr", data=holes.astype("f4"), chunks=(chunk, 16))
    write_bed(folder / "study", random_calls(40, n, seed=1))
    simulate_faces(folder / "faces", 2, 5, size=8)
    (folder / "faces/person-001/03.png").write_text("damaged")
    heights = x[:, 0] + rng.standard_normal(n)
    (folder / "traits.tsv").write_text("id\theight\n" + "".join(f"{i}\t{y:.6g}\n" for i, y in enumerate(heights)))
    for kind in ("pca", "ppca", "pcr"):
        words = [*placed(MODELS[kind], folder), "--out", str(folder / f"{kind}.zarr"), "--quiet"]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    return folder


def placed(words: list[str], folder: Path) -> list[str]:
    """Return a command whose inputs are in a folder."""
    there = {path.name for path in folder.iterdir()}
    return [str(folder / word) if word.partition(":")[0] in there else word for word in words]


def case(name: str, inputs: Path, **more: int) -> dict:
    """Return a command and its points, as `killed_anywhere` takes them."""
    if name in CONVERTED:
        return {"arguments": [*placed(COMMANDS[name], inputs), "out.zarr", "--quiet"], **more}
    out = "out.tsv" if name == "predict" else "out.zarr"
    words = [*placed(COMMANDS[name], inputs), "--out", out, "--memory", "2GB", "--threads", "2", "--quiet"]
    return {"arguments": words, **more}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("small"), 300, 150)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("large"), 2000, 200)


def test_every_command_is_killed_here():
    assert {words[0] for words in COMMANDS.values()} == {
        *(name for name in kind_names() if kind_of(name).fit), "project", "impute", "denoise", "predict",
        "convert",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_each_file_operation(name, small, tmp_path):
    first = list(COMMANDS).index(name) % STEP
    found = killed_anywhere({name: case(name, small, step=STEP, first=first)}, tmp_path / "k")
    count, *wrong = found[name]
    assert int(count.split()[1]) >= max(1, 30 // STEP)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_seeded_points_of_a_larger_case(name, large, tmp_path):
    seed = list(COMMANDS).index(name)
    count, *wrong = killed_anywhere({name: case(name, large, seeded=LARGER, seed=seed)}, tmp_path / "k")[name]
    assert count.startswith(f"points {LARGER} of ")
    assert wrong == []
