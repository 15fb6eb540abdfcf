"""Configurations: values that are read, messages for invalid ones, starter files, schema, upgrades, differences."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streampca.cli import cli
from streampca.cli.config import config as config_command
from streampca.cli.options import flag
from streampca.errors import InputError
from streampca.results.kind import kind_names, kind_of
from streampca.run.config import build, differences, load, schema, starter
from streampca.run.config.blocks import BLOCKS, ENGINES, Data, Filter, JobQueue, Output, Threads
from streampca.validation import listed

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
BASE = "data:\n  path: a.zarr\nmodel:\n  kind: pca\noutput:\n  path: b.zarr\n"
SLURM = "engine={kind: slurm, workers: 3, memory_limit: 4GB}"
MODELS = {name: kind_of(name).options for name in kind_names()}
KINDS = listed(kind_names())


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
    assert config.data.path == "a.zarr"
    assert config.model.scale == config.model.missing == "auto"
    assert config.kind.name == "pca"
    assert config.model.n_components is None
    assert config.engine == Threads()
    assert config.engine.checkpoint_minutes == 2
    assert config.output.overwrite is False


@pytest.mark.parametrize("engine", ["engine:\n", "engine: {}\n", "engine: {kind: threads}\n", ""])
def test_an_engine_that_is_not_named_is_threads(read, engine):
    assert read(BASE + engine).engine == Threads()


def test_an_engine_without_kind_keeps_its_keys(read):
    assert read(BASE + "engine:\n  memory_limit: 2GB\n  threads: 3\n").engine == Threads(memory_limit="2GB", threads=3)


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
        ("model.random_state=010", 10),
        ("filter.outliers=remove", "remove"),
        ("output.overwrite=yes", True),
        ("output.overwrite=off", False),
        ("output.overwrite=No", False),
        ("data.path=2024", "2024"),
        ("data.path=2024-01-01", "2024-01-01"),
        ("data.path=1e-3", "1e-3"),
        ("data.path=yes", "yes"),
        ("data.path=0x10", "0x10"),
        ("data.path='null'", "null"),
        ("data.path=a: b", "a: b"),
        ("data.path=a=b", "a=b"),
        ("data.path=s3://bucket/x.zarr", "s3://bucket/x.zarr"),
        ("data.sample_dims=time", ("time",)),
        ("data.sample_dims=time, member", ("time", "member")),
        ("data.sample_dims=[time, member]", ("time", "member")),
        ("data.shape=[1e3, 50000]", (1000, 50000)),
        ("data.shape=1000,50000", (1000, 50000)),
        ("filter.maf=0", 0.0),
        ("engine.memory_limit=2GB", "2GB"),
        ("engine.memory_limit=1.5 GiB", "1.5 GiB"),
        ("engine.memory_limit=2000000000", 2000000000),
        ("engine.memory_limit=2e9", 2000000000),
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
    text = BASE + f"engine:\n  kind: slurm\n  workers: 2\n  memory_limit: 4GB\n  walltime: {time}\n"
    assert read(text).engine.walltime == time.strip("'")


def test_the_trap_of_wall_times_is_there(read):
    """PyYAML takes hours without a leading zero for numbers in base 60; here they are what was written."""
    assert yaml.safe_load("12:00:00") == 43200
    assert read(BASE, SLURM, "engine.walltime=12:00:00").engine.walltime == "12:00:00"


def test_lines_of_shell_are_a_list_or_text(read):
    engine = "engine:\n  kind: pbs\n  workers: 2\n  memory_limit: 4GB\n"
    listed_lines = read(BASE + engine + "  prologue:\n    - module load x\n    - cd y\n  directives: [-V]\n").engine
    text = read(BASE + engine + "  prologue: |\n    module load x\n\n    cd y\n  directives: -V\n").engine
    assert listed_lines == text
    assert text.prologue == ("module load x", "cd y")
    assert text.directives == ("-V",)


def test_jobs_have_one_thread_unless_given(read):
    expected = JobQueue(kind="slurm", workers=3, memory_limit="4GB", threads=1, walltime="01:00:00")
    assert read(BASE, SLURM).engine == expected


def test_settings_go_before_the_file_and_later_ones_before_earlier(read):
    text = BASE + "engine: {threads: 2, memory_limit: 1GB}\n"
    config = read(text, "engine.threads=3", "engine.threads=4", "model.tol=0.1")
    assert (config.engine.threads, config.engine.memory_limit, config.model.tol) == (4, "1GB", 0.1)


def test_a_block_set_as_a_whole_leaves_nothing_of_the_file(read):
    config = read(BASE + "engine: {threads: 2}\n", "engine={memory_limit: 1GB}")
    assert config.engine == Threads(memory_limit="1GB")


def test_settings_alone_can_fill_a_block(read):
    config = read("output: {path: b}\n", "data.path=a", "model.kind=kpca", "model.kernel=poly")
    assert (config.data.path, config.kind.name, config.model.kernel) == ("a", "kpca", "poly")


def test_anchors_marks_and_other_line_ends_are_read(tmp_path):
    file = tmp_path / "x.yaml"
    text = "data: &same {path: ä.zarr}\r\nmodel: {kind: pca}\r\noutput: *same\r\n"
    file.write_bytes(text.encode("utf-8-sig"))
    config = load(file)
    assert config.data.path == config.output.path == "ä.zarr"


def test_nothing_changes_afterwards(read):
    config = read(BASE)
    with pytest.raises(AttributeError, match="frozen"):
        config.model.tol = 0.5
    assert hash(config) == hash(read(BASE))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        # keys
        ("model.tl=3", "unknown key model.tl; did you mean tol?"),
        ("filter.exclude-regions=x", "unknown key filter.exclude-regions; did you mean exclude_regions?"),
        ("model.kernel=rbf", "unknown key model.kernel; kernel is an option of kpca; model.kind is pca"),
        ("model.memory=2GB", "unknown key model.memory; did you mean memory_limit? memory_limit belongs in engine"),
        ("engine.queue=x", "queue is an option of slurm, pbs, sge or lsf; engine.kind is threads"),
        ("engine.tls_ca_fil=x", "did you mean tls_ca_file? tls_ca_file is an option of address; engine.kind is"),
        ("path=x", "unknown block path; path is a key of data or output"),
        ("enginee.kind=slurm", "unknown block enginee; did you mean engine?"),
        ("output.zzz=1", "unknown key output.zzz; use path, overwrite, export, report, labels or work"),
        # kinds
        ("engine.kind=slrm", "processes, address, slurm, pbs, sge or lsf, got 'slrm' (did you mean slurm?)"),
        ("model.kind=PCA", f"model.kind must be {KINDS}, got 'PCA' (did you mean pca?)"),
        ("model.kind=", f"model.kind must be {KINDS}, got null"),
        ("model={tol: 0.1}", f"model.kind is missing; use {KINDS}"),
        ("engine=slurm", "engine must be a block of keys, as engine: {kind: slurm}, got 'slurm'"),
        ("output=[1, 2]", "output must be a block of keys, as output: {...}, got [1, 2]"),
        # values
        ("model.solver=krilov", "must be auto, covariance, gram, krylov or power, got 'krilov' (did you mean krylov?)"),
        ("model.tol=small", "model.tol must be a number between 0 and 1, got 'small'"),
        ("model.tol=nan", "model.tol must be a number between 0 and 1, got 'nan'"),
        ("model.tol=1", "model.tol must be a number between 0 and 1, got '1'"),
        ("model.tol=", "model.tol must be a number between 0 and 1, got null"),
        ("model.tol.x=1", "model.tol must be a number between 0 and 1, got a block"),
        ("model.n_components=1.5", "must be an integer >= 1, a number between 0 and 1 or all, got '1.5'"),
        ("model.n_components=0", "must be an integer >= 1, a number between 0 and 1 or all, got '0'"),
        ("model.n_components=auto", "must be an integer >= 1, a number between 0 and 1 or all, got 'auto'"),
        ("model.random_state=true", "model.random_state must be an integer >= 0, got 'true'"),
        ("filter.outliers=no", "filter.outliers must be report or remove, got 'no'"),
        ("filter.maf=0.7", "filter.maf must be a number from 0 to 0.5, got '0.7'"),
        ("filter.geno=-1", "filter.geno must be a number from 0 to 1, got '-1'"),
        ("data.path=", "data.path must be text such as data.zarr, got null"),
        ("data.path=''", "data.path must be text such as data.zarr, got ''"),
        ("data.path=[a]", "data.path must be text such as data.zarr, got [a]"),
        ("data.shape=3", "data.shape must be two integers, as [1000, 50000], got '3'"),
        ("data.shape=[3, 4, 5]", "data.shape must be two integers, as [1000, 50000], got [3, 4, 5]"),
        ("data.shape=[[3], 4]", "data.shape must be two integers, as [1000, 50000], got a list"),
        ("data.sample_dims=[]", "data.sample_dims must be a list, as [a, b] or text, got []"),
        ("filter.all_chromosomes=maybe", "filter.all_chromosomes must be true or false, got 'maybe'"),
        ("engine.memory_limit=lots", "engine.memory_limit must be an integer >= 1 or text such as 2GB, got 'lots'"),
        ("engine.memory_limit=0", "engine.memory_limit must be an integer >= 1 or text such as 2GB, got '0'"),
        ("engine.memory_limit=0GB", "engine.memory_limit must be an integer >= 1 or text such as 2GB, got '0GB'"),
        ("engine.checkpoint_minutes=0", "engine.checkpoint_minutes must be a number > 0, got '0'"),
        ("engine={kind: processes, workers: 0}", "engine.workers must be an integer >= 1, got '0'"),
        ("engine={kind: address}", "engine.address is missing; add it: Address of the scheduler."),
        ("engine={kind: address, address: host:1}", "must be text such as tcp://host:8786 or tls://host:8786"),
        # together
        ("model.missing=model", "model.missing must be auto, error, mean or lsq, got 'model'"),
        ("output.path=s3://bucket/x", "output.work is missing; the output is a URL: add a local directory"),
        ("engine={kind: address, address: 'tls://h:1'}", "engine.tls_ca_file is missing; TLS needs"),
        # the setting itself
        ("model.tol", "expected KEY=VALUE, as --set model.tol=1e-6"),
        ("=3", "expected KEY=VALUE, as --set model.tol=1e-6"),
        ("model..tol=3", "expected KEY=VALUE, as --set model.tol=1e-6"),
        ("data.path=*x", "cannot be read (found undefined alias 'x'); put the value in quotes"),
        ("data.path=[a", "put the value in quotes"),
        ("data.path=!secret x", "unknown tag !secret; write the value without it"),
        ("data.path=a\x01", "cannot be read (character 0x1 is not allowed)"),
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
        ("", "run.yaml:1: the file is empty; `streampca config new pca` prints a configuration"),
        ("# nothing\n", "run.yaml:1: the file is empty; `streampca config new pca` prints a configuration"),
        ("\n\n- a\n- b\n", "run.yaml:3: expected the blocks data, filter, model, engine and output, got [a, b]"),
        ("run\n", "run.yaml:1: expected the blocks data, filter, model, engine and output, got 'run'"),
        ("data:\n\tpath: x\n", "run.yaml:2: cannot be read (found character '\\t'"),
        ("data:\n\tpath: x\n", "indent by spaces, not by tabs"),
        ("data:\n  path: a: b\n", "run.yaml:2: cannot be read (mapping values are not allowed here)"),
        ("data:\n  path: *.bed\n", "run.yaml:2: cannot be read"),
        ("data:\n  path: *.bed\n", "put text that begins with * in quotes"),
        ("data: {path: a\nmodel: 3\n", "check the indentation, brackets and quotes there and in the line before"),
        ("data: 'a\n", "run.yaml:2: cannot be read"),
        (BASE + "---\ndata: {}\n", "run.yaml:7: cannot be read (more than one document); keep one document"),
        (BASE + "model: {kind: pca}\n", "run.yaml:7: model is given twice, first at run.yaml:3; remove one"),
        (BASE + "  path: c\n", "run.yaml:7: output.path is given twice, first at run.yaml:6; remove one"),
        (BASE + "engine: &x [*x]\n", "run.yaml:7: engine contains itself; write it out"),
        (BASE + "engine: &x {memory_limit: {a: *x}}\n", "engine.memory_limit.a contains itself; write it out"),
        (BASE + "? [a, b]\n: 3\n", "run.yaml:7: a key must be a word, not a list or a block; put braces in quotes"),
        (BASE + "engine: {{ x }}\n", "run.yaml:7: a key must be a word, not a list or a block; put braces in quotes"),
        (BASE + "engine: !gpu {}\n", "run.yaml:7: unknown tag !gpu; write the value without it"),
        ("[" * 5000, "run.yaml:1: cannot be read (too many nested brackets); remove them"),
        ("data:\n  path: x\x00\n", "run.yaml:2: cannot be read (character 0x0 is not allowed); remove it"),
        (BASE.replace("path: a", "pth: a"), "run.yaml:2: unknown key data.pth; did you mean path?"),
        (BASE.replace("data", "dta", 1), "run.yaml:1: unknown block dta; did you mean data?"),
        (BASE.replace("  path: a.zarr\n", ""), "run.yaml:1: data.path is missing; add it: File, store or URL"),
        (BASE.replace("  path: a.zarr\n", "  variable: x\n"), "run.yaml:1: data.path is missing"),
        (BASE.replace("  path: b.zarr\n", ""), "run.yaml:5: output.path is missing"),
        ("model: {kind: pca}\noutput: {path: b}\n", "run.yaml:1: the block data is missing; add it, with path"),
        ("data: {path: a}\noutput: {path: b}\n", "run.yaml:1: the block model is missing; add it, with kind"),
        (BASE.replace("pca", "pca\n  tol: 2"), "run.yaml:5: model.tol must be a number between 0 and 1, got '2'"),
        (BASE + "engine: {kind: slurm, workers: 2}\n", "run.yaml:7: engine.memory_limit is missing; add it: Memory"),
        (BASE + "engine:\n  <<: {memory_limit: 2GB}\n", "run.yaml:8: unknown key engine.<<; use memory_limit, threads"),
        (BASE + '"a\\nb": 3\n', "run.yaml:7: unknown block a b; use data, filter, model, engine or output"),
    ],
)  # fmt: skip
def test_a_file_is_refused_with_the_line_and_the_cure(refused, text, message):
    assert message in refused(text)


def test_several_problems_are_counted_and_named(refused):
    text = BASE.replace("pca", "pca\n  tol: 2\n  tool: 3\n  random_state: x")
    assert refused(text) == (
        "run.yaml:6: unknown key model.tool; did you mean tol? (and 2 more: model.tol, model.random_state)"
    )
    assert refused("data:\nmodel:\noutput:\n").endswith("(and 2 more: model.kind, output.path)")
    assert "more" not in refused(BASE.replace("path: a", "pth: a"))
    many = "data: {path: a}\nfilter: {maf: 2, geno: 2, mind: 2, outliers: x}\nmodel: {kind: y}\noutput: {}\n"
    assert refused(many).endswith("(and 5 more: filter.geno, filter.mind, filter.outliers, model.kind, ...)")


def test_the_place_is_that_of_the_invalid_value(refused):
    text = BASE.replace("pca", "kpca\n  kernel: rbf")
    assert refused(text, "model.kind=pca").startswith(
        "run.yaml:5: unknown key model.kernel; kernel is an option of kpca"
    )
    assert refused(text, "model.kernel=rbff").startswith("--set model.kernel=rbff: model.kernel must be ")
    both = refused(text + "engine: {memory_limit: x}\n", "engine={threads: x}")
    assert both.startswith("--set engine={threads: x}: ")
    assert refused(BASE + "engine: slurm\n", "engine.workers=2") == (
        "--set engine.workers=2: engine is 'slurm', which has no keys; set the whole block"
    )
    # The required keys of another kind are missing because of the setting.
    assert refused(BASE, "engine.kind=slurm").startswith("--set engine.kind=slurm: engine.")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("ppca", ["model.missing=mean"], "model.missing must be model or error, got 'mean'"),
        ("factor_analysis", ["model.missing=mean"], "model.missing must be model or error, got 'mean'"),
        ("factor_analysis", ["model.method=closed"], "model.method must be auto or em, got 'closed'"),
        ("factor_analysis", ["model.criterion=bic"], "model.criterion must be auto or heldout, got 'bic'"),
        ("factor_analysis", ["output.export=plink"], "'plink' is not available for factor_analysis; use tsv"),
        ("ppca", ["model.scale=coslat"], "model.scale must be auto, none, unit or patterson, got 'coslat'"),
        ("pca", ["output.labels=pops.tsv"], "output.labels needs output.report; add it, or remove output.labels"),
        ("kpca", ["model.missing=model"], "model.missing must be error or mean, got 'model'"),
        ("kpca", ["model.scale=patterson"], "model.scale must be none or unit, got 'patterson'"),
        ("kpca", ["filter.maf=0"], "filter.maf is for genotypes; kpca reads arrays: remove it"),
        ("ppca", ["filter.unrelated=0.1"], "filter.unrelated is not available for ppca; use pca, or remove it"),
        ("dual", ["filter.outliers=report"], "filter.outliers is not available for dual; use factor_analysis, pca or"),
        ("kpca", ["filter.all_chromosomes=yes"], "filter.all_chromosomes is for genotypes"),
        ("kpca", ["output.export=tsv"], "output.export 'tsv' is not available for kpca; remove it"),
        ("kpca", ["model.n_landmarks=1"], "model.n_landmarks must be an integer >= 2 or auto, got '1'"),
        ("kpca", ["model.gamma=-1"], "model.gamma must be a number > 0, scale, median or features, got '-1'"),
        ("kpca", ["model.tol=0.1"], "tol is an option of dual, factor_analysis, mixture, pca,"),
    ],
)  # fmt: skip
def test_what_a_model_cannot_do_is_refused(refused, kind, settings, message):
    assert message in refused(BASE.replace("pca", kind), *settings)


TLS = "tls_ca_file: a, tls_cert_file: b, tls_key_file: c"


def test_tls_takes_all_files_and_its_protocol(read, refused):
    engine = read(BASE, f"engine={{kind: address, address: 'tls://h:1', {TLS}}}").engine
    assert (engine.tls_ca_file, engine.tls_cert_file, engine.tls_key_file) == ("a", "b", "c")
    found = refused(BASE, f"engine={{kind: address, address: 'tcp://h:1', {TLS}}}")
    assert "engine.address must be tls://host:8786 with TLS, got 'tcp://h:1'" in found
    some = refused(BASE, "engine={kind: address, address: 'tls://h:1', tls_ca_file: a, tls_key_file: c}")
    assert "engine.tls_cert_file is missing; TLS needs tls_ca_file, tls_cert_file and tls_key_file" in some


@pytest.mark.parametrize("time", ["90", "01:00", "1:60:00", "01:00:60", "1 hour", "-1:00:00", "1-1:00"])
def test_what_is_no_wall_time_is_refused(refused, time):
    message = refused(BASE, f"engine={{kind: slurm, workers: 2, memory_limit: 4GB, walltime: '{time}'}}")
    assert f"engine.walltime must be text such as 01:30:00 or 2-00:00:00, got '{time}'" in message


@pytest.mark.parametrize(("kind", "fits"), [("slurm", True), ("lsf", True), ("pbs", False), ("sge", False)])
def test_days_are_for_queues_that_know_them(read, refused, kind, fits):
    setting = f"engine={{kind: {kind}, workers: 2, memory_limit: 4GB, walltime: 2-00:00:00}}"
    if fits:
        assert read(BASE, setting).engine.walltime == "2-00:00:00"
    else:
        assert f"engine.walltime must be hours for {kind}, as 48:00:00, got '2-00:00:00'" in refused(BASE, setting)


CLUSTER = """\
data: {path: x.npy}
model: {kind: pca}
engine: {kind: slurm, workers: 4, memory_limit: 2GB, walltime: "01:00:00", threads: 2}
output: {path: y.zarr}
"""


def test_a_configuration_of_a_cluster_is_tried_on_threads(tmp_path):
    (tmp_path / "c.yaml").write_text(CLUSTER)
    assert load(tmp_path / "c.yaml").engine.workers == 4
    engine = load(tmp_path / "c.yaml", ["engine.kind=threads"]).engine
    assert (engine.kind, engine.threads, str(engine.memory_limit)) == ("threads", 2, "2GB")
    # What the command line itself sets is checked as ever.
    with pytest.raises(InputError, match="unknown key engine.workers; workers is an option of"):
        load(tmp_path / "c.yaml", ["engine.kind=threads", "engine.workers=3"])
    (tmp_path / "c.yaml").write_text(CLUSTER.replace("slurm", "threads"))
    with pytest.raises(InputError, match="c.yaml:3: unknown key engine.workers"):
        load(tmp_path / "c.yaml")


def test_a_new_configuration_has_the_paths_that_are_given(tmp_path, here):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    code, out, err = here("config", "new", "pca", "x.npy", "--out", "x.yaml")
    assert (code, out, err) == (0, "configuration: x.yaml\n", "")
    assert here("run", "x.yaml", "-q")[0] == 0
    assert (tmp_path / "x.pca.zarr").exists()
    assert "path: other.zarr" in here("config", "new", "pca", "x.npy", "--result", "other.zarr")[1]


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("genotypes.yaml").write_text(BASE)
    Path("latin.yaml").write_bytes(b"data:\n  path: gr\xfcn.zarr\n")
    Path("wide.yaml").write_bytes(BASE.encode("utf-16"))
    for name, message in {
        "genotype.yaml": "genotype.yaml: no such file; did you mean genotypes.yaml?",
        "other/x.yaml": "other/x.yaml: no such file; `streampca config new pca` prints a configuration",
        ".": ".: is a directory; use a YAML file",
        "latin.yaml": "latin.yaml:2: is not UTF-8 text; save it as UTF-8",
        "wide.yaml": "wide.yaml:1: is not UTF-8 text; save it as UTF-8",
    }.items():
        with pytest.raises(InputError) as caught:
            load(name)
        assert str(caught.value) == message


def test_a_long_value_is_cut_in_the_message(refused):
    assert len(refused(BASE.replace("pca", f"pca\n  tol: {'x' * 5000}"))) < 200


def test_a_setting_of_many_lines_is_refused_in_one(refused):
    assert refused(BASE, "model.tol=a\n  b").startswith(
        "--set model.tol=a b: model.tol must be a number between 0 and 1, got 'a b'"
    )


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
    fragments = model.schema()["properties"]
    needed = {key: values_of(fragments[key]) for key, field in model.fields.items() if field.required}
    free = {key: values_of(fragment) for key, fragment in fragments.items() if key not in needed | fixed}
    return st.fixed_dictionaries(needed | {key: st.just(value) for key, value in fixed.items()}, optional=free)


@st.composite
def configs(draw):
    """Any configuration whose keys are valid together."""
    kind, engine_kind = draw(st.sampled_from(kind_names())), draw(st.sampled_from(list(ENGINES)))
    blocks = {
        "data": draw(block_of(Data)),
        "model": draw(block_of(MODELS[kind])),
        "engine": draw(block_of(ENGINES[engine_kind], kind=engine_kind)),
        "output": draw(block_of(Output, work="here", export=None, report="page.html")),
    }
    model, engine = blocks["model"], blocks["engine"]
    if kind_of(kind).genotypes:
        absent = {"outliers": kind_of(kind).outliers, "unrelated": kind_of(kind).relatives}
        blocks["filter"] = draw(block_of(Filter, **{name: None for name, known in absent.items() if not known}))
    if model.get("gamma") == "median" and model.get("kernel") in ("poly", "sigmoid"):
        del model["gamma"]
    if model.get("landmarks") == "fourier":
        del model["landmarks"]
    if engine_kind == "address":
        engine = {key: value for key, value in engine.items() if not key.startswith("tls")}
        blocks["engine"] = engine | {"address": "tcp://host:8786"}
    if engine_kind in ("pbs", "sge") and "walltime" in engine:
        engine["walltime"] = engine["walltime"].rpartition("-")[2]
    return build(blocks | {"model": {"kind": kind, **model}})


@given(config=configs(), flow=st.sampled_from([True, False, None]))
def test_any_configuration_written_as_yaml_is_read_as_it_was(config, flow, tmp_path):
    file = tmp_path / "any.yaml"
    file.write_text(yaml.safe_dump(config.as_dict(), default_flow_style=flow), encoding="utf-8")
    assert load(file) == config


@given(config=configs())
def test_any_configuration_given_as_settings_is_the_same_and_unchanged(config, tmp_path):
    blocks = config.as_dict()
    file = tmp_path / "any.yaml"
    file.write_text("engine:\n")
    flow = {block: yaml.safe_dump(keys, default_flow_style=True, width=10**6) for block, keys in blocks.items()}
    assert load(file, [f"{block}={keys}" for block, keys in flow.items()]) == config
    assert differences(blocks, blocks) == []


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
    assert found["required"] == ["data", "model", "output"]
    assert found["additionalProperties"] is False
    records = [part for block in found["properties"].values() for part in block.get("oneOf", [block])]
    assert len(records) == 3 + len(MODELS) + len(set(ENGINES.values()))
    for record in records:
        assert record["additionalProperties"] is False, record["title"]
        for key, field in record["properties"].items():
            assert re.fullmatch(r"[^\n]+\.", field["description"]), (record["title"], key)
    kinds = [record["properties"]["kind"]["const"] for record in found["properties"]["model"]["oneOf"]]
    assert kinds == list(kind_names())
    json.dumps(found)


def uncommented(text):
    """Take the # off every line that is a key."""
    return re.sub(r"(?m)^  # (\w+: )", r"  \1", text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", MODELS)
def test_starters_load_as_they_are_and_with_every_line(read, kind, engine):
    text = starter(kind, engine)
    config = read(text)
    assert (config.kind.name, config.engine.kind) == (kind, engine)
    full = uncommented(text)
    assert read(full) == config
    assert not re.search(r"(?m)^\s+#", full)
    tree = yaml.safe_load(full)
    assert set(tree["model"]) == {"kind", *MODELS[kind].fields}
    assert set(tree["engine"]) == set(ENGINES[engine].fields)
    assert set(tree["output"]) == set(Output.fields)
    assert set(tree["data"]) == set(Data.fields)
    assert set(tree.get("filter", ())) == (set(Filter.fields) if kind_of(kind).genotypes else set())


def test_starters_say_what_may_be_chosen():
    text = starter("ppca")
    assert re.search(r"# solver: auto +# .*\[auto, covariance, gram, krylov, power\]", text)
    assert re.search(r"# method: auto +# .*\[auto, closed, em\]", text)
    assert "kinds: threads, processes, address, slurm, pbs, sge or lsf" in text
    with pytest.raises(InputError, match=f"unknown kind of model 'svd'; use {KINDS}"):
        starter("svd")
    with pytest.raises(InputError, match="engine must be threads, processes, .* got 'gpu'"):
        starter("pca", "gpu")


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_files_that_come_along_load_and_say_how_to_run_them(file, tmp_path):
    config = load(file)
    text = file.read_text()
    assert text.startswith("# ")
    assert f"streampca run configs/{file.name} --set data.path=" in text
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
    kinds = {load(file).kind.name for file in CONFIGS}
    assert kinds >= {"pca", "ppca", "kpca"}
    slurm = next(file for file in CONFIGS if file.stem == "genotypes-slurm")
    assert load(slurm).engine.walltime == "04:00:00"
    missing = next(file for file in CONFIGS if file.stem == "ppca-missing")
    assert load(missing, ["model.kind=factor_analysis"]).model.tol == 1e-3


@pytest.mark.parametrize("kind", MODELS)
def test_flags_are_the_keys_of_the_configuration(kind):
    command = cli.get_command(None, kind)
    records = {"model": MODELS[kind], "data": Data, "output": Output, "engine": Threads}
    records |= {"filter": Filter} if kind_of(kind).genotypes else {}
    flags = {name: option.opts for option in command.params for name in [option.name] if "__" in name}
    # Given by arguments, or in configurations only.
    elsewhere = {"data__path", "data__shape", "output__path", "output__work", "engine__kind"}
    elsewhere |= {"engine__checkpoint_minutes"}
    keys = {f"{block}__{key}" for block, record in records.items() for key in record.fields} - elsewhere
    if not kind_of(kind).exports:
        keys -= {"output__export"}
    assert set(flags) == keys
    for name, opts in flags.items():
        assert opts[0] == flag(name.partition("__")[2])
    # Flags that are not given are the defaults of the record.
    needed = ["--target", "t.tsv:y"] if kind == "pcr" else []
    given = command.make_context(kind, ["data.zarr", *needed]).params
    assert {name for name, value in given.items() if "__" in name and value is not None} == (
        {"model__target"} if needed else set()
    )


# ---------------------------------------------------------------- differences


def dump_of(read, *settings):
    return read(BASE, *settings).as_dict()


def test_differences_are_listed_key_by_key(read):
    old = dump_of(read, "model.n_components=10")
    assert differences(old, dump_of(read, "model.n_components=20")) == ["model.n_components was 10, is 20"]
    assert differences(old, dump_of(read)) == ["model.n_components was 10, is null"]
    new = dump_of(
        read, "model.n_components=10", "data.sample_dims=[a, b]", "engine.memory_limit=2GB", "output.export=tsv"
    )
    assert differences(old, new) == [
        'data.sample_dims was null, is ["a", "b"]',
        "engine.memory_limit was null, is 2GB",
        "output.export was null, is tsv",
    ]


def test_another_kind_is_one_difference(read):
    assert differences(dump_of(read), dump_of(read, "model={kind: kpca}")) == ["model.kind was pca, is kpca"]


def test_engine_and_overwrite_may_change_but_not_the_memory_limit(read):
    old = dump_of(read, "engine.memory_limit=4GB")
    assert differences(old, dump_of(read, SLURM, "output.overwrite=true")) == []
    assert differences(old, dump_of(read, "engine={kind: processes, workers: 2, memory_limit: 4GB}")) == []
    changed = dump_of(read, SLURM, "engine.memory_limit=5GB")
    assert differences(old, changed) == ["engine.memory_limit was 4GB, is 5GB"]


def test_keys_of_other_versions_are_differences(read):
    old, new = dump_of(read), dump_of(read)
    del old["model"]["tol"]
    old["model"]["gone"] = True
    assert differences(old, new) == ["model.gone was true, is missing", "model.tol was missing, is 0.001"]


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
    assert str(nowhere.exception).endswith(f"the directory {tmp_path / 'no'} does not exist; create it first")
    assert run(config_command, ["new", "svd"]).exit_code == 2


def test_literals_of_kinds_are_all_reachable():
    assert [*get_args(JobQueue.fields["kind"].annotation)] == ["slurm", "pbs", "sge", "lsf"]
    assert list(schema()["properties"]) == list(BLOCKS)
