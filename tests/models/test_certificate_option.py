"""The option `certificate`, from Python, the command line and configurations to stores, tables, pages and figures."""

from __future__ import annotations

import json
import math
import shlex

import matplotlib
import numpy as np
import pytest
import zarr
from helpers import CountingSource
from killing import write_config
from report_helpers import Page

import streampca
from streampca import PCA, PCR, PPCA, InputError, KernelPCA
from streampca.models.pca.record import PCAFit
from streampca.models.ppca.record import PPCAFit
from streampca.report import draw_figure, write_report
from streampca.report.provenance import command_of, facts_of
from streampca.results.methods import methods_of
from streampca.run.config import load as load_config
from streampca.run.config import schema, starter
from streampca.solvers.certificate import MARGIN, PROBES

# What users give, and what comes of it with float32 tiles and block Lanczos.
METHODS = {True: "probe", "exact": "exact", False: "none"}
FLAGS = {True: [], "exact": ["--certificate", "exact"], False: ["--certificate", "false"]}
ESTIMATES = "estimates: rounding is not included"
MODELLED = "certificates: rounding was modelled, not measured (version 0.7)"
all_values = pytest.mark.parametrize("certificate", METHODS)


def sample(dtype="f4"):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) @ (rng.normal(size=(3, 40)) * [[9], [5], [3]]) + rng.normal(size=(300, 40))
    return X.astype(dtype)


def fitted(certificate=True):
    model = PCA(3, solver="krylov", certificate=certificate)
    model.fit_transform(sample())
    return model


def name_of(certificate):
    return "estimate" if certificate is False else "certificate"


def as_by_version_07(path):
    """Remove from a store what version 0.7 did not write."""
    root = json.loads((path / "zarr.json").read_text())
    del root["attributes"]["certificate_method"]
    (path / "zarr.json").write_text(json.dumps(root))


@pytest.fixture
def data(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=sample(), chunks=(64, 40))


@pytest.fixture
def stored(tmp_path, data, here):  # noqa: ARG001
    """Return the path of a result that the command made."""

    def make(certificate=True, *more):
        code, _, err = here(
            "pca", "x.zarr", "-k", 3, "--solver", "krylov", "--out", "r.zarr", "--quiet", *FLAGS[certificate], *more
        )
        assert code == 0, err
        return tmp_path / "r.zarr"

    return make


# ---------------------------------------------------------------- Python


@all_values
def test_each_value_gives_its_own_method(certificate):
    model = fitted(certificate)
    assert model.certificate_method_ == METHODS[certificate]
    assert hasattr(model, "estimate_") == (certificate is False)
    assert hasattr(model, "certificate_") == (certificate is not False)
    assert model.converged_
    assert (getattr(model, f"{name_of(certificate)}_") <= model.tol).all()


def test_certificates_are_above_estimates():
    estimate = fitted(False).estimate_
    assert (fitted(True).certificate_ > estimate).all()
    assert (fitted("exact").certificate_ > estimate).all()


@pytest.mark.parametrize("certificate", ["probe", "", None, 0.5, 2, ["exact"]])
def test_other_values_are_rejected_before_reading(certificate):
    source = CountingSource(sample(), (64, 40))
    with pytest.raises(InputError, match="certificate must be true, false or exact, got "):
        PCA(3, certificate=certificate).fit(source)
    assert source.reads == []


def test_a_refit_leaves_no_attribute_of_the_fit_before():
    model = fitted(True)
    model.set_params(certificate=False).fit(sample())
    assert hasattr(model, "estimate_")
    assert not hasattr(model, "certificate_")
    model.set_params(certificate="exact").fit(sample())
    assert hasattr(model, "certificate_")
    assert not hasattr(model, "estimate_")
    assert model.certificate_method_ == "exact"


def test_float64_data_are_certified_without_asking():
    model = PCA(3, certificate=False).fit(sample("f8"))
    assert model.certificate_method_ == "exact"
    assert not hasattr(model, "estimate_")


