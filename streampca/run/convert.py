"""Writing genotypes as VCF Zarr stores, which other programs read too: a few variants at a time; and images."""

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
from streampca.sources import Source, open_genotypes
from streampca.sources.completeness import WRITTEN
from streampca.sources.formats.zarr import is_zarr
from streampca.sources.genotypes import TEXT, check_duplicates, packed_width
from streampca.sources.packed import decode

VCF_SUFFIXES = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
# Variants x samples of one chunk, as bio2zarr has them.
CHUNK = (1000, 10_000)
# Numbers of both alleles (ALT, A1, is 1) that each packed code stands for.
ALLELES = np.array([[1, 1], [-1, -1], [0, 1], [0, 0]], np.int8)
# What tells a store of ours, which may be overwritten.
OURS = {"kind": "vcf_zarr", "format_version": FORMAT_VERSION}


def convert(
    source_path: str | Path | Source, out_path: str | Path, *, overwrite: bool = False,
    progress: Progress = silent, **images: Any,
) -> Converted | None:  # fmt: skip
    """Write genotypes to a VCF Zarr store: A2 becomes REF, A1 becomes ALT, as one allele even if it is several.

    A folder of images becomes a store of one array, and what was found in it is returned: see `convert_images`.

    Parameters
    ----------
    source_path : a .bed or .pgen, or its prefix; a source of genotypes; a .vcf, .vcf.gz or .bcf, for which the
        package bio2zarr is needed; or a folder of images.
    out_path : the store.
    overwrite : replace a store that this program wrote.
    images : size, crop, grey, labels: of images alone.
    """
    out = Path(out_path)
    given_source = source_path if isinstance(source_path, Source) else None
    if not given_source and Path(str(source_path)).is_dir() and not is_zarr(Path(str(source_path))):
        return convert_images(str(source_path), out, overwrite=overwrite, progress=progress, **images)
    given = [name for name, value in images.items() if value not in (None, False) or name == "grey" and value is False]
    if given:
        raise InputError(f"{source_path}: {', '.join(given)} is for folders of images; leave it out")
    if out.suffix in (".bed", ".pgen"):
        raise InputError(f"{out}: only VCF Zarr stores are written; choose a name such as {out.with_suffix('.vcz')}")
    if not given_source and str(source_path).endswith(VCF_SUFFIXES):
        _convert_vcf(Path(str(source_path)), out, overwrite)
        return None
    source = given_source or _open(Path(str(source_path)))
    with writing(out, overwrite) as store:
        _write_calls(source, store, progress)
        attributes = {**OURS, "vcf_zarr_version": "0.4", "source": source.name}
        save({**_sample_arrays(source), **_variant_arrays(source)}, {}, attributes, store)
    return None


def _open(path: Path) -> Source:
    """Open all samples and variants of a file, given with or without its suffix."""
    source = open_genotypes(path, autosomes=False)
    if not source.packed:
        raise InputError(f"{path}: cannot be converted; give a .bed, .pgen, .vcf, .vcf.gz or a folder of images")
    return source


def _sample_arrays(source: Source) -> dict[str, tuple[tuple[str, ...], Array]]:
    """Return the samples' names: IID, or FID_IID where that alone is not unique."""
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
    """Return the different values in the order in which they come, and which of them each one is."""
    different, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return different[order], np.argsort(order)[which].astype(np.int32)


def _write_calls(source: Source, store: Path, progress: Progress) -> None:
    n, m = source.shape
    chunk = min(CHUNK[0], m), min(CHUNK[1], n)
    array = zarr.open_group(store, mode="a").create_array(
        "call_genotype", shape=(m, n, 2), chunks=(*chunk, 2), dtype="int8",
        dimension_names=("variants", "samples", "ploidy"), fill_value=-1,
        # Bits of a kind side by side: half the size that zstd alone gives, and faster to read.
        compressors=(BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle"), Crc32cCodec()),
        config=WRITTEN["config"],
    )  # fmt: skip
    starts, began = range(0, m, chunk[0]), time.monotonic()
    for done, start in enumerate(starts, start=1):
        packed, _ = source.read_packed(start, min(start + chunk[0], m))
        rows = slice(start, start + len(packed))
        for first in range(0, n, chunk[1]):
            # Chunks begin with a byte of their own: their length is a multiple of four, or they hold all samples.
            last = min(first + chunk[1], n)
            part, calls = packed[:, first // 4 : packed_width(last)], np.empty((len(packed), last - first, 2), np.int8)
            for i in range(2):
                decode(part, np.broadcast_to(ALLELES[:, i], (len(packed), 4)), calls[:, :, i])
            array[rows, first:last] = calls
        progress(Step(0, "converting", done, len(starts), time.monotonic() - began))


def _convert_vcf(path: Path, out: Path, overwrite: bool) -> None:
    """Convert through bio2zarr, whose intermediate files lie beside the store."""
    if not path.is_file():
        raise InputError(f"{path}: does not exist; check the path")
    if find_spec("bio2zarr") is None or find_spec("cyvcf2") is None:
        raise InputError(f"{path}: reading VCF needs bio2zarr and cyvcf2: pip install 'streampca[vcf]'")
    from bio2zarr import vcf

    with (
        writing(out, overwrite) as store,
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as between,
        warnings.catch_warnings(),
        zarr.config.set({"array.write_empty_chunks": True}),
    ):
        # Text in format 3, which bio2zarr means to write.
        warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
        store.rmdir()  # bio2zarr makes it itself
        try:
            group = vcf.convert([path], store, mode="r+", icf_path=Path(between, "icf"), zarr_format=3)
        except (OSError, ValueError, RuntimeError) as error:
            first = str(error).partition("\n")[0]
            raise InputError(
                f"{path}: bio2zarr cannot convert it ({first}); it should be packed with bgzip and indexed with tabix"
            ) from error
        group.attrs.update(OURS)
