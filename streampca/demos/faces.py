"""The story of eigenfaces: a folder of pictures, what they share, who is who, and what is no face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.demos.base import Teller
from streampca.demos.simulate_faces import simulate_faces
from streampca.errors import InputError
from streampca.models.pca.fit import PCAFit, distances, fit_pca, project
from streampca.models.pca.options import PCAOptions
from streampca.progress import Progress
from streampca.report.print_images import draw_gallery, draw_reconstructions, draw_rows
from streampca.results.apply import FAR
from streampca.results.fit import fit_to_store
from streampca.results.store import load
from streampca.run.images import convert_images
from streampca.sources import open_source
from streampca.sweep.memory import RESULT_BASELINE, Budget

Say = Callable[[str], None]

N_COMPONENTS = 49
PEOPLE, PICTURES = 40, 10
FOLDS = 5
# Deviation of the noise that is put on faces of 0 to 255.
NOISE = 40.0
# Values held at a time by what is judged in memory: of larger folders, the first people are judged.
MOST_VALUES = 50_000_000


def demo_faces(teller: Teller) -> list[Path]:
    """Find the eigenfaces of a folder of images, draw them, and judge what they are good for.

    Without images, faces are drawn. Noise, names and distances are judged by 5-fold cross-validation: each fold's
    components are those of the other four alone.
    """
    folder, images, progress, say = teller.folder, teller.images, teller.progress, teller.say
    if images is None:
        images = folder / "faces"
        _draw_people(images, progress, say)
    store, result = folder / "faces.zarr", folder / "faces.pca.zarr"
    for line in convert_images(images, store, overwrite=True, progress=progress).lines():
        say(line)
    source = open_source(str(store))
    k = min(N_COMPONENTS, source.shape[0] - 1, source.shape[1])
    if k < 1:
        raise InputError(f"{images}: has one image; give a folder with two or more")
    options = PCAOptions(n_components=k)
    arrays, _ = fit_to_store(
        options, source, result, memory_limit=Budget.of(teller.memory, RESULT_BASELINE), progress=progress
    )
    say(f"{k} components explain {arrays['explained_variance_ratio'].sum():.1%} of the variance")
    faces = _Faces.of(store)
    gallery, rebuilt, cleaned = (folder / f"faces-{name}.png" for name in ("gallery", "reconstructions", "denoising"))
    fitted = load(result)
    draw_gallery(fitted, gallery)
    draw_reconstructions(fitted, faces.images[faces.some(10)], rebuilt)
    pictures = [gallery, rebuilt]
    if len(faces.images) >= 2 * FOLDS:
        _judge(faces, k, cleaned, say)
        pictures.append(cleaned)
    return [*pictures, teller.page(result, "Eigenfaces")]


def _draw_people(folder: Path, progress: Progress, say: Say) -> None:
    """Draw faces into a folder, unless something else is there."""
    if folder.exists() and any(not place.name.startswith("person-") for place in folder.iterdir()):
        raise InputError(f"{folder}: holds files that were not drawn here; choose another --out")
    say(f"Drawing {PICTURES} pictures of each of {PEOPLE} people in {folder}")
    simulate_faces(folder, PEOPLE, PICTURES, progress=progress)


@dataclass(frozen=True)
class _Faces:
    """Images in memory, and who they are of; empty text where that is not known."""

    images: Array
    labels: Array

    @classmethod
    def of(cls, store: Path) -> _Faces:
        """Read as many as may be held."""
        import zarr

        group: Any = zarr.open_group(store, mode="r")
        array = group["image"]
        count = min(array.shape[0], max(2, MOST_VALUES // int(np.prod(array.shape[1:]))))
        known = group["label"][:count] if "label" in group else [""] * count
        return cls(np.asarray(array[:count]), np.array([str(label) for label in known]))

    def some(self, count: int) -> Array:
        """Return the places of a few, of different people where that can be."""
        _, first = np.unique(self.labels, return_index=True)
        first = first if len(first) >= count else np.arange(len(self.labels))
        return np.asarray(first[np.linspace(0, len(first) - 1, min(count, len(first))).astype(int)])

    @property
    def rows(self) -> Array:
        """Images as samples x features."""
        return self.images.reshape(len(self.images), -1)

    def folds(self) -> Iterator[tuple[Array, Array]]:
        """Yield which are fitted and which are held out, 5 times: people in equal shares, as far as they are known."""
        from sklearn.model_selection import KFold, StratifiedKFold

        _, who, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        even = len(counts) > 1 and counts.min() >= FOLDS
        folds: Any = (StratifiedKFold if even else KFold)(FOLDS, shuffle=True, random_state=0)
        yield from folds.split(self.rows, who)


def _judge(faces: _Faces, k: int, picture: Path, say: Say) -> None:
    """Say how well components of four fifths of the images do on the rest: noise, names, and what is no face."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    # As many components as there are images to fit would leave nothing to be far from.
    k = max(1, min(k, (len(faces.images) - len(faces.images) // FOLDS - 1) // 2))
    named = len(set(faces.labels)) > 1
    noise, right, far = [], [], []
    drawn: dict[str, Array] = {}
    for train, test in faces.folds():
        found, _ = fit_pca(open_source(faces.rows[train]), PCAOptions(n_components=k))
        given = faces.rows[test].astype(np.float32)
        noisy = given + NOISE * rng.standard_normal(given.shape, np.float32)
        clean = _projected(noisy, found)
        noise.append([np.mean((rows - given) ** 2) for rows in (noisy, clean)])
        if not drawn:
            some = [rows[:10].reshape(-1, *faces.images.shape[1:]) for rows in (given, noisy, clean)]
            drawn = dict(zip(("original", "noisy", "denoised"), (np.clip(rows, 0, 255) for rows in some), strict=True))
        if named:
            right.append(
                _recognised(faces.labels, train, test, *(_scores(faces.rows[i], found) for i in (train, test)))
            )
        distance = {"faces": _distance(given, found)}
        distance |= {
            name: _distance(rows, found) for name, rows in not_faces(given, faces.images.shape[1:], rng).items()
        }
        # Of copies of a few images nothing is left over: then, one of 255 shades is far.
        typical = max(found.typical_distance, 1.0)
        far.append({name: values / typical for name, values in distance.items()})
    before, after = (10 * np.log10(255**2 / mse) for mse in np.mean(noise, axis=0))
    say(f"noise of deviation {NOISE:g}: PSNR {before:.1f} dB, {after:.1f} dB after projection, of faces not fitted")
    if named:
        neighbour, bayes = np.mean(np.concatenate(right), axis=0)
        people = len(set(faces.labels) - {""})
        say(
            f"recognition of {people} people by {k} scores, 5-fold cross-validation (components without the fold): "
            f"nearest neighbour {neighbour:.1%}, naive Bayes {bayes:.1%}"
        )
    else:
        say("no labels: put the images of each person in a folder of its own to see how well they are recognised")
    together = {name: np.concatenate([fold[name] for fold in far]) for name in far[0]}
    own = together.pop("faces")
    say(f"distance from face space, {FAR:g} times the typical or more: {np.mean(own >= FAR):.1%} of faces not fitted")
    for name, values in together.items():
        truth = np.repeat([0, 1], [len(own), len(values)])
        area = roc_auc_score(truth, np.concatenate([own, values]))
        say(f"  {name}: {np.mean(values >= FAR):.1%}, AUC against faces {area:.3f}")
    draw_rows(drawn, picture, f"Noise of deviation {NOISE:g} on faces that were not fitted")


def _scores(rows: Array, found: PCAFit) -> Array:
    return project(open_source(rows), found, "error")[0]


def _distance(rows: Array, found: PCAFit) -> Array:
    return distances(*project(open_source(rows), found, "error"))


def _projected(rows: Array, found: PCAFit) -> Array:
    return _scores(rows, found) @ found.components + found.mean


def _recognised(labels: Array, train: Array, test: Array, known: Array, new: Array) -> Array:
    """Tell of each image held out whether nearest neighbour and Gaussian naive Bayes name it rightly: (n, 2)."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier

    there = labels[train] != ""
    wanted = labels[test] != ""
    models = (KNeighborsClassifier(1), GaussianNB())
    guesses = [model.fit(known[there], labels[train][there]).predict(new[wanted]) for model in models]
    return np.stack([guess == labels[test][wanted] for guess in guesses], axis=1)


def not_faces(rows: Array, shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, Array]:
    """Return pictures that are no faces, of the same brightness and contrast as those given.

    Noise; stripes and patches, each of its own direction and width; and the faces themselves with shuffled pixels.
    """
    y, x = np.meshgrid(*(np.linspace(-1, 1, length) for length in shape[:2]), indexing="ij")
    angle, pace, phase = rng.uniform((0, 3, 0), (np.pi, 20, 2 * np.pi), (len(rows), 3)).T[:, :, None, None]
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    stripes = np.sin(pace * along + phase)
    grey = {"stripes": stripes, "patches": stripes * np.sin(pace * across)}
    others = {"noise": rng.standard_normal(rows.shape)}
    for name, images in grey.items():
        whole = np.repeat(images.reshape(*images.shape, 1), shape[2] if len(shape) > 2 else 1, axis=3)
        others[name] = whole.reshape(len(rows), -1)
    centre, spread = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
    alike = {
        name: ((values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True) * spread + centre)
        for name, values in others.items()
    }
    alike["shuffled pixels"] = rows[:, rng.permutation(rows.shape[1])]
    return {name: np.asarray(values, np.float32) for name, values in alike.items()}
