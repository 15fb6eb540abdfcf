"""Genotypes of people on a map: PC1 and PC2 recover the map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial import procrustes

from streampca.demos.base import Demo
from streampca.demos.simulate_map import kilometres, simulate_map
from streampca.errors import InputError
from streampca.report.printing import Scatter, draw_items
from streampca.results.store import load
from streampca.sources import open_source

N_SAMPLES, N_VARIANTS, N_COMPONENTS = 3_000, 60_000, 12


def demo_genotypes(demo: Demo) -> list[Path]:
    """Simulate genotypes under isolation by distance, and draw the map next to PC1 and PC2.

    After Novembre et al. (2008), Nature 456, 98, who recovered the map of Europe from genotypes.
    """
    prefix, picture = demo.folder / "genotypes", demo.folder / "genotypes.png"
    if Path(f"{prefix}.bed").exists() and not Path(f"{prefix}.pop").exists():
        raise InputError(f"{prefix}.bed: exists and was not simulated here; choose another --out")
    demo.echo(f"Simulating {N_SAMPLES} people on a map of Europe x {N_VARIANTS} variants, in {prefix}.bed")
    country, places = simulate_map(prefix, N_SAMPLES, N_VARIANTS, progress=demo.progress)
    demo.echo(f"Fitting {N_COMPONENTS} components with at most {demo.memory} of memory")
    result = demo.pca(open_source(prefix), "genotypes", N_COMPONENTS)
    places, scores, disparity = procrustes(kilometres(places), load(result)["scores"].values[:, :2])
    correlation = float(np.sqrt(1 - disparity))
    demo.echo(f"PC1 and PC2 rotated onto the map: Procrustes correlation {correlation:.3f}")
    title = f"{N_SAMPLES:,} people x {N_VARIANTS:,} variants: Procrustes correlation {correlation:.3f}"
    planes = {"where people live": places, "PC1 and PC2 of their genotypes, rotated": scores}
    items = [Scatter(points, name, values=country, annotate="groups", equal=True) for name, points in planes.items()]
    draw_items([items], picture, title)
    return [picture, demo.page(result, "People on a map", demo.folder / "genotypes.tsv")]
