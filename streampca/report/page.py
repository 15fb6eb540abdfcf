"""The report page: one HTML file that requests nothing and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.report.samples import payload, points_of
from streampca.report.sections import key_figures, notices_of, sections_of
from streampca.report.svg import frames
from streampca.results.kind import kind_of

if TYPE_CHECKING:
    import xarray

    from streampca.sources.tables import Table

SCRIPTS = ("start.js", "raster.js", "scatter.js", "selection.js", "loadings.js")
# Nothing may be loaded.
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def write_report(
    result: xarray.Dataset, out: Path, *, table: Table | None = None, colour: str | None = None, title: str = "",
    overwrite: bool = False,
) -> Path:  # fmt: skip
    """Write the report page of a result: scores, spectrum, loadings, provenance, methods; return its path.

    The page is one file and needs no network. It contains scores to one part in 65,534 of their range, of as many
    components as keep it below about 25 MB.

    Parameters
    ----------
    result : from `load`, or `result_` of a model.
    table : columns to colour samples by, in the order of the samples, from `read_table`.
    colour : the initial column; the last label of the table by default.
    title : of the page; the name of the data by default.
    """
    (path,) = text_paths(out, ("",), overwrite)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give a file name, such as study.html")
    if table is not None and "scores" not in result:
        raise InputError("the result has no scores to colour by a table; omit the table")
    page = environment().get_template("page.html").render(_context(result, table, colour, title))
    with writing_text(path) as file:
        # Plain ASCII cannot be read in a wrong encoding. Scripts and style sheets are ASCII already.
        file.write(page.encode("ascii", "xmlcharrefreplace").decode("ascii"))
    return path


@cache
def environment() -> Environment:
    """Return the templates; all values are escaped."""
    environment = Environment(
        loader=PackageLoader("streampca.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_printable,
    )  # fmt: skip
    environment.filters["frames"] = frames
    return environment


def _printable(value: Any) -> Any:
    """Replace control characters, which no document may contain."""
    return CONTROLS.sub(" ", value) if type(value) is str else value


def _context(result: xarray.Dataset, table: Table | None, colour: str | None, title: str) -> dict[str, Any]:
    """Return the values of the template."""
    a, kind = result.attrs, kind_of(result.attrs["kind"])
    source, day = a["source"], str(a.get("created", "")).partition("T")[0]
    points = points_of(result, table, kind.prefix, colour)
    sections = sections_of(result, table.note if table is not None else "")
    payloads = points.payloads if points else []
    payloads += [payload("data-loadings", json.dumps(s.loadings.texts()).encode()) for s in sections if s.loadings]
    share = result["explained_variance_ratio"].values.tolist() if "explained_variance_ratio" in result else []
    facts = {"points": points.facts if points else None, "share": share, "prefix": kind.prefix}
    script = Markup("\n".join(_asset(name) for name in SCRIPTS))  # noqa: S704
    return {
        "title": title or Path(source).name or "Result",
        "kind": kind.title,
        "subtitle": " \u00b7 ".join(filter(None, (source, day))),
        "policy": POLICY.format(script=_hash(script)),
        "style": Markup(_asset("page.css")),  # noqa: S704
        "script": script,
        "numbers": key_figures(result),
        "notices": notices_of(result),
        "points": points,
        "omitted": "; ".join(points.omitted) if points else "",
        "sections": sections,
        # JSON has no NaN.
        "facts": json.loads(json.dumps(facts), parse_constant=lambda _: None),
        "payloads": payloads,
    }


def _asset(name: str) -> str:
    return files("streampca.report").joinpath("assets", name).read_text(encoding="ascii")


def _hash(script: str) -> str:
    """Return the hash by which a Content-Security-Policy allows this script only."""
    # The text of the element is the script between two line ends, see page.html.
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
