"""Components and samples that are images or fields, as pixels."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from streampca._typing import Array
from streampca.errors import InputError
from streampca.results.wording import capitalised, number, percent

if TYPE_CHECKING:
    import xarray

MAX_IMAGES = 49  # components of a gallery; with the mean they fill five rows of ten
MAX_PIXELS = 240  # larger images are reduced by block means
SPAN = 99.5  # percentage of the pixels within the colour scale; the largest values are clipped
ACROSS = ("x", "lon", "longitude", "nav_lon", "column", "easting")
COMPASS = {"lat": "NS", "latitude": "NS", "nav_lat": "NS", "lon": "EW", "longitude": "EW", "nav_lon": "EW"}
CHANNELS = ("channel", "channels", "band", "bands", "color", "colour", "rgb", "c")
GREYS = np.array([(0, 0, 0), (255, 255, 255)], float)
# Blue, white, red.
DIVERGING = np.array(
    [(5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
     (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31)], float,
)  # fmt: skip
VIRIDIS = np.array(
    [(68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142), (31, 158, 137), (53, 183, 121),
     (110, 206, 88), (181, 222, 43), (253, 231, 37)], float,
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """An image with its name.

    Attributes
    ----------
    name, note : below or above it, as "PC1" and "12.3%".
    text : describes it in words.
    pixels : (y, x, 3) or (y, x, 4) uint8; or (n,) values from 0 to 1, drawn as a curve.
    """

    name: str
    note: str
    text: str
    pixels: Array

    @property
    def uri(self) -> str:
        """The image as a data URI."""
        file = io.BytesIO()
        Image.fromarray(self.pixels).save(file, "PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


@dataclass(frozen=True)
class Gallery:
    """Pictures of one size, in rows.

    Attributes
    ----------
    aspect : height of a picture over its width.
    row_names : of each row, if rows have names.
    field : whether the images are maps with coordinates.
    """

    pictures: list[Picture]
    caption: str
    columns: int
    aspect: float
    row_names: tuple[str, ...] = ()
    field: bool = False


def image_dims(dims: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[str, ...] | None:
    """Return the dimensions of an image in the order rows, columns and, for colours, channels; None if it is none."""
    channel: tuple[str, ...] = ()
    if len(dims) == 3 and 3 in sizes:
        likely = [d for d, size in zip(dims, sizes, strict=True) if size == 3]
        channel = (next((d for d in likely if d.lower() in CHANNELS), likely[-1]),)
    plane = [d for d in dims if d not in channel]
    if len(plane) != 2 or not channel and min(sizes) < 2:
        return None
    if plane[0].lower() in ACROSS and plane[1].lower() not in ACROSS:
        plane.reverse()
    return (*plane, *channel)


@dataclass(frozen=True)
class _Layout:
    """How features are arranged in a picture.

    Attributes
    ----------
    order : dimensions of an image.
    field : whether both axes have ordered coordinates.
    step : -1 if the first row is the lowest, else 1.
    aspect : height over width.
    """

    order: tuple[str, ...]
    field: bool
    step: int
    aspect: float

    @classmethod
    def of(cls, result: xarray.Dataset) -> _Layout | None:
        dims = tuple(str(dim) for dim in result["mean"].dims)
        order = image_dims(dims, tuple(result.sizes[dim] for dim in dims))
        if order is None:
            return None
        spans = [_edges(result, dim) for dim in order[:2]]
        field = None not in spans
        y, x = (
            span if span and field else (float(result.sizes[d]), 0.0) for span, d in zip(spans, order, strict=False)
        )
        aspect = float(np.clip(abs(y[1] - y[0]) / abs(x[1] - x[0]), 0.4, 2.5))
        return cls(order, field, -1 if y[0] < y[1] else 1, aspect)

    def images(self, array: xarray.DataArray) -> Iterator[Array]:
        """Yield the images of an array, (y, x) or (y, x, 3), reading one at a time."""
        rows = [dim for dim in array.dims if dim not in self.order]
        for index in np.ndindex(*(array.sizes[dim] for dim in rows)):
            yield array.isel(dict(zip(rows, index, strict=True))).transpose(*self.order).values[:: self.step]


def gallery(result: xarray.Dataset, names: Sequence[str]) -> Gallery | None:
    """Return the mean and the named components as pictures; None if features are not images.

    Images are grey, with 0 in the middle; fields over coordinates are red above 0 and blue below, with increasing
    coordinates up. A feature that is missing in all samples is blank. Clusters each have a mean and components.
    """
    layout = _Layout.of(result)
    if layout is None:
        return None
    missing = np.isnan(next(layout.images(result["mean"])))
    means = list(layout.images(result["means" if "means" in result else "mean"]))
    pictures = []
    for i, values in enumerate(means):
        low, high = value_range(values)
        name = "mean" if len(means) == 1 else f"cluster {i + 1}, mean"
        note = f"{number(low)} to {number(high)}" if layout.field else ""
        pictures.append(_picture(name, note, values, low, high, VIRIDIS if layout.field else GREYS))
    components, colours = result["components"], DIVERGING if layout.field else GREYS
    count = components.size // missing.size
    notes = [""] * count
    if "explained_variance_ratio" in result:
        notes = [percent(float(share)) for share in result["explained_variance_ratio"].values]
    for name, note, values in zip(names, notes, layout.images(components), strict=False):
        limit = _limit(values)
        pictures.append(_picture(name, note, np.where(missing, np.nan, values), -limit, limit, colours))
    caption = _caption(result, layout)
    if len(names) < count:
        caption += f" The first {len(names)} of {count} components."
    columns = min(4 if layout.field else 10, len(pictures))
    return Gallery(pictures, caption, columns, layout.aspect, field=layout.field)


def _picture(name: str, note: str, values: Array, low: float, high: float, colours: Array) -> Picture:
    pixels = colour_pixels(reduced(values), low, high, colours)
    return Picture(name, note, f"{name}: {number(low)} to {number(high)}", pixels)


def image_rows(rows: Mapping[str, Array], *, ink: bool = False, title: str = "") -> Gallery:
    """Return the same samples in rows with names, on the scale of the first row.

    Parameters
    ----------
    rows : name -> (n, y, x) or (n, y, x, 3); samples of another shape are drawn as curves.
    ink : draw large values dark.
    """
    first = next(iter(rows.values()))
    images = first.ndim == 3 or (first.ndim == 4 and first.shape[3] == 3)
    low, high = value_range(first if images else np.concatenate([v.ravel() for v in rows.values()]))
    pictures = []
    for values in (sample for samples in rows.values() for sample in samples):
        if images:
            pixels = colour_pixels(values, low, high, GREYS[::-1] if ink else GREYS)
        else:
            pixels = (values.ravel() - low) / ((high - low) or 1.0)
        pictures.append(Picture("", "", "", pixels))
    aspect = float(np.clip(first.shape[1] / first.shape[2], 0.4, 2.5)) if images else 1.0
    return Gallery(pictures, title, len(first), aspect, tuple(rows))


def reconstructions(result: xarray.Dataset, samples: Array, counts: Sequence[int]) -> dict[int, Array]:
    """Return k -> the samples projected on the first k components, for each k that the result has, or for all.

    x_k = mean + scale (V_k V_k' (x - mean) / scale)
    """
    mean, scale = result["mean"].values.ravel(), result["scale"].values.ravel()
    V = result["components"].values.reshape(result.sizes["component"], -1)  # noqa: N806
    if samples[0].size != mean.size:
        raise InputError(f"the samples have {samples[0].size} features, the result has {mean.size}; use the same data")
    # Missing values are replaced by the mean.
    scores = np.nan_to_num((samples.reshape(len(samples), -1) - mean) / scale) @ V.T
    chosen = sorted({k for k in counts if 0 < k <= len(V)} or {len(V)})
    return {k: (scores[:, :k] @ V[:k] * scale + mean).reshape(samples.shape) for k in chosen}


def _edges(result: xarray.Dataset, dim: str) -> tuple[float, float] | None:
    """Return the outer edges of the first and the last cell; None unless coordinates are ordered numbers."""
    if dim not in result.coords or result[dim].dtype.kind not in "iuf" or result.sizes[dim] < 2:
        return None
    values = result[dim].values
    steps = np.diff(values.astype(np.float64))
    if not ((steps > 0).all() or (steps < 0).all()):
        return None
    return float(values[0] - steps[0] / 2), float(values[-1] + steps[-1] / 2)


def _caption(result: xarray.Dataset, layout: _Layout) -> str:
    """Describe the range of the coordinates and the colours."""
    if not layout.field:
        return "Grey is 0, white positive, black negative; the mean from its smallest to its largest value."
    spans = []
    for dim, direction in zip(layout.order, ("up", "across"), strict=False):
        ends = sorted((float(result[dim].values[0]), float(result[dim].values[-1])))
        signs = COMPASS.get(dim.lower())
        if signs:
            shown = [f"{abs(v):g}\u00b0{signs[0] if v > 0 else signs[1] if v < 0 else ''}" for v in ends]
        else:
            shown = [number(v) for v in ends]
        spans.append(f"{dim} from {' to '.join(shown)}, {direction}")
    return f"{capitalised('; '.join(spans))}. Blue is negative, red positive, white 0."


def reduced(values: Array) -> Array:
    """Return an image (y, x) or (y, x, 3) with at most MAX_PIXELS a side, by means of blocks."""
    step = -(-max(values.shape[:2]) // MAX_PIXELS)
    values = values.astype(np.float64)
    y, x = (size // step for size in values.shape[:2])
    if step == 1 or y == 0 or x == 0:
        return values[::step, ::step]
    blocks = values[: y * step, : x * step].reshape(y, step, x, step, *values.shape[2:])
    known = np.isfinite(blocks)
    counts = known.sum(axis=(1, 3))
    sums = np.where(known, blocks, 0.0).sum(axis=(1, 3))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def colour_pixels(values: Array, low: float, high: float, colours: Array) -> Array:
    """Return pixels of an image: values from low to high by a ramp of colours, or as red, green and blue.

    Values that are not finite are transparent.
    """
    known = np.isfinite(values)
    place = np.clip((np.where(known, values, low) - low) / ((high - low) or 1.0), 0, 1)
    if values.ndim == 3:
        rgb, known = 255 * place, np.asarray(known.all(axis=2))
    else:
        at = place * (len(colours) - 1)
        rgb = np.stack([np.interp(at, np.arange(len(colours)), channel) for channel in colours.T], axis=-1)
    pixels = rgb if known.all() else np.concatenate([rgb, 255.0 * known[..., None]], axis=-1)
    return np.asarray(np.rint(pixels), np.uint8)


def value_range(values: Array) -> tuple[float, float]:
    """Return the smallest and the largest finite value."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def _limit(image: Array) -> float:
    """Return the largest absolute value of the colour scale."""
    known = np.abs(image[np.isfinite(image)])
    largest = float(known.max(initial=0.0))
    return float(np.percentile(known, SPAN)) or largest if largest else 1.0
