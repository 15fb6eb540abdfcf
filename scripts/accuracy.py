"""Accuracy of classes by principal components: nearest neighbour, naive Bayes, kernel densities, and groups found."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import xarray

from streampca import InputError, load
from streampca.models.assign.assign import assign
from streampca.models.assign.options import AssignOptions
from streampca.sources.tables import ids_of, read_table, split_column

METHODS = {"nn": "nearest neighbour", "nb": "naive Bayes", "kde": "kernel densities", "gmm": "groups by BIC"}
# Pairs of classes that are shown.
WORST = 4


def streampca(*arguments: object) -> None:
    command = [sys.executable, "-m", "streampca", *map(str, arguments), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip() or done.stdout.strip())


def report(name: str, result: xarray.Dataset, labels: np.ndarray, most_groups: int) -> None:
    scores = result["scores"].values
    known = labels != ""
    n_classes = len(set(labels[known].tolist()))
    print(f"{name}: {known.sum()} of {len(scores)} samples in {n_classes} classes, {scores.shape[1]} components")
    print(f"{'':20} accuracy  balanced  seconds")
    for method, called in METHODS.items():
        began = time.perf_counter()
        found = assign(scores, labels, AssignOptions(method=method, max_groups=most_groups))
        seconds = time.perf_counter() - began
        if method == "gmm":
            counted = f"{len(found.classes)} found, adjusted Rand index {found.rand_index:.4f}"
            print(f"{called:20} {counted}, {seconds:.1f} seconds")
        else:
            print(f"{called:20} {found.accuracy:8.2%}  {found.balanced_accuracy:8.2%}  {seconds:7.1f}")
            counts = found.confusion.copy()
            np.fill_diagonal(counts, 0)
            order = [at for at in np.argsort(-counts.ravel(), kind="stable")[:WORST] if counts.flat[at]]
            places = (divmod(int(at), counts.shape[1]) for at in order)
            worst = (f"{found.rows[i]} for {[*found.classes, 'none'][j]} {counts[i, j]}" for i, j in places)
            print(f"{'':20} taken most: {', '.join(worst) or 'nothing for another'}")
        for note in found.notes:
            print(f"{'':20} note: {note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--genotypes", help="a .bed, .pgen or VCF Zarr store")
    parser.add_argument("--labels", help="table of the samples' populations, as POPS.tsv:COLUMN")
    parser.add_argument("--images", help="folder with a sub-folder of images for each class")
    parser.add_argument("--components", default="10,50", help="of genotypes, of images [10,50]")
    parser.add_argument("--max-groups", type=int, default=12, help="the most that are tried [12]")
    asked = parser.parse_args()
    if not asked.genotypes and not asked.images:
        parser.error("give --genotypes with --labels, or --images")
    if asked.genotypes and not asked.labels:
        parser.error("give --labels for the genotypes")
    of_genotypes, _, of_images = asked.components.partition(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.genotypes:
            streampca("pca", asked.genotypes, "-k", of_genotypes, "--out", folder / "genotypes.pca.zarr")
            result = load(folder / "genotypes.pca.zarr")
            path, columns = split_column(asked.labels)
            table = read_table(path, ids_of(result))
            report(asked.genotypes, result, table.label(columns[0] if columns else None), asked.max_groups)
        if asked.images:
            streampca("convert", asked.images, folder / "images.zarr")
            streampca(
                "pca", folder / "images.zarr", "-k", of_images or of_genotypes, "--out", folder / "images.pca.zarr"
            )
            images = xarray.open_zarr(folder / "images.zarr", chunks=None)
            if "label" not in images:
                sys.exit(f"{asked.images}: images have no labels; put those of each class in a sub-folder")
            labels = np.array(images["label"].values.tolist())
            report(asked.images, load(folder / "images.pca.zarr"), labels, asked.max_groups)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
