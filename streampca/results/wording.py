"""What a result records, in words: numbers, parameters, errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.results.schema import certificate_method, error_in
from streampca.solvers.base import is_null

if TYPE_CHECKING:
    import xarray


def number(value: float, digits: int = 3) -> str:
    """Format a number with a few significant digits: 0.0123, 14,266, 3.1e-7."""
    if not math.isfinite(value):
        return "not known" if math.isnan(value) else "infinite"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")


def percent(share: float) -> str:
    """Format a share as a percentage with at least two significant digits."""
    if not math.isfinite(share):
        return "not known"
    hundredths = 100 * share
    if hundredths and abs(hundredths) < 0.1:
        return f"{hundredths:.2g}%"
    return f"{hundredths:.1f}%" if 99.95 > hundredths > 0 and hundredths < 99.9 else f"{hundredths:.4g}%"


def plural(count: int, noun: str) -> str:
    """Return "1 factor", "3 factors"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def capitalised(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def parameters_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a result records."""
    return mapping_of(attributes.get("parameters"))


def mapping_of(text: Any) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for anything else."""
    value = _parsed(text)
    return value if isinstance(value, dict) else {}


def texts_of(text: Any) -> list[str]:
    """Parse a JSON list of texts; return an empty one for anything else."""
    value = _parsed(text)
    return [str(item) for item in value] if isinstance(value, list) else []


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def feature_noun(attributes: Mapping[str, Any]) -> str:
    """Return "variants" for genotypes, else "features"."""
    return "variants" if attributes.get("genotypes") else "features"


def missing_share(attributes: Mapping[str, Any]) -> float:
    """Return the share of the values that are missing."""
    cells = int(attributes.get("n_samples", 1)) * int(attributes.get("n_features", 1))
    return int(attributes.get("n_missing", 0)) / max(1, cells)


def error_title(result: xarray.Dataset) -> str:
    """Return the name of the errors of components: certificate, estimate, or certificate (modelled)."""
    method = certificate_method(result.attrs)
    return "certificate (modelled)" if method == "modelled" else str(error_in(result))


def largest_error(result: xarray.Dataset) -> float:
    """Return the largest certificate or estimate of the components with variance; that of the others is infinite."""
    errors, variances = result[error_in(result)].values, result["explained_variance"].values
    return float(np.max(errors[~is_null(variances, int(result.attrs.get("n_features", 0)))], initial=0.0))
