"""Where a result comes from: the command that repeats it, and what the run took."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.report.markup import number, percent
from streampca.results.schema import certificate_method, error_in
from streampca.solvers.base import is_null
from streampca.sweep.memory import show_bytes

if TYPE_CHECKING:
    import xarray

COMMANDS = {"pca": "pca", "ppca": "ppca", "factor_analysis": "ppca", "kpca": "kpca", "pcr": "pcr"}
KINDS = {
    "pca": "Principal component analysis",
    "ppca": "Probabilistic principal component analysis",
    "factor_analysis": "Factor analysis",
    "kpca": "Kernel principal component analysis",
    "pcr": "Principal component regression",
}
# Names of data that were in memory, and not in a file.
IN_MEMORY = ("array", "dask array", "DataArray", "")
# Parameters that are flags, and the values for which a flag is left out.
FLAGS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "n_components": ("-k", (None,)),
    "target": ("--target", (None, 0.95)),
    "covariates": ("--covariates", (None,)),
    "cv": ("--cv", (5,)),
    "scale": ("--scale", ("auto",)),
    "missing": ("--missing", ("auto",)),
    "solver": ("--solver", ("auto",)),
    "method": ("--method", ("auto",)),
    "criterion": ("--criterion", ("auto",)),
    "tol": ("--tol", (None, 1e-3)),
    "certificate": ("", (None, True)),
    "max_iter": ("--max-iter", (None,)),
    "kernel": ("--kernel", ("rbf",)),
    "gamma": ("--gamma", ("scale",)),
    "degree": ("--degree", (3.0,)),
    "coef0": ("--coef0", (1.0,)),
    "n_landmarks": ("--landmarks", (1000,)),
    "landmarks": ("--choose", ("uniform",)),
    "alpha": ("--alpha", (0.1,)),
    "fit_inverse": ("--pre-image", (False,)),
    "seed": ("--seed", (0,)),
    "maf": ("--maf", (None,)),
    "geno": ("--geno", (None,)),
    "mind": ("--mind", (None,)),
    "keep": ("--keep", (None,)),
    "remove": ("--remove", (None,)),
    "extract": ("--extract", (None,)),
    "exclude": ("--exclude", (None,)),
    "exclude_regions": ("--exclude-regions", (None,)),
    "all_chromosomes": ("--all-chromosomes", (None, False)),
    "ld_prune": ("--ld-prune", (None,)),
    "outliers": ("--outliers", (None,)),
    "outlier_rounds": ("--outlier-rounds", (None, 5)),
    "variable": ("--variable", (None,)),
    "sample_dims": ("--sample-dims", (None,)),
    "missing_chunks": ("--missing-chunks", (None, "error")),
    "memory": ("--memory", (None,)),
}
# The same, where a kind has its own.
USUAL: dict[str, dict[str, tuple[Any, ...]]] = {
    "ppca": {"missing": ("auto", "model"), "max_iter": (None, 200)},
    "factor_analysis": {"missing": ("auto", "model"), "max_iter": (None, 1000)},
    "kpca": {"missing": ("auto", "error"), "scale": ("auto", None)},
    "pcr": {"tol": (None, 1e-6)},
}
# Flags whose None means something.
SPELLED = {"scale": "none", "gamma": "features"}
# Parameters whose values are flags of their own.
CHOICES = {"certificate": (("exact", "--exact-certificate"), (False, "--no-certificate"))}
CERTIFIED_BY = {
    "probe": "rounding measured with random probes",
    "exact": "residuals in double precision",
    "none": "estimates, rounding not included",
    "modelled": "rounding modelled, not measured (version 0.7)",
}


def parameters_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked; nothing if that is not told."""
    return mapping_of(attributes.get("parameters"))


def mapping_of(text: Any) -> dict[str, Any]:
    """Return what a text holds as JSON, if that is names and values."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def texts_of(attributes: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts that an attribute holds as JSON."""
    try:
        found = json.loads(attributes.get(name, "[]"))
    except (TypeError, ValueError, RecursionError):
        return []
    return [str(text) for text in found] if isinstance(found, list) else []


