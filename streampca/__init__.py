"""Principal components of matrices too big for memory, with a bound on memory and a bound on error."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streampca.errors import InputError, MemoryLimitError
    from streampca.models.dual import DualPPCA
    from streampca.models.kernel_pca import KernelPCA
    from streampca.models.mixture import MixtureOfPPCA
    from streampca.models.pca import PCA
    from streampca.models.ppca import PPCA, FactorAnalysis
    from streampca.results.store import load
    from streampca.sources import open_source

__version__ = "0.7.0"
__all__ = [
    "PCA",
    "PCR",
    "PPCA",
    "DualPPCA",
    "FactorAnalysis",
    "InputError",
    "KernelPCA",
    "MemoryLimitError",
    "MixtureOfPPCA",
    "load",
    "open_genotypes",
    "open_source",
]

_HOMES = {
    "DualPPCA": "models.dual",
    "FactorAnalysis": "models.ppca",
    "KernelPCA": "models.kernel_pca",
    "MixtureOfPPCA": "models.mixture",
    "PPCA": "models.ppca",
    "InputError": "errors",
    "MemoryLimitError": "errors",
    "PCA": "models.pca",
    "PCR": "models.pcr",
    "load": "results.store",
    "open_genotypes": "sources",
    "open_source": "sources",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import streampca` itself is quick."""
    if name in _HOMES:
        return getattr(import_module(f"streampca.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'streampca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
