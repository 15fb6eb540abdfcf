"""The command line. A command builds a configuration or a task, calls the driver, and prints a summary."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from streampca import __version__
from streampca.errors import InputError, Stopped, nearest, redacted
from streampca.results.kind import kind_names, kind_of

MESSAGE_PREFIX = "streampca: "
# EX_TEMPFAIL of sysexits.h: try again later.
STOPPED = 75
# Commands that fit no model, by group; each is in the module of its name.
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
        "convert": "Write genotypes as VCF Zarr, or images as an array.",
        "prune": "List variants in approximate linkage equilibrium.",
    },
    "run": {
        "run": "Run a configuration; resume it if it was killed.",
        "status": "Show the progress of a run.",
        "config": "Write, check and upgrade configurations.",
        "demo": "Run an example and draw its figures.",
    },
}


class Commands(click.Group):
    """All commands; a command imports only its own module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return [*kind_names(), *(name for group in COMMANDS.values() for name in group)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, underscores or hyphens."""
        name = cmd_name.replace("-", "_")
        if name in kind_names():
            command: click.Command = import_module("streampca.cli.fit").fit_command(name)
            return command
        if name in self.list_commands(ctx):
            found: click.Command = getattr(import_module(f"streampca.cli.{name}"), name)
            return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; suggest the nearest one if there is none of its name."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = nearest(args[0], self.list_commands(ctx))
            hint = f"did you mean {near}?" if near else "`streampca --help` lists all commands"
            raise click.UsageError(f"no such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands by group, without importing them."""
        with formatter.section("Fit a model"):
            formatter.write_dl([(name, f"{kind_of(name).title}.") for name in kind_names()])
        for group, commands in COMMANDS.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(list(commands.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="streampca")
def cli() -> None:
    """Principal component analysis of matrices that do not fit in memory."""


def main() -> None:
    """Run a command; errors that the user can fix are one line and exit code 2."""
    try:
        cli(standalone_mode=False)
    except InputError as error:
        _fail(str(error))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _fail(error.format_message().replace("\n", " "))
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
