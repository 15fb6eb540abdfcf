"""Figures as files for print (.png, .pdf, .svg). Needs matplotlib, the `plot` extra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, listed
from streampca.files import replacing
from streampca.report.charts import Chart, Mark, Panel, loadings_chart
from streampca.report.images import MAX_IMAGES, Gallery, gallery
from streampca.report.loadings import MAX_COMPONENTS, loadings_of
from streampca.report.spectrum import component_names, spectrum_figures

if TYPE_CHECKING:
    import xarray

# Okabe & Ito's palette, safe for colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = "o^sDvPX*"  # one for each cycle through the colours
ACCENT, SOFT, NOTE = COLOURS[0], "#dcebf3", COLOURS[5]
ARRAYS = {"scores": "scores", "loadings": "components", "components": "components"}  # that figures need
MAX_POINTS = 50_000  # more samples are drawn as a random subset, the same each time
ELLIPSE_RADIUS = 2.4477  # 95% of two independent normal variables, in deviations: sqrt(-2 log 0.05)
UNCERTAIN = 1.5  # ellipses are for samples with this multiple of the median deviation
MAX_ELLIPSES = 300
MAX_LEGEND = 40  # groups
PIXELS_PER_INCH = 72
# Texts of the data are shown literally, never as formulas.
STYLE = {"text.parse_math": False, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9}


@dataclass(frozen=True)
class Scatter:
    """Samples in a plane.

    Attributes
    ----------
    points : (n, 2).
    values : (n,) for their colour: text for groups, numbers or dates for a scale; None for one colour.
    name : of the values.
    annotate : "legend" or colour bar; "groups", the name of each group at its median; "points", numbers instead of
        dots; "" for none.
    ellipses : indices of samples, and the half-axes of their ellipses.
    equal : whether both axes have the same scale.
    """

    points: Array
    title: str = ""
    x_title: str = ""
    y_title: str = ""
    values: Array | None = None
    name: str = ""
    annotate: str = "legend"
    ellipses: tuple[Array, Array] | None = None
    equal: bool = False
    width: int = 400
    height: int = 330


Item = Chart | Scatter | Gallery


def check_picture(path: Path) -> None:
    """Raise unless a picture can be written to this path."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    known = _new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(f"{path}: unsupported image format; use .png, .pdf or .svg")


def draw_figure(
    result: xarray.Dataset, what: str, path: Path, *, values: Array | None = None, name: str = "",
    pair: tuple[int, int] = (1, 2), title: str = "",
) -> None:  # fmt: skip
    """Draw one figure of a result.

    Parameters
    ----------
    what : "overview", "scores", "scree", "certificates", "error", "loadings" or "components".
    values : of the samples, for their colour: text for groups, numbers or dates for a scale.
    name : of the values.
    pair : components of the scores, from 1 on; loadings are those of the first.
    """
    draw_items([_items(result, what, values, name, pair)], path, title)


def _items(result: xarray.Dataset, what: str, values: Array | None, name: str, pair: tuple[int, int]) -> Sequence[Item]:
    """Return what a figure consists of, from left to right."""
    charts = {name: figure.chart for name, figure in spectrum_figures(result).items()}
    available = [*charts, *(["overview"] if charts else []), *(what for what, name in ARRAYS.items() if name in result)]
    if what not in available:
        raise InputError(f"the result ({result.attrs['kind']}) has no {what}; draw {listed(available)}")
    if what == "components":
        return [_components(result)]
    if what in ("scores", "loadings"):
        k = len(component_names(result)) if what == "loadings" else result.sizes["component"]
        asked = pair if what == "scores" else pair[:1]
        if not all(1 <= number <= k for number in asked):
            raise InputError(f"component {max(asked)} does not exist; the result has 1 to {k}")
        return [_scores(result, pair, values, name) if what == "scores" else _loadings(result, pair[0])]
    if what != "overview":
        return [charts[what]]
    items: list[Item] = [charts["scree"], charts.get("certificates", charts["error"])]
    if "scores" in result and result.sizes["component"] > 1:
        items.insert(0, _scores(result, (1, 2), values, name))
    return items


