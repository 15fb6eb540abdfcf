"""Accumulators that are updated batch by batch and merged: the basis of `partial_fit` and `merge`.

While the d x d scatter matrix fits the memory limit, it is kept, and the result is exact. Beyond that, a sketch of l
rows is kept. The norm of what the sketch drops is part of the certificate. Sums are float64; a scatter matrix that a
fit formed in float32 has probes, which are merged in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.dataset import FORMAT_VERSION
from streampca.models.pca.fit import wanted_components
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, noise_fields, signed
from streampca.solvers.base import is_null, null_advice, shortfall, total_variance
from streampca.solvers.certificate import MARGIN, Errors, Probe, certify, certify_matrix, draw_probes, float64_floor
from streampca.solvers.dense import leading_pairs
from streampca.solvers.noise import Spectrum, noise_test
from streampca.sweep.scaling import SCALES, Scaling, check_choice, scale_of
from streampca.sweep.statistics import Moments, Scatter, between_means, centre_by_own_mean, combine_moments, symmetric
from streampca.sweep.sweep import one_blas_thread

if TYPE_CHECKING:
    import xarray

# Arrays of an accumulator, with the dimensions of those that it may have.
MOMENTS = ("count", "mean", "m2", "missing")
PARTS = {"scatter": ("feature", "feature_2"), "sketch": ("row", "feature"), "probe": ("feature", "probe_vector")}


@dataclass(frozen=True)
class Summary:
    """Moments and scatter matrix of the samples so far, or a sketch of the scatter matrix.

    Attributes
    ----------
    n_samples, moments : of the samples.
    scatter : (d, d) about their mean; None with a sketch.
    sketch : (l, d), B with B'B close to the scatter matrix.
    lost : bound on the norm of the scatter matrix minus B'B.
    chain : length of the sums; None if the scatter matrix cannot be certified: from version 0.7, or float32 without a
        probe.
    probe : (d, p) product of the true scatter matrix with random vectors, in float64; None for a float64 scatter
        matrix.
    """

    n_samples: int
    moments: Moments
    scatter: Array | None = None
    sketch: Array | None = None
    lost: float = 0.0
    chain: int | None = 0
    probe: Array | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing was dropped."""
        return self.scatter is not None


def summarise(X: Array, sketch_rows: int | None) -> Summary:
    """Return the summary of one batch: exact, tile by tile, or a sketch with this number of rows."""
    n, d = X.shape
    length = Scatter().tile_length(d, 8) if sketch_rows is None else n
    tiles = (_summarise_tile(X[start : start + length], sketch_rows) for start in range(0, n, length))
    return reduce(combine_summaries, tiles)


def _summarise_tile(X: Array, sketch_rows: int | None) -> Summary:
    n, d = X.shape
    centred = np.empty((n, d))
    with one_blas_thread:
        moments = centre_by_own_mean(X, centred)
        if sketch_rows is None:
            value = Scatter().zero(d)
            Scatter().update(value, centred, 0)
            return Summary(n, moments, scatter=symmetric(value), chain=n)
        sketch, lost = _leading_rows(centred, sketch_rows)
    return Summary(n, moments, sketch=sketch, lost=lost, chain=n)


def combine_summaries(a: Summary, b: Summary) -> Summary:
    """Merge the summaries of disjoint samples; exact if both are."""
    if len(a.moments.mean) != len(b.moments.mean):
        raise InputError(
            f"cannot merge {len(a.moments.mean)} with {len(b.moments.mean)} features; fit both on the same features"
        )
    if a.exact != b.exact:
        raise InputError("cannot merge an exact accumulator with a sketch; give both the same memory limit")
    n = a.n_samples + b.n_samples
    between = between_means(a.moments, b.moments)
    moments = combine_moments(a.moments, b.moments)
    chain = None if a.chain is None or b.chain is None else max(a.chain, b.chain) + 2
    with one_blas_thread:
        if a.scatter is not None and b.scatter is not None:
            scatter = a.scatter + b.scatter
            Scatter().update(scatter, between, 0)
            return Summary(n, moments, scatter=symmetric(scatter), chain=chain, probe=_merged_probe(a, b, between))
        assert a.sketch is not None
        assert b.sketch is not None
        stacked = np.vstack([a.sketch, b.sketch, between])
        sketch, lost = _leading_rows(stacked, max(len(a.sketch), len(b.sketch)))
    # Each decomposition rounds as much as a sum over its rows.
    chain = None if chain is None else chain + len(stacked)
    return Summary(n, moments, sketch=sketch, lost=a.lost + b.lost + lost, chain=chain)


def _merged_probe(a: Summary, b: Summary, between: Array) -> Array | None:
    """Return the product of the merged scatter matrix with the random vectors, if either part has one."""
    if a.probe is None and b.probe is None:
        return None
    G = draw_probes(len(a.moments.mean))
    parts = [s.scatter @ G if s.probe is None else s.probe for s in (a, b) if s.scatter is not None]
    return np.asarray(parts[0] + parts[1] + between.T @ (between @ G))


def _svd(rows: Array) -> tuple[Array, Array]:
    """Return the singular values and right vectors of a matrix."""
    try:
        _, s, vt = np.linalg.svd(rows, full_matrices=False)
    except np.linalg.LinAlgError:
        # Loaded if needed: divide and conquer does not converge for some matrices, the slower QR iteration does.
        from scipy.linalg import svd

        _, s, vt = svd(rows, full_matrices=False, lapack_driver="gesvd")
    return s, vt


def _leading_rows(rows: Array, count: int) -> tuple[Array, float]:
    """Return at most `count` rows with nearly the same scatter matrix, and the norm of the difference."""
    if len(rows) <= count:
        return rows, 0.0
    s, vt = _svd(rows)
    lost = float(s[count] ** 2) if len(s) > count else 0.0
    return s[:count, None] * vt[:count], lost


