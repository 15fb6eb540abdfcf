"""Flags generated from option records, and small helpers that commands share."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streampca import run
from streampca.cli.messages import in_shell
from streampca.errors import InputError, nearest, redacted
from streampca.progress import BarProgress, JsonLines, LogProgress, Progress, on_terminal, silent
from streampca.run.config.blocks import Config, Data, Threads
from streampca.run.config.build import build
from streampca.validation import Options

if TYPE_CHECKING:
    from streampca.run.task import Task

existing = click.Path(path_type=Path)
SHORT = {"n_components": "-k"}
# The one option that the shell spells differently: in Python, scikit-learn uses `memory` for a cache.
FLAGS = {"memory_limit": "--memory"}
# Flags of version 0.7 and their new form.
OLD_FLAGS = {
    "--seed": "--random-state", "--choose": "--landmarks", "--pre-image": "--fit-inverse-transform",
    "--factor-analysis": "the command factor_analysis", "--resume": "--only-resume", "--target": "--target-trace",
}  # fmt: skip
# Flags of other programs.
OTHER_FLAGS = {
    "--k": "-k", "-n": "-k", "--pcs": "-k", "--ram": "--memory", "--mem": "--memory", "--cores": "--threads",
    "--cpus": "--threads", "--n-jobs": "--threads", "--force": "--overwrite", "--dims": "--sample-dims",
}  # fmt: skip
# Options whose values are names of files.
FILES = ("keep", "remove", "extract", "exclude", "exclude_regions", "report", "labels", "target", "covariates")
# Groups of options in help. An option is in the group of its block, or of its flag; else in the first.
GROUPS = {"": "Options", "model": "Model", "data": "Data", "filter": "Genotypes", "output": "Output", "run": "Run"}
GROUP_OF = {"engine": "run", "out": "output", "overwrite": "output"} | dict.fromkeys(
    ("plan", "json", "log-json", "fresh", "only-resume", "quiet", "verbose", "help"), "run"
)
# Commands with fewer options list them without groups.
FEW = 12


def flag(name: str) -> str:
    """Return the flag of an option: n_components is --n-components."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def record_flags(block: str, record: type[Options], only: Iterable[str] | None = None) -> list[click.Option]:
    """Return a flag per option of a record; values stay text, and the record checks them."""
    names = list(record.fields if only is None else only)
    return [_option(block, name, record.fields[name]) for name in names if name not in ("kind", "path", "shape")]


def _option(block: str, name: str, field: Any) -> click.Option:
    """Return the flag of one field."""
    declarations = [f"{block}__{name}", flag(name), *([SHORT[name]] if name in SHORT else [])]
    about = str(field.description)
    if field.annotation is bool:
        no = f"--no-{name.replace('_', '-')}"
        shown = f"{flag(name)}/{no}" if field.default else flag(name)
        return click.Option([f"{block}__{name}", shown], default=None, help=about, is_flag=True)
    default = field.default
    shown = f"  [default: {'none' if default is None else default}]"
    known = not field.required and (default is not None or name == "scale")
    choices = _choices(field.schema())
    metavar = f"[{'|'.join(choices)}]" if choices else None
    help_text = f"{about}{shown if known else ''}"
    kind = click.Path() if name in FILES else str
    complete = partial(_beginning, choices) if choices else None
    return click.Option(declarations, type=kind, default=None, help=help_text, metavar=metavar, shell_complete=complete)


def _beginning(words: Iterable[str], _context: click.Context, _option: click.Parameter, typed: str) -> list[str]:
    """Return the words that complete what was typed."""
    return [word for word in words if word.startswith(typed)]


def _choices(fragment: Mapping[str, Any]) -> list[str]:
    """Return the words that a JSON schema allows, if it allows nothing else."""
    parts = [part for part in fragment.get("anyOf", [fragment]) if part["type"] != "null"]
    lists = [part.get("enum", [part["const"]] if "const" in part else []) for part in parts]
    return [str(word) for words in lists for word in words] if all(lists) else []


