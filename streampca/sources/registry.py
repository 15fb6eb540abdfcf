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
from typing import Any, TypeVar

from streampca.errors import InputError
from streampca.files import absent
from streampca.sources import formats
from streampca.sources.arrays import ArraySource, as_numbers
from streampca.sources.base import Source

_TABLE = "is a table; convert it first: streampca convert {path} {stem}.zarr"
_VCF = "is VCF; convert it first: streampca convert {path} {stem}.vcz"
_ARRAY = "cannot be read; save its matrix with numpy.save, or fit it in Python"
_CONFIGURATION = "is a configuration; run it: streampca run {path}"
# What to do with files of formats that are not read.
HINTS = {
    ".csv": _TABLE, ".tsv": _TABLE, ".txt": _TABLE, ".gz": _VCF, ".vcf": _VCF, ".bcf": _VCF,
    ".bim": "lists the variants of {stem}.bed; give that file",
    ".fam": "lists the samples of {stem}.bed; give that file",
    ".ped": "is PLINK text; convert it first: plink --file {stem} --make-bed --out {stem}",
    ".yaml": _CONFIGURATION, ".yml": _CONFIGURATION,
    ".parquet": _ARRAY, ".h5ad": _ARRAY, ".mat": _ARRAY, ".xlsx": _ARRAY, ".npz": _ARRAY,
}  # fmt: skip


@dataclass(frozen=True)
class OpenOptions:
    """Options of `open_source`, passed to the open function of a format.

    Attributes
    ----------
    variable : name of the array, where a file has several.
    sample_dims : dimensions of labelled data that make up the samples; None for the first one.
    missing_chunks : "error", or "fill" to read missing chunks of a Zarr store as its fill value.
    genotypes : whether the caller needs genotypes.
    external_files : "error", or "read" to follow links out of a store or file.
    """

    variable: str | None = None
    sample_dims: tuple[str, ...] | None = None
    missing_chunks: str = "error"
    genotypes: bool = False
    external_files: str = "error"

    def __post_init__(self) -> None:
        if self.external_files not in ("error", "read"):
            raise InputError(f"external_files must be 'error' or 'read', got {self.external_files!r}")


OpenFunction = Callable[[Any, OpenOptions], Source]
Opener = TypeVar("Opener", bound=OpenFunction)


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
) -> Callable[[Opener], Opener]:
    """Register the function or class that opens a format.

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

    def add(function: Opener) -> Opener:
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
        raise absent(data)
    if hint := HINTS.get(Path(data).suffix):
        raise InputError(f"{data}: {hint.format(path=data, stem=Path(data).name.partition('.')[0])}")
    suffixes = ", ".join(sorted(suffix for known in all_formats() for suffix in known.suffixes))
    raise InputError(f"{data}: unknown file format; give a file with one of the suffixes {suffixes}, or a Zarr store")
