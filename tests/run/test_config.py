"""The configuration of `run`: what is read, what is refused and in which words, starters, schema, differences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from streampca.cli.configuring import config as config_command

from streampca.cli import configuring
from streampca.cli import fitting as commands
from streampca.errors import InputError
from streampca.run.config import Config, changed, load, schema, starter
from streampca.run.config.blocks import BLOCKS, ENGINES, MODELS, JobQueue, Threads, listed

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
BASE = "source:\n  path: a.zarr\nmodel:\n  kind: pca\noutput:\n  path: b.zarr\n"
SLURM = "engine={kind: slurm, workers: 3, memory: 4GB}"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Load text as run.yaml of the folder that one is in."""
    monkeypatch.chdir(tmp_path)

    def call(text, *settings):
        Path("run.yaml").write_text(text, encoding="utf-8")
        return load("run.yaml", settings)

    return call


@pytest.fixture
def refused(read):
    """Return the message that text is refused with, which is one line."""

    def call(text, *settings):
        with pytest.raises(InputError) as caught:
            read(text, *settings)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return call


# ---------------------------------------------------------------- what is read


def test_what_is_left_out_has_the_defaults(read):
    config = read(BASE)
    assert config.source.path == "a.zarr"
    assert config.source.scale == config.source.missing == "auto"
    assert config.model.kind == "pca"
    assert config.model.n_components is None
    assert config.engine == Threads()
    assert config.engine.checkpoint_minutes == 2
    assert config.output.overwrite is False


@pytest.mark.parametrize("engine", ["engine:\n", "engine: {}\n", "engine: {kind: threads}\n", ""])
def test_an_engine_that_is_not_named_is_threads(read, engine):
    assert read(BASE + engine).engine == Threads()


