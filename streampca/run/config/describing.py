"""What a configuration may hold, as JSON schema and as starters; and in what two of them differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import yaml

from streampca.errors import InputError
from streampca.run.config.blocks import BLOCKS, ENGINES, GENOTYPE_KEYS, MODELS, Block, Config, Keys, listed


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a configuration, for editors that check as one types."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Config.model_json_schema()


def starter(kind: str, engine: str = "threads") -> str:
    """Return a YAML file to begin with, made of the models: what is needed is filled in, the rest are comments.

    Parameters
    ----------
    kind : of the model.
    engine : kind of the engine.
    """
    for given, kinds in ((kind, MODELS), (engine, ENGINES)):
        if given not in kinds:
            raise InputError(f"{given!r} is not known; give {listed(kinds)}")
    lines = [
        f"# {_first_line(MODELS[kind])} Run it by: streampca run FILE",
        "# Change what is filled in; take the # off a line to change what it says.",
    ]
    for block, kinds in BLOCKS.items():
        chosen = {"model": kind, "engine": engine}.get(block, "")
        about = f"; kinds: {listed(kinds)}" if chosen else ""
        lines += ["", f"{block}:  # {_first_line(kinds[chosen])[:-1]}{about}"]
        left_out = GENOTYPE_KEYS if (block, kind) == ("source", "kpca") else ()
        lines += _starter_lines(kinds[chosen], chosen, left_out)
    return "\n".join(lines) + "\n"


def _first_line(model: type[Block]) -> str:
    return str(model.__doc__).splitlines()[0]


def _starter_lines(model: type[Block], kind: str, left_out: Sequence[str]) -> list[str]:
    """Return the keys of a block and what each is for: kind, what is needed, its own, what it shares with others."""
    shared = {key for base in model.__bases__ if issubclass(base, Block) for key in base.model_fields}
    entries = []
    for key, fragment in model.model_json_schema()["properties"].items():
        field = model.model_fields[key]
        needed = key == "kind" or field.is_required()
        value = kind if key == "kind" else field.examples[0] if needed and field.examples else field.get_default()
        text = f"{'' if needed else '# '}{yaml.safe_dump({key: value}, width=1000).strip()}"
        choices = [] if key == "kind" or fragment.get("type") == "boolean" else allowed_by(fragment)
        words = len(choices) > 1 and not any(" " in choice or choice == "text" for choice in choices)
        about = f"{fragment['description']} [{', '.join(choices)}]" if words else fragment["description"]
        entries.append(((key != "kind", not needed, key in shared), key, text, about))
    entries = sorted((entry for entry in entries if entry[1] not in left_out), key=lambda entry: entry[0])
    width = max(len(text) for _, _, text, _ in entries)
    return [f"  {text:{width}}  # {about}" for _, _, text, about in entries]


def changed(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the differences of two configurations that forbid to go on where the old one stopped.

    Parameters
    ----------
    old, new : as `config.model_dump(mode="json")` gives them.
    """
    before, after = _flat(old), _flat(new)
    kinds = {path[0] for path in before | after if path[1:] == ("kind",) and before.get(path) != after.get(path)}
    return [
        f"{'.'.join(path)} was {_json(path, before)}, is {_json(path, after)}"
        for path in before | after
        if (path not in before or path not in after or before[path] != after[path])
        # Another kind has other keys: that it is another says enough.
        and (path[0] not in kinds or path[1:] == ("kind",))
    ]


def _flat(config: dict[str, Any]) -> dict[Keys, Any]:
    """Return all keys of a configuration but those that a run may go on with when they change."""
    values = {(block, key): value for block, keys in config.items() for key, value in keys.items()}
    free = {path for path in values if path[0] == "engine" and path[1] != "memory"} | {("output", "overwrite")}
    return {path: value for path, value in values.items() if path not in free}


def _json(path: Keys, values: dict[Keys, Any]) -> str:
    if path not in values:
        return "not there"
    value = values[path]
    return value if isinstance(value, str) else json.dumps(value)


def allowed_by(fragment: dict[str, Any]) -> list[str]:
    """Return in words what a fragment of JSON schema allows."""
    if "anyOf" in fragment:
        return [words for part in fragment["anyOf"] for words in allowed_by(part)]
    if "enum" in fragment or "const" in fragment:
        return [str(choice) for choice in fragment.get("enum", [fragment.get("const")])]
    kind = fragment["type"]
    if kind == "integer":
        return [f"a whole number from {fragment['minimum']} on"]
    if kind == "number":
        ends = [fragment.get(end) for end in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
        if ends[3] is not None:
            return [f"a number between {ends[2]:g} and {ends[3]:g}"]
        if ends[1] is not None:
            return [f"a number from {ends[0]:g} to {ends[1]:g}"]
        return ["a number" if ends[2] is None else f"a number above {ends[2]:g}"]
    if kind == "array":
        return ["two whole numbers, as [1000, 50000]" if "prefixItems" in fragment else "a list, as [a, b]"]
    if kind == "string":
        return [f"text such as {listed(fragment['examples'])}" if "examples" in fragment else "text"]
    return {"boolean": ["true", "false"], "null": ["null"]}[kind]
