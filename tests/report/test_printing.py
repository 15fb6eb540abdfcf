"""Printed figures of results, maps, and fields weighted by latitude."""

import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from report_helpers import Page
from scipy.spatial import procrustes

import streampca
from streampca.demos.simulate_map import kilometres, simulate_map
from streampca.errors import InputError
from streampca.report import draw_figure
from streampca.report.page import environment
from streampca.report.printing import _draw
from streampca.report.spectrum import spectrum_figures
from streampca.sources.tables import ids_of, read_table


@pytest.fixture(scope="module")
def on_map(tmp_path_factory):
    """Return places, table and result of simulated genotypes on a map."""
    prefix = tmp_path_factory.mktemp("map") / "people"
    _, places = simulate_map(prefix, 600, 8000, seed=3)
    model = streampca.PCA(n_components=4)
    model.fit_transform(streampca.open_genotypes(f"{prefix}.bed"))
    result = model.result_
    return places, read_table(prefix.with_suffix(".tsv"), ids_of(result)), result


def test_two_components_of_people_on_a_map_are_the_map(on_map):
    places, table, result = on_map
    np.testing.assert_allclose(table.numbers("longitude"), places[:, 0], atol=1e-3)
    *_, disparity = procrustes(kilometres(places), result["scores"].values[:, :2])
    assert np.sqrt(1 - disparity) > 0.9
    # A shuffled map does not agree.
    shuffled = np.random.default_rng(0).permutation(places)
    *_, disparity = procrustes(kilometres(shuffled), result["scores"].values[:, :2])
    assert np.sqrt(1 - disparity) < 0.3


@pytest.mark.parametrize(
    ("what", "column", "pair"),
    [
        ("overview", "country", (1, 2)),
        ("scores", "country", (3, 1)),
        ("scores", "longitude", (1, 2)),
        ("scree", None, (1, 2)),
        ("certificates", None, (1, 2)),
        ("error", None, (1, 2)),
        ("loadings", None, (4, 9)),
    ],
)
def test_each_figure_names_what_it_shows(on_map, what, column, pair, tmp_path):
    _, table, result = on_map
    values = None if column is None else table.columns[column]
    # Text stays text in SVG if fonts are not drawn.
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_figure(result, what, tmp_path / "x.svg", values=values, name=column or "", pair=pair)
    text = (tmp_path / "x.svg").read_text()
    share = result["explained_variance_ratio"].values
    texts = {
        "overview": ["Albania", "PC1", "individual share", "certificate"],
        "scores": [f"PC{pair[0]} ({share[pair[0] - 1]:.1%})", f"PC{pair[1]} (", column],
        "scree": ["individual share", "cumulative share"],
        "certificates": ["certificate"],
        "error": ["J(m)"],
        "loadings": ["|loading on PC4| / RMS", "chromosome", ">22<"],
    }
    assert all(str(part) in text for part in texts[what])


def test_components_that_do_not_exist_are_rejected(on_map, tmp_path):
    for what, pair in (("scores", (1, 5)), ("loadings", (0, 1))):
        with pytest.raises(InputError, match="the result has 1 to 4"):
            draw_figure(on_map[2], what, tmp_path / "x.png", pair=pair)


@pytest.fixture
def small():
    """Return a result of 30 samples and 5 features."""
    model = streampca.PCA(3)
    model.fit_transform(np.random.default_rng(0).normal(size=(30, 5)))
    return model.result_


def test_dates_have_a_scale_of_dates(small, tmp_path):
    import matplotlib

    dates = np.datetime64("2001-01-01", "ms") + np.arange(30) * np.timedelta64(40, "D")
    dates[3] = np.datetime64("NaT")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_figure(small, "scores", tmp_path / "x.svg", values=dates, name="born")
    text = (tmp_path / "x.svg").read_text()
    assert all(f">{shown}<" in text for shown in ("born", "2002", "2003"))


@pytest.mark.parametrize("kind", ["groups", "amounts"])
def test_texts_of_the_data_are_shown_literally(small, kind, tmp_path):
    import matplotlib

    odd = np.array([r"$\frac{$", "_under", "US$ and A$"])[np.arange(30) % 3]
    values = odd if kind == "groups" else np.arange(30.0)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw_figure(small, "scores", tmp_path / "x.svg", values=values, name=r"$x^{$ of _")
        draw_figure(small, "overview", tmp_path / "y.svg", values=values, title=r"$\sqrt$")
    text = (tmp_path / "x.svg").read_text()
    for shown in (r"$x^{$ of _", *([r"$\frac{$", "_under", "US$ and A$"] if kind == "groups" else [])):
        assert shown in text
    assert r"$\sqrt$" in (tmp_path / "y.svg").read_text()