def test_an_engine_without_kind_keeps_its_keys(read):
    assert read(BASE + "engine:\n  memory: 2GB\n  threads: 3\n").engine == Threads(memory="2GB", threads=3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model.tol=1e-6", 1e-6),
        ("model.tol=1.e-6", 1e-6),
        ("model.tol='1e-6'", 1e-6),
        ("model.n_components=20", 20),
        ("model.n_components=1e2", 100),
        ("model.n_components=1", 1),
        ("model.n_components=0.9", 0.9),
        ("model.n_components=9e-1", 0.9),
        ("model.n_components=all", "all"),
        ("model.n_components=null", None),
        ("model.n_components=~", None),
        ("model.n_components=", None),
        ("model.seed=010", 10),
        ("model.outliers=remove", "remove"),
        ("output.overwrite=yes", True),
        ("output.overwrite=off", False),
        ("output.overwrite=No", False),
        ("source.path=2024", "2024"),
        ("source.path=2024-01-01", "2024-01-01"),
        ("source.path=1e-3", "1e-3"),
        ("source.path=yes", "yes"),
        ("source.path=0x10", "0x10"),
        ("source.path='null'", "null"),
        ("source.path=a: b", "a: b"),
        ("source.path=a=b", "a=b"),
        ("source.path=s3://bucket/x.zarr", "s3://bucket/x.zarr"),
        ("source.sample_dims=time", ("time",)),
        ("source.sample_dims=time, member", ("time", "member")),
        ("source.sample_dims=[time, member]", ("time", "member")),
        ("source.shape=[1e3, 50000]", (1000, 50000)),
        ("source.shape=1000,50000", (1000, 50000)),
        ("source.maf=0", 0.0),
        ("engine.memory=2GB", "2GB"),
        ("engine.memory=1.5 GiB", "1.5 GiB"),
        ("engine.memory=2000000000", 2000000000),
        ("engine.memory=2e9", 2000000000),
        ("engine.checkpoint_minutes=.5", 0.5),
    ],
)
def test_scalars_are_what_their_key_takes(read, setting, value):
    block, key = setting.partition("=")[0].split(".")
    found = getattr(getattr(read(BASE, setting), block), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("kernel", ["gamma: 1e-2", "gamma: 0.01"])
def test_gamma_may_be_a_number(read, kernel):
    assert read(BASE.replace("pca", f"kpca\n  {kernel}")).model.gamma == 0.01


@pytest.mark.parametrize("time", ["01:00:00", "'01:00:00'", "1:00:00", "100:30:59", "2-00:00:00", "00:20:00"])
def test_wall_times_need_no_quotes(read, time):
    text = BASE + f"engine:\n  kind: slurm\n  workers: 2\n  memory: 4GB\n  walltime: {time}\n"
    assert read(text).engine.walltime == time.strip("'")


def test_the_trap_of_wall_times_is_there(read):
    """PyYAML takes hours without a leading zero for numbers in base 60; here they are what was written."""
    assert yaml.safe_load("12:00:00") == 43200
    assert read(BASE, SLURM, "engine.walltime=12:00:00").engine.walltime == "12:00:00"


def test_lines_of_shell_are_a_list_or_text(read):
    engine = "engine:\n  kind: pbs\n  workers: 2\n  memory: 4GB\n"
    listed_lines = read(BASE + engine + "  prologue:\n    - module load x\n    - cd y\n  directives: [-V]\n").engine
    text = read(BASE + engine + "  prologue: |\n    module load x\n\n    cd y\n  directives: -V\n").engine
    assert listed_lines == text
    assert text.prologue == ("module load x", "cd y")
    assert text.directives == ("-V",)


def test_jobs_have_one_thread_unless_given(read):
    assert read(BASE, SLURM).engine == JobQueue(kind="slurm", workers=3, memory="4GB", threads=1, walltime="01:00:00")


def test_settings_go_before_the_file_and_later_ones_before_earlier(read):
    config = read(BASE + "engine: {threads: 2, memory: 1GB}\n", "engine.threads=3", "engine.threads=4", "model.tol=0.1")
    assert (config.engine.threads, config.engine.memory, config.model.tol) == (4, "1GB", 0.1)


def test_a_block_set_as_a_whole_leaves_nothing_of_the_file(read):
    config = read(BASE + "engine: {threads: 2}\n", "engine={memory: 1GB}")
    assert config.engine == Threads(memory="1GB")


def test_settings_alone_can_fill_a_block(read):
    config = read("output: {path: b}\n", "source.path=a", "model.kind=kpca", "model.kernel=poly")
    assert (config.source.path, config.model.kind, config.model.kernel) == ("a", "kpca", "poly")


def test_anchors_marks_and_other_line_ends_are_read(tmp_path):
    file = tmp_path / "x.yaml"
    text = "source: &same {path: ä.zarr}\r\nmodel: {kind: pca}\r\noutput: *same\r\n"
    file.write_bytes(text.encode("utf-8-sig"))
    config = load(file)
    assert config.source.path == config.output.path == "ä.zarr"


def test_nothing_changes_afterwards(read):
    config = read(BASE)
    with pytest.raises(ValidationError, match="frozen"):
        config.model.tol = 0.5
    assert hash(config) == hash(read(BASE))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        # keys
        ("model.tl=3", "model.tl is not known; tol is the nearest"),
        ("source.exclude-regions=x", "source.exclude-regions is not known; exclude_regions is the nearest"),
        ("model.kernel=rbf", "model.kernel is not known; kernel is for kind kpca, and model.kind is pca"),
        ("model.memory=2GB", "model.memory is not known; memory belongs in engine"),
        ("engine.queue=x", "queue is for kind slurm, pbs, sge or lsf, and engine.kind is threads"),
        ("engine.tls_ca_fil=x", "the nearest, tls_ca_file, is for kind address, and engine.kind is threads"),
        ("path=x", "path is no block; path belongs in source or output"),
        ("enginee.kind=slurm", "enginee is no block; engine is the nearest"),
        ("output.zzz=1", "output.zzz is not known; give path, overwrite, export, report, labels or work"),
        # kinds
        ("engine.kind=slrm", "give threads, processes, address, slurm, pbs, sge or lsf (slurm is the nearest)"),
        ("model.kind=PCA", "model.kind is 'PCA'; give pca, ppca, factor_analysis or kpca (pca is the nearest)"),
        ("model.kind=", "model.kind is null; give pca, ppca, factor_analysis or kpca"),
        ("model={tol: 0.1}", "model.kind is missing; give pca, ppca, factor_analysis or kpca"),
        ("engine=slurm", "engine is 'slurm'; give a block of keys, as engine: {kind: slurm}"),
        ("output=[1, 2]", "output is [1, 2]; give a block of keys, as output: {path: ...}"),
        # values
        ("model.solver=krilov", "'krilov'; give auto, covariance, gram, krylov or power (krylov is the nearest)"),
        ("model.tol=small", "model.tol is 'small'; give a number between 0 and 1"),
        ("model.tol=nan", "model.tol is 'nan'; give a number between 0 and 1"),
        ("model.tol=1", "model.tol is '1'; give a number between 0 and 1"),
        ("model.tol=", "model.tol is null; give a number between 0 and 1"),
        ("model.tol.x=1", "model.tol is a block; give a number between 0 and 1"),
        ("model.n_components=1.5", "give a whole number from 1 on, a number between 0 and 1, all or null"),
        ("model.n_components=0", "model.n_components is '0'; give a whole number"),
        ("model.n_components=auto", "model.n_components is 'auto'; give a whole number"),
        ("model.seed=true", "model.seed is 'true'; give a whole number from 0 on"),
        ("model.outliers=no", "model.outliers is 'no'; give report, remove or null"),
        ("source.maf=0.7", "source.maf is '0.7'; give a number from 0 to 0.5 or null"),
        ("source.geno=-1", "source.geno is '-1'; give a number from 0 to 1 or null"),
        ("source.path=", "source.path is null; give text such as data.zarr"),
        ("source.path=''", "source.path is ''; give text such as data.zarr"),
        ("source.path=[a]", "source.path is [a]; give text such as data.zarr"),
        ("source.shape=3", "source.shape is '3'; give two whole numbers, as [1000, 50000] or null"),
        ("source.shape=[3, 4, 5]", "source.shape is [3, 4, 5]; give two whole numbers"),
        ("source.shape=[[3], 4]", "source.shape is a list; give two whole numbers"),
        ("source.sample_dims=[]", "source.sample_dims is []; give a list, as [a, b], text or null"),
        ("source.all_chromosomes=maybe", "source.all_chromosomes is 'maybe'; give true or false"),
        ("engine.memory=lots", "engine.memory is 'lots'; give a whole number from 1 on, text such as 2GB or null"),
        ("engine.memory=0", "engine.memory is '0'; give"),
        ("engine.memory=0GB", "engine.memory is '0GB'; give"),
        ("engine.checkpoint_minutes=0", "engine.checkpoint_minutes is '0'; give a number above 0"),
        ("engine={kind: processes, workers: 0}", "engine.workers is '0'; give a whole number from 1 on or null"),
        ("engine={kind: address}", "engine.address is missing; add it: Of its scheduler"),
        ("engine={kind: address, address: host:1}", "give text such as tcp://host:8786 or tls://host:8786"),
        # together
        ("source.missing=model", "source.missing is 'model'; for pca give auto, error or mean"),
        ("output.path=s3://bucket/x", "output.work is missing; give a local folder, as the output is a URL"),
        ("engine={kind: address, address: 'tls://h:1'}", "engine.tls_ca_file is missing; TLS needs"),
        # the setting itself
        ("model.tol", "is no key and value; give both, as --set model.tol=1e-6"),
        ("=3", "is no key and value"),
        ("model..tol=3", "is no key and value"),
        ("source.path=*x", "cannot be read (found undefined alias 'x'); put the value in quotes"),
        ("source.path=[a", "put the value in quotes"),
        ("source.path=!secret x", "the tag !secret is not known; write the value without it"),
        ("source.path=a\x01", "cannot be read (character 0x1 is not allowed)"),
    ],
)  # fmt: skip
def test_a_setting_is_refused_with_what_it_says_and_the_cure(refused, setting, message):
    found = refused(BASE, setting)
    # What is missing is missed where its block begins.
    shown = setting.replace("\x01", "?")
    assert found.startswith("run.yaml:5: " if "output.work" in message else f"--set {shown}: ")
    assert message in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.yaml:1: is empty; `streampca config new pca` prints a file to begin with"),
        ("# nothing\n", "run.yaml:1: is empty"),
        ("\n\n- a\n- b\n", "run.yaml:3: holds [a, b]; give the blocks source, model, engine and output"),
        ("run\n", "run.yaml:1: holds 'run'; give the blocks"),
        ("source:\n\tpath: x\n", "run.yaml:2: cannot be read (found character '\\t'"),
        ("source:\n\tpath: x\n", "indent by spaces, not by tabs"),
        ("source:\n  path: a: b\n", "run.yaml:2: cannot be read (mapping values are not allowed here)"),
        ("source:\n  path: *.bed\n", "run.yaml:2: cannot be read"),
        ("source:\n  path: *.bed\n", "put text that begins with * in quotes"),
        ("source: {path: a\nmodel: 3\n", "check the indentation, brackets and quotes there and in the line before"),
        ("source: 'a\n", "run.yaml:2: cannot be read"),
        (BASE + "---\nsource: {}\n", "run.yaml:7: cannot be read (more than one document); keep one document"),
        (BASE + "model: {kind: pca}\n", "run.yaml:7: model is given twice, first at run.yaml:3; leave one out"),
        (BASE + "  path: c\n", "run.yaml:7: output.path is given twice, first at run.yaml:6; leave one out"),
        (BASE + "engine: &x [*x]\n", "run.yaml:7: engine refers to itself; write it out"),
        (BASE + "engine: &x {memory: {a: *x}}\n", "refers to itself; write it out"),
        (BASE + "? [a, b]\n: 3\n", "run.yaml:7: a key is a list or a block; give a word"),
        (BASE + "engine: {{ memory }}\n", "run.yaml:7: a key is a list or a block"),
        (BASE + "engine: !gpu {}\n", "run.yaml:7: the tag !gpu is not known"),
        ("[" * 5000, "run.yaml:1: cannot be read (brackets in brackets, too deep)"),
        ("source:\n  path: x\x00\n", "run.yaml:2: cannot be read (character 0x0 is not allowed); take it out"),
        (BASE.replace("path: a", "pth: a"), "run.yaml:2: source.pth is not known; path is the nearest"),
        (BASE.replace("source", "sorce"), "run.yaml:1: sorce is no block; source is the nearest"),
        (BASE.replace("  path: a.zarr\n", ""), "run.yaml:1: source.path is missing; add it: File, store or URL"),
        (BASE.replace("  path: a.zarr\n", "  maf: 0.1\n"), "run.yaml:1: source.path is missing"),
        (BASE.replace("  path: b.zarr\n", ""), "run.yaml:5: output.path is missing"),
        ("model: {kind: pca}\noutput: {path: b}\n", "run.yaml:1: source is missing; add a block of that name with"),
        ("source: {path: a}\noutput: {path: b}\n", "run.yaml:1: model is missing; add a block of that name with kind"),
        (BASE.replace("pca", "pca\n  tol: 2"), "run.yaml:5: model.tol is '2'; give a number between 0 and 1"),
        (BASE + "engine: {kind: slurm, workers: 2}\n", "run.yaml:7: engine.memory is missing"),
        (BASE + "engine:\n  <<: {memory: 2GB}\n", "run.yaml:8: engine.<< is not known"),
        (BASE + '"a\\nb": 3\n', "run.yaml:7: a b is no block"),
    ],
)  # fmt: skip
def test_a_file_is_refused_with_the_line_and_the_cure(refused, text, message):
    assert message in refused(text)


