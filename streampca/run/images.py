"""Folders of images into one Zarr store: looked at once, then decoded and written a chunk at a time."""

from __future__ import annotations

import os
import re
import struct
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from streampca._typing import Array
from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.models.dataset import FORMAT_VERSION
from streampca.progress import Progress, Step, silent
from streampca.results.write import save, writing
from streampca.sources.completeness import WRITTEN
from streampca.sources.formats.zarr import MARKERS
from streampca.sources.genotypes import TEXT
from streampca.sources.tables import Ids, Table, read_table, split_column
from streampca.sweep.memory import show_bytes, thread_count
from streampca.validation import available_memory

if TYPE_CHECKING:
    from PIL import Image


# Of one chunk, and of the images that are decoded but not yet written.
CHUNK_BYTES = 6 << 20
# Files that are looked at in one go.
BATCH = 512
# Formats that Pillow hands to other programs, or that hold pictures only by way of a plug-in.
REFUSED_FORMATS = {"EPS", "WMF", "MPEG", "GRIB", "HDF5", "BUFR"}
# What Pillow raises for files that are damaged or no images.
UNREADABLE = (
    OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, ArithmeticError, RuntimeError, MemoryError,
    struct.error, zlib.error,
)  # fmt: skip
# Modes of Pillow without colour; palettes are looked at.
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
# EXIF: the tag of how the camera was held, how Pillow turns each back, and where height and width change places.
ORIENTATION = 0x0112
TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
LYING = (5, 6, 7, 8)
# Told of files that were left out, before the rest is only counted.
SHOWN = 5


@dataclass(frozen=True)
class Converted:
    """What became of a folder of images.

    Attributes
    ----------
    n_images : images written.
    shape : (y, x) or (y, x, channel) of each.
    n_resized : images that had another height or width.
    n_labels : different labels; 0 if there are none.
    n_unlabelled : images that have none, where others do.
    skipped : files left out, and why.
    list_path : where all of these are listed.
    """

    n_images: int
    shape: tuple[int, ...]
    n_resized: int
    n_labels: int
    n_unlabelled: int
    skipped: tuple[tuple[str, str], ...]
    list_path: Path

    def lines(self) -> list[str]:
        """Say it in words."""
        kind = "grey" if len(self.shape) == 2 else "RGB"
        told = [f"{self.n_images} {kind} images of {self.shape[0]} x {self.shape[1]}, {self.n_resized} of them resized"]
        if self.n_labels:
            without = f", {self.n_unlabelled} images have none" if self.n_unlabelled else ""
            told.append(f"{self.n_labels} labels{without}")
        if self.skipped:
            told.append(f"{len(self.skipped)} files skipped, listed in {self.list_path}")
            told += [f"  {name}: {why}" for name, why in self.skipped[:SHOWN]]
            told += ["  ..."] if len(self.skipped) > SHOWN else []
        return told


def convert_images(
    folder: str | Path, out: str | Path, *, size: tuple[int, int] | None = None, crop: bool = False,
    grey: bool | None = None, labels: str | Path | None = None, overwrite: bool = False, progress: Progress = silent,
) -> Converted:  # fmt: skip
    """Write the images in a folder and its sub-folders, all of one shape, to a Zarr store as `image` (sample, y, x).

    What is an image is decided by its content. Of animations the first frame is taken; cameras that were turned are
    turned back; transparent pixels lie on white; 16 bits become 8. Hidden files, and folders behind links, are left
    out; files that cannot be read as images are listed in OUT.skipped.txt. Memory does not grow with the number of
    images, but for their names.

    Parameters
    ----------
    folder : where the images are; they are written in the order of their paths, which become `sample`.
    out : the store.
    size : (height, width) of all; that of the first image unless given. Others are resized.
    crop : keep proportions: resize until the shape is covered, and cut off what is beside it. Else images are
        stretched.
    grey : True for (y, x); False for (y, x, channel) of red, green and blue; None for grey if all images are.
    labels : a table of paths or file names and labels, as people.tsv or people.tsv:COLUMN; the sub-folders' names
        unless given.
    overwrite : replace a store that this program wrote.
    """
    folder, out = Path(folder), Path(out)
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; give the folder in which the images are")
    if size is not None and min(size) < 1:
        raise InputError(f"size={size} cannot be used: give height and width, of 1 or more, as (64, 64)")
    list_path = text_paths(out, (".skipped.txt",), overwrite)[0]
    table, columns = split_column(str(labels)) if labels is not None else (None, [])
    if len(columns) > 1:
        raise InputError(f"labels are in one column; {', '.join(columns)} are {len(columns)}")
    with writing(out, overwrite) as store, _images_quiet(), ThreadPoolExecutor(thread_count()) as pool:
        skipped: list[tuple[str, str]] = []
        ours = [list_path, *([] if table is None else [table])]
        found = [name for name in _files(folder, skipped) if not any(_is_at(folder / name, path) for path in ours)]
        names, all_grey = _look(folder, found, pool, progress, skipped)
        if not names:
            raise InputError(f"{folder}: no image can be read, of {len(found)} files; give a folder with images")
        label_of = _sub_folder if table is None else _labels_of(names, table, columns).__getitem__
        size = size or _size_of(folder / names[0])
        grey = all_grey if grey is None else grey
        array = _create(store, len(names), (*size, *(() if grey else (3,))))
        read = _Reader(folder, size, crop, grey)
        written, n_resized = _write(array, names, read, pool, progress, skipped)
        if not written:
            raise InputError(f"{folder}: all of the {len(names)} images are damaged; give a folder with images")
        values = [label_of(name) for name in written]
        coords: dict[str, tuple[tuple[str, ...], Array]] = {"sample": (("sample",), _text(written))}
        if any(values):
            coords["label"] = (("sample",), _text(values))
        if not grey:
            coords["channel"] = (("channel",), np.array(["red", "green", "blue"], TEXT))
        attributes = {"kind": "images", "format_version": FORMAT_VERSION, "source": str(folder), "crop": crop}
        save({}, coords, {**attributes, "n_skipped": len(skipped)}, store)
        shape = tuple(array.shape[1:])
    left_out = tuple((_printable(name), why) for name, why in skipped)
    if left_out:
        with writing_text(list_path) as file:
            file.writelines(f"{name}\t{why}\n" for name, why in left_out)
    else:
        list_path.unlink(missing_ok=True)
    different = set(values) - {""}
    n_unlabelled = values.count("") if different else 0
    return Converted(len(written), shape, n_resized, len(different), n_unlabelled, left_out, list_path)


