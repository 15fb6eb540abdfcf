"""Options of kernel PCA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from streampca.validation import Between, Count, Number, Options, PlainScale, Positive, Seed, plain_number


def _features(value: Any) -> Any:
    """Take None, as scikit-learn spells 1 / n_features, for "features"."""
    return "features" if value is None else plain_number(value)


class KernelPCAOptions(Options):
    """Kernel PCA by Nystrom landmarks."""

    n_components: Count | None = Field(default=None, description="Number of components.")
    kernel: (
        Literal["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"] | SkipJsonSchema[Callable[[Any, Any], Any]]
    ) = Field(default="rbf", description="Kernel k(x, y); rbf: exp(-gamma |x - y|^2).")
    gamma: Annotated[Positive | Literal["scale", "median", "features"], BeforeValidator(_features)] = Field(
        default="scale",
        description="Kernel coefficient; scale: 1 / (n_features variance); median: of distances; features: "
        "1 / n_features.",
    )
    degree: Annotated[float, Field(gt=0, lt=100), BeforeValidator(plain_number)] = Field(
        default=3.0, description="Degree of poly."
    )
    coef0: Number = Field(default=1.0, description="Constant of poly and sigmoid.")
    n_landmarks: Annotated[Annotated[int, Field(ge=2)] | Literal["auto"], BeforeValidator(plain_number)] = Field(
        default=1000, description="Number of landmarks; auto: as many as keep target_trace of the kernel's trace."
    )
    landmarks: Literal["uniform", "kmeans", "leverage", "fourier"] = Field(
        default="uniform", description="How landmarks are chosen; fourier: random Fourier features instead."
    )
    target_trace: Between = Field(default=0.95, description="Share of the trace, for n_landmarks: auto.")
    scale: PlainScale = Field(default=None, description="unit: divide features by their standard deviation.")
    missing: Literal["error", "mean"] = Field(default="error", description="Missing values; mean: replace by the mean.")
    fit_inverse_transform: bool = Field(default=False, description="Learn the map from scores back to samples.")
    alpha: Positive = Field(default=0.1, description="Ridge penalty of fit_inverse_transform.")
    random_state: Seed = Field(default=0, description="Seed of the landmarks.")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.gamma == "median" and self.kernel in ("poly", "sigmoid"):
            raise ValueError(f"gamma='median' requires a kernel of distances, got kernel={self.kernel!r}; use 'scale'")
        if self.landmarks == "fourier" and self.n_landmarks == "auto":
            raise ValueError("landmarks='fourier' requires n_landmarks as a number, got 'auto'")
        if self.landmarks == "fourier" and self.kernel not in ("rbf", "laplacian"):
            raise ValueError(f"landmarks='fourier' requires kernel='rbf' or 'laplacian', got {self.kernel!r}")
        return self

    @property
    def kernel_name(self) -> str:
        """Name of the kernel or of the function."""
        return f"function {getattr(self.kernel, '__name__', '')}".strip() if callable(self.kernel) else self.kernel
