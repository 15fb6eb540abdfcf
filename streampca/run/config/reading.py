"""Read a configuration: YAML with line numbers, and settings of the command line.

Scalars stay text until the type of their key converts them: 1e-3 is a number, 01:00:00 a time and 2024 a directory,
whatever YAML 1.1 takes them for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from streampca.errors import InputError, listed, nearest
from streampca.run.config.blocks import BLOCKS, ENGINES, Config, Keys
from streampca.run.config.build import build, shown

# Limits of a configuration file; parsing YAML is slow.
MAX_BYTES = 1 << 17
MAX_VALUES = 10_000
MAX_DEPTH = 20


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
    _drop_other_engines(tree, places)
    return build(tree, places)


def _drop_other_engines(tree: dict[str, Any], places: dict[Keys, str]) -> None:
    """Drop keys of the file's engine if the command line sets another: a cluster's configuration runs on threads."""
    keys = tree.get("engine")
    if not isinstance(keys, dict) or not places.get(("engine", "kind"), "").startswith("--set "):
        return
    record = ENGINES.get(str(keys["kind"]))
    if record is None:
        return
    others = {name for engine in ENGINES.values() for name in engine.fields} - set(record.fields)
    for key in others & set(keys):
        if not places[("engine", key)].startswith("--set "):
            del keys[key]


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
        raise InputError(f"{places[()]}: expected the blocks {listed(BLOCKS, 'and')}, got {shown(tree)}")
    return tree, places


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise InputError(f"{path}: the file has {len(content)} bytes, more than {MAX_BYTES}; check the path")
    except FileNotFoundError:
        files = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        near = nearest(str(path), files, 0.8)
        hint = f"did you mean {near}?" if near else "`streampca config new pca` prints a configuration"
        raise InputError(f"{path}: no such file; {hint}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; use a YAML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if path.suffix not in (".yaml", ".yml"):
            raise InputError(f"{path}: is not a YAML file; `streampca config new pca` prints a configuration") from None
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
                f"{place}: {'.'.join(path[:depth])} is {shown(block)}, which has no keys; set the whole block"
            )
    for stale in [known for known in places if known[: len(path)] == path]:
        del places[stale]
    places[path] = place
    block[path[-1]] = None if node is None else _values(node, path, places, lambda _: place)
