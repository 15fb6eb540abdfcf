"""Metadata that is written in more than one file agrees."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from pages import ROOT

import streampca
from streampca.demos.simulate_genotypes import simulate_genotypes

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = ROOT / "scripts" / "workflows"


def test_the_conda_recipe_has_the_version_and_dependencies_of_the_project():
    recipe = yaml.safe_load((ROOT / "scripts" / "packaging" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == PROJECT["version"]
    wanted = {re.sub(r"^([\w-]+)", r"\1 ", dependency) for dependency in PROJECT["dependencies"]}
    assert set(recipe["requirements"]["run"]) - {"python >=3.11"} == wanted


def test_the_citation_has_the_version_of_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == streampca.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_extra_all_has_every_extra_for_users():
    extras = PROJECT["optional-dependencies"]
    listed = set(re.search(r"\[(.+)\]", extras["all"][0])[1].split(","))
    assert listed == set(extras) - {"all", "docs", "test", "bench", "lint", "audit"}


def test_every_file_that_the_container_copies_exists():
    text = (ROOT / "scripts" / "packaging" / "streampca.def").read_text()
    copied = re.search(r"%files\n(.*?)\n\n", text, re.S)[1]
    assert [line.split()[0] for line in copied.splitlines() if not (ROOT / line.split()[0]).exists()] == []


@pytest.mark.slow
def test_the_snakemake_rules_fit_export_and_report(tmp_path):
    snakemake = shutil.which("snakemake")
    if snakemake is None:
        pytest.skip("snakemake is not installed")
    simulate_genotypes(tmp_path / "study", n_samples=60, n_variants=300)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    config = ["--config", "study=study", "n_components=3"]
    subprocess.run(
        [snakemake, "--snakefile", str(WORKFLOWS / "Snakefile"), "--cores", "1", *config],
        cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}, check=True, timeout=250,
    )  # fmt: skip
    assert {"study.eigenvec", "study.eigenval", "study.eigenvec.var", "study.pca.html"} <= {
        file.name for file in tmp_path.iterdir()
    }


@pytest.mark.parametrize("name", ["Snakefile", "streampca.nf"])
def test_commands_of_workflows_have_flags_that_exist(name):
    from streampca.cli import cli

    text = (WORKFLOWS / name).read_text()
    lines = re.findall(r"streampca (pca|export|report) ([^\n\"]+)", text)
    assert {command for command, _ in lines} == {"pca", "export", "report"}
    for command, rest in lines:
        known = {flag for option in cli.get_command(None, command).params for flag in option.opts}
        assert set(re.findall(r"(?<!\S)(--?[a-z-]+)", rest)) <= known
