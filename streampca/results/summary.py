"""The summary of a result, for the terminal and as JSON: a table and lines about the fit, by what the result has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.results.schema import ERROR_ARRAYS
from streampca.results.wording import CERTIFIED_BY, at_chosen, kernel_text, missing_share, plural
from streampca.sweep.memory import show_bytes

# Attributes and arrays of JSON summaries.
FACTS = (
    "kind", "source", "n_samples", "n_features", "n_missing", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes",
    "advice", "solver", "method", "certificate_method", "total_variance", "noise_variance", "total_log_likelihood",
    "n_iterations", "change", "criterion", "kernel", "gamma", "degree", "coef0", "n_landmarks", "kept_trace",
    "kept_variance", "n_folds",
)  # fmt: skip
COLUMNS = (
    "explained_variance", "explained_variance_ratio", "eigenvalue", *ERROR_ARRAYS, "estimated_error", "tracy_widom",
    "p_value", "n_effective", "squared_cosine",
)  # fmt: skip

Arrays = Mapping[str, Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """A result in short.

    Attributes
    ----------
    table, lines : header and rows of the table, and what follows it.
    notes : advice and notes.
    facts : attributes and columns, as JSON has them.
    """

    table: list[str]
    lines: list[str]
    notes: list[str]
    facts: dict[str, Any]


class StoredArrays(Mapping[str, Any]):
    """Arrays of an opened store, by name; each is read when it is used."""

    def __init__(self, variables: Mapping[Any, Any]):
        self._variables = variables

    def __getitem__(self, name: str) -> Any:
        return self._variables[name].values

    def __iter__(self) -> Iterator[str]:
        return map(str, self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def summary_of(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise a result, given its arrays by name and its attributes."""
    if "target" in arrays:
        table, columns = _targets(arrays, a)
    elif "cluster" in arrays:
        table, columns = _clusters(arrays)
    else:
        table, columns = _components(arrays, a), {}
    notes = json.loads(a["notes"])
    columns |= {name: arrays[name] for name in COLUMNS if name in arrays}
    facts = {name: a[name] for name in FACTS if name in a} | {"converged": bool(a["converged"]), "notes": notes}
    facts |= {name: _plain(values) for name, values in columns.items()}
    return Summary(table, _lines(arrays, a), [*filter(None, [a["advice"]]), *notes], facts)


def _plain(values: Any) -> Any:
    """Return an array as lists for JSON, which has neither NaN nor infinity."""
    if isinstance(values, (list, np.ndarray)):
        return [_plain(value) for value in np.asarray(values).tolist()]
    return None if isinstance(values, float) and not np.isfinite(values) else values


def _lines(arrays: Arrays, a: Attributes) -> list[str]:
    """Return lines about errors, kernel, likelihood, size and cost."""
    lines, method = [], a.get("certificate_method")
    if method in ("none", "modelled"):
        lines.append(f"{'estimates' if method == 'none' else 'certificates'}: {CERTIFIED_BY[method]}")
    if "kernel" in a:
        lines.append(_kernel(a))
    if "total_log_likelihood" in a:
        noise = f"noise variance {a['noise_variance']:.6g}, " if "noise_variance" in a else ""
        total = a["total_log_likelihood"]
        each = f", {total / a['n_samples']:.6g} per sample" if "log_likelihood" in arrays else " of all features"
        lines.append(f"{noise}log-likelihood {total:.10g}{each}")
    if "solver" not in a:
        lines.append(f"{a['n_samples']} samples x {a['n_features']} features, {missing_share(a):.3%} missing")
    warm = " after a warm start on a tenth of the data" if a.get("warm_start_seconds") else ""
    read, peak = show_bytes(a["bytes_read"]), show_bytes(a["peak_memory_bytes"])
    lines.append(
        f"{_steps(a)}{plural(a['n_sweeps'], 'sweep')}{warm}, {read} read, {a['seconds']:.1f} s, peak memory {peak}"
    )
    if _shows_eigenvalues(arrays, a) and "target" not in arrays:
        size = f"{a['n_samples']} samples, {a['n_features']} variants"
        lines.append(f"{size}; eigenvalues of X X' / m for m variants, as in plink")
    return lines


