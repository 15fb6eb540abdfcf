"""Conversion of folders of images to one Zarr store: headers are read first, then images one chunk at a time."""

from __future__ import annotations

import logging
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from streampca._typing import Array
from streampca.errors import DAMAGED, InputError
from streampca.files import text_paths, writing_text
from streampca.models.dataset import FORMAT_VERSION
from streampca.progress import Progress, reporting
from streampca.results.write import resumable_array, save
from streampca.run.work_directory import SUFFIX
from streampca.sources.base import digest
from streampca.sources.formats.zarr import MARKERS
from streampca.sources.genotypes import TEXT
from streampca.sources.tables import Ids, Table, read_table, split_column
from streampca.sweep.checkpoint import active_checkpoint
from streampca.sweep.memory import PROCESS_RESERVE, WRITE_COPIES, Budget, Footprint, thread_count, threads_that_fit

CHUNK_BYTES = 6 << 20  # of one chunk, and of the images that are decoded but not yet written
PIXEL_BYTES = 12  # of an image while it is decoded and converted: with transparency, composed, in colour
BATCH = 512  # files whose headers are read at a time
SKIPPED = "checkpoint/skipped.txt"  # list of skipped files, next to an unfinished store
SHOWN = 5  # skipped files that are named; the others are counted
# Common formats only: others of Pillow are rarely used and tested, or run other programs.
FORMATS = (
    "PNG", "JPEG", "MPO", "GIF", "BMP", "DIB", "TIFF", "PPM", "WEBP", "AVIF", "JPEG2000", "ICO", "TGA", "PCX", "SGI",
    "DDS",
)  # fmt: skip
UNREADABLE = (*DAMAGED, Image.DecompressionBombError)  # exceptions of Pillow for damaged files
GREY_MODES = ("1", "L", "LA", "La", "I", "F")  # of Pillow; palettes are checked
# EXIF: the tag of the orientation, the transposition that undoes each, and those that swap height and width.
ORIENTATION = 0x0112
TRANSPOSITIONS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
SWAPPED = (5, 6, 7, 8)

Skipped = list[tuple[str, str]]  # names of files, and why they were skipped


@dataclass(frozen=True)
class Converted:
    """Summary of a converted folder.

    Attributes
    ----------
    n_images : images written.
    shape : (y, x) or (y, x, channel) of each.
    n_resized : images that had another height or width.
    n_labels : different labels.
    n_unlabelled : images without a label, if others have one.
    skipped : files that were skipped, and why.
    list_path : where they are listed.
    """

    n_images: int
    shape: tuple[int, ...]
    n_resized: int
    n_labels: int
    n_unlabelled: int
    skipped: tuple[tuple[str, str], ...]
    list_path: Path

    def lines(self) -> list[str]:
        """Return the summary in words."""
        kind = "grey" if len(self.shape) == 2 else "RGB"
        lines = [
            f"{self.n_images} {kind} images of {self.shape[0]} x {self.shape[1]}, {self.n_resized} of them resized"
        ]
        if self.n_labels:
            without = f", {self.n_unlabelled} images have none" if self.n_unlabelled else ""
            lines.append(f"{self.n_labels} labels{without}")
        if self.skipped:
            lines.append(f"{len(self.skipped)} files skipped, listed in {self.list_path}")
            lines += [f"  {name}: {why}" for name, why in self.skipped[:SHOWN]]
            lines += ["  ..."] if len(self.skipped) > SHOWN else []
        return lines


