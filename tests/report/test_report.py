"""The report page as text: it has the numbers of the result, and data never become markup."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shlex
import sys

import numpy as np
import pytest
import xarray as xr
from genotype_helpers import random_calls, write_bed
from PIL import Image
from report_helpers import HOSTILE, Page, made_result, made_table

from streampca import PCA, PCR, PPCA, DualPPCA, FactorAnalysis, InputError, KernelPCA, MixtureOfPPCA
from streampca.cli.fit import fit_command
from streampca.cli.options import configured, given_options
from streampca.report import draw_figure, loadings, samples, write_report
from streampca.report.charts import ticks
from streampca.report.images import Picture, colour_pixels, image_dims, reduced
from streampca.report.provenance import command_of
from streampca.results.kind import kind_names, kind_of
from streampca.results.methods import methods_of
from streampca.results.wording import number, percent


def page_of(result, folder, **options):
    path = write_report(result, folder / "page.html", overwrite=True, **options)
    text = path.read_bytes()
    assert text.isascii()
    return Page(text.decode())


def fitted(model, x, **options):
    """Return the result of a model, with the scores of its samples."""
    model.fit_transform(x, **options)
    return model.result_


def dots_of(page, panel):
    """Return the positions of the circles of a figure, from left to right."""
    inside, dots = False, []
    for tag, attributes, texts in page.elements:
        if tag == "figure":
            inside = "".join(texts).startswith(panel)
        elif inside and tag == "circle":
            dots.append((float(attributes["cx"]), float(attributes["cy"])))
    return np.array(sorted(dots))


def test_page_has_scores_ids_and_columns_of_the_result(tmp_path):
    result = made_result(50, 3)
    result["scores"][7, 1] = np.nan
    table = made_table(tmp_path / "t.tsv", area=["", *["b", "a"] * 24, "a"], height=["", *map(str, range(49))])
    page = page_of(result, tmp_path, table=table)
    points = page.facts["points"]
    codes = np.frombuffer(page.payload("data-scores"), "<u2").reshape(3, 50)
    for codes_of, about, true in zip(codes, points["components"], result["scores"].values.T, strict=True):
        step = (about["high"] - about["low"]) / 65534
        values = np.where(codes_of == 65535, np.nan, about["low"] + step * codes_of)
        np.testing.assert_allclose(values, true, atol=step * 0.51)
    assert page.payload("data-ids").decode().split("\n") == result["iid"].values.tolist()
    columns = {c["name"]: c for c in points["columns"]}
    # The table comes first, and its last label is what samples are coloured by.
    assert list(columns) == ["area", "height", "age", "label"]
    assert points["colour"] == "area"
    area, height = columns["area"], columns["height"]
    assert (area["kinds"], area["counts"]) == (["a", "b"], [1, 25, 24])
    assert np.frombuffer(page.payload(area["id"]), "u1").tolist() == [0, *[2, 1] * 24, 1]
    np.testing.assert_array_equal(np.frombuffer(page.payload(height["id"]), "<f8"), [np.nan, *range(49)])
    assert page_of(result, tmp_path, table=table, colour="age").facts["points"]["colour"] == "age"


def test_deviations_are_stored_to_one_percent(tmp_path):
    result = made_result(40, 3, deviations=True)
    page = page_of(result, tmp_path)
    about = page.facts["points"]["deviation"]
    codes = np.frombuffer(page.payload("data-deviations"), "u1").reshape(3, 40).astype(float)
    np.testing.assert_allclose(about["least"] * about["ratio"] ** codes, result["score_deviation"].values.T, rtol=0.01)


def test_samples_of_several_dimensions(tmp_path):
    rng = np.random.default_rng(0)
    array = xr.DataArray(
        rng.standard_normal((6, 4, 5)), dims=("year", "month", "x"),
        coords={"year": np.arange(2000, 2006), "season": ("month", ["w", "s", "s", "a"])},
    )  # fmt: skip
    result = fitted(PCA(2), array, sample_dims=("year", "month"))
    page = page_of(result, tmp_path)
    columns = {c["name"]: c for c in page.facts["points"]["columns"]}
    np.testing.assert_array_equal(
        np.frombuffer(page.payload(columns["year"]["id"]), "<f8"), np.repeat(np.arange(2000, 2006), 4)
    )
    kinds = np.array(["", *columns["season"]["kinds"]])
    assert kinds[np.frombuffer(page.payload(columns["season"]["id"]), "u1")].tolist() == ["w", "s", "s", "a"] * 6
    codes = np.frombuffer(page.payload("data-scores"), "<u2").reshape(2, 24)
    assert np.argmax(codes[0]) == np.argmax(result["scores"].values.reshape(24, 2)[:, 0])


def test_data_are_text_and_never_markup(tmp_path):
    ids = [HOSTILE, "a\nb\x00c", "{{script}}", *(f"</script>{i}" for i in range(7))]
    result = made_result(
        10, 2, ids=ids, source=f"{HOSTILE}.npy", advice=HOSTILE, notes=json.dumps([HOSTILE, "{{facts}}"]),
        created=HOSTILE, versions=json.dumps({HOSTILE: HOSTILE}), solver=HOSTILE,
    )  # fmt: skip
    result = result.assign_coords(feature=[f"{HOSTILE}{i}" for i in range(12)])
    result = result.assign_coords({HOSTILE: ("sample", np.array([HOSTILE, "\u2028"] * 5, object))})
    table = made_table(tmp_path / f"{HOSTILE[:7]}.tsv", **{f"{HOSTILE} 2": [HOSTILE, "]]>-->"] * 5})
    page = page_of(result, tmp_path, table=table, title=f"{HOSTILE}{{{{style}}}}")
    plain = page_of(made_result(10, 2), tmp_path)
    # The same elements except for columns, notes and advice; only the script of the page runs.
    assert len(page.all("script")) == len(plain.all("script")) + 2
    (script,) = [text for attributes, text in page.all("script") if not attributes]
    assert script == next(text for attributes, text in plain.all("script") if not attributes)
    assert page.text("h1") == page.all("title")[0][1] == f"{HOSTILE}{{{{style}}}}"
    assert [text for _, text in page.all("div", class_="notice")] == [HOSTILE, "{{facts}}"]
    assert page.text("code", id="command") == shlex.join(["streampca", "pca", f"{HOSTILE}.npy", "-k", "2"])
    points = page.facts["points"]
    assert {HOSTILE, f"{HOSTILE} 2"} <= {c["name"] for c in points["columns"]}
    assert page.payload("data-ids").decode().split("\n")[:3] == [HOSTILE, "a b c", "{{script}}"]
    assert not [a for _, a, _ in page.elements if any(name.startswith("on") for name in a)]
    assert f"{HOSTILE}0" in json.loads(page.payload("data-loadings"))["labels"]


def test_page_allows_only_its_own_script_and_requests_nothing(tmp_path):
    page = page_of(made_result(), tmp_path)
    (script,) = [text for attributes, text in page.all("script") if not attributes]
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    sources = [a[name] for _, a, _ in page.elements for name in ("src", "href") if name in a]
    assert all(source.startswith(("data:", "#")) for source in sources)
    ids = [a["id"] for _, a, _ in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {f"#{name}" for name in ("scores", "spectrum", "run")} <= set(sources)
    assert all(source[1:] in ids for source in sources if source.startswith("#"))


def test_figures_and_table_show_the_numbers(tmp_path):
    result = made_result(k=5)
    result["explained_variance_ratio"][:] = [0.5, 0.3, 0.12, 0.04, 0.01]
    page = page_of(result, tmp_path)
    share = result["explained_variance_ratio"].values
    heights = np.array([float(a["height"]) for a, _ in page.all("rect", class_="bar")[:5]])
    np.testing.assert_allclose(heights / heights[0], share / share[0], atol=0.005)
    together = dots_of(page, "Share of the variance")[:, 1]
    np.testing.assert_allclose(
        (together - together[0]) / (together[4] - together[0]),
        (np.cumsum(share) - 0.5) / 0.47, atol=0.01,
    )  # fmt: skip
    assert "90% by PC3" in [text for _, text in page.all("text")]
    rest = dots_of(page, "Reconstruction error")[:, 1]
    np.testing.assert_allclose((rest - rest[0]) / (rest[5] - rest[0]), np.cumsum([0, *share]) / 0.97, atol=0.01)
    bounds = dots_of(page, "Certificate")[:, 1]
    np.testing.assert_allclose(np.diff(bounds), np.diff(bounds)[0], atol=0.15)
    cells = [text for _, text in page.all("td")][:4]
    assert cells == ["5", "50.000%", "50.000%", "1.0e-6"]
    captions = [text for _, text in page.all("figcaption")]
    assert captions[0] == "5 components explain 97.0% of the variance; the first 3 reach 90%."


def test_largest_loading_of_each_bin_of_the_genome(tmp_path, monkeypatch):
    monkeypatch.setattr(loadings, "BINS", 40)
    monkeypatch.setattr(loadings, "BLOCK", 64)
    chromosome = np.repeat(["2", "10", "X", "1"], 100)
    path = write_bed(
        tmp_path / "x",
        random_calls(50, 400, 3),
        chromosome=chromosome,
        bp_position=np.tile(np.arange(1, 101) * 1000, 4),
    )
    result = PCA(3, tol=1e-6).fit(path).result_
    found = loadings.loadings_of(result)
    assert [name for name, _, _ in found.chromosomes] == ["1", "2", "10"]
    x = loadings._genome_positions(result)[0]
    V = result["components"].values
    V = V / np.sqrt((V**2).mean(axis=1, keepdims=True))
    names = result["variant_id"].values
    for i in range(3):
        places = np.minimum((x * 40).astype(int), 39)
        wanted = {max(np.flatnonzero(places == b), key=lambda j: abs(V[i, j])) for b in np.unique(places)}
        wanted |= set(np.argsort(-np.abs(V[i]))[: loadings.NAMED])
        where, values = found.picks[i]
        shown = {found.labels[w].split()[0]: v for w, v in zip(where, values, strict=True)}
        assert shown == pytest.approx({names[j]: V[i, j] for j in wanted}, rel=1e-6)
        best = np.argsort(-np.abs(V[i]))[:10]
        assert [label.split()[0] for label, _ in found.top(i)] == names[best].tolist()
    page = page_of(result, tmp_path)
    assert len(page.all("div", class_="top wide")) == 3
    assert "(Patterson et al. 2006)" in page.text("div", id="methods-text")


def test_components_of_fields_are_maps_with_north_up(tmp_path):
    rng = np.random.default_rng(1)
    field = rng.standard_normal((30, 1, 1)) * np.linspace(-1, 1, 6)[:, None] * np.ones((6, 9)) + 5
    array = xr.DataArray(
        field + 0.01 * rng.standard_normal((30, 6, 9)), dims=("time", "lat", "lon"),
        coords={"time": np.arange("2001-01", "2003-07", dtype="M8[M]").astype("M8[ns]"), "lat": np.linspace(-50, 50, 6),
                "lon": np.arange(9.0)},
    )  # fmt: skip
    result = fitted(PCA(2), array)
    page = page_of(result, tmp_path)
    images = page.all("img")
    assert len(images) == 3
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(images[1][0]["src"].partition(",")[2]))))
    assert pixels.shape == (6, 9, 3)
    first = result["components"].values[0]
    north_is_red = pixels[0, 4, 0] > pixels[0, 4, 2]
    assert north_is_red == (first[-1, 4] > 0)
    assert (pixels[5, 4, 0] > pixels[5, 4, 2]) == (first[0, 4] > 0)
    about = {c["name"]: c for c in page.facts["points"]["columns"]}["time"]
    times = np.frombuffer(page.payload(about["id"]), "<f8")
    np.testing.assert_array_equal(times, array["time"].values.astype("M8[ms]").astype(float))
    # Where a field has nothing, nothing is drawn; colours are three channels as they are.
    grey = np.array([[0, 0, 0], [255, 255, 255]], float)
    holes = colour_pixels(np.array([[0.0, np.nan], [1.0, 0.5]]), 0, 1, grey)
    uri = Picture("", "", "", holes).uri
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))
    assert pixels[..., 3].tolist() == [[255, 0], [255, 255]]
    assert pixels[1, :, 0].tolist() == [255, 128]
    assert colour_pixels(np.array([[[1.0, 0, 0]]]), 0, 1, grey).tolist() == [[[255, 0, 0]]]


def test_every_kind_of_result_makes_a_page(tmp_path):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((40, 8))
    incomplete = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    one = fitted(PCA(1), x)
    kernel = fitted(KernelPCA(3, n_landmarks=20), x)
    latent = fitted(PPCA("auto", criterion="heldout"), incomplete)
    page = page_of(latent, tmp_path)
    assert {"Progress of EM", "Number of components", "By feature"} <= {text for _, text in page.all("h3")}
    assert f"{int(np.isnan(incomplete).sum()):,} of 320 values are missing" in page.one("section", id="missing")[1]
    for figure in ("overview", "scores"):
        draw_figure(kernel, figure, tmp_path / f"{figure}.png")
    with pytest.raises(InputError, match="has no loadings; draw scree, certificates, error, overview or scores"):
        draw_figure(kernel, "loadings", tmp_path / "x.png")
    page = page_of(kernel, tmp_path)
    assert "20 landmarks" in page.text("section", id="loadings")
    assert "Schölkopf" in page.text("div", id="methods-text")
    page = page_of(one, tmp_path)
    assert "No values are missing" in page.text("section", id="missing")
    assert "The component explains" in page.text("div", id="methods-text")
    # A regression has no scores.
    path = ("target", "m")
    errors = np.array([[4.0, 1.0, 2.0], [3.0, 2.0, 1.0]])
    more = {"cv_error": (path, errors), "cv_error_deviation": (path, errors / 10), "chosen": ("target", [1, 2])}
    more |= {"r2": (path, 1 - errors / 5), "cv_r2": (path, 1 - errors / 4)}
    regression = made_result(k=2, kind="pcr", n_folds=5).drop_vars(["scores", "iid", "label", "age"]).assign(more)
    regression = regression.assign_coords(target=["height", HOSTILE], m=np.arange(3))
    page = page_of(regression, tmp_path)
    assert page.facts["points"] is None
    assert not page.all("canvas")
    assert [a["class"] for a, _ in page.all("circle") if "chosen" in a["class"]] == ["dot chosen"] * 2
    assert (
        "height used the first component, chosen by 5-fold cross-validation, with R² = 0.800, 0.750 for"
        in page.text("div", id="methods-text")
    )
    regression["r2"][0], regression["cv_r2"][0] = np.nan, np.nan
    page = page_of(regression, tmp_path)
    assert "The target height is constant and was not regressed." in page.text("div", id="methods-text")
    assert [text for _, text in page.all("td")].count("constant") == 2
    with pytest.raises(InputError, match="no scores"):
        page_of(regression, tmp_path, table=made_table(tmp_path / "t.tsv", a=["x"] * 60))


MODELS = {
    "pca": PCA(2), "ppca": PPCA(2), "factor_analysis": FactorAnalysis(2), "kpca": KernelPCA(2, n_landmarks=20),
    "pcr": PCR(2), "mixture": MixtureOfPPCA(2, n_components=1), "dual": DualPPCA(2),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(kind_names()))
def test_every_kind_reports_and_plots_what_it_fitted(kind, tmp_path):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((40, 8))
    model = MODELS[kind].fit(x, x[:, 0]) if kind == "pcr" else MODELS[kind].fit(x)
    model.report(tmp_path / "r.html", title="Mine")
    page = Page((tmp_path / "r.html").read_text())
    assert page.text("h1") == "Mine"
    assert page.text("p", class_="kind") == kind_of(kind).title
    assert {"loadings", "missing", "run", "methods"} <= {a["id"] for a, _ in page.all("section")}
    assert "40 samples and 8 features" in page.text("div", id="methods-text")
    with pytest.raises(InputError, match="exists already"):
        model.report(tmp_path / "r.html")
    figure = "loadings" if kind == "mixture" else "scree"
    model.plot(tmp_path / "x.png", figure)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_mixture_has_a_table_of_clusters_and_loadings_of_each(tmp_path):
    rng = np.random.default_rng(0)
    result = made_result(30, 2, kind="mixture", n_iterations=4, total_log_likelihood=-12.5)
    result = result.drop_vars(["scores", "iid", "label", "age", "explained_variance_ratio", "certificate"])
    result["components"] = (("cluster", "component", "feature"), rng.standard_normal((3, 2, 12)))
    result["explained_variance"] = (("cluster", "component"), [[3.0, 2], [5, 1], [4, 2]])
    result["probability"] = (("sample", "cluster"), np.eye(3)[[0] * 5 + [1] * 10 + [2] * 15])
    result = result.assign(weights=("cluster", [0.2, 0.3, 0.5]), noise_variance=("cluster", [0.1, 0.2, 0.3]))
    page = page_of(result, tmp_path)
    rows = [text for _, text in page.all("tr") if text.startswith("Cluster")]
    assert rows == ["Cluster 120.0%50.13, 2", "Cluster 230.0%100.25, 1", "Cluster 350.0%150.34, 2"]
    options = [text for _, text in page.all("option")]
    assert options == [f"cluster {c}, PC{i}" for c in (1, 2, 3) for i in (1, 2)]
    assert "The model with 3 clusters of 2 components was fitted" in page.text("div", id="methods-text")
    assert not page.all("canvas")
    with pytest.raises(InputError, match="has no scree"):
        draw_figure(result, "scree", tmp_path / "x.png")
    draw_figure(result, "loadings", tmp_path / "x.png", pair=(5, 5))
    images = result.drop_vars(["mean", "scale", "missing"])
    images["components"] = (("cluster", "component", "y", "x"), rng.standard_normal((3, 2, 4, 3)))
    images["mean"] = (("y", "x"), rng.standard_normal((4, 3)))
    images["means"] = (("cluster", "y", "x"), rng.standard_normal((3, 4, 3)))
    names = [text.strip() for _, text in page_of(images, tmp_path).all("figcaption")]
    assert names[:4] == ["cluster 1, mean", "cluster 2, mean", "cluster 3, mean", "cluster 1, PC1"]


def test_dual_has_the_sections_of_components_and_its_likelihood(tmp_path):
    result = made_result(30, 2, kind="dual", total_log_likelihood=-12.5, noise_variance=0.5, method="closed")
    page = page_of(result, tmp_path)
    assert "Dual probabilistic principal component analysis (Lawrence 2005)" in page.text("div", id="methods-text")
    assert "in closed form (log-likelihood -12.5)" in page.text("div", id="methods-text")
    assert {"spectrum", "loadings", "run"} <= {a["id"] for a, _ in page.all("section")}


def test_pages_of_large_results_list_what_they_omit(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "SCORE_BYTES", 60 * 2 * 4)
    monkeypatch.setattr(samples, "COLUMN_BYTES", 150)
    page = page_of(made_result(60, 6), tmp_path)
    assert [c["name"] for c in page.facts["points"]["components"]] == ["PC1", "PC2", "PC3"]
    assert [c["name"] for c in page.facts["points"]["columns"]] == ["label"]
    (caption,) = [t for a, t in page.all("p", class_="quiet caption") if "id" not in a]
    assert "Not in this page: scores on components 4 to 6; columns age (too large)." in caption


def parsed(command):
    """Return the kind and the configuration of a command line."""
    program, kind, *words = shlex.split(command)
    assert program == "streampca"
    values = fit_command(kind).make_context(kind, words).params
    blocks = given_options(values)
    blocks["data"] = blocks.get("data", {}) | {"path": values["source"]}
    return kind, configured(blocks | {"model": blocks.get("model", {}) | {"kind": kind}, "output": {"path": "x.zarr"}})


COMMANDS = {
    "pca": {"n_components": 0.9, "scale": None, "missing": "mean", "solver": "gram", "tol": 1e-5, "random_state": 3,
            "certificate": "exact"},
    "ppca": {"n_components": "auto", "criterion": "bic", "method": "em", "max_iter": 50, "accelerate": False},
    "factor_analysis": {"n_components": 3, "max_iter": 50, "missing": "error", "scale": "unit"},
    "kpca": {"n_components": 5, "kernel": "poly", "gamma": "features", "degree": 2.0, "n_landmarks": 64,
             "landmarks": "kmeans", "fit_inverse_transform": True, "alpha": 0.5, "missing": "mean"},
    "pcr": {"n_components": 5, "cv": 3, "target": "my table.tsv:height", "covariates": "t.tsv:age,sex"},
    "mixture": {"n_components": 2, "n_clusters": 3},
    "dual": {"n_components": 2, "scale": "unit"},
}  # fmt: skip


def test_every_kind_has_a_command_here():
    assert sorted(COMMANDS) == sorted(kind_names())


@pytest.mark.parametrize("certificate", [True, False, "exact"])
def test_command_gives_the_same_certificate_again(certificate):
    parameters = json.dumps({"certificate": certificate})
    _, config = parsed(command_of({"kind": "pca", "source": "x.npy", "parameters": parameters}))
    assert config.model.certificate is certificate or config.model.certificate == certificate == "exact"


@pytest.mark.parametrize("kind", COMMANDS)
def test_command_gives_the_same_parameters_again(kind):
    given = dict(kind_of(kind).options(**COMMANDS[kind]))
    filters = {"maf": 0.01, "keep": "my list.txt", "all_chromosomes": True, "ld_prune": 0.2}
    filters |= {"outliers": "remove"} if kind_of(kind).outliers else {}
    filters = filters if kind_of(kind).genotypes else {}
    parameters = json.dumps(given | filters | {"memory_limit": "2GB", "missing_chunks": "error"})
    name, config = parsed(command_of({"kind": kind, "source": "a b/$x.npy", "parameters": parameters}))
    assert name == kind
    assert config.data.path == "a b/$x.npy"
    assert {key: getattr(config.model, key) for key in given} == given
    assert {key: getattr(config.filter, key) for key in filters} == filters
    assert config.engine.memory_limit == "2GB"


def test_command_omits_defaults_and_knows_parameters_of_version_0_7():
    usual = {
        "n_components": 3,
        "tol": 1e-3,
        "random_state": 0,
        "scale": "auto",
        "missing": "auto",
        "memory_limit": None,
    }
    attributes = {"kind": "pca", "source": "-x.npy", "parameters": json.dumps(usual)}
    # A leading minus is not an option.
    assert command_of(attributes) == "streampca pca ./-x.npy -k 3"
    assert command_of({"kind": "pca", "source": "array"}) is None
    old = {"n_components": 3, "own_noise": True, "seed": 4, "memory": "2GB"}
    attributes = {"kind": "factor_analysis", "source": "x.npy", "parameters": json.dumps(old)}
    assert command_of(attributes) == "streampca factor_analysis x.npy -k 3 --random-state 4 --memory 2GB"


def test_methods_paragraph():
    result = made_result(957, 10, converged=0)
    result.attrs |= {"genotypes": 1, "n_features": 14266, "n_missing": 20929, "warm_start_seconds": 0.5}
    result.attrs["parameters"] = json.dumps(
        {"scale": "auto", "maf": 0.05, "exclude_regions": "GRCh38", "ld_prune": 0.2}
    )
    text, references = methods_of(result)
    for words in (
        "Principal components of 957 samples and 14,266 variants were computed with streampca 0.6.0.",
        "Variants with a minor allele frequency below 0.05 were excluded.",
        "(GRCh38; Price et al. 2008)",
        "missing calls (0.2%) were replaced by the mean",
        "block Lanczos iteration (Golub & Underwood 1977; Musco & Musco 2015) in 5 passes over the data",
        "were at most 1,000.",
        "The 10 components explain 99.9% of the total variance.",
        "stopped before it reached its tolerance",
    ):
        assert words in text
    assert [text.split(",")[0] for text in references] == ["Price", "Patterson", "Golub", "Musco"]


def test_a_page_needs_no_matplotlib_and_a_figure_names_the_extra(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert page_of(made_result(), tmp_path).all("svg")
    with pytest.raises(InputError, match=r"pip install 'streampca\[plot\]'"):
        draw_figure(made_result(), "scree", tmp_path / "x.png")


def test_paths_that_cannot_be_written_are_rejected(tmp_path):
    result = made_result(10, 2)
    path = write_report(result, tmp_path / "r.html")
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        write_report(result, path)
    with pytest.raises(InputError, match="does not exist"):
        write_report(result, tmp_path / "no" / "r.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_report(result, tmp_path / "folder", overwrite=True)
    assert path.read_bytes() == before
    # The same result gives the same page.
    assert write_report(result, path, overwrite=True).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_small_helpers():
    assert [number(v) for v in (14266, 0.01234, 3.14e-7, float("inf"))] == ["14,266", "0.0123", "3.14e-7", "infinite"]
    assert [percent(v) for v in (0.0, 0.00041, 0.079, 0.92, 1.0)] == ["0%", "0.041%", "7.9%", "92.0%", "100%"]
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])


def test_large_images_are_reduced_by_block_means_without_missing_values(monkeypatch):
    monkeypatch.setattr("streampca.report.images.MAX_PIXELS", 4)
    image = np.arange(64.0).reshape(8, 8)
    image[0, 0] = np.nan
    image[2:4, 2:4] = np.nan
    small = reduced(image)
    assert small.shape == (4, 4)
    assert small[0, 0] == np.mean([1, 8, 9])
    assert np.isnan(small[1, 1])
    assert small[3, 3] == np.mean([54, 55, 62, 63])
    assert reduced(np.ones((8, 8, 3))).shape == (4, 4, 3)
    # A line has no blocks.
    assert reduced(np.ones((1, 8))).shape == (1, 4)


@pytest.mark.parametrize(
    ("dims", "sizes", "order"),
    [
        (("y", "x"), (5, 4), ("y", "x")),
        (("y", "x", "colour"), (5, 4, 3), ("y", "x", "colour")),
        (("channel", "y", "x"), (3, 5, 3), ("y", "x", "channel")),
        (("x", "y"), (5, 4), ("y", "x")),
        (("lat", "x", "z"), (5, 4, 2), None),
        (("feature",), (20,), None),
    ],
)
def test_images_have_two_dimensions_and_optionally_three_colours(dims, sizes, order):
    assert image_dims(dims, sizes) == order
