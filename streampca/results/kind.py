"""What a kind of model is: one record that commands, configurations, stores and reports read.

A kind is a module of `results/kinds/` with one record, `KIND`. Its name is that of the module and is spelled nowhere
else. Modules are imported when they are needed: a command loads its own kind only.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from streampca.errors import InputError
from streampca.results import kinds
from streampca.validation import Options, listed, nearest


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes
    ----------
    name, title : "pca", "Principal component analysis".
    options : the record of its options.
    example : a command line, for help.
    genotypes : whether it can be fitted to genotypes.
    """

    name: str
    title: str
    options: type[Options]
    example: str
    genotypes: bool = True


@cache
def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return tuple(module.name for module in pkgutil.iter_modules(kinds.__path__))


@cache
def kind_of(name: str) -> Kind:
    """Return the kind of this name; raise `InputError` if there is none."""
    if name not in kind_names():
        near = nearest(name, kind_names())
        hint = f"did you mean {near}?" if near else f"use {listed(kind_names())}"
        raise InputError(f"unknown kind of model {name!r}; {hint}")
    found: Kind = import_module(f"{kinds.__name__}.{name}").KIND
    return found
