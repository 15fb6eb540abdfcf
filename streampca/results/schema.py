"""Check that a store is a complete result of its kind, once, when it is opened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError
from streampca.results.kind import Kind, kind_names, kind_of
from streampca.validation import check_declared_size

if TYPE_CHECKING:
    import xarray

# The error of each component; a result of PCA has one of them. Estimates exclude rounding.
ERROR_ARRAYS = ("certificate", "estimate")
# How it was obtained; certificates of version 0.7 and earlier, which do not record it, are "modelled".
CERTIFICATE_METHODS = ("probe", "exact", "none", "modelled")
# Shown with errors whose rounding was not measured.
ERROR_NOTES = {
    "none": "estimates: rounding is not included (--certificate false)",
    "modelled": "certificates of version 0.7: rounding was modelled, not measured",
}
# Dimensions of the arrays; S and F are those of the samples and of the features, L those of landmarks.
_COMPONENT = ("component",)
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "components": ("component", "F"),
    **dict.fromkeys(("mean", "scale", "missing", "anchor_offset"), ("F",)),
    **dict.fromkeys(
        ("explained_variance", "explained_variance_ratio", *ERROR_ARRAYS, "eigenvalue", "estimated_error"), _COMPONENT
    ),
    **dict.fromkeys(("scores", "score_deviation"), ("S", "component")),
    **dict.fromkeys(("sample_missing", "outlier", "fold", "distance"), ("S",)),
    "log_likelihood": ("iteration",),
    "criterion": ("candidate",),
    "weights": ("L", "component"),
    **dict.fromkeys(("kernel_mean", "mean_weights"), ("L",)),
    "landmarks": ("landmark", "F"),
    "frequencies": ("frequency", "F"),
    "anchors": ("anchor", "component"),
    "anchor_weights": ("anchor", "F"),
    "coefficient": ("target", "F"),
    "score_coefficient": ("target", "component"),
    **dict.fromkeys(("centre", "chosen", "intercept"), ("target",)),
    **dict.fromkeys(("r2", "cv_r2", "cv_error", "cv_error_deviation"), ("target", "m")),
    "covariate_coefficient": ("target", "covariate"),
}
# Names that L may stand for, and labels of genotypes.
_LANDMARKS = ("landmark", "fourier_feature")
_VARIANTS = ("chromosome", "position", "variant_id", "allele_1", "allele_2")


def kind_in(attributes: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a result; None if the attributes are not those of one."""
    name = attributes.get("kind")
    return kind_of(name) if isinstance(name, str) and name in kind_names() else None


def certificate_method(attributes: Mapping[str, Any]) -> str | None:
    """Return how the certificates of a result were obtained, one of `CERTIFICATE_METHODS`.

    None if it has no certificates, or does not record it (kernel PCA).
    """
    kind = kind_in(attributes)
    # EM has no certificates; a closed form has those of its principal components.
    certified = kind is not None and kind.certified and attributes.get("method", "closed") == "closed"
    method = attributes.get("certificate_method", "modelled" if certified else None)
    return None if method is None else str(method)


def error_in(names: Container[Any]) -> str | None:
    """Return the name of the array of errors, if there is one."""
    return next((name for name in ERROR_ARRAYS if name in names), None)


def absent_arrays(kind: Kind, names: Container[Any]) -> list[str]:
    """Return the required arrays that a result lacks; "a|b" requires one of them."""
    return [name.partition("|")[0] for name in kind.arrays if not any(one in names for one in name.split("|"))]


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


