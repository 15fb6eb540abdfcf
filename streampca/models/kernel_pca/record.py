"""The fitted record of kernel PCA, and scores; landmarks of results are in units of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, RidgeMap, Scores
from streampca.models.record import Attribute, Fitted, Variable
from streampca.progress import Progress
from streampca.solvers.kernel.kernels import FourierMap, Kernel, LandmarkMap
from streampca.solvers.kernel.nystrom import KernelSolution
from streampca.sources import Axis, Source
from streampca.sweep.matrix import FeatureMap
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, kw_only=True)
class KernelPCAFit(Fitted, KernelSolution):
    """Fitted components in feature space.

    Attributes
    ----------
    kernel : with its parameters.
    points : (m, d) landmarks, or (m / 2, d) random frequencies, centred and scaled as the inputs are.
    fourier : whether points are frequencies.
    method : how landmarks were chosen, "exact" if all samples are landmarks, or "fourier".
    missed_variance : largest variance along one direction that the landmarks miss, estimated from a sample.
    ridge : map from scores back to samples, if learnt.
    scores : (n, k) of the fitted samples, if known.
    others : as for `Fitted` and `KernelSolution`.
    """

    # L is the dimension of the landmarks or of the Fourier features.
    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *Fitted.VARIABLES,
        Variable(
            "weights", "L component",
            "of the features of landmarks in each component; scores are (k(x, landmarks) - kernel_mean) weights",
        ),
        Variable("kernel_mean", "L", "mean over the samples of the kernel with each landmark"),
        Variable("mean_weights", "L", "of the features of landmarks in the mean"),
        Variable("explained_variance", "component", "eigenvalues of the covariance in feature space (n - 1)"),
        Variable("explained_variance_ratio", "component", "share of the variance in feature space, at least"),
        Variable("eigenvalue", "component", "eigenvalues of the centred kernel matrix of all samples", "eigenvalues"),
        Variable(
            "certificate", "component", "bound on ||C v - lambda v|| / lambda for the covariance C in feature space"
        ),
        Variable(
            "estimated_error", "component",
            "relative distance of the exact eigenvalues above these, estimated from a sample",
        ),
        Variable("frequencies", "frequency F"),
        Variable("landmarks", "landmark F", of="stored_landmarks"),
        Variable(
            "scaled_landmarks", "landmark F",
            "landmarks, centred and scaled; only if the units of the data cannot hold all digits",
        ),
        Variable("anchors", "anchor component", of="ridge.anchors"),
        Variable(
            "anchor_weights", "anchor F",
            "samples are anchor_offset + rbf(scores, anchors) anchor_weights, centred and scaled", "ridge.weights",
        ),
        Variable("anchor_offset", "F", of="ridge.offset"),
        Variable("scores", "S component"),
    )  # fmt: skip
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *Fitted.ATTRIBUTES,
        Attribute("kernel", str, "kernel.name"),
        Attribute("kernel_is_function", bool),
        Attribute("gamma", of="kernel.gamma"),
        Attribute("degree", of="kernel.degree"),
        Attribute("coef0", of="kernel.coef0"),
        Attribute("method", str),
        Attribute("rank", int),
        Attribute("layout", str),
        Attribute("n_landmarks", int),
        Attribute("kept_trace"),
        Attribute("missed_variance"),
        Attribute("kept_variance"),
        Attribute("lost_variance"),
        Attribute("anchor_gamma", of="ridge.gamma"),
    )

    kernel: Kernel
    points: Array
    fourier: bool
    method: str
    missed_variance: float = math.nan
    ridge: RidgeMap | None = None
    scores: Array | None = None

    @property
    def map(self) -> FeatureMap:
        """The map from samples to features."""
        return FourierMap(self.points) if self.fourier else LandmarkMap(self.kernel, self.points)

    @property
    def landmarks(self) -> Array:
        """Landmarks in units of the data; for Fourier features the frequencies."""
        points = self.points.astype(np.float64)
        return np.asarray(points if self.fourier else self.scaling.restore(points))

    @property
    def frequencies(self) -> Array | None:
        """Frequencies of Fourier features."""
        return self.points if self.fourier else None

    @property
    def stored_landmarks(self) -> Array | None:
        """Landmarks in units of the data; None for Fourier features."""
        return None if self.fourier else self.landmarks

    @property
    def scaled_landmarks(self) -> Array | None:
        """Landmarks, centred and scaled, if units of the data cannot hold all digits."""
        if self.fourier or np.array_equal(_scaled(self.landmarks, self.scaling, self.points.dtype), self.points):
            return None
        return self.points

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks, or of Fourier features."""
        return len(self.weights)

    @property
    def gamma(self) -> float:
        """Coefficient of the kernel."""
        return self.kernel.gamma

    @property
    def kernel_is_function(self) -> bool:
        """Whether the kernel is a Python function."""
        return self.kernel.function is not None

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalues of the centred kernel matrix of all samples, as scikit-learn gives them."""
        return self.explained_variance * (self.n_samples - 1)

    @property
    def explained_variance_ratio(self) -> Array:
        """Lower bound on the share of the variance in feature space of each component."""
        return self.explained_variance / self.total_variance

    @property
    def estimated_error(self) -> Array:
        """Relative distance of the exact eigenvalues above these, estimated from a sample."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.explained_variance > 0, self.missed_variance / self.explained_variance, np.inf)

    @property
    def kept_variance(self) -> float:
        """Lower bound on the share of the variance that the landmarks keep; NaN for Fourier features."""
        return 1 - self.lost_variance / self.total_variance

    @property
    def layout(self) -> str:
        """Order of the weights in memory: products of another order round differently."""
        return "C" if self.weights.flags.c_contiguous else "F"

    def named_axes(self, samples: Axis, features: Axis) -> dict[str, Axis]:
        """Return the axes of the samples, the features, and the landmarks or Fourier features."""
        landmark = "fourier_feature" if self.fourier else "landmark"
        return {**super().named_axes(samples, features), "L": Axis((landmark,), (self.n_landmarks,))}

    @classmethod
    def fields_in(cls, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return the fields that a Dataset has; raise `InputError` if its kernel is a Python function."""
        attrs = dataset.attrs
        if attrs["kernel_is_function"]:
            raise InputError(
                f"the kernel of this result is a Python function ({attrs['kernel']}), which is not stored; fit the "
                "model again in Python"
            )
        values = super().fields_in(dataset)
        fourier, scaling = "frequencies" in dataset, values["scaling"]

        def rows(name: str) -> Array:
            return np.asarray(dataset[name].values.reshape(-1, len(scaling.mean)))

        if fourier or "scaled_landmarks" in dataset:
            points = rows("frequencies" if fourier else "scaled_landmarks")
        else:
            points = _scaled(rows("landmarks"), scaling, attrs["tile_dtype"])
        if "anchors" in dataset:
            weights, offset = rows("anchor_weights"), rows("anchor_offset")[0]
            values["ridge"] = RidgeMap(float(attrs["anchor_gamma"]), dataset["anchors"].values, weights, offset)
        values["weights"] = np.asarray(values["weights"], order=attrs.get("layout", "C"))
        kernel = Kernel(str(attrs["kernel"]), float(attrs["gamma"]), float(attrs["degree"]), float(attrs["coef0"]))
        return {**values, "kernel": kernel, "points": points, "fourier": fourier}


def _scaled(landmarks: Array, scaling: Scaling, dtype: Any) -> Array:
    """Return landmarks centred and scaled."""
    centred = landmarks - scaling.mean
    return np.asarray((centred if scaling.scale is None else centred / scaling.scale).astype(dtype))


@dataclass(frozen=True)
class _Checked:
    """A sink that checks for overflow."""

    sink: Callable[[int, Array], None]

    def __call__(self, start: int, rows: Array) -> None:
        self.sink(start, finite_scores(rows))


def kernel_scores(
    fitted: KernelPCAFit, sweeps: Sweeps, check: bool = False, sink: Callable[[int, Array], None] | None = None
) -> Array:
    """Sweep for the scores of samples; into the sink, if given."""
    dtype = sweeps.matrix.dtype
    scores = Scores.of(fitted.map, fitted, dtype)
    pieces, _ = sweeps.run(RowsOf(scores, sink and _Checked(sink), RESTORED_ROWS), "scores", check)
    return finite_scores(np.concatenate(pieces)) if pieces else np.empty((0, fitted.n_components), dtype)


def with_kernel_scores(
    fitted: KernelPCAFit, sweeps: Sweeps, sink: Callable[[int, Array], None] | None = None
) -> KernelPCAFit:
    """Return the fit with the scores of its samples; one sweep, into the sink if given."""
    scores = kernel_scores(fitted, sweeps, sink=sink)
    return replace(
        fitted, scores=scores if sink is None else None, sweep_seconds=tuple(sweeps.seconds),
        bytes_read=sweeps.bytes_read,
    )  # fmt: skip


def finite_scores(scores: Array) -> Array:
    """Return scores; raise `InputError` if they overflow."""
    if not np.isfinite(scores).all():
        raise InputError("the kernel overflows on samples that are much larger than the fitted ones; exclude them")
    return scores


def kernel_sweeps(
    source: Source, fitted: KernelPCAFit, missing: str, memory: Any, progress: Progress, restores: bool = False,
    held: bool = False,
) -> Sweeps:  # fmt: skip
    """Plan a sweep over new samples, whose tiles become features, then scores or samples again.

    Parameters
    ----------
    restores : whether scores are mapped back to samples.
    held : whether the driver gets the result; else tasks write it.
    """
    fitted.check_features(source)
    n, d = source.shape
    m, k = fitted.weights.shape
    dtype, width = np.dtype(fitted.tile_dtype), d if restores else k
    needs = Needs(
        0,
        # Features, weights and the kernel of a few rows; and the result of a partition, joined and written.
        tile=dtype.itemsize * RESTORED_ROWS * (6 * m + 4 * d + k),
        row=(2 + WRITE_COPIES) * dtype.itemsize * width,
        driver=8 * (3 * n * width * held + 2 * m * (d + k)),
        widening=max(1.0, m / d),
    )
    what = "denoising" if restores else "projecting"
    planned = plan_sweeps(source, needs, Budget.of(memory), what, dtype=dtype)
    return planned.over(source, missing, None, fitted.scaling, progress)
