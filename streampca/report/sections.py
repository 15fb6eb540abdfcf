"""The sections of the page as plain data; the template writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streampca.report.charts import Chart, Figure, Table, curve, histogram, loadings_chart
from streampca.report.images import MAX_IMAGES, Gallery, gallery
from streampca.report.loadings import Loadings, loadings_of
from streampca.report.provenance import command_of, facts_of
from streampca.report.spectrum import component_names, spectrum_figures, spectrum_table
from streampca.results.kind import kind_of
from streampca.results.methods import methods_of
from streampca.results.schema import error_in
from streampca.results.wording import (
    at_chosen,
    capitalised,
    error_title,
    feature_noun,
    largest_error,
    missing_share,
    number,
    percent,
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
    id, title : of the link, and in the navigation.
    heading : above the section; the title by default.
    table, details : shown, and folded.
    facts : names and texts.
    command : that repeats the run.
    """

    id: str
    title: str
    text: str = ""
    heading: str = ""
    table: Table | None = None
    figures: Sequence[Figure] = ()
    details: Table | None = None
    gallery: Gallery | None = None
    components: Sequence[Component] = ()
    loadings: Loadings | None = None
    facts: Sequence[tuple[str, str]] = ()
    command: str = ""
    paragraph: str = ""
    references: Sequence[str] = ()


def sections_of(result: xarray.Dataset, table_note: str) -> list[Section]:
    """Return the sections that apply to a result, except the scores."""
    parts = [_spectrum(result), _clusters(result), _loadings(result), _fit(result), _missing(result)]
    return [section for section in [*parts, _run(result, table_note), _methods(result)] if section is not None]


def notices_of(result: xarray.Dataset) -> tuple[str, str, list[list[str]]]:
    """Return the warning in bold, its text, and the notes, those of each box."""
    a = result.attrs
    advice, head = a["advice"], "" if a["converged"] else "Not converged."
    if head and not advice:
        advice = "The computation stopped before it reached its tolerance."
    notes = [capitalised(text) for text in json.loads(a["notes"])]
    return head, advice, [notes] if len(notes) > MAX_BOXES else [[note] for note in notes]


def key_figures(result: xarray.Dataset) -> list[tuple[str, str]]:
    """Return the few numbers at the top, with their names."""
    a = result.attrs
    pairs = [("samples", f"{a['n_samples']:,}"), (feature_noun(a), f"{a['n_features']:,}")]
    for dim, noun in (("cluster", "cluster"), ("component", kind_of(a["kind"]).component)):
        if dim in result.sizes:
            pairs.append((f"{noun}s", f"{result.sizes[dim]:,}"))
    if "explained_variance_ratio" in result:
        pairs.append(("of the variance", percent(float(result["explained_variance_ratio"].values.sum()))))
    if error_in(result) is not None:
        pairs.append((f"largest {error_title(result)}", number(largest_error(result), 2)))
    if "kept_trace" in a:
        pairs.append(("of the kernel's trace kept", percent(a["kept_trace"])))
    return [*pairs, ("sweeps", f"{a['n_sweeps']:,}")]


def _spectrum(result: xarray.Dataset) -> Section | None:
    figures = spectrum_figures(result)
    if not figures:
        return None
    return Section("spectrum", "Spectrum", figures=list(figures.values()), details=spectrum_table(result))


def _clusters(result: xarray.Dataset) -> Section | None:
    """Tabulate the clusters of a mixture: share, number of samples, noise and variances."""
    if "cluster" not in result.sizes or "weights" not in result:
        return None
    count = result.sizes["cluster"]
    columns = {"": [f"Cluster {i + 1}" for i in range(count)]}
    columns["Share"] = [percent(float(share)) for share in result["weights"].values]
    if "probability" in result:
        nearest = result["probability"].argmax("cluster").values.ravel()
        columns["Samples"] = [f"{n:,}" for n in np.bincount(nearest, minlength=count)]
    columns["Noise variance"] = [f"{value:.4g}" for value in result["noise_variance"].values]
    variances = result["explained_variance"].transpose("cluster", "component").values
    columns["Variances of the components"] = [", ".join(f"{v:.4g}" for v in row[:MAX_VARIANCES]) for row in variances]
    text = "Each cluster has its own mean, components and noise; samples are counted in their most probable cluster."
    return Section("clusters", "Clusters", text, table=Table.of(columns))


