"""Accumulators that grow batch by batch and merge: the basis of `partial_fit` and `merge`.

While the d x d scatter fits the memory limit it is kept, and the result is exact. Beyond that a sketch of l rows is
kept, whose scatter differs from the true one by at most what was cut off; the certificate includes it. Sums are
float64; a scatter that a fit summed in float32 comes with its probes, which merge as it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.dataset import FORMAT_VERSION
from streampca.models.pca.fit import wanted_components
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, signed
from streampca.solvers.base import is_null, null_advice, shortfall, total_variance
from streampca.solvers.certificate import MARGIN, Errors, Probe, certify, certify_matrix, draw_probes, float64_floor
from streampca.solvers.dense import leading_pairs
from streampca.sweep.scaling import SCALES, Scaling, check_choice, scale_of
from streampca.sweep.statistics import Moments, Scatter, between_means, centre_by_own_mean, combine_moments, symmetric
from streampca.sweep.sweep import one_blas_thread

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Summary:
    """Moments and scatter of the samples seen so far, or a sketch of the scatter.

    Attributes
    ----------
    n_samples, moments : of the samples.
    scatter : (d, d) about their mean, or None where a sketch stands for it.
    sketch : (l, d), whose B'B is the scatter but for `lost`.
    lost : bound on the norm of the scatter minus B'B.
    chain : length of the sums; None if the scatter cannot be certified: of version 0.7, or of float32 without a probe.
    probe : (d, p) product of the true scatter with random vectors, in float64; None where the scatter itself is a
        float64 sum.
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
        """Whether nothing was cut off."""
        return self.scatter is not None


def summarise(X: Array, sketch_rows: int | None) -> Summary:
    """Summarise one batch, tile by tile: exactly, or by a sketch with that number of rows."""
    n, d = X.shape
    length = Scatter().tile_length(d, 8) if sketch_rows is None else n
    summary: Summary | None = None
    for start in range(0, n, length):
        part = _summarise_tile(X[start : start + length], sketch_rows)
        summary = part if summary is None else combine_summaries(summary, part)
    assert summary is not None
    return summary


def _summarise_tile(X: Array, sketch_rows: int | None) -> Summary:
    n, d = X.shape
    centred = np.empty((n, d))
    with one_blas_thread:
        moments = centre_by_own_mean(X, centred)
        if sketch_rows is None:
            value = Scatter().zero(d)
            Scatter().update(value, centred, 0)
            return Summary(n, moments, scatter=symmetric(value), chain=n)
        sketch, lost = _cut(centred, sketch_rows)
    return Summary(n, moments, sketch=sketch, lost=lost, chain=n)


