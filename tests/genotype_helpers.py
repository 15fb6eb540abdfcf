"""What tests of genotypes share: files by bed-reader, a decoder and an eigendecomposition of their own."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from bed_reader import to_bed

needs_plink2 = pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not installed")


def write_bed(prefix, calls, **labels):
    """Write counts of A1 (n x m, NaN for missing) as prefix.bed, .bim and .fam; returns the path of the .bed.

    Labels, each a list, are those of bed-reader: fid, iid, chromosome, sid, bp_position, allele_1, allele_2.
    """
    calls = np.asarray(calls, float)
    n, m = calls.shape
    properties = {
        "fid": [f"f{i}" for i in range(n)],
        "iid": [f"i{i}" for i in range(n)],
        "chromosome": ["1"] * m,
        "sid": [f"rs{j}" for j in range(m)],
        "bp_position": list(range(1000, 1000 * (m + 1), 1000)),
        "allele_1": ["A"] * m,
        "allele_2": ["G"] * m,
    }
    path = Path(f"{prefix}.bed")
    properties |= {name: np.asarray(values).tolist() for name, values in labels.items()}
    to_bed(path, calls, properties=properties, count_A1=True)
    return path


def labels_of(path):
    """Labels of a .bed as `write_bed` takes them."""
    fam = [line.split() for line in path.with_suffix(".fam").read_text().splitlines()]
    bim = [line.split() for line in path.with_suffix(".bim").read_text().splitlines()]
    named = {"fid": 0, "iid": 1}, {"chromosome": 0, "sid": 1, "bp_position": 3, "allele_1": 4, "allele_2": 5}
    samples, variants = ({name: [row[i] for row in rows] for name, i in names.items()}
                         for rows, names in zip((fam, bim), named, strict=True))  # fmt: skip
    variants["bp_position"] = [int(x) for x in variants["bp_position"]]
    return samples, variants


def write_part(prefix, path, samples=slice(None), variants=slice(None)):
    """Write some samples and variants of a .bed as another."""
    per_sample, per_variant = labels_of(path)
    labels = {name: np.array(values)[samples] for name, values in per_sample.items()}
    labels |= {name: np.array(values)[variants] for name, values in per_variant.items()}
    return write_bed(prefix, calls_in(path)[samples][:, variants], **labels)


def calls_in(path):
    """Decode a .bed with plain NumPy: counts of A1 (n x m), NaN for missing."""
    n = len(path.with_suffix(".fam").read_text().split("\n")) - 1
    packed = np.fromfile(path, np.uint8)[3:].reshape(-1, (n + 3) // 4)
    codes = np.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], axis=2).reshape(len(packed), -1)[:, :n]
    return np.array([2.0, np.nan, 1.0, 0.0])[codes].T


@dataclass(frozen=True)
class Truth:
    """Patterson's matrix of counts (n x m), missing at the mean, variants that do not vary left out; its eigenpairs."""

    calls: np.ndarray

    @cached_property
    def varies(self):
        p = self._frequency
        return (p > 0) & (p < 1)

    @cached_property
    def _frequency(self):
        called = ~np.isnan(self.calls)
        return np.where(called, self.calls, 0).sum(axis=0) / np.maximum(called.sum(axis=0), 1) / 2

    @cached_property
    def X(self):  # noqa: N802
        p, g = self._frequency[self.varies], self.calls[:, self.varies]
        return np.where(np.isnan(g), 0.0, (g - 2 * p) / np.sqrt(2 * p * (1 - p)))

    @cached_property
    def grm(self):
        return self.X @ self.X.T / self.X.shape[1]

    @cached_property
    def values(self):
        return np.linalg.eigvalsh(self.grm)[::-1]

    @cached_property
    def vectors(self):
        """As rows."""
        return np.linalg.eigh(self.grm)[1][:, ::-1].T


def unit_scores(scores):
    """Scores as unit eigenvectors of the samples, as rows."""
    scores = np.asarray(scores, float)
    return (scores / np.linalg.norm(scores, axis=0)).T


def random_calls(n, m, seed, missing=0.05, groups=3):
    """Counts of samples in groups whose frequencies differ, so that the first eigenvalues stand apart."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.2, 0.8, m)
    each = np.clip(p + 0.2 * rng.standard_normal((groups, m)), 0.05, 0.95)
    calls = rng.binomial(2, each[np.arange(n) * groups // n]).astype(float)
    calls[rng.random(calls.shape) < missing] = np.nan
    return calls


def plink2(*arguments, cwd):
    """Run plink2 and return the folder, where its output begins with `plink2`."""
    done = subprocess.run(["plink2", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return cwd


def table(path):
    """Columns of a text file with a header, by name."""
    header, *rows = [line.split("\t") for line in Path(path).read_text().splitlines()]
    return dict(zip(header, map(np.array, zip(*rows, strict=True)), strict=True))
