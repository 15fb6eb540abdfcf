"""Reading a configuration: YAML with line numbers, settings from the command line, and what is wrong with them.

Scalars are kept as they are written, and the type of their key says what they are: 1e-3 is a number, 01:00:00 a time
and 2024 a folder, whatever YAML 1.1 takes them for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from streampca.errors import InputError
from streampca.run.config.blocks import BLOCKS, Block, Config, Keys, listed
from streampca.run.config.describing import allowed_by

# What no configuration goes beyond; reading YAML takes long.
MOST_BYTES = 1 << 17
MOST_VALUES = 10_000
DEEPEST = 20


def load(path: str | Path, settings: Sequence[str] = ()) -> Config:
    """Read and check a configuration.

    Parameters
    ----------
    path : of the YAML file.
    settings : "key=value" each, with dots in the key (model.tol=1e-6) and YAML as value, instead of what the file says.
    """
    name = str(path)
    root = _compose(_read(Path(path)), name)
    if root is not None and _size(root, {}) > MOST_VALUES:
        raise InputError(f"{name}:1: aliases (*) make more than {MOST_VALUES} values of it; write them out")
    if root is None:
        raise InputError(f"{name}:1: is empty; `streampca config new pca` prints a file to begin with")
    places: dict[Keys, str] = {(): f"{name}:{root.start_mark.line + 1}"}
    tree = _values(root, (), places, lambda node: f"{name}:{node.start_mark.line + 1}")
    if not isinstance(tree, dict):
        raise InputError(f"{places[()]}: holds {_shown(tree)}; give the blocks {listed(BLOCKS, 'and')}")
    for setting in settings:
        _set(tree, places, setting)
    # A block with nothing in it is there, and empty.
    tree = {key: {} if value is None and key in BLOCKS else value for key, value in tree.items()}
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(_report(error, tree, places)) from None


def _read(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > MOST_BYTES:
            raise InputError(
                f"{path}: has {len(content)} bytes, a configuration no more than {MOST_BYTES}; check the path"
            )
    except FileNotFoundError:
        there = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        nearest = get_close_matches(str(path), there, 1)
        cure = f"{nearest[0]} is the nearest" if nearest else "`streampca config new pca` prints one to begin with"
        raise InputError(f"{path}: there is no such file; {cure}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; give a YAML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check its rights") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


CURES = {
    "'\\t'": "indent by spaces, not by tabs",
    "than one document": "keep one document, without ---",
    "mapping values": "check the indentation, and put text with a colon and a space in quotes",
    "alias": "put text that begins with * in quotes",
    "": "check the indentation, brackets and quotes there and in the line before",
}  # fmt: skip


def _compose(text: str, name: str, in_file: bool = True) -> Any:
    """Return the node that YAML is, None if there is nothing."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, str(error.problem)
        line = mark.line + 1
        problem = problem.replace("but found another", "more than one")
        cure = next(cure for sign, cure in CURES.items() if sign in f"{problem} {error.context}")
    except yaml.reader.ReaderError as error:
        line, problem = text.count("\n", 0, error.position) + 1, f"character {error.character:#x} is not allowed"
        cure = "take it out"
    except RecursionError:
        line, problem, cure = 1, "brackets in brackets, too deep", "take them out"
    place = f"{name}:{line}" if in_file else name
    raise InputError(f"{place}: cannot be read ({problem}); {cure if in_file else 'put the value in quotes'}")


def _size(node: Any, known: dict[Any, int]) -> int:
    """Return how many values a node comes to when all aliases are written out; of one that holds itself, fewer."""
    if node not in known:
        known[node] = 1
        if isinstance(node, yaml.CollectionNode):
            inner = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
            known[node] = 1 + sum(_size(part, known) for part in inner)
    return known[node]


def _values(
    node: Any, path: Keys, places: dict[Keys, str], place: Callable[[Any], str], above: tuple[Any, ...] = ()
) -> Any:
    """Return what a node holds, scalars as text or None, and note where each key is.

    Parameters
    ----------
    place : says where a node is.
    above : nodes that this one is in.
    """
    if node in above:
        raise InputError(f"{places[path]}: {'.'.join(path)} refers to itself; write it out")
    if len(above) > DEEPEST:
        raise InputError(f"{place(node)}: lists in lists, more than {DEEPEST} deep; take them out")
    if not node.tag.startswith("tag:yaml.org,2002:"):
        raise InputError(f"{place(node)}: the tag {node.tag} is not known; write the value without it")
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        return [_values(child, path, places, place, above) for child in node.value]
    found: dict[str, Any] = {}
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{place(key)}: a key is a list or a block; give a word, and put braces in quotes")
        here = (*path, key.value)
        if key.value in found:
            raise InputError(f"{place(key)}: {'.'.join(here)} is given twice, first at {places[here]}; leave one out")
        places[here] = place(key)
        found[key.value] = _values(child, here, places, place, above)
    return found


def _set(tree: dict[str, Any], places: dict[Keys, str], setting: str) -> None:
    """Put a value of the command line in its place of the tree."""
    place = f"--set {' '.join(setting.split())}"
    key, separator, text = setting.partition("=")
    path = tuple(key.strip().split("."))
    if not separator or not all(path):
        raise InputError(f"{place}: is no key and value; give both, as --set model.tol=1e-6")
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
                f"{place}: {'.'.join(path[:depth])} is {_shown(block)}, which has no keys; set it as a whole"
            )
    for stale in [known for known in places if known[: len(path)] == path]:
        del places[stale]
    places[path] = place
    block[path[-1]] = None if node is None else _values(node, path, places, lambda _: place)


