"""Pictures of components that are images or fields: galleries, and reconstructions beside originals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.report.plots import check_picture, new_figure, save_picture

if TYPE_CHECKING:
    import xarray


# Components of a gallery, which with the mean fill five lines.
GALLERY, COLUMNS = 49, 10
# Share of the pixels that the scale of greys or colours spans; the few beyond it are cut off.
SPAN = 99.5
# Names of dimensions that run to the right.
ACROSS = ("x", "lon", "longitude", "column", "easting")


@dataclass(frozen=True)
class _Frame:
    """How features lie in the plane of a picture.

    Attributes
    ----------
    turned : whether the first dimension runs to the right.
    colour : whether there are red, green and blue.
    lower : whether the first line is the lowest.
    extent : left, right, bottom, top by the coordinates; None if there are none.
    """

    turned: bool
    colour: bool
    lower: bool
    extent: tuple[float, float, float, float] | None

    @classmethod
    def of(cls, result: xarray.Dataset) -> _Frame:
        """Choose from the dimensions and coordinates of a result's features."""
        if "components" not in result:
            raise InputError(f"a result of kind {result.attrs.get('kind')} has no components to draw; give one of pca")
        dims = [str(dim) for dim in result["components"].dims if dim != "component"]
        colour = len(dims) == 3 and result.sizes[dims[2]] == 3
        if len(dims) != 2 + colour:
            raise InputError(
                f"the features are {' x '.join(dims)}; a picture needs two dimensions, as y and x, or three with "
                "red, green and blue last"
            )
        turned = dims[0].lower() in ACROSS and dims[1].lower() not in ACROSS
        down, across = (dims[1], dims[0]) if turned else (dims[0], dims[1])
        edges = [_edges(result[dim].values) if dim in result.coords else None for dim in (across, down)]
        if edges[0] is None or edges[1] is None:
            return cls(turned, colour, False, None)
        # What increases goes up, as latitude and height do.
        (left, right), (first, last) = edges[0], edges[1]
        bottom, top = min(first, last), max(first, last)
        return cls(turned, colour, first < last, (left, right, bottom, top))

    def show(self, axes: Any, image: Array, low: Any, high: Any, signed: bool) -> None:
        """Draw one picture, values between low and high; what is no number stays blank."""
        image = np.swapaxes(image, 0, 1) if self.turned else image
        style: dict[str, Any] = {"origin": "lower" if self.lower else "upper", "aspect": "equal"}
        if self.colour:
            shown = np.clip((image - low) / (high - low if high > low else 1.0), 0, 1)
            image = np.where(np.isnan(shown), 1.0, shown)
        else:
            style |= {"vmin": low, "vmax": high, "cmap": "RdBu_r" if signed and self.extent else "gray"}
        if self.extent:
            style |= {"extent": self.extent, "aspect": "auto"}
        axes.imshow(image, **style)
        axes.spines[:].set_visible(bool(self.extent))

    def height(self, shape: tuple[int, ...]) -> float:
        """Return the height of a picture whose width is 1."""
        if self.extent is not None:
            left, right, bottom, top = self.extent
            return float(np.clip((top - bottom) / abs(right - left), 0.4, 2.5))
        return float(np.clip(shape[1] / shape[0] if self.turned else shape[0] / shape[1], 0.4, 2.5))


def _edges(values: Array) -> tuple[float, float] | None:
    """Return where the first and the last cell end; None of coordinates that are no numbers in order."""
    if values.dtype.kind not in "iuf" or len(values) < 2:
        return None
    steps = np.diff(values.astype(np.float64))
    if not ((steps > 0).all() or (steps < 0).all()):
        return None
    return float(values[0] - steps[0] / 2), float(values[-1] + steps[-1] / 2)


