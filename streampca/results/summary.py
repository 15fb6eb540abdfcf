"""Summaries of results, for the terminal and as JSON: one function per family of models.

Each takes the arrays of a result by name and its attributes, and returns a table, lines about the fit, and the same as
plain values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.results.schema import ERROR_NOTES, certificate_method, error_in
from streampca.sweep.memory import show_bytes

COLUMNS = ("explained_variance", "explained_variance_ratio")
# Attributes of all kinds that JSON summaries have.
FACTS = ("kind", "source", "n_samples", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes", "advice")

Arrays = Mapping[str, Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Summary:
    """A result in short.

    Attributes
    ----------
    table, lines : header and rows of the table, and what follows it.
    facts : attributes and columns, as JSON has them.
    """

    table: list[str]
    lines: list[str]
    facts: dict[str, Any]


def notes_of(a: Attributes) -> list[str]:
    """Return advice and notes of a result."""
    return [*filter(None, [a["advice"]]), *json.loads(a.get("notes", "[]"))]


def _cost(a: Attributes, what: str) -> str:
    """Return the line on sweeps, bytes and time."""
    read, peak = show_bytes(a["bytes_read"]), show_bytes(a["peak_memory_bytes"])
    return f"{what}, {read} read, {a['seconds']:.1f} s, peak memory {peak}"


def _facts(a: Attributes, names: tuple[str, ...], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes and columns for JSON, which has neither NaN nor infinity."""
    facts = {name: a[name] for name in (*FACTS, *names) if name in a}
    facts |= {"converged": bool(a["converged"]), "notes": json.loads(a.get("notes", "[]"))}
    return facts | {name: _plain(values) for name, values in columns.items()}


def _plain(values: Any) -> list[Any]:
    listed: list[Any] = np.asarray(values).tolist()
    return [None if isinstance(value, float) and not np.isfinite(value) else value for value in listed]


def _component_table(label: str, columns: Mapping[str, Any], others: Mapping[str, str]) -> list[str]:
    """Return header and rows of components: variance, its share, the cumulative share, and other columns."""
    widths = {name: max(11, len(title)) for name, title in others.items()}
    titles = "".join(f"  {title:>{widths[name]}}" for name, title in others.items())
    lines, total = [f"{label}    share  cumulative{titles}"], 0.0
    for i, (value, share) in enumerate(zip(*(columns[name] for name in COLUMNS), strict=True)):
        total += share
        more = "".join(f"  {columns[name][i]:{widths[name]}.1e}" for name in others)
        lines.append(f"{i + 1:3d}  {value:12.6g}  {share:7.2%}  {total:10.2%}{more}")
    return lines


def _errors(arrays: Arrays) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the column of certificates or estimates, if there is one, and its title."""
    error = error_in(arrays)
    return ({}, {}) if error is None else ({error: arrays[error]}, {error: error})


def _error_note(a: Attributes) -> list[str]:
    note = ERROR_NOTES.get(str(certificate_method(a)))
    return [] if note is None else [note]


def linear(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise principal components; genotypes have the eigenvalues of X X' / m."""
    errors, titles = _errors(arrays)
    columns = {name: arrays[name] for name in COLUMNS} | errors
    facts = _facts(a, ("solver", "total_variance"), columns) | {"certificate_method": certificate_method(a)}
    lines = _error_note(a)
    warm = " after a warm start on a tenth of the data" if a.get("warm_start_seconds") else ""
    lines.append(_cost(a, f"{a['solver']}: {a['n_sweeps']} sweeps{warm}"))
    shown = columns
    if "eigenvalue" in arrays:
        facts["eigenvalue"] = _plain(arrays["eigenvalue"])
        shown = columns | {"explained_variance": arrays["eigenvalue"]}
        count = f"{a['n_samples']} samples, {a['n_features']} variants"
        lines.append(f"{count}; eigenvalues of X X' / m for m variants, as in plink")
    return Summary(_component_table(" PC    eigenvalue", shown, titles), lines, facts)


