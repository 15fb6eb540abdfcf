"""Options of kernel PCA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from streampca.errors import InputError
from streampca.validation import (
    Between,
    Convert,
    Count,
    Limits,
    Number,
    Options,
    PlainScale,
    Positive,
    Seed,
    option,
    plain_number,
)


def _features(value: Any) -> Any:
    """Take None, as scikit-learn spells 1 / n_features, for "features"."""
    return "features" if value is None else plain_number(value)


class KernelPCAOptions(Options):
    """Kernel PCA by Nystrom landmarks."""

    n_components: Count | None = option(default=None, description="Number of components.")
    kernel: Literal["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"] | Callable[[Any, Any], Any] = option(
        default="rbf", description="Kernel k(x, y); rbf: exp(-gamma |x - y|^2)."
    )
    gamma: Annotated[Positive | Literal["scale", "median", "features"], Convert(_features)] = option(
        default="scale",
        description="Kernel coefficient; scale: 1 / (n_features variance); median: of distances; features: "
        "1 / n_features.",
    )
    degree: Annotated[float, Limits(gt=0, lt=100), Convert(plain_number)] = option(
        default=3.0, description="Degree of poly."
    )
    coef0: Number = option(default=1.0, description="Constant of poly and sigmoid.")
    n_landmarks: Annotated[Annotated[int, Limits(ge=2)] | Literal["auto"], Convert(plain_number)] = option(
        default=1000, description="Number of landmarks; auto: as many as keep target_trace of the kernel's trace."
    )
    landmarks: Literal["uniform", "kmeans", "leverage", "fourier"] = option(
        default="uniform", description="How landmarks are chosen; fourier: random Fourier features instead."
    )
    target_trace: Between = option(default=0.95, description="Share of the trace, for n_landmarks: auto.")
    scale: PlainScale = option(default=None, description="unit: divide features by their standard deviation.")
    missing: Literal["error", "mean"] = option(
        default="error", description="Missing values; mean: replace by the mean."
    )
    fit_inverse_transform: bool = option(default=False, description="Learn the map from scores back to samples.")
    alpha: Positive = option(default=0.1, description="Ridge penalty of fit_inverse_transform.")
    random_state: Seed = option(default=0, description="Seed of the landmarks.")

    def check(self) -> None:
        """Raise if kernel, gamma and landmarks do not fit together."""
        if self.gamma == "median" and self.kernel in ("poly", "sigmoid"):
            raise InputError(f"gamma='median' requires a kernel of distances, got kernel={self.kernel!r}; use 'scale'")
        if self.landmarks == "fourier" and self.n_landmarks == "auto":
            raise InputError("landmarks='fourier' requires n_landmarks as a number, got 'auto'")
        if self.landmarks == "fourier" and self.kernel not in ("rbf", "laplacian"):
            raise InputError(f"landmarks='fourier' requires kernel='rbf' or 'laplacian', got {self.kernel!r}")

    def most_components(self, shape: tuple[int, int]) -> int:
        """Return the largest n_components for data of this shape."""
        return shape[0] if self.n_landmarks == "auto" else min(shape[0], self.n_landmarks)

    @property
    def kernel_name(self) -> str:
        """Name of the kernel or of the function."""
        return f"function {getattr(self.kernel, '__name__', '')}".strip() if callable(self.kernel) else self.kernel

    @property
    def fourier(self) -> bool:
        """Whether there are random Fourier features instead of landmarks."""
        return self.landmarks == "fourier"

    @property
    def learns_moments(self) -> bool:
        """Whether means and deviations of all samples are needed, which take a sweep."""
        return self.scale is not None or self.missing == "mean"