def test_several_problems_are_counted_and_named(refused):
    text = BASE.replace("pca", "pca\n  tol: 2\n  tool: 3\n  seed: x")
    assert (
        refused(text) == "run.yaml:6: model.tool is not known; tol is the nearest (and 2 more: model.seed, model.tol)"
    )
    assert refused("source:\nmodel:\noutput:\n").endswith("(and 2 more: model.kind, output.path)")
    assert "more" not in refused(BASE.replace("path: a", "pth: a"))
    many = "source: {path: a, maf: 2, geno: 2, mind: 2, scale: x}\nmodel: {kind: y}\noutput: {}\n"
    assert refused(many).endswith("(and 5 more: source.maf, source.geno, source.mind, model.kind, ...)")


def test_the_place_is_where_the_wrong_value_came_from(refused):
    text = BASE.replace("pca", "kpca\n  kernel: rbf")
    assert refused(text, "model.kind=pca").startswith("run.yaml:5: model.kernel is not known; kernel is for kind kpca")
    assert refused(text, "model.kernel=rbff").startswith("--set model.kernel=rbff: model.kernel is 'rbff'")
    assert refused(text + "engine: {memory: x}\n", "engine={threads: x}").startswith("--set engine={threads: x}: ")
    assert refused(BASE + "engine: slurm\n", "engine.workers=2") == (
        "--set engine.workers=2: engine is 'slurm', which has no keys; set it as a whole"
    )
    assert refused(BASE, "engine.kind=slurm").startswith("--set engine.kind=slurm: engine.memory is missing")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("ppca", ["source.missing=mean"], "for ppca give auto, error or model"),
        ("factor_analysis", ["source.missing=mean"], "for factor_analysis give auto, error or model"),
        ("factor_analysis", ["model.method=closed"], "model.method is 'closed'; give auto or em"),
        ("factor_analysis", ["model.criterion=bic"], "model.criterion is 'bic'; give auto or heldout"),
        ("factor_analysis", ["output.export=plink"], "is 'plink', which is not for factor_analysis; use tsv"),
        ("ppca", ["source.scale=coslat"], "for ppca give auto, none, unit or patterson"),
        ("pca", ["output.labels=pops.tsv"], "output.labels is for a report; give output.report, or leave it out"),
        ("kpca", ["source.missing=model"], "for kpca give auto, error or mean"),
        ("kpca", ["source.scale=patterson"], "for kpca give auto, none or unit"),
        ("kpca", ["source.maf=0"], "source.maf is for genotypes, which kpca does not take; leave it out"),
        ("kpca", ["source.all_chromosomes=yes"], "source.all_chromosomes is for genotypes"),
        ("kpca", ["output.export=tsv"], "output.export is 'tsv', which is not for kpca; leave it out"),
        ("kpca", ["model.n_landmarks=1"], "give a whole number from 2 on or auto"),
        ("kpca", ["model.gamma=-1"], "give a number above 0, scale, median or features"),
        ("kpca", ["model.tol=0.1"], "tol is for kind pca, ppca or factor_analysis, and model.kind is kpca"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_do_is_refused(refused, kind, settings, message):
    assert message in refused(BASE.replace("pca", kind), *settings)


TLS = "tls_ca_file: a, tls_cert_file: b, tls_key_file: c"


def test_tls_takes_all_files_and_its_protocol(read, refused):
    engine = read(BASE, f"engine={{kind: address, address: 'tls://h:1', {TLS}}}").engine
    assert (engine.tls_ca_file, engine.tls_cert_file, engine.tls_key_file) == ("a", "b", "c")
    found = refused(BASE, f"engine={{kind: address, address: 'tcp://h:1', {TLS}}}")
    assert "engine.address is 'tcp://h:1'; with TLS give it as tls://host:8786" in found
    some = refused(BASE, "engine={kind: address, address: 'tls://h:1', tls_ca_file: a, tls_key_file: c}")
    assert "engine.tls_cert_file is missing; TLS needs tls_ca_file, tls_cert_file and tls_key_file" in some


@pytest.mark.parametrize("time", ["90", "01:00", "1:60:00", "01:00:60", "1 hour", "-1:00:00", "1-1:00"])
def test_what_is_no_wall_time_is_refused(refused, time):
    message = refused(BASE, f"engine={{kind: slurm, workers: 2, memory: 4GB, walltime: '{time}'}}")
    assert f"engine.walltime is '{time}'; give text such as 01:30:00 or 2-00:00:00" in message


@pytest.mark.parametrize(("kind", "fits"), [("slurm", True), ("lsf", True), ("pbs", False), ("sge", False)])
def test_days_are_for_queues_that_know_them(read, refused, kind, fits):
    setting = f"engine={{kind: {kind}, workers: 2, memory: 4GB, walltime: 2-00:00:00}}"
    if fits:
        assert read(BASE, setting).engine.walltime == "2-00:00:00"
    else:
        assert f"{kind} knows no days, give hours, as 48:00:00" in refused(BASE, setting)


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("genotypes.yaml").write_text(BASE)
    Path("latin.yaml").write_bytes(b"source:\n  path: gr\xfcn.zarr\n")
    Path("wide.yaml").write_bytes(BASE.encode("utf-16"))
    for name, message in {
        "genotype.yaml": "genotype.yaml: there is no such file; genotypes.yaml is the nearest",
        "other/x.yaml": "other/x.yaml: there is no such file; `streampca config new pca` prints one to begin with",
        ".": ".: is a folder; give a YAML file",
        "latin.yaml": "latin.yaml:2: is not UTF-8 text; save it as UTF-8",
        "wide.yaml": "wide.yaml:1: is not UTF-8 text; save it as UTF-8",
    }.items():
        with pytest.raises(InputError) as caught:
            load(name)
        assert str(caught.value) == message


def test_a_long_value_is_cut_in_the_message(refused):
    assert len(refused(BASE.replace("pca", f"pca\n  tol: {'x' * 5000}"))) < 200


def test_a_setting_of_many_lines_is_refused_in_one(refused):
    assert refused(BASE, "model.tol=a\n  b").startswith("--set model.tol=a b: model.tol is 'a b'")


# ---------------------------------------------------------------- any configuration


# Amounts, wall times and addresses.
PATTERNED = ["2GB", "1.5 GiB", "600mb", "2e3 kB", ".5T", "01:00:00", "12:30:59", "2-00:00:00", "tcp://host:8786"]


def values_of(fragment):
    """Values that a fragment of JSON schema allows."""
    if "anyOf" in fragment:
        # Text for a list is tested by itself.
        texts = any(part.get("type") == "array" for part in fragment["anyOf"]) * [{"type": "string"}]
        return st.one_of(values_of(part) for part in fragment["anyOf"] if part not in texts)
    if "enum" in fragment or "const" in fragment:
        return st.sampled_from(fragment.get("enum", [fragment.get("const")]))
    if "pattern" in fragment:
        return st.sampled_from([text for text in PATTERNED if re.search(fragment["pattern"], text)])
    low, high = fragment.get("minimum"), fragment.get("maximum")
    open_low, open_high = fragment.get("exclusiveMinimum"), fragment.get("exclusiveMaximum")
    text = st.text(min_size=1, max_size=20) | st.sampled_from(
        ["1e-3", "null", "yes", "01:00:00", "010", "a: b", "- x", "*"]
    )
    return {
        "null": st.none,
        "boolean": st.booleans,
        "integer": lambda: st.integers(low, 2**62),
        "number": lambda: st.floats(
            low if open_low is None else open_low, high if open_high is None else open_high,
            exclude_min=open_low is not None, exclude_max=open_high is not None, allow_nan=False, allow_infinity=False,
        ),
        "string": lambda: text,
        "array": lambda: st.tuples(*map(values_of, fragment["prefixItems"])) if "prefixItems" in fragment
        else st.lists(text, min_size=1, max_size=3),
    }[fragment["type"]]()  # fmt: skip


@cache
def block_of(model, **fixed):
    """Blocks of a model, keys that may be left out among them."""
    fragments = model.model_json_schema()["properties"]
    needed = {key: values_of(fragments[key]) for key, field in model.model_fields.items() if field.is_required()}
    free = {key: values_of(fragment) for key, fragment in fragments.items() if key not in needed | fixed}
    return st.fixed_dictionaries(needed | {key: st.just(value) for key, value in fixed.items()}, optional=free)


@st.composite
def configs(draw):
    """Any configuration, but for what its keys forbid each other."""
    kind, engine_kind = draw(st.sampled_from(list(MODELS))), draw(st.sampled_from(list(ENGINES)))
    source = draw(block_of(BLOCKS["source"][""], missing="auto"))
    output = draw(block_of(BLOCKS["output"][""], work="here", export=None, report="page.html"))
    engine = draw(block_of(ENGINES[engine_kind], kind=engine_kind))
    if kind == "kpca":
        source = {key: value for key, value in source.items() if key in ("path", "variable", "sample_dims", "shape")}
    if kind != "pca" and source.get("scale") == "coslat":
        del source["scale"]
    if engine_kind == "address":
        engine = {key: value for key, value in engine.items() if not key.startswith("tls")}
        engine["address"] = "tcp://host:8786"
    if engine_kind in ("pbs", "sge") and "walltime" in engine:
        engine["walltime"] = engine["walltime"].rpartition("-")[2]
    model = draw(block_of(MODELS[kind], kind=kind))
    return Config.model_validate({"source": source, "model": model, "engine": engine, "output": output})


@given(config=configs(), flow=st.sampled_from([True, False, None]))
def test_any_configuration_written_as_yaml_is_read_as_it_was(config, flow, tmp_path):
    file = tmp_path / "any.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json"), default_flow_style=flow), encoding="utf-8")
    assert load(file) == config


