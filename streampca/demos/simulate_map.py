"""Simulate genotypes of people on a map under isolation by distance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.demos.simulate_genotypes import write_genotypes
from streampca.progress import Progress, silent

# Longitude and latitude of capitals, rounded.
PLACES = {
    "Portugal": (-9.1, 38.7), "Spain": (-3.7, 40.4), "Ireland": (-6.3, 53.3), "Britain": (-0.1, 51.5),
    "France": (2.4, 48.9), "Belgium": (4.4, 50.8), "Netherlands": (4.9, 52.4), "Switzerland": (7.4, 46.9),
    "Norway": (10.8, 59.9), "Denmark": (12.6, 55.7), "Italy": (12.5, 41.9), "Germany": (13.4, 52.5),
    "Czechia": (14.4, 50.1), "Croatia": (16.0, 45.8), "Austria": (16.4, 48.2), "Sweden": (18.1, 59.3),
    "Hungary": (19.0, 47.5), "Albania": (19.8, 41.3), "Serbia": (20.5, 44.8), "Poland": (21.0, 52.2),
    "Greece": (23.7, 38.0), "Finland": (24.9, 60.2), "Latvia": (24.1, 56.9), "Romania": (26.1, 44.4),
    "Ukraine": (30.5, 50.5), "Turkey": (32.9, 39.9),
}  # fmt: skip
DEGREE_KM = 111.2  # of a degree of latitude
MIDDLE = 49.0  # latitude at which a degree of longitude is measured
SPREAD_KM = 150.0  # standard deviation of the distance to the capital
RANGE_KM = 3000.0  # of the covariance of allele frequencies
DRIFT = 0.02  # variance of a frequency between distant places, relative to p (1 - p)
GRID = 14  # grid points in each direction at which frequencies are drawn; those of a person are interpolated


def simulate_map(
    prefix: Path, n_samples: int, n_variants: int, *, missing: float = 0.005, seed: int = 0, progress: Progress = silent
) -> tuple[Array, Array]:
    """Write prefix.bed, .bim, .fam and .tsv (IID, country, longitude, latitude); return the country and place of each.

    Allele frequencies are p + sqrt(F p (1 - p)) g(s), g a Gaussian field over the map with the covariance
    exp(-distance / range), clipped to 0.001 .. 0.999. People live around the capitals of Europe.
    """
    rng = np.random.default_rng(seed)
    names = np.array(list(PLACES))
    country = np.sort(rng.integers(len(names), size=n_samples))
    homes = kilometres(np.array(list(PLACES.values())))[country] + rng.normal(0, SPREAD_KM, (n_samples, 2))
    low, high = homes.min(axis=0), homes.max(axis=0)
    grid = np.stack(np.meshgrid(*np.linspace(low, high, GRID).T), axis=-1).reshape(-1, 2)
    step = (high - low) / (GRID - 1)
    # Bilinear weights of the grid points.
    near = np.maximum(0, 1 - np.abs(grid[:, None] - homes[None]) / step).prod(axis=2)
    share = (near / near.sum(axis=0)).astype(np.float32)
    distance = np.linalg.norm(grid[:, None] - grid[None], axis=2)
    root = np.linalg.cholesky(np.exp(-distance / RANGE_KM) + 1e-9 * np.eye(len(grid)))

    def frequencies(rng: np.random.Generator, count: int) -> Array:
        p = rng.uniform(0.05, 0.95, (count, 1))
        field = rng.standard_normal((count, len(grid))) @ root.T
        return np.clip(p + np.sqrt(DRIFT * p * (1 - p)) * field, 0.001, 0.999)

    write_genotypes(prefix, names[country].tolist(), n_variants, share, frequencies, missing, seed, progress)
    with open(f"{prefix}.tsv", "w") as table:
        table.write("IID\tcountry\tlongitude\tlatitude\n")
        for i, (name, (east, north)) in enumerate(zip(names[country], degrees(homes), strict=True)):
            table.write(f"s{i}\t{name}\t{east:.3f}\t{north:.3f}\n")
    return names[country], degrees(homes)


def kilometres(places: Array) -> Array:
    """Return longitude and latitude (n, 2) as kilometres on a flat map."""
    return np.asarray(places * DEGREE_KM * np.array([np.cos(np.radians(MIDDLE)), 1.0]))


def degrees(homes: Array) -> Array:
    """Invert `kilometres`."""
    return np.asarray(homes / (DEGREE_KM * np.array([np.cos(np.radians(MIDDLE)), 1.0])))
