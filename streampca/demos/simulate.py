"""Simulate groups of samples, chunk by chunk, so that the data may be larger than memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

from streampca._typing import Array
from streampca.progress import Progress, reporting, silent
from streampca.sources.completeness import WRITTEN

N_GROUPS, N_FACTORS = 6, 12


def simulate_groups(
    path: Path, n_samples: int, n_features: int, *, chunk: int = 1024, seed: int = 0, progress: Progress = silent
) -> Array:
    """Write a float32 Zarr array of samples x features, in groups on a ring; return the group of each sample.

    x = z L + mean + noise, with 2 factors for the ring and 10 others of decreasing strength.
    """
    rng = np.random.default_rng(seed)
    strengths = np.concatenate([[3.0, 2.4], 1.5 * 0.85 ** np.arange(N_FACTORS - 2)])
    loadings = rng.standard_normal((N_FACTORS, n_features)).astype(np.float32) * strengths[:, None].astype(np.float32)
    mean = rng.normal(20.0, 5.0, n_features).astype(np.float32)
    groups = rng.integers(N_GROUPS, size=n_samples)
    angles = groups * (2 * np.pi / N_GROUPS) + rng.normal(0, 0.12, n_samples)
    array = zarr.create_array(
        path, shape=(n_samples, n_features), chunks=(chunk, n_features), dtype="float32",
        dimension_names=("sample", "feature"), attributes={"kind": "simulated", "format_version": 1, "seed": seed},
        **WRITTEN,
    )  # fmt: skip
    starts = range(0, n_samples, chunk)
    for start in reporting(starts, len(starts), "simulating", progress):
        rows = slice(start, min(start + chunk, n_samples))
        z = rng.standard_normal((rows.stop - start, N_FACTORS), dtype=np.float32)
        z[:, 0] = np.cos(angles[rows]) * 1.4 + 0.15 * z[:, 0]
        z[:, 1] = np.sin(angles[rows]) * 1.4 + 0.15 * z[:, 1]
        block = z @ loadings
        block += mean
        block += rng.standard_normal(block.shape, dtype=np.float32)
        array[rows] = block
    return groups
