"""Flags generated from option records, and small helpers that commands share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click

from streampca.errors import InputError, nearest, redacted
from streampca.progress import BarProgress, JsonLines, LogProgress, Progress, on_terminal, silent
from streampca.run.config.blocks import Config, Data
from streampca.run.config.build import build
from streampca.validation import Options

existing = click.Path(path_type=Path)
SHORT = {"n_components": "-k"}
# The one option that the shell spells differently: in Python, scikit-learn uses `memory` for a cache.
FLAGS = {"memory_limit": "--memory"}
# Flags of version 0.7 and their new form.
OLD_FLAGS = {
    "--seed": "--random-state", "--choose": "--landmarks", "--pre-image": "--fit-inverse-transform",
    "--factor-analysis": "the command factor_analysis", "--resume": "--only-resume", "--target": "--target-trace",
}  # fmt: skip


def flag(name: str) -> str:
    """Return the flag of an option: n_components is --n-components."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def record_flags(block: str, record: type[Options], only: Iterable[str] | None = None) -> list[click.Option]:
    """Return a flag per option of a record; values stay text, and the record checks them."""
    names = list(record.model_fields if only is None else only)
    return [_option(block, name, record.model_fields[name]) for name in names if name not in ("kind", "path", "shape")]


def _option(block: str, name: str, field: Any) -> click.Option:
    """Return the flag of one field."""
    declarations = [f"{block}__{name}", flag(name), *([SHORT[name]] if name in SHORT else [])]
    about = str(field.description)
    if field.annotation is bool:
        no = f"--no-{name.replace('_', '-')}"
        shown = f"{flag(name)}/{no}" if field.default else flag(name)
        return click.Option([f"{block}__{name}", shown], default=None, help=about, is_flag=True)
    default = field.get_default()
    shown = f"  [default: {'none' if default is None else default}]"
    known = not field.is_required() and (default is not None or name == "scale")
    choices = _choices(field.annotation)
    metavar = f"[{'|'.join(choices)}]" if choices else None
    help_text = f"{about}{shown if known else ''}"
    return click.Option(declarations, type=str, default=None, help=help_text, metavar=metavar)


def _choices(annotation: Any) -> list[str]:
    """Return the words that a type allows, if it allows nothing else."""
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    parts = [part for part in get_args(annotation) if part is not NoneType]
    lists = [_choices(part) for part in parts]
    found = [word for words in lists for word in words] if parts and all(lists) else []
    return [*found, "none"] if found and "unit" in found else found


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
    """A command whose parser suggests the nearest flag, and the new form of old ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; explain an unknown flag in one line."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for parameter in self.params for name in parameter.opts if name.startswith("--")]
            if error.option_name in OLD_FLAGS:
                hint = f"since version 0.8 it is {OLD_FLAGS[error.option_name]}"
            else:
                near = nearest(error.option_name.lstrip("-"), [name.lstrip("-").replace("-", "_") for name in known])
                hint = f"did you mean {flag(near)}?" if near else f"`streampca {self.name} --help` lists all flags"
            raise click.UsageError(f"no such flag {error.option_name} of {self.name}; {hint}") from None


def together(*options: Callable[..., Any]) -> Callable[..., Any]:
    """Combine options into one decorator."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def flags(*options: click.Option) -> Callable[..., Any]:
    """Return a decorator that adds generated flags."""

    def decorate(function: Any) -> Any:
        # click keeps the options of a function in this list until the command is made.
        function.__click_params__ = [*reversed(options), *getattr(function, "__click_params__", [])]
        return function

    return decorate


data_flags = flags(*record_flags("data", Data))
resume_options = together(
    click.option("--overwrite", is_flag=True, help="Replace a finished output."),
    click.option("--fresh", is_flag=True, help="Discard unfinished work of an earlier run."),
    click.option("--only-resume", is_flag=True, help="Fail unless there is a checkpoint to resume."),
)
memory_options = together(
    click.option("--memory", help="Memory limit of the process, as 600MB.  [default: half of the available memory]"),
    click.option("--threads", type=click.IntRange(min=1), help="Tasks at a time.  [default: all cores]"),
)
print_options = together(
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)


def stem(source: str) -> str:
    """Return the name of data without directory and suffix; the prefix of PLINK files has no suffix."""
    path = Path(redacted(source))
    return path.stem if path.exists() or "://" in source else path.name


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
