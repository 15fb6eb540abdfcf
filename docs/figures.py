"""Draw the figures of the site from simulated data, those that do not exist: python docs/figures.py FOLDER."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from simulate_sst import simulate_sst

DEMOS = {
    "genotypes": ["genotypes.png"],
    "faces": ["faces-gallery.png"],
    "missing": ["missing.png"],
    "kernel": ["kernel.png", "denoising.png"],
}
SST = "sst-maps.png"
# Colours of a figure: half the bytes, no visible difference.
COLOURS = 128


def main(folder: Path) -> None:
    """Run the examples in a temporary directory and keep their figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for demo, names in DEMOS.items():
        if not all((folder / name).exists() for name in names):
            with tempfile.TemporaryDirectory() as scratch:
                _streampca("demo", demo, "--out", scratch, "--quiet")
                for name in names:
                    _keep(Path(scratch) / name, folder / name)
    if not (folder / SST).exists():
        with tempfile.TemporaryDirectory() as scratch:
            data, result = f"{scratch}/sst.nc", f"{scratch}/sst.pca.zarr"
            simulate_sst()[["sst"]].to_netcdf(data, engine="h5netcdf")
            _streampca("pca", data, "--scale", "coslat", "--missing", "mean", "-k", "4", "--out", result, "--quiet")
            _streampca("plot", result, "--figure", "components", "--out", f"{scratch}/{SST}")
            shutil.copy(f"{scratch}/{SST}", folder / SST)


def _streampca(*arguments: str) -> None:
    program = "from streampca.cli import main; main()"
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL)


def _keep(drawn: Path, path: Path) -> None:
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
