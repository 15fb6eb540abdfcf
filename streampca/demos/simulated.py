"""Stories of simulated data: groups in a matrix larger than memory, and people on a map."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streampca.demos.base import Teller
from streampca.demos.simulate import simulate_groups
from streampca.errors import InputError
from streampca.models.pca.options import PCAOptions
from streampca.report.plots import draw_map
from streampca.report.print_figures import draw_overview
from streampca.results.fit import fit_to_store
from streampca.results.store import load
from streampca.results.write import writing
from streampca.sources import open_source
from streampca.sweep.memory import RESULT_BASELINE, Budget, memory_limit, show_bytes

N_FEATURES = 2_000
N_COMPONENTS = 12


def demo_groups(teller: Teller) -> list[Path]:
    """Simulate groups in a matrix larger than the memory limit, find its components, draw them."""
    folder, memory, progress, say = teller.folder, teller.memory, teller.progress, teller.say
    limit = memory_limit(memory)
    n_samples = int(1.5 * limit / (4 * N_FEATURES))
    data, result, picture = folder / "groups.zarr", folder / "groups.pca.zarr", folder / "groups.png"
    size = show_bytes(4.0 * n_samples * N_FEATURES)
    say(f"Simulating {n_samples} samples x {N_FEATURES} features, {size}, in {data}")
    with writing(data, overwrite=True) as store:
        groups = simulate_groups(store, n_samples, N_FEATURES, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {show_bytes(limit)} of memory")
    options = PCAOptions(n_components=N_COMPONENTS)
    fit_to_store(
        options, open_source(str(data)), result, memory_limit=Budget.of(memory, RESULT_BASELINE), progress=progress
    )
    title = f"{n_samples:,} samples x {N_FEATURES:,} features, {size} in {show_bytes(limit)} of memory"
    names = np.array([f"group {group + 1}" for group in groups])
    draw_overview(load(result), picture, names, title)
    table = folder / "groups.tsv"
    table.write_text("sample\tgroup\n" + "".join(f"{i}\t{name}\n" for i, name in enumerate(names)))
    return [picture, teller.page(result, title, table)]


def demo_genotypes(teller: Teller) -> list[Path]:
    """Simulate people on a map, the more alike the nearer they live, and draw the map that their genotypes give.

    After Novembre et al. (2008), Nature 456, 98, who found the map of Europe in the genotypes of Europeans.
    """
    from scipy.spatial import procrustes

    from streampca.demos.simulate_map import kilometres, simulate_map

    folder, memory, progress, say = teller.folder, teller.memory, teller.progress, teller.say
    n_samples, n_variants = 3_000, 60_000
    prefix, result, picture = folder / "genotypes", folder / "genotypes.pca.zarr", folder / "genotypes.png"
    if Path(f"{prefix}.bed").exists() and not Path(f"{prefix}.pop").exists():
        raise InputError(f"{prefix}.bed: was not simulated here, and will not be overwritten; choose another --out")
    say(f"Simulating {n_samples} people on a map of Europe x {n_variants} variants, in {prefix}.bed")
    country, places = simulate_map(prefix, n_samples, n_variants, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {memory} of memory")
    options = PCAOptions(n_components=N_COMPONENTS)
    fit_to_store(
        options, open_source(prefix), result, memory_limit=Budget.of(memory, RESULT_BASELINE), progress=progress
    )
    true, found, apart = procrustes(kilometres(places), load(result)["scores"].values[:, :2])
    likeness = float(np.sqrt(1 - apart))
    say(f"PC1 and PC2 turned onto the map: Procrustes correlation {likeness:.3f}")
    title = f"{n_samples:,} people x {n_variants:,} variants: Procrustes correlation {likeness:.3f}"
    draw_map({"where people live": true, "PC1 and PC2 of their genotypes, turned": found}, country, picture, title)
    return [picture, teller.page(result, "People on a map", folder / "genotypes.tsv")]
