"""What demonstrations share: inputs, the output folder, stores and pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streampca._typing import Array
from streampca.models.dataset import Variables
from streampca.models.pca.options import PCAOptions
from streampca.progress import Progress, silent
from streampca.report import write_report
from streampca.results.fit import fit_to_store
from streampca.results.store import load
from streampca.results.write import save, writing
from streampca.sources import Source, open_source
from streampca.sources.tables import ids_of, read_table
from streampca.sweep.memory import RESULT_BASELINE, Budget


@dataclass(frozen=True)
class Demo:
    """Inputs and output folder of a demonstration.

    Attributes
    ----------
    folder : to write to.
    echo : prints a line.
    memory : limit of the fits.
    table, images : given by the user, for the demonstrations that use them.
    """

    folder: Path
    echo: Callable[[str], None]
    progress: Progress = silent
    memory: str = "400MB"
    table: Path | None = None
    images: Path | None = None

    def store(self, name: str, values: Array, dims: tuple[str, ...], labels: Array | None = None) -> Source:
        """Write samples, with labels if given, to a store, and open it."""
        path = self.folder / f"{name}.zarr"
        texts = np.array([str(label) for label in ([] if labels is None else labels)], np.dtypes.StringDType())
        coords: Variables = {} if labels is None else {"label": (("sample",), texts)}
        with writing(path, overwrite=True) as store:
            save({"values": (("sample", *dims), values)}, coords, {"kind": "simulated", "format_version": 1}, store)
        return open_source(str(path), variable="values")

    def pca(self, source: Source, name: str, n_components: int | str) -> Path:
        """Fit PCA within the memory limit, and return the path of the result."""
        path = self.folder / f"{name}.pca.zarr"
        options = PCAOptions.of({"n_components": n_components})
        budget = Budget.of(self.memory, RESULT_BASELINE)
        fit_to_store(options, source, path, memory_limit=budget, progress=self.progress)
        return path

    def page(self, result: Path, title: str, table: Path | None = None) -> Path:
        """Write the report page of a result."""
        fitted = load(result)
        joined = None if table is None else read_table(table, ids_of(fitted))
        page = result.with_name(result.name.partition(".")[0] + ".html")
        return write_report(fitted, page, table=joined, title=title, overwrite=True)
