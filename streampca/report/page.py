"""One page of its own: no part of it comes from elsewhere, and nothing in it is run but its own script."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.report.data import points_of
from streampca.report.images import image_dims
from streampca.report.loadings import loadings_of
from streampca.report.markup import Html, as_json, element, escaped, filled, payload
from streampca.report.provenance import KINDS
from streampca.report.sections import (
    course,
    key_figures,
    loadings_section,
    methods_section,
    missingness,
    navigation,
    notes_of,
    prefix_of,
    run_section,
    spectrum,
)

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

SCRIPTS = ("start.js", "raster.js", "scatter.js", "selection.js", "loadings.js")
# The first is what may be loaded at all: nothing.
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(
    result: xarray.Dataset, out: Path, *, table: Table | None = None, colour: str | None = None, title: str = "",
    overwrite: bool = False,
) -> Path:  # fmt: skip
    """Write a page about a result: scores to look at, spectrum, loadings, provenance, methods; returns its path.

    The page is one file, which asks for nothing from anywhere. It holds scores to one part in 65,534 of their range, of
    as many components as keep it below some 25 MB; the result keeps them all in full precision.

    Parameters
    ----------
    result : as `load` gives it, or `result_` of a model.
    out : where to.
    table : columns to colour samples by, in the order of the samples, as `read_table` gives them.
    colour : the column to begin with; a label of the table unless given.
    title : at the head of the page; the name of the data unless given.
    """
    (path,) = text_paths(out, ("",), overwrite)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the name of a page, as study.html")
    if table is not None and "scores" not in result:
        raise InputError("the result holds no scores, so that a table of samples has nothing to colour; leave it out")
    parts = page_parts(result, table, colour, title)
    with writing_text(path) as file:
        file.write(filled(_asset("page.html"), parts))
    return path


def page_parts(
    result: xarray.Dataset, table: Table | None = None, colour: str | None = None, title: str = ""
) -> dict[str, str]:
    """Return what goes into the template."""
    prefix = prefix_of(result)
    points = points_of(result, table, prefix, colour)
    dims = tuple(str(dim) for dim in result["mean"].dims) if "mean" in result else ()
    images = "components" not in result or image_dims(dims, tuple(result.sizes[dim] for dim in dims)) is not None
    loadings = None if images else loadings_of(result)
    share = result["explained_variance_ratio"].values.tolist() if "explained_variance_ratio" in result else []
    facts = {"points": points.facts if points else None, "share": share, "prefix": prefix}
    elements = list(points.elements) if points else []
    if loadings is not None:
        elements.append(payload("data-loadings", as_json(loadings.facts()).encode()))
    a = result.attrs
    heading = title or Path(str(a.get("source", ""))).name or "Result"
    shown = [
        ("spectrum", "Spectrum", spectrum(result)),
        ("loadings", "Loadings", loadings_section(result, loadings)),
        ("fit", "Fit", course(result)),
        ("missing", "Missing values", missingness(result)),
        ("run", "Run", run_section(result, table.note if table is not None else "")),
        ("methods", "Methods", methods_section(result)),
    ]
    scores = Html(_asset("scores.html")) if points else Html("")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return {
        "title": escaped(heading),
        "kind": escaped(KINDS.get(str(a.get("kind")), "Principal components")),
        "subtitle": _subtitle(str(a.get("source", "")), str(a.get("created", ""))),
        "policy": escaped(POLICY.format(script=_hash(script))),
        "style": _asset("page.css"),
        "navigation": navigation([("scores", "Scores", scores), *shown]),
        "notices": notes_of(result),
        "numbers": key_figures(result),
        "scores": filled(scores, {"caption": _left_out(points.left_out if points else [])}),
        "sections": "\n".join(content for _, _, content in shown),
        "facts": as_json(facts),
        "payloads": "\n".join(elements),
        "script": script,
        "footer": escaped("Made by streampca. This page asks for nothing from the network."),
    }


def _subtitle(source: str, created: str) -> Html:
    day = created.partition("T")[0]
    return element("p", source, " · " if source and day else "", day, class_="subtitle")


def _left_out(left: list[str]) -> Html:
    text = "Scores are drawn to one part in 65,534 of their range; the result store holds them in full."
    return escaped(f"{text} Not in this page: {'; '.join(left)}." if left else text)


def _asset(name: str) -> str:
    return files("streampca.report").joinpath("assets", name).read_text(encoding="ascii")


def _hash(script: str) -> str:
    """Return what allows this script and no other, as a Content-Security-Policy names it."""
    # The element's text is the script between two ends of line; see page.html.
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
