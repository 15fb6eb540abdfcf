"""Describe configurations: JSON schema, starter files, and files of version 0.7 in the new form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from streampca.errors import InputError, listed
from streampca.results.kind import kind_names, kind_of
from streampca.run.config.blocks import BLOCKS, ENGINES, Data, Filter, Output
from streampca.run.config.build import OLD_BLOCK, RENAMED, build
from streampca.run.config.reading import read_tree
from streampca.validation import Options, allowed_values

REQUIRED = ("data", "model", "output")


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a configuration, for editors that check YAML."""
    engines = {engine.__name__: engine for engine in ENGINES.values()}
    properties = {
        "data": _schema(Data),
        "filter": _schema(Filter),
        "model": {"oneOf": [_schema(kind_of(name).options, name) for name in kind_names()]},
        "engine": {"oneOf": [_schema(engine) for engine in engines.values()]},
        "output": _schema(Output),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": list(REQUIRED),
        "additionalProperties": False,
    }


def _schema(record: type[Options], kind: str | None = None) -> dict[str, Any]:
    """Return the schema of a block, with the key `kind` of models."""
    found = record.schema()
    if kind is not None:
        found["properties"] = {"kind": {"const": kind, "description": "Kind of model."}, **found["properties"]}
        found["required"] = ["kind", *found.get("required", [])]
    return found


def starter(kind: str, engine: str = "threads", source: str | None = None, output: str | None = None) -> str:
    """Return a YAML file to start from: required keys are set, all others are comments.

    Parameters
    ----------
    kind : kind of the model.
    engine : kind of the engine.
    source, output : paths of the data and of the result; examples by default.
    """
    if engine not in ENGINES:
        raise InputError(f"engine must be {listed(ENGINES)}, got {engine!r}")
    model = kind_of(kind)
    lines = [
        f"# {model.title}. Run it with: streampca run FILE",
        "# Edit the values below; remove the # of a line to change its value.",
    ]
    records: dict[str, tuple[type[Options], str]] = {
        "data": (Data, ""), "filter": (Filter, ""), "model": (model.options, kind), "engine": (ENGINES[engine], engine),
        "output": (Output, ""),
    }  # fmt: skip
    names = {"model": kind_names(), "engine": tuple(ENGINES)}
    for block in BLOCKS:
        record, chosen = records[block]
        if record is Filter and not model.genotypes:
            continue
        about = f"; kinds: {listed(names[block])}" if chosen else ""
        title = f"{block}:  # {str(record.__doc__).splitlines()[0][:-1]}{about}"
        lines += ["", title, *_starter_lines(record, chosen, {"data": source, "output": output}.get(block))]
    return "\n".join(lines) + "\n"


def _starter_lines(record: type[Options], kind: str, path: str | None) -> list[str]:
    """Return a line per key with its help: the kind, required keys, then all others."""
    entries = [(f"kind: {kind}", "Kind of model.")] if kind and "kind" not in record.fields else []
    fragments = record.schema()["properties"]
    keys = sorted(fragments, key=lambda key: (key != "kind", not record.fields[key].required))
    for key in keys:
        field = record.fields[key]
        required = key == "kind" or field.required
        known = {"kind": kind, "path": path}.get(key)
        value = known or (field.examples or ["..."])[0] if required else field.default
        text = f"{'' if required else '# '}{yaml.safe_dump({key: value}, width=1000).strip()}"
        entries.append((text, f"{fragments[key]['description']}{_choices(key, fragments[key])}"))
    width = max(len(text) for text, _ in entries)
    return [f"  {text:{width}}  # {about}" for text, about in entries]


def _choices(key: str, fragment: dict[str, Any]) -> str:
    """Return the words that a key may be, in brackets; nothing if it takes anything else."""
    if key == "kind" or fragment.get("type") == "boolean":
        return ""
    choices = allowed_values(fragment)
    words = len(choices) > 1 and not any(" " in choice or choice == "text" for choice in choices)
    return f" [{', '.join(choices)}]" if words else ""


def upgrade(path: str | Path) -> str:
    """Return a configuration of version 0.7 in the new form, as YAML; comments are not kept."""
    tree, places = read_tree(path)
    if OLD_BLOCK not in tree:
        build(tree, places)
        raise InputError(f"{path}: is a configuration of this version; nothing to upgrade")
    old: dict[str, Any] = {block: dict(keys or {}) for block, keys in tree.items()}
    new: dict[str, dict[str, Any]] = {block: {} for block in BLOCKS}
    for key, value in old.pop(OLD_BLOCK).items():
        block = "model" if key in ("scale", "missing") else "filter" if key in Filter.fields else "data"
        # "auto" was a value of all models; it is the default of those that still have it.
        if not (block == "model" and value == "auto"):
            new[block][key] = value
    for block, keys in old.items():
        for key, value in keys.items():
            place, _, name = RENAMED.get(block, {}).get(key, f"{block}.{key}").partition(".")
            new.setdefault(place, {})[name] = value
    new["model"] = {"kind": new["model"].pop("kind", None), **new["model"]}
    values = build(new, {(): str(path)}).as_dict()
    written = {block: {key: values[block][key] for key in keys} for block, keys in new.items() if keys}
    return str(yaml.safe_dump(written, sort_keys=False))
