"""Figures of a result for print: scores, scree, certificates, error, loadings. Needs matplotlib, the `plot` extra."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.report.plots import COLOURS, new_figure, plain, save_picture
from streampca.results.schema import certificate_method, error_in

if TYPE_CHECKING:
    import xarray


# With more groups than colours, each round of colours has a marker of its own.
MARKERS = "o^sDvPX*"
# Points that are drawn at most: of more, a sample that is the same each time.
MOST_POINTS = 50_000
# Radius of a 95% ellipse of two independent normal variables, in deviations: sqrt(-2 log 0.05).
ELLIPSE_RADIUS = 2.4477
# Ellipses are for samples less sure than others: of so many times the median deviation; so many at most.
UNSURE, MOST_ELLIPSES = 1.5, 300
# Variants drawn of a chromosome: the largest loading in each of so many equal parts of all of them.
GENOME_BINS = 4000


def draw_overview(result: xarray.Dataset, path: Path, values: Array | None = None, title: str = "") -> None:
    """Draw PC1 against PC2, the scree with its cumulative share, and what is known of the error of each component."""
    known = _error if error_in(result) is None else _certificates
    panels: list[Callable[[Any, xarray.Dataset], None]] = [_scree, known]
    if "scores" in result and result.sizes["component"] > 1:
        panels = [lambda axes, result: _scores(axes, result, (1, 2), values), *panels]
    figure = new_figure(4 * len(panels), 4.2)
    widths = [1.25] + [1] * (len(panels) - 1)
    for axes, panel in zip(figure.subplots(1, len(panels), width_ratios=widths), panels, strict=True):
        panel(axes, result)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(plain(title))
    save_picture(figure, path)


def draw_figure(
    result: xarray.Dataset, what: str, path: Path, *, values: Array | None = None, name: str = "",
    pair: tuple[int, int] = (1, 2),
) -> None:  # fmt: skip
    """Draw one figure of a result.

    Parameters
    ----------
    what : "overview", "scores", "scree", "certificates", "error" or "loadings".
    values : of the samples, for their colour: text for groups, numbers or dates for a scale.
    name : what the values are called.
    pair : components of the scores, from 1 on; loadings are of the first.
    """
    k = result.sizes["component"]
    asked = {"scores": pair, "loadings": pair[:1]}.get(what, ())
    if not all(1 <= number <= k for number in asked):
        raise InputError(f"component {max(asked)} was asked for; the result has 1 to {k}")
    if what == "overview":
        draw_overview(result, path, values)
        return
    figure = new_figure(10 if what == "loadings" else 5.6, 3.6 if what == "loadings" else 4.6)
    axes = figure.subplots()
    if what == "scores":
        _scores(axes, result, pair, values, name)
    elif what == "loadings":
        _loadings(axes, result, pair[0])
    else:
        {"scree": _scree, "certificates": _certificates, "error": _error}[what](axes, result)
    axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)


def _needed(result: xarray.Dataset, name: str, cure: str) -> Array:
    if name not in result:
        raise InputError(f"the result ({result.attrs.get('kind')}) holds no {name}; {cure}")
    return np.asarray(result[name].values)


def _scores(
    axes: Any, result: xarray.Dataset, pair: tuple[int, int], values: Array | None = None, name: str = ""
) -> None:
    scores = _needed(result, "scores", "draw another figure")
    columns = [number - 1 for number in pair]
    points = scores.reshape(-1, scores.shape[-1])[:, columns]
    # The order is random, so that no group hides another.
    shown = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
    size = float(np.clip(6e4 / len(shown), 3, 18))
    dots = {"s": size, "linewidths": 0, "alpha": 0.75, "rasterized": len(shown) > 5000}
    if values is None:
        axes.scatter(*points[shown].T, c=COLOURS[0], **dots)
    elif values.dtype.kind in "fM":
        known = shown[~np.isnan(values[shown])]
        axes.scatter(*points[np.setdiff1d(shown, known)].T, c="0.75", **dots)
        amounts, marks = values[known], {}
        if values.dtype.kind == "M":
            import matplotlib.dates

            dates: Any = matplotlib.dates
            places = dates.AutoDateLocator()
            amounts, marks = dates.date2num(amounts), {"ticks": places, "format": dates.ConciseDateFormatter(places)}
        drawn = axes.scatter(*points[known].T, c=amounts, cmap="viridis", **dots)
        axes.figure.colorbar(drawn, ax=axes, label=plain(name), **marks)
    else:
        _groups(axes, points, shown, values, name, dots)
    _ellipses(axes, result, points, columns)
    share = result["explained_variance_ratio"].values
    for label, number in ((axes.set_xlabel, pair[0]), (axes.set_ylabel, pair[1])):
        label(f"PC{number} ({share[number - 1]:.1%})")


def _groups(axes: Any, points: Array, shown: Array, values: Array, name: str, dots: dict[str, Any]) -> None:
    labels = np.array([str(value) for value in values])
    groups = [group for group in np.unique(labels) if group]
    styles = {
        group: {"c": COLOURS[i % len(COLOURS)], "marker": MARKERS[i // len(COLOURS) % len(MARKERS)]}
        for i, group in enumerate(groups)
    }
    # A handful at a time of each group in turn, so that none lies on top of all others.
    for part in np.array_split(shown, min(20, max(1, len(shown) // 200))):
        for group, style in [("", {"c": "0.75", "marker": "o"}), *styles.items()]:
            axes.scatter(*points[part[labels[part] == group]].T, **style, **dots)
    handles = [axes.scatter([], [], label=plain(group), s=24, linewidths=0, **style) for group, style in styles.items()]
    if len(handles) <= 40:
        axes.legend(
            handles=handles, title=plain(name) or None, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False,
            fontsize=7, ncols=1 + (len(handles) - 1) // 20,
        )  # fmt: skip


def _ellipses(axes: Any, result: xarray.Dataset, points: Array, columns: list[int]) -> None:
    """Draw 95% ellipses around samples whose place is less sure than that of others."""
    if "score_deviation" not in result:
        return
    from matplotlib.patches import Ellipse

    deviation = result["score_deviation"].values
    deviation = deviation.reshape(-1, deviation.shape[-1])[:, columns]
    area = deviation.prod(axis=1)
    unsure = np.flatnonzero(area > UNSURE**2 * np.median(area))
    for i in unsure[np.argsort(-area[unsure])][:MOST_ELLIPSES]:
        around = Ellipse(points[i], *(2 * ELLIPSE_RADIUS * deviation[i]), fill=False, ec="0.5", lw=0.6, alpha=0.7)
        axes.add_patch(around)


def _scree(axes: Any, result: xarray.Dataset) -> None:
    share = result["explained_variance_ratio"].values
    number, together = np.arange(1, len(share) + 1), np.cumsum(share)
    axes.bar(number, share, color=COLOURS[0], label="each")
    axes.plot(number, together, "o-", color=COLOURS[5], ms=3, label="together")
    if together[-1] >= 0.9:
        axes.axhline(0.9, color="0.6", lw=0.8, ls="--")
        axes.annotate("90%", (number[-1], 0.9), fontsize=8, color="0.4", ha="right", va="bottom")
    axes.set(xlabel="component", ylabel="share of the variance", ylim=(0, None))
    axes.legend(frameon=False)


def _certificates(axes: Any, result: xarray.Dataset) -> None:
    name, method = error_in(result) or "certificate", certificate_method(result.attrs)
    bounds = _needed(result, name, "there is none after EM; draw another figure")
    axes.semilogy(np.arange(1, len(bounds) + 1), bounds, "o", color=COLOURS[2])
    label = "certificate  $\\|Sv-\\lambda v\\|/\\lambda\\leq$"
    if method == "none":
        label = "estimate of $\\|Sv-\\lambda v\\|/\\lambda$, rounding not included"
    elif method == "modelled":
        label = label.replace("certificate", "certificate (modelled)")
    axes.set(xlabel="component", ylabel=label)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _error(axes: Any, result: xarray.Dataset) -> None:
    left = 1 - np.append(0, np.cumsum(result["explained_variance_ratio"].values))
    axes.plot(left, "o-", ms=3, color=COLOURS[0])
    axes.axhline(0.1, color="0.6", lw=0.8, ls="--")
    axes.set(xlabel="components kept, m", ylabel="J(m) / J(0), variance left out", ylim=(0, 1.02), xlim=(0, None))


def _loadings(axes: Any, result: xarray.Dataset, number: int) -> None:
    values = _needed(result, "components", "draw another figure")[number - 1]
    if "chromosome" in result.coords:
        _manhattan(axes, result, values)
        axes.set_ylabel(f"size of the loading on PC{number}")
    else:
        axes.plot(values.ravel(), color=COLOURS[0], lw=0.8)
        axes.set(xlabel="feature" if values.ndim == 1 else plain(" x ".join(map(str, result["mean"].dims))))
        axes.set_ylabel(f"loading on PC{number}")


def _manhattan(axes: Any, result: xarray.Dataset, values: Array) -> None:
    """Draw loadings along the genome, chromosomes in turn; of very many the largest of each small part."""
    chromosome, position = result["chromosome"].values, result["position"].values
    names, first = np.unique(chromosome, return_index=True)
    names = names[np.argsort(first)]
    ends, x = 0.0, np.empty(len(values))
    ticks = []
    for name in names:
        here = np.flatnonzero(chromosome == name)
        place = position[here] - position[here].min()
        x[here] = ends + place
        ticks.append(ends + place.max() / 2)
        ends += place.max() * 1.01 + 1
    size = np.abs(values)
    shown = largest_in_bins(x, size, GENOME_BINS)
    colours = {name: COLOURS[0] if i % 2 else COLOURS[4] for i, name in enumerate(names)}
    axes.scatter(
        x[shown], size[shown], s=4, c=[colours[name] for name in chromosome[shown]], linewidths=0, rasterized=True
    )
    axes.set(xlabel="chromosome", xlim=(-0.01 * ends, 1.01 * ends), ylim=(0, None))
    axes.set_xticks(ticks, [plain(str(name)) for name in names], fontsize=6)


def largest_in_bins(place: Array, size: Array, n_bins: int) -> Array:
    """Return, in order of place, the index of the largest in each of many equal parts of the range."""
    width = (place.max() - place.min()) / n_bins or 1.0
    part = np.minimum(((place - place.min()) / width).astype(np.int64), n_bins - 1)
    order = np.lexsort((-size, part))
    return np.asarray(order[np.append(True, np.diff(part[order]) > 0)])
