"""Components that are images or fields, as PNG inside the page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

import numpy as np

from streampca._typing import Array
from streampca.report.markup import Html, element, joined, number, percent

if TYPE_CHECKING:
    import xarray


MOST_IMAGES = 49
# Larger images are made smaller by means of blocks.
MOST_PIXELS = 240
LATITUDES, LONGITUDES = ("lat", "latitude", "nav_lat"), ("lon", "longitude", "nav_lon")
CHANNELS = ("channel", "channels", "band", "bands", "color", "colour", "rgb", "c")
# Blue, white, red: from the least value to the largest, both equally far from nothing.
DIVERGING = np.array(
    [(5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (247, 247, 247),
     (253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31)], float,
)  # fmt: skip
VIRIDIS = np.array(
    [(68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142), (31, 158, 137), (53, 183, 121),
     (110, 206, 88), (181, 222, 43), (253, 231, 37)], float,
)  # fmt: skip


def image_dims(dims: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[str, str, str | None] | None:
    """Return which dimensions are rows, columns and colours of an image; None if features are no images."""
    if len(dims) == 2 and min(sizes) > 1:
        return dims[0], dims[1], None
    if len(dims) == 3 and 3 in sizes:
        likely = [d for d, size in zip(dims, sizes, strict=True) if size == 3]
        colour = next((d for d in likely if d.lower() in CHANNELS), likely[-1])
        rest = [d for d in dims if d != colour]
        return rest[0], rest[1], colour
    return None


def gallery(result: xarray.Dataset, prefix: str) -> Html | None:
    """Return the mean and the components as images; None if features are no images."""
    dims = tuple(str(dim) for dim in result["mean"].dims)
    axes = image_dims(dims, tuple(result.sizes[dim] for dim in dims))
    if axes is None:
        return None
    field = axes[0].lower() in LATITUDES and axes[1].lower() in LONGITUDES
    flip = field and _rises(result, axes[0])
    order = [axis for axis in axes if axis is not None]
    share = result["explained_variance_ratio"].values
    count = min(len(share), MOST_IMAGES)
    cells = [_cell(_small(result["mean"].transpose(*order).values), "mean", "", field, flip, mean=True)]
    for i in range(count):
        values = _small(result["components"].isel(component=i).transpose(*order).values)
        cells.append(_cell(values, f"{prefix}{i + 1}", percent(float(share[i])), field, flip, mean=False))
    parts = [element("div", *cells, class_="gallery field" if field else "gallery")]
    parts.append(_extent(result, axes[0], axes[1], field))
    if count < len(share):
        parts.append(element("p", f"The first {count} of {len(share)} components.", class_="quiet"))
    return joined(parts)


def _rises(result: xarray.Dataset, dim: str) -> bool:
    if dim not in result.coords or result.sizes[dim] < 2:
        return False
    return bool(result[dim].values[0] < result[dim].values[-1])


def _extent(result: xarray.Dataset, up: str, across: str, field: bool) -> Html:
    """Say how far the images reach, where coordinates tell."""
    words = []
    for dim, signs in ((up, "NS"), (across, "EW")):
        if dim in result.coords and result[dim].dtype.kind in "iuf":
            ends = (float(result[dim].values[0]), float(result[dim].values[-1]))
            if field:
                shown = [f"{abs(v):g}°{signs[0] if v > 0 else signs[1] if v < 0 else ''}" for v in sorted(ends)]
            else:
                shown = [number(v) for v in ends]
            way = "across" if dim == across else "up" if field else "down"
            words.append(f"{dim} from {' to '.join(shown)}, {way}")
    text = f"{'; '.join(words)}. " if words else ""
    text = text[:1].upper() + text[1:]
    colours = (
        "Blue is negative, red positive, white 0."
        if field
        else "Grey is 0, white positive, black negative; the mean from its least to its largest value."
    )
    return element("p", text, colours, class_="quiet")


def _cell(values: Array, name: str, more: str, field: bool, flip: bool, *, mean: bool) -> Html:
    if flip:
        values = values[::-1]
    finite = values[np.isfinite(values)]
    limit = float(np.abs(finite).max(initial=0.0)) or 1.0
    if mean:
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        said = f"{number(low)} to {number(high)}"
    else:
        low, high = -limit, limit
        said = f"from {number(-limit)} to {number(limit)}"
    colours = (VIRIDIS if mean else DIVERGING) if field else np.array([(0, 0, 0), (255, 255, 255)], float)
    place = png(values, low, high, colours)
    text = f"{name}: {said}"
    picture = element("img", src=place, alt=text, title=text, width=values.shape[1], height=values.shape[0])
    caption = element(
        "figcaption", element("b", name), " ", element("span", more or (said if field else ""), class_="quiet")
    )
    return element("figure", Html(str(picture).removesuffix("</img>")), caption)


def _small(values: Array) -> Array:
    """Return an image (y, x) or (y, x, 3) with at most so many pixels a side, by means of blocks."""
    step = -(-max(values.shape[:2]) // MOST_PIXELS)
    values = values.astype(np.float64)
    if step == 1:
        return values
    y, x = (size // step for size in values.shape[:2])
    blocks = values[: max(y, 1) * step, : max(x, 1) * step]
    if y == 0 or x == 0:
        return values[::step, ::step]
    rest = values.shape[2:]
    blocks = blocks.reshape(y, step, x, step, *rest)
    known = np.isfinite(blocks)
    counts = known.sum(axis=(1, 3))
    sums = np.where(known, blocks, 0.0).sum(axis=(1, 3))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def png(values: Array, low: float, high: float, colours: Array) -> str:
    """Return an image as a data URI: values from low to high by a ramp of colours, or as red, green and blue."""
    from PIL import Image

    known = np.isfinite(values)
    place = np.clip((np.where(known, values, low) - low) / ((high - low) or 1.0), 0, 1)
    if values.ndim == 3:
        rgb, seen = 255 * place, np.asarray(known.all(axis=2))
    else:
        at = place * (len(colours) - 1)
        rgb = np.stack([np.interp(at, np.arange(len(colours)), channel) for channel in colours.T], axis=-1)
        seen = known
    pixels = np.concatenate([rgb, 255.0 * seen[..., None]], axis=-1)
    if seen.all():
        pixels = pixels[..., :3]
    file = io.BytesIO()
    Image.fromarray(np.rint(pixels).astype(np.uint8)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