def combine_summaries(a: Summary, b: Summary) -> Summary:
    """Merge the summaries of disjoint samples; exact if both are."""
    if len(a.moments.mean) != len(b.moments.mean):
        raise InputError(
            f"cannot merge {len(a.moments.mean)} with {len(b.moments.mean)} features; they must be the same"
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
        sketch, lost = _cut(stacked, max(len(a.sketch), len(b.sketch)))
    # Each decomposition rounds as much as a sum over its rows.
    chain = None if chain is None else chain + len(stacked)
    return Summary(n, moments, sketch=sketch, lost=a.lost + b.lost + lost, chain=chain)


def _merged_probe(a: Summary, b: Summary, between: Array) -> Array | None:
    """Return the product of the merged scatter with the random vectors, if either part has one."""
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
        # Divide and conquer does not converge for some matrices; QR iteration is slower and does.
        from scipy.linalg import svd

        _, s, vt = svd(rows, full_matrices=False, lapack_driver="gesvd")
    return s, vt


def _cut(rows: Array, keep: int) -> tuple[Array, float]:
    """Return `keep` rows with nearly the same scatter, and the norm of what that leaves out."""
    if len(rows) <= keep:
        return rows, 0.0
    s, vt = _svd(rows)
    lost = float(s[keep] ** 2) if len(s) > keep else 0.0
    return s[:keep, None] * vt[:keep], lost


def components_of(summary: Summary, options: PCAOptions) -> PCAFit:
    """Return the principal components of what was summarised."""
    n, d = summary.n_samples, len(summary.moments.mean)
    wanted = wanted_components(options, (n, d))
    check_choice("scale of batches", options.scale, SCALES)
    scale = scale_of(summary.moments, options.scale, n)
    trace = total_variance(summary.moments, scale, n, np.dtype(np.float64), "the batches")
    divide = 1.0 if scale is None else scale
    smallest = 1.0 if scale is None else float(scale.min())
    if summary.scatter is not None:
        S = summary.scatter / (n - 1) / divide / np.reshape(divide, (-1, 1))
        values, vectors, _ = leading_pairs(S, wanted, trace)
        errors = certify_matrix(S, values, vectors, _floor(summary, scale, trace, float(values[0])))
        if summary.probe is not None:
            errors = _with_probe(errors, summary, vectors / np.reshape(divide, (-1, 1)), smallest)
    else:
        assert summary.sketch is not None
        s, vt = _svd(summary.sketch / divide)
        values, vectors = s**2 / (n - 1), vt.T
        count = wanted.count(values, trace) or len(values)
        values, vectors = values[:count], vectors[:, :count]
        floor = _floor(summary, scale, trace, float(values[0])) + summary.lost / (n - 1) / smallest**2
        errors = certify(values, vectors, np.zeros_like(vectors), floor)
    if summary.chain is None:
        errors = replace(errors, method="none")
    null = is_null(values, d)
    hint = "increase memory_limit, so that more of the covariance can be kept"
    advice = shortfall(errors, null, wanted, Scaling(summary.moments.mean, scale), hint)
    return PCAFit(
        components=signed(vectors.T),
        explained_variance=values,
        certificate=errors.certificate,
        total_variance=trace,
        mean=summary.moments.mean,
        scale=scale,
        missing=summary.moments.missing,
        n_samples=n,
        converged=not advice,
        advice=advice or null_advice(null),
        solver="covariance" if summary.exact else "sketch",
        tile_dtype="float64",
        sweep_seconds=(),
        warm_seconds=0.0,
        bytes_read=0,
        seconds=0.0,
        certificate_method=errors.method,
    )


def _floor(summary: Summary, scale: Array | None, trace: float, largest: float) -> float:
    scaling = Scaling(summary.moments.mean, scale)
    return float64_floor(len(summary.moments.mean), summary.chain or 0, trace, scaling, largest)


def _with_probe(errors: Errors, summary: Summary, vectors: Array, smallest: float) -> Errors:
    """Add the rounding of a float32 scatter S to the errors: S u - H'u measured, in units of the smallest scale."""
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
            f"components of solver={fitted.solver!r} have no accumulator to merge; fit with solver='covariance', or by "
            "partial_fit"
        )
    if fitted.missing.any():
        raise InputError(
            "missing values were replaced by the mean of these samples, which does not merge exactly; fill them before "
            "the fit, with the same values everywhere"
        )
    n, d = fitted.n_samples, len(fitted.mean)
    # The diagonal of a float32 scatter is rounded; the squares are float64 sums.
    m2 = np.diag(fitted.scatter).copy()
    if fitted.squares is not None:
        m2 = fitted.squares * (1.0 if fitted.scale is None else fitted.scale**2)
    count = np.full(d, n, np.int64) - fitted.missing
    return Summary(
        n, Moments(count, fitted.mean, m2, fitted.missing), scatter=fitted.scatter, probe=fitted.probe,
        chain=None if fitted.certificate_method == "none" else fitted.chain,
    )  # fmt: skip


def accumulator_dataset(summary: Summary) -> xarray.Dataset:
    """Return a summary as a Dataset, to save or send."""
    import xarray  # slow to import

    moments = summary.moments
    variables: dict[str, Any] = {
        name: ("feature", getattr(moments, name)) for name in ("count", "mean", "m2", "missing")
    }
    if summary.scatter is not None:
        variables["scatter"] = (("feature", "feature_2"), summary.scatter)
    else:
        variables["sketch"] = (("row", "feature"), summary.sketch)
    if summary.probe is not None:
        variables["probe"] = (("feature", "probe_vector"), summary.probe)
    attributes = {
        "kind": "accumulator",
        "format_version": FORMAT_VERSION,
        "n_samples": summary.n_samples,
        "lost": summary.lost,
    }
    if summary.chain is not None:
        attributes["chain"] = summary.chain
    return xarray.Dataset(variables, attrs=attributes)


def summary_from(dataset: xarray.Dataset) -> Summary:
    """Return the summary of a Dataset that `accumulator_dataset` made."""
    needed = {"count", "mean", "m2", "missing"}
    if (
        dataset.attrs.get("kind") != "accumulator"
        or not needed <= set(dataset)
        or not {"scatter", "sketch"} & set(dataset)
    ):
        raise InputError("the Dataset is not an accumulator; give the attribute accumulator_ of a fitted PCA")
    moments = Moments(*(dataset[name].values for name in ("count", "mean", "m2", "missing")))
    parts = {name: dataset[name].values for name in ("scatter", "sketch", "probe") if name in dataset}
    # Accumulators of version 0.7 merge, but cannot be certified.
    chain = dataset.attrs.get("chain")
    return Summary(
        int(dataset.attrs["n_samples"]), moments, lost=float(dataset.attrs["lost"]),
        chain=None if chain is None else int(chain), **parts,
    )  # fmt: skip
