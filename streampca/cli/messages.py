"""Messages of commands: one line, in the syntax of the shell, with the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

from streampca.errors import listed, nearest

# Values in messages of the library, as in scale=None or 'unit'.
_VALUE = r"(?:'[^']*'|[\w.+-]*\w)"


def in_shell(message: str, names: Mapping[str, str], joined: str = " ") -> str:
    """Return a message of the library with options in the syntax of the shell: missing='mean' is --missing mean.

    Parameters
    ----------
    names : names of options in Python, and in the shell.
    joined : what stands between the name of an option and its value.
    """
    if not names:
        return message
    name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    # Words such as `scale` are options only where the sentence has them as one; names with an underscore always are.
    patterns = (
        rf"(?<![\w.-])(?<!--set )(?P<name>{name})=(?P<value>{_VALUE}(?:,? (?:or )?'[^']*')*)",
        rf"(?<![\w.-])(?:data|filter|model|engine|output)\.(?P<name>{name})\b",
        rf"(?:(?<=^)|(?<=: )|(?<=; )|(?<=increase )|(?<=decrease ))(?P<name>{name})(?= must be | needs |$|,| or )",
        rf"(?<![\w.-])(?P<name>(?=\w+_)(?:{name}))\b(?!=)",
    )

    def shown(match: re.Match[str]) -> str:
        value = match.groupdict().get("value")
        flag = names[match["name"]]
        if value is None or value == "True":
            return flag
        return f"{flag}{joined}{value.replace(chr(39), '').replace('None', 'none')}"

    # Keys of a file have the names of Python.
    for pattern in patterns if joined == " " else patterns[:1]:
        message = re.sub(pattern, shown, message)
    return message


def usage_message(error: click.ClickException) -> str:
    """Return what is wrong with the arguments of a command, and a correct call."""
    context = getattr(error, "ctx", None)
    if context is None:
        return error.format_message()
    command = context.command
    where = context.command_path.removeprefix("streampca ")
    example = str(command.epilog or f"`{context.command_path} --help` describes it").replace("Example", "example")
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{where}: {_name(error.param)} is missing; {example}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name(error.param)}: {error.message.rstrip('.')}; {example}"
    if isinstance(error, click.BadOptionUsage):
        return f"{where}: {error.option_name} needs a value; {example}"
    if error.message.startswith("Got unexpected extra argument"):
        extra = error.message.partition("(")[2].rstrip(")")
        arguments = listed((_name(one) for one in command.params if isinstance(one, click.Argument)), "and")
        quoted = '; quote a pattern of files, as "chr*.bed"' if "SOURCE" in arguments else ""
        return f"{where}: takes {arguments}, not {extra} as well{quoted}; {example}"
    return error.format_message()


def _name(parameter: click.Parameter) -> str:
    """Return a parameter as help names it."""
    return str(parameter.name).upper() if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)


class Words(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no parameter here
    """One of several words; the nearest is suggested."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the word."""
        if value in self.choices:
            return str(value)
        name = "the value" if param is None else _name(param)
        raise click.UsageError(
            f"{name} must be {listed(self.choices)}, got {value!r}{did_you_mean(value, self.choices)}"
        )


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a suggestion of the nearest word; nothing if none is near."""
    near = nearest(word, words)
    return f"; did you mean {near}?" if near else ""


class Commands(click.Group):
    """Commands; the nearest is suggested."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; without any, show where to start."""
        if not args and not ctx.resilient_parsing:
            click.echo(self.start(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def start(self, ctx: click.Context) -> str:
        """Return what is shown without arguments."""
        return ctx.get_help()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; suggest the nearest one if there is none of its name."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = did_you_mean(args[0], self.list_commands(ctx))
            hint = near or f"; `{ctx.command_path} --help` lists all commands"
            raise click.UsageError(f"no such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)
