"""What the tests share: matrices with a known spectrum, an independent reference, a source that counts its reads."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streampca.sources.base import Source, digest, plain_axes


def matrix_with_spectrum(n, d, eigenvalues, *, mean=0.0, seed=0):
    """Return X (n x d, float64) whose covariance (n - 1) has these leading eigenvalues and is zero beyond."""
    rng = np.random.default_rng(seed)
    r = len(eigenvalues)
    # Columns orthogonal to the vector of ones: centring then leaves the spectrum as prescribed.
    ones = np.ones((n, 1))
    left = np.linalg.qr(np.hstack([ones, rng.standard_normal((n, r))]))[0][:, 1:]
    right = np.linalg.qr(rng.standard_normal((d, r)))[0]
    return (left * np.sqrt((n - 1) * np.asarray(eigenvalues, float))) @ right.T + mean


def falling(count, ratio=0.6, first=10.0):
    """Eigenvalues that fall by a constant ratio."""
    return first * ratio ** np.arange(count)


@dataclass(frozen=True)
class Case:
    """One matrix, how many components are asked for, and how many of these have variance."""

    make: Callable[[], np.ndarray]
    k: int
    rank: int | None = None

    @property
    def meaningful(self):
        return self.k if self.rank is None else min(self.k, self.rank)


def _with_constant_features():
    x = matrix_with_spectrum(120, 15, falling(10), seed=5)
    x[:, [0, 7]] = 3.25
    x[:, 14] = -1e6 / 3
    return x


def _huge_mean(dtype):
    x = matrix_with_spectrum(200, 12, falling(12, first=1.0), seed=6)
    return (x + 1e6 * x.std(axis=0).max()).astype(dtype)


def _small_integers():
    x = matrix_with_spectrum(200, 30, falling(10, 0.5, 60.0), seed=9)
    return np.clip(np.rint(4 * x), -128, 127).astype(np.int8)


CASES = {
    "tall": Case(lambda: matrix_with_spectrum(300, 20, falling(20)), 4),
    "wide": Case(lambda: matrix_with_spectrum(24, 400, falling(20), seed=1), 4),
    "square": Case(lambda: matrix_with_spectrum(60, 60, falling(40), seed=2), 4),
    "rank deficient": Case(lambda: matrix_with_spectrum(80, 30, falling(5), seed=3), 5, 5),
    "k beyond the rank": Case(lambda: matrix_with_spectrum(40, 30, falling(3), seed=3), 6, 3),
    "repeated eigenvalues": Case(lambda: matrix_with_spectrum(90, 25, [9, 9, 9, 4, 4, 1, 1, 0.5], seed=4), 5),
    "constant features": Case(_with_constant_features, 4),
    "huge mean": Case(lambda: _huge_mean(np.float64), 4),
    "huge mean float32": Case(lambda: _huge_mean(np.float32), 3),
    "two samples": Case(lambda: matrix_with_spectrum(2, 30, [5.0], mean=2.0), 1, 1),
    "two samples, k = 2": Case(lambda: matrix_with_spectrum(2, 30, [5.0], mean=2.0), 2, 1),
    "k = min(n, d)": Case(lambda: matrix_with_spectrum(30, 10, falling(10), seed=7), 10),
    "one feature": Case(lambda: matrix_with_spectrum(50, 1, [2.0], mean=-3.0), 1),
    "float32": Case(lambda: matrix_with_spectrum(200, 30, falling(30), mean=1.0, seed=8).astype(np.float32), 4),
    "wide float32": Case(lambda: matrix_with_spectrum(30, 200, falling(25), mean=1.0, seed=8).astype(np.float32), 4),
    "int8": Case(_small_integers, 3),
}


@dataclass(frozen=True)
class Reference:
    """Centred data in extended precision, and all eigenpairs of their covariance by a float64 full SVD."""

    centred: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @classmethod
    def of(cls, x):
        wide = np.asarray(x).astype(np.longdouble)
        centred = wide - wide.mean(axis=0)
        _, s, vt = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
        return cls(centred, s**2 / (len(x) - 1), vt)

    @property
    def total(self):
        return float((self.centred**2).sum() / (len(self.centred) - 1))


def true_residual(reference, components, values):
    """||S v - theta v|| / theta of each row v, in extended precision."""
    v = np.asarray(components).astype(np.longdouble)
    sv = covariance_times(reference.centred, v.T).T
    theta = np.asarray(values).astype(np.longdouble)
    return np.asarray(np.sqrt(((sv - theta[:, None] * v) ** 2).sum(axis=1)) / theta, float)


def covariance_times(centred, vectors):
    """S vectors, for S the covariance of centred samples."""
    return centred.T @ (centred @ vectors) / (len(centred) - 1)


def mev_shortfall(true_rows, rows):
    """1 - MEV: one minus the mean squared length of the true vectors' projections on the span of the rows."""
    basis = np.linalg.qr(np.asarray(rows, float).T)[0]
    inside = np.asarray(true_rows, float) @ basis
    outside = np.asarray(true_rows, float) - inside @ basis.T
    return float((outside**2).sum(axis=1).mean())


