"""What a result records, in words: numbers, parameters, errors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.results.schema import error_in
from streampca.solvers.base import is_null
from streampca.solvers.certificate import PROBES

if TYPE_CHECKING:
    import xarray

# How certificates were obtained.
CERTIFIED_BY = {
    "probe": f"rounding was measured with {PROBES} random probes in double precision; a certificate is wrong with "
    "probability below 1e-11",
    "exact": "residuals were computed in double precision",
    "none": "rounding is not included",
    "modelled": "rounding was modelled, not measured (version 0.7)",
}


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
    found: dict[str, Any] = json.loads(attributes["parameters"])
    return found


def feature_noun(attributes: Mapping[str, Any]) -> str:
    """Return "variants" for genotypes, else "features"."""
    return "variants" if attributes.get("genotypes") else "features"


def missing_share(attributes: Mapping[str, Any]) -> float:
    """Return the share of the values that are missing."""
    return float(attributes["n_missing"] / (attributes["n_samples"] * attributes["n_features"]))


def kernel_text(attributes: Mapping[str, Any]) -> str:
    """Return the parameters of a kernel, as "gamma 0.5, degree 3, coef0 1"; those that it has."""
    kernel, parts = attributes["kernel"], []
    if kernel not in ("linear", "cosine"):
        parts.append(f"gamma {number(attributes['gamma'], 4)}")
    if kernel == "poly":
        parts.append(f"degree {attributes['degree']:g}")
    if kernel in ("poly", "sigmoid"):
        parts.append(f"coef0 {attributes['coef0']:g}")
    return ", ".join(parts)


def at_chosen(result: Mapping[Any, Any], name: str) -> Array:
    """Return a variable of a regression, (target, m), at the number of components that each target uses."""
    return np.take_along_axis(np.asarray(result[name]), np.asarray(result["chosen"])[:, None], axis=1)[:, 0]


def error_title(result: xarray.Dataset) -> str:
    """Return the name of the errors of components: certificate, estimate, or certificate (modelled)."""
    modelled = result.attrs.get("certificate_method") == "modelled"
    return "certificate (modelled)" if modelled else str(error_in(result))


def largest_error(result: xarray.Dataset) -> float:
    """Return the largest certificate or estimate of the components with variance; that of the others is infinite."""
    errors, variances = result[error_in(result)].values, result["explained_variance"].values
    return float(np.max(errors[~is_null(variances, result.attrs["n_features"])], initial=0.0))
