"""Results as text that other programs read: PLINK's .eigenvec, .eigenval and .eigenvec.var, or tables."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.results.schema import ERROR_ARRAYS, kind_in
from streampca.results.store import load, load_arrays
from streampca.sweep.scaling import check_choice

if TYPE_CHECKING:
    import xarray

# The files of each format.
FORMATS = {
    "plink": (".eigenvec", ".eigenval", ".eigenvec.var"),
    "tsv": (".scores.tsv", ".loadings.tsv", ".components.tsv"),
}

# Rows whose text is in memory at a time.
WRITE_ROWS = 4096


def export(
    result: xarray.Dataset | str | Path, prefix: Path, *, form: str = "plink", overwrite: bool = False
) -> list[Path]:
    """Write a result, or the one at a path, as text files that begin with prefix; returns their paths.

    plink: .eigenvec (unit eigenvectors of the samples), .eigenval (of X X' / m) and .eigenvec.var (weights of the
    variants for the rarer allele, of mean square 1), as plink2 --pca var-wts writes them. tsv: .scores.tsv,
    .loadings.tsv and .components.tsv, whatever the data were.
    """
    check_choice("format", form, tuple(FORMATS))
    if form == "tsv":
        tables = _tsv_tables(load(result) if isinstance(result, (str, Path)) else result)
    elif isinstance(result, (str, Path)):
        tables = _plink_tables(*load_arrays(Path(result)))
    else:
        arrays = {str(name): variable.values for name, variable in result.variables.items()}
        tables = _plink_tables(arrays, result.attrs)
    paths = text_paths(prefix, FORMATS[form], overwrite)
    with ExitStack() as stack:
        for path, (header, columns) in zip(paths, tables, strict=True):
            _write_table(stack.enter_context(writing_text(path)), header, columns)
    return paths


Table = tuple[list[str], list[Any]]


def _check_scores(names: Container[Any]) -> None:
    if "scores" not in names:
        raise InputError("the result holds no scores; make it with `streampca pca` or fit_transform")


def _plink_tables(result: Mapping[str, Any], attributes: Mapping[str, Any]) -> list[Table]:
    if not attributes.get("genotypes"):
        raise InputError(f"{attributes.get('source')}: format plink is for genotypes; use --format tsv")
    kind = kind_in(attributes)
    if kind is not None and "plink" not in kind.exports:
        raise InputError(f"format plink is not available for {kind.name}; use --format tsv")
    _check_scores(result)
    scores, components = result["scores"].astype(np.float64), result["components"]
    pcs = _names(len(components))
    length = np.linalg.norm(scores, axis=0)
    vectors = scores / np.where(length > 0, length, 1.0)
    first, second = result["allele_1"], result["allele_2"]
    major = result["mean"] > 1
    weights = components * np.where(major, -1, 1) * np.sqrt(components.shape[1])
    alleles = [np.where(major, first, second), np.where(major, second, first)]
    return [
        (["#FID", "IID", *pcs], [result["fid"], result["iid"], vectors]),
        ([], [result["eigenvalue"]]),
        (["#CHROM", "ID", "MAJ", "NONMAJ", *pcs], [result["chromosome"], result["variant_id"], *alleles, weights.T]),
    ]


def _tsv_tables(result: xarray.Dataset) -> list[Table]:
    _check_scores(result)
    # Of kernel components the weights of landmarks.
    scores, loadings = result["scores"], result["components" if "components" in result else "weights"]
    loadings = loadings.transpose("component", ...)
    pcs = _names(len(loadings))
    numbers = ["explained_variance", "eigenvalue", "explained_variance_ratio", *ERROR_ARRAYS]
    numbers = [name for name in numbers if name in result]
    return [
        _labelled(result, scores.dims[:-1], scores.values.reshape(-1, len(pcs)), pcs),
        _labelled(result, loadings.dims[1:], loadings.values.reshape(len(pcs), -1).T, pcs),
        (["PC", *numbers], [np.array(pcs), *(result[name].values for name in numbers)]),
    ]


def _labelled(result: xarray.Dataset, dims: tuple[Any, ...], values: Any, pcs: list[str]) -> Table:
    """Return a table with the labels of these dimensions before the values; their indices where there are none."""
    sizes = [result.sizes[dim] for dim in dims]
    grid = np.unravel_index(np.arange(int(np.prod(sizes))), sizes)
    header, columns = [], []
    for dim, places in zip(dims, grid, strict=True):
        names = [str(name) for name, coord in result.coords.items() if coord.dims == (dim,)]
        header += names or [str(dim)]
        columns += [result[name].values[places] for name in names] or [places]
    return [*header, *pcs], [*columns, values]


def _names(k: int) -> list[str]:
    return [f"PC{i + 1}" for i in range(k)]


def _write_table(file: TextIO, header: list[str], columns: list[Any]) -> None:
    """Write columns, each a list of texts or numbers, or a matrix of several, parted by tabs."""
    if header:
        file.write("\t".join(header) + "\n")
    arrays = [np.asarray(column) for column in columns]
    for start in range(0, len(arrays[0]), WRITE_ROWS):
        cells = [_cells(values[start : start + WRITE_ROWS]) for values in arrays]
        file.writelines("\t".join(row) + "\n" for row in zip(*cells, strict=True))


def _cells(values: Any) -> list[str]:
    """Return the text of each row."""
    if values.dtype.kind != "f":
        return [str(value) for value in values.tolist()]
    line = "\t".join(["%.9g"] * (values.shape[1] if values.ndim > 1 else 1))
    return [line % tuple(row) for row in values.reshape(len(values), -1).tolist()]
