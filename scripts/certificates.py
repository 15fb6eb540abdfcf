"""Certificates of many small fits compared with true residuals in extended precision: see scripts/certificates.

A certificate bounds ||S v - theta v|| / theta for the exact covariance S of the exactly centred and scaled data, and
the component v and eigenvalue theta that the fit reports. Here S v is computed with np.longdouble. Each BLAS kernel
rounds differently and is fixed when a process starts, so that each has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import zarr
from numba import njit
from threadpoolctl import threadpool_info

import streampca
from streampca import InputError
from streampca.solvers import dense, krylov
from streampca.solvers.noise import NOISE_TOL

Array = np.ndarray

# OpenBLAS kernels: the processor flag that each needs, and the names that OpenBLAS reports for it.
BLAS = {
    "Haswell": ("avx2", ("Haswell",)),
    "Nehalem": ("sse4_2", ("Nehalem",)),
    "Prescott": ("pni", ("Prescott", "Katmai")),
    "SkylakeX": ("avx512f", ("SkylakeX",)),
}
# Emulated kernels: float32 partial sums of each product.
EMULATED = {"sequential": 1, "16-lanes": 16}
KERNELS = (*BLAS, *EMULATED)
# Terms of a sum in extended precision that are added one after another: longer sums are sums of such blocks.
BLOCK = 512
EXTENDED = np.longdouble
FLOAT64_ORDER = dense.FLOAT64_ORDER
BASIS_SHARE = krylov.BASIS_SHARE
EPS = float(np.finfo(np.float64).eps)

# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Generator:
    """A family of matrices: `make(rng, n, d)`, and the types that they are stored as; none for their own."""

    family: str
    make: Callable[[np.random.Generator, int, int], Array]
    dtypes: tuple[str, ...]


GENERATORS: dict[str, Generator] = {}


def data(family: str, *dtypes: str) -> Callable[[Any], Any]:
    """Register a generator of a family."""

    def register(make: Any) -> Any:
        GENERATORS[make.__name__] = Generator(family, make, dtypes)
        return make

    return register


FLOATS = ("float32", "float64")
FEW, RARE, TAILS, FAR, MIXED = "few-valued", "rare and spikes", "heavy tails", "huge means", "mixed scales"
DRIFTING, DEGENERATE, ORDINARY, INTEGERS = "drifting", "constant, duplicated", "Gaussian, low rank", "integers"


@data(FEW, *FLOATS)
def flags(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.random((n, d)) < rng.uniform(0.02, 0.98, d)


@data(FEW, *FLOATS)
def two_levels(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.where(flags(rng, n, d), rng.choice([0.7, 1.1, 1 / 3], d), rng.choice([0.1, -0.3, 0.0], d))


@data(FEW, *FLOATS)
def one_hot(rng: np.random.Generator, n: int, d: int) -> Array:
    x = np.zeros((n, d))
    x[np.arange(n), rng.choice(d, n, p=rng.dirichlet(np.ones(d)))] = 1
    return x if d > 1 else flags(rng, n, d)


@data(FEW, *FLOATS)
def calendar(rng: np.random.Generator, n: int, d: int) -> Array:
    step, period = rng.choice([1, 24, 60], d), rng.choice([7, 12, 24, 31, 60, 365], d)
    return (np.arange(n)[:, None] // step + rng.integers(0, 99, d)) % period + rng.choice([0, 1, 1900], d)


@data(FEW, *FLOATS)
def square_waves(rng: np.random.Generator, n: int, d: int) -> Array:
    half = rng.integers(1, max(2, n // 4), d)
    return np.where((np.arange(n)[:, None] // half) % 2 == 1, rng.normal(size=d), rng.normal(size=d))


@data(FEW, *FLOATS)
def likert(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.clip(np.rint(3 + low_rank(rng, n, d) / 2), 1, 5)


@data(FEW, *FLOATS)
def tenths(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.round(rng.normal(size=(n, d)) * rng.uniform(0.1, 0.5, d), 1)


@data(FEW, *FLOATS)
def four_levels(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.choice([0.1, 1 / 3, 0.7, 0.9], (n, d))


@data(RARE, *FLOATS)
def rare_events(rng: np.random.Generator, n: int, d: int) -> Array:
    x = (rng.random((n, d)) < np.resize([1e-4, 2e-5, 1e-5], d)) * np.resize([200.0, 40.0, 200.0], d)
    x[rng.integers(0, n, d), np.arange(d)] = np.resize([200.0, 40.0, 200.0], d)
    return x


@data(RARE, *FLOATS)
def spikes(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.normal(size=(n, d))
    every = int(rng.integers(100, 3000))
    for j in range(d):
        x[rng.integers(0, min(n, every)) :: every, j] = 10.0 ** rng.uniform(2, 6)
    return x


@data(RARE, *FLOATS)
def sparse_counts(rng: np.random.Generator, n: int, d: int) -> Array:
    x = rng.poisson(rng.uniform(0.001, 0.05, d), (n, d))
    x[rng.integers(0, n, d), np.arange(d)] += 1
    return x * rng.choice([1, 0.1, 100], d)


@data(RARE, *FLOATS)
def stuck_sensor(rng: np.random.Generator, n: int, d: int) -> Array:
    """A constant reading that seldom moves."""
    moves = rng.random((n, d)) < 0.003
    moves[rng.integers(0, n, d), np.arange(d)] = True
    return rng.normal(size=d) * 10 + moves * rng.choice([-0.1, 0.1, 0.3], (n, d))


@data(TAILS, *FLOATS)
def pareto(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.pareto(1.5, (n, d))


@data(TAILS, *FLOATS)
def cauchy(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.clip(rng.standard_cauchy((n, d)), -1e4, 1e4)


@data(TAILS, *FLOATS)
def lognormal(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.lognormal(0, rng.uniform(1, 3), (n, d))


@data(TAILS, *FLOATS)
def student(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.standard_t(2, (n, d)) + low_rank(rng, n, d)


@data(FAR, "float64")
def huge_mean(rng: np.random.Generator, n: int, d: int) -> Array:
    return falling(rng, n, d) + 10.0 ** rng.uniform(4, 8, d)


@data(FAR, *FLOATS)
def large_mean(rng: np.random.Generator, n: int, d: int) -> Array:
    return falling(rng, n, d) + 10.0 ** rng.uniform(1, 5)


@data(FAR, *FLOATS)
def offset_flags(rng: np.random.Generator, n: int, d: int) -> Array:
    return flags(rng, n, d) + 10.0 ** rng.uniform(1, 5)


@data(FAR, *FLOATS)
def kelvin(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.round(273.15 + low_rank(rng, n, d), 2)


@data(MIXED, *FLOATS)
def mixed_scales(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, d)) * rng.permutation(10.0 ** np.linspace(-6, 6, d))


@data(MIXED, *FLOATS)
def mixed_kinds(rng: np.random.Generator, n: int, d: int) -> Array:
    kinds = [flags, pareto, walks, four_levels, falling, rare_events]
    parts = [
        kinds[i % len(kinds)](rng, n, len(part)) for i, part in enumerate(np.array_split(np.arange(d), 6)) if part.size
    ]
    return np.hstack(parts) * 10.0 ** rng.uniform(-3, 3, d)


@data(DRIFTING, *FLOATS)
def walks(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, d)).cumsum(axis=0)


@data(DRIFTING, *FLOATS)
def trends(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.arange(n)[:, None] * rng.normal(size=d) + rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 2, d)


@data(DRIFTING, *FLOATS)
def ordered(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.sort(rng.exponential(size=(n, d)), axis=0)


@data(DEGENERATE, *FLOATS)
def constant_columns(rng: np.random.Generator, n: int, d: int) -> Array:
    x = falling(rng, n, d)
    x[:, rng.random(d) < 0.4] = rng.choice([0.0, 3.25, 0.1, -1e6 / 3])
    x[:, 0] = rng.normal(size=n)
    return x


@data(DEGENERATE, *FLOATS)
def duplicated_columns(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, d))[:, rng.integers(0, max(1, d // 2), d)]


@data(DEGENERATE, *FLOATS)
def duplicated_rows(rng: np.random.Generator, n: int, d: int) -> Array:
    few = int(rng.integers(2, 20))
    return rng.normal(size=(few, d))[rng.integers(0, few, n)]


@data(ORDINARY, *FLOATS)
def falling(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.normal(size=(n, d)) * rng.permutation(rng.uniform(0.5, 0.95) ** np.arange(d).clip(max=40))


@data(ORDINARY, *FLOATS)
def low_rank(rng: np.random.Generator, n: int, d: int) -> Array:
    # Not by the BLAS: the same data for each kernel.
    factors = np.einsum("ij,jk->ik", rng.normal(size=(n, 3)), rng.normal(size=(3, d)) * [[4], [2], [1]])
    return factors + rng.normal(size=(n, d)) * rng.choice([0.01, 1.0])


@data(ORDINARY, *FLOATS)
def uniform(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.random((n, d))


@data(INTEGERS)
def images(rng: np.random.Generator, n: int, d: int) -> Array:
    smooth = low_rank(rng, n, d).cumsum(axis=1) / np.sqrt(d)
    return np.clip(128 + 20 * smooth + rng.normal(size=(n, d)), 0, 255).astype(np.uint8)


@data(INTEGERS)
def waveforms(rng: np.random.Generator, n: int, d: int) -> Array:
    return np.clip(rng.standard_t(3, (n, d)) * 1000, -32768, 32767).astype(np.int16)


@data(INTEGERS)
def booleans(rng: np.random.Generator, n: int, d: int) -> Array:
    return flags(rng, n, d)


@data(INTEGERS)
def genotypes(rng: np.random.Generator, n: int, d: int) -> Array:
    groups = np.clip(rng.beta(0.5, 0.5, d) + 0.1 * rng.normal(size=(3, d)), 0.002, 0.998)
    return rng.binomial(2, groups[np.arange(n) % 3]).astype(np.int8)


@data(INTEGERS)
def counts(rng: np.random.Generator, n: int, d: int) -> Array:
    return rng.negative_binomial(0.5, 0.01, (n, d)).astype(rng.choice(["uint16", "int32"]))


# ---------------------------------------------------------------- true residuals


def times(A: Array, B: Array) -> Array:
    """Return A B in extended precision, as a sum over blocks of the inner dimension."""
    return sum(A[:, i : i + BLOCK] @ B[i : i + BLOCK] for i in range(0, A.shape[1], BLOCK))


def column_sums(A: Array) -> Array:
    return np.add.reduceat(A, np.arange(0, len(A), BLOCK), axis=0).sum(axis=0)


def centred(x: Array, scale: str | None = None) -> Array:
    """Return x about its mean in extended precision, NaN at the mean, over its standard deviation (n - 1) for "unit".

    The first value is subtracted first: a column that does not vary becomes exactly zero.
    """
    absent = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    wide = x.astype(EXTENDED)
    wide -= np.take_along_axis(wide, absent.argmin(axis=0)[None, :], axis=0)
    wide[absent] = 0
    wide -= column_sums(wide) / (~absent).sum(axis=0)
    wide[absent] = 0
    if scale == "unit":
        deviation = np.sqrt(column_sums(wide**2) / (len(x) - 1))
        wide /= np.where(deviation > 0, deviation, 1)
    return wide


def residuals(X: Array, components: Array, values: Array) -> Array:
    """Return ||S v - theta v|| / theta of each row v, for S = X'X / (n - 1) and X centred in extended precision."""
    V, theta = components.T.astype(EXTENDED), values.astype(EXTENDED)
    SV = times(X.T, times(X, V)) / (len(X) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(((SV - V * theta) ** 2).sum(axis=0)) / theta


def kernel_residuals(x: Array, model: Any) -> Array:
    """Return lower bounds on |C v - lambda v| / lambda in feature space.

    C v - lambda v = sum_p a_p phi(p) over samples and landmarks p: its squared length a'K a is a small difference,
    from which the rounding of extended precision is subtracted.
    """
    n, M = len(x), model.landmarks_.astype(EXTENDED)
    P = np.vstack([x.astype(EXTENDED), M])
    gamma = EXTENDED(model.gamma_)
    if model.kernel == "rbf":
        K = np.exp(-gamma * sum((column[:, None] - column[None, :]) ** 2 for column in P.T))
    else:
        K = (gamma * (P @ P.T) + EXTENDED(model.coef0)) ** int(model.degree)
    W, values = model.weights_.astype(EXTENDED), model.explained_variance_.astype(EXTENDED)
    scores = K[:n, n:] @ W
    scores -= scores.mean(axis=0)
    a = np.vstack([scores / (n - 1), -values * W])
    squared = np.einsum("pk,pk->k", a, K @ a)
    # First order: rounding of K and of the sums; the scores are small differences themselves, of the size of b.
    K = abs(K)
    b = np.vstack([2 * (K[:n, n:] @ abs(W)) / (n - 1), abs(a[n:])])
    unit, Kb = 8 * np.sqrt(len(P)) * np.finfo(EXTENDED).eps, K @ b
    noise = unit * np.einsum("pk,pk->k", abs(a), Kb) + unit**2 * np.einsum("pk,pk->k", b, Kb)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(np.maximum(squared - noise, 0)) / values


# ---------------------------------------------------------------- fits


@dataclass
class Outcome:
    """What one fit gave: true residual and certificate of each component with a variance, and whether it converged."""

    row: str = ""
    what: str = ""
    true: list[float] = field(default_factory=list)
    certificate: list[float] = field(default_factory=list)
    tol_missed: int = 0
    unbounded: int = 0
    converged: bool = True
    rejected: str = ""
    failed: str = ""
    seconds: float = 0.0

    def take(self, model: Any, true: Array, shape: tuple[int, int], tol: float | None) -> None:
        """Compare the certificates of a model with true residuals."""
        values, certificate = model.explained_variance_, model.certificate_
        bounded = (values > 0) & ~np.isposinf(certificate)
        self.true = true[bounded].astype(float).tolist()
        self.certificate = certificate[bounded].astype(float).tolist()
        self.unbounded = int((~bounded).sum())
        self.converged = bool(getattr(model, "converged_", True))
        # Eigenvalues that are zero to double precision have arbitrary directions, and no tolerance applies.
        null = values <= max(64, *shape) * EPS * values[0]
        if tol is not None and self.converged:
            # Components that are noise need not reach tol.
            noise = getattr(model, "noise_", None)
            limit = tol if noise is None else np.where(noise, max(tol, NOISE_TOL), tol)
            self.tol_missed = int((~(true <= limit) & ~null).sum())

    @property
    def violations(self) -> list[int]:
        """Components whose certificate is too small, or not a number."""
        return [i for i, (true, bound) in enumerate(zip(self.true, self.certificate, strict=True)) if not true <= bound]

    @property
    def ratios(self) -> list[float]:
        """True residuals over certificates."""
        pairs = zip(self.true, self.certificate, strict=True)
        return [true / bound if bound else (np.inf if true else 0.0) for true, bound in pairs]


# Rows and columns of data, and how often they are drawn; the emulated kernels get those up to 1,500,000 values.
SHAPES = {
    (10_000, 3): 24, (10_000, 100): 14, (100_000, 30): 6, (1_000_000, 3): 3, (1_500, 20): 20,
    (200, 4_000): 10, (60, 10_000): 9, (600, 500): 10, (3_000, 1_500): 1,
}  # fmt: skip
NARROW = {(10_000, 3): 4, (10_000, 60): 2, (1_500, 20): 4, (100_000, 5): 1}
SMALL = 1_500_000


class Trial:
    """One fit with random data and parameters: all that it draws comes from one seed."""

    def __init__(self, seed: int, kernel: str, number: int, folder: Path):
        self.rng = np.random.default_rng([seed, zlib.crc32(kernel.encode()), number])
        self.small = kernel in EMULATED
        self.folder = folder
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Fit, and compare."""
        started = time.perf_counter()
        # Small matrices are summed in float64: half of the trials sum them in float32, as large ones are.
        dense.FLOAT64_ORDER = 0 if self.rng.random() < 0.5 else FLOAT64_ORDER
        # And a third restart as if memory were short.
        krylov.BASIS_SHARE = 0.0 if self.rng.random() < 0.3 else BASIS_SHARE
        self.say("" if dense.FLOAT64_ORDER else "float32", "" if krylov.BASIS_SHARE else "short")
        kind = self.pick(KINDS)
        try:
            kind(self)
        except InputError as error:
            self.outcome.rejected = str(error)
        except Exception as error:
            # Any other error is a failure of that fit, which is reported; the others are still of interest.
            self.outcome.failed = f"{type(error).__name__}: {error}"
        self.outcome.seconds = time.perf_counter() - started
        return self.outcome

    def pick(self, weights: dict[Any, float]) -> Any:
        share = np.array(list(weights.values()))
        return list(weights)[self.rng.choice(len(share), p=share / share.sum())]

    def say(self, *what: object, **parameters: object) -> None:
        """Add to the description."""
        words = [*map(str, what), *(f"{name}={value}" for name, value in parameters.items())]
        self.outcome.what = " ".join(filter(None, [self.outcome.what, *words]))

    def data(self, shapes: dict[tuple[int, int], float], kind: str, floats: bool = False) -> Array:
        """Draw a matrix, of floats if asked for; `kind` is the row of the table, "" for that of the family."""
        rng, limit = self.rng, SMALL if self.small else np.inf
        names = [name for name, known in GENERATORS.items() if not (floats and known.family == INTEGERS)]
        # Families alike, whatever the number of their generators; few-valued data twice as often.
        family = self.pick({GENERATORS[name].family: 1 + (GENERATORS[name].family == FEW) for name in names})
        name = str(rng.choice([name for name in names if GENERATORS[name].family == family]))
        n, d = self.pick({shape: often for shape, often in shapes.items() if shape[0] * shape[1] <= limit})
        n = int(n * rng.uniform(0.8, 1.2))
        d = int(rng.integers(1, 6)) if d <= 3 else int(d * rng.uniform(0.8, 1.2))
        x = np.asarray(GENERATORS[name].make(rng, n, d))
        if GENERATORS[name].dtypes:
            units = 1.0 if rng.random() < 0.7 else 10.0 ** rng.uniform(-4, 4)
            x = (x * units).astype(str(rng.choice(GENERATORS[name].dtypes)))
        self.outcome.row = kind if kind else f"{family}, PCA"
        self.say(f"{name} {n} x {d} {x.dtype}")
        return x

    def remove(self, x: Array) -> None:
        """Set 5% of the entries to NaN, in place; each feature keeps two at least."""
        absent = self.rng.random(x.shape) < 0.05
        absent[:2] = False
        x[absent] = np.nan

    def stored(self, x: Array) -> Any:
        """Return the matrix in one of the forms that a fit takes, with chunks of any size."""
        rng = self.rng
        form = self.pick({"numpy": 50, "by column": 10, "dask": 35, "zarr": 5 if x.dtype != bool else 0})
        self.say(form)
        if form == "numpy":
            return x
        if form == "by column":
            return np.asfortranarray(x)
        if form == "dask":
            pieces = rng.integers(1, 9, 2)
            ends = (np.unique(rng.integers(1, size + 1, many)) for size, many in zip(x.shape, pieces, strict=True))
            chunks = tuple(
                tuple(np.diff([0, *end[end < size].tolist(), size]).tolist())
                for end, size in zip(ends, x.shape, strict=True)
            )
            return dask.array.from_array(x, chunks=chunks)
        path = self.folder / f"{rng.integers(1 << 30)}.zarr"
        sizes = [int(rng.integers(min(size, 50), size + 1)) for size in x.shape]
        zarr.create_array(path, data=x, chunks=tuple(sizes), config={"write_empty_chunks": True})
        return path

    def count(self, most: int) -> int:
        """Draw a number of components."""
        wanted = self.pick({1: 15, 2: 15, 3: 15, 4: 10, 5: 15, 10: 20, 60: 3, 300: 1})
        return max(1, min(wanted, most))

    def tol(self) -> float:
        return self.pick({1e-3: 65, 1e-5: 15, 1e-7: 15, 1e-9: 5})

    def scale(self) -> str | None:
        return self.pick({None: 65, "unit": 35})

    def solver(self, shape: tuple[int, int], power: bool) -> str:
        """Draw a solver that is cheap for this shape."""
        n, d = shape
        dense = {"covariance": 30 * (d <= 2_000), "gram": 25 * (n <= 1_000)}
        return self.pick({"auto": 20, **dense, "krylov": 30, "power": 15 * (power and n * d <= 400_000)})


def fit_pca(trial: Trial, missing: bool = False) -> None:
    x = trial.data(SHAPES, "any, missing values" if missing else "", floats=missing)
    n, d = x.shape
    if missing:
        trial.remove(x)
    given, scale, tol = trial.stored(x), trial.scale(), trial.tol()
    k = trial.count(min(n, d)) if trial.rng.random() < 0.9 else float(trial.rng.uniform(0.3, 0.999))
    # The power method takes hundreds of sweeps where eigenvalues are close, each slow on a graph.
    solver = trial.solver(x.shape, power=isinstance(given, np.ndarray) and k <= 3 and tol > 1e-7)
    certificate = trial.pick({True: 85, "exact": 15})
    trial.say(solver, k=k, scale=scale, tol=tol, certificate=certificate)
    options = {"scale": scale, "missing": "mean" if missing else "error", "certificate": certificate}
    model = streampca.PCA(k, solver=solver, tol=tol, **options).fit(given)
    true = residuals(centred(x, scale), model.components_, model.explained_variance_)
    trial.outcome.take(model, true, x.shape, tol)


def fit_merge(trial: Trial) -> None:
    x = trial.data(NARROW, "any, merge")
    scale, tol, pieces = trial.scale(), trial.tol(), int(trial.rng.integers(3, 7))
    k = trial.count(x.shape[1])
    trial.say(k=k, scale=scale, tol=tol, pieces=pieces)
    least = max(k, 2)
    inner = np.sort(trial.rng.choice(len(x) // least - 1, pieces - 1, replace=False) + 1) * least
    parts = [part for part in np.split(x, inner) if len(part)]
    fits = [
        streampca.PCA(k, scale=scale, solver="covariance", tol=tol).fit(parts[i])
        for i in trial.rng.permutation(len(parts))
    ]
    model = fits[0]
    for other in fits[1:]:
        model = model.merge(other)
    true = residuals(centred(x, scale), model.components_, model.explained_variance_)
    trial.outcome.take(model, true, x.shape, tol)


def fit_batches(trial: Trial, sketch: bool = False) -> None:
    shapes = {(2_000, 150): 2, (400, 400): 1} if sketch else NARROW
    x = trial.data(shapes, "any, partial_fit by sketch" if sketch else "any, partial_fit")
    scale, tol, batches = trial.scale(), trial.tol(), int(trial.rng.integers(2, 12))
    k = min(trial.count(x.shape[1]), 10)
    trial.say(k=k, scale=scale, tol=tol, batches=batches)
    model = streampca.PCA(k, scale=scale, tol=tol, memory_limit=1_000 if sketch else None)
    # Sizes from a few samples to most of them.
    for part in np.split(x, np.unique(trial.rng.integers(2, len(x), batches))):
        model.partial_fit(part)
    true = residuals(centred(x, scale), model.components_, model.explained_variance_)
    trial.outcome.take(model, true, x.shape, tol)


def fit_pcr(trial: Trial) -> None:
    """Components of the samples with a target, about their own mean; missing values and scales are of all samples."""
    shapes = {(10_000, 3): 3, (10_000, 60): 2, (1_500, 20): 4, (200, 2_000): 2, (600, 500): 2}
    x = trial.data(shapes, "any, PCR", floats=True)
    (n, d), rng = x.shape, trial.rng
    missing = "mean" if rng.random() < 0.2 else "error"
    if missing == "mean":
        trial.remove(x)
    scale, tol, folds = trial.scale(), trial.tol(), int(rng.integers(2, 6))
    X = centred(x, scale)
    y = (X[:, 0] / max(1e-300, float(np.abs(X[:, 0]).max()))).astype(float) + rng.normal(size=n)
    used = np.ones(n, bool) if rng.random() < 0.5 else rng.random(n) < 0.85
    y[~used] = np.nan
    given, k = trial.stored(x), trial.count(min(d, int(used.sum()) // 2 - 2))
    solver = trial.solver(x.shape, power=False)
    trial.say(solver, k=k, scale=scale, tol=tol, missing=missing, cv=folds, used=int(used.sum()))
    model = streampca.PCR(k, cv=folds, scale=scale, missing=missing, solver=solver, tol=tol).fit(given, y)
    X = X[used] - column_sums(X[used]) / used.sum()
    trial.outcome.take(model, residuals(X, model.components_, model.explained_variance_), x.shape, tol)


def fit_bed(trial: Trial) -> None:
    """Genotypes in a PLINK file, counts of A1; variants of one allele are not used."""
    rng = trial.rng
    n, m = (int(size * rng.uniform(0.8, 1.2)) for size in trial.pick({(200, 2_000): 3, (60, 6_000): 2, (900, 300): 1}))
    calls = genotypes(rng, n, m).astype(float)
    calls[rng.random(calls.shape) < rng.choice([0.0, 0.01, 0.05])] = np.nan
    trial.outcome.row = "genotypes, .bed"
    scale, tol = trial.pick({"patterson": 70, "unit": 15, None: 15}), trial.tol()
    k, solver = trial.count(min(n, m)), trial.pick({"auto": 2, "gram": 2, "krylov": 3, "power": 1})
    if solver == "power":
        k, tol = min(k, 3), max(tol, 1e-3)
    trial.say(f"{n} x {m}", solver, k=k, scale=scale, tol=tol)
    path = write_bed(trial.folder / f"{rng.integers(1 << 30)}.bed", calls)
    model = streampca.PCA(k, scale=scale, solver=solver, tol=tol).fit(path)
    called = (~np.isnan(calls)).sum(axis=0)
    total = np.nansum(calls, axis=0)
    calls, called, total = (part[..., (total > 0) & (total < 2 * called)] for part in (calls, called, total))
    X = centred(calls, scale)
    if scale == "patterson":
        p = total.astype(EXTENDED) / (2 * called)
        X /= np.sqrt(2 * p * (1 - p))
    trial.outcome.take(model, residuals(X, model.components_, model.explained_variance_), (n, m), tol)


def write_bed(path: Path, calls: Array) -> Path:
    """Write counts of A1 (n x m, NaN for missing) as a PLINK 1 file with its .fam and .bim."""
    n, m = calls.shape
    codes = np.where(np.isnan(calls), 1, np.array([3, 2, 0])[np.nan_to_num(calls).astype(int)]).astype(np.uint8)
    codes = np.vstack([codes, np.zeros((-n % 4, m), np.uint8)]).T.reshape(m, -1, 4)
    packed = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8)
    path.write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    path.with_suffix(".fam").write_text("".join(f"f{i} i{i} 0 0 0 -9\n" for i in range(n)))
    path.with_suffix(".bim").write_text("".join(f"1 rs{j} 0 {j + 1} A G\n" for j in range(m)))
    return path


def draw_kernel_data(trial: Trial, kind: str) -> tuple[Array, dict[str, Any]]:
    """Draw a small matrix of moderate values, and a gamma."""
    shapes = {(250, 3): 1, (250, 8): 1, (120, 20): 1}
    x = trial.data(shapes, kind, floats=True)
    # In units of the deviation: larger values overflow polynomials, and smaller ones all look the same.
    x = ((x - x.mean(axis=0)) / np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)).astype(x.dtype)
    return x, {"gamma": trial.pick({"scale": 3, "median": 3, 0.01: 1, 1.0: 1}), "random_state": 0}


def fit_kernel_pca(trial: Trial) -> None:
    x, options = draw_kernel_data(trial, "any, KernelPCA")
    kernel = trial.pick({"rbf": 2, "poly": options["gamma"] != "median"})
    options |= {
        "kernel": kernel,
        "degree": int(trial.rng.integers(2, 4)),
        "n_landmarks": int(trial.rng.integers(8, 130)),
    }
    options["n_landmarks"] = min(options["n_landmarks"], len(x))
    options["landmarks"] = trial.pick({"uniform": 3, "kmeans": 1, "leverage": 1})
    k = min(trial.count(10), options["n_landmarks"])
    trial.say(k=k, **options)
    model = streampca.KernelPCA(k, **options).fit(trial.stored(x))
    trial.outcome.take(model, kernel_residuals(x, model), x.shape, None)


def fit_fourier(trial: Trial) -> None:
    """Random Fourier features: the certificate is that of their own covariance."""
    x, options = draw_kernel_data(trial, "any, Fourier features")
    options |= {"n_landmarks": 2 * int(trial.rng.integers(4, 50)), "landmarks": "fourier"}
    k = min(trial.count(10), options["n_landmarks"])
    trial.say(k=k, **options)
    model = streampca.KernelPCA(k, **options).fit(trial.stored(x))
    phases = (x.astype(EXTENDED) - model._fitted.scaling.mean) @ model.landmarks_.T.astype(EXTENDED)
    features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(EXTENDED(phases.shape[1]))
    true = residuals(features - column_sums(features) / len(x), model.weights_.T, model.explained_variance_)
    trial.outcome.take(model, true, x.shape, None)


KINDS: dict[Callable[[Trial], None], float] = {
    fit_pca: 62,
    partial(fit_pca, missing=True): 8,
    fit_merge: 6,
    fit_batches: 5,
    partial(fit_batches, sketch=True): 4,
    fit_pcr: 6,
    fit_bed: 4,
    fit_kernel_pca: 4,
    fit_fourier: 1,
}

# ---------------------------------------------------------------- emulated kernels


@njit(nogil=True)
def in_lanes(A: Array, B: Array, lanes: int) -> Array:
    """Return A B: term t of each sum goes to partial sum t % lanes; the partial sums are added at the end."""
    out = np.empty((A.shape[0], B.shape[1]), np.float32)
    sums = np.empty((lanes, B.shape[1]), np.float32)
    for i in range(A.shape[0]):
        sums[:] = 0
        for t in range(A.shape[1]):
            a = A[i, t]
            lane = sums[t % lanes]
            for j in range(B.shape[1]):
                lane[j] += a * B[t, j]
        out[i] = sums[0]
        for l in range(1, lanes):
            out[i] += sums[l]
    return out


class Emulated(np.ndarray):
    """A view of a tile whose float32 products, and those of its parts, are summed in lanes."""

    lanes = 1
    products = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Compute products in lanes, all else as NumPy does."""
        plain = [x.view(np.ndarray) if isinstance(x, Emulated) else x for x in inputs]
        if ufunc is np.matmul and all(x.dtype == np.float32 and x.ndim == 2 for x in plain):
            Emulated.products += 1
            result = in_lanes(*map(np.ascontiguousarray, plain), self.lanes)
            if out is None:
                return result
            out[0][...] = result
            return out[0]
        if out is not None:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, Emulated) else x for x in out)
        result = getattr(ufunc, method)(*plain, **options)
        if out is not None:
            return out[0]
        return result.view(Emulated) if isinstance(result, np.ndarray) and result.dtype == np.float32 else result


