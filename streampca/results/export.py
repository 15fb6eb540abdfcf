"""Results as text that other programs read: files of PLINK 2 and of smartpca, or tables."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.files import text_paths, writing_text
from streampca.results.kind import kind_of
from streampca.results.schema import ERROR_ARRAYS
from streampca.results.store import load
from streampca.sources.genotypes import TEXT
from streampca.sweep.scaling import check_choice

if TYPE_CHECKING:
    import xarray

# The files of each format.
FORMATS = {
    "plink": (".eigenvec", ".eigenval", ".eigenvec.var", ".eigenvec.allele", ".afreq"),
    "smartpca": (".evec", ".eval"),
    "tsv": (".scores.tsv", ".loadings.tsv", ".components.tsv"),
}

COLUMNS = ("explained_variance", "eigenvalue", "explained_variance_ratio", *ERROR_ARRAYS)  # of components
WRITE_ROWS = 4096  # rows whose text is in memory at a time


def export(
    result: xarray.Dataset | str | Path, prefix: Path, *, form: str = "plink", overwrite: bool = False
) -> list[Path]:
    """Write a result, or the one at a path, as text files that begin with prefix; returns their paths.

    plink: .eigenvec (unit eigenvectors of the samples), .eigenval (of X X' / m) and .eigenvec.var (weights of the
    variants for the rarer allele, of mean square 1), as plink2 --pca var-wts writes them; .eigenvec.allele (weights of
    both alleles) and .afreq (frequencies), which plink2 --score and --read-freq take; these two have no multiallelic
    variants. smartpca: .evec (unit eigenvectors) and .eval (the eigenvalues of the components, whose sum over all would
    be n - 1). tsv: .scores.tsv, .loadings.tsv and .components.tsv, for any data.
    """
    check_choice("format", form, tuple(FORMATS))
    opened = load(result) if isinstance(result, (str, Path)) else result
    tables = {"plink": _plink_tables, "smartpca": _smartpca_tables, "tsv": _tsv_tables}[form](opened)
    paths = text_paths(prefix, FORMATS[form], overwrite)
    with ExitStack() as stack:
        for path, (header, columns) in zip(paths, tables, strict=True):
            _write_table(stack.enter_context(writing_text(path)), header, columns)
    return paths


Table = tuple[list[str], list[Any]]


def _scores(result: xarray.Dataset) -> xarray.DataArray:
    if "scores" not in result:
        raise InputError("the result has no scores; fit it with a command or fit_transform")
    return result["scores"]


def _unit_vectors(result: xarray.Dataset, form: str) -> Array:
    """Return the scores of genotypes as vectors whose fitted samples have length 1; NaN for samples without scores."""
    if not result.attrs["genotypes"]:
        raise InputError(f"{result.attrs['source']}: format {form} is for genotypes; use --format tsv")
    kind = kind_of(result.attrs["kind"])
    if form not in kind.exports:
        raise InputError(f"format {form} is not available for {kind.name}; use --format tsv")
    scores = _scores(result).values.astype(np.float64)
    fitted = ~result["projected"].values if "projected" in result else slice(None)
    length = np.sqrt(np.nansum(scores[fitted] ** 2, axis=0))
    return np.asarray(scores / np.where(length > 0, length, 1.0))


def _plink_tables(result: xarray.Dataset) -> list[Table]:
    vectors, components = _unit_vectors(result, "plink"), result["components"].values
    pcs = _names(len(components))
    families = (result["fid"].values != "0").any()
    ids = {"#FID": result["fid"], "IID": result["iid"]} if families else {"#IID": result["iid"]}
    first, second = result["allele_1"].values, result["allele_2"].values
    major = result["mean"].values > 1
    weights = components * np.where(major, -1, 1) * np.sqrt(components.shape[1])
    alleles = [np.where(major, first, second), np.where(major, second, first)]
    variants = [result["chromosome"].values, result["variant_id"].values]
    return [
        ([*ids, *pcs], [*ids.values(), vectors]),
        ([], [result["eigenvalue"]]),
        (["#CHROM", "ID", "MAJ", "NONMAJ", *pcs], [*variants, *alleles, weights.T]),
        *_scoring_tables(result, variants, pcs),
    ]


def _scoring_tables(result: xarray.Dataset, variants: list[Array], pcs: list[str]) -> list[Table]:
    """Return weights of both alleles, one line each, and frequencies, of the variants that have two alleles."""
    two = np.strings.count(result["allele_1"].values.astype(TEXT), ",") == 0
    alt, ref = (result[name].values[two] for name in ("allele_1", "allele_2"))
    places = [values[two] for values in variants]
    # plink2 divides the weight of a variant between its alleles, whose counts add up to two.
    weights = result["components"].values[:, two].T * np.sqrt(result["components"].shape[1]) / 2
    # The line of REF comes before that of ALT.
    both = [np.repeat(values, 2) for values in (*places, ref, alt)]
    counted = np.stack([ref, alt], axis=1).reshape(-1)
    signed = np.stack([-weights, weights], axis=1).reshape(-1, len(pcs))
    called = result.attrs["n_samples"] - result["missing"].values[two]
    frequencies = [*places, ref, alt, result["mean"].values[two] / 2, 2 * called]
    return [
        (["#CHROM", "ID", "REF", "ALT", "A1", *pcs], [*both, counted, signed]),
        (["#CHROM", "ID", "REF", "ALT", "ALT_FREQS", "OBS_CT"], frequencies),
    ]


def _smartpca_tables(result: xarray.Dataset) -> list[Table]:
    vectors = _unit_vectors(result, "smartpca")
    values = result["explained_variance"].values / result.attrs["total_variance"] * (result.attrs["n_samples"] - 1)
    pairs = zip(result["fid"].values.tolist(), result["iid"].values.tolist(), strict=True)
    names = np.array([iid if fid == "0" else f"{fid}:{iid}" for fid, iid in pairs], TEXT)
    populations = result["population"].values if "population" in result.coords else np.full(len(names), "???", TEXT)
    return [(["#eigvals:", *(f"{value:.9g}" for value in values)], [names, vectors, populations]), ([], [values])]


def _tsv_tables(result: xarray.Dataset) -> list[Table]:
    scores = _scores(result)
    # Kernel components have weights of landmarks.
    loadings = result["components" if "components" in result else "weights"].transpose("component", ...)
    pcs = _names(len(loadings))
    numbers = [name for name in COLUMNS if name in result]
    return [
        _labelled(result, scores.dims[:-1], scores.values.reshape(-1, len(pcs)), pcs),
        _labelled(result, loadings.dims[1:], loadings.values.reshape(len(pcs), -1).T, pcs),
        (["PC", *numbers], [np.array(pcs), *(result[name].values for name in numbers)]),
    ]


def _labelled(result: xarray.Dataset, dims: tuple[Any, ...], values: Any, pcs: list[str]) -> Table:
    """Return a table with the labels of these dimensions before the values; indices of dimensions without labels."""
    sizes = [result.sizes[dim] for dim in dims]
    grid = np.unravel_index(np.arange(int(np.prod(sizes))), sizes)
    header, columns = [], []
    for dim, places in zip(dims, grid, strict=True):
        # Sorted: those of a store come in the order in which their metadata arrived.
        names = sorted(str(name) for name, coord in result.coords.items() if coord.dims == (dim,))
        header += names or [str(dim)]
        columns += [result[name].values[places] for name in names] or [places]
    return [*header, *pcs], [*columns, values]


def _names(k: int) -> list[str]:
    return [f"PC{i + 1}" for i in range(k)]


def _write_table(file: TextIO, header: list[str], columns: list[Any]) -> None:
    """Write columns, each texts, numbers, or a matrix of several columns, separated by tabs."""
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
