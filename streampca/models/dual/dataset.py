"""Fitted dual probabilistic PCA as a Dataset, and back; the scores are the latent points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streampca._typing import Array
from streampca.models.dataset import COMPONENT, Origin, Variables
from streampca.models.dual.fit import DualPPCAFit
from streampca.models.pca import dataset as pca
from streampca.sources import Axis

if TYPE_CHECKING:
    import xarray

LONG_NAMES = pca.LONG_NAMES | {
    "scores": "latent points Z",
    "dual_eigenvalue": "eigenvalues of Y Y' / d for the centred data Y",
}


def variables(
    fitted: DualPPCAFit, samples: Axis, features: Axis, scores: Array | None = None
) -> tuple[Variables, Variables]:
    """Return variables and coordinates, each with its dimensions."""
    arrays, coords = pca.variables(fitted.pca, samples, features, fitted.latent if scores is None else scores)
    arrays["dual_eigenvalue"] = (COMPONENT, fitted.eigenvalues)
    return arrays, coords


def attributes(fitted: DualPPCAFit, origin: Origin) -> dict[str, Any]:
    """Return provenance and single numbers."""
    return {
        **pca.attributes(fitted.pca, origin),
        "noise_variance": fitted.noise_variance,
        "total_log_likelihood": fitted.log_likelihood,
    }


def from_dataset(dataset: xarray.Dataset) -> DualPPCAFit:
    """Return the fitted record of a Dataset."""
    return DualPPCAFit(
        pca=pca.from_dataset(dataset),
        latent=dataset["scores"].values.reshape(-1, dataset.sizes["component"]),
        eigenvalues=dataset["dual_eigenvalue"].values,
        noise_variance=float(dataset.attrs["noise_variance"]),
        log_likelihood=float(dataset.attrs["total_log_likelihood"]),
    )