def _report(error: ValidationError, tree: dict[str, Any], places: dict[Keys, str]) -> str:
    """Return the first of the problems in one line, with its place, and how many more there are.

    A key that is not known comes first: it may be why another is missing.
    """
    details: dict[Keys, list[Any]] = {}
    for detail in error.errors(include_url=False):
        details.setdefault(_keys_of(detail), []).append(detail)
    unknown = [path for path, found in details.items() if found[0]["type"] == "extra_forbidden"]
    meant = {(*path[:-1], _nearest(path[-1], _known(path, tree))) for path in unknown}
    explained = [path for path, found in details.items() if path in meant and found[0]["type"] == "missing"]
    others = [path for path in details if path not in unknown and path not in explained]
    path = (unknown + others)[0]
    more = [".".join(other) for other in (unknown + others)[1:]]
    end = f" (and {len(more)} more: {', '.join(more[:4])}{', ...' * (len(more) > 4)})" if more else ""
    place = next(places[path[:depth]] for depth in range(len(path), -1, -1) if path[:depth] in places)
    return " ".join(f"{place}: {_explain(path, details[path][0], tree)}{end}".splitlines())


def _keys_of(detail: Any) -> Keys:
    """Return the key that an error of pydantic is about: its location without kinds, types and indices."""
    if detail["type"] == "together":
        return tuple(detail["ctx"]["path"].split("."))
    block, *rest = detail["loc"]
    if detail["type"].startswith("union_tag"):
        return block, "kind"
    return (block, *rest[block in ("model", "engine") :][:1])


def _explain(path: Keys, detail: Any, tree: dict[str, Any]) -> str:
    """Say what was given, what is allowed and what to do."""
    name, block = ".".join(path), path[0]
    if detail["type"] == "together":
        return str(detail["ctx"]["message"])
    if detail["type"] == "extra_forbidden":
        return _explain_unknown(path, tree)
    if len(path) == 1:
        needed = [key for key, field in _model(block, tree).model_fields.items() if field.is_required()] or ["kind"]
        if block not in tree:
            return f"{name} is missing; add a block of that name with {listed(needed, 'and')}"
        example = tree[block] if tree[block] in list(BLOCKS[block]) else "..."
        return f"{name} is {_shown(tree[block])}; give a block of keys, as {name}: {{{needed[0]}: {example}}}"
    fragment = _model(block, tree).model_json_schema()["properties"][path[1]]
    allowed = list(BLOCKS[block]) if path[1] == "kind" else allowed_by(fragment)
    if path[1] not in tree[block]:
        about = f"give {listed(allowed)}" if path[1] == "kind" else f"add it: {fragment['description']}"
        return f"{name} is missing; {about}"
    given = tree[block][path[1]]
    nearest = _nearest(given, allowed) if isinstance(given, str) else None
    return f"{name} is {_shown(given)}; give {listed(allowed)}{f' ({nearest} is the nearest)' if nearest else ''}"


def _explain_unknown(path: Keys, tree: dict[str, Any]) -> str:
    """Say where a key belongs, or the nearest to it: of this kind of block, of the block, of any."""
    name, key = f"{'.'.join(path)} is {'not known' if len(path) > 1 else 'no block'}", path[-1]
    every = {block: {key for model in kinds.values() for key in model.model_fields} for block, kinds in BLOCKS.items()}
    if any(key in keys for keys in every.values()):
        return f"{name}; {key} {_home(key, path, tree)}"
    known = _known(path, tree)
    if nearest := _nearest(key, known):
        return f"{name}; {nearest} is the nearest"
    if nearest := _nearest(key, every.get(path[0], ())) or _nearest(key, set().union(*every.values())):
        return f"{name}; the nearest, {nearest}, {_home(nearest, path, tree)}"
    return f"{name}; give {listed(known)}"


def _home(key: str, path: Keys, tree: dict[str, Any]) -> str:
    """Say where a key belongs that is known elsewhere."""
    homes = {
        block: [kind for kind, model in kinds.items() if key in model.model_fields] for block, kinds in BLOCKS.items()
    }
    if len(path) > 1 and homes[path[0]]:
        return f"is for kind {listed(homes[path[0]])}, and {path[0]}.kind is {tree[path[0]].get('kind', 'threads')}"
    return f"belongs in {listed(block for block, kinds in homes.items() if kinds)}"


def _model(block: str, tree: dict[str, Any]) -> type[Block]:
    """Return the model of a block, by its kind; the first where that is not known."""
    kinds, given = BLOCKS[block], tree.get(block)
    kind = given.get("kind") if isinstance(given, dict) else None
    return kinds.get(str(kind), next(iter(kinds.values())))


def _known(path: Keys, tree: dict[str, Any]) -> list[str]:
    """Return the keys that there are where a path ends."""
    return list(BLOCKS) if len(path) == 1 else list(_model(path[0], tree).model_fields)


def _nearest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(word.lower().replace("-", "_"), words, 1)), None)


def _shown(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, dict):
        return "a block"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]" if all(isinstance(item, str) for item in value[:9]) else "a list"
    return "null" if value is None else repr(value if len(value) <= 60 else f"{value[:57]}...")
