"""Figures of results for print, maps, and fields weighted by latitude."""

import numpy as np
import pytest
import xarray
from scipy.spatial import procrustes

import streampca
from streampca.errors import InputError
from streampca.figures import draw_figure, largest_in_bins
from streampca.simulate_map import kilometres, simulate_map
from streampca.tables import ids_of, read_table


@pytest.fixture(scope="module")
def on_map(tmp_path_factory):
    """Return where people live, their table, and the result of their genotypes."""
    prefix = tmp_path_factory.mktemp("map") / "people"
    _, places = simulate_map(prefix, 600, 8000, seed=3)
    model = streampca.PCA(n_components=4)
    model.fit_transform(streampca.open_genotypes(f"{prefix}.bed"))
    result = model.result_
    return places, read_table(prefix.with_suffix(".tsv"), ids_of(result)), result


def test_two_components_of_people_who_live_on_a_map_are_the_map(on_map):
    places, table, result = on_map
    np.testing.assert_allclose(table.numbers("longitude"), places[:, 0], atol=1e-3)
    *_, apart = procrustes(kilometres(places), result["scores"].values[:, :2])
    assert np.sqrt(1 - apart) > 0.9
    # A shuffled map is not found.
    *_, apart = procrustes(kilometres(np.random.default_rng(0).permutation(places)), result["scores"].values[:, :2])
    assert np.sqrt(1 - apart) < 0.3


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
    said = {
        "overview": ["Albania", "PC1", "share of the variance", "certificate"],
        "scores": [f"PC{pair[0]} ({share[pair[0] - 1]:.1%})", f"PC{pair[1]} (", column],
        "scree": ["share of the variance", "together"],
        "certificates": ["certificate"],
        "error": ["J(m)"],
        "loadings": ["size of the loading on PC4", "chromosome", ">22<"],
    }
    assert all(str(part) in text for part in said[what])


def test_components_that_are_not_there_are_refused(on_map, tmp_path):
    for what, pair in (("scores", (1, 5)), ("loadings", (0, 1))):
        with pytest.raises(InputError, match="the result has 1 to 4"):
            draw_figure(on_map[2], what, tmp_path / "x.png", pair=pair)


def test_samples_less_sure_than_others_get_ellipses(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 30)) + 0.3 * rng.normal(size=(60, 30))
    X[:4, 3:] = np.nan
    model = streampca.PPCA(2)
    model.fit_transform(X)
    draw_figure(model.result_, "scores", tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text().count('id="patch_')
    deviation = model.result_["score_deviation"].values.prod(axis=1)
    unsure = int((deviation > 1.5**2 * np.median(deviation)).sum())
    # Background, axes and two spines, and the ellipses.
    assert (unsure, drawn) == (4, 4 + 4)


def test_the_largest_of_each_part_is_found():
    place, size = np.array([0.0, 1, 5, 6, 9, 10]), np.array([1.0, 2, 3, 1, 0, 7])
    assert largest_in_bins(place, size, 2).tolist() == [1, 5]
    assert largest_in_bins(np.zeros(3), np.array([1.0, 3, 2]), 5).tolist() == [1]


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


def test_weights_by_latitude_need_latitudes():
    X = np.random.default_rng(0).normal(size=(20, 5))
    with pytest.raises(InputError, match="needs features with a coordinate lat or latitude"):
        streampca.PCA(2, scale="coslat").fit(X)
    high = xarray.DataArray(X, dims=("time", "lat"), coords={"lat": np.arange(5) * 50.0})
    with pytest.raises(InputError, match="from -90 to 90"):
        streampca.PCA(2, scale="coslat").fit(high)
    with pytest.raises(InputError, match="scale of batches='coslat' is not known"):
        streampca.PCA(2, scale="coslat").partial_fit(X)