# Types of attributes, by their description in messages.
_TYPES: dict[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
    "text": (_is_text, ("source", "source_fingerprint", "advice", "created", "solver", "method", "kernel")),
    "a count": (
        _is_count,
        ("format_version", "n_samples", "n_features", "n_missing", "n_sweeps", "n_iterations", "n_landmarks", "n_folds",
         "rank", "bytes_read", "peak_memory_bytes"),
    ),
    "a number": (
        _is_number,
        ("total_variance", "seconds", "noise_variance", "warm_start_seconds", "change", "total_log_likelihood", "gamma",
         "degree", "coef0", "kept_trace", "missed_variance", "kept_variance", "lost_variance", "anchor_gamma"),
    ),
    "0 or 1": (lambda value: value in (0, 1), ("converged", "genotypes", "kernel_is_function")),
    "one of probe, exact, none, modelled": (lambda value: value in CERTIFICATE_METHODS, ("certificate_method",)),
    "float32 or float64": (lambda value: value in ("float32", "float64"), ("tile_dtype",)),
    "a list in JSON": (_json(list), ("notes", "sweep_seconds")),
    "keys in JSON": (_json(dict), ("parameters", "versions", "covariate_kinds", "run")),
}  # fmt: skip
# Attributes of all kinds; the first results of this format had no others.
_NEEDED = ("source", "n_samples", "parameters", "tile_dtype", "converged", "advice", "total_variance", "n_sweeps",
           "bytes_read", "seconds", "peak_memory_bytes")  # fmt: skip
# Parameters that reports show as numbers, if they were given.
_AMOUNTS = ("maf", "geno", "mind", "ld_prune")


def check_attributes(path: Any, attributes: Mapping[str, Any]) -> None:
    """Raise if attributes are missing or invalid for the kind of a result."""
    wrong = next(
        (
            f"{name} is not {said}"
            for said, (holds, names) in _TYPES.items()
            for name in names
            if name in attributes and not holds(attributes[name])
        ),
        None,
    )
    absent = [name for name in (*_NEEDED, *kind_of(attributes["kind"]).attributes) if name not in attributes]
    if wrong is None and absent:
        wrong = f"{absent[0]} is missing"
    if wrong is None:
        asked = json.loads(attributes["parameters"])
        odd = [name for name in _AMOUNTS if asked.get(name) is not None and not _is_number(asked[name])]
        wrong = f"{odd[0]} of its parameters is not a number" if odd else None
    if wrong is not None:
        raise InputError(f"{path}: the result is damaged, {wrong}; compute it again")


def check_arrays(path: Any, result: xarray.Dataset) -> None:
    """Raise if arrays are missing, have other dimensions than those of their kind, or are not numbers."""
    kind = kind_in(result.attrs)
    absent = [] if kind is None else absent_arrays(kind, result.variables)
    if absent:
        raise InputError(f"{path}: the result is incomplete, {absent[0]} is missing; compute it again")
    problem = _wrong_error(result) or _wrong_dimensions(path, result, kind) or _wrong_labels(result)
    if problem:
        raise InputError(f"{path}: the result is damaged, {problem}; compute it again")


def _wrong_error(result: xarray.Dataset) -> str:
    """Return what is wrong with certificates or estimates, in words."""
    error, method = error_in(result.variables), certificate_method(result.attrs)
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
    known = {**DIMENSIONS, **(kind.dimensions if kind else {})}
    for name, variable in result.variables.items():
        check_declared_size(f"{path}/{name}", _bytes(variable))
        if str(name) not in known or str(name) in result.dims:
            continue
        pattern = known[str(name)]
        # Scores may be those of other samples than the fitted ones, or missing.
        loose = "S" in pattern and name != "scores" and "scores" not in result
        dims = tuple(variable.dims)
        choices = [_expanded(pattern, features, scores[:-1], landmark) for landmark in _LANDMARKS]
        if not (loose or dims in choices) or variable.dtype.kind not in "fiub":
            return f"{name} is {variable.dtype} of {dims}"
    if "component" in features or scores[-1:] != ("component",) or not all(result.sizes.values()):
        return f"its dimensions are {dict(result.sizes)}"
    return ""


def _expanded(
    pattern: tuple[str, ...], features: tuple[Any, ...], samples: tuple[Any, ...], landmark: str
) -> tuple[Any, ...]:
    """Return the dimensions that a pattern stands for."""
    stands: dict[str, tuple[Any, ...]] = {"F": features, "S": samples, "L": (landmark,)}
    return tuple(dim for part in pattern for dim in stands.get(part, (part,)))


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
