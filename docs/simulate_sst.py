"""Simulate a sea-surface temperature field with land.

    python docs/simulate_sst.py sst.nc

40 years of monthly anomalies on a 4-degree grid, in kelvin. Two patterns with known time series stand for El Nino
and for a mid-latitude wave in the north; two rectangles of missing values stand for continents. No observations.
"""

from __future__ import annotations

import sys

import numpy as np
import xarray


def simulate_sst(seed: int = 0) -> xarray.Dataset:
    """Return the field `sst` (time, lat, lon) and the time series `truth` (mode, time) of its two patterns."""
    rng = np.random.default_rng(seed)
    time = np.arange("1980-01", "2020-01", dtype="datetime64[M]").astype("datetime64[ns]")
    lat, lon = np.arange(-58.0, 60.0, 4.0), np.arange(2.0, 360.0, 4.0)
    y, x = np.meshgrid(lat, lon, indexing="ij")
    patterns = np.stack([
        np.exp(-((y / 10) ** 2) - ((x - 230) / 45) ** 2),
        0.5 * np.exp(-(((y - 40) / 12) ** 2)) * np.cos(np.radians(2 * x)),
    ])  # fmt: skip
    # Autoregressive series: a month remembers 0.9 of the month before.
    series = np.zeros((2, len(time)))
    for month in range(1, len(time)):
        series[:, month] = 0.9 * series[:, month - 1] + rng.normal(size=2)
    season = np.sin(2 * np.pi * (np.arange(len(time)) % 12) / 12)[:, None, None] * np.sin(np.radians(y))
    field = np.einsum("mt,myx->tyx", series, patterns) + 0.5 * season + 0.4 * rng.normal(size=(len(time), *y.shape))
    land = ((x < 50) & (np.abs(y) < 34)) | ((x > 280) & (x < 320) & (np.abs(y + 10) < 40))
    field[:, land] = np.nan
    return xarray.Dataset(
        {
            "sst": (("time", "lat", "lon"), field.astype(np.float32), {"units": "K"}),
            "truth": (("mode", "time"), series),
        },
        coords={"time": time, "lat": lat, "lon": lon},
        attrs={"title": "Simulated sea-surface temperature anomalies"},
    )


if __name__ == "__main__":
    simulate_sst()[["sst"]].to_netcdf(sys.argv[1], engine="h5netcdf")