def test_estimates_decide_convergence_where_there_is_no_certificate():
    model = PCA(3, solver="covariance", tol=1e-5, certificate=False).fit(sample())
    assert (model.certificate_method_, model.result_.attrs["tile_dtype"]) == ("none", "float32")
    assert model.converged_
    # A tighter tolerance takes float64 products, whose certificates cost nothing.
    tight = PCA(3, solver="covariance", tol=1e-9, certificate=False).fit(sample())
    assert (tight.certificate_method_, tight.result_.attrs["tile_dtype"]) == ("exact", "float64")


def test_batches_and_merged_fits_say_how_they_were_certified():
    X = sample("f8")
    model = PCA(3).partial_fit(X[:150]).partial_fit(X[150:])
    assert model.certificate_method_ == "exact"
    assert PCA(3).fit(X[:150]).merge(PCA(3).fit(X[150:])).certificate_method_ == "exact"


def test_accumulators_of_version_07_give_estimates():
    accumulator = PCA(3).partial_fit(sample("f8")).accumulator_
    del accumulator.attrs["chain"]
    model = PCA.from_accumulator(accumulator, n_components=3)
    assert model.certificate_method_ == "none"
    assert hasattr(model, "estimate_")
    assert not hasattr(model, "certificate_")
    assert model.result_.attrs["certificate_method"] == "none"


# ---------------------------------------------------------------- commands and configurations


@pytest.mark.parametrize("command", ["ppca", "kpca", "pcr"])
def test_other_models_have_no_such_flag(here, command):
    code, _, err = here(command, "x.zarr", "--certificate", "false")
    assert code == 2
    assert "--certificate" in err


@all_values
def test_the_command_records_the_parameter_and_how_to_repeat_it(stored, certificate):
    attributes = streampca.load(stored(certificate)).attrs
    assert json.loads(attributes["parameters"])["certificate"] == certificate
    words = shlex.split(command_of(attributes))
    place = words.index("--certificate") if "--certificate" in words else len(words)
    assert words[place : place + 2] == FLAGS[certificate]


@pytest.mark.usefixtures("data")
@all_values
def test_a_run_reads_the_key(tmp_path, here, certificate):
    # At the default tolerance, rounding of the last component is close to it, and float64 products may be needed.
    model = {"solver": "krylov", "certificate": certificate, "tol": 1e-2}
    config = write_config(tmp_path / "run.yaml", tmp_path / "x.zarr", tmp_path / "o.zarr", model=model)
    code, out, err = here("run", config, "--json", "--quiet")
    assert code == 0, err
    said = json.loads(out)
    assert said["certificate_method"] == METHODS[certificate]
    assert len(said[name_of(certificate)]) == 4
    assert json.loads(streampca.load(tmp_path / "o.zarr").attrs["parameters"])["certificate"] == certificate


@pytest.mark.parametrize(("text", "value"), [("true", True), ("exact", "exact"), ("false", False), ("no", False)])
def test_the_key_takes_true_exact_and_false(tmp_path, text, value):
    config = load_config(write_config(tmp_path / "run.yaml", "a", "b"), [f"model.certificate={text}"])
    assert config.model.certificate == value
    assert type(config.model.certificate) is type(value)


@pytest.mark.parametrize("text", ["probe", "2", "null", "[exact]"])
def test_the_key_takes_nothing_else(tmp_path, text):
    config = write_config(tmp_path / "run.yaml", "a", "b")
    with pytest.raises(InputError, match="model.certificate must be true, false or exact, got "):
        load_config(config, [f"model.certificate={text}"])


def test_the_key_is_for_pca_alone(tmp_path):
    config = write_config(tmp_path / "run.yaml", "a", "b")
    with pytest.raises(InputError, match="certificate is an option of pca; model.kind is ppca"):
        load_config(config, ["model.kind=ppca", "model.certificate=exact"])


def _keys(schema, name):
    """All descriptions of a key in a JSON schema."""
    parts = list(schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ())
    own = [schema["properties"][name]] if isinstance(schema, dict) and name in schema.get("properties", {}) else []
    return own + [key for part in parts for key in _keys(part, name)]


def test_schema_and_starter_have_the_key():
    (key,) = _keys(schema(), "certificate")
    assert key["default"] is True
    assert [part.get("type") for part in key["anyOf"]] == ["boolean", "string"]
    (line,) = [line for line in starter("pca").splitlines() if "# certificate:" in line]
    assert line.split()[:3] == ["#", "certificate:", "true"]
    assert line.endswith("[true, false, exact]")
    assert "certificate:" not in starter("ppca")


