"""Write the pages of commands and configurations from click and the option records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

from streampca.cli import COMMANDS, cli
from streampca.results.kind import kind_names, kind_of
from streampca.run.config.blocks import ENGINES, Data, Filter, Output
from streampca.run.config.describing import starter
from streampca.validation import Options, allowed_values

NOTE = "% Written by docs/_ext/reference.py; do not edit.\n"
# A vertical bar in a cell of a table.
ESCAPED = r"\|"


def commands_page() -> str:
    """Return the page of all commands, by group."""
    groups = {"fit": list(kind_names())} | {group: list(names) for group, names in COMMANDS.items()}
    lines = [
        NOTE,
        "# Commands\n",
        "`streampca COMMAND --help` prints the same. Underscores and hyphens in names of commands are equal.\n",
        "## What each model supports\n",
        _models(),
    ]
    for group, names in groups.items():
        lines.append(f"## {'Fit a model' if group == 'fit' else group.capitalize()}\n")
        for name in names:
            command = cli.get_command(click.Context(cli), name)
            assert command is not None
            lines += list(_command(name, command))
    return "\n".join(lines)


def _models() -> str:
    """Return a table of the kinds of models and the commands that apply them."""
    uses = ("project", "impute", "denoise", "predict")
    rows = []
    for kind in map(kind_of, kind_names()):
        yes = tuple("yes" if getattr(kind, use) else "" for use in uses)
        rows.append((f"`{kind.name}`", "yes" if kind.genotypes else "", *yes, ", ".join(kind.exports)))
    return _table(("model", "genotypes", *uses, "export"), rows)


def _command(name: str, command: click.Command) -> Iterator[str]:
    """Yield a section per command, with those of its subcommands."""
    yield f"### {name}\n"
    context = click.Context(command, info_name=f"streampca {name}")
    if not isinstance(command, click.Group):
        yield f"```text\n{command.get_usage(context)}\n```\n"
    yield from (f"{part}\n" for part in _plain(str(command.help)).split("\n\n"))
    if command.epilog:
        yield f"```text\n{command.epilog.removeprefix('Example: ')}\n```\n"
    rows = [record for option in command.get_params(context) if (record := option.get_help_record(context))]
    if rows:
        yield _table(("option", ""), [(f"`{flag}`", _plain(about)) for flag, about in rows])
    if isinstance(command, click.Group):
        for part, child in command.commands.items():
            yield from _command(f"{name} {part}", child)


def configuration_page() -> str:
    """Return the page of all blocks and keys of a configuration."""
    lines = [
        NOTE,
        "# Configuration\n",
        "A configuration is a YAML file with the blocks `data`, `filter`, `model`, `engine` and `output`. `data.path`, "
        "`model.kind` and `output.path` are required. `streampca config new KIND` writes a file with all keys, "
        "`streampca config schema` the JSON schema.\n",
        f"```yaml\n{starter('pca')}```\n",
    ]
    for block, record in {"data": Data, "filter": Filter, "output": Output}.items():
        lines += [f"## {block}\n", _record(record, block)]
    lines.append("## model\n\n`model.kind` is the name of the command.\n")
    for name in kind_names():
        kind = kind_of(name)
        lines += [f"### model.kind: {name}\n", f"{kind.title}.\n", _record(kind.options, "model")]
    lines.append("## engine\n")
    shown: set[type[Options]] = set()
    for engine in ENGINES.values():
        if engine not in shown:
            shown.add(engine)
            names = ", ".join(name for name, other in ENGINES.items() if other is engine)
            lines += [
                f"### engine.kind: {names}\n",
                f"{str(engine.__doc__).splitlines()[0]}\n",
                _record(engine, "engine"),
            ]
    return "\n".join(lines)


def _record(record: type[Options], block: str) -> str:
    """Return the keys of a record as a table."""
    fragments = record.schema()["properties"]
    rows = []
    for name, field in record.fields.items():
        if name == "kind":
            continue
        default = "required" if field.required else f"`{_yaml(field.default)}`"
        values = ", ".join(f"`{value}`" if " " not in value else value for value in allowed_values(fragments[name]))
        rows.append((f"`{block}.{name}`", default, values, _plain(str(field.description))))
    return _table(("key", "default", "values", ""), rows)


def _yaml(value: Any) -> str:
    words = {None: "null", True: "true", False: "false", (): "[]"}
    return words.get(value, str(value)) if isinstance(value, (bool, tuple, type(None))) else str(value)


def _plain(text: str) -> str:
    """Return paragraphs of text without what Markdown would interpret."""
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(part.replace("*", r"\*").replace("<", r"\<").replace("_", r"\_") for part in paragraphs)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', ESCAPED) for cell in line)} |" for line in lines) + "\n"


def write(app: Sphinx) -> None:
    """Write the pages next to the others, if they changed."""
    folder = Path(app.srcdir) / "reference"
    for name, page in {"commands": commands_page(), "configuration": configuration_page()}.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != page:
            path.write_text(page)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx lists them."""
    app.connect("builder-inited", write, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
