"""Checks of parameters and of declared sizes; base and types of the option records.

An option is a field of one record: its type, default, limits and one help sentence. Flags, YAML keys, the JSON schema
and starter files are generated from the record; estimators repeat names and defaults, as scikit-learn requires.
"""

from __future__ import annotations

import operator
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from streampca.errors import InputError, listed
from streampca.progress import system

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Files of limit, usage and statistics, and the name of reclaimable pages, by version of cgroups.
_V2 = ("memory.max", "memory.current", "memory.stat", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file")


def available_memory() -> int:
    """Return the bytes that this process may still allocate.

    The least of what the machine has, what its control groups leave (versions 1 and 2, and all groups above it), what
    a Slurm job was given, and `ulimit`. PBS, SGE and LSF limit jobs by control groups or `ulimit`.
    """
    process = system().Process().memory_info()
    limits = [int(system().virtual_memory().available), *_cgroup_limits()]
    job = _slurm_limit()
    if job is not None:
        limits.append(job - int(process.rss))
    for kind, used in ((resource.RLIMIT_AS, process.vms), (resource.RLIMIT_DATA, process.rss)):
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY:
            limits.append(most - int(used))
    return max(0, min(limits))


def _cgroup_limits() -> Iterator[int]:
    """Yield what the memory control group of this process leaves, and those above it."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (CGROUPS / "memory", _V1) if controllers else (CGROUPS, _V2)
        # Within a container the root of the mount is the group itself.
        group = root / place.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _left_in(folder, *files)


def _left_in(folder: Path, limit: str, used: str, statistics: str, reclaimable: str) -> Iterator[int]:
    """Yield the bytes that one control group leaves; nothing if it has no limit."""
    with suppress(OSError, ValueError):
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        pages = dict(line.split() for line in (folder / statistics).read_text().splitlines())
        yield most - taken + int(pages.get(reclaimable, 0))


def _slurm_limit() -> int | None:
    """Return the bytes of this Slurm job on this node; None outside of a job, or without a limit."""
    with suppress(KeyError, ValueError):
        node = int(os.environ.get("SLURM_MEM_PER_NODE", 0))
        core = 0 if node else int(os.environ["SLURM_MEM_PER_CPU"]) * int(os.environ["SLURM_CPUS_ON_NODE"])
        return (node + core) << 20 or None
    return None


def check_declared_size(where: str, n_bytes: int) -> None:
    """Check a declared size against the available memory before allocating: labels, or one chunk."""
    # Asking the system takes longer than reading a small array.
    if n_bytes > 1 << 20 and n_bytes > available_memory() // 2:
        raise InputError(
            f"{where}: declares {n_bytes / 1e9:.3g} GB, more than half of the available memory; check the file"
        )


# Keyword of a JSON schema and check of each limit.
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "ge": ("minimum", operator.ge),
    "gt": ("exclusiveMinimum", operator.gt),
    "le": ("maximum", operator.le),
    "lt": ("exclusiveMaximum", operator.lt),
    "min_length": ("minLength", lambda value, least: len(value) >= least),
    "pattern": ("pattern", lambda text, pattern: re.fullmatch(pattern, text)),
    "examples": ("examples", lambda *_: True),
}


@dataclass(frozen=True)
class Limits:
    """Limits of a value, in its annotation: Annotated[int, Limits(ge=1)]; `examples` are for messages."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    pattern: str | None = None
    examples: tuple[str, ...] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The limits that are not None."""
        return {name: limit for name, limit in vars(self).items() if limit is not None}

    def check(self, value: Any) -> None:
        """Raise `ValueError` if a value is outside."""
        if not all(_LIMITS[name][1](value, limit) for name, limit in self.given.items()):
            raise ValueError(value)


@dataclass(frozen=True)
class Convert:
    """A function that converts a value before it is checked, in its annotation; `schema` is the type of its input."""

    function: Callable[[Any], Any]
    schema: Any = None


def _plain(value: Any) -> Any:
    """Convert NumPy scalars."""
    return value.item() if type(value).__module__ == "numpy" and not getattr(value, "shape", ()) else value


def _number(value: Any) -> Any:
    """Convert text that is a number, and NumPy scalars; 1e3 is an integer where integers are allowed."""
    value = _plain(value)
    for kind in (int, float):
        try:
            return kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value


def plain_number(value: Any) -> Any:
    """Convert text and NumPy scalars to numbers; reject booleans, which Python takes for integers."""
    value = _number(value)
    return str(value) if isinstance(value, bool) else value


def _parts(value: Any) -> Any:
    """Split "a,b" into [a, b]."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _lines(value: Any) -> Any:
    """Split text into its lines; drop blank ones."""
    return [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


def _null(value: Any) -> Any:
    return None if value == "none" else value


AMOUNT = r"^(?:[1-9][0-9]*(?:\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)(?:[eE][+-]?[0-9]+)? ?(?:[kKmMgGtTpP][iI]?[bB]?|[bB])?$"
TIME = r"^(?:[0-9]+-)?[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]$"

Text = Annotated[str, Limits(min_length=1)]
Count = Annotated[int, Limits(ge=1), Convert(plain_number)]
Seed = Annotated[int, Limits(ge=0), Convert(plain_number)]
Share = Annotated[float, Limits(ge=0, le=1), Convert(plain_number)]
Between = Annotated[float, Limits(gt=0, lt=1), Convert(plain_number)]
Positive = Annotated[float, Limits(gt=0), Convert(plain_number)]
Number = Annotated[float, Convert(plain_number)]
Amount = Annotated[Count | Annotated[str, Limits(pattern=AMOUNT, examples=("2GB",))], Convert(_number)]
Time = Annotated[str, Limits(pattern=TIME, examples=("01:30:00", "2-00:00:00"))]
Names = Annotated[tuple[Text, ...], Limits(min_length=1), Convert(_parts, schema=list[str] | str)]
Lines = Annotated[tuple[Text, ...], Convert(_lines, schema=list[str] | str)]
Shape = Annotated[tuple[Count, Count], Convert(_parts)]
CountOrAuto = Annotated[Count | Literal["auto"] | None, Convert(plain_number)]
# "none" in the shell and in YAML is None in Python.
Scale = Annotated[
    Literal["auto", "unit", "patterson"] | None,
    Convert(_null, schema=Literal["auto", "none", "unit", "patterson"] | None),
]
FieldScale = Annotated[
    Literal["auto", "unit", "patterson", "eigenstrat", "coslat"] | None,
    Convert(_null, schema=Literal["auto", "none", "unit", "patterson", "eigenstrat", "coslat"] | None),
]
PlainScale = Annotated[Literal["unit"] | None, Convert(_null, schema=Literal["none", "unit"] | None)]


class Option:
    """A field of a record of options: its default, one help sentence, and examples for messages.

    Its type is the annotation of the field: bool, int, float, str, None, Literal, tuples, callables, and unions of
    them, with `Limits` and `Convert`.
    """

    def __init__(self, default: Any, description: str, examples: tuple[str | int, ...]):
        self.default, self.description, self.examples = default, description, examples

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    @cached_property
    def annotation(self) -> Any:
        """The type of its values."""
        return _annotations(self._owner)[self._name]

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is ...

    def checked(self, value: Any) -> Any:
        """Return a value as the type of the option; raise `ValueError` if it is not one."""
        return _checked(self.annotation, _plain(value))

    def schema(self) -> dict[str, Any]:
        """Return what a JSON schema says of it."""
        found = {**_schema(self.annotation), "description": self.description}
        if self.examples:
            found["examples"] = list(self.examples)
        return found if self.required else {**found, "default": _as_json(self.default)}

    def allowed(self) -> list[str]:
        """Return the values that it may have, in words."""
        return allowed_values(self.schema())


def option(*, default: Any = ..., description: str, examples: tuple[str | int, ...] = ()) -> Any:
    """Declare a field of a record of options; without a default it is required."""
    return Option(default, description, examples)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """Options that belong together: no others are allowed, and none changes after it was checked.

    Importing a library for this would take longer than most commands: help and errors of the command line come from
    these records.
    """

    fields: ClassVar[dict[str, Option]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        cls.fields = {**cls.fields, **own}

    def __init__(self, **given: Any) -> None:
        unknown = [name for name in given if name not in self.fields]
        absent = [name for name, field in self.fields.items() if field.required and name not in given]
        if unknown or absent:
            raise InputError(f"{unknown[0]} is not an option" if unknown else f"{absent[0]} is missing; add it")
        for name, field in self.fields.items():
            try:
                self.__dict__[name] = field.checked(given[name]) if name in given else field.default
            except ValueError:
                raise InputError(f"{name} must be {listed(field.allowed())}, got {given[name]!r}") from None
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raise `InputError` if values are valid alone but not combined."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the record of these options, those that it has; raise `InputError` for the first invalid one."""
        return cls(**{name: value for name, value in given.items() if name in cls.fields})

    def most_components(self, shape: tuple[int, int]) -> int | None:  # noqa: ARG002
        """Return the largest n_components for data of this shape; None if its default does not depend on it."""
        return None

    def changed(self, **values: Any) -> Self:
        """Return the record with other values, checked again."""
        return type(self)(**{**self.__dict__, **values})

    def as_dict(self) -> dict[str, Any]:
        """Return all values, as JSON and YAML hold them."""
        return {name: _as_json(value) for name, value in self}

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the record."""
        return {
            "type": "object",
            "description": str(cls.__doc__),
            "properties": {name: field.schema() for name, field in cls.fields.items()},
            "required": [name for name, field in cls.fields.items() if field.required],
            "additionalProperties": False,
        }

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"options are frozen; use changed({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"


@cache
def _annotations(record: type) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _checked(kind: Any, value: Any) -> Any:
    """Return a value as the type of an annotation; raise `ValueError` if it is not one."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _with_notes(parts, value)
    if origin in (Union, UnionType):
        return _one_of(parts, value)
    if origin is Literal:
        return _first([choice for choice in parts if type(choice) is type(value) and choice == value], value)
    if origin is tuple:
        return _items(parts, value)
    return _SCALARS[origin or kind](value)


def _with_notes(parts: tuple[Any, ...], value: Any) -> Any:
    kind, *notes = parts
    for note in notes:
        value = note.function(value) if isinstance(note, Convert) else value
    value = _checked(kind, value)
    for note in notes:
        if isinstance(note, Limits):
            note.check(value)
    return value


def _one_of(parts: tuple[Any, ...], value: Any) -> Any:
    found = []
    for part in parts:
        with suppress(ValueError):
            found.append(_checked(part, value))
    same = [result for result in found if type(result) is type(value)]
    return _first(same or found, value)


def _items(parts: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise ValueError(value)
    kinds = parts[:1] * len(value) if parts[-1] is ... else parts
    return tuple(_checked(part, item) for part, item in zip(kinds, value, strict=True))


def _first(values: list[Any], given: Any) -> Any:
    if not values:
        raise ValueError(given)
    return values[0]


_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _bool(value: Any) -> bool:
    return bool(_first([truth for text, truth in _TRUTH.items() if str(value).lower() == text], value))


def _int(value: Any) -> int:
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return int(_first([value] if isinstance(value, int) and not isinstance(value, bool) else [], value))


def _float(value: Any) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return float(_first([value] if number else [], value))


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: lambda value: _first([value] if isinstance(value, str) else [], value),
    NoneType: lambda value: _first([None] if value is None else [], value),
    Callable: lambda value: _first([value] if callable(value) else [], value),
}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


def _schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of an annotation; functions have none."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _schema_with_notes(parts)
    if origin in (Union, UnionType):
        schemas = [_schema(part) for part in parts if get_origin(part) is not Callable]
        found = [fragment for schema in schemas for fragment in schema.get("anyOf", [schema])]
        return found[0] if len(found) == 1 else {"anyOf": found}
    if origin is Literal:
        words = {"const": parts[0]} if len(parts) == 1 else {"enum": list(parts)}
        return {**words, "type": _TYPES[type(parts[0])]}
    if origin is list or parts[-1:] == (...,):
        return {"type": "array", "items": _schema(parts[0])}
    if origin is tuple:
        return {"type": "array", "prefixItems": [*map(_schema, parts)], "minItems": len(parts), "maxItems": len(parts)}
    return {"type": _TYPES[kind]}


def _schema_with_notes(parts: tuple[Any, ...]) -> dict[str, Any]:
    kind, *notes = parts
    converted = next((note.schema for note in notes if isinstance(note, Convert) and note.schema is not None), None)
    if converted is not None:
        return _schema(converted)
    limits = {name: limit for note in notes if isinstance(note, Limits) for name, limit in note.given.items()}
    return _schema(kind) | {_LIMITS[name][0]: _as_json(limit) for name, limit in limits.items()}


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def allowed_values(fragment: Mapping[str, Any]) -> list[str]:
    """Return the values that a fragment of a JSON schema allows, in words."""
    if "anyOf" in fragment:
        # None stands for the default; messages list the other values.
        parts = [part for part in fragment["anyOf"] if part.get("type") != "null"]
        return [words for part in parts for words in allowed_values(part)]
    if "enum" in fragment or "const" in fragment:
        return [str(choice) for choice in fragment.get("enum", [fragment.get("const")])]
    kind = fragment["type"]
    if kind in ("integer", "number"):
        return [_numbers(fragment, "an integer" if kind == "integer" else "a number")]
    if kind == "array":
        return ["two integers, as [1000, 50000]" if "prefixItems" in fragment else "a list, as [a, b]"]
    if kind == "string":
        return [f"text such as {listed(fragment['examples'])}" if "examples" in fragment else "text"]
    return {"boolean": ["true", "false"]}[kind]


def _numbers(fragment: Mapping[str, Any], what: str) -> str:
    """Return the range of a number in words."""
    least, most = fragment.get("minimum"), fragment.get("maximum")
    above, below = fragment.get("exclusiveMinimum"), fragment.get("exclusiveMaximum")
    if above is not None and below is not None:
        return f"{what} between {above:g} and {below:g}"
    if least is not None and most is not None:
        return f"{what} from {least:g} to {most:g}"
    if least is not None:
        return f"{what} >= {least:g}"
    return what if above is None else f"{what} > {above:g}"
