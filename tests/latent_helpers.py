"""What tests of latent factors share: planted data, patterns of gaps, and a dense model and EM of their own."""

from __future__ import annotations

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from streampca.models.ppca import plan as latent_plan
from streampca.sweep.sweep import one_blas_thread

ROWS, COLUMNS = "by samples", "by features"
CUTS = {ROWS: 0, COLUMNS: 1}


@contextmanager
def cut_along(cut):
    """Let sweeps of EM be cut by samples or by features, whichever a plan would choose."""
    needs = latent_plan.em_needs
    with patch.object(latent_plan, "em_needs", lambda source, _, *rest: needs(source, CUTS[cut], *rest)):
        yield


@pytest.fixture(params=CUTS)
def cut(request):
    """Either cut, in force throughout the test."""
    with cut_along(request.param):
        yield request.param


def planted(n, d, k, *, noise=0.5, mean=3.0, seed=0):
    """Samples of k factors of different strength about different means; `noise` is one deviation, or one a feature."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, k)) * np.linspace(2.0, 1.0, k)
    x = rng.standard_normal((n, k)) @ W.T + noise * rng.standard_normal((n, d))
    return x + mean * rng.standard_normal(d)


def mask(pattern, shape, seed=1):
    """Which values are missing: a share of all, or whole samples, features or blocks beside some others."""
    absent = np.random.default_rng(seed).random(shape) < (pattern if isinstance(pattern, float) else 0.1)
    n, d = shape
    if pattern in ("samples", "both"):
        absent[[0, n // 2]] = True
    if pattern in ("features", "both"):
        absent[:, [1, d - 1]] = True
    if pattern == "blocks":
        absent[: n // 2, : d // 2] = True
        absent[n // 2 :, -2:] = True
    return absent


PATTERNS = (0.0, 0.01, 0.3, 0.6, "samples", "features", "both", "blocks")


def with_gaps(x, pattern, seed=1):
    return np.where(mask(pattern, x.shape, seed), np.nan, x)


def psi_of(noise, d):
    return np.broadcast_to(np.asarray(noise, float), d)


def log_densities(x, W, mu, noise):
    """Log-density of the observed part of each sample, from the dense covariance; 0 for one without any."""
    C = W @ W.T + np.diag(psi_of(noise, len(W)))
    found = np.zeros(len(x))
    for i, row in enumerate(x):
        o = ~np.isnan(row)
        if o.any():
            L = np.linalg.cholesky(C[np.ix_(o, o)])
            distance = np.linalg.solve(L, (row - mu)[o])
            found[i] = -0.5 * (o.sum() * np.log(2 * np.pi) + distance @ distance) - np.log(np.diag(L)).sum()
    return found


def posterior_of(row, W, mu, noise):
    """Mean and covariance of z given the observed part of one sample, by conditioning the joint Gaussian of x and z."""
    o = ~np.isnan(row)
    C = W[o] @ W[o].T + np.diag(psi_of(noise, len(W))[o])
    gain = np.linalg.solve(C, W[o]).T
    return gain @ (row[o] - mu[o]), np.eye(W.shape[1]) - gain @ W[o]


def dense_em(x, W, mu, noise, steps, own=False):
    """EM over observed sets, a sample and a feature at a time; yields (W, mu, noise) at the start and after each step.

    The mean is estimated together with W, by regression on (z, 1). A feature without values gets zeros.
    """
    d, k = W.shape
    yield W, mu, noise
    for _ in range(steps):
        z = np.ones((len(x), k + 1))
        zz = np.zeros((len(x), k + 1, k + 1))
        for i, row in enumerate(x):
            o = ~np.isnan(row)
            weighted = W[o] / psi_of(noise, d)[o, None]
            covariance = np.linalg.inv(np.eye(k) + W[o].T @ weighted)
            z[i, :k] = covariance @ weighted.T @ (row[o] - mu[o])
            zz[i] = np.outer(z[i], z[i])
            zz[i, :k, :k] += covariance
        both, residual, count = np.zeros((d, k + 1)), np.zeros(d), np.zeros(d)
        for j, column in enumerate(x.T):
            o = ~np.isnan(column)
            count[j] = o.sum()
            if not o.any():
                continue
            both[j] = np.linalg.solve(zz[o].sum(axis=0), column[o] @ z[o])
            expected = z[o] @ both[j]
            spread = np.einsum("i,nij,j->n", both[j], zz[o], both[j])
            residual[j] = (column[o] ** 2 - 2 * column[o] * expected + spread).sum()
        W, mu = both[:, :k], both[:, k]
        noise = residual / np.maximum(count, 1) if own else residual.sum() / count.sum()
        yield W, mu, noise


def closed_form(x, k):
    """W, mu, s2 of maximum likelihood for complete data, by the eigenvalues of the dense covariance (1 / n)."""
    wide = np.asarray(x).astype(np.longdouble)
    mu = wide.mean(axis=0)
    centred = (wide - mu).astype(float)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(x))
    noise = values[:-k].mean()
    order = np.argsort(values)[::-1][:k]
    return vectors[:, order] * np.sqrt(values[order] - noise), mu.astype(float), float(noise)


def model_of(estimator):
    """W, mu, noise of a fitted estimator without scaling."""
    factors = estimator._fitted.factors
    return factors.W, estimator.mean_, factors.noise


def covariance_of(W, mu, noise):  # noqa: ARG001
    return W @ W.T + np.diag(psi_of(noise, len(W)))


def mean_filled(x):
    return np.where(np.isnan(x), np.nanmean(x, axis=0), x)


@pytest.fixture(autouse=True, scope="module")
def quick_sweeps():
    """Hold the BLAS at one thread throughout: looking it up anew takes each small sweep longer than all else."""
    with one_blas_thread:
        yield
