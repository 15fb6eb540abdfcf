"""What a kind of model is: one record that commands, configurations, stores and reports read.

A kind is a module of `results/kinds/` with one record, `KIND`. Its name is that of the module and is spelled nowhere
else. Modules are imported when they are needed: a command loads its own kind only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError, listed, nearest
from streampca.results import kinds

if TYPE_CHECKING:
    from streampca.validation import Options

# Attributes that results had from the second kind on.
SHARED_ATTRIBUTES = ("genotypes", "n_features", "notes")
LATENT_ATTRIBUTES = ("method", "n_iterations", "change", "total_log_likelihood", "n_missing")
# Arrays of models that have components in the space of the features.
LINEAR_ARRAYS = ("components", "mean", "scale", "missing", "explained_variance", "explained_variance_ratio")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of model.

    Attributes
    ----------
    name, title : "pca", "Principal component analysis".
    record : "module:class" of its option record; `options` imports it.
    example : a command line, for help.
    genotypes : whether it can be fitted to genotypes.
    exports : formats of its text files.
    arrays, attributes : that its stores must have, besides the attributes of all kinds; "a|b" requires one of them.
    dimensions : of its own arrays; see `schema.DIMENSIONS`.
    certified : whether its components have certificates.
    estimator : "module:class" of its estimator.
    dataset : module that makes a Dataset of its fitted record, and back; see `models.dataset`.
    fit, plan : "module:function" that fits a job into a store, and that plans it.
    summary : "module:function" that summarises a result for the terminal.
    project, impute, denoise, predict : "module:function" that applies a result to other data; empty if it cannot.
    opening : first sentence of the methods paragraph, before the name of the program; {} is the size of the data.
    methods : "module:function" that returns the sentences of that paragraph about the model and its solver.
    missing_values, centres, variance : what is done with missing values, whether features that are not scaled are
        centred, and what the shares of the variance refer to, for that paragraph.
    component, prefix : noun for a component, and its name before the number.
    error_tol : whether `tol` is the largest error of a component.
    """

    name: str
    title: str
    record: str
    example: str
    genotypes: bool = True
    exports: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    dimensions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    certified: bool = False
    estimator: str = ""
    dataset: str = ""
    fit: str = ""
    plan: str = ""
    summary: str = ""
    project: str = ""
    impute: str = ""
    denoise: str = ""
    predict: str = ""
    opening: str = ""
    methods: str = ""
    missing_values: str = "were replaced by the mean"
    centres: bool = True
    variance: str = "of the total variance"
    component: str = "component"
    prefix: str = "PC"
    error_tol: bool = False

    @cached_property
    def options(self) -> type[Options]:
        """The record of its options."""
        module, _, record = self.record.partition(":")
        found: type[Options] = getattr(import_module(module), record)
        return found

    def function(self, name: str) -> Callable[..., Any]:
        """Import a function that the record names; raise `InputError` if this kind has none."""
        module, _, function = str(getattr(self, name)).partition(":")
        if not module:
            others = [kind for kind in kind_names() if getattr(kind_of(kind), name)]
            raise InputError(f"{name} is not available for {self.name}; use a result of {listed(others)}")
        found: Callable[..., Any] = getattr(import_module(module), function)
        return found


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


def kind_of_estimator(estimator: type) -> Kind:
    """Return the kind of an estimator class, or of the one that it inherits from."""
    places = [f"{base.__module__}:{base.__qualname__}" for base in estimator.__mro__]
    return next(kind for kind in map(kind_of, kind_names()) if kind.estimator in places)


def long_names(kind: object) -> Mapping[str, str]:
    """Return what the variables of a store are: of a kind of model, or those that all have."""
    module = kind_of(kind).dataset if isinstance(kind, str) and kind in kind_names() else "streampca.models.dataset"
    names: Mapping[str, str] = import_module(module).LONG_NAMES
    return names


def kind_for(options: Options) -> Kind:
    """Return the kind that has these options."""
    return next(kind for kind in map(kind_of, kind_names()) if kind.options is type(options))
