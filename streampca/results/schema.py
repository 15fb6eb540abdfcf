"""Check that a store is a complete result of its kind, once, when it is opened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError, listed
from streampca.results.kind import Kind, kind_names, kind_of
from streampca.validation import check_declared_size

if TYPE_CHECKING:
    import xarray

# The error of each component; a result of PCA has one of them. Estimates exclude rounding.
ERROR_ARRAYS = ("certificate", "estimate")
# How it was obtained; see `wording.CERTIFIED_BY`.
CERTIFICATE_METHODS = ("probe", "exact", "none", "modelled")
# Dimensions of arrays that no fitted record has, in its notation: see `models.record.Variable`.
_OTHERS = {"scores": "S component", "score_deviation": "S component", "distance": "S", "outlier": "S", "projected": "S"}
# Names that L may stand for, and labels of genotypes.
_LANDMARKS = ("landmark", "fourier_feature")
_VARIANTS = ("chromosome", "position", "variant_id", "allele_1", "allele_2")


def kind_in(attributes: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a result; None if the attributes are not those of one."""
    name = attributes.get("kind")
    return kind_of(name) if isinstance(name, str) and name in kind_names() else None


def set_defaults(result: xarray.Dataset) -> None:
    """Set the attributes that results of earlier versions do not have."""
    kind, a = kind_in(result.attrs), result.attrs
    defaults = {"genotypes": 0, "notes": "[]", "versions": "{}"}
    defaults |= {"n_features": result["mean"].size, "n_missing": int(result["missing"].sum())}
    if kind is not None and kind.certified and "certificate" in result:
        defaults["certificate_method"] = "modelled"  # until version 0.7
    result.attrs = defaults | a


def error_in(names: Container[Any]) -> str | None:
    """Return the name of the array of errors, if there is one."""
    return next((name for name in ERROR_ARRAYS if name in names), None)


def _json(kind: type) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        try:
            return isinstance(value, str) and isinstance(json.loads(value), kind)
        except (ValueError, RecursionError):
            return False

    return holds


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) != math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


Check = tuple[str, Callable[[Any], bool]]
_TEXT: Check = ("text", lambda value: isinstance(value, str))
_COUNT: Check = ("a count", _is_count)
_KEYS: Check = ("keys in JSON", _json(dict))
# Types of attributes of fitted records, and of those that all stores have; with their description in messages.
_TYPES: dict[type, Check] = {
    str: _TEXT,
    int: _COUNT,
    float: ("a number", _is_number),
    bool: ("0 or 1", lambda value: value in (0, 1)),
    tuple: ("a list in JSON", _json(list)),
}
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("source", "source_fingerprint", "created"), _TEXT),
    **dict.fromkeys(("format_version", "peak_memory_bytes"), _COUNT),
    **dict.fromkeys(("parameters", "versions", "covariate_kinds", "run"), _KEYS),
    "certificate_method": (listed(CERTIFICATE_METHODS), lambda value: value in CERTIFICATE_METHODS),
    "tile_dtype": ("float32 or float64", lambda value: value in ("float32", "float64")),
}
# Attributes of all kinds; the first results of this format had no others.
_NEEDED = ("source", "n_samples", "parameters", "tile_dtype", "converged", "advice", "total_variance", "n_sweeps",
           "bytes_read", "seconds", "peak_memory_bytes")  # fmt: skip
# Parameters that reports show as numbers, if they were given.
_AMOUNTS = ("maf", "geno", "mind", "ld_prune", "unrelated")


def check_attributes(path: Any, attributes: Mapping[str, Any]) -> None:
    """Raise if attributes are missing or invalid for the kind of a result."""
    kind = kind_of(attributes["kind"])
    record: Any = kind.function("fitted")
    checks = {entry.name: _TYPES[entry.kind] for entry in record.ATTRIBUTES} | _CHECKS
    problems = [
        f"{name} is not {said}"
        for name, (said, holds) in checks.items()
        if name in attributes and not holds(attributes[name])
    ]
    problems += [f"{name} is missing" for name in (*_NEEDED, *kind.attributes) if name not in attributes]
    if not problems:
        given = json.loads(attributes["parameters"])
        amounts = [name for name in _AMOUNTS if given.get(name) is not None]
        problems = [f"{name} of its parameters is not a number" for name in amounts if not _is_number(given[name])]
    if problems:
        raise InputError(f"{path}: the result is damaged, {problems[0]}; compute it again")