def assert_same_subspace(true_rows, rows, within=1e-10):
    assert np.shape(true_rows) == np.shape(rows)
    assert mev_shortfall(true_rows, rows) <= within


def assert_orthonormal(rows, within=1e-10):
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=within)


SHAPES = {"tall": (200, 15), "wide": (25, 120)}


def sample_data(shape="tall"):
    """A matrix of the tall or the wide shape, whose mean and spectrum are not flat."""
    n, d = SHAPES[shape]
    x = matrix_with_spectrum(n, d, falling(min(n - 1, d), 0.55), mean=4.0, seed=21)
    return x + np.random.default_rng(0).standard_normal(d)


def data_with_gaps(shape="tall"):
    x = sample_data(shape)
    x[np.random.default_rng(5).random(x.shape) < 0.1] = np.nan
    return x


def assert_close(ours, theirs, rtol=1e-6):
    """Check shapes, and values to rtol of themselves or of the largest one."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())


class CountingSource(Source):
    """A NumPy array behind the face of a stored one, which remembers what was read of it."""

    def __init__(self, x, chunks, *, costly=False):
        self.name = "counted"
        self.samples, self.features = plain_axes(x.shape)
        self.dtype = x.dtype
        self.chunks = chunks
        self.costly = costly
        self.reads = []
        self._x = x
        self._lock = threading.Lock()

    def read_block(self, outer_samples, outer_features):
        with self._lock:
            self.reads.append((outer_samples.start, outer_samples.stop, outer_features.start, outer_features.stop))
        block = self._x[outer_samples, outer_features]
        return block, block.nbytes

    def fingerprint(self):
        return digest(self._x.tobytes())

    def times_read(self):
        """How often each entry was read."""
        times = np.zeros(self.shape, int)
        for a, b, c, d in self.reads:
            times[a:b, c:d] += 1
        return times


class UnreadableSource(Source):
    """A shape without data: for plans, which may not read."""

    def __init__(self, shape, chunks, dtype=np.float32, *, costly=True, overhead=1.0):
        self.name = "only a shape"
        self.samples, self.features = plain_axes(shape)
        self.dtype = np.dtype(dtype)
        self.chunks = chunks
        self.costly = costly
        self.overhead = overhead

    def read_block(self, outer_samples, outer_features):
        raise AssertionError(f"read {outer_samples}, {outer_features}: a plan must not read")

    def fingerprint(self):
        return "none"


def one_line(error):
    """Return the message of a caught error after checking that it is one line and says something."""
    text = str(error.value)
    assert text.strip(), "the message is empty"
    assert "\n" not in text, f"more than one line: {text!r}"
    return text


def run(*arguments, cwd):
    """Run in a process of its own, as a user does."""
    command = [sys.executable, "-m", "streampca", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


# Runs a command and says the largest resident size of its process.
PEAK = """
import sys
from streampca.cli import cli

sys.argv = sys.argv[1:]
try:
    cli(standalone_mode=False)
finally:
    status = open("/proc/self/status").read()
    print("PEAK", int(status.partition("VmHWM:")[2].split()[0]) * 1024)
"""


def peak_of(*arguments, cwd):
    """Return the peak of a command that must succeed, and the limit it had, the least that it accepts."""
    command = [sys.executable, "-c", PEAK, "streampca", *map(str, arguments), "--quiet"]
    options = {"cwd": cwd, "capture_output": True, "text": True, "check": False}
    refused = subprocess.run([*command, "--memory", "60MB"], **options)
    assert "use --memory " in refused.stderr, refused.stderr
    limit = int(refused.stderr.rpartition("use --memory ")[2].split("MB")[0]) * 1_000_000
    done = subprocess.run([*command, "--memory", str(limit)], **options)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rpartition("PEAK")[2]), limit
