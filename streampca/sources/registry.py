"""Registry of formats. A new format is one module in `formats/` with a function decorated by `register`.

@register(suffixes=(".csv",))
def open_csv(path: Path, options: OpenOptions) -> Source: ...
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from streampca.errors import InputError
from streampca.sources import formats
from streampca.sources.arrays import ArraySource, as_numbers
from streampca.sources.base import Source


@dataclass(frozen=True)
class OpenOptions:
    """Options of `open_source`, passed to the open function of a format.

    Attributes
    ----------
    variable : name of the array, where a file has several.
    sample_dims : dimensions of labelled data that make up the samples; None for the first one.
    missing_chunks : "error", or "fill" to read missing chunks of a Zarr store as its fill value.
    genotypes : whether the caller needs genotypes.
    """

    variable: str | None = None
    sample_dims: tuple[str, ...] | None = None
    missing_chunks: str = "error"
    genotypes: bool = False


OpenFunction = Callable[[Any, OpenOptions], Source]


@dataclass(frozen=True)
class Format:
    """How to recognise data of one format, without reading them, and how to open them."""

    recognise: Callable[[Any], Any]
    open: OpenFunction
    suffixes: tuple[str, ...]
    genotypes: bool


_registered: list[Format] = []


def register(
    *, suffixes: tuple[str, ...] = (), recognise: Callable[[Any], Any] | None = None, genotypes: bool = False
) -> Callable[[OpenFunction], OpenFunction]:
    """Register the open function of a format.

    Parameters
    ----------
    suffixes : of its files.
    recognise : returns what to pass to the open function, or None for data of other formats; by default the path of a
        file with one of the suffixes.
    genotypes : whether the suffixes stand for genotypes. Their files may be named by prefix, as PLINK does.
    """

    def file_with_suffix(data: Any) -> Path | None:
        if not isinstance(data, (str, Path)) or "://" in str(data) or Path(data).is_dir():
            return None
        path = Path(data)
        if path.suffix in suffixes and path.exists():
            return path
        complete = (Path(f"{path}{suffix}") for suffix in suffixes if genotypes)
        return next((candidate for candidate in complete if candidate.is_file()), None)

    def add(function: OpenFunction) -> OpenFunction:
        _registered.append(Format(recognise or file_with_suffix, function, suffixes, genotypes))
        return function

    return add


@cache
def all_formats() -> tuple[Format, ...]:
    """Return the formats, once all modules of `formats/` are imported."""
    for module in pkgutil.iter_modules(formats.__path__):
        import_module(f"{formats.__name__}.{module.name}")
    return tuple(_registered)


def genotype_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files and stores of genotypes."""
    return tuple(suffix for known in all_formats() if known.genotypes for suffix in known.suffixes)


def open_any(data: Any, options: OpenOptions) -> Source:
    """Open an array, a path or a URL."""
    if isinstance(data, Source):
        return data
    for known in all_formats():
        recognised = known.recognise(data)
        if recognised is not None:
            return known.open(recognised, options)
    if not isinstance(data, (str, Path)):
        return ArraySource(as_numbers(data))
    if not Path(data).exists():
        raise InputError(f"{data}: does not exist; check the path")
    suffixes = ", ".join(sorted(suffix for known in all_formats() for suffix in known.suffixes))
    raise InputError(f"{data}: unknown file format; give a file with one of the suffixes {suffixes}, or a Zarr store")
