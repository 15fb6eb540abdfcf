"""The command line: each command checks its output, calls the library, and prints a summary."""

from __future__ import annotations

import sys

import click

from streampca import __version__
from streampca.cli.applying import denoise, impute, project
from streampca.cli.configuring import config
from streampca.cli.files import convert, demo, export, info, prune
from streampca.cli.fitting import kpca, pca, ppca
from streampca.cli.labelling import assign
from streampca.cli.looking import plot, report
from streampca.cli.regressing import pcr, predict
from streampca.cli.running import run, status
from streampca.errors import InputError, Stopped, redacted

MESSAGE_PREFIX = "streampca: "
# Try again later, as sysexits.h has it.
STOPPED = 75


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streampca")
def cli() -> None:
    """Principal components of matrices too big for memory."""


COMMANDS = (
    pca, ppca, kpca, pcr, run, status, config, report, plot, assign, predict, project, impute, denoise, prune, export,
    convert, info, demo,
)  # fmt: skip
for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run a command; one line and exit code 2 for what the user can cure."""
    try:
        cli(standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message().replace("\n", " "))
    except OSError as error:
        _fail(f"{error.filename or 'the output'}: {error.strerror or error}; check the place, its space and its rights")
    except Stopped as stopped:
        click.echo(f"{MESSAGE_PREFIX}{stopped}; what was done is saved: run the same command to go on", err=True)
        sys.exit(STOPPED)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{MESSAGE_PREFIX}stopped", err=True)
        sys.exit(130)


def _fail(message: str) -> None:
    click.echo(f"{MESSAGE_PREFIX}{redacted(message)}", err=True)
    sys.exit(2)
