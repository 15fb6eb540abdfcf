"""The spectrum of a result: its charts, captions and table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streampca.report.charts import MARK, Chart, certificates, reconstruction_error, scree
from streampca.results.kind import kind_of
from streampca.results.schema import certificate_method, error_in
from streampca.results.wording import capitalised, error_title, number, parameters_of, percent

if TYPE_CHECKING:
    import xarray

MAX_ROWS = 100  # of the table of components; the store has them all


def component_prefix(result: xarray.Dataset) -> str:
    """Return the name of a component before its number."""
    return kind_of(str(result.attrs["kind"])).prefix


def component_names(result: xarray.Dataset) -> list[str]:
    """Return the names of all components, those of each cluster in turn."""
    names = [f"{component_prefix(result)}{i + 1}" for i in range(result.sizes["component"])]
    if "cluster" not in result.sizes:
        return names
    return [f"cluster {cluster + 1}, {name}" for cluster in range(result.sizes["cluster"]) for name in names]


def shares(result: xarray.Dataset) -> np.ndarray:
    """Return the shares of the variance; zeros for data without variance."""
    return np.nan_to_num(result["explained_variance_ratio"].values.astype(np.float64))


def spectrum_charts(result: xarray.Dataset) -> dict[str, Chart]:
    """Return the charts "scree", "error" (J(m)) and, if components have errors, "certificates"; none without shares."""
    if "explained_variance_ratio" not in result:
        return {}
    kind, share = kind_of(str(result.attrs["kind"])), shares(result)
    charts = {"scree": scree(share, kind.prefix), "error": reconstruction_error(share)}
    error = error_in(result)
    if error is not None:
        tol = parameters_of(result.attrs).get("tol") if kind.error_tol else None
        tolerance = float(tol) if isinstance(tol, (int, float)) and tol > 0 else None
        title = error_title(result) + (", rounding not included" if error == "estimate" else "")
        charts["certificates"] = certificates(result[error].values.astype(np.float64), tolerance, kind.prefix, title)
    return charts


def spectrum_captions(result: xarray.Dataset) -> dict[str, tuple[str, str]]:
    """Return the title and the caption of each chart."""
    share, noun = shares(result), kind_of(str(result.attrs["kind"])).component
    k, total = len(share), float(share.sum())
    reached = np.flatnonzero(np.cumsum(share) >= MARK)
    subject = f"One {noun} explains" if k == 1 else f"{k:,} {noun}s explain"
    end = "less than the 90% marked"
    if len(reached):
        end = f"the first {reached[0] + 1} reach 90%" if reached[0] else "the first reaches 90%"
    rest = percent(max(0.0, 1 - total))
    captions = {
        "scree": ("Share of the variance", f"{subject} {percent(total)} of the variance; {end}."),
        "error": (
            "Reconstruction error",
            f"Squared error of the reconstruction from m {noun}s, relative to that from none; {rest} remains with {k}.",
        ),
    }
    if error_in(result) is not None:
        captions["certificates"] = (capitalised(error_title(result)), _error_caption(result))
    return captions


def _error_caption(result: xarray.Dataset) -> str:
    method = certificate_method(result.attrs)
    if method == "none":
        return "Estimate of the relative residual of each component, not a bound: rounding is not included."
    text = "Upper bound of the relative residual of each component, and of the relative error of its eigenvalue."
    return f"{text} Rounding was modelled, not measured (version 0.7)." if method == "modelled" else text


def spectrum_table(result: xarray.Dataset) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of components."""
    share, prefix = result["explained_variance_ratio"].values.astype(np.float64), component_prefix(result)
    shown = min(len(share), MAX_ROWS)
    columns = [("", [f"{prefix}{i + 1}" for i in range(shown)])]
    for name, title in (("explained_variance", "Variance"), ("eigenvalue", "Eigenvalue")):
        if name in result:
            columns.append((title, [f"{v:.6g}" for v in result[name].values[:shown]]))
    columns.append(("Share", [f"{100 * v:.3f}%" for v in share[:shown]]))
    columns.append(("Cumulative", [f"{100 * v:.3f}%" for v in np.cumsum(share)[:shown]]))
    for error, title in ((error_in(result), error_title(result)), ("estimated_error", "estimated error")):
        if error in result:
            columns.append((capitalised(title), [number(float(v), 2) for v in result[error].values[:shown]]))
    return [title for title, _ in columns], [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
