"""Simulate groups of samples, chunk by chunk, so that the data may be larger than memory."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import zarr

from streampca._typing import Array
from streampca.progress import Progress, Step, silent
from streampca.sources.completeness import WRITTEN


def simulate_groups(
    path: Path, n_samples: int, n_features: int, *, n_groups: int = 6, n_factors: int = 12, chunk: int = 1024,
    noise: float = 1.0, seed: int = 0, progress: Progress = silent,
) -> Array:  # fmt: skip
    """Write a float32 Zarr array of samples x features, in groups on a ring; return the group of each sample.

    x = z L + mean + noise, with 2 factors for the ring and n_factors - 2 others of decreasing strength.
    """
    rng = np.random.default_rng(seed)
    strengths = np.concatenate([[3.0, 2.4], 1.5 * 0.85 ** np.arange(n_factors - 2)])
    loadings = rng.standard_normal((n_factors, n_features)).astype(np.float32) * strengths[:, None].astype(np.float32)
    mean = rng.normal(20.0, 5.0, n_features).astype(np.float32)
    groups = rng.integers(n_groups, size=n_samples)
    angles = groups * (2 * np.pi / n_groups) + rng.normal(0, 0.12, n_samples)
    array = zarr.create_array(
        path, shape=(n_samples, n_features), chunks=(chunk, n_features), dtype="float32",
        dimension_names=("sample", "feature"), attributes={"kind": "simulated", "format_version": 1, "seed": seed},
        **WRITTEN,
    )  # fmt: skip
    starts, began = range(0, n_samples, chunk), time.monotonic()
    for i, start in enumerate(starts):
        rows = slice(start, min(start + chunk, n_samples))
        z = rng.standard_normal((rows.stop - start, n_factors), dtype=np.float32)
        z[:, 0] = np.cos(angles[rows]) * 1.4 + 0.15 * z[:, 0]
        z[:, 1] = np.sin(angles[rows]) * 1.4 + 0.15 * z[:, 1]
        block = z @ loadings
        block += mean
        error = rng.standard_normal(block.shape, dtype=np.float32)
        error *= noise
        block += error
        array[rows] = block
        progress(Step(0, "simulating", i + 1, len(starts), time.monotonic() - began))
    return groups