def command_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the command that makes the result again, quoted for a shell; None if the data were in memory alone.

    Parameters that have their usual values are left out.
    """
    kind, source = str(attributes.get("kind")), str(attributes.get("source", ""))
    if kind not in COMMANDS or source in IN_MEMORY or source.startswith("DataArray "):
        return None
    # What begins with a minus would be taken for an option.
    words = ["streampca", COMMANDS[kind], f"./{source}" if source.startswith("-") else source]
    parameters, usual = parameters_of(attributes), USUAL.get(kind, {})
    if kind == "factor_analysis":
        words.append("--factor-analysis")
    for name, (flag, left_out) in FLAGS.items():
        if name not in parameters or parameters[name] in usual.get(name, left_out):
            continue
        value = parameters[name]
        if name in CHOICES:
            words += [option for choice, option in CHOICES[name] if choice == value]
            continue
        if value is None:
            value = SPELLED.get(name)
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            shown = ",".join(map(str, value)) if isinstance(value, list) else f"{value}"
            words += [flag, shown]
    return shlex.join(words)


def error_title(result: xarray.Dataset) -> str:
    """Return what the errors of components are called: certificate, estimate, certificate (modelled)."""
    method = certificate_method(result.attrs)
    return "certificate (modelled)" if method == "modelled" else str(error_in(result))


def largest_error(result: xarray.Dataset) -> float:
    """Return the largest certificate or estimate of components with variance; those of others are infinite."""
    bounds, variances = result[error_in(result)].values, result["explained_variance"].values
    return float(np.max(bounds[~is_null(variances, int(result.attrs.get("n_features", 0)))], initial=0.0))


def facts_of(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of the run, as names and texts."""
    a = attributes
    features = "variants" if a.get("genotypes") else "features"
    facts: list[tuple[str, Any]] = [("Source", a.get("source"))]
    if "n_samples" in a and "n_features" in a:
        facts.append(("Size", f"{a['n_samples']:,} samples × {a['n_features']:,} {features}"))
        cells = max(1, int(a["n_samples"]) * int(a["n_features"]))
        n_missing = int(a.get("n_missing", 0))
        facts.append(("Missing", f"{n_missing:,} values, {percent(n_missing / cells)}" if n_missing else "none"))
    facts.append(("Solver", a.get("solver", a.get("method"))))
    method = certificate_method(a)
    if method in CERTIFIED_BY:
        facts.append(("Estimates" if method == "none" else "Certificates", CERTIFIED_BY[method]))
    if "kernel" in a:
        facts.append(("Kernel", f"{a['kernel']}, gamma {number(float(a.get('gamma', float('nan'))), 4)}"))
        facts.append(("Landmarks", f"{int(a.get('n_landmarks', 0)):,}"))
    if "noise_variance" in a:
        facts.append(("Noise variance", number(float(a["noise_variance"]), 4)))
    if "total_log_likelihood" in a:
        facts.append(("Log-likelihood", f"{float(a['total_log_likelihood']):,.2f}"))
    if "n_iterations" in a:
        facts.append(("Iterations", f"{int(a['n_iterations']):,}"))
    if "n_sweeps" in a:
        facts.append(("Sweeps", f"{int(a['n_sweeps']):,} over all the data"))
    if a.get("bytes_read"):
        facts.append(("Read", show_bytes(float(a["bytes_read"]))))
    if "seconds" in a:
        facts.append(("Time", _duration(float(a["seconds"]))))
    if a.get("peak_memory_bytes"):
        facts.append(("Peak memory", show_bytes(float(a["peak_memory_bytes"]))))
    facts.append(("Arithmetic", a.get("tile_dtype")))
    facts.append(("Made", str(a.get("created", "")).replace("T", " ").replace("+00:00", " UTC")))
    versions = mapping_of(a.get("versions"))
    facts.append(("Versions", ", ".join(f"{name} {shown}" for name, shown in versions.items())))
    facts.append(("Fingerprint", a.get("source_fingerprint")))
    return [(name, str(text)) for name, text in facts if text not in (None, "")]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
