"""Groups of samples in a simulated matrix that is larger than the memory limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streampca.demos.base import Demo
from streampca.demos.simulate import simulate_groups
from streampca.report import draw_figure
from streampca.results.store import load
from streampca.results.write import writing
from streampca.sources import open_source
from streampca.sweep.memory import memory_limit, show_bytes

N_FEATURES = 2_000
N_COMPONENTS = 12


def demo_groups(demo: Demo) -> list[Path]:
    """Simulate groups in a matrix larger than the memory limit, fit PCA, and draw the overview."""
    limit = memory_limit(demo.memory)
    n_samples = int(1.5 * limit / (4 * N_FEATURES))
    data, picture, table = (demo.folder / f"groups.{suffix}" for suffix in ("zarr", "png", "tsv"))
    size = show_bytes(4.0 * n_samples * N_FEATURES)
    demo.echo(f"Simulating {n_samples} samples x {N_FEATURES} features, {size}, in {data}")
    with writing(data, overwrite=True) as store:
        groups = simulate_groups(store, n_samples, N_FEATURES, progress=demo.progress)
    demo.echo(f"Fitting {N_COMPONENTS} components with at most {show_bytes(limit)} of memory")
    result = demo.pca(open_source(str(data)), "groups", N_COMPONENTS)
    title = f"{n_samples:,} samples x {N_FEATURES:,} features, {size} in {show_bytes(limit)} of memory"
    names = np.array([f"group {group + 1}" for group in groups])
    draw_figure(load(result), "overview", picture, values=names, title=title)
    table.write_text("sample\tgroup\n" + "".join(f"{i}\t{name}\n" for i, name in enumerate(names)))
    return [picture, demo.page(result, title, table)]