def components_of(summary: Summary, options: PCAOptions) -> PCAFit:
    """Return the principal components of the summarised samples."""
    n, moments = summary.n_samples, summary.moments
    d = len(moments.mean)
    wanted = wanted_components(options, (n, d))
    check_choice("scale of batches", options.scale, SCALES)
    scaling = Scaling(moments.mean, scale_of(moments, options.scale, n))
    trace = total_variance(moments, scaling.scale, n, np.dtype(np.float64), "the batches")
    divisor = np.ones(d) if scaling.scale is None else scaling.scale
    smallest = float(divisor.min())

    test = None

    def floor(largest: float) -> float:
        return float64_floor(d, summary.chain or 0, trace, scaling, largest)

    if summary.scatter is not None:
        S = summary.scatter / (n - 1) / divisor / divisor[:, None]
        values, vectors, _ = leading_pairs(S, wanted, trace)
        errors = certify_matrix(S, values, vectors, floor(float(values[0])))
        second = max(float(np.linalg.norm(S) ** 2 - (values**2).sum()), 0.0)
        order = min(int((moments.m2 > 0).sum()), n - 1)
        test = noise_test(values, Spectrum(order=order, trace=trace, second=second))
        if summary.probe is not None:
            errors = _with_probe(errors, summary, vectors / divisor[:, None], smallest)
    else:
        assert summary.sketch is not None
        s, vt = _svd(summary.sketch / divisor)
        values, vectors = s**2 / (n - 1), vt.T
        count = wanted.count(values, trace) or len(values)
        values, vectors = values[:count], vectors[:, :count]
        lost = summary.lost / (n - 1) / smallest**2
        errors = certify(values, vectors, np.zeros_like(vectors), floor(float(values[0])) + lost)
    if summary.chain is None:
        errors = replace(errors, method="none")
    null = is_null(values, d)
    hint = "increase memory_limit, so that more of the covariance can be kept"
    advice = shortfall(errors, null, wanted, scaling, hint)
    return PCAFit(
        components=signed(vectors.T),
        explained_variance=values,
        error=errors.certificate,
        certificate_method=errors.method,
        total_variance=trace,
        scaling=scaling,
        missing=summary.moments.missing,
        n_samples=n,
        converged=not advice,
        advice=advice or null_advice(null),
        solver="covariance" if summary.exact else "sketch",
        **noise_fields(test),
    )


def _with_probe(errors: Errors, summary: Summary, vectors: Array, smallest: float) -> Errors:
    """Add the rounding of a float32 scatter matrix, measured by its probe, in units of the smallest scale."""
    assert summary.scatter is not None
    assert summary.probe is not None
    probe = Probe(draw_probes(len(vectors)), summary.probe / (summary.n_samples - 1))
    product = summary.scatter @ vectors / (summary.n_samples - 1)
    rounding = MARGIN * probe.rounding(np.zeros(vectors.shape[1]), vectors, product) / smallest
    return replace(errors, rounding=errors.rounding + rounding, method="probe")


def summary_of(fitted: PCAFit, summary: Summary | None) -> Summary:
    """Return the summary of fitted components; raise `InputError` if they have none."""
    if summary is not None:
        return summary
    if fitted.scatter is None:
        raise InputError(
            f"a fit by solver={fitted.solver!r} has no accumulator to merge; fit with solver='covariance', or by "
            "partial_fit"
        )
    if fitted.missing.any():
        raise InputError(
            "missing values were replaced by the mean of these samples, so that merging would not be exact; fill them "
            "before the fits, with the same values everywhere"
        )
    # The diagonal of a float32 scatter matrix is rounded; the squares are float64 sums.
    m2 = np.diag(fitted.scatter).copy() if fitted.squares is None else fitted.squares * fitted.divisor**2
    moments = Moments(fitted.n_samples - fitted.missing, fitted.mean, m2, fitted.missing)
    return Summary(
        fitted.n_samples, moments, scatter=fitted.scatter, probe=fitted.probe,
        chain=None if fitted.certificate_method == "none" else fitted.chain,
    )  # fmt: skip


def accumulator_dataset(summary: Summary) -> xarray.Dataset:
    """Return a summary as a Dataset, to save or send."""
    import xarray  # slow to import

    arrays = {name: ("feature", getattr(summary.moments, name)) for name in MOMENTS}
    parts = {name: (dims, getattr(summary, name)) for name, dims in PARTS.items() if getattr(summary, name) is not None}
    attributes = {
        "kind": "accumulator",
        "format_version": FORMAT_VERSION,
        "n_samples": summary.n_samples,
        "lost": summary.lost,
    }
    if summary.chain is not None:
        attributes["chain"] = summary.chain
    return xarray.Dataset({**arrays, **parts}, attrs=attributes)


def summary_from(dataset: xarray.Dataset) -> Summary:
    """Return the summary of a Dataset from `accumulator_dataset`."""
    attrs = dataset.attrs
    parts = {name: dataset[name].values for name in PARTS if name in dataset}
    if attrs.get("kind") != "accumulator" or not set(MOMENTS) <= set(dataset) or not {"scatter", "sketch"} & set(parts):
        raise InputError("the Dataset is not an accumulator; give the attribute accumulator_ of a fitted PCA")
    moments = Moments(*(dataset[name].values for name in MOMENTS))
    # Accumulators of version 0.7 have no chain: they can be merged, but not certified.
    chain = None if attrs.get("chain") is None else int(attrs["chain"])
    return Summary(int(attrs["n_samples"]), moments, lost=float(attrs["lost"]), chain=chain, **parts)
