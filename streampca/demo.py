"""Demonstrations: small stories that run anywhere, each with a picture at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from streampca.budget import memory_limit, show_bytes
from streampca.errors import InputError
from streampca.models.components import Request
from streampca.plots import draw_digits, draw_overview
from streampca.progress import Progress
from streampca.results import load, pca_to_store, writing
from streampca.simulate import simulate_groups
from streampca.sources import open_source

N_FEATURES = 2_000
N_COMPONENTS = 12


def demo_groups(folder: Path, memory: str, progress: Progress, say: Callable[[str], None]) -> Path:
    """Simulate groups in a matrix larger than the memory limit, find its components, draw them; returns the picture."""
    limit = memory_limit(memory)
    n_samples = int(1.5 * limit / (4 * N_FEATURES))
    data, result, picture = folder / "groups.zarr", folder / "groups.pca.zarr", folder / "groups.png"
    size = show_bytes(4.0 * n_samples * N_FEATURES)
    say(f"Simulating {n_samples} samples x {N_FEATURES} features, {size}, in {data}")
    with writing(data, overwrite=True) as store:
        groups = simulate_groups(store, n_samples, N_FEATURES, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {show_bytes(limit)} of memory")
    request = Request(N_COMPONENTS, memory=memory, progress=progress)
    pca_to_store(open_source(str(data)), request, result, True, {"n_components": N_COMPONENTS, "memory": memory})
    title = f"{n_samples:,} samples x {N_FEATURES:,} features, {size} in {show_bytes(limit)} of memory"
    draw_overview(load(result), picture, groups, title)
    return picture


def demo_genotypes(folder: Path, memory: str, progress: Progress, say: Callable[[str], None]) -> Path:
    """Simulate populations that split and mix, find the components of their genotypes, draw them."""
    from streampca.simulate_genotypes import BRANCHES, simulate_genotypes

    n_samples, n_variants = 3_000, 60_000
    prefix, result, picture = folder / "genotypes", folder / "genotypes.pca.zarr", folder / "genotypes.png"
    if Path(f"{prefix}.bed").exists() and not Path(f"{prefix}.pop").exists():
        raise InputError(f"{prefix}.bed: was not simulated here, and will not be overwritten; choose another --out")
    say(f"Simulating {n_samples} samples of {np.prod(BRANCHES)} populations x {n_variants} variants, in {prefix}.bed")
    population = simulate_genotypes(prefix, n_samples, n_variants, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {memory} of memory")
    request = Request(N_COMPONENTS, memory=memory, progress=progress)
    pca_to_store(open_source(prefix), request, result, True, {"n_components": N_COMPONENTS, "memory": memory})
    title = f"{n_samples:,} samples x {n_variants:,} variants: {BRANCHES[0]} continents, a fifth of the people admixed"
    draw_overview(load(result), picture, population // int(np.prod(BRANCHES[1:])), title)
    return picture


def demo_digits(folder: Path, say: Callable[[str], None]) -> Path:
    """Draw mean, components, J(m) and reconstructions of scikit-learn's digits; returns the picture."""
    from sklearn.datasets import load_digits

    from streampca.models.pca import PCA

    images = load_digits().images
    X = images.reshape(len(images), -1)
    model = PCA().fit(X)
    curve = model.reconstruction_curve()
    reached = int(np.argmax(curve <= 0.1 * curve[0]))
    say(f"{len(X)} digits of 8 x 8: {reached} of {X.shape[1]} components explain 90% of the variance")
    first = images[:10]
    reconstructions = {}
    for m in (2, 8, 21, 40):
        few = PCA(n_components=m).fit(X)
        reconstructions[m] = few.inverse_transform(few.transform(X[:10])).reshape(first.shape)
    picture = folder / "digits.png"
    draw_digits(first, model.mean_.reshape(8, 8), model.components_.reshape(-1, 8, 8), curve, reconstructions, picture)
    return picture
