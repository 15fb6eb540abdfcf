"""The parts of a page, as markup: what the run says, the spectrum, loadings, gaps, provenance, methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.report.figures import MARK, certificates, curve, histogram, left_out, scree
from streampca.report.images import gallery
from streampca.report.loadings import Loadings
from streampca.report.markup import Html, element, joined, number, percent
from streampca.report.methods import methods_of
from streampca.report.provenance import command_of, error_title, facts_of, largest_error, parameters_of, texts_of
from streampca.results.schema import certificate_method, error_in

if TYPE_CHECKING:
    import xarray

# Rows of the table of components; the rest is in the store.
MOST_ROWS = 100
# Notes that each have a box; more share one.
APART = 3
# Targets of a regression that have a curve of their own.
MOST_TARGETS = 12


def section(name: str, title: str, *children: object, intro: str = "") -> Html:
    """Return a section with its heading."""
    lead = element("p", intro, class_="intro") if intro else Html("")
    return element("section", element("h2", title), lead, *children, id=name)


def figure(drawing: Html, title: str, caption: str) -> Html:
    """Return a drawing with its title, and what it says."""
    return element("figure", element("h3", title), drawing, element("figcaption", caption), class_="panel")


def prefix_of(result: xarray.Dataset) -> str:
    """Return what a component is called, before its number."""
    return "Factor " if result.attrs.get("kind") == "factor_analysis" else "PC"


def notes_of(result: xarray.Dataset) -> Html:
    """Return what to mind: whether it converged, advice, notes."""
    a = result.attrs
    parts = []
    if not a.get("converged", 1):
        text = str(a.get("advice") or "The computation stopped before its tolerance was met.")
        parts.append(element("div", element("b", "Not converged. "), text, class_="notice warning", role="alert"))
    elif a.get("advice"):
        parts.append(element("div", str(a["advice"]), class_="notice warning"))
    notes = [_sentence(text) for text in texts_of(a, "notes")]
    if len(notes) > APART:
        parts.append(element("ul", *(element("li", text) for text in notes), class_="notice"))
    else:
        parts += [element("div", text, class_="notice") for text in notes]
    return element("div", *parts, class_="notices") if parts else Html("")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def key_figures(result: xarray.Dataset) -> Html:
    """Return the few numbers that come first."""
    a = result.attrs
    pairs = [("samples", f"{int(a['n_samples']):,}")] if "n_samples" in a else []
    if "n_features" in a:
        pairs.append(("variants" if a.get("genotypes") else "features", f"{int(a['n_features']):,}"))
    if "component" in result.sizes:
        noun = "factors" if a.get("kind") == "factor_analysis" else "components"
        pairs.append((noun, f"{result.sizes['component']:,}"))
    if "explained_variance_ratio" in result:
        pairs.append(("of the variance", percent(float(result["explained_variance_ratio"].values.sum()))))
    if error_in(result) is not None:
        pairs.append((f"largest {error_title(result)}", number(largest_error(result), 2)))
    if "kept_trace" in a:
        pairs.append(("of the kernel's trace kept", percent(float(a["kept_trace"]))))
    if "n_sweeps" in a:
        pairs.append(("sweeps", f"{int(a['n_sweeps']):,}"))
    cells = (element("div", element("dd", value), element("dt", name)) for name, value in pairs)
    return element("dl", *cells, class_="numbers")


def spectrum(result: xarray.Dataset) -> Html:
    """Return scree, certificates, what is left out, and the table of all these."""
    if "explained_variance_ratio" not in result:
        return Html("")
    # Data that do not vary at all have no shares.
    prefix, share = prefix_of(result), np.nan_to_num(result["explained_variance_ratio"].values.astype(np.float64))
    together = float(share.sum())
    reached = np.flatnonzero(np.cumsum(share) >= MARK)
    said = f"{_count(len(share), result)} explain{'s' if len(share) == 1 else ''} {percent(together)} of the variance"
    said += f"; 90% is reached by the first {reached[0] + 1}." if len(reached) else ", less than the 90% marked."
    panels = [figure(scree(share, prefix), "Share of the variance", said)]
    error = error_in(result)
    if error is not None:
        values = result[error].values.astype(np.float64)
        own = parameters_of(result.attrs).get("tol") if result.attrs.get("kind") == "pca" else None
        tolerance = float(own) if isinstance(own, (int, float)) and own > 0 else None
        title = error_title(result)
        drawing = certificates(values, tolerance, prefix, title)
        panels.append(figure(drawing, _sentence(title), _error_caption(result)))
    kept = f"All {len(share)}" if len(share) > 1 else "It"
    text = f"Squared error of the reconstruction from m components, as a share of that from none. {kept} leave"
    text += f"{'s' if len(share) == 1 else ''} {percent(max(0.0, 1 - together))}."
    panels.append(figure(left_out(share), "Reconstruction error", text))
    return section("spectrum", "Spectrum", element("div", *panels, class_="panels"), _table(result, prefix))


def _error_caption(result: xarray.Dataset) -> str:
    method = certificate_method(result.attrs)
    if method == "none":
        return "Estimate of the relative residual of each, not a bound: rounding is not included."
    text = "Bound on the relative residual of each: the eigenvalue is off by no more than this share of itself."
    return f"{text} Rounding was modelled, not measured (version 0.7)." if method == "modelled" else text


def _count(k: int, result: xarray.Dataset) -> str:
    noun = "factor" if result.attrs.get("kind") == "factor_analysis" else "component"
    return f"One {noun}" if k == 1 else f"{k:,} {noun}s"


def _table(result: xarray.Dataset, prefix: str) -> Html:
    columns: list[tuple[str, list[str]]] = []
    share = result["explained_variance_ratio"].values.astype(np.float64)
    shown = min(len(share), MOST_ROWS)
    for name, title in (("explained_variance", "Variance"), ("eigenvalue", "Eigenvalue")):
        if name in result:
            columns.append((title, [f"{v:.6g}" for v in result[name].values[:shown]]))
    columns.append(("Share", [f"{100 * v:.3f}%" for v in share[:shown]]))
    columns.append(("Together", [f"{100 * v:.3f}%" for v in np.cumsum(share)[:shown]]))
    for error, title in ((error_in(result), error_title(result)), ("estimated_error", "error, about")):
        if error in result:
            columns.append((_sentence(title), [number(float(v), 2) for v in result[error].values[:shown]]))
    heads = element("tr", *(element("th", text, scope="col") for text in ("", *(title for title, _ in columns))))
    rows = (
        element(
            "tr", element("th", f"{prefix}{i + 1}", scope="row"), *(element("td", cells[i]) for _, cells in columns)
        )
        for i in range(shown)
    )
    table = element("table", element("thead", heads), element("tbody", *rows))
    rest = element("p", f"The first {shown} of {len(share)}.", class_="quiet") if shown < len(share) else ""
    return element(
        "details", element("summary", "All numbers"), element("div", table, class_="wide"), rest, class_="numbers-table"
    )


def loadings_section(result: xarray.Dataset, loadings: Loadings | None) -> Html:
    """Return components as images, or the place where the script draws loadings, with the largest in a table."""
    prefix, a = prefix_of(result), result.attrs
    if a.get("kind") == "kpca":
        if "kept_trace" not in a:
            return Html("")
        text = (
            f"{int(a['n_landmarks']):,} landmarks ({a.get('method')}) keep {percent(float(a['kept_trace']))} of the "
            f"kernel's trace, and {percent(float(a.get('kept_variance', float('nan'))))} of the variance in feature "
            "space or more. Kernel components have no loadings of features."
        )
        return section("loadings", "Landmarks", element("p", text))
    if "components" not in result:
        return Html("")
    images = gallery(result, prefix)
    if images is not None:
        return section("loadings", "Mean and components", images)
    if loadings is None:
        return Html("")
    names = [f"{prefix}{i + 1}" for i in range(len(loadings.picks))]
    options = (element("option", name, value=i) for i, name in enumerate(names))
    chooser = element("label", "Component ", element("select", *options, id="loading-component"), class_="control")
    what = {
        "genome": "Each dot is the largest loading in a stretch of the genome",
        "line": "Loadings along the features",
        "bars": "The features with the largest loadings",
    }[loadings.form]
    unit = "in units of the root mean square of all loadings of the component"
    drawing = element("div", id="loading-plot", class_="plot wide-plot")
    tables = [_top_table(loadings, i, name) for i, name in enumerate(names)]
    return section(
        "loadings", "Loadings", element("div", chooser, class_="controls"), drawing,
        element("p", f"{what}, {unit}.", class_="quiet"), element("div", *tables, class_="tops"),
    )  # fmt: skip


def _top_table(loadings: Loadings, component: int, name: str) -> Html:
    rows = (
        element(
            "tr",
            *(element("td", part) for part in label.split("  ")),
            element("td", f"{value:+.2f}".replace("-", "\u2212")),
        )
        for label, value in loadings.top(component)
    )
    caption = element("caption", f"Largest of {name}")
    return element(
        "div", element("table", caption, element("tbody", *rows)), class_="top wide", data_component=component,
        hidden=None if component == 0 else "",
    )  # fmt: skip


def course(result: xarray.Dataset) -> Html:
    """Return curves of a fit: likelihood by iteration, criterion by number of components, cross-validation."""
    panels = []
    if "log_likelihood" in result and result["log_likelihood"].size > 1:
        values = result["log_likelihood"].values.astype(np.float64)
        drawing = curve(np.arange(len(values)), values, "iteration", "log-likelihood")
        rise = f"It rose by {number(float(values[-1] - values[0]), 4)} in all."
        panels.append(figure(drawing, "Course of EM", f"Log-likelihood after each iteration. {rise}"))
    if "criterion" in result:
        panels.append(_criterion(result))
    if "cv_error" in result and {"target", "m"} == set(result["cv_error"].dims):
        panels += [_validation(result, i) for i in range(min(result.sizes["target"], MOST_TARGETS))]
    table = _targets(result) if {"target", "m"} <= set(result.dims) and "chosen" in result else Html("")
    return section("fit", "Fit", table, element("div", *panels, class_="panels")) if panels or table else Html("")


def _criterion(result: xarray.Dataset) -> Html:
    values, candidates = (result[name].values.astype(np.float64) for name in ("criterion", "candidate"))
    best = float(candidates[np.nanargmax(values)]) if np.isfinite(values).any() else None
    word = {"evidence": "log evidence", "bic": "BIC", "heldout": "log-likelihood of held-out values"}
    rule = word.get(str(result.attrs.get("criterion")), "criterion")
    drawing = curve(candidates, values, "components", rule, chosen=best)
    text = f"{rule[:1].upper()}{rule[1:]}, largest at {number(best)}." if best is not None else ""
    return figure(drawing, "Number of components", text)


def _validation(result: xarray.Dataset, target: int) -> Html:
    """Return the error of samples left out, by the number of components, of one target."""
    name, chosen = str(result["target"].values[target]), int(result["chosen"].values[target])
    values, m = result["cv_error"].isel(target=target).values.astype(np.float64), result["m"].values.astype(np.float64)
    wide = result["cv_error_deviation"].isel(target=target).values if "cv_error_deviation" in result else None
    drawing = curve(m, values, "components", "mean squared error", chosen=chosen, deviation=wide)
    text = f"Error of samples left out of the fit, least with {chosen} components; the band is a standard error wide."
    return figure(drawing, name, text)


def _targets(result: xarray.Dataset) -> Html:
    """Return a table of what was regressed, on how many components, and how well."""
    kept = [(title, key) for title, key in (("R²", "r2"), ("R², left out", "cv_r2")) if key in result]
    heads = element("tr", *(element("th", text, scope="col") for text in ("", "Components", *(t for t, _ in kept))))
    rows = []
    for i, (name, m) in enumerate(zip(result["target"].values.tolist(), result["chosen"].values.tolist(), strict=True)):
        values = (float(result[key].isel(target=i, m=int(m))) for _, key in kept)
        cells = ("does not vary" if np.isnan(value) else f"{value:.4f}" for value in values)
        rows.append(element("tr", element("th", name, scope="row"), *(element("td", c) for c in (f"{int(m)}", *cells))))
    return element("div", element("table", element("thead", heads), element("tbody", *rows)), class_="wide before")


def missingness(result: xarray.Dataset) -> Html:
    """Return how many values are missing, by feature and by sample."""
    a = result.attrs
    n, d = int(a.get("n_samples", 0)), int(a.get("n_features", 0))
    total = int(a.get("n_missing", 0))
    what = "variants" if a.get("genotypes") else "features"
    if not total:
        return section("missing", "Missing values", element("p", "No values are missing."))
    panels = []
    if "missing" in result and n:
        counts = result["missing"].values.ravel()
        share = counts / n
        text = (
            f"{int((share > 0).sum()):,} of {len(share):,} {what} miss values; at most {percent(float(share.max()))}."
        )
        panels.append(figure(histogram(counts, n, "share missing", what), f"By {what[:-1]}", text))
    if "sample_missing" in result and d:
        counts = result["sample_missing"].values.ravel()
        share = counts / d
        text = (
            f"{int((share > 0).sum()):,} of {len(share):,} samples miss values; at most {percent(float(share.max()))}."
        )
        panels.append(figure(histogram(counts, d, "share missing", "samples"), "By sample", text))
    intro = f"{total:,} of {n * d:,} values are missing, {percent(total / max(1, n * d))}."
    return section("missing", "Missing values", element("div", *panels, class_="panels"), intro=intro)


def _copy(target: str) -> Html:
    return element("button", "Copy", type="button", class_="copy", data_copy=target)


def run_section(result: xarray.Dataset, table_note: str) -> Html:
    """Return what the run took, and the command to repeat it."""
    pairs = facts_of(result.attrs)
    if table_note:
        pairs.append(("Table", table_note))
    facts = element("dl", *(element("div", element("dt", n), element("dd", t)) for n, t in pairs), class_="facts")
    command = command_of(result.attrs)
    if command is None:
        again: Any = element("p", "The data were in memory, so that no command repeats the run.", class_="quiet")
    else:
        shown = element("pre", element("code", command, id="command"))
        again = element(
            "div", element("h3", "To make it again"), element("div", shown, _copy("command"), class_="code")
        )
    return section("run", "Run", facts, again)


def methods_section(result: xarray.Dataset) -> Html:
    """Return the paragraph for a paper, and its references."""
    paragraph, references = methods_of(result)
    listed = element("ol", *(element("li", text) for text in references), class_="references") if references else ""
    text = element("div", element("p", paragraph), listed, id="methods-text", class_="prose")
    return section("methods", "Methods, for a paper", element("div", text, _copy("methods-text"), class_="code"))


def navigation(parts: list[tuple[str, str, Html]]) -> Html:
    """Return links to the sections that are there."""
    return joined(element("a", title, href=f"#{name}") for name, title, content in parts if content)