def given_options(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the flags that were given, by block."""
    blocks: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        block, parted, key = name.partition("__")
        if parted and value is not None:
            blocks.setdefault(block, {})[key] = value
    return blocks


def configured(blocks: Mapping[str, Any]) -> Config:
    """Return the configuration of the flags of a command; messages name flags."""
    landmarks = str(blocks.get("model", {}).get("landmarks", ""))
    if landmarks.isdigit() or landmarks == "auto":
        raise InputError(f"--landmarks {landmarks}: since version 0.8 the number of landmarks is --n-landmarks")
    return build(blocks, label=lambda path: flag(path[-1]))


class FlagCommand(click.Command):
    """A command whose messages name flags, and whose help groups them."""

    separator = " "  # between the name of an option and its value

    @property
    def names(self) -> dict[str, str]:
        """Names of options in Python, and their flags."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        names = {str(option.name).rpartition("__")[2]: max(option.opts, key=len) for option in options}
        # Python's names of two flags.
        others = {"memory_limit": "memory", "autosomes": "all_chromosomes"}
        return names | {other: names[name] for other, name in others.items() if name in names}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; messages name options as the shell does."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            error.args = (in_shell(str(error), self.names, self.separator),)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        for option in options:
            block, parted, _ = str(option.name).partition("__")
            name = block if parted else max(option.opts, key=len).lstrip("-")
            group = GROUP_OF.get(name, name if name in GROUPS else "") if len(options) > FEW else ""
            record = option.get_help_record(ctx)
            groups[group] += [record] if record else []
        for group, records in groups.items():
            if records:
                with formatter.section(GROUPS[group]):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; explain an unknown flag in one line."""
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            error.ctx = error.ctx or ctx
            raise
        except click.NoSuchOption as error:
            given, known = error.option_name, [name for parameter in self.params for name in parameter.opts]
            if given in OLD_FLAGS:
                hint = f"; since version 0.8 it is {OLD_FLAGS[given]}"
            elif OTHER_FLAGS.get(given) in known:
                hint = f"; did you mean {OTHER_FLAGS[given]}?"
            else:
                near = nearest(given.lstrip("-"), [name[2:] for name in known if name.startswith("--")])
                hint = f"; did you mean --{near}?" if near else f"; `streampca {self.name} --help` lists all flags"
            raise click.UsageError(f"no such flag {given} of {self.name}{hint}") from None


def flags(*options: click.Option) -> Callable[..., Any]:
    """Return a decorator that adds flags to a command."""

    def decorate(function: Any) -> Any:
        # click keeps the options of a function in this list until the command is made.
        function.__click_params__ = [*getattr(function, "__click_params__", []), *reversed(options)]
        return function

    return decorate


def switch(*names: str, about: str) -> click.Option:
    """Return a flag without a value."""
    return click.Option(names, is_flag=True, help=about)


DATA = record_flags("data", Data)
ENGINE = record_flags("engine", Threads, ["memory_limit", "threads"])
# Of commands that view a result.
MEMORY = click.Option(["--memory"], help="Memory limit of the process, such as 600MB.  [default: half of what is free]")
OVERWRITE = switch("--overwrite", about="Replace a finished output.")
PLAN = switch("--plan", about="Print the plan and stop; nothing is fitted.")
JSON = switch("--json", "as_json", about="Print JSON.")
QUIET = switch("-q", "--quiet", about="Show no progress.")
# Of all commands that run a task; `run_task` takes them.
RUN = (
    switch("--fresh", about="Discard unfinished work of an earlier run."),
    switch("--only-resume", about="Fail unless there is a checkpoint to resume."),
    QUIET,
)


def stem(source: str) -> str:
    """Return the name of data without directory and suffix; a prefix has none, and a pattern loses its wildcards."""
    path = Path(redacted(source))
    if path.exists() or "://" in source:
        return path.stem
    return re.sub(r"\[.*?\]|[*?]", "", path.stem).strip(".-_") or "genotypes" if has_magic(source) else path.name


def default_output(source: str, kind: str, suffix: str) -> str:
    """Return the name of an output: that of the data, the model, and the suffix."""
    return f"{stem(source)}.{kind}.{suffix}"


def write_new(text: str, out: Path | None, what: str) -> None:
    """Write a new file, and print what it is; or print the text."""
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{out}: exists already; choose another --out") from None
    except FileNotFoundError:
        raise InputError(f"{out}: the directory {out.parent} does not exist; create it first") from None
    click.echo(f"{what}: {out}")


@contextmanager
def shown_progress(quiet: bool, log_json: bool = False) -> Iterator[Progress]:
    """Yield a progress bar on a terminal, log lines elsewhere."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_json else logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("streampca")
    if not quiet:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    bar = BarProgress() if on_terminal() and not quiet and not log_json else None
    try:
        with bar or nullcontext():
            yield bar or (silent if quiet else LogProgress())
    finally:
        logger.removeHandler(handler)


def run_task(task: Task, values: Mapping[str, Any]) -> str | Path:
    """Run a task, or resume it, and show its progress; return the path or URL of its output.

    Parameters
    ----------
    values : of the flags `RUN`, among others.
    """
    with shown_progress(values["quiet"], values.get("log_json", False)) as progress:
        return run.run(task, only_resume=values["only_resume"], fresh=values["fresh"], progress=progress)