def emulate(lanes: int) -> None:
    """Let the statistics of a sweep multiply float32 tiles in lanes."""
    from streampca.sweep import statistics

    for name in ("Statistic", "Scatter", "Product", "ProductAndRows"):
        if not hasattr(getattr(statistics, name, None), "update"):
            sys.exit(f"streampca.sweep.statistics.{name}.update is missing: adapt the emulated kernels of {__file__}")
    Emulated.lanes = lanes
    # Products of whole tiles: sums as long as they can be.
    statistics._multiplies_small_matrices = lambda: False
    # Their modules are imported when they are asked for, with statistics of their own.
    for name in ("PCA", "PCR", "KernelPCA"):
        with suppress(ImportError):
            getattr(streampca, name)
    waiting = [statistics.Statistic]
    while waiting:
        statistic = waiting.pop()
        waiting += statistic.__subclasses__()
        if "update" in vars(statistic):
            statistic.update = _emulated(statistic.update)


def _emulated(update: Any) -> Any:
    def wrapped(self: Any, value: Any, A: Array, *rest: Any) -> None:
        update(self, value, A.view(Emulated) if A.dtype == np.float32 else A, *rest)

    return wrapped


# ---------------------------------------------------------------- processes


def quiet() -> None:
    logging.getLogger("streampca").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    dask.config.set(num_workers=1)


