"""Pictures that demonstrations and commands draw. Needs matplotlib, the `plot` extra."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Okabe & Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can be written to."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    known = new_figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise InputError(f"{path}: is no picture by its name; end it in .png, .pdf or .svg")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("drawing needs matplotlib: pip install 'streampca[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=130)


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure beside its name, and rename it when it is whole."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        figure.savefig(beside, format=path.suffix[1:].lower())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def plain(text: str) -> str:
    """Return a text of the data's as matplotlib shows it letter by letter: no formulas, no name that is left out."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def draw_digits(
    images: Array, mean: Array, components: Array, curve: Array, reconstructions: dict[int, Array], path: Path
) -> None:
    """Draw the mean, the first components, J(m), and some images beside their reconstructions.

    Parameters
    ----------
    images : (rows, y, x) originals.
    mean, components : (y, x) and (k, y, x).
    curve : J(m) for m = 0 .. k.
    reconstructions : m -> (rows, y, x).
    """
    figure = new_figure(12, 7)
    halves: Any = figure.subfigures(2, 1, height_ratios=(1, 1.35))
    top, bottom = halves
    gallery = top.subplots(2, 8)
    top.suptitle("mean, and the first 15 components")
    for axes, image, name in zip(gallery.flat, [mean, *components[:15]], ["mean", *range(1, 16)], strict=True):
        limit = np.abs(image).max()
        axes.imshow(
            image, cmap="gray_r" if name == "mean" else "RdBu", vmin=0 if name == "mean" else -limit, vmax=limit
        )
        axes.set_title(str(name), fontsize=8)
        axes.set_axis_off()
    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.5))
    axes = left.subplots()
    axes.plot(curve / curve[0], color=COLOURS[0])
    axes.axhline(0.1, color="0.6", lw=0.8, ls="--")
    axes.annotate("90% explained", (len(curve) * 0.6, 0.115), fontsize=8, color="0.4")
    axes.set(
        xlabel="components kept, m", ylabel="J(m) / J(0)", title="variance left out", ylim=(0, 1.02), xlim=(0, None)
    )
    axes.spines[["top", "right"]].set_visible(False)
    rows = {"original": images, **{f"m = {m}": r for m, r in reconstructions.items()}}
    grid = right.subplots(len(rows), len(images))
    for line, (name, pictures) in zip(grid, rows.items(), strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            axes.imshow(picture, cmap="gray_r", vmin=0, vmax=16)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    save_picture(figure, path)


def draw_map(planes: dict[str, Array], groups: Array, path: Path, title: str) -> None:
    """Draw planes of the same samples side by side, each group by its colour, with its name at its middle."""
    figure = new_figure(5.6 * len(planes), 4.9)
    names = np.unique(groups)
    colours = np.array(COLOURS)[np.searchsorted(names, groups) % len(COLOURS)]
    for axes, (name, points) in zip(
        figure.subplots(1, len(planes), sharex=True, sharey=True), planes.items(), strict=True
    ):
        axes.scatter(*points.T, s=5, c=colours, alpha=0.45, linewidths=0, rasterized=True)
        for group in names:
            axes.annotate(
                plain(group), np.median(points[groups == group], axis=0),
                fontsize=7, ha="center", va="center", weight="bold",
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "alpha": 0.6, "lw": 0},
            )  # fmt: skip
        axes.set_title(name, fontsize=9)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.suptitle(plain(title))
    save_picture(figure, path)


def draw_planes(planes: dict[str, tuple[Array, Array | None]], groups: Array | None, path: Path, title: str) -> None:
    """Draw planes of the same samples side by side, each point by its number, with its deviation if known.

    Parameters
    ----------
    planes : title -> points (n, 2), and the standard deviation of each coordinate or None.
    groups : of the points, for their colour.
    """
    from matplotlib.patches import Ellipse

    figure = new_figure(4.2 * len(planes), 4.6)
    for axes, (name, (points, deviations)) in zip(
        figure.subplots(1, len(planes), sharex=True, sharey=True, squeeze=False)[0], planes.items(), strict=True
    ):
        colours = np.array(COLOURS)[np.zeros(len(points), int) if groups is None else groups % len(COLOURS)]
        axes.scatter(*points.T, s=0)
        for number, (point, colour) in enumerate(zip(points, colours, strict=True), start=1):
            axes.annotate(str(number), point, color=colour, fontsize=7, ha="center", va="center")
            if deviations is not None:
                axes.add_patch(
                    Ellipse(
                        point, *(2 * deviations[number - 1]), color=colour, alpha=min(0.07, 2.5 / len(points)), lw=0
                    )
                )
        axes.set_title(name, fontsize=9)
        axes.set(xlabel="$z_1$", aspect="equal")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("$z_2$")
    figure.suptitle(plain(title))
    save_picture(figure, path)


def draw_curves(rows: dict[str, tuple[Array, dict[str, Array]]], path: Path) -> None:
    """Draw points and their scores side by side, a row for each data set.

    Parameters
    ----------
    rows : name -> a colour for each point (whole numbers: groups, else a position), and title -> points (n, 2).
    """
    columns = max(len(planes) for _, planes in rows.values())
    figure = new_figure(4.2 * columns, 4.1 * len(rows))
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, (values, planes)) in zip(grid, rows.items(), strict=True):
        groups = values.dtype.kind in "iu"
        colours = {"c": np.array(COLOURS)[values % len(COLOURS)]} if groups else {"c": values, "cmap": "viridis"}
        for number, (axes, (title, points)) in enumerate(zip(line, planes.items(), strict=False)):
            axes.scatter(*points.T, s=5, alpha=0.7, linewidths=0, **colours)
            axes.set_title(title if number else f"{name}: {title}", fontsize=9)
            axes.set_aspect("equal", adjustable="datalim")
            axes.spines[["top", "right"]].set_visible(False)
            what = "score " if number else "x"
            axes.set(xlabel=f"{what}1", ylabel=f"{what}2")
    save_picture(figure, path)


def draw_samples(rows: dict[str, Array], path: Path, title: str = "") -> None:
    """Draw the same samples in lines, one for each name: images (count, y, x), else curves of all their features."""
    count = len(next(iter(rows.values())))
    figure = new_figure(0.9 * count + 1.2, 0.95 * len(rows) + 0.2)
    low, high = (float(pick([pick(values) for values in rows.values()])) for pick in (np.nanmin, np.nanmax))
    grid = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, samples) in zip(grid, rows.items(), strict=True):
        for axes, sample in zip(line, samples, strict=True):
            if sample.ndim == 2:
                axes.imshow(sample, cmap="gray_r", vmin=low, vmax=high)
            else:
                axes.plot(sample.ravel(), color=COLOURS[0], lw=0.7)
                axes.set_ylim(low, high)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(title)
    save_picture(figure, path)