@given(config=configs())
def test_any_configuration_given_as_settings_is_the_same_and_unchanged(config, tmp_path):
    dump = config.model_dump(mode="json")
    file = tmp_path / "any.yaml"
    file.write_text("engine:\n")
    flow = {block: yaml.safe_dump(keys, default_flow_style=True, width=10**6) for block, keys in dump.items()}
    assert load(file, [f"{block}={keys}" for block, keys in flow.items()]) == config
    assert changed(dump, dump) == []


@given(
    text=st.text(max_size=60)
    | st.lists(st.sampled_from([*BASE.split(), "\n", "\n  ", ":", "- ", "&a", "*a", "{", "}"])).map("".join)
)
def test_any_text_is_read_or_refused_in_one_line(text, tmp_path):
    file = tmp_path / "any.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    message = f"{file}:"
    try:
        load(file)
    except InputError as error:
        message = str(error)
    assert message.startswith(f"{file}:")
    assert len(message.splitlines()) == 1


# ---------------------------------------------------------------- schema, starters, files that come along


def test_the_schema_describes_every_key():
    found = schema()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["required"] == ["source", "model", "output"]
    assert found["additionalProperties"] is False
    for name, model in found["$defs"].items():
        assert model["additionalProperties"] is False, name
        for key, field in model["properties"].items():
            assert re.fullmatch(r"[^\n]+\.", field["description"]), (name, key)
    assert set(found["properties"]["engine"]["discriminator"]["mapping"]) == set(ENGINES)
    json.dumps(found)