def architecture() -> str:
    """Return the kernels that the BLAS libraries of this process use."""
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own

    libraries = (library for library in threadpool_info() if library["user_api"] == "blas")
    return ", ".join(sorted({library.get("architecture", "unknown") for library in libraries}))


def work(kernel: str, seed: int, numbers: range, seconds: float, drawn_for: str) -> None:
    """Run some trials in this process, whose BLAS kernel is set; print one line of JSON for each."""
    quiet()
    used = architecture()
    if kernel in BLAS and not set(used.split(", ")) <= set(BLAS[kernel][1]):
        print(json.dumps({"skipped": f"{used} is in use"}), flush=True)
        return
    if kernel in EMULATED:
        emulate(EMULATED[kernel])
    print(json.dumps({"used": used}), flush=True)
    end = time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > end:
            break
        with tempfile.TemporaryDirectory(prefix="certificates-") as folder:
            outcome = Trial(seed, drawn_for, number, Path(folder)).run()
        print(json.dumps({"number": number, **asdict(outcome)}), flush=True)
    if kernel in EMULATED:
        print(json.dumps({"products": Emulated.products}), flush=True)


@dataclass
class Run:
    """The trials of one kernel."""

    kernel: str
    used: str = ""
    skipped: str = ""
    died: str = ""
    products: int | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> None:
        """Take what the process printed."""
        if "number" in line:
            number = line.pop("number")
            self.outcomes[number] = Outcome(**line)
        else:
            vars(self).update(line)


