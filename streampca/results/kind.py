"""A kind of model: one record that commands, configurations, stores and reports read.

A kind is a module of `results/kinds/` with one record, `KIND`. Its name is that of the module and is spelled nowhere
else. Modules are imported when they are needed: a command loads its own kind only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError, listed, nearest
from streampca.results import kinds

if TYPE_CHECKING:
    from streampca.validation import Options

# Attributes that results of all kinds but the first have always had, and those of models fitted by EM.
SHARED_ATTRIBUTES = ("genotypes", "n_features", "notes")
EM_ATTRIBUTES = (*SHARED_ATTRIBUTES, "n_iterations", "total_log_likelihood")
# Variables of stores without a model.
LONG_NAMES = {"distance": "distance of each sample from the space of the components, in scaled units"}
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
    certified : whether its components have certificates.
    estimator : "module:class" of its estimator.
    fitted : "module:class" of its fitted record, which lists the arrays of its results; see `models.record`.
    fit, plan : "module:function" that returns the fitted record and its sweeps, and the plan, of source and options.
    scores : "module:function" that adds the scores of the samples, in another sweep; empty if `fit` does.
    sample_arrays : that it writes.
    outliers : whether outliers among genotypes can be found and removed.
    relatives : whether it can be fitted to unrelated samples, and the others projected.
    project, impute, denoise, predict : "module:function" that applies a result to other data; empty if it cannot.
    opening : first sentence of the methods paragraph, before the name of the program; {} is the size of the data.
    missing_values, centres, variance : what is done with missing values, whether features that are not scaled are
        centred, and what the shares of the variance refer to, for that paragraph.
    component, prefix : noun for a component, and its name before the number.
    """

    name: str
    title: str
    record: str
    example: str
    genotypes: bool = True
    exports: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    certified: bool = False
    estimator: str = ""
    fitted: str = ""
    fit: str = ""
    plan: str = ""
    scores: str = ""
    sample_arrays: tuple[str, ...] = ("scores",)
    outliers: bool = False
    relatives: bool = False
    project: str = ""
    impute: str = ""
    denoise: str = ""
    predict: str = ""
    opening: str = ""
    missing_values: str = "were replaced by the mean"
    centres: bool = True
    variance: str = "of the total variance"
    component: str = "component"
    prefix: str = "PC"

    @cached_property
    def options(self) -> type[Options]:
        """The record of its options."""
        module, _, record = self.record.partition(":")
        found: type[Options] = getattr(import_module(module), record)
        return found

    def function(self, name: str, where: str = "") -> Callable[..., Any]:
        """Import a function that the record names; raise `InputError`, with `where`, if this kind has none."""
        module, _, function = str(getattr(self, name)).partition(":")
        if not module:
            raise InputError(
                f"{where}{name} is not available for {self.name}; use a result of {listed(kinds_with(name))}"
            )
        found: Callable[..., Any] = getattr(import_module(module), function)
        return found


@cache
def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return tuple(module.name for module in pkgutil.iter_modules(kinds.__path__))


def kinds_with(name: str) -> list[str]:
    """Return the names of the kinds that have something, as "project"."""
    return [kind for kind in kind_names() if getattr(kind_of(kind), name)]


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
    if not (isinstance(kind, str) and kind in kind_names()):
        return LONG_NAMES
    fitted: Any = kind_of(kind).function("fitted")
    names: Mapping[str, str] = fitted.long_names()
    return names


def kind_for(options: Options) -> Kind:
    """Return the kind that has these options."""
    return next(kind for kind in map(kind_of, kind_names()) if kind.options is type(options))
