"""The command `info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from streampca.cli.options import FlagCommand, data_flags, given_options
from streampca.cli.printing import print_pairs, print_result
from streampca.results.kind import kind_names
from streampca.run.config.blocks import Data


@click.command(cls=FlagCommand, epilog="Example: streampca info study.bed")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_flags
def info(path: str, as_json: bool, **values: Any) -> None:
    """Describe PATH: a result, or data and their layout."""
    # Zarr and xarray are slow to load.
    from streampca.results.store import kind_at
    from streampca.sources import open_source
    from streampca.sweep.memory import show_bytes

    if kind_at(Path(path)) in kind_names():
        print_result(Path(path), as_json)
        return
    asked = Data.of({"path": path, **given_options(values).get("data", {})})
    data = open_source(
        path, variable=asked.variable, sample_dims=asked.sample_dims, missing_chunks=asked.missing_chunks
    )
    facts = {
        "source": data.name,
        "samples": f"{data.shape[0]} ({', '.join(data.samples.dims)})",
        "features": f"{data.shape[1]} ({', '.join(data.features.dims)})",
        "type": str(data.dtype),
        "size": show_bytes(data.n_bytes),
        "chunks": f"{data.chunks[0]} x {data.chunks[1]}",
        "fingerprint": data.fingerprint(),
    }
    if as_json:
        click.echo(json.dumps(facts | {"shape": list(data.shape), "n_bytes": data.n_bytes}))
        return
    print_pairs(list(facts.items()))
