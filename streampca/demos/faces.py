"""Eigenfaces: components of a folder of images, denoising, recognition, and images that are not faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from streampca._typing import Array
from streampca.demos.base import Demo
from streampca.demos.simulate_faces import simulate_faces
from streampca.errors import InputError
from streampca.models.pca.estimator import PCA
from streampca.report import draw_figure
from streampca.report.images import image_rows, reconstructions
from streampca.report.printing import draw_items
from streampca.results.apply import FAR
from streampca.results.store import load
from streampca.run.convert import convert
from streampca.sources import open_source

Echo = Callable[[str], None]

N_COMPONENTS = 49
PEOPLE, PICTURES = 40, 10
FOLDS = 5
NOISE = 40.0  # standard deviation of the noise added to faces of 0 to 255
MAX_VALUES = 50_000_000  # in memory for the evaluation; of larger folders, the first people are used


def demo_faces(demo: Demo) -> list[Path]:
    """Compute the eigenfaces of a folder of images, draw them, and evaluate them.

    Without images, faces are simulated. Denoising, recognition and distances are evaluated by 5-fold cross-validation:
    the components of each fold are fitted to the other four.
    """
    folder, images = demo.folder, demo.images
    if images is None:
        images = folder / "faces"
        _simulate(images, demo)
    store = folder / "faces.zarr"
    converted = convert(images, store, overwrite=True, progress=demo.progress)
    for line in converted.lines() if converted else ():
        demo.echo(line)
    source = open_source(str(store))
    k = min(N_COMPONENTS, source.shape[0] - 1, source.shape[1])
    if k < 1:
        raise InputError(f"{images}: has one image; give a folder with two or more")
    path = demo.pca(source, "faces", k)
    result = load(path)
    share = float(result["explained_variance_ratio"].values.sum())
    demo.echo(f"{k} components explain {share:.1%} of the variance")
    faces = Faces.read(store)
    pictures = [folder / f"faces-{name}.png" for name in ("gallery", "reconstructions", "denoising")]
    draw_figure(result, "components", pictures[0])
    draw_items([[image_rows(_reconstructed(result, faces.images[faces.examples(10)]))]], pictures[1])
    if len(faces.images) < 2 * FOLDS:
        pictures.pop()
    else:
        evaluate(faces, k, pictures[2], demo.echo)
    return [*pictures, demo.page(path, "Eigenfaces")]


def _simulate(folder: Path, demo: Demo) -> None:
    """Simulate faces in a folder that is new or was simulated before."""
    if folder.exists() and any(not place.name.startswith("person-") for place in folder.iterdir()):
        raise InputError(f"{folder}: contains files that were not simulated here; choose another --out")
    demo.echo(f"Simulating {PICTURES} pictures of each of {PEOPLE} people in {folder}")
    simulate_faces(folder, PEOPLE, PICTURES, progress=demo.progress)


def _reconstructed(result: Any, originals: Array) -> dict[str, Array]:
    """Return images next to their reconstructions from a few numbers of components."""
    rows = {"original": originals.astype(np.float64)}
    for k, images in reconstructions(result, rows["original"], (5, 10, 20, 49)).items():
        rmse = np.sqrt(np.nanmean((images - originals) ** 2))
        rows[f"k = {k}\nRMSE {rmse:.3g}"] = images
    return rows


@dataclass(frozen=True)
class Faces:
    """Images in memory, and the person in each; empty text where unknown."""

    images: Array
    labels: Array

    @classmethod
    def read(cls, store: Path) -> Faces:
        """Read as many images as fit in memory."""
        group: Any = zarr.open_group(store, mode="r")
        array = group["image"]
        count = min(array.shape[0], max(2, MAX_VALUES // int(np.prod(array.shape[1:]))))
        labels = group["label"][:count] if "label" in group else [""] * count
        return cls(np.asarray(array[:count]), np.array([str(label) for label in labels]))

    def examples(self, count: int) -> Array:
        """Return the indices of a few images, of different people if possible."""
        _, first = np.unique(self.labels, return_index=True)
        first = first if len(first) >= count else np.arange(len(self.labels))
        return np.asarray(first[np.linspace(0, len(first) - 1, min(count, len(first))).astype(int)])

    @property
    def rows(self) -> Array:
        """Images as samples x features."""
        return self.images.reshape(len(self.images), -1)

    def folds(self) -> Iterator[tuple[Array, Array]]:
        """Yield the training and test indices of 5 folds, stratified by person where possible."""
        _, who, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        stratified = len(counts) > 1 and counts.min() >= FOLDS
        folds: Any = (StratifiedKFold if stratified else KFold)(FOLDS, shuffle=True, random_state=0)
        yield from folds.split(self.rows, who)


def evaluate(faces: Faces, k: int, picture: Path, echo: Echo) -> None:
    """Report how well components of four folds denoise, recognise and detect the images of the fifth."""
    rng, X, shape = np.random.default_rng(0), faces.rows.astype(np.float32), faces.images.shape[1:]
    # With as many components as training images no face would be distant.
    k = max(1, min(k, (len(X) - len(X) // FOLDS - 1) // 2))
    mse, correct, distance = [], [], []
    rows: dict[str, Array] = {}
    for train, test in faces.folds():
        model = PCA(k).fit(X[train])
        clean = X[test]
        noisy = clean + NOISE * rng.standard_normal(clean.shape, np.float32)
        denoised = _projected(model, noisy)
        mse.append([np.mean((images - clean) ** 2) for images in (noisy, denoised)])
        for name, images in (("original", clean), ("noisy", noisy), ("denoised", denoised)):
            rows.setdefault(name, np.clip(images[:10].reshape(-1, *shape), 0, 255))
        correct.append(_recognised(model, X, faces.labels, train, test))
        # For copies of a few images the typical distance is 0; then one of 255 grey levels counts as distant.
        typical = max(float(np.sqrt(np.mean(_distance(model, X[train]) ** 2))), 1.0)
        sets = {"faces": clean, **not_faces(clean, shape, rng)}
        distance.append({name: _distance(model, images) / typical for name, images in sets.items()})
    before, after = (10 * np.log10(255**2 / error) for error in np.mean(mse, axis=0))
    echo(
        f"noise of standard deviation {NOISE:g}: PSNR {before:.1f} dB, {after:.1f} dB after projection, held-out faces"
    )
    people = len(set(faces.labels) - {""})
    if people > 1:
        neighbour, bayes = np.mean(np.concatenate(correct), axis=0)
        methods = f"nearest neighbour {neighbour:.1%}, naive Bayes {bayes:.1%}"
        echo(f"recognition of {people} people by {k} scores, 5-fold cross-validation: {methods}")
    else:
        echo("no labels: put the images of each person in a folder of its own to measure recognition")
    _report_distances({name: np.concatenate([fold[name] for fold in distance]) for name in distance[0]}, echo)
    title = f"Noise of standard deviation {NOISE:g} on held-out faces"
    draw_items([[image_rows(rows, title=title)]], picture)


def _report_distances(distance: dict[str, Array], echo: Echo) -> None:
    """Report how well the distance from face space distinguishes faces from other images."""
    own = distance.pop("faces")
    echo(
        f"distance from face space, at least {FAR:g} times the typical one: {np.mean(own >= FAR):.1%} of held-out faces"
    )
    for name, values in distance.items():
        auc = roc_auc_score(np.repeat([0, 1], [len(own), len(values)]), np.concatenate([own, values]))
        echo(f"  {name}: {np.mean(values >= FAR):.1%}, AUC against faces {auc:.3f}")


def _projected(model: PCA, rows: Array) -> Array:
    return np.asarray(model.inverse_transform(model.transform(rows)))


def _distance(model: PCA, rows: Array) -> Array:
    return np.asarray(np.linalg.norm(rows - _projected(model, rows), axis=1))


def _recognised(model: PCA, X: Array, labels: Array, train: Array, test: Array) -> Array:
    """Return whether nearest neighbour and Gaussian naive Bayes name each held-out image correctly: (n, 2)."""
    train, test = train[labels[train] != ""], test[labels[test] != ""]
    if len(set(labels[train])) < 2:
        return np.zeros((0, 2))
    known, new = model.transform(X[train]), model.transform(X[test])
    guesses = [m.fit(known, labels[train]).predict(new) for m in (KNeighborsClassifier(1), GaussianNB())]
    return np.stack([guess == labels[test] for guess in guesses], axis=1)


def not_faces(rows: Array, shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, Array]:
    """Return images that are not faces, with the brightness and contrast of those given.

    Noise; stripes and patches, each of random direction and width; and the faces with shuffled pixels.
    """
    y, x = np.meshgrid(*(np.linspace(-1, 1, length) for length in shape[:2]), indexing="ij")
    angle, frequency, phase = rng.uniform((0, 3, 0), (np.pi, 20, 2 * np.pi), (len(rows), 3)).T[:, :, None, None]
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    stripes = np.sin(frequency * along + phase)
    patterns = {"noise": rng.standard_normal(rows.shape)}
    for name, images in {"stripes": stripes, "patches": stripes * np.sin(frequency * across)}.items():
        channels = np.repeat(images[..., None], shape[2] if len(shape) > 2 else 1, axis=3)
        patterns[name] = channels.reshape(len(rows), -1)
    mean, deviation = rows.mean(axis=1, keepdims=True), rows.std(axis=1, keepdims=True)
    others = {
        name: (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True) * deviation + mean
        for name, values in patterns.items()
    }
    others["shuffled pixels"] = rows[:, rng.permutation(rows.shape[1])]
    return {name: np.asarray(values, np.float32) for name, values in others.items()}