def test_a_picture_that_fails_leaves_the_old_one(small, tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    draw_figure(small, "scree", path)
    before = path.read_bytes()

    def broken(_, place, format):  # noqa: ARG001
        place.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", broken)
    with pytest.raises(OSError, match="No space"):
        draw_figure(small, "scree", path)
    assert path.read_bytes() == before
    assert [place.name for place in tmp_path.iterdir()] == ["x.png"]


def test_the_command_draws_figures_and_rejects_invalid_options(tmp_path, here):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 5)))
    here("pca", "x.npy", "-k", 3, "--quiet", "--out", "r.zarr")
    for arguments, message in (
        (["--figure", "scores", "--pcs", "1"], "--pcs must be two numbers, as 1,2 for scores, got '1'"),
        (["--figure", "scores", "--pcs", "2,2"], "--pcs must be two numbers"),
        (["--figure", "loadings", "--pcs", "2,3"], "--pcs must be one number"),
        (["--figure", "scree", "--pcs", "1,2"], "--pcs is for the figures scores and loadings, not scree"),
        (["--figure", "scree", "--labels", "t.tsv"], "--labels are not shown in the figure scree"),
    ):
        code, _, err = here("plot", "r.zarr", *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert "gone.zarr: does not exist; check the path" in here("report", "gone.zarr")[2]
    (tmp_path / "t.tsv").write_text("id\tpop\tplanet\n" + "".join(f"{i}\t{i % 2}\tEarth\n" for i in range(30)))
    assert "note" not in here("report", "r.zarr", "--labels", "t.tsv:pop")[1]
    assert "note: planet colours nothing" in here("report", "r.zarr", "--labels", "t.tsv:planet", "--overwrite")[1]
    for arguments in (["scores", "--pcs", "3,1"], ["loadings", "--pcs", "3"]):
        code, _, err = here("plot", "r.zarr", "--figure", *arguments)
        assert code == 0, err


def test_uncertain_samples_get_ellipses(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 30)) + 0.3 * rng.normal(size=(60, 30))
    X[:4, 3:] = np.nan
    model = streampca.PPCA(2)
    model.fit_transform(X)
    draw_figure(model.result_, "scores", tmp_path / "x.svg")
    draw_figure(model.result_.drop_vars("score_deviation"), "scores", tmp_path / "none.svg")
    drawn, plain = ((tmp_path / name).read_text().count('id="patch_') for name in ("x.svg", "none.svg"))
    deviation = model.result_["score_deviation"].values.prod(axis=1)
    unsure = int((deviation > 1.5**2 * np.median(deviation)).sum())
    assert (unsure, drawn - plain) == (4, 4)


def test_page_and_print_draw_the_same_marks(small):
    svg = environment().get_template("chart.html").module.svg
    for chart in (figure.chart for figure in spectrum_figures(small).values()):
        page = Page(svg(chart))
        figure = Figure()
        _draw(figure.subfigures(), chart)
        lines = [line for axes in figure.subfigs[0].axes for line in axes.lines if line.get_marker() == "o"]
        assert len(page.all("circle")) == sum(len(line.get_xdata()) for line in lines)
        texts = {axes.get_ylabel() for axes in figure.subfigs[0].axes}
        assert texts <= {text for _, text in page.all("text")}


@pytest.mark.parametrize("solver", ["covariance", "gram", "krylov"])
@pytest.mark.parametrize("dims", [("time", "lat", "lon"), ("time", "lon", "lat")])
def test_fields_weighted_by_latitude_have_the_components_of_the_weighted_field(solver, dims):
    rng = np.random.default_rng(0)
    lat, lon = np.linspace(-90, 90, 13), np.arange(0.0, 360, 30)
    X = rng.normal(size=(40, 13, 12)) + 3 * rng.normal(size=(40, 1, 1)) * np.sin(np.radians(lat))[None, :, None]
    field = xarray.DataArray(X, dims=("time", "lat", "lon"), coords={"lat": lat, "lon": lon})
    weights = np.sqrt(np.maximum(np.cos(np.radians(lat)), 0))[:, None]
    flat = ((X - X.mean(axis=0)) * weights).reshape(40, -1)
    values = np.linalg.svd(flat, compute_uv=False) ** 2 / 39
    model = streampca.PCA(3, scale="coslat", solver=solver, tol=1e-9).fit(field.transpose(*dims))
    np.testing.assert_allclose(model.explained_variance_, values[:3], rtol=1e-9)
    np.testing.assert_allclose(model.result_.attrs["total_variance"], values.sum(), rtol=1e-9)
    again = model.inverse_transform(model.transform(field.transpose(*dims)))
    assert bool(np.isfinite(again).all())


def test_the_latitude_along_a_feature_dimension_is_used():
    rng = np.random.default_rng(0)
    lat = np.linspace(-60, 60, 6)
    curved = (("lat", "lon"), np.broadcast_to(rng.uniform(-9, 9, 4), (6, 4)))
    field = xarray.DataArray(rng.normal(size=(30, 6, 4)), dims=("time", "lat", "lon"))
    plain = streampca.PCA(2, scale="coslat").fit(field.assign_coords(lat=lat))
    for coords in ({"nav_lat": curved, "lat": lat}, {"lat": lat, "nav_lat": curved}):
        model = streampca.PCA(2, scale="coslat").fit(field.assign_coords(coords))
        np.testing.assert_array_equal(model.explained_variance_, plain.explained_variance_)


def test_weights_by_latitude_need_latitudes():
    X = np.random.default_rng(0).normal(size=(20, 5))
    with pytest.raises(InputError, match="needs features with a coordinate lat or latitude"):
        streampca.PCA(2, scale="coslat").fit(X)
    high = xarray.DataArray(X, dims=("time", "lat"), coords={"lat": np.arange(5) * 50.0})
    with pytest.raises(InputError, match="from -90 to 90"):
        streampca.PCA(2, scale="coslat").fit(high)
    with pytest.raises(InputError, match="scale of batches must be one of .*, got 'coslat'"):
        streampca.PCA(2, scale="coslat").partial_fit(X)
