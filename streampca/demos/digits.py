"""The story of digits: what they share, and how few components show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streampca.demos.base import Teller
from streampca.models.pca.options import PCAOptions
from streampca.report.plots import draw_digits
from streampca.results.fit import fit_to_store


def demo_digits(teller: Teller) -> list[Path]:
    """Draw mean, components, J(m) and reconstructions of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    from streampca.models.pca.estimator import PCA

    digits = load_digits()
    images = digits.images
    X = images.reshape(len(images), -1)
    model = PCA().fit(X)
    curve = model.reconstruction_curve()
    reached = int(np.argmax(curve <= 0.1 * curve[0]))
    teller.say(f"{len(X)} digits of 8 x 8: {reached} of {X.shape[1]} components explain 90% of the variance")
    first = images[:10]
    reconstructions = {}
    for m in (2, 8, 21, 40):
        few = PCA(n_components=m).fit(X)
        reconstructions[m] = few.inverse_transform(few.transform(X[:10])).reshape(first.shape)
    picture, result = teller.folder / "digits.png", teller.folder / "digits.pca.zarr"
    draw_digits(first, model.mean_.reshape(8, 8), model.components_.reshape(-1, 8, 8), curve, reconstructions, picture)
    source = teller.store("digits", images.astype(np.uint8), ("y", "x"), digits.target)
    fit_to_store(PCAOptions(n_components="all"), source, result)
    return [picture, teller.page(result, "scikit-learn's digits")]