def uncommented(text):
    """Take the # off every line that is a key."""
    return re.sub(r"(?m)^  # (\w+: )", r"  \1", text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", MODELS)
def test_starters_load_as_they_are_and_with_every_line(read, kind, engine):
    text = starter(kind, engine)
    config = read(text)
    assert (config.model.kind, config.engine.kind) == (kind, engine)
    full = uncommented(text)
    assert read(full) == config
    assert not re.search(r"(?m)^\s+#", full)
    tree = yaml.safe_load(full)
    assert set(tree["model"]) == set(MODELS[kind].model_fields)
    assert set(tree["engine"]) == set(ENGINES[engine].model_fields)
    assert set(tree["output"]) == set(BLOCKS["output"][""].model_fields)
    if kind == "kpca":
        assert set(tree["source"]) == {"path", "variable", "sample_dims", "missing_chunks", "scale", "missing", "shape"}
    else:
        assert set(tree["source"]) == set(BLOCKS["source"][""].model_fields)


def test_starters_say_what_may_be_chosen():
    text = starter("ppca")
    assert re.search(r"# solver: auto +# .*\[auto, covariance, gram, krylov, power\]", text)
    assert re.search(r"# method: auto +# .*\[auto, closed, em\]", text)
    assert "kinds: threads, processes, address, slurm, pbs, sge or lsf" in text
    with pytest.raises(InputError, match="'svd' is not known; give pca, ppca, factor_analysis or kpca"):
        starter("svd")
    with pytest.raises(InputError, match="'gpu' is not known; give threads"):
        starter("pca", "gpu")


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_files_that_come_along_load_and_say_how_to_run_them(file, tmp_path):
    config = load(file)
    text = file.read_text()
    assert text.startswith("# ")
    assert f"streampca run configs/{file.name} --set source.path=" in text
    assert len(text.splitlines()) <= 40
    # Each setting that the comments show works with this file.
    for line in re.findall(r"streampca run (.*)", text):
        load(file, [setting.strip("`") for setting in re.findall(r"--set (\S+)", line)])
    assert config.output.path.endswith(".zarr")
    # What is commented out can be taken in.
    whole = tmp_path / file.name
    whole.write_text(uncommented(text))
    load(whole)


def test_there_is_a_file_for_each_story():
    assert {file.stem for file in CONFIGS} >= {
        "genotypes-local", "genotypes-slurm", "ppca-missing", "kernel", "eigenfaces", "netcdf-field",
    }  # fmt: skip
    kinds = {load(file).model.kind for file in CONFIGS}
    assert kinds >= {"pca", "ppca", "kpca"}
    slurm = next(file for file in CONFIGS if file.stem == "genotypes-slurm")
    assert load(slurm).engine.walltime == "04:00:00"
    missing = next(file for file in CONFIGS if file.stem == "ppca-missing")
    assert load(missing, ["model.kind=factor_analysis"]).model.tol == 1e-3


@pytest.mark.parametrize("command", [commands.pca, commands.ppca, commands.kpca], ids=lambda command: command.name)
def test_keys_and_defaults_are_those_of_the_commands(command):
    config = Config.model_validate({"source": {"path": "a"}, "model": {"kind": command.name}, "output": {"path": "b"}})
    dump = config.model_dump()
    keys = {key: value for block in ("engine", "model", "source", "output") for key, value in dump[block].items()}
    # What `auto` stands for depends on the model.
    meant = {("ppca", "missing"): "model", ("kpca", "missing"): "error", ("kpca", "scale"): "none"}
    left_out = {"source", "out", "plan", "as_json", "quiet", "factor_analysis"}
    for option, default in command.make_context(command.name, ["data.zarr"]).params.items():
        key = {"form": "export"}.get(option, option)
        if (command.name, key) in meant:
            assert (keys[key], default) == ("auto", meant[command.name, key])
        elif key not in left_out:
            assert keys[key] == default, key


# ---------------------------------------------------------------- differences


def dump_of(read, *settings):
    return read(BASE, *settings).model_dump(mode="json")


def test_what_changed_is_said_key_by_key(read):
    old = dump_of(read, "model.n_components=10")
    assert changed(old, dump_of(read, "model.n_components=20")) == ["model.n_components was 10, is 20"]
    assert changed(old, dump_of(read)) == ["model.n_components was 10, is null"]
    new = dump_of(read, "model.n_components=10", "source.sample_dims=[a, b]", "engine.memory=2GB", "output.export=tsv")
    assert changed(old, new) == [
        'source.sample_dims was null, is ["a", "b"]',
        "engine.memory was null, is 2GB",
        "output.export was null, is tsv",
    ]


def test_another_kind_says_enough(read):
    assert changed(dump_of(read), dump_of(read, "model={kind: kpca}")) == ["model.kind was pca, is kpca"]


def test_the_engine_and_overwriting_may_change_but_not_the_memory(read):
    old = dump_of(read, "engine.memory=4GB")
    assert changed(old, dump_of(read, SLURM, "output.overwrite=true")) == []
    assert changed(old, dump_of(read, "engine={kind: processes, workers: 2, memory: 4GB}")) == []
    assert changed(old, dump_of(read, SLURM, "engine.memory=5GB")) == ["engine.memory was 4GB, is 5GB"]


def test_keys_of_other_versions_are_differences(read):
    old, new = dump_of(read), dump_of(read)
    del old["model"]["tol"]
    old["model"]["gone"] = True
    assert changed(old, new) == ["model.gone was true, is not there", "model.tol was not there, is 0.001"]


def test_words_are_listed_as_in_a_sentence():
    assert (listed("a"), listed("ab"), listed("abc", "and")) == ("a", "a or b", "a, b and c")


# ---------------------------------------------------------------- commands


def test_config_schema_prints_json():
    done = CliRunner().invoke(config_command, ["schema"])
    assert done.exit_code == 0
    assert json.loads(done.output) == schema()


def test_config_new_prints_or_writes_and_never_over_a_file(tmp_path):
    run = CliRunner().invoke
    assert run(config_command, ["new", "ppca"]).output == starter("ppca")
    assert run(config_command, ["new", "pca", "--engine", "slurm"]).output == starter("pca", "slurm")
    file = tmp_path / "run.yaml"
    done = run(config_command, ["new", "kpca", "--out", str(file)])
    assert done.output == f"configuration: {file}\n"
    assert file.read_text() == starter("kpca")
    again = run(config_command, ["new", "pca", "--out", str(file)])
    assert isinstance(again.exception, InputError)
    assert str(again.exception) == f"{file}: exists already; choose another --out"
    assert file.read_text() == starter("kpca")
    nowhere = run(config_command, ["new", "pca", "--out", str(tmp_path / "no" / "run.yaml")])
    assert str(nowhere.exception).endswith(f"the folder {tmp_path / 'no'} does not exist; make it first")
    assert run(config_command, ["new", "svd"]).exit_code == 2


def test_the_command_knows_all_kinds_without_importing_them():
    assert set(configuring.KINDS) == set(MODELS)
    assert set(configuring.ENGINES) == set(ENGINES)
    code = "import sys, streampca.cli.configuring; sys.exit('pydantic' in sys.modules or 'yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_literals_of_kinds_are_all_reachable():
    assert [*get_args(JobQueue.model_fields["kind"].annotation)] == ["slurm", "pbs", "sge", "lsf"]
    assert list(BLOCKS) == list(Config.model_fields)