class ImageFolder:
    """The images in a folder and its sub-folders, written to a Zarr store as `image` (sample, y, x), all of one shape.

    Images are recognised by content. The first frame of animations is used, EXIF orientation is applied, transparent
    pixels become white, and 16 bits become 8. Hidden files and linked folders are ignored; files that are not images
    are listed in OUT.skipped.txt. Memory does not depend on the number of images, except for their names.

    Parameters
    ----------
    folder : of the images; they are written in the order of their paths, which become `sample`.
    out : the store.
    size : (height, width); by default that of the first image. Others are resized.
    crop : keep proportions and crop to the size; else images are stretched.
    grey : True for (y, x); False for (y, x, channel) of red, green and blue; None for grey if all images are.
    labels : a table of paths or file names and labels, as people.tsv or people.tsv:COLUMN; by default the names of the
        sub-folders.
    """

    def __init__(
        self, folder: Path, out: Path, size: tuple[int, int] | None = None, crop: bool = False,
        grey: bool | None = None, labels: str | Path | None = None,
    ):  # fmt: skip
        if size is not None and min(size) < 1:
            raise InputError(f"size must be height and width of 1 or more, as (64, 64), got {size}")
        self.folder, self.size, self.crop, self.grey = folder, size, crop, grey
        self.list_path = out.with_name(f"{out.name}.skipped.txt")
        self.table, self.column = _label_column(labels)
        self.unreadable: Skipped = []
        self.files = _files(folder, [path for path in (self.list_path, self.table) if path], self.unreadable)

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and times of all files."""
        paths = [*(self.folder / name for name in self.files), *([self.table] if self.table else [])]
        return digest(*((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths))

    def check(self, overwrite: bool) -> None:
        """Raise if the list of skipped files could not be written."""
        text_paths(self.list_path, ("",), overwrite)

    def write(self, store: Path, progress: Progress, budget: Budget) -> Converted:
        """Write the images, and the list of files that are skipped."""
        folder, skipped = self.folder, [*self.unreadable]
        with _pillow_ready(), ThreadPoolExecutor(budget.threads) as pool:
            names, all_grey, most_pixels = _read_headers(folder, self.files, pool, progress, skipped)
            if not names:
                raise InputError(f"{folder}: none of {len(self.files)} files is an image; give a folder with images")
            label_of = _sub_folder if self.table is None else _labels_of(names, self.table, self.column).__getitem__
            grey = all_grey if self.grey is None else self.grey
            read = _Reader(folder, self.size or _size_of(folder / names[0]), self.crop, grey)
            threads = _threads(most_pixels, read.shape, budget)
        with _pillow_ready(), ThreadPoolExecutor(threads) as pool:
            written, n_resized = _write(_create(store, len(names), read.shape), names, read, pool, progress, skipped)
        if not written:
            raise InputError(f"{folder}: all {len(names)} images are damaged; give a folder with images")
        values = [label_of(name) for name in written]
        attributes = {"kind": "images", "format_version": FORMAT_VERSION, "source": str(folder), "crop": self.crop}
        save({}, _coords(written, values, read.grey), {**attributes, "n_skipped": len(skipped)}, store)
        reasons = tuple((_printable(name), why) for name, why in skipped)
        with writing_text(store.parent / SKIPPED) as file:
            file.writelines(f"{name}\t{why}\n" for name, why in reasons)
        n_labels = len(set(values) - {""})
        unlabelled = values.count("") if n_labels else 0
        return Converted(len(written), read.shape, n_resized, n_labels, unlabelled, reasons, self.list_path)

    def place_list(self, store: Path) -> None:
        """Move the list of skipped files to its place; an empty one removes that of an old store."""
        path = store.parent / SKIPPED
        if path.exists() and path.stat().st_size:
            path.replace(self.list_path)
        elif path.exists():
            self.list_path.unlink(missing_ok=True)
            path.unlink()


def _label_column(labels: str | Path | None) -> tuple[Path | None, str | None]:
    """Return the path of the table of labels, and the name of the column if it is given."""
    table, columns = split_column(str(labels)) if labels is not None else (None, [])
    if len(columns) > 1:
        raise InputError(f"labels must be one column, got {', '.join(columns)}")
    return table, columns[0] if columns else None


def _coords(names: Sequence[str], labels: Sequence[str], grey: bool) -> dict[str, tuple[tuple[str, ...], Array]]:
    coords: dict[str, tuple[tuple[str, ...], Array]] = {"sample": (("sample",), _text(names))}
    if any(labels):
        coords["label"] = (("sample",), _text(labels))
    if not grey:
        coords["channel"] = (("channel",), np.array(["red", "green", "blue"], TEXT))
    return coords


def parse_size(text: str) -> tuple[int, int]:
    """Return (height, width) from 64x48, or from 64 for both."""
    match = re.fullmatch(r"([1-9]\d{0,5})(?:[xX]([1-9]\d{0,5}))?", text.strip())
    if match is None:
        raise InputError(f"size must be height x width, as 64x48, or one number for both, got {text!r}")
    return int(match[1]), int(match[2] or match[1])


@contextmanager
def _pillow_ready() -> Iterator[None]:
    """Load the formats of Pillow, and ignore what it warns of and logs (unusual EXIF or sizes)."""
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        Image.init()
        yield


def _files(folder: Path, others: Sequence[Path], skipped: Skipped) -> list[str]:
    """Return the files below a folder by their path in it, sorted; without hidden ones, stores, links and others."""
    names: list[str] = []

    def unreadable(error: OSError) -> None:
        skipped.append((os.path.relpath(error.filename, folder), str(error.strerror)))

    for place, inner, files in os.walk(folder, onerror=unreadable):
        if any(marker in files for marker in MARKERS):
            inner.clear()
            continue
        inner[:] = sorted(name for name in inner if not name.startswith(".") and not name.endswith(SUFFIX))
        here = os.path.relpath(place, folder)
        shown = sorted(name for name in files if not name.startswith("."))
        names += shown if here == "." else [f"{here}/{name}" for name in shown]
    ours = {path.name: path.resolve() for path in others}
    names = [n for n in names if not (own := ours.get(os.path.basename(n))) or own != (folder / n).resolve()]
    return [name.replace(os.sep, "/") for name in names]


def _read_headers(
    folder: Path, files: Sequence[str], pool: ThreadPoolExecutor, progress: Progress, skipped: Skipped
) -> tuple[list[str], bool, int]:
    """Return the names of the files that are images, whether all of them are grey, and the most pixels of one."""
    names: list[str] = []
    all_grey, most_pixels = True, 0
    for batch in _batches(files, BATCH, "reading headers", progress):
        for name, found in zip(batch, pool.map(lambda name: _try(_header, folder / name), batch), strict=True):
            if isinstance(found, str):
                skipped.append((name, found))
                continue
            grey, pixels = found
            all_grey, most_pixels = all_grey & grey, max(most_pixels, pixels)
            names.append(name)
    return names, all_grey, most_pixels


def _batches(names: Sequence[str], length: int, what: str, progress: Progress) -> Iterator[Sequence[str]]:
    starts = range(0, len(names), length)
    return reporting((names[start : start + length] for start in starts), len(starts), what, progress)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    if not path.is_file():
        # Opening a pipe would block.
        raise OSError("not a file" if path.exists() else "broken link")
    if not path.stat().st_size:
        raise OSError("empty")
    with Image.open(path, formats=[name for name in FORMATS if name in Image.OPEN]) as image:
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and image.width * image.height > most:
            raise OSError(f"{image.width} x {image.height} pixels, more than the {most} allowed")
        yield image


def _try(read: Callable[[Path], Any], path: Path) -> Any:
    """Return what a function reads from a file, or why the file cannot be read, in one line."""
    try:
        return read(path)
    except UnidentifiedImageError:
        return "not an image of a known format"
    except UNREADABLE as error:
        return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__


def _size_of(path: Path) -> tuple[int, int]:
    """Return height and width in the right orientation; for EXIF Pillow may decode the whole image."""
    with _opened(path) as image:
        size = image.height, image.width
        return size[::-1] if _orientation(image) in SWAPPED else size


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; upright if it is damaged, which is no reason to skip an image."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except UNREADABLE:
        return 1


def _header(path: Path) -> tuple[bool, int]:
    """Return whether an image is grey, and its number of pixels."""
    with _opened(path) as image:
        pixels = image.width * image.height
        if image.mode in ("P", "PA"):
            colours = np.array(image.getpalette("RGB") or (), int).reshape(-1, 3)
            return bool((colours == colours[:, :1]).all()), pixels
        return image.mode in GREY_MODES or image.mode.startswith("I;16"), pixels


def _threads(most_pixels: int, shape: tuple[int, ...], budget: Budget) -> int:
    """Return how many images can be decoded at a time; raise `MemoryLimitError` if not even the largest."""
    each = math.prod(shape)
    rows = max(1, CHUNK_BYTES // each)
    driver = (1 + WRITE_COPIES) * rows * each + max(CHUNK_BYTES, budget.threads * each)
    need = Footprint(budget.baseline + PROCESS_RESERVE, driver, PIXEL_BYTES * most_pixels + 3 * each, 0, 0)
    return threads_that_fit(need, budget.limit, budget.threads, "conversion")


@dataclass(frozen=True)
class _Reader:
    """Reads an image as an array of one shape; returns whether it had another size, too."""

    folder: Path
    size: tuple[int, int]
    crop: bool
    grey: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the arrays."""
        return self.size if self.grey else (*self.size, 3)

    def __call__(self, name: str) -> tuple[Array, bool] | str:
        image: tuple[Array, bool] | str = _try(self._read, self.folder / name)
        return image

    def _read(self, path: Path) -> tuple[Array, bool]:
        height, width = self.size
        with _opened(path) as opened:
            orientation = _orientation(opened)
            was = opened.size[::-1] if orientation in SWAPPED else opened.size
            # JPEG can be decoded to a half, a quarter or an eighth: never below twice the wanted size.
            side = 2 * max(height, width)
            opened.draft(None, (side, side))
            image = _eight_bits(opened).convert("L" if self.grey else "RGB")
        if orientation in TRANSPOSITIONS:
            image = image.transpose(Image.Transpose[TRANSPOSITIONS[orientation]])
        if image.size != (width, height):
            lanczos = Image.Resampling.LANCZOS
            fitted = ImageOps.fit(image, (width, height), lanczos) if self.crop else None
            image = fitted or image.resize((width, height), lanczos)
        return np.asarray(image), was != (width, height)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return an image with pixels of 8 bits, transparent ones on white."""
    if image.mode == "F":
        raise ValueError("pixels are 32-bit floats without a defined white; convert it to 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("pixels have 32 bits; convert it to 8 or 16 bits")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        # Premultiplied greys are converted by way of "LA" only.
        whole = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    return image.convert("RGB") if image.mode == "P" else image


def _create(store: Path, n: int, shape: tuple[int, ...]) -> Any:
    rows = int(np.clip(CHUNK_BYTES // int(np.prod(shape)), 1, n))
    dims = ("sample", "y", "x", "channel")[: 1 + len(shape)]
    return resumable_array(store, "image", (n, *shape), (rows, *shape), "uint8", dims, 0)


def _write(
    array: Any, names: Sequence[str], read: _Reader, pool: ThreadPoolExecutor, progress: Progress, skipped: Skipped
) -> tuple[list[str], int]:
    """Decode images and write them chunk by chunk, without those that are damaged; resume after the last checkpoint."""
    rows, shape = array.chunks[0], array.shape[1:]
    checkpoint = active_checkpoint()
    assert checkpoint is not None
    # Chunks that are on record are in this array, not in one of the same name before it.
    token = (array.store.root / array.path / "zarr.json").stat().st_mtime_ns
    saved = checkpoint.recall("images", token) or {"done": 0, "n_resized": 0, "damaged": {}}
    done, n_resized, damaged = saved["done"], saved["n_resized"], dict(saved["damaged"])
    written = [name for name in names[:done] if name not in damaged]
    block = np.empty((rows, *shape), np.uint8)
    at_once = max(thread_count(), min(BATCH, CHUNK_BYTES // int(np.prod(shape))))
    for batch in _batches(names[done:], at_once, "converting", progress):
        for name, image in zip(batch, pool.map(read, batch), strict=True):
            done += 1
            if isinstance(image, str):
                damaged[name] = image
                continue
            block[len(written) % rows] = image[0]
            n_resized += image[1]
            written.append(name)
            if len(written) % rows == 0:
                array[len(written) - rows : len(written)] = block
                if checkpoint.due:
                    checkpoint.keep("images", token, {"done": done, "n_resized": n_resized, "damaged": damaged})
                    checkpoint.saved_at = time.monotonic()
    skipped += damaged.items()
    left = len(written) % rows
    if written:
        array.resize((len(written), *shape))
    if left:
        array[len(written) - left :] = block[:left]
    return written, n_resized


def _sub_folder(name: str) -> str:
    return name.rpartition("/")[0]


def _labels_of(names: Sequence[str], path: Path, column: str | None) -> dict[str, str]:
    """Return the label of each image from a table of paths, or of file names if they are unique."""
    bases = [name.rpartition("/")[2] for name in names]
    candidates = [list(names), bases] if len(set(bases)) == len(bases) else [list(names)]
    tables: list[Table] = []
    for ids in candidates:
        try:
            tables.append(read_table(path, Ids(ids)))
        except InputError:
            if ids is candidates[-1] and not tables:
                raise
    table = max(tables, key=lambda table: int(table.found.sum()))
    # A single column has the labels, even if they are numbers.
    if column is None and len(table.cells) == 1:
        (column,) = table.cells
    return dict(zip(names, map(str, table.label(column)), strict=True))


def _text(values: Sequence[str]) -> Array:
    return np.array([_printable(value) for value in values], TEXT)


def _printable(name: str) -> str:
    """Return a name without bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
