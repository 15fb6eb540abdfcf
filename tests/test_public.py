"""Everything that users may call or type is described, and every example does what it shows."""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest

import streampca
from streampca.cli import cli

ROOT = Path(__file__).parent.parent
PUBLIC = {name: getattr(streampca, name) for name in streampca.__all__}
# What scikit-learn gives its estimators is described there.
METHODS = {
    f"{name}.{part}": method
    for name, public in PUBLIC.items()
    if hasattr(public, "fit")
    for part, method in inspect.getmembers(public, lambda x: inspect.isfunction(x) or isinstance(x, property))
    if not part.startswith("_") and inspect.unwrap(getattr(method, "fget", method)).__module__.startswith("streampca.")
}
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "streampca").rglob("*.py")
    if ">>> " in path.read_text()
)


def commands(group, path=()):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = {" ".join(path): command for path, command in commands(cli)}
LEAVES = {name: command for name, command in COMMANDS.items() if not isinstance(command, click.Group)}


def parameters_named(thing):
    """Names in the section Parameters of a numpydoc docstring; None without one."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", inspect.getdoc(thing) or "", re.M | re.S)
    if section is None:
        return None
    entries = [line.partition(" :")[0] for line in section[1].splitlines() if line and not line.startswith(" ")]
    return sorted(name.lstrip("*") for entry in entries for name in entry.split(", "))


def parameters_of(thing):
    """Names in a signature; errors take a message like all exceptions, properties nothing."""
    if isinstance(thing, property) or (isinstance(thing, type) and issubclass(thing, Exception)):
        return []
    return sorted(set(inspect.signature(thing).parameters) - {"self"})


@pytest.mark.parametrize("name", [*PUBLIC, *METHODS])
def test_every_public_name_is_described_with_all_its_parameters_and_no_others(name):
    thing = (PUBLIC | METHODS)[name]
    # Of a subclass without a docstring, Python shows that of its base.
    assert thing.__doc__
    assert (parameters_named(thing) or []) == parameters_of(thing)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_uses_it(name):
    examples = inspect.getdoc(PUBLIC[name]).partition("\nExamples\n--------\n")[2]
    assert f"streampca.{name}" in "".join(example.source for example in doctest.DocTestParser().get_examples(examples))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0


def test_the_version_is_the_same_everywhere():
    assert streampca.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_names_that_are_not_public_are_no_attributes():
    with pytest.raises(AttributeError, match="No streampca attribute nothing"):
        streampca.nothing  # noqa: B018
    assert set(streampca.__all__) <= set(dir(streampca))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_is_for(name):
    command = COMMANDS[name]
    assert command.help
    assert [option.opts for option in command.params if isinstance(option, click.Option) and not option.help] == []


@pytest.mark.parametrize("name", LEAVES)
def test_the_example_of_every_command_can_be_typed(name):
    example = LEAVES[name].epilog
    assert example.startswith(f"Example: streampca {name} ")
    typed = example.removeprefix(f"Example: streampca {name} ").partition(">")[0]
    LEAVES[name].make_context(name, shlex.split(typed))
    shown = LEAVES[name].get_help(click.Context(LEAVES[name], info_name=name))
    assert example.split() == shown.split()[-len(example.split()) :]
