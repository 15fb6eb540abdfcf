"""What stories share: where they write, what they were given, and how they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.models.dataset import Variables
from streampca.progress import Progress, silent
from streampca.report import write_report
from streampca.results.store import load
from streampca.results.write import save, writing
from streampca.sources import Source, open_source
from streampca.sources.tables import ids_of, read_table


@dataclass(frozen=True)
class Teller:
    """Tells a story.

    Attributes
    ----------
    folder : to write to.
    say : takes each line.
    memory : limit that out-of-core stories keep to.
    table, images : of the user's, for the stories that take them.
    """

    folder: Path
    say: Callable[[str], None]
    progress: Progress = silent
    memory: str = "400MB"
    table: Path | None = None
    images: Path | None = None

    def store(self, name: str, values: Array, dims: tuple[str, ...], labels: Array | None = None) -> Source:
        """Write samples, with a label each if they have one, to a store, and open it."""
        path = self.folder / f"{name}.zarr"
        texts = np.array([str(label) for label in ([] if labels is None else labels)], np.dtypes.StringDType())
        coords: Variables = {} if labels is None else {"label": (("sample",), texts)}
        with writing(path, overwrite=True) as store:
            save({"values": (("sample", *dims), values)}, coords, {"kind": "simulated", "format_version": 1}, store)
        return open_source(str(path), variable="values")

    def page(self, result: Path, title: str, table: Path | None = None) -> Path:
        """Write the page about a result that a story ends with."""
        fitted = load(result)
        joined = None if table is None else read_table(table, ids_of(fitted))
        page = result.with_name(result.name.partition(".")[0] + ".html")
        return write_report(fitted, page, table=joined, title=title, overwrite=True)
