"""The sections of the page as plain data; the template writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streampca.report.charts import Chart, curve, histogram, loadings_chart
from streampca.report.images import MAX_IMAGES, Gallery, gallery
from streampca.report.loadings import Loadings, loadings_of
from streampca.report.provenance import command_of, facts_of
from streampca.report.spectrum import MAX_ROWS, component_names, spectrum_captions, spectrum_charts, spectrum_table
from streampca.results.kind import kind_of
from streampca.results.methods import methods_of
from streampca.results.schema import error_in
from streampca.results.wording import (
    capitalised,
    error_title,
    feature_noun,
    largest_error,
    missing_share,
    number,
    percent,
    texts_of,
)

if TYPE_CHECKING:
    import xarray

MAX_BOXES = 3  # notes with a box each; more share one
MAX_VARIANCES = 5  # of a cluster in the table
MAX_TARGETS = 12  # targets of a regression with a curve each
CRITERIA = {"evidence": "log evidence", "bic": "BIC", "heldout": "log-likelihood of held-out values"}
FORMS = {
    "genome": "Each dot is the largest loading in a bin along the genome",
    "line": "Loadings along the features",
    "bars": "The features with the largest loadings",
}


@dataclass(frozen=True)
class Figure:
    """A chart with its title and caption."""

    title: str
    caption: str
    chart: Chart


@dataclass(frozen=True)
class Table:
    """Heads and rows of text; the first cell of a row is its head."""

    heads: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True)
class Component:
    """The chart and the largest loadings of a component: cells of the label, and the value."""

    name: str
    chart: Chart
    top: list[list[str]]


@dataclass(frozen=True)
class Section:
    """A section; empty parts are not shown.

    Attributes
    ----------
    id, title, heading : of the link, in the navigation, and above the section.
    table, details : shown, and folded.
    facts : names and texts.
    command : that repeats the run.
    """

    id: str
    title: str
    heading: str
    text: str = ""
    table: Table | None = None
    figures: list[Figure] = field(default_factory=list)
    details: Table | None = None
    gallery: Gallery | None = None
    components: list[Component] = field(default_factory=list)
    loadings: Loadings | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    command: str = ""
    paragraph: str = ""
    references: list[str] = field(default_factory=list)


def sections_of(result: xarray.Dataset, table_note: str) -> list[Section]:
    """Return the sections that apply to a result, except the scores."""
    parts = [
        _spectrum(result),
        _clusters(result),
        _loadings(result),
        _fit(result),
        _missing(result),
        _run(result, table_note),
        _methods(result),
    ]
    return [section for section in parts if section is not None]


def notices_of(result: xarray.Dataset) -> tuple[str, str, list[list[str]]]:
    """Return the warning in bold, its text, and the notes, those of each box."""
    a = result.attrs
    advice = str(a.get("advice", ""))
    head = "" if a.get("converged", 1) else "Not converged."
    if head and not advice:
        advice = "The computation stopped before it reached its tolerance."
    notes = [capitalised(text) for text in texts_of(a.get("notes"))]
    return head, advice, [notes] if len(notes) > MAX_BOXES else [[note] for note in notes]


def key_figures(result: xarray.Dataset) -> list[tuple[str, str]]:
    """Return the few numbers at the top, with their names."""
    a = result.attrs
    pairs = [("samples", f"{int(a.get('n_samples', 0)):,}"), (feature_noun(a), f"{int(a.get('n_features', 0)):,}")]
    for dim, noun in (("cluster", "cluster"), ("component", kind_of(str(a["kind"])).component)):
        if dim in result.sizes:
            pairs.append((f"{noun}s", f"{result.sizes[dim]:,}"))
    if "explained_variance_ratio" in result:
        pairs.append(("of the variance", percent(float(result["explained_variance_ratio"].values.sum()))))
    if error_in(result) is not None:
        pairs.append((f"largest {error_title(result)}", number(largest_error(result), 2)))
    if "kept_trace" in a:
        pairs.append(("of the kernel's trace kept", percent(float(a["kept_trace"]))))
    if "n_sweeps" in a:
        pairs.append(("sweeps", f"{int(a['n_sweeps']):,}"))
    return pairs


def _spectrum(result: xarray.Dataset) -> Section | None:
    if "explained_variance_ratio" not in result:
        return None
    charts, captions = spectrum_charts(result), spectrum_captions(result)
    order = [name for name in ("scree", "certificates", "error") if name in charts]
    heads, rows = spectrum_table(result)
    k = result.sizes["component"]
    note = f"The first {MAX_ROWS} of {k}." if k > MAX_ROWS else ""
    figures = [Figure(*captions[name], charts[name]) for name in order]
    return Section("spectrum", "Spectrum", "Spectrum", figures=figures, details=Table(heads, rows, note))


def _clusters(result: xarray.Dataset) -> Section | None:
    """Tabulate the clusters of a mixture: share, number of samples, noise and variances."""
    if "cluster" not in result.sizes or "weights" not in result:
        return None
    columns = {"Share": [percent(float(share)) for share in result["weights"].values]}
    if "probability" in result:
        nearest = result["probability"].argmax("cluster").values.ravel()
        columns["Samples"] = [f"{n:,}" for n in np.bincount(nearest, minlength=result.sizes["cluster"])]
    columns["Noise variance"] = [f"{value:.4g}" for value in result["noise_variance"].values]
    variances = result["explained_variance"].transpose("cluster", "component").values
    columns["Variances of the components"] = [", ".join(f"{v:.4g}" for v in row[:MAX_VARIANCES]) for row in variances]
    rows = [[f"Cluster {i + 1}", *cells] for i, cells in enumerate(zip(*columns.values(), strict=True))]
    text = "Each cluster has its own mean, components and noise; samples are counted in their most probable cluster."
    return Section("clusters", "Clusters", "Clusters", text, table=Table(["", *columns], rows))


def _loadings(result: xarray.Dataset) -> Section | None:
    a = result.attrs
    if "kept_trace" in a:
        trace, variance = (percent(float(a[name])) for name in ("kept_trace", "kept_variance"))
        landmarks = f"{int(a['n_landmarks']):,} landmarks ({a.get('method')})"
        text = (
            f"{landmarks} keep {trace} of the kernel's trace, and {variance} or more of the variance in feature space. "
            "Kernel components have no loadings of features."
        )
        return Section("loadings", "Landmarks", "Landmarks", text)
    if "components" not in result:
        return None
    names = component_names(result)
    images = gallery(result, names[:MAX_IMAGES])
    if images is not None:
        return Section("loadings", "Components", "Mean and components", gallery=images)
    loadings = loadings_of(result)
    if loadings is None:
        return None
    components = []
    for i, name in enumerate(names[: len(loadings.picks)]):
        top = [[*label.split("  "), f"{value:+.2f}".replace("-", "\u2212")] for label, value in loadings.top(i)]
        components.append(Component(name, loadings_chart(loadings, i, name), top))
    text = f"{FORMS[loadings.form]}, in units of the root mean square of all loadings of the component."
    return Section("loadings", "Loadings", "Loadings", text, components=components, loadings=loadings)


def _fit(result: xarray.Dataset) -> Section | None:
    """Show the curves of a fit: likelihood by iteration, criterion by number of components, cross-validation."""
    figures = []
    if "log_likelihood" in result and result["log_likelihood"].size > 1:
        values = result["log_likelihood"].values.astype(np.float64)
        rise = number(float(values[-1] - values[0]), 4)
        chart = curve(np.arange(len(values)), values, "iteration", "log-likelihood")
        figures.append(("Progress of EM", f"Log-likelihood after each iteration; it increased by {rise}.", chart))
    if "criterion" in result:
        figures.append(_criterion(result))
    if "cv_error" in result and {"target", "m"} == set(result["cv_error"].dims):
        figures += [_validation(result, i) for i in range(min(result.sizes["target"], MAX_TARGETS))]
    table = _targets(result) if {"target", "m"} <= set(result.dims) and "chosen" in result else None
    shown = [Figure(title, caption, chart) for title, caption, chart in figures if chart is not None]
    return Section("fit", "Fit", "Fit", table=table, figures=shown) if shown or table else None


def _criterion(result: xarray.Dataset) -> tuple[str, str, Chart | None]:
    values, candidates = (result[name].values.astype(np.float64) for name in ("criterion", "candidate"))
    best = float(candidates[np.nanargmax(values)]) if np.isfinite(values).any() else None
    rule = CRITERIA.get(str(result.attrs.get("criterion")), "criterion")
    caption = f"{capitalised(rule)}, largest at {number(best)}." if best is not None else ""
    return "Number of components", caption, curve(candidates, values, "components", rule, chosen=best)


def _validation(result: xarray.Dataset, target: int) -> tuple[str, str, Chart | None]:
    """Show the error of held-out samples by the number of components, for one target."""
    name, chosen = str(result["target"].values[target]), int(result["chosen"].values[target])
    values, m = result["cv_error"].isel(target=target).values.astype(np.float64), result["m"].values.astype(np.float64)
    band = result["cv_error_deviation"].isel(target=target).values if "cv_error_deviation" in result else None
    caption = f"Error of held-out samples, smallest with {chosen} components; the band is one standard error."
    return name, caption, curve(m, values, "components", "mean squared error", chosen=chosen, deviation=band)


def _targets(result: xarray.Dataset) -> Table:
    """Tabulate the targets of a regression: number of components and R²."""
    scores = [(title, key) for title, key in (("R²", "r2"), ("R², held out", "cv_r2")) if key in result]
    rows = []
    for i, (name, m) in enumerate(zip(result["target"].values.tolist(), result["chosen"].values.tolist(), strict=True)):
        values = (float(result[key].isel(target=i, m=int(m))) for _, key in scores)
        rows.append([str(name), f"{int(m)}", *("constant" if np.isnan(v) else f"{v:.4f}" for v in values)])
    return Table(["", "Components", *(title for title, _ in scores)], rows)


def _missing(result: xarray.Dataset) -> Section:
    """Show how many values are missing, by feature and by sample."""
    a = result.attrs
    n, d, total = (int(a.get(name, 0)) for name in ("n_samples", "n_features", "n_missing"))
    if not total:
        return Section("missing", "Missing values", "Missing values", "No values are missing.")
    figures = []
    for name, of, noun in (("missing", n, feature_noun(a)), ("sample_missing", d, "samples")):
        if name in result and of:
            counts = result[name].values.ravel()
            largest = percent(float(counts.max() / of))
            caption = f"{int((counts > 0).sum()):,} of {len(counts):,} {noun} have missing values; at most {largest}."
            figures.append(Figure(f"By {noun[:-1]}", caption, histogram(counts, of, "share missing", noun)))
    text = f"{total:,} of {n * d:,} values are missing, {percent(missing_share(a))}."
    return Section("missing", "Missing values", "Missing values", text, figures=figures)


def _run(result: xarray.Dataset, table_note: str) -> Section:
    facts = facts_of(result.attrs)
    if table_note:
        facts.append(("Table", table_note))
    command = command_of(result.attrs)
    text = "" if command else "The data were in memory, so no command repeats the run."
    return Section("run", "Run", "Run", text, facts=facts, command=command or "")


def _methods(result: xarray.Dataset) -> Section:
    text, references = methods_of(result)
    return Section("methods", "Methods", "Methods, for a paper", paragraph=text, references=references)
