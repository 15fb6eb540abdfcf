"""Conversion of genotypes to VCF Zarr stores, and of folders of images to arrays."""

from __future__ import annotations

import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.dataset import FORMAT_VERSION
from streampca.progress import Progress, Step, silent
from streampca.results.write import save, writing
from streampca.run.images import Converted, convert_images
from streampca.sources import Source, genotype_suffixes, open_genotypes
from streampca.sources.completeness import WRITTEN
from streampca.sources.formats.zarr import is_zarr
from streampca.sources.genotypes import TEXT, check_duplicates, packed_width
from streampca.sources.packed import decode

VCF_SUFFIXES = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
CHUNK = (1000, 10_000)  # variants x samples, as in bio2zarr
# Numbers of both alleles (A1, which is ALT, is 1) for each packed code.
ALLELES = np.array([[1, 1], [-1, -1], [0, 1], [0, 0]], np.int8)
OURS = {"kind": "vcf_zarr", "format_version": FORMAT_VERSION}  # attributes of a store that may be overwritten


def convert(
    data: str | Path | Source, out_path: str | Path, *, overwrite: bool = False, progress: Progress = silent,
    **images: Any,
) -> Converted | None:  # fmt: skip
    """Write genotypes to a VCF Zarr store: A2 becomes REF, A1 becomes ALT, as one allele even at multiallelic sites.

    A folder of images becomes a store of one array; the summary of it is returned: see `convert_images`.

    Parameters
    ----------
    data : a .bed or .pgen, or its prefix; a source of genotypes; a .vcf, .vcf.gz or .bcf, which needs the package
        bio2zarr; or a folder of images.
    out_path : the store.
    overwrite : replace a store that this program wrote.
    images : size, crop, grey, labels, for images only.
    """
    out = Path(out_path)
    path = None if isinstance(data, Source) else Path(data)
    if path is not None and path.is_dir() and not is_zarr(path):
        return convert_images(path, out, overwrite=overwrite, progress=progress, **images)
    given = [name for name, value in images.items() if value not in (None, False) or name == "grey" and value is False]
    if given:
        raise InputError(f"{data}: {', '.join(given)} is for folders of images; remove it")
    if out.suffix in genotype_suffixes() and out.suffix != ".vcz":
        raise InputError(f"{out}: only VCF Zarr stores are written; choose a name such as {out.with_suffix('.vcz')}")
    if path is not None and path.name.endswith(VCF_SUFFIXES):
        _convert_vcf(path, out, overwrite)
        return None
    source = data if isinstance(data, Source) else open_genotypes(data, autosomes=False)
    if not source.packed:
        raise InputError(f"{source.name}: cannot be converted; give a .bed, .pgen, .vcf, .vcf.gz or a folder of images")
    with writing(out, overwrite) as store:
        _write_calls(source, store, progress)
        attributes = {**OURS, "vcf_zarr_version": "0.4", "source": source.name}
        save({**_sample_arrays(source), **_variant_arrays(source)}, {}, attributes, store)
    return None


def _sample_arrays(source: Source) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Return the names of samples: IID, or FID_IID if IID is not unique."""
    ids = source.label("iid").tolist()
    if len(set(ids)) < len(ids):
        ids = [f"{f}_{i}" for f, i in zip(source.label("fid").tolist(), ids, strict=True)]
        check_duplicates(source.name, "sample name", ids)
    return {"sample_id": (("samples",), np.array(ids, TEXT))}


def _variant_arrays(source: Source) -> dict[str, tuple[tuple[str, ...], Array]]:
    contigs, codes = _in_order(source.label("chromosome"))
    position = source.label("position")
    wide = position.max(initial=0) > np.iinfo(np.int32).max
    return {
        "contig_id": (("contigs",), contigs),
        "variant_contig": (("variants",), codes),
        "variant_position": (("variants",), position.astype(np.int64 if wide else np.int32)),
        "variant_id": (("variants",), source.label("variant_id")),
        "variant_allele": (
            ("variants", "alleles"),
            np.stack([source.label("allele_2"), source.label("allele_1")], axis=1),
        ),
    }


def _in_order(values: Array) -> tuple[Array, Array]:
    """Return the unique values in order of appearance, and the index of each value in them."""
    different, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return different[order], np.argsort(order)[which].astype(np.int32)


def _write_calls(source: Source, store: Path, progress: Progress) -> None:
    n, m = source.shape
    chunk = min(CHUNK[0], m), min(CHUNK[1], n)
    array = zarr.open_group(store, mode="a").create_array(
        "call_genotype", shape=(m, n, 2), chunks=(*chunk, 2), dtype="int8",
        dimension_names=("variants", "samples", "ploidy"), fill_value=-1,
        # Bitshuffle halves the size and is faster to read.
        compressors=(BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle"), Crc32cCodec()),
        config=WRITTEN["config"],
    )  # fmt: skip
    starts, began = range(0, m, chunk[0]), time.monotonic()
    for done, start in enumerate(starts, start=1):
        packed, _ = source.read_packed(start, min(start + chunk[0], m))
        rows = slice(start, start + len(packed))
        for first in range(0, n, chunk[1]):
            # Chunks start at a byte: their length is a multiple of four, or they contain all samples.
            last = min(first + chunk[1], n)
            part, calls = packed[:, first // 4 : packed_width(last)], np.empty((len(packed), last - first, 2), np.int8)
            for i in range(2):
                decode(part, np.broadcast_to(ALLELES[:, i], (len(packed), 4)), calls[:, :, i])
            array[rows, first:last] = calls
        progress(Step(0, "converting", done, len(starts), time.monotonic() - began))


def _convert_vcf(path: Path, out: Path, overwrite: bool) -> None:
    """Convert through bio2zarr, with its intermediate files next to the store."""
    if not path.is_file():
        raise InputError(f"{path}: does not exist; check the path")
    if find_spec("bio2zarr") is None or find_spec("cyvcf2") is None:
        raise InputError(f"{path}: reading VCF needs bio2zarr and cyvcf2: pip install 'streampca[vcf]'")
    # An optional package.
    from bio2zarr import vcf

    with (
        writing(out, overwrite) as store,
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as between,
        warnings.catch_warnings(),
        zarr.config.set({"array.write_empty_chunks": True}),
    ):
        # bio2zarr writes text in format 3 on purpose.
        warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
        store.rmdir()  # bio2zarr creates it
        try:
            group = vcf.convert([path], store, mode="r+", icf_path=Path(between, "icf"), zarr_format=3)
        except (OSError, ValueError, RuntimeError) as error:
            first = str(error).partition("\n")[0]
            raise InputError(
                f"{path}: bio2zarr cannot convert it ({first}); compress it with bgzip and index it with tabix"
            ) from error
        group.attrs.update(OURS)
