"""The spectrum of a result: its figures and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.report.charts import MARK, Figure, Table, certificates, reconstruction_error, scree
from streampca.results.kind import kind_of
from streampca.results.schema import error_in
from streampca.results.wording import CERTIFIED_BY, capitalised, error_title, number, parameters_of, percent
from streampca.solvers.noise import LEVEL, is_noise

if TYPE_CHECKING:
    import xarray

MAX_ROWS = 100  # of the table of components; the store has them all


def component_names(result: xarray.Dataset) -> list[str]:
    """Return the names of all components, those of each cluster in turn."""
    names = [f"{kind_of(result.attrs['kind']).prefix}{i + 1}" for i in range(result.sizes["component"])]
    if "cluster" not in result.sizes:
        return names
    return [f"cluster {cluster + 1}, {name}" for cluster in range(result.sizes["cluster"]) for name in names]


def spectrum_figures(result: xarray.Dataset) -> dict[str, Figure]:
    """Return the figures "scree", "certificates" (if components have errors) and "error"; none without shares."""
    if "explained_variance_ratio" not in result:
        return {}
    # Data without variance have no shares.
    share = np.nan_to_num(result["explained_variance_ratio"].values.astype(np.float64))
    kind = kind_of(result.attrs["kind"])
    tested = _tested(result)
    text = _share_text(share, kind.component, bool(tested)) + _noise_text(tested, kind.component)
    figures = {"scree": Figure("Share of the variance", text, scree(share, kind.prefix, **tested))}
    if error_in(result) is not None:
        figures["certificates"] = _error_figure(result, kind.prefix)
    k, rest = len(share), percent(max(0.0, 1 - float(share.sum())))
    text = f"Squared error of the reconstruction from m {kind.component}s, relative to that from none"
    figures["error"] = Figure("Reconstruction error", f"{text}; {rest} remains with {k}.", reconstruction_error(share))
    return figures


def _tested(result: xarray.Dataset) -> dict[str, Any]:
    """Return the edge of the noise, as a share, and the p-values; nothing if components were not tested."""
    edge, total = result.attrs.get("noise_edge"), result.attrs.get("total_variance")
    if edge is None or not np.isfinite(edge) or not total:
        return {}
    return {"edge": float(edge) / float(total), "p_value": result["p_value"].values.astype(np.float64)}


def _share_text(share: Array, noun: str, tested: bool) -> str:
    """State the share of all components, and how many reach 90% if that is marked."""
    reached = np.flatnonzero(np.cumsum(share) >= MARK)
    subject = f"One {noun} explains" if len(share) == 1 else f"{len(share):,} {noun}s explain"
    end = "" if tested else "; less than the 90% marked"
    if len(reached):
        end = f"; the first {reached[0] + 1} reach 90%" if reached[0] else "; the first reaches 90%"
    return f"{subject} {percent(float(share.sum()))} of the variance{end}."


def _noise_text(tested: dict[str, Any], noun: str) -> str:
    """State how many components can be distinguished from noise."""
    if not tested:
        return ""
    noise = is_noise(tested["p_value"])
    real = len(noise) - int(noise.sum())
    found = {0: f"No {noun}", 1: "The first", len(noise): f"Each {noun}"}.get(real, f"The first {real}")
    return f" {found} can be distinguished from noise (Tracy-Widom test, p ≤ {LEVEL:g})."


def _error_figure(result: xarray.Dataset, prefix: str) -> Figure:
    """Return the figure of certificates or estimates, with `tol` if it limits them."""
    title, method = error_title(result), result.attrs.get("certificate_method")
    tol = parameters_of(result.attrs).get("tol") if "solver" in result.attrs else None
    tolerance = float(tol) if isinstance(tol, (int, float)) and tol > 0 else None
    text = "Upper bound of the relative residual of each component, and of the relative error of its eigenvalue."
    if method == "none":
        text = "Estimate of the relative residual of each component, not a bound."
    if method in ("none", "modelled"):
        text += f" {capitalised(CERTIFIED_BY[method])}."
    axis = f"{title}, rounding not included" if method == "none" else title
    values = result[error_in(result)].values.astype(np.float64)
    return Figure(capitalised(title), text, certificates(values, tolerance, prefix, axis))


def spectrum_table(result: xarray.Dataset) -> Table:
    """Return the table of components: variance, share and errors."""
    share = result["explained_variance_ratio"].values.astype(np.float64)
    columns = {"": component_names(result)}
    for name, title in (("explained_variance", "Variance"), ("eigenvalue", "Eigenvalue")):
        if name in result:
            columns[title] = [f"{v:.6g}" for v in result[name].values]
    columns["Share"] = [f"{100 * v:.3f}%" for v in share]
    columns["Cumulative"] = [f"{100 * v:.3f}%" for v in np.cumsum(share)]
    for error, title in ((error_in(result), error_title(result)), ("estimated_error", "estimated error")):
        if error in result:
            columns[capitalised(title)] = [number(float(v), 2) for v in result[error].values]
    for name, title in (("p_value", "p-value"), ("squared_cosine", "Squared cosine")):
        if name in result:
            columns[title] = [number(float(v), 2) for v in result[name].values]
    note = f"The first {MAX_ROWS} of {len(share)}." if len(share) > MAX_ROWS else ""
    return Table.of(columns, note, MAX_ROWS)