def _components(result: xarray.Dataset) -> Gallery:
    images = gallery(result, component_names(result)[:MAX_IMAGES])
    if images is None:
        raise InputError(
            f"the features are {' x '.join(map(str, result['mean'].dims))}; a picture needs two dimensions, as y and "
            "x, or three with red, green and blue; draw loadings instead"
        )
    return images


def _loadings(result: xarray.Dataset, number: int) -> Chart:
    loadings = loadings_of(result)
    if loadings is None or number > len(loadings.picks):
        raise InputError(f"loadings can be drawn for components 1 to {MAX_COMPONENTS}, got {number}")
    return loadings_chart(loadings, number - 1, component_names(result)[number - 1])


def _scores(result: xarray.Dataset, pair: tuple[int, int], values: Array | None, name: str) -> Scatter:
    columns = [number - 1 for number in pair]
    scores, share = result["scores"].values, result["explained_variance_ratio"].values
    ellipses = None
    if "score_deviation" in result:
        deviation = result["score_deviation"].values.reshape(-1, scores.shape[-1])[:, columns]
        area = deviation.prod(axis=1)
        uncertain = np.flatnonzero(area > UNCERTAIN**2 * np.median(area))
        uncertain = uncertain[np.argsort(-area[uncertain])][:MAX_ELLIPSES]
        ellipses = uncertain, ELLIPSE_RADIUS * deviation[uncertain]
    titles = [f"{component_names(result)[number - 1]} ({share[number - 1]:.1%})" for number in pair]
    points = scores.reshape(-1, scores.shape[-1])[:, columns]
    return Scatter(points, "", titles[0], titles[1], values, name, ellipses=ellipses)


def draw_items(rows: Sequence[Sequence[Item]], path: Path, title: str = "") -> None:
    """Draw charts, scatter plots and galleries in rows, and write the picture when it is complete."""
    check_picture(path)
    sizes = [[_inches(item) for item in row] for row in rows]
    widths, heights = [sum(w for w, _ in row) for row in sizes], [max(h for _, h in row) for row in sizes]
    with _matplotlib().rc_context(STYLE):
        figure = _new_figure(max(widths), sum(heights) + (0.3 if title else 0.0))
        figure.suptitle(title)
        parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, row, row_sizes in zip(parts, rows, sizes, strict=True):
            cells = part.subfigures(1, len(row), width_ratios=[w for w, _ in row_sizes], squeeze=False)[0]
            for cell, item in zip(cells, row, strict=True):
                _draw(cell, item)
        with replacing(path) as unfinished:
            figure.savefig(unfinished, format=path.suffix[1:].lower())


def _matplotlib(module: str = "") -> Any:
    """Import a module of matplotlib, an optional package that only drawing needs."""
    try:
        return import_module(f"matplotlib{module}")
    except ImportError as error:
        raise InputError("drawing needs matplotlib: pip install 'streampca[plot]'") from error


def _new_figure(width: float, height: float) -> Any:
    """Return an empty figure of this size in inches."""
    return _matplotlib(".figure").Figure(figsize=(width, height), layout="constrained", dpi=130)