def _loadings(result: xarray.Dataset) -> Section | None:
    a = result.attrs
    if "kept_trace" in a:
        trace, variance = percent(a["kept_trace"]), percent(a["kept_variance"])
        landmarks = f"{a['n_landmarks']:,} landmarks ({a['method']})"
        text = (
            f"{landmarks} keep {trace} of the kernel's trace, and {variance} or more of the variance in feature space. "
            "Kernel components have no loadings of features."
        )
        return Section("loadings", "Landmarks", text)
    if "components" not in result:
        return None
    names = component_names(result)
    images = gallery(result, names[:MAX_IMAGES])
    if images is not None:
        return Section("loadings", "Components", heading="Mean and components", gallery=images)
    loadings = loadings_of(result)
    if loadings is None:
        return None
    components = []
    for i, name in enumerate(names[: len(loadings.picks)]):
        top = [[*label.split("  "), f"{value:+.2f}".replace("-", "\u2212")] for label, value in loadings.top(i)]
        components.append(Component(name, loadings_chart(loadings, i, name), top))
    text = f"{FORMS[loadings.form]}, in units of the root mean square of all loadings of the component."
    return Section("loadings", "Loadings", text, components=components, loadings=loadings)


def _fit(result: xarray.Dataset) -> Section | None:
    """Show the curves of a fit: likelihood by iteration, criterion by number of components, cross-validation."""
    figures = []
    if "log_likelihood" in result and result["log_likelihood"].size > 1:
        figures.append(_progress(result))
    if "criterion" in result:
        figures.append(_criterion(result))
    if "cv_error" in result:
        figures += [_validation(result, i) for i in range(min(result.sizes["target"], MAX_TARGETS))]
    table = _targets(result) if "target" in result.sizes else None
    shown = [figure for figure in figures if figure is not None]
    return Section("fit", "Fit", table=table, figures=shown) if shown or table else None


def _progress(result: xarray.Dataset) -> Figure | None:
    values = result["log_likelihood"].values.astype(np.float64)
    caption = f"Log-likelihood after each iteration; it increased by {number(float(values[-1] - values[0]), 4)}."
    return curve("Progress of EM", caption, np.arange(len(values)), values, "iteration", "log-likelihood")


def _criterion(result: xarray.Dataset) -> Figure | None:
    values, candidates = (result[name].values.astype(np.float64) for name in ("criterion", "candidate"))
    best = float(candidates[np.nanargmax(values)]) if np.isfinite(values).any() else None
    rule = CRITERIA.get(str(result.attrs.get("criterion")), "criterion")
    caption = f"{capitalised(rule)}, largest at {number(best)}." if best is not None else ""
    return curve("Number of components", caption, candidates, values, "components", rule, chosen=best)


def _validation(result: xarray.Dataset, target: int) -> Figure | None:
    """Show the error of held-out samples by the number of components, for one target."""
    one = result.isel(target=target)
    m, chosen = one["m"].values.astype(np.float64), int(one["chosen"])
    band = one["cv_error_deviation"].values if "cv_error_deviation" in one else None
    name = str(one["target"].values)
    caption = f"Error of held-out samples, smallest with {chosen} components; the band is one standard error."
    error = one["cv_error"].values
    return curve(name, caption, m, error, "components", "mean squared error", chosen=chosen, deviation=band)


def _targets(result: xarray.Dataset) -> Table:
    """Tabulate the targets of a regression: number of components and R²."""
    columns = {"": [str(name) for name in result["target"].values.tolist()]}
    columns["Components"] = [f"{m}" for m in result["chosen"].values]
    for title, name in (("R²", "r2"), ("R², held out", "cv_r2")):
        if name in result:
            columns[title] = ["constant" if np.isnan(value) else f"{value:.4f}" for value in at_chosen(result, name)]
    return Table.of(columns)


def _missing(result: xarray.Dataset) -> Section:
    """Show how many values are missing, by feature and by sample."""
    a = result.attrs
    n, d, total = a["n_samples"], a["n_features"], a["n_missing"]
    if not total:
        return Section("missing", "Missing values", "No values are missing.")
    figures = []
    for name, of, noun in (("missing", n, feature_noun(a)), ("sample_missing", d, "samples")):
        if name in result:
            # Stores of version 0.7 count calls of variants that were not used, too.
            counts = np.minimum(result[name].values.ravel(), of)
            largest = percent(float(counts.max() / of))
            caption = f"{int((counts > 0).sum()):,} of {len(counts):,} {noun} have missing values; at most {largest}."
            figures.append(Figure(f"By {noun[:-1]}", caption, histogram(counts, of, "share missing", noun)))
    text = f"{total:,} of {n * d:,} values are missing, {percent(missing_share(a))}."
    return Section("missing", "Missing values", text, figures=figures)


def _run(result: xarray.Dataset, table_note: str) -> Section:
    facts, command = facts_of(result.attrs), command_of(result.attrs)
    if table_note:
        facts.append(("Table", table_note))
    text = "" if command else "The data were in memory, so no command repeats the run."
    return Section("run", "Run", text, facts=facts, command=command or "")


def _methods(result: xarray.Dataset) -> Section:
    text, references = methods_of(result)
    return Section("methods", "Methods", heading="Methods, for a paper", paragraph=text, references=references)
