"""Read a configuration: YAML with line numbers, settings of the command line, and messages on what is invalid.

Scalars stay text until the type of their key converts them: 1e-3 is a number, 01:00:00 a time and 2024 a directory,
whatever YAML 1.1 takes them for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from streampca.errors import InputError
from streampca.results.kind import kind_names, kind_of
from streampca.run.config.blocks import BLOCKS, ENGINES, Config, Data, Filter, Keys, Output, Threads
from streampca.validation import Options, allowed, allowed_values, listed, nearest

# Limits of a configuration file; parsing YAML is slow.
MAX_BYTES = 1 << 17
MAX_VALUES = 10_000
MAX_DEPTH = 20
# Blocks that have no kinds.
_PLAIN: dict[str, type[Options]] = {"data": Data, "filter": Filter, "output": Output}
# The block that version 0.7 had instead of data and filter.
OLD_BLOCK = "source"


def load(path: str | Path, settings: Sequence[str] = ()) -> Config:
    """Read and check a configuration.

    Parameters
    ----------
    path : the YAML file.
    settings : "key=value" each, with dots in the key (model.tol=1e-6) and YAML as value; they override the file.
    """
    tree, places = read_tree(path)
    for setting in settings:
        _set(tree, places, setting)
    return build(tree, places)


def read_tree(path: str | Path) -> tuple[dict[str, Any], dict[Keys, str]]:
    """Read the blocks of a YAML file, scalars as text, and the place of each key."""
    name = str(path)
    root = _compose(_read(Path(path)), name)
    if root is not None and _size(root, {}) > MAX_VALUES:
        raise InputError(f"{name}:1: aliases (*) expand to more than {MAX_VALUES} values; write them out")
    if root is None:
        raise InputError(f"{name}:1: the file is empty; `streampca config new pca` prints a configuration")
    places: dict[Keys, str] = {(): f"{name}:{root.start_mark.line + 1}"}
    tree = _values(root, (), places, lambda node: f"{name}:{node.start_mark.line + 1}")
    if not isinstance(tree, dict):
        raise InputError(f"{places[()]}: expected the blocks {listed(BLOCKS, 'and')}, got {_shown(tree)}")
    return tree, places


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
        except PydanticCustomError as error:
            context: Any = error.context
            reader.invalid[tuple(context["path"].split("."))] = str(error)
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
            self.invalid[block,] = f"{block} must be a block of keys, as {block}: {{{example}}}, got {_shown(keys)}"
            return None
        record = self.record(block, keys)
        if record is None:
            return None
        keys = {key: value for key, value in keys.items() if block != "model" or key != "kind"}
        try:
            return record.model_validate(keys)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                self._add(block, record, keys, detail)
            return None

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
            f"must be {listed(names)}, got {_shown(kind)}{hint}" if "kind" in keys else f"is missing: {listed(names)}"
        )
        self.invalid[block, "kind"] = f"{block}.kind {given}"
        return None

    def _add(self, block: str, record: type[Options], keys: Mapping[str, Any], detail: Any) -> None:
        """Add the message of one of pydantic's errors."""
        if detail["type"] == "conflict":
            self.invalid[tuple(detail["ctx"]["path"].split("."))] = str(detail["ctx"]["message"])
            return
        key = str(detail["loc"][0])
        path = (block, key)
        if detail["type"] == "extra_forbidden":
            self.unknown[path] = self._unknown_key(block, key, record)
        elif path in self.invalid:
            pass
        elif key not in keys:
            about = record.model_fields[key].description
            if not any(nearest(other, [key]) for other in keys if other not in record.model_fields):
                self.invalid[path] = f"{self.label(path)} is missing; add it: {about}"
        else:
            value, choices = keys[key], allowed(record, key)
            words = allowed_values(record.model_json_schema()["properties"][key])
            near = nearest(value, words) if isinstance(value, str) else None
            hint = f" (did you mean {near}?)" if near else ""
            self.invalid[path] = f"{self.label(path)} must be {choices}, got {_shown(value)}{hint}"

    def _unknown_block(self, block: str) -> str:
        if block == OLD_BLOCK:
            return (
                f"the block {OLD_BLOCK} of version 0.7 is now data, filter and model; `streampca config upgrade FILE` "
                "writes the new form"
            )
        homes = [name for name in BLOCKS for record in _records(name).values() if block in record.model_fields]
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
        if near := nearest(key, record.model_fields):
            return f"{name}did you mean {near}?"
        for blocks in ((block,), BLOCKS):
            every = {other for name in blocks for each in _records(name).values() for other in each.model_fields}
            near = nearest(key, every)
            if near and (home := _home(near, block, self.tree)):
                return f"{name}did you mean {near}? {home}"
        return f"{name}use {listed(record.model_fields)}"

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