def check_arrays(path: Any, result: xarray.Dataset) -> None:
    """Raise if arrays are missing, have other dimensions than those of their kind, or are not numbers."""
    kind = kind_in(result.attrs)
    absent = [name for name in (kind.arrays if kind else ()) if not set(name.split("|")) & set(result.variables)]
    if absent:
        raise InputError(
            f"{path}: the result is incomplete, {absent[0].replace('|', ' or ')} is missing; compute it again"
        )
    problem = _wrong_error(result) or _wrong_dimensions(path, result, kind) or _wrong_labels(result)
    if problem:
        raise InputError(f"{path}: the result is damaged, {problem}; compute it again")


def _wrong_error(result: xarray.Dataset) -> str:
    """Return what is wrong with certificates or estimates, in words."""
    error, method = error_in(result.variables), result.attrs.get("certificate_method")
    if error is not None and (error == "estimate") != (method == "none"):
        return f"it has {error}, and certificate_method {method}"
    return ""


def _axes(result: xarray.Dataset) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the dimensions of the features, and those of the scores."""
    features = tuple(result["mean"].dims) if "mean" in result else ()
    return features, tuple(result["scores"].dims) if "scores" in result else ("component",)


def _wrong_dimensions(path: Any, result: xarray.Dataset, kind: Kind | None) -> str:
    """Return the first array whose dimensions or type are wrong, in words."""
    features, scores = _axes(result)
    known = _known_dimensions(kind)
    for name, variable in result.variables.items():
        check_declared_size(f"{path}/{name}", _bytes(variable))
        if str(name) not in known or str(name) in result.dims:
            continue
        pattern = known[str(name)].split()
        # A result without scores does not have the dimensions of its samples.
        loose = "S" in pattern and name != "scores" and "scores" not in result
        fits = loose or any(variable.dims == _expanded(pattern, features, scores[:-1], dim) for dim in _LANDMARKS)
        if not fits or variable.dtype.kind not in "fiub":
            return f"{name} is {variable.dtype} of {variable.dims}"
    if "component" in features or scores[-1:] != ("component",) or not all(result.sizes.values()):
        return f"its dimensions are {dict(result.sizes)}"
    return ""


def _known_dimensions(kind: Kind | None) -> dict[str, str]:
    """Return the dimensions of arrays by name, as fitted records describe them."""
    record: Any = kind.function("fitted") if kind else None
    return _OTHERS | {entry.name: entry.dims for entry in (record.VARIABLES if record else ())}


def _expanded(pattern: list[str], features: tuple[Any, ...], samples: tuple[Any, ...], landmark: str) -> Any:
    """Return the dimensions that a pattern stands for."""
    axes: dict[str, tuple[Any, ...]] = {"F": features, "S": samples, "L": (landmark,)}
    return tuple(dim for part in pattern for dim in axes.get(part, (part,)))


def _wrong_labels(result: xarray.Dataset) -> str:
    """Return the first label of genotypes that is missing, in words."""
    if not result.attrs.get("genotypes"):
        return ""
    features, scores = _axes(result)
    absent = [name for name in _VARIANTS if name not in result or result[name].dims != features]
    samples = ("fid", "iid") if "scores" in result else ()
    absent += [name for name in samples if name not in result or result[name].dims != scores[:-1]]
    return f"{absent[0]} does not label its genotypes" if absent else ""


def _bytes(variable: Any) -> int:
    """Return the bytes that reading a variable takes: all of it, or one chunk if that is more."""
    chunk = variable.encoding.get("chunks") or ()
    shards = variable.encoding.get("shards") or ()
    return int(variable.dtype.itemsize * max(variable.size, math.prod(chunk), math.prod(shards)))
