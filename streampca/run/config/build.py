"""Check the blocks of a configuration, from a file or from flags; messages name the key, its place and the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streampca.errors import InputError, listed, nearest
from streampca.results.kind import kind_names, kind_of
from streampca.run.config.blocks import BLOCKS, ENGINES, Config, ConflictError, Data, Filter, Keys, Output, Threads
from streampca.validation import Option, Options

# Blocks that have no kinds.
_PLAIN: dict[str, type[Options]] = {"data": Data, "filter": Filter, "output": Output}
# The block that version 0.7 had instead of data and filter.
OLD_BLOCK = "source"


def build(
    tree: Mapping[str, Any], places: Mapping[Keys, str] | None = None, label: Callable[[Keys], str] = ".".join
) -> Config:
    """Check all blocks and return the configuration; raise `InputError` for the first invalid key, with its place.

    Parameters
    ----------
    tree : blocks, each with its keys.
    places : where each key was given, as "run.yaml:3"; nothing for flags of a command.
    label : returns the name of a key in messages.
    """
    # A block without keys is an empty block.
    tree = {block: {} if keys is None and block in BLOCKS else keys for block, keys in tree.items()}
    reader = _Reader(tree, label)
    found = {block: reader.block(block) for block in BLOCKS}
    if not reader.problems:
        try:
            return Config(kind=kind_of(str(tree["model"]["kind"])), **found)  # type: ignore[arg-type]
        except ConflictError as error:
            reader.invalid[error.path] = str(error)
    raise InputError(reader.report(places or {}))


class _Reader:
    """Checks the blocks of a tree and collects what is invalid."""

    def __init__(self, tree: Mapping[str, Any], label: Callable[[Keys], str]):
        self.tree, self.label = tree, label
        self.unknown: dict[Keys, str] = {}
        self.invalid: dict[Keys, str] = {}
        for block in tree:
            if block not in BLOCKS:
                self.unknown[block,] = self._unknown_block(str(block))

    @property
    def problems(self) -> dict[Keys, str]:
        """Messages by key; unknown keys first: a misspelled key explains a missing one."""
        return self.unknown | self.invalid

    def block(self, block: str) -> Options | None:
        """Check one block; return its record, or None if it is invalid."""
        keys = self.tree.get(block, {} if block in ("filter", "engine") else None)
        if keys is None:
            if not any(nearest(str(other), [block]) for other in self.tree if other not in BLOCKS):
                needed = {"data": "path", "model": "kind", "output": "path"}[block]
                self.invalid[block,] = f"the block {block} is missing; add it, with {needed}"
            return None
        if not isinstance(keys, Mapping):
            example = f"kind: {keys}" if block == "engine" and keys in ENGINES else "..."
            self.invalid[block,] = f"{block} must be a block of keys, as {block}: {{{example}}}, got {shown(keys)}"
            return None
        record = self.record(block, keys)
        if record is None:
            return None
        keys = {key: value for key, value in keys.items() if block != "model" or key != "kind"}
        self._check_keys(block, record, keys)
        if any(path[0] == block for path in self.problems):
            return None
        try:
            return record(**keys)
        except ConflictError as error:
            self.invalid[error.path] = str(error)
        except InputError as error:
            self.invalid[block,] = str(error)
        return None

    def _check_keys(self, block: str, record: type[Options], keys: Mapping[str, Any]) -> None:
        """Add messages on unknown, invalid and missing keys."""
        for key, value in keys.items():
            if key not in record.fields:
                self.unknown[block, key] = self._unknown_key(block, key, record)
            else:
                self._check((block, key), record.fields[key], value)
        for key, field in record.fields.items():
            misspelled = any(nearest(other, [key]) for other in keys if other not in record.fields)
            if field.required and key not in keys and not misspelled:
                path = (block, key)
                self.invalid[path] = f"{self.label(path)} is missing; add it: {field.description}"

    def _check(self, path: Keys, field: Option, value: Any) -> None:
        """Add a message if the value of a key is invalid."""
        try:
            field.checked(value)
        except ValueError:
            words = field.allowed()
            near = nearest(value, words) if isinstance(value, str) else None
            hint = f" (did you mean {near}?)" if near else ""
            self.invalid[path] = f"{self.label(path)} must be {listed(words)}, got {shown(value)}{hint}"

    def record(self, block: str, keys: Mapping[str, Any]) -> type[Options] | None:
        """Return the record of a block; None, with a message, if its kind is missing or unknown."""
        if block in _PLAIN:
            return _PLAIN[block]
        if block == "engine" and "kind" not in keys:
            return Threads
        names = kind_names() if block == "model" else tuple(ENGINES)
        kind = keys.get("kind")
        if kind in names:
            return kind_of(kind).options if block == "model" else ENGINES[kind]
        near = nearest(kind, names) if isinstance(kind, str) else None
        hint = f" (did you mean {near}?)" if near else ""
        given = (
            f"must be {listed(names)}, got {shown(kind)}{hint}"
            if "kind" in keys
            else f"is missing; use {listed(names)}"
        )
        self.invalid[block, "kind"] = f"{block}.kind {given}"
        return None

    def _unknown_block(self, block: str) -> str:
        if block == OLD_BLOCK:
            return (
                f"the block {OLD_BLOCK} of version 0.7 is now data, filter and model; `streampca config upgrade FILE` "
                "writes the new form"
            )
        homes = [name for name in BLOCKS for record in _records(name).values() if block in record.fields]
        if homes:
            return f"unknown block {block}; {block} is a key of {listed(dict.fromkeys(homes))}"
        near = nearest(block, BLOCKS)
        return f"unknown block {block}; " + (f"did you mean {near}?" if near else f"use {listed(BLOCKS)}")

    def _unknown_key(self, block: str, key: str, record: type[Options]) -> str:
        """Return where an unknown key belongs, or the nearest one: of this record, this block, any block."""
        name = f"unknown key {block}.{key}; "
        if key in RENAMED.get(block, {}):
            return f"{name}since version 0.8 it is {RENAMED[block][key]}"
        if home := _home(key, block, self.tree):
            return name + home
        if near := nearest(key, record.fields):
            return f"{name}did you mean {near}?"
        for blocks in ((block,), BLOCKS):
            every = {other for name in blocks for each in _records(name).values() for other in each.fields}
            near = nearest(key, every)
            if near and (home := _home(near, block, self.tree)):
                return f"{name}did you mean {near}? {home}"
        return f"{name}use {listed(record.fields)}"

    def report(self, places: Mapping[Keys, str]) -> str:
        """Return the first problem in one line, with its place, and the number of others."""
        (path, message), *others = self.problems.items()
        more = [".".join(other) for other, _ in others]
        end = f" (and {len(more)} more: {', '.join(more[:4])}{', ...' * (len(more) > 4)})" if more else ""
        place = next((places[path[:depth]] for depth in range(len(path), -1, -1) if path[:depth] in places), "")
        return " ".join(f"{place}: {message}{end}".removeprefix(": ").splitlines())


# Keys of version 0.7, by the block where they are given, and their new place.
RENAMED = {
    "model": {
        "seed": "model.random_state", "fit_inverse": "model.fit_inverse_transform", "target": "model.target_trace",
        "outliers": "filter.outliers", "outlier_rounds": "filter.outlier_rounds",
    },
    "engine": {"memory": "engine.memory_limit"},
}  # fmt: skip


def _records(block: str) -> dict[str, type[Options]]:
    """Return the records of a block, by kind; "" if it has no kinds."""
    if block == "model":
        return {name: kind_of(name).options for name in kind_names()}
    if block == "engine":
        return dict(ENGINES)
    return {"": _PLAIN[block]}


def key_names() -> dict[str, str]:
    """Return the names of all options, and their keys: tol is model.tol."""
    return {key: f"{name}.{key}" for name in BLOCKS for record in _records(name).values() for key in record.fields}


def _home(key: str, block: str, tree: Mapping[str, Any]) -> str:
    """Return the place of a key that is known elsewhere, in words; nothing if it is known nowhere."""
    kinds = [kind for kind, record in _records(block).items() if key in record.fields and kind]
    if kinds:
        return f"{key} is an option of {listed(kinds)}; {block}.kind is {tree[block].get('kind', 'threads')}"
    homes = [name for name in BLOCKS for record in _records(name).values() if key in record.fields]
    return f"{key} belongs in {listed(dict.fromkeys(homes))}" if homes else ""


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]" if all(isinstance(item, str) for item in value[:9]) else "a list"
    return "null" if value is None else repr(value if len(value) <= 60 else f"{value[:57]}...")