# ---------------------------------------------------------------- stores


@all_values
def test_a_store_has_the_array_and_the_method(stored, certificate):
    result, name = streampca.load(stored(certificate)), name_of(certificate)
    (other,) = {"certificate", "estimate"} - {name}
    assert result[name].dims == ("component",)
    assert other not in result
    assert result.attrs["certificate_method"] == METHODS[certificate]
    assert ("bound on" if certificate else "estimate of") in result[name].attrs["long_name"]
    found = PCAFit.from_dataset(result)
    assert found.certificate_method == METHODS[certificate]
    np.testing.assert_array_equal(found.error, result[name])


def test_a_result_of_version_07_is_opened_and_called_modelled(stored):
    path = stored()
    before = streampca.load(path)["certificate"].values
    as_by_version_07(path)
    result = streampca.load(path)
    np.testing.assert_array_equal(result["certificate"], before)
    found = PCAFit.from_dataset(result)
    assert found.certificate_method == "modelled"
    np.testing.assert_array_equal(found.certificate, before)


@all_values
def test_a_result_of_either_kind_can_be_applied(stored, here, certificate):
    path = stored(certificate)
    assert here("project", path, "x.zarr", "--out", "s.zarr", "--quiet")[0] == 0
    assert here("denoise", path, "x.zarr", "--out", "d.zarr", "--quiet")[0] == 0


