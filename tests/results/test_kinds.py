"""Every kind of model is complete: command, configuration, store, summary, report; names are spelled in its record."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from killing import bits

import streampca
from streampca.errors import InputError
from streampca.results.kind import kind_for, kind_names, kind_of

KINDS = kind_names()
OPTIONS = {"mixture": ["--n-clusters", "2"], "kpca": ["--n-landmarks", "30"], "pcr": ["--target", "traits.tsv:height"]}


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(120, 8))
    np.save(tmp_path / "x.npy", X.astype("f4"))
    rows = "".join(f"{i}\t{X[i, 0] + rng.normal():.6f}\n" for i in range(120))
    (tmp_path / "traits.tsv").write_text("id\theight\n" + rows)
    return "x.npy"


def fitted(here, kind, data, *more):
    code, out, error = here(kind, data, "-k", "2", "--quiet", *OPTIONS.get(kind, []), *more)
    assert code == 0, error
    return out


def test_there_are_seven():
    assert set(KINDS) == {"pca", "ppca", "factor_analysis", "kpca", "pcr", "mixture", "dual"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_fits_it_and_its_store_opens(here, data, tmp_path, kind):
    out = fitted(here, kind, data)
    assert out.splitlines()[-1] == f"result: x.{kind}.zarr"
    result = streampca.load(tmp_path / f"x.{kind}.zarr")
    assert result.attrs["kind"] == kind
    code, info, error = here("info", f"x.{kind}.zarr")
    assert (code, error) == (0, "")
    assert info == out
    facts = json.loads(here("info", f"x.{kind}.zarr", "--json")[1])
    assert facts["kind"] == kind
    assert facts["n_samples"] == 120


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_gives_the_same_bits(here, data, tmp_path, kind):
    fitted(here, kind, data, "--memory", "1GB", "--out", "command.zarr")
    options = dict(
        zip(
            (o.strip("-").replace("-", "_") for o in OPTIONS.get(kind, [])[::2]),
            OPTIONS.get(kind, [])[1::2],
            strict=True,
        )
    )
    blocks = {
        "data": {"path": data}, "model": {"kind": kind, "n_components": 2, **options},
        "engine": {"memory_limit": "1GB"}, "output": {"path": "run.zarr", "report": "page.html"},
    }  # fmt: skip
    (tmp_path / "run.yaml").write_text(json.dumps(blocks))
    code, _, error = here("run", "run.yaml", "--quiet")
    assert code == 0, error
    assert bits(tmp_path / "command.zarr") == bits(tmp_path / "run.zarr")
    assert kind_of(kind).title.split()[-1].lower() in (tmp_path / "page.html").read_text().lower()


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_loaded_with_the_same_numbers(here, data, tmp_path, kind):
    fitted(here, kind, data)
    model = streampca.load_model(tmp_path / f"x.{kind}.zarr")
    assert np.isfinite(model.components_ if hasattr(model, "components_") else model.explained_variance_).all()


VERBS = ("project", "impute", "denoise", "predict")
CANNOT = [(kind, verb) for kind in KINDS for verb in VERBS if not getattr(kind_of(kind), verb)]


@pytest.mark.parametrize(("kind", "verb"), CANNOT)
def test_what_it_cannot_do_is_one_line(here, data, kind, verb):
    fitted(here, kind, data)
    code, _, error = here(verb, f"x.{kind}.zarr", data)
    assert code == 2
    assert error.startswith(f"streampca: x.{kind}.zarr: {verb} is not available for {kind}; use a result of ")


@pytest.mark.parametrize("kind", KINDS)
def test_options_find_their_kind(kind):
    options = kind_of(kind).options
    required = {name: "t.tsv:a" for name, field in options.fields.items() if field.required}
    assert kind_for(options(**required)) is kind_of(kind)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(InputError, match="unknown kind of model 'pcaa'; did you mean pca?"):
        kind_of("pcaa")


def test_the_name_of_a_kind_is_spelled_in_its_record_alone():
    package = Path(streampca.__file__).parent
    spelled = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if words & set(KINDS):
            spelled.add(str(path.relative_to(package)))
    assert spelled == {f"results/kinds/{kind}.py" for kind in KINDS}