def unsupported(kernel: str) -> str:
    """Return why the processor cannot run a kernel; "" if it can."""
    if kernel in EMULATED:
        return ""
    flag, cpu = BLAS[kernel][0], Path("/proc/cpuinfo")
    known = cpu.read_text().split() if cpu.exists() else []
    return "" if flag in known else f"the processor does not have {flag}"


def run(kernel: str, options: argparse.Namespace, numbers: range, seconds: float, drawn_for: str = "") -> Run:
    """Run the trials of one kernel in a process of its own."""
    done = Run(kernel, skipped=unsupported(kernel))
    if done.skipped:
        return done
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if kernel in BLAS:
        environment["OPENBLAS_CORETYPE"] = kernel
    asked = [kernel, options.seed, numbers.start, numbers.stop, seconds, drawn_for or kernel]
    command = [sys.executable, __file__, "--work", json.dumps(asked)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            done.take(json.loads(line))
    if process.returncode:
        done.died = f"ended with {process.returncode} in {options.seed}/{kernel}/{numbers.start + len(done.outcomes)}"
    elif done.products == 0 and done.outcomes:
        done.died = f"no product of {len(done.outcomes)} fits was emulated: adapt the emulated kernels of {__file__}"
    return done


def run_all(options: argparse.Namespace) -> list[Run]:
    """Run all kernels, `jobs` at a time; each gets its share of the fits, and of the time that remains."""
    supported = [kernel for kernel in options.kernels if not unsupported(kernel)]
    each, more = divmod(options.fits, max(1, len(supported)))
    end = time.monotonic() + 60 * options.minutes
    waiting = len(supported)

    def one(kernel: str) -> Run:
        nonlocal waiting
        started = time.monotonic()
        seconds, numbers = 0.0, range(0)
        if kernel in supported:
            seconds = (end - started) * min(1.0, options.jobs / waiting)
            numbers = range(each + (supported.index(kernel) < more))
            waiting -= 1
        done = run(kernel, options, numbers, seconds)
        state = f"{len(done.outcomes)} of {len(numbers)} fits in {time.monotonic() - started:.0f} s {done.died}"
        print(
            f"{kernel}: " + (f"skipped, {done.skipped}" if done.skipped else f"BLAS {done.used}, {state}"), flush=True
        )
        return done

    with ThreadPoolExecutor(options.jobs) as pool:
        return list(pool.map(one, options.kernels))


# ---------------------------------------------------------------- report


HEAD = (
    "fits",
    "components",
    "violations",
    "worst",
    "median",
    "not converged",
    "tol missed",
    "unbounded",
    "rejected",
    "failed",
)


def row_of(outcomes: list[Outcome]) -> list[str]:
    """Return the numbers of one row of a table."""
    ratios = [ratio for outcome in outcomes for ratio in outcome.ratios]
    fitted = [outcome for outcome in outcomes if not (outcome.rejected or outcome.failed)]
    return [
        str(len(fitted)),
        str(sum(len(outcome.true) + outcome.unbounded for outcome in fitted)),
        str(sum(len(outcome.violations) for outcome in fitted)),
        f"{max(ratios, default=0.0):.4g}",
        f"{np.median(ratios) if ratios else 0.0:.2g}",
        str(sum(not outcome.converged for outcome in fitted)),
        str(sum(outcome.tol_missed for outcome in fitted)),
        str(sum(outcome.unbounded for outcome in fitted)),
        str(sum(bool(outcome.rejected) for outcome in outcomes)),
        str(sum(bool(outcome.failed) for outcome in outcomes)),
    ]


def print_table(title: str, rows: dict[str, list[Outcome]]) -> None:
    width = max(len(title), *map(len, rows))
    print(f"\n{title:{width}} {' '.join(f'{name:>{max(8, len(name))}}' for name in HEAD)}")
    for name, outcomes in rows.items():
        cells = zip(row_of(outcomes), HEAD, strict=True)
        print(f"{name:{width}} {' '.join(f'{cell:>{max(8, len(head))}}' for cell, head in cells)}")


def details(done: Run, seed: int, drawn_for: str = "") -> Iterator[str]:
    """Yield a line for each fit with a violation, a missed tolerance or an error."""
    for number, outcome in done.outcomes.items():
        place = f"{done.kernel}: {outcome.row}: {outcome.what}"
        again = f"[--only {seed}/{drawn_for or done.kernel}/{number}]"
        if outcome.violations:
            worst = max(outcome.violations, key=lambda i: outcome.ratios[i])
            true, bound = outcome.true[worst], outcome.certificate[worst]
            many = f"{len(outcome.violations)} of {len(outcome.true)} components"
            yield f"violation {place}: {many}, true {true:.3g} > certificate {bound:.3g} ({true / bound:.3g}) {again}"
        if outcome.tol_missed:
            yield f"tol missed {place}: {outcome.tol_missed} components, worst {max(outcome.true):.3g} {again}"
        if outcome.failed:
            yield f"failed {place}: {outcome.failed} {again}"


def report(runs: list[Run], seed: int) -> int:
    """Print what was measured; 1 if a certificate or a tolerance does not hold, or a fit failed."""
    for done in runs:
        for line in details(done, seed):
            print(line)
    outcomes = [outcome for done in runs for outcome in done.outcomes.values()]
    rejected = Counter((outcome.row, outcome.rejected) for outcome in outcomes if outcome.rejected)
    for (row, message), many in rejected.items():
        print(f"rejected {row}: {message}" + (f" ({many} times)" if many > 1 else ""))
    if not outcomes:
        print("no fits")
        return 1
    # Rows in the order of the generators, then of the other kinds of fits.
    families = [f"{known.family}, PCA" for known in GENERATORS.values()]
    names = [name for name in dict.fromkeys(families) if any(o.row == name for o in outcomes)]
    names += sorted({o.row for o in outcomes} - set(names))
    rows = {name: [o for o in outcomes if o.row == name] for name in names}
    print_table("data, fit", {**rows, "all": outcomes})
    ran = [done for done in runs if done.outcomes]
    print_table("kernel", {f"{done.kernel} ({done.used})": list(done.outcomes.values()) for done in ran})
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(f"\n{len(outcomes)} fits, {seconds / len(outcomes):.2f} s each; worst and median are of true / certificate")
    bad = any(o.violations or o.tol_missed or o.failed for o in outcomes) or any(done.died for done in runs)
    return int(bad)


def repeat(options: argparse.Namespace) -> int:
    """Run one trial again, on its own kernel or those asked for, and print all its components."""
    seed, kernel, number = options.only.split("/")
    options.seed = int(seed)
    worst = 0
    for where in options.kernels if options.kernels_given else [kernel]:
        done = run(where, options, range(int(number), int(number) + 1), np.inf, drawn_for=kernel)
        if done.skipped or done.died:
            print(f"{where}: {done.skipped or done.died}")
        for outcome in done.outcomes.values():
            print(f"{where} ({done.used}): {outcome.row}: {outcome.what}, {outcome.seconds:.2f} s")
            for i, pair in enumerate(zip(outcome.true, outcome.certificate, outcome.ratios, strict=True)):
                print("  component {}: true {:.4g}, certificate {:.4g}, ratio {:.3g}".format(i + 1, *pair))
            state = outcome.rejected or outcome.failed or ("converged" if outcome.converged else "not converged")
            print(f"  {state}; {outcome.tol_missed} above tol while converged, {outcome.unbounded} without a bound")
            worst |= bool(outcome.violations or outcome.tol_missed or outcome.failed)
    return int(worst)


def main() -> int:
    """Fit, compare, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=5000, help="over all kernels [5000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", help=f"some of {','.join(KERNELS)}; all unless given")
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time [1]")
    parser.add_argument("--only", metavar="SEED/KERNEL/NUMBER", help="repeat one fit, on --kernels if given")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        kernel, seed, start, stop, seconds, drawn_for = json.loads(options.work)
        work(kernel, seed, range(start, stop), seconds, drawn_for)
        return 0
    options.kernels_given = options.kernels is not None
    options.kernels = options.kernels.split(",") if options.kernels_given else list(KERNELS)
    unknown = set(options.kernels) - set(KERNELS)
    if unknown:
        parser.error(f"kernels must be some of {', '.join(KERNELS)}, got {', '.join(sorted(unknown))}")
    print(f"streampca {streampca.__version__} in {Path(streampca.__file__).parent}", flush=True)
    return repeat(options) if options.only else report(run_all(options), options.seed)


if __name__ == "__main__":
    sys.exit(main())