def _steps(a: Attributes) -> str:
    if "solver" in a:
        return f"{a['solver']}: "
    if a.get("method") == "closed":
        return "closed form: "
    return f"EM, {a['n_iterations']} iterations: " if "n_iterations" in a else ""


def _kernel(a: Attributes) -> str:
    """Return one line on kernel and landmarks."""
    shown = ", ".join(filter(None, [a["kernel"], kernel_text(a)]))
    if a["method"] == "fourier":
        return f"{shown}: {a['n_landmarks']} random Fourier features"
    if a["method"] == "exact":
        return f"{shown}: all samples are landmarks, exact"
    return (
        f"{shown}: {a['n_landmarks']} landmarks ({a['method']}) keep {a['kept_trace']:.2%} of the kernel's trace, at "
        f"least {a['kept_variance']:.2%} of the variance"
    )


def _shows_eigenvalues(arrays: Arrays, a: Attributes) -> bool:
    """Whether the table has eigenvalues as plink defines them: those of principal components of genotypes."""
    return "eigenvalue" in arrays and "solver" in a


def _components(arrays: Arrays, a: Attributes) -> list[str]:
    """Return a row per component: variance, its share, the cumulative share, and errors."""
    titles = {name: name for name in ERROR_ARRAYS if name in arrays}
    if "estimated_error" in arrays:
        titles["estimated_error"] = "error, about"
    if "p_value" in arrays:
        titles["p_value"] = "p-value"
    widths = {name: max(11, len(title)) for name, title in titles.items()}
    header = "".join(f"  {title:>{widths[name]}}" for name, title in titles.items())
    label = " PC    eigenvalue" if "solver" in a else "  i      variance"
    values = arrays["eigenvalue" if _shows_eigenvalues(arrays, a) else "explained_variance"]
    shares = arrays["explained_variance_ratio"]
    table = [f"{label}    share  cumulative{header}"]
    for i, (value, share, total) in enumerate(zip(values, shares, np.cumsum(shares), strict=True)):
        errors = "".join(f"  {_small(arrays[name][i], name):>{widths[name]}}" for name in titles)
        table.append(f"{i + 1:3d}  {value:12.6g}  {share:7.2%}  {total:10.2%}{errors}")
    return table


def _small(value: float, name: str) -> str:
    """Return an error or a p-value as text."""
    if name == "p_value" and not 0 < value < 1e-3:
        return "< 1e-300" if value == 0 else f"{value:.3f}"
    return f"{value:.1e}"


def _targets(arrays: Arrays, a: Attributes) -> tuple[list[str], dict[str, Any]]:
    """Return a row per target of a regression, and its columns."""
    names, chosen = [str(name) for name in arrays["target"]], np.asarray(arrays["chosen"])
    columns: dict[str, Any] = {"target": names, "n_components": chosen, "r2": at_chosen(arrays, "r2")}
    if "cv_r2" in arrays:
        columns |= {"cv_r2": at_chosen(arrays, "cv_r2"), "cv_mse": at_chosen(arrays, "cv_error")}
    width = max(6, *(len(name) for name in names))
    folds = f"  {a['n_folds']}-fold R2" if "cv_r2" in columns else ""
    table = [f"{'target':<{width}}  samples   m      R2{folds}"]
    for i, name in enumerate(names):
        more = f"  {columns['cv_r2'][i]:9.4f}" if folds else ""
        table.append(f"{name:<{width}}  {a['n_samples']:7d}  {chosen[i]:2d}  {columns['r2'][i]:6.4f}{more}")
    return table, columns


def _clusters(arrays: Arrays) -> tuple[list[str], dict[str, Any]]:
    """Return a row per cluster of a mixture, and its columns."""
    columns = {name: arrays[name] for name in ("weights", "noise_variance")}
    table = ["cluster   share   noise variance   variance along its components"]
    rows = zip(*columns.values(), arrays["explained_variance"], strict=True)
    for i, (weight, noise, variances) in enumerate(rows, start=1):
        table.append(f"{i:7d}  {weight:6.2%}  {noise:15.6g}   {'  '.join(f'{value:.6g}' for value in variances)}")
    return table, columns