def parse_size(text: str) -> tuple[int, int]:
    """Return (height, width) from 64x48, or from 64 for both."""
    match = re.fullmatch(r"([1-9]\d{0,5})(?:[xX]([1-9]\d{0,5}))?", text.strip())
    if match is None:
        raise InputError(f"size {text!r} cannot be used: give height x width, as 64x48, or one number for both")
    return int(match[1]), int(match[2] or match[1])


@contextmanager
def _images_quiet() -> Iterator[None]:
    """Have Pillow's formats there, and its warnings (of odd EXIF, of size) not shown."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        Image.init()
        yield


def _files(folder: Path, skipped: list[tuple[str, str]]) -> list[str]:
    """Return the files below a folder by their path in it, sorted; without hidden ones, stores, or linked folders."""
    found: list[str] = []

    def refused(error: OSError) -> None:
        skipped.append((os.path.relpath(error.filename, folder), str(error.strerror)))

    for place, inner, files in os.walk(folder, onerror=refused):
        if any(marker in files for marker in MARKERS):
            inner.clear()
            continue
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        here = os.path.relpath(place, folder)
        shown = sorted(name for name in files if not name.startswith("."))
        found += shown if here == "." else [f"{here}/{name}" for name in shown]
    return [name.replace(os.sep, "/") for name in found]


def _is_at(path: Path, other: Path) -> bool:
    """Tell whether two paths are of the same file."""
    return path.name == other.name and path.resolve() == other.resolve()


def _look(
    folder: Path, found: Sequence[str], pool: ThreadPoolExecutor, progress: Progress, skipped: list[tuple[str, str]]
) -> tuple[list[str], bool]:
    """Read the headers; returns the names of those that are images, and whether all of them are grey."""
    names: list[str] = []
    all_grey = True
    for batch in _batches(found, BATCH, "looking at images", progress):
        for name, grey in zip(batch, pool.map(lambda name: _looked_at(folder / name), batch), strict=True):
            if isinstance(grey, str):
                skipped.append((name, grey))
                continue
            all_grey &= grey
            names.append(name)
    return names, all_grey


def _batches(names: Sequence[str], length: int, what: str, progress: Progress) -> Iterator[Sequence[str]]:
    began, starts = time.monotonic(), range(0, len(names), length)
    for done, start in enumerate(starts, start=1):
        yield names[start : start + length]
        progress(Step(0, what, done, len(starts), time.monotonic() - began))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    from PIL import Image

    if not path.is_file():
        # A pipe would be waited for.
        raise OSError("not a file" if path.exists() else "a link to nothing")
    if not path.stat().st_size:
        raise OSError("empty")
    with Image.open(path, formats=[name for name in Image.OPEN if name not in REFUSED_FORMATS]) as image:
        most = Image.MAX_IMAGE_PIXELS
        if most is not None and image.width * image.height > most:
            raise OSError(f"{image.width} x {image.height} pixels, more than the {most} allowed")
        yield image


def _try(what: Callable[[], Any]) -> Any:
    """Return what it returns, or why the file cannot be read, in one line."""
    from PIL import Image, UnidentifiedImageError

    try:
        return what()
    except UnidentifiedImageError:
        return "not an image"
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__


def _looked_at(path: Path) -> bool | str:
    """Tell whether an image is grey, or why it is none."""

    def look() -> bool:
        with _opened(path) as image:
            return _is_grey(image)

    grey: bool | str = _try(look)
    return grey


def _size_of(path: Path) -> tuple[int, int]:
    """Return height and width of what was seen; of one image, since for EXIF Pillow may decode all of it."""
    with _opened(path) as image:
        size = image.height, image.width
        return size[::-1] if _orientation(image) in LYING else size


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held; upright if the EXIF are damaged, which is no reason to lose an image."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except UNREADABLE:
        return 1


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        colours = np.array(image.getpalette("RGB") or (), int).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())
    return image.mode in GREY_MODES or image.mode.startswith("I;16")


@dataclass(frozen=True)
class _Reader:
    """Reads an image as an array of the shape wanted; returns with it whether it had another size."""

    folder: Path
    size: tuple[int, int]
    crop: bool
    grey: bool

    def __call__(self, name: str) -> tuple[Array, bool] | str:
        read: tuple[Array, bool] | str = _try(lambda: self._read(self.folder / name))
        return read

    def _read(self, path: Path) -> tuple[Array, bool]:
        from PIL import Image, ImageOps

        height, width = self.size
        with _opened(path) as opened:
            held = _orientation(opened)
            was = opened.size[::-1] if held in LYING else opened.size
            # JPEG alone can decode to a half, a quarter, an eighth: never below twice what is wanted.
            side = 2 * max(height, width)
            opened.draft(None, (side, side))
            image = _eight_bits(opened).convert("L" if self.grey else "RGB")
        if held in TURNS:
            image = image.transpose(Image.Transpose[TURNS[held]])
        if image.size != (width, height):
            lanczos = Image.Resampling.LANCZOS
            fitted = ImageOps.fit(image, (width, height), lanczos) if self.crop else None
            image = fitted or image.resize((width, height), lanczos)
        return np.asarray(image), was != (width, height)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return an image whose pixels are 8-bit grey or colours, transparent ones on white."""
    from PIL import Image

    if image.mode == "F":
        raise ValueError("pixels of 32-bit floats, of which none says what is white; convert it to 8 or 16 bits")
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("pixels of 32 bits; convert it to 8 or 16 bits")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        # By way of "LA" alone are premultiplied greys turned back.
        whole = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    return image.convert("RGB") if image.mode == "P" else image


