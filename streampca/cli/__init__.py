"""The command line. A command builds a configuration or a task, calls the driver, and prints a summary."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module

import click

from streampca import __version__
from streampca.cli.messages import Commands, usage_message
from streampca.errors import InputError, Stopped, one_line, redacted
from streampca.results.kind import kind_names, kind_of

MESSAGE_PREFIX = "streampca: "
# EX_TEMPFAIL of sysexits.h: try again later.
STOPPED = 75
# Commands that fit no model, by group; each is in the module of its name, those that apply a result in `apply`.
COMMANDS = {
    "apply": {
        "project": "Scores of new samples on fitted components.",
        "impute": "Fill in missing values by a fitted model.",
        "denoise": "Project samples and map them back.",
        "predict": "Predict targets by a fitted regression.",
        "assign": "Assign samples to classes by their scores.",
    },
    "view": {
        "report": "Write a result as one HTML page.",
        "plot": "Draw a figure of a result.",
        "info": "Describe a result or data.",
        "export": "Write a result as text files.",
    },
    "files": {
        "convert": "Write genotypes as VCF Zarr, a table or images as an array.",
        "prune": "List variants in approximate linkage equilibrium.",
        "kinship": "List relatives, and unrelated samples.",
    },
    "run": {
        "run": "Run a configuration; resume it if it was killed.",
        "status": "Show the progress of a run.",
        "config": "Write, check and upgrade configurations.",
        "slurm-script": "Print a script for sbatch that requeues a run.",
        "demo": "Run an example and draw its figures.",
    },
}


START = """Principal component analysis of matrices that do not fit in memory.

Try an example, which writes to demo-output:
  streampca demo

Fit a model to a .bed, .pgen, .npy or .nc file or a Zarr store, and view it:
  streampca pca study.bed -k 20 --out study.pca.zarr
  streampca report study.pca.zarr

`streampca --help` lists all commands, `streampca pca --help` the options of one."""


class AllCommands(Commands):
    """All commands; a command imports only its own module."""

    def start(self, ctx: click.Context) -> str:  # noqa: ARG002
        """Return the first steps."""
        return START

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return [*kind_names(), *(name for group in COMMANDS.values() for name in group)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, underscores or hyphens."""
        name = cmd_name.replace("-", "_")
        if name in kind_names():
            command: click.Command = import_module("streampca.cli.fit").fit_command(name)
            return command
        if name not in (known.replace("-", "_") for known in self.list_commands(ctx)):
            return None
        module = "apply" if name in ("project", "impute", "denoise", "predict") else name
        found: click.Command = getattr(import_module(f"streampca.cli.{module}"), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by group, without importing them."""
        with formatter.section("Fit a model"):
            formatter.write_dl([(name, f"{kind_of(name).title}.") for name in kind_names()])
        for group, commands in COMMANDS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))


@click.group(cls=AllCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streampca")
def cli() -> None:
    """Principal component analysis of matrices that do not fit in memory."""


def main() -> None:
    """Run a command; errors that the user can fix are one line and exit code 2."""
    # The collection when Python ends visits all objects of all libraries; the system frees them in no time.
    atexit.register(gc.freeze)
    try:
        cli(standalone_mode=False, prog_name="streampca")
    except InputError as error:
        _fail(str(error))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(one_line(usage_message(error)))
    except OSError as error:
        _fail(f"{error.filename or 'the output'}: {error.strerror or error}; check path, free space and permissions")
    except Stopped as stopped:
        click.echo(f"{MESSAGE_PREFIX}{stopped}; finished work is saved: run the same command to resume", err=True)
        sys.exit(STOPPED)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{MESSAGE_PREFIX}stopped", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    click.echo(f"{MESSAGE_PREFIX}{redacted(message)}", err=True)
    sys.exit(2)