def _inches(item: Item) -> tuple[float, float]:
    if isinstance(item, Gallery):
        n_rows = -(-len(item.pictures) // item.columns)
        unit = 2.4 if item.field else 1.15
        height = (unit * item.aspect + (0.06 if item.row_names else 0.3)) * n_rows
        return unit * item.columns + (1.2 if item.row_names else 0), height + 0.3
    return item.width / PIXELS_PER_INCH, item.height / PIXELS_PER_INCH


def _draw(figure: Any, item: Item) -> None:
    if isinstance(item, Gallery):
        _draw_gallery(figure.subplots(), item)
    elif isinstance(item, Scatter):
        _draw_scatter(figure.subplots(), item)
    else:
        grid = figure.subplots(len(item.panels), 1, squeeze=False)[:, 0]
        for axes, panel in zip(grid, item.panels, strict=True):
            _draw_panel(axes, panel)


def _draw_panel(axes: Any, panel: Panel) -> None:
    for mark in panel.marks:
        _draw_mark(axes, mark, panel)
    for axis, which in ((panel.x, "x"), (panel.y, "y")):
        getattr(axes, f"set_{which}lim")(axis.low, axis.high)
        getattr(axes, f"set_{which}label")(axis.title)
        getattr(axes, f"set_{which}ticks")([place for place, _ in axis.ticks], [text for _, text in axis.ticks])
    axes.tick_params(labelsize=8)


def _draw_mark(axes: Any, mark: Mark, panel: Panel) -> None:
    x, y = mark.x, mark.y
    if mark.shape == "bars":
        axes.bar(x, y, color=ACCENT, width=0.72)
    elif mark.shape == "rows":
        axes.barh(y, x, color=ACCENT, height=0.7)
    elif mark.shape == "line":
        axes.plot(x, y, color=ACCENT, lw=1.2)
    elif mark.shape == "dots":
        axes.plot(x, y, "o", ms=4, color=NOTE if mark.style == "chosen" else ACCENT, clip_on=False)
    elif mark.shape == "points":
        axes.scatter(x, y, s=4, color=COLOURS[4] if mark.style else ACCENT, linewidths=0, rasterized=True)
    elif mark.shape == "area":
        axes.fill_between(x, y, mark.base, color=SOFT, lw=0)
    elif mark.shape == "stems":
        colour, dashes = (NOTE, "--") if mark.style == "mark" else (ACCENT, "-")
        axes.vlines(x, panel.y.low, y, color=colour, ls=dashes, lw=0.8, alpha=0.6)
    else:
        axes.axhline(y[0], color=NOTE, lw=0.8, ls="--")
        side = "top" if mark.style == "below" else "bottom"
        axes.annotate(mark.texts[0], (panel.x.high, y[0]), fontsize=8, color=NOTE, ha="right", va=side)


def _draw_gallery(axes: Any, item: Gallery) -> None:
    """Draw all pictures in one pair of axes, a unit wide each: fifty pairs take much longer to lay out."""
    room = 0.06 if item.row_names else 0.13 if item.field else 0.25
    step = item.aspect + room
    for i, picture in enumerate(item.pictures):
        row, column = divmod(i, item.columns)
        left, bottom = 1.06 * column, -step * row - item.aspect
        if picture.pixels.ndim == 1:
            place = np.linspace(left, left + 1, len(picture.pixels))
            axes.plot(place, bottom + item.aspect * picture.pixels, color=ACCENT, lw=0.7)
        else:
            axes.imshow(picture.pixels, extent=(left, left + 1, bottom, bottom + item.aspect), aspect="auto")
        label = f"{picture.name}  {picture.note}".strip()
        axes.text(left + 0.5, bottom + item.aspect + 0.03, label, fontsize=7, ha="center", va="bottom")
    for row, name in enumerate(item.row_names):
        axes.text(-0.1, -step * row - item.aspect / 2, name, fontsize=8, ha="right", va="center")
    n_rows = -(-len(item.pictures) // item.columns)
    axes.set(xlim=(-0.02, 1.06 * item.columns), ylim=(-step * n_rows, room), aspect="equal")
    axes.set_axis_off()
    axes.set_title(item.caption, fontsize=9 if item.row_names else 8)


def _draw_scatter(axes: Any, item: Scatter) -> None:
    points = item.points
    # In random order, so that no group hides another.
    shown = np.random.default_rng(0).permutation(len(points))[:MAX_POINTS]
    size = float(np.clip(6e4 / len(shown), 3, 18))
    dots = {"s": size, "linewidths": 0, "alpha": 0.75, "rasterized": len(shown) > 5000}
    if item.values is None:
        axes.scatter(*points[shown].T, c=ACCENT, **dots)
    elif item.values.dtype.kind in "fM":
        _draw_scale(axes, item, shown, dots)
    else:
        _draw_groups(axes, item, shown, dots)
    if item.ellipses is not None:
        ellipse, alpha = _matplotlib(".patches").Ellipse, float(np.clip(40 / max(1, len(item.ellipses[0])), 0.15, 0.7))
        for i, axis in zip(*item.ellipses, strict=True):
            axes.add_patch(ellipse(points[i], *(2 * axis), fill=False, ec="0.5", lw=0.6, alpha=alpha))
    axes.set(xlabel=item.x_title, ylabel=item.y_title, title=item.title)
    if item.equal:
        axes.set_aspect("equal", adjustable="datalim")
    if not item.x_title:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def _draw_scale(axes: Any, item: Scatter, shown: Array, dots: dict[str, Any]) -> None:
    """Colour points by numbers or dates, with a colour bar; missing values are grey."""
    points, values = item.points, item.values
    assert values is not None
    known = shown[~np.isnan(values[shown])]
    axes.scatter(*points[np.setdiff1d(shown, known)].T, c="0.75", **dots)
    amounts, marks = values[known], {}
    if values.dtype.kind == "M":
        dates = _matplotlib(".dates")
        places = dates.AutoDateLocator()
        amounts, marks = dates.date2num(amounts), {"ticks": places, "format": dates.ConciseDateFormatter(places)}
    drawn = axes.scatter(*points[known].T, c=amounts, cmap="viridis", **dots)
    if item.annotate == "legend":
        axes.figure.colorbar(drawn, ax=axes, label=item.name, **marks)


def _draw_groups(axes: Any, item: Scatter, shown: Array, dots: dict[str, Any]) -> None:
    """Colour points by groups; annotate groups or points."""
    assert item.values is not None
    labels = np.array([str(value) for value in item.values])
    names = [name for name in np.unique(labels) if name]
    markers = MARKERS if item.annotate == "legend" else "o"
    styles = {
        name: {"c": COLOURS[i % len(COLOURS)], "marker": markers[i // len(COLOURS) % len(markers)]}
        for i, name in enumerate(names)
    }
    # Names of groups need lighter dots, numbers replace them.
    styled: dict[str, dict[str, Any]] = {"groups": {"s": 5, "alpha": 0.45}, "points": {"s": 0}}
    dots = dots | styled.get(item.annotate, {})
    # A few points of each group in turn, so that none lies on top of all others.
    for part in np.array_split(shown, min(20, max(1, len(shown) // 200))):
        for name, style in [("", {"c": "0.75", "marker": "o"}), *styles.items()]:
            axes.scatter(*item.points[part[labels[part] == name]].T, **style, **dots)
    if item.annotate == "groups":
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "alpha": 0.6, "lw": 0}
        for name in names:
            middle = np.median(item.points[labels == name], axis=0)
            axes.annotate(name, middle, fontsize=7, ha="center", va="center", weight="bold", bbox=box)
    elif item.annotate == "points":
        for i, (point, label) in enumerate(zip(item.points, labels, strict=True), start=1):
            axes.annotate(str(i), point, color=styles[label]["c"], fontsize=7, ha="center", va="center")
    elif item.annotate == "legend" and len(names) <= MAX_LEGEND:
        _draw_legend(axes, styles, item.name)


def _draw_legend(axes: Any, styles: dict[str, Any], title: str) -> None:
    # Matplotlib ignores labels that begin with an underscore.
    handles = [axes.scatter([], [], label=f" {name}", s=24, linewidths=0, **style) for name, style in styles.items()]
    axes.legend(
        handles=handles, title=title or None, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=7,
        ncols=1 + (len(handles) - 1) // 20,
    )  # fmt: skip