def _create(store: Path, n: int, shape: tuple[int, ...]) -> Any:
    each = int(np.prod([float(length) for length in shape]))
    # One for each thread, one resized, and a block of one or more.
    if each * (thread_count() + 2) > available_memory() // 2:
        raise InputError(
            f"size {shape[0]} x {shape[1]} cannot be used: images take {show_bytes(each)} each, more than memory "
            "allows; give a smaller size"
        )
    rows = int(np.clip(CHUNK_BYTES // int(np.prod(shape)), 1, n))
    dims = ("sample", "y", "x", "channel")[: 1 + len(shape)]
    return zarr.open_group(store, mode="a").create_array(
        "image", shape=(n, *shape), chunks=(rows, *shape), dtype="uint8", dimension_names=dims, fill_value=0, **WRITTEN
    )


def _write(
    array: Any, names: Sequence[str], read: _Reader, pool: ThreadPoolExecutor, progress: Progress,
    skipped: list[tuple[str, str]],
) -> tuple[list[str], int]:  # fmt: skip
    """Decode images and write them chunk by chunk; those that turn out to be damaged leave no gap."""
    written: list[str] = []
    rows, shape = array.chunks[0], array.shape[1:]
    block, n_resized = np.empty((rows, *shape), np.uint8), 0
    at_once = max(thread_count(), min(BATCH, CHUNK_BYTES // int(np.prod(shape))))
    for batch in _batches(names, at_once, "converting", progress):
        for name, image in zip(batch, pool.map(read, batch), strict=True):
            if isinstance(image, str):
                skipped.append((name, image))
                continue
            block[len(written) % rows] = image[0]
            n_resized += image[1]
            written.append(name)
            if len(written) % rows == 0:
                array[len(written) - rows : len(written)] = block
    left = len(written) % rows
    if written:
        array.resize((len(written), *shape))
    if left:
        array[len(written) - left :] = block[:left]
    return written, n_resized


def _sub_folder(name: str) -> str:
    return name.rpartition("/")[0]


def _labels_of(names: Sequence[str], path: Path, columns: Sequence[str]) -> dict[str, str]:
    """Return the label of each image by a table of their paths, or of their file names if none is there twice."""
    ways = [list(names)]
    bases = [name.rpartition("/")[2] for name in names]
    if len(set(bases)) == len(bases):
        ways.append(bases)
    tables: list[Table] = []
    for number, way in enumerate(ways, start=1):
        try:
            tables.append(read_table(path, Ids(way)))
        except InputError:
            if number == len(ways) and not tables:
                raise
    table = max(tables, key=lambda table: int(table.found.sum()))
    # Numbers are labels too, where there is nothing else.
    column = columns[0] if columns else next(iter(table.cells)) if len(table.cells) == 1 else None
    return dict(zip(names, map(str, table.label(column)), strict=True))


def _text(values: Sequence[str]) -> Array:
    return np.array([_printable(value) for value in values], TEXT)


def _printable(name: str) -> str:
    """Return a name that may hold bytes that are no UTF-8, without these."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
