"""The commands that show a result: `report` and `plot`, with tables about the samples and without."""

from __future__ import annotations

import numpy as np
import pytest
from report_helpers import made_result

from streampca import InputError
from streampca.cli.plot import _pair
from streampca.run.view import _column
from streampca.sources.tables import ids_of, read_table

NAMES = [f"s{i}" for i in range(60)]


@pytest.fixture
def result(tmp_path):
    """A result of samples with names, and a table about all but the last two of them."""
    made = made_result(ids=NAMES, format_version=1)
    with_text = [f"{name}\t{i % 3}g\t{i}" for i, name in enumerate(NAMES[:-2])]
    (tmp_path / "pops.tsv").write_text("\n".join(["id\tgroup\theight", *with_text]) + "\n")
    made.to_zarr(tmp_path / "r.pca.zarr", zarr_format=3, consolidated=False)
    return made


@pytest.mark.usefixtures("result")
def test_report_writes_a_page_beside_and_asks_before_it_overwrites(tmp_path, here):
    code, out, err = here("report", "r.pca.zarr", "--title", "Looked at")
    assert code == 0, err
    assert out == "report: r.pca.html\n"
    page = (tmp_path / "r.pca.html").read_text()
    assert "Looked at" in page
    code, _, err = here("report", "r.pca.zarr", "--labels", "pops.tsv:group")
    assert code == 2
    assert "overwrite" in err
    assert (tmp_path / "r.pca.html").read_text() == page
    code, out, err = here("report", "r.pca.zarr", "--labels", "pops.tsv:group", "--overwrite")
    assert code == 0, err
    assert "58 of 60" in out
    assert "group" in (tmp_path / "r.pca.html").read_text()


@pytest.mark.usefixtures("result")
@pytest.mark.parametrize("figure", ["overview", "scores"])
def test_plot_draws_each_figure_to_its_name(figure, tmp_path, here):
    pair = ["--pcs", "2,1"] if figure == "scores" else []
    code, out, err = here("plot", "r.pca.zarr", "--figure", figure, "--labels", "pops.tsv", *pair)
    assert code == 0, err
    assert out == f"picture: r.pca.{figure}.png\n"
    assert (tmp_path / f"r.pca.{figure}.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = here("plot", "r.pca.zarr", "--figure", figure)
    assert code == 2
    assert "exists already; choose another --out or add --overwrite" in err


def test_samples_are_coloured_by_the_column_named_else_by_the_last_text_else_by_their_own_labels(result, tmp_path):
    table = read_table(tmp_path / "pops.tsv", ids_of(result))
    assert _column(result, table, ["height"])[0] == "height"
    assert _column(result, table, [])[0] == "group"
    name, values = _column(result, None, [])
    assert (name, values[:2].tolist()) == ("label", ["north", "south"])
    # A label of something else is none of the samples.
    bare = result.drop_vars("label")
    assert _column(bare, None, []) == _column(bare.assign_coords(label=("feature", np.arange(12))), None, [])
    assert _column(bare, None, []) == ("", None)


@pytest.mark.parametrize(
    ("figure", "text", "pair"), [("scores", "1,2", (1, 2)), ("scores", "3,1", (3, 1)), ("loadings", "4", (4, 4))]
)
def test_components_are_given_by_one_number_or_two(figure, text, pair):
    assert _pair(figure, text) == pair
    with pytest.raises(InputError, match="--pcs must be (two numbers|one number), as"):
        _pair(figure, f"{text},x")


def test_labels_of_a_result_without_scores_are_noted(tmp_path, here, rng, caplog):
    x = rng.normal(size=(30, 4))
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "traits.tsv").write_text(
        "id\theight\tgroup\n" + "".join(f"{i}\t{x[i, 0]}\tg{i % 2}\n" for i in range(30))
    )
    code, _, err = here("pcr", "x.npy", "--target", "traits.tsv:height", "--out", "r.pcr.zarr")
    assert code == 0, err
    code, out, err = here("report", "r.pcr.zarr", "--labels", "traits.tsv:group")
    assert (code, out) == (0, "report: r.pcr.html\n"), err
    assert caplog.messages[-1] == "note: traits.tsv:group colours nothing: the result has no scores"
