"""View a stored result: the report page, printed figures, and pictures of denoised samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError
from streampca.report import check_picture as check_picture
from streampca.report import draw_figure, write_report
from streampca.report.images import image_rows
from streampca.report.printing import draw_items
from streampca.report.samples import columns_of
from streampca.results.kind import kind_names
from streampca.results.output import kind_at
from streampca.results.store import load_within
from streampca.run.apply import ApplyTask
from streampca.run.config.blocks import Data
from streampca.sources import open_source
from streampca.sources.tables import Table, labels_of
from streampca.sweep.memory import COMMAND_BASELINE, DRAWING_BYTES, Budget, check_fits, show_bytes

if TYPE_CHECKING:
    import xarray

# Samples of a picture.
PICTURED = 10


def write_page(
    result: str, out: Path, *, labels: str | None, title: str, overwrite: bool, memory: str | None = None
) -> list[str]:
    """Write the report page of a result; return notes on the sample table."""
    fitted = load_within(result, memory, "the report")
    table, names = labels_of(fitted, labels)
    write_report(fitted, out, table=table, colour=next(iter(names), None), title=title, overwrite=overwrite)
    if table is None:
        return []
    shown = {column.name for column in columns_of(fitted, table, len(table.found))[0]}
    unused = f"note: {names[0]} colours nothing: it is constant, or differs for nearly all samples" if names else ""
    return [table.note, *([unused] if names and names[0] not in shown else [])]


def describe(data: Data, memory: str | None = None) -> dict[str, Any] | None:
    """Return the layout of data; None if the path is a result."""
    if kind_at(Path(data.path)) in kind_names():
        return None
    check_fits(0, Budget.of(memory, COMMAND_BASELINE), "the description")
    source = open_source(data.path, sample_dims=data.sample_dims, **data.reading)
    return {
        "source": source.name,
        "samples": f"{source.shape[0]} ({', '.join(source.samples.dims)})",
        "features": f"{source.shape[1]} ({', '.join(source.features.dims)})",
        "type": str(source.dtype),
        "size": show_bytes(source.n_bytes),
        "chunks": f"{source.chunks[0]} x {source.chunks[1]}",
        "fingerprint": source.fingerprint(),
        "shape": list(source.shape),
        "n_bytes": source.n_bytes,
    }


def draw(
    result: str, figure: str, out: Path, *, labels: str | None, pair: tuple[int, int], overwrite: bool,
    memory: str | None = None,
) -> None:  # fmt: skip
    """Draw a figure of a result to a file."""
    check_picture(out)
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists already; choose another --out or add --overwrite")
    fitted = load_within(result, memory, "the figure", libraries=DRAWING_BYTES)
    table, names = labels_of(fitted, labels)
    name, values = _column(fitted, table, names)
    draw_figure(fitted, figure, out, values=values, name=name, pair=pair)


def _column(result: xarray.Dataset, table: Table | None, names: list[str]) -> tuple[str, Any]:
    """Return name and values of the column that samples are coloured by; nothing if there is none."""
    if table is not None:
        texts = [name for name, values in table.columns.items() if values.dtype.kind not in "fM"]
        name = (names or texts[-1:] or list(table.columns)[-1:] or [""])[0]
        return name, table.columns.get(name)
    if "label" in result.coords and "scores" in result and result["label"].dims == result["scores"].dims[:1]:
        # NumPy converts its variable-width text to fixed width only through objects.
        return "label", result["label"].values.astype(object).astype(str)
    return "", None


def draw_denoised(task: ApplyTask, picture: Path) -> None:
    """Draw the first samples before and after."""
    count = min(PICTURED, task.source.shape[0])
    before, _ = task.source.read(slice(0, count), slice(0, task.source.shape[1]))
    rows = {"given": task.source.features.on_grid(before), "denoised": task.written("denoised", count)}
    draw_items([[image_rows(rows)]], picture)