def draw_gallery(result: xarray.Dataset, path: Path, count: int = GALLERY) -> None:
    """Draw the mean and the first components as pictures, each with its share of the variance.

    Images are grey, 0 in the middle, or colours around grey; fields over coordinates are red above 0 and blue below,
    with the coordinates at the edge. A feature that is missing in all samples is left blank.

    Parameters
    ----------
    result : of `pca` or `ppca`, whose features are y and x, or y, x and three channels.
    path : of the picture: .png, .pdf or .svg.
    count : how many components.
    """
    check_picture(path)
    frame = _Frame.of(result)
    mean = np.asarray(result["mean"].values, np.float64)
    components = result["components"].values[:count]
    share = result["explained_variance_ratio"].values
    absent = np.isnan(mean)
    columns = min(COLUMNS, len(components) + 1)
    n_lines = -(-(len(components) + 1) // columns)
    figure = new_figure(1.15 * columns + 0.3, (1.15 * frame.height(mean.shape) + 0.22) * n_lines + 0.2)
    places: dict[str, float] = {}
    if frame.extent is None:
        # Without marks at the axes there is nothing to make room for, which takes its time with fifty pictures.
        figure.set_layout_engine("none")
        places = {"left": 0.01, "bottom": 0.01, "right": 0.99, "top": 1 - 0.1 / n_lines, "wspace": 0.08, "hspace": 0.2}
    grid = figure.subplots(n_lines, columns, squeeze=False, gridspec_kw=places)
    names = ["mean", *(f"PC{i + 1}  {s:.1%}" for i, s in enumerate(share[: len(components)]))]
    for number, (axes, name) in enumerate(zip(grid.flat, names, strict=False)):
        if number == 0:
            frame.show(axes, mean, *_range(mean), signed=False)
        else:
            image = np.where(absent, np.nan, components[number - 1])
            limit = _limit(image)
            frame.show(axes, image, -limit, limit, signed=True)
        axes.set_title(name, fontsize=7, pad=2)
        # Pictures in the last line, or with none below them, have marks at their lower edge.
        if frame.extent is None:
            axes.set(xticks=[], yticks=[])
        else:
            axes.tick_params(
                labelsize=5, length=2, labelbottom=number + columns >= len(names), labelleft=number % columns == 0
            )
    for axes in list(grid.flat)[len(names) :]:
        axes.set_axis_off()
    save_picture(figure, path)


def draw_reconstructions(
    result: xarray.Dataset, originals: Array, path: Path, counts: Sequence[int] = (5, 10, 20, 49)
) -> None:
    """Draw samples beside what is left of them on the first k components, for several k.

    x_k = mean + scale (V_k V_k' (x - mean) / scale)

    Parameters
    ----------
    result : of `pca`, whose features are y and x, or y, x and three channels.
    originals : (n, y, x) or (n, y, x, 3): some samples, one column each.
    path : of the picture: .png, .pdf or .svg.
    counts : the numbers of components; those that the result does not have are left out.
    """
    check_picture(path)
    frame = _Frame.of(result)
    originals = np.asarray(originals, np.float64)
    rows = {"original": originals}
    for k, images in reconstructions(result, originals, counts).items():
        error = np.sqrt(np.nanmean((images - originals) ** 2))
        rows[f"k = {k}\nRMSE {error:.3g}"] = images
    _draw_rows(frame, rows, path, "")


def draw_rows(rows: Mapping[str, Array], path: Path, title: str = "") -> None:
    """Draw the same images in lines, one for each name: (n, y, x) or (n, y, x, 3), all on one scale of greys."""
    check_picture(path)
    colour = next(iter(rows.values())).ndim == 4
    _draw_rows(_Frame(turned=False, colour=colour, lower=False, extent=None), rows, path, title)


def _draw_rows(frame: _Frame, rows: Mapping[str, Array], path: Path, title: str) -> None:
    """Draw images in lines, on the scale of the first line."""
    first = next(iter(rows.values()))
    low, high = _range(first)
    above = 0.5 if title else 0.1
    width, height = len(first) + 1.0, frame.height(first.shape[1:]) * len(rows) + above
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    places = {"left": 0.9 / width, "right": 1 - 0.1 / width, "bottom": 0.05 / height, "top": 1 - above / height}
    grid = figure.subplots(len(rows), len(first), squeeze=False, gridspec_kw={**places, "wspace": 0.08, "hspace": 0.08})
    for line, (name, images) in zip(grid, rows.items(), strict=True):
        for axes, image in zip(line, images, strict=True):
            frame.show(axes, image, low, high, signed=False)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(title)
    save_picture(figure, path)


def reconstructions(result: xarray.Dataset, samples: Array, counts: Sequence[int]) -> dict[int, Array]:
    """Return k -> the samples as the first k components have them, for those k that the result reaches, or all."""
    mean, scale = result["mean"].values.ravel(), result["scale"].values.ravel()
    V = result["components"].values.reshape(result.sizes["component"], -1)  # noqa: N806
    if samples[0].size != mean.size:
        raise InputError(f"samples of {samples[0].size} features were given, the result has {mean.size}; give the same")
    # A missing value stands at its mean.
    centred = np.nan_to_num((samples.reshape(len(samples), -1) - mean) / scale)
    scores = centred @ V.T
    chosen = sorted({k for k in counts if 0 < k <= len(V)} or {len(V)})
    return {k: (scores[:, :k] @ V[:k] * scale + mean).reshape(samples.shape) for k in chosen}


def _range(values: Array) -> tuple[float, float]:
    """Return the least and the largest number."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def _limit(image: Array) -> float:
    """Return how far from 0 the scale of greys or colours reaches."""
    seen = np.abs(image[np.isfinite(image)])
    largest = float(seen.max(initial=0.0))
    return float(np.percentile(seen, SPAN)) or largest if largest else 1.0
