"""The command `slurm-script`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from streampca.cli.options import FlagCommand, existing, write_new


@click.command("slurm-script", cls=FlagCommand, epilog="Example: streampca slurm-script --out submit.sh")
@click.option("-o", "--out", type=existing, help="File to write.  [default: print it]")
def slurm_script(out: Path | None) -> None:
    """Print a script for sbatch that runs a configuration, and requeues the job until it is finished."""
    write_new(files("streampca.run").joinpath("submit.sh").read_text(encoding="utf-8"), out, "script")
