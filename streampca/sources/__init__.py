"""Matrices of samples x features in any format. `open_source` opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streampca.errors import InputError
from streampca.sources.base import Axis, Source
from streampca.sources.registry import OpenOptions, genotype_suffixes, open_any
from streampca.sources.selection import select

__all__ = ["Axis", "Source", "genotype_suffixes", "open_genotypes", "open_source"]


def open_source(
    data: Any, *, variable: str | None = None, sample_dims: str | Sequence[str] | None = None,
    missing_chunks: str = "error", external_files: str = "error", **selection: Any,
) -> Source:  # fmt: skip
    """Open an array, a path or a URL as a source.

    Parameters
    ----------
    data : NumPy array or anything array-like, Dask array, Zarr array, xarray DataArray or Dataset, a path (.bed, .pgen,
        .bgen, .geno, .npy, .nc, a Zarr store, `store.zarr/path` inside it), or the URL of a Zarr store. Genotypes in
        several files: a pattern such as "chr*.bed", a list of paths, or a file of paths, as chromosomes.list.
    variable : which array of a group, Dataset or NetCDF file.
    sample_dims : the dimensions of labelled data that make up the samples; by default the first one.
    missing_chunks : "fill" to read missing chunks of a Zarr store as its fill value.
    external_files : "read" to follow links out of a store or HDF5 file; data of someone else may link to your files.
    selection : for genotypes, as of `open_genotypes`.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> np.save("points.npy", np.zeros((1000, 5), np.float32))
    >>> source = streampca.open_source("points.npy")
    >>> source.shape, str(source.dtype), source.n_bytes
    ((1000, 5), 'float32', 20000)
    """
    dims = (sample_dims,) if isinstance(sample_dims, str) else tuple(sample_dims or ())
    return _open(data, OpenOptions(variable, dims or None, missing_chunks, external_files=external_files), selection)


def open_genotypes(
    data: Any, *, variable: str | None = None, missing_chunks: str = "error", external_files: str = "error",
    **selection: Any,
) -> Source:  # fmt: skip
    """Open genotypes: a PLINK .bed or .pgen, a .bgen or .geno, by path or prefix, or a VCF Zarr store.

    Parameters
    ----------
    data : the path, the URL of a store, or an open Zarr group.
    variable : of a store, "call_genotype", or an array of dosages.
    missing_chunks, external_files : as for `open_source`.
    selection : keep, remove, extract, exclude, exclude_regions, autosomes, chr, thin, thin_count, rm_dup, maf, geno,
        mind: see `selection.select`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import streampca
    >>> from streampca.demos.simulate_genotypes import simulate_genotypes
    >>> people = simulate_genotypes(Path("study"), n_samples=100, n_variants=300)
    >>> source = streampca.open_genotypes("study.bed", keep=["s0", "s1"])
    >>> source.shape
    (2, 300)
    """
    return _open(data, OpenOptions(variable, None, missing_chunks, True, external_files), selection)


def _open(data: Any, options: OpenOptions, selection: dict[str, Any]) -> Source:
    source = open_any(data, options)
    source.check()
    if not source.is_genotypes:
        given = [name for name, value in selection.items() if value is not None]
        if options.genotypes or given:
            what = "does not contain genotypes" if options.genotypes else f"{given[0]} needs genotypes"
            raise InputError(f"{source.name}: {what}; give a .bed, a .pgen, the prefix of one, or a VCF Zarr store")
    elif options.sample_dims:
        raise InputError(f"{source.name}: genotypes have no sample dimensions to choose; remove sample_dims")
    elif selection or not isinstance(data, Source):
        return select(source, **selection)
    return source
