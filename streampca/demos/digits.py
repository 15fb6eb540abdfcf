"""Digits: mean, components, J(m), and reconstructions from few components."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from streampca.demos.base import Demo
from streampca.report.charts import MARK
from streampca.report.images import gallery, image_rows, reconstructions
from streampca.report.printing import draw_items
from streampca.report.spectrum import component_names, spectrum_figures
from streampca.results.store import load


def demo_digits(demo: Demo) -> list[Path]:
    """Draw mean, components, J(m) and reconstructions of scikit-learn's digits."""
    digits = load_digits()
    images = digits.images
    source = demo.store("digits", images.astype(np.uint8), ("y", "x"), digits.target)
    path = demo.pca(source, "digits", "all")
    result = load(path)
    share = result["explained_variance_ratio"].values
    reached = int(np.argmax(np.cumsum(share) >= MARK)) + 1
    demo.echo(f"{len(images)} digits of 8 x 8: {reached} of {images[0].size} components explain 90% of the variance")
    rows = {"original": images[:10]}
    rows |= {f"m = {m}": few for m, few in reconstructions(result, images[:10], (2, 8, 21, 40)).items()}
    components = gallery(result, component_names(result)[:19])
    assert components is not None
    picture = demo.folder / "digits.png"
    draw_items([[components], [spectrum_figures(result)["error"].chart, image_rows(rows, ink=True)]], picture)
    return [picture, demo.page(path, "scikit-learn's digits")]