def latent(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise probabilistic PCA and factor analysis."""
    errors, titles = _errors(arrays)
    columns = {name: arrays[name] for name in COLUMNS} | errors
    names = ("n_features", "method", "total_log_likelihood", "n_missing", "n_iterations", "change", "noise_variance")
    facts = _facts(a, (*names, "criterion"), columns)
    if errors:
        facts["certificate_method"] = certificate_method(a)
    noise = f"noise variance {a['noise_variance']:.6g}, " if "noise_variance" in a else ""
    per_sample = a["total_log_likelihood"] / a["n_samples"]
    share = a["n_missing"] / (a["n_samples"] * a["n_features"])
    steps = f"EM, {a['n_iterations']} iterations" if a["method"] == "em" else "closed form"
    lines = [
        *(_error_note(a) if errors else []),
        f"{noise}log-likelihood {a['total_log_likelihood']:.10g}, {per_sample:.6g} per sample",
        f"{a['n_samples']} samples x {a['n_features']} features, {share:.3%} missing",
        _cost(a, f"{steps}: {a['n_sweeps']} sweeps in all"),
    ]
    return Summary(_component_table("  i      variance", columns, titles), lines, facts)


def kernel(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise kernel components and what the landmarks keep."""
    titles = {"certificate": "certificate", "estimated_error": "error, about"}
    columns = {name: arrays[name] for name in (*COLUMNS, *titles)}
    names = (
        "n_features", "kernel", "gamma", "degree", "coef0", "method", "n_landmarks", "kept_trace", "kept_variance",
        "total_variance",
    )  # fmt: skip
    size = f"{a['n_samples']} samples x {a['n_features']} features"
    lines = [_kernel_line(a), _cost(a, f"{size}: {a['n_sweeps']} sweeps in all")]
    return Summary(_component_table("  i      variance", columns, titles), lines, _facts(a, names, columns))


def _kernel_line(a: Attributes) -> str:
    """Return one line on kernel and landmarks."""
    shown = str(a["kernel"])
    if a["kernel"] not in ("linear", "cosine"):
        shown += f", gamma {a['gamma']:.6g}"
    if a["kernel"] in ("poly", "sigmoid"):
        shown += f", coef0 {a['coef0']:g}" + (f", degree {a['degree']:g}" if a["kernel"] == "poly" else "")
    if a["method"] == "fourier":
        return f"{shown}: {a['n_landmarks']} random Fourier features"
    if a["method"] == "exact":
        return f"{shown}: all samples are landmarks, exact"
    return (
        f"{shown}: {a['n_landmarks']} landmarks ({a['method']}) keep {a['kept_trace']:.2%} of the kernel's trace, at "
        f"least {a['kept_variance']:.2%} of the variance"
    )


def regression(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise a principal component regression: a row per target."""
    names, chosen = [str(name) for name in arrays["target"]], np.asarray(arrays["chosen"])

    def at_chosen(name: str) -> Any:
        return np.take_along_axis(np.asarray(arrays[name]), chosen[:, None], axis=1)[:, 0]

    columns: dict[str, Any] = {"target": names, "n_components": chosen, "r2": at_chosen("r2")}
    if "cv_r2" in arrays:
        columns |= {"cv_r2": at_chosen("cv_r2"), "cv_mse": at_chosen("cv_error")}
    width = max(6, *(len(name) for name in names))
    folds = f"  {a['n_folds']}-fold R2" if "cv_r2" in columns else ""
    table = [f"{'target':<{width}}  samples   m      R2{folds}"]
    for i, name in enumerate(names):
        more = f"  {columns['cv_r2'][i]:9.4f}" if folds else ""
        table.append(f"{name:<{width}}  {a['n_samples']:7d}  {chosen[i]:2d}  {columns['r2'][i]:6.4f}{more}")
    lines = [_cost(a, f"{a['solver']}: {a['n_sweeps']} sweeps for all folds")]
    return Summary(table, lines, _facts(a, ("n_features", "n_folds", "solver"), columns))


def dual(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise dual probabilistic PCA: its principal components, noise and likelihood."""
    found = linear(arrays, a)
    noise = f"noise variance {a['noise_variance']:.6g}, log-likelihood {a['total_log_likelihood']:.10g} of all features"
    facts = {name: a[name] for name in ("noise_variance", "total_log_likelihood")}
    return Summary(found.table, [noise, *found.lines], found.facts | facts)


def mixture(arrays: Arrays, a: Attributes) -> Summary:
    """Summarise a mixture: a row per cluster."""
    weights, noise = np.asarray(arrays["weights"]), np.asarray(arrays["noise_variance"])
    variances = np.asarray(arrays["explained_variance"])
    table = ["cluster   share   noise variance   variance along its components"]
    for i, (weight, own, values) in enumerate(zip(weights, noise, variances, strict=True), start=1):
        table.append(f"{i:7d}  {weight:6.2%}  {own:15.6g}   {'  '.join(f'{value:.6g}' for value in values)}")
    per_sample = a["total_log_likelihood"] / a["n_samples"]
    lines = [
        f"log-likelihood {a['total_log_likelihood']:.10g}, {per_sample:.6g} per sample",
        _cost(a, f"EM, {a['n_iterations']} iterations: {a['n_sweeps']} sweeps in all"),
    ]
    columns = {"weights": weights, "noise_variance": noise}
    facts = _facts(a, ("n_features", "n_iterations", "total_log_likelihood"), columns)
    return Summary(table, lines, facts | {"explained_variance": variances.tolist()})