def _home(key: str, block: str, tree: Mapping[str, Any]) -> str:
    """Return the place of a key that is known elsewhere, in words; nothing if it is known nowhere."""
    kinds = [kind for kind, record in _records(block).items() if key in record.model_fields and kind]
    if kinds:
        return f"{key} is an option of {listed(kinds)}; {block}.kind is {tree[block].get('kind', 'threads')}"
    homes = [name for name in BLOCKS for record in _records(name).values() if key in record.model_fields]
    return f"{key} belongs in {listed(dict.fromkeys(homes))}" if homes else ""


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise InputError(f"{path}: the file has {len(content)} bytes, more than {MAX_BYTES}; check the path")
    except FileNotFoundError:
        files = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        near = nearest(str(path), files)
        hint = f"did you mean {near}?" if near else "`streampca config new pca` prints a configuration"
        raise InputError(f"{path}: no such file; {hint}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; use a YAML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


YAML_HINTS = {
    "'\\t'": "indent by spaces, not by tabs",
    "than one document": "keep one document, without ---",
    "mapping values": "check the indentation, and put text with a colon and a space in quotes",
    "alias": "put text that begins with * in quotes",
    "": "check the indentation, brackets and quotes there and in the line before",
}  # fmt: skip


def _compose(text: str, name: str, in_file: bool = True) -> Any:
    """Parse YAML into a node; None if it is empty."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        line = mark.line + 1
        problem = problem.replace("but found another", "more than one")
        hint = next(hint for sign, hint in YAML_HINTS.items() if sign in f"{problem} {error.context}")
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position) + 1, f"character {error.character:#x} is not allowed"
        hint = "remove it"
    except RecursionError:
        line, problem, hint = 1, "too many nested brackets", "remove them"
    place = f"{name}:{line}" if in_file else name
    raise InputError(f"{place}: cannot be read ({problem}); {hint if in_file else 'put the value in quotes'}")


def _size(node: Any, known: dict[Any, int]) -> int:
    """Return the number of values of a node with all aliases expanded; fewer if it contains itself."""
    if node not in known:
        known[node] = 1
        if isinstance(node, yaml.CollectionNode):
            inner = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
            known[node] = 1 + sum(_size(part, known) for part in inner)
    return known[node]


def _values(
    node: Any, path: Keys, places: dict[Keys, str], place: Callable[[Any], str], above: tuple[Any, ...] = ()
) -> Any:
    """Return the values of a node, scalars as text or None, and add the place of each key.

    Parameters
    ----------
    place : returns the place of a node.
    above : the nodes that contain this one.
    """
    if node in above:
        raise InputError(f"{places[path]}: {'.'.join(path)} contains itself; write it out")
    if len(above) > MAX_DEPTH:
        raise InputError(f"{place(node)}: lists are nested more than {MAX_DEPTH} deep; flatten them")
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise InputError(f"{place(node)}: unknown tag {node.tag}; write the value without it")
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        return [_values(child, path, places, place, above) for child in node.value]
    found: dict[str, Any] = {}
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{place(key)}: a key must be a word, not a list or a block; put braces in quotes")
        here = (*path, key.value)
        if key.value in found:
            raise InputError(f"{place(key)}: {'.'.join(here)} is given twice, first at {places[here]}; remove one")
        places[here] = place(key)
        found[key.value] = _values(child, here, places, place, above)
    return found


def _set(tree: dict[str, Any], places: dict[Keys, str], setting: str) -> None:
    """Apply a setting of the command line to the tree."""
    place = f"--set {' '.join(setting.split())}"
    key, separator, text = setting.partition("=")
    path = tuple(key.strip().split("."))
    if not separator or not all(path):
        raise InputError(f"{place}: expected KEY=VALUE, as --set model.tol=1e-6")
    node = _compose(text, place, in_file=False)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        # "a: b" is text here.
        node = yaml.ScalarNode("tag:yaml.org,2002:str", text.strip())
    block = tree
    for depth, part in enumerate(path[:-1], 1):
        if block.get(part) is None:
            block[part] = {}
            places[path[:depth]] = place
        block = block[part]
        if not isinstance(block, dict):
            raise InputError(
                f"{place}: {'.'.join(path[:depth])} is {_shown(block)}, which has no keys; set the whole block"
            )
    for stale in [known for known in places if known[: len(path)] == path]:
        del places[stale]
    places[path] = place
    block[path[-1]] = None if node is None else _values(node, path, places, lambda _: place)


def _shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]" if all(isinstance(item, str) for item in value[:9]) else "a list"
    return "null" if value is None else repr(value if len(value) <= 60 else f"{value[:57]}...")
