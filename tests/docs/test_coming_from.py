"""The pages for users of other programs name options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from streampca.cli import cli

PAGES = Path(__file__).parents[2] / "docs" / "coming-from"


def all_flags():
    """Return the flags of all commands."""
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    return {flag for command in commands if command for option in command.params for flag in option.opts}


def rows(page):
    """Return the cells of each row of the first table of a page."""
    lines = [line for line in (PAGES / page).read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize("page", ["plink2.md", "smartpca.md"])
def test_every_option_in_the_table_exists(page):
    known, found = all_flags(), set()
    for theirs, ours in rows(page):
        named = theirs if ours.startswith("same name") else ours
        # What follows "for" is an option of the other program.
        code = " ".join(re.findall(r"`([^`]*)`", named.split(", for")[0]))
        words = re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", code)
        found |= set(words)
    assert len(found) >= 8
    assert found <= known, sorted(found - known)


@pytest.mark.parametrize("page", ["plink2.md", "smartpca.md"])
def test_every_command_in_the_table_exists(page):
    names = set(cli.list_commands(click.Context(cli)))
    used = {name for _, ours in rows(page) for name in re.findall(r"streampca ([a-z_]+)", ours)}
    assert used
    assert used <= names
