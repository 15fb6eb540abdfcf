"""Simulate faces from a few traits: people differ, and pictures of one person differ less."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from streampca._typing import Array
from streampca.progress import Progress, reporting, silent
from streampca.sweep.memory import thread_count

BLOCK = 128  # pictures drawn at a time

# Ranges of the traits of a person. Lengths are in half heights of the picture, tones from 0 (black) to 1 (white).
PERSON = {
    "head_width": (0.50, 0.66), "head_height": (0.74, 0.90), "jaw": (0.0, 0.35), "skin": (0.52, 0.86),
    "hair": (0.04, 0.55), "hair_line": (0.28, 0.62), "hair_width": (1.02, 1.28), "parting": (-0.25, 0.25),
    "eye_apart": (0.19, 0.27), "eye_height": (0.02, 0.16), "eye_width": (0.085, 0.125), "iris": (0.05, 0.35),
    "brow_height": (0.10, 0.17), "brow_width": (0.10, 0.16), "brow_thick": (0.014, 0.04), "brow_slope": (-0.3, 0.3),
    "nose_length": (0.20, 0.33), "nose_width": (0.06, 0.12), "mouth_width": (0.14, 0.24), "mouth_height": (0.36, 0.46),
    "lips": (0.025, 0.05), "lip_tone": (0.25, 0.5), "beard": (-1.6, 0.8), "glasses": (-2.0, 1.0), "cheeks": (0.0, 0.10),
}  # fmt: skip
# Ranges of the traits of a picture.
PICTURE = {
    "x": (-0.03, 0.03), "y": (-0.03, 0.03), "size": (0.97, 1.03), "tilt": (-0.07, 0.07), "yaw": (-0.07, 0.07),
    "nod": (-0.03, 0.03), "light_x": (-0.2, 0.2), "light_y": (-0.05, 0.15), "bright": (0.9, 1.05),
    "smile": (-0.10, 0.30), "open_mouth": (-0.6, 1.0), "open_eyes": (0.35, 1.0), "brows": (-0.02, 0.04),
    "background": (0.34, 0.46),
}  # fmt: skip
GRAIN = 0.012  # standard deviation of the noise


@dataclass(frozen=True)
class Cast:
    """People and pictures of them, determined by the seed, in whatever blocks they are drawn.

    Attributes
    ----------
    person : (n,) the person in each picture.
    traits : name -> (n,), of the person in each picture and of the picture.
    """

    person: Array
    traits: dict[str, Array]
    size: int
    seed: int

    @classmethod
    def of(cls, n_people: int, n_pictures: int, size: int = 64, seed: int = 0) -> Cast:
        """Draw the traits of people and of pictures of each."""
        person = np.repeat(np.arange(n_people), n_pictures)
        traits = {}
        for name, values in _drawn(PERSON, n_people, [seed, 0]).items():
            traits[name] = values[person]
        return cls(person, traits | _drawn(PICTURE, len(person), [seed, 1]), size, seed)

    def __len__(self) -> int:
        return len(self.person)

    def draw(self, start: int, stop: int) -> Array:
        """Draw a range of pictures: (stop - start, size, size), uint8."""
        t = {name: values[start:stop, None, None] for name, values in self.traits.items()}
        canvas = _faces(t, self.size)
        # The noise of a picture does not depend on the block that it is drawn in.
        for image, number in zip(canvas, range(start, stop), strict=True):
            noise = np.random.Generator(np.random.SFC64([self.seed, 2, number]))
            image += GRAIN * noise.standard_normal(image.shape, np.float32)
        return np.asarray(np.rint(255 * np.clip(canvas, 0, 1)), np.uint8)


def _drawn(ranges: dict[str, tuple[float, float]], n: int, seed: list[int]) -> dict[str, Array]:
    values = np.random.default_rng(seed).random((n, len(ranges)), np.float32)
    return {name: low + (high - low) * values[:, i] for i, (name, (low, high)) in enumerate(ranges.items())}


def _faces(t: dict[str, Array], size: int) -> Array:
    """Paint from the back to the front: background, hair, head, shadows, eyes, brows, nose, mouth, beard, glasses."""
    soft = 64 / size
    line: Array = np.linspace(-1, 1, size, dtype=np.float32)
    x, y = line[None, None, :], line[None, :, None]
    cos, sin = np.cos(t["tilt"]) / t["size"], np.sin(t["tilt"]) / t["size"]
    x, y = (x - t["x"]) * cos + (y - t["y"]) * sin, (y - t["y"]) * cos - (x - t["x"]) * sin
    canvas = np.broadcast_to(t["background"], x.shape) * (1 - 0.15 * y)
    # Below the eyes the head narrows to the chin.
    narrow = 1 - t["jaw"] * np.maximum(y, 0) ** 2
    width, height = t["head_width"], t["head_height"]
    _paint(canvas, _inside(x / (0.62 * width), (y - 0.95) / 0.5, 6), 0.82 * t["skin"])
    _paint(canvas, _inside(x / 0.95, (y - 1.35) / 0.45, 8), t["hair"] * 0.6 + 0.2)
    hair = _inside(x / (width * t["hair_width"]), (y + 0.12) / (height * 0.98), 8)
    _paint(canvas, hair * _edge((0.45 - y) * 8), t["hair"])
    head = _inside(x / (width * narrow), (y - 0.02) / height, 9)
    # The head is round: light falls on it from one side.
    light = t["bright"] * (1 + t["light_x"] * x / width - t["light_y"] * y - 0.22 * (x / width) ** 2)
    skin = t["skin"] * light
    fringe = _edge((-t["hair_line"] - 0.15 * (x - t["parting"]) - y + 0.35 * (x - t["parting"]) ** 2) * 14)
    _paint(canvas, head, skin + fringe * (t["hair"] - skin))
    # Turning and nodding move the features of the head, not its outline.
    x, y = x - t["yaw"] * 1.2, y - t["nod"]
    _paint(canvas, head * t["cheeks"] * 4 * _blob((np.abs(x) - 0.27) / 0.13, (y - 0.2) / 0.12), skin * 0.8)
    stubble = head * np.clip(t["beard"], 0, 0.75) * _edge((y - 0.36 + 1.2 * x**2) * 3.5)
    _paint(canvas, stubble, t["hair"] * 0.8 + 0.05)
    side = np.abs(x) - t["eye_apart"]
    eye = y + t["eye_height"]
    _paint(canvas, 0.45 * _blob(side / (1.7 * t["eye_width"]), eye / 0.11), skin * 0.6)
    opened = 0.055 * t["open_eyes"]
    lids = _inside(side / t["eye_width"], eye / opened, 3 / soft)
    _paint(canvas, lids, 0.92 * t["bright"])
    gaze = side - 0.3 * t["yaw"] * np.sign(x)
    _paint(canvas, lids * _inside(gaze / 0.045, eye / 0.045, 3 / soft), t["iris"])
    _paint(canvas, 0.8 * _blob(side / t["eye_width"], (eye + opened) / 0.018), skin * 0.35)
    brow = eye + t["brow_height"] + t["brows"] + t["brow_slope"] * side + 2.2 * side**2
    _paint(canvas, 0.9 * _blob(side / t["brow_width"], brow / t["brow_thick"]), t["hair"] * 0.8)
    tip = t["nose_length"] - 0.02
    shade = np.sign(t["light_x"])
    ridge = _blob((x + shade * 0.055) / 0.035, (y - 0.4 * tip) / (0.6 * tip))
    _paint(canvas, 0.3 * ridge, skin * 0.7)
    _paint(canvas, 0.35 * _blob((x - shade * 0.02) / 0.04, (y - 0.7 * tip) / (0.5 * tip)), np.minimum(skin * 1.2, 1))
    _paint(canvas, 0.7 * _blob((np.abs(x) - 0.6 * t["nose_width"]) / 0.035, (y - tip) / 0.028), skin * 0.4)
    _paint(canvas, 0.35 * _blob(x / t["nose_width"], (y - tip - 0.03) / 0.03), skin * 0.6)
    wide = t["mouth_width"] * (1 + 0.6 * np.maximum(t["smile"], 0))
    mouth = y - t["mouth_height"] + t["smile"] * (x**2 / wide - 0.3 * wide)
    gap = 0.06 * np.maximum(t["open_mouth"], 0)
    _paint(canvas, _inside(x / wide, mouth / (t["lips"] + gap), 2.5), skin * t["lip_tone"] * 1.4)
    _paint(canvas, 0.9 * _inside(x / (0.9 * wide), mouth / (0.008 + 0.8 * gap), 1.5), skin * 0.2)
    _paint(canvas, 0.3 * _blob(x / 0.12, (y - t["mouth_height"] - 0.13) / 0.03), skin * 0.65)
    ring = np.sqrt((side / 0.165) ** 2 + (eye / 0.13) ** 2)
    frame = np.exp(-(((ring - 1) / 0.11) ** 2)) + _blob(x / 0.05, eye / 0.02)
    _paint(canvas, np.clip(4 * t["glasses"], 0, 1) * np.minimum(frame, 1) * 0.9, np.float32(0.08))
    return canvas


def _edge(steepness: Array) -> Array:
    """Return a smooth step from 0 to 1."""
    s = np.clip(steepness + np.float32(0.5), 0, 1)
    return np.asarray(s * s * (3 - 2 * s))


def _inside(u: Array, v: Array, sharp: float) -> Array:
    """Return 1 inside the ellipse u^2 + v^2 = 1, 0 outside."""
    return _edge((1 - u * u - v * v) * np.float32(sharp / 2))


def _blob(u: Array, v: Array) -> Array:
    """Return a Gaussian of height 1."""
    return np.asarray(np.exp(-np.minimum(u * u + v * v, 30)))


def _paint(canvas: Array, cover: Array, tone: Array | np.float32) -> None:
    canvas += cover * (tone - canvas)


def simulate_faces(
    folder: Path, n_people: int, n_pictures: int, *, size: int = 64, seed: int = 0, progress: Progress = silent
) -> int:
    """Write pictures of simulated faces as PNG files, `person-001/01.png` and so on; return their number."""
    cast = Cast.of(n_people, n_pictures, size, seed)
    width = [max(least, len(str(count))) for least, count in ((3, n_people), (2, n_pictures))]
    for person in range(n_people):
        (folder / f"person-{person + 1:0{width[0]}d}").mkdir(parents=True, exist_ok=True)

    def write(start: int) -> None:
        for number, image in enumerate(cast.draw(start, min(start + BLOCK, len(cast))), start=start):
            person, picture = divmod(number, n_pictures)
            place = folder / f"person-{person + 1:0{width[0]}d}"
            Image.fromarray(image).save(place / f"{picture + 1:0{width[1]}d}.png", compress_level=1)

    starts = range(0, len(cast), BLOCK)
    with ThreadPoolExecutor(thread_count()) as pool:
        for _ in reporting(pool.map(write, starts), len(starts), "drawing faces", progress):
            pass
    return len(cast)
