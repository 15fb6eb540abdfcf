"""What a result of each kind holds, and whether a store holds it: looked at once, when the result is opened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from streampca.errors import InputError
from streampca.validation import check_declared_size

if TYPE_CHECKING:
    import xarray

# What every result of a kind holds.
_ALWAYS = ("components", "mean", "scale", "missing", "explained_variance", "explained_variance_ratio")
RESULT_ARRAYS = {
    "pca": _ALWAYS,
    "ppca": (*_ALWAYS, "log_likelihood"),
    "factor_analysis": (*_ALWAYS, "log_likelihood", "noise_variance"),
    "pcr": (*_ALWAYS, "certificate", "coefficient", "centre", "score_coefficient", "chosen", "r2", "fold"),
    "kpca": ("weights", "kernel_mean", *_ALWAYS[1:], "certificate", "estimated_error"),
}
# The error of each component; pca has one of them. Estimates exclude rounding.
ERROR_ARRAYS = ("certificate", "estimate")
# How it was obtained; certificates of version 0.7 and earlier, which do not record it, are "modelled".
CERTIFICATE_METHODS = ("probe", "exact", "none", "modelled")
# Shown with errors whose rounding was not measured.
ERROR_NOTES = {
    "none": "estimates: rounding is not included (--no-certificate)",
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
# Names that may stand for L, and labels of genotypes, which lie along samples or features.
_LANDMARKS = ("landmark", "fourier_feature")
_VARIANTS = ("chromosome", "position", "variant_id", "allele_1", "allele_2")


def certificate_method(attributes: Mapping[str, Any]) -> str | None:
    """Return how the certificates of a result were obtained, one of `CERTIFICATE_METHODS`.

    None if it has no certificates, or does not record it (kernel PCA).
    """
    kind = attributes.get("kind")
    certified = kind in ("pca", "pcr") or (kind == "ppca" and attributes.get("method") == "closed")
    method = attributes.get("certificate_method", "modelled" if certified else None)
    return None if method is None else str(method)


def error_in(names: Container[Any]) -> str | None:
    """Return which of `ERROR_ARRAYS` there is, if any."""
    return next((name for name in ERROR_ARRAYS if name in names), None)


def absent_arrays(kind: str, names: Container[Any]) -> list[str]:
    """Return the arrays that a result of this kind lacks."""
    absent = [name for name in RESULT_ARRAYS.get(kind, ()) if name not in names]
    return sorted(absent + ["certificate"] * (kind == "pca" and error_in(names) is None))


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


# What attributes are, by what they are said to be in a message.
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
# What commands cannot do without; the first results of this format had no more.
_NEEDED = ("source", "n_samples", "parameters", "tile_dtype", "converged", "advice", "total_variance", "n_sweeps",
           "bytes_read", "seconds", "peak_memory_bytes")  # fmt: skip
_NEEDED_BY_KIND = {
    "pca": ("solver",),
    "pcr": ("solver", "n_folds", "covariate_kinds", "genotypes", "n_features", "notes"),
    "ppca": ("method", "n_iterations", "change", "total_log_likelihood", "noise_variance", "genotypes", "n_features",
             "n_missing", "notes"),
    "factor_analysis": ("method", "n_iterations", "change", "total_log_likelihood", "genotypes", "n_features",
                        "n_missing", "notes"),
    "kpca": ("kernel", "kernel_is_function", "gamma", "degree", "coef0", "method", "rank", "n_landmarks", "genotypes",
             "n_features", "notes"),
}  # fmt: skip
# Parameters that methods and commands show as numbers, where they were given.
_AMOUNTS = ("maf", "geno", "mind", "ld_prune")


def check_attributes(path: Any, attributes: Mapping[str, Any]) -> None:
    """Refuse attributes that are not what a result of this kind has."""
    wrong = next(
        (
            f"{name} is not {said}"
            for said, (holds, names) in _TYPES.items()
            for name in names
            if name in attributes and not holds(attributes[name])
        ),
        None,
    )
    absent = [name for name in (*_NEEDED, *_NEEDED_BY_KIND[attributes["kind"]]) if name not in attributes]
    if wrong is None and absent:
        wrong = f"{absent[0]} is not there"
    if wrong is None:
        asked = json.loads(attributes["parameters"])
        odd = [name for name in _AMOUNTS if asked.get(name) is not None and not _is_number(asked[name])]
        wrong = f"{odd[0]} of its parameters is not a number" if odd else None
    if wrong is not None:
        raise InputError(f"{path}: is damaged, {wrong}; make the result again")


def check_arrays(path: Any, result: xarray.Dataset) -> None:
    """Refuse arrays whose dimensions are not those that a result has, or that are no numbers."""
    kind = str(result.attrs.get("kind"))
    absent = absent_arrays(kind, result.variables)
    if kind == "kpca":
        more = ("frequencies",) if "fourier_feature" in result.sizes else ("landmarks", "mean_weights")
        absent = sorted(absent + [name for name in more if name not in result.variables])
    if absent:
        raise InputError(f"{path}: is not whole, {absent[0]} is not there; make the result again")
    error, method = error_in(result.variables), certificate_method(result.attrs)
    if error is not None and (error == "estimate") != (method == "none"):
        raise InputError(f"{path}: is damaged, it has {error}, and certificate_method {method}; make the result again")
    features = tuple(result["mean"].dims) if "mean" in result else ()
    scores = tuple(result["scores"].dims) if "scores" in result else ("component",)
    stands = {"F": features, "S": scores[:-1]}
    for name, variable in result.variables.items():
        check_declared_size(f"{path}/{name}", _bytes(variable))
        dims = tuple(variable.dims)
        if str(name) in DIMENSIONS and str(name) not in result.dims:
            meant = tuple(dim for part in DIMENSIONS[str(name)] for dim in stands.get(part, (part,)))
            # Scores may be those of others than the samples fitted, or not be there.
            loose = "S" in DIMENSIONS[str(name)] and name != "scores" and "scores" not in result
            same = dims == meant or "L" in meant and any(
                dims == tuple(own if dim == "L" else dim for dim in meant) for own in _LANDMARKS
            )  # fmt: skip
            if not (same or loose) or variable.dtype.kind not in "fiub":
                raise InputError(f"{path}: is damaged, {name} is {variable.dtype} of {dims}; make the result again")
    if "component" in features or scores[-1:] != ("component",) or not all(result.sizes.values()):
        raise InputError(f"{path}: is damaged, its dimensions are {dict(result.sizes)}; make the result again")
    if result.attrs.get("genotypes"):
        absent = [name for name in _VARIANTS if name not in result or result[name].dims != features]
        absent += [
            n for n in ("fid", "iid") if "scores" in result and (n not in result or result[n].dims != scores[:-1])
        ]
        if absent:
            raise InputError(f"{path}: is damaged, {absent[0]} is no label of its genotypes; make the result again")


def _bytes(variable: Any) -> int:
    """Return what reading a variable takes: all of it, or one chunk if that is more."""
    chunk = variable.encoding.get("chunks") or ()
    shards = variable.encoding.get("shards") or ()
    return int(variable.dtype.itemsize * max(variable.size, math.prod(chunk), math.prod(shards)))