@pytest.mark.parametrize("method", ["none", "guess", 3])
def test_a_store_whose_method_is_not_that_of_its_array_is_rejected(stored, method):
    path = stored()
    root = json.loads((path / "zarr.json").read_text())
    root["attributes"]["certificate_method"] = method
    (path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(InputError, match="certificate_method"):
        streampca.load(path)


def test_estimates_are_not_taken_for_certificates_of_version_07(stored):
    path = stored(False)
    as_by_version_07(path)
    with pytest.raises(InputError, match="is damaged, it has estimate"):
        streampca.load(path)


def test_other_models_record_how_their_components_were_certified(tmp_path):
    X = sample("f8")
    closed = PPCA(2).fit(X).result_
    assert closed.attrs["certificate_method"] == "exact"
    assert PCR(2).fit(X, X[:, 0]).result_.attrs["certificate_method"] == "exact"
    assert "certificate_method" not in PPCA(2, method="em").fit(X).result_.attrs
    assert "certificate_method" not in KernelPCA(2, n_landmarks=20).fit(X).result_.attrs
    closed.to_zarr(tmp_path / "p.zarr", consolidated=False)
    assert PPCAFit.from_dataset(streampca.load(tmp_path / "p.zarr")).certificate_method == "exact"
    as_by_version_07(tmp_path / "p.zarr")
    assert PPCAFit.from_dataset(streampca.load(tmp_path / "p.zarr")).certificate_method == "modelled"


@all_values
def test_exports_have_the_column_that_exists(stored, tmp_path, certificate):
    stored(certificate, "--export", "tsv")
    header = (tmp_path / "r.components.tsv").read_text().splitlines()[0].split("\t")
    assert header == ["PC", "explained_variance", "explained_variance_ratio", name_of(certificate)]


# ---------------------------------------------------------------- what is shown


@all_values
def test_the_table_is_headed_by_what_it_shows(here, stored, certificate):
    lines = here("info", stored(certificate))[1].splitlines()
    assert lines[0].split()[-2:] == [name_of(certificate), "p-value"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert [line for line in lines if "rounding" in line] == ([] if certificate else [ESTIMATES])
    if certificate is False:
        assert lines[4] == ESTIMATES


@pytest.mark.usefixtures("data")
@all_values
def test_the_fit_prints_what_is_stored(here, certificate):
    out = here("pca", "x.zarr", "-k", 3, "--solver", "krylov", "--quiet", *FLAGS[certificate])[1]
    assert here("info", "x.pca.zarr")[1] == out
    said = json.loads(here("info", "x.pca.zarr", "--json")[1])
    assert said["certificate_method"] == METHODS[certificate]
    assert {"certificate", "estimate"} & set(said) == {name_of(certificate)}
    np.testing.assert_array_equal(said[name_of(certificate)], streampca.load("x.pca.zarr")[name_of(certificate)])


def test_the_table_of_version_07_says_that_rounding_was_modelled(here, stored):
    path = stored()
    as_by_version_07(path)
    lines = here("info", path)[1].splitlines()
    assert "certificate" in lines[0].split()
    assert lines[4] == MODELLED
    said = json.loads(here("info", path, "--json")[1])
    assert said["certificate_method"] == "modelled"
    assert len(said["certificate"]) == 3


@pytest.mark.usefixtures("data")
def test_the_table_of_ppca_says_it_too(here, tmp_path):
    here("ppca", "x.zarr", "-k", 2, "--method", "closed", "--out", "p.zarr", "--quiet")
    assert MODELLED not in here("info", "p.zarr")[1]
    assert json.loads(here("info", "p.zarr", "--json")[1])["certificate_method"] == "exact"
    as_by_version_07(tmp_path / "p.zarr")
    assert here("info", "p.zarr")[1].splitlines()[3] == MODELLED
    here("ppca", "x.zarr", "-k", 2, "--method", "em", "--out", "e.zarr", "--quiet")
    assert "rounding" not in here("info", "e.zarr")[1]
    assert "certificate_method" not in json.loads(here("info", "e.zarr", "--json")[1])


SHOWN = {
    "probe": ("Certificate", "Rounding was measured with 8 random probes in double precision; a certificate is wrong "
              "with probability below 1e-11."),
    "exact": ("Certificate", "Residuals were computed in double precision."),
    "none": ("Estimate", "Rounding is not included."),
    "modelled": ("Certificate (modelled)", "Rounding was modelled, not measured (version 0.7)."),
}  # fmt: skip


def result_by(method):
    """Return a result whose errors were obtained like this."""
    result = fitted({"exact": "exact", "none": False}.get(method, True)).result_
    if method == "modelled":
        # As `load` calls results of version 0.7.
        result.attrs["certificate_method"] = "modelled"
    return result


@pytest.mark.parametrize("method", SHOWN)
def test_the_page_says_how_errors_were_obtained(tmp_path, method):
    title, sentence = SHOWN[method]
    page = Page(write_report(result_by(method), tmp_path / "r.html").read_text())
    assert title in [text for _, text in page.all("h3")]
    assert title in [text for _, text in page.all("th")]
    assert title.lower() in [text.partition(",")[0] for _, text in page.all("text")]
    assert f"largest {title.lower()}" in [text for _, text in page.all("dt")]
    assert sentence in page.text("div", id="methods-text")
    others = {sentence for _, sentence in SHOWN.values()} - {sentence}
    assert not any(other in page.text("div", id="methods-text") for other in others)
    captions = " ".join(text for _, text in page.all("figcaption"))
    assert ("Upper bound of the relative residual" in captions) == (method != "none")
    assert ("not a bound" in captions) == (method == "none")
    assert ("modelled, not measured (version 0.7)" in captions) == (method == "modelled")


def test_the_methods_text_has_the_numbers_of_the_solver():
    assert f"{PROBES} random probes" in SHOWN["probe"][1]
    # Of a standard normal variable to be below 1 / MARGIN in size, PROBES times.
    assert math.erf(1 / MARGIN / math.sqrt(2)) ** PROBES < 1e-11
    text, _ = methods_of(result_by("none"))
    assert "Estimates of the relative residuals ||S v - λ v|| / λ" in text
    assert "ertificate" not in text


@pytest.mark.parametrize("method", SHOWN)
def test_the_provenance_has_the_method(method):
    text = SHOWN[method][1].removesuffix(".")
    name = "Estimates" if method == "none" else "Certificates"
    assert (name, text[0].lower() + text[1:]) in facts_of(result_by(method).attrs)


@pytest.mark.parametrize("method", SHOWN)
@pytest.mark.parametrize("figure", ["overview", "certificates"])
def test_the_axis_of_a_printed_figure_is_named_by_what_it_shows(tmp_path, method, figure):
    # Text stays text in SVG if fonts are not drawn.
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_figure(result_by(method), figure, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert ("estimate" in text) == ("rounding not included" in text) == (method == "none")
    assert ("certificate" in text) == (method != "none")
    assert ("certificate (modelled)" in text) == (method == "modelled")
