"""Conversion of genotypes to VCF Zarr stores, and of tables and folders of images to arrays."""

from __future__ import annotations

import math
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from streampca._typing import Array
from streampca.errors import InputError
from streampca.files import absent
from streampca.models.dataset import FORMAT_VERSION
from streampca.progress import Progress, reporting, silent
from streampca.results.write import resumable_array, save
from streampca.run.config.blocks import Threads
from streampca.run.driver import run
from streampca.run.images import Converted, ImageFolder
from streampca.run.number_table import SEPARATORS, write_number_table
from streampca.run.task import Blocks, Task
from streampca.run.vcf import SUFFIXES as VCF_SUFFIXES
from streampca.run.vcf import convert_vcf
from streampca.sources import Source, genotype_suffixes, open_genotypes
from streampca.sources.base import digest, file_stamp
from streampca.sources.formats.zarr import is_zarr
from streampca.sources.genotypes import TEXT, check_duplicates, packed_width
from streampca.sources.packed import decode
from streampca.sweep.checkpoint import active_checkpoint
from streampca.sweep.memory import NUMBA_BYTES, TEXT_BYTES, WRITE_COPIES, Budget, check_fits

CHUNK = (1000, 10_000)  # variants x samples, as in bio2zarr
VCF_BYTES = 300 << 20  # of bio2zarr, in a process of its own
# Numbers of both alleles (A1, which is ALT, is 1) for each packed code.
ALLELES = np.array([[1, 1], [-1, -1], [0, 1], [0, 0]], np.int8)
OURS = {"kind": "vcf_zarr", "format_version": FORMAT_VERSION}  # attributes of a store that may be overwritten


class ConvertTask(Task):
    """Write genotypes to a VCF Zarr store: A2 becomes REF, A1 becomes ALT, as one allele even at multiallelic sites.

    A folder of images, or a table, becomes a store of one array: see `ImageFolder` and `write_number_table`.

    Parameters
    ----------
    data : a .bed or .pgen, or its prefix; a source of genotypes; a .vcf, .vcf.gz or .bcf, which needs the package
        bio2zarr; a .csv, .tsv or .txt; or a folder of images.
    out : the store.
    overwrite : replace a store that this program wrote.
    images : size, crop, grey, labels, for images only.

    Attributes
    ----------
    converted : summary of images, if this process did the work.
    """

    def __init__(
        self, data: str | Path | Source, out: str | Path, *, overwrite: bool = False, engine: Threads | None = None,
        **images: Any,
    ):  # fmt: skip
        self.data, self.output, self.overwrite, self.engine = data, str(out), overwrite, engine or Threads()
        self.images = {name: value for name, value in images.items() if value is not None and (value or name == "grey")}
        self.converted: Converted | None = None
        self._folder: ImageFolder | None = None
        self._needed = VCF_BYTES

    def options(self) -> Blocks:
        """Return the source and the options of images."""
        images = {name: value if isinstance(value, bool) else str(value) for name, value in self.images.items()}
        return {"convert": {"source": self.data.name if isinstance(self.data, Source) else str(self.data), **images}}

    def open(self) -> str:
        """Open the data; return their fingerprint."""
        data, out = self.data, Path(self.output)
        path = None if isinstance(data, Source) else Path(data)
        if path is not None and path.is_dir() and not is_zarr(path):
            self._folder = ImageFolder(path, out, **self.images)
            return self._folder.fingerprint()
        if self.images:
            raise InputError(f"{data}: {', '.join(self.images)} is for folders of images; remove it")
        if path is not None and path.suffix in SEPARATORS:
            if not path.is_file():
                raise absent(path)
            self._write = partial(write_number_table, path)
            return digest(*file_stamp(path))
        if out.suffix in genotype_suffixes() and out.suffix != ".vcz":
            raise InputError(
                f"{out}: only VCF Zarr stores are written; choose a name such as {out.with_suffix('.vcz')}"
            )
        if path is not None and path.name.endswith(VCF_SUFFIXES):
            _check_vcf(path)
            self._write = partial(_write_vcf, path)
            return digest(*file_stamp(path))
        source = data if isinstance(data, Source) else open_genotypes(data, autosomes=False)
        if not source.packed:
            raise InputError(
                f"{source.name}: cannot be converted; give a .bed, .pgen, .vcf, .csv, .tsv, or a folder of images"
            )
        source.watch()
        # A chunk as it is read, its calls, and copies to compress them.
        self._needed = CHUNK[0] * source.shape[0] // 4 + 2 * (1 + WRITE_COPIES) * math.prod(CHUNK)
        self._needed += TEXT_BYTES * sum(source.shape)
        self._write = partial(_write_genotypes, source)
        return str(source.fingerprint())

    def check(self) -> None:
        """Raise before the work starts if the store, or the list of skipped images, could not be written."""
        super().check()
        if self._folder is not None:
            self._folder.check(self.overwrite)

    def execute(self, place: Path, budget: Budget, progress: Progress) -> None:
        """Write the store."""
        if self._folder is None:
            check_fits(self._needed, budget, "conversion", libraries=NUMBA_BYTES)
            self._write(place, progress)
        else:
            self.converted = self._folder.write(place, progress, budget)

    def finish(self, place: Path, again: bool) -> None:  # noqa: ARG002
        """Give the list of skipped images its name."""
        if self._folder is not None:
            self._folder.place_list(place)


def convert(
    data: str | Path | Source, out: str | Path, *, overwrite: bool = False, progress: Progress = silent, **images: Any
) -> Converted | None:
    """Run a `ConvertTask`; return the summary of images."""
    task = ConvertTask(data, out, overwrite=overwrite, **images)
    run(task, progress=progress)
    return task.converted


def _write_genotypes(source: Source, store: Path, progress: Progress) -> None:
    _write_calls(source, store, progress)
    attributes = {**OURS, "vcf_zarr_version": "0.4", "source": source.name}
    save({**_sample_arrays(source), **_variant_arrays(source)}, {}, attributes, store)


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
    """Write the calls, except for chunks that an earlier attempt has written."""
    n, m = source.shape
    chunk = min(CHUNK[0], m), min(CHUNK[1], n)
    array = resumable_array(
        store, "call_genotype", (m, n, 2), (*chunk, 2), "int8", ("variants", "samples", "ploidy"), -1,
        # Bitshuffle halves the size and is faster to read.
        compressors=(BloscCodec(cname="zstd", clevel=5, shuffle="bitshuffle"), Crc32cCodec()),
    )  # fmt: skip
    starts = range(0, m, chunk[0])
    for i, start in reporting(enumerate(starts), len(starts), "converting", progress):
        keys = (array.metadata.encode_chunk_key((i, j, 0)) for j in range(array.cdata_shape[1]))
        if not all((store / array.path / key).exists() for key in keys):
            packed, _ = source.read_packed(start, min(start + chunk[0], m))
            rows = slice(start, start + len(packed))
            for first in range(0, n, chunk[1]):
                # Chunks start at a byte: their length is a multiple of four, or they contain all samples.
                last = min(first + chunk[1], n)
                part, calls = (
                    packed[:, first // 4 : packed_width(last)],
                    np.empty((len(packed), last - first, 2), np.int8),
                )
                for allele in range(2):
                    decode(part, np.broadcast_to(ALLELES[:, allele], (len(packed), 4)), calls[:, :, allele])
                array[rows, first:last] = calls


def _check_vcf(path: Path) -> None:
    if not path.is_file():
        raise absent(path)
    if find_spec("bio2zarr") is None or find_spec("cyvcf2") is None:
        raise InputError(f"{path}: reading VCF needs bio2zarr and cyvcf2: pip install 'streampca[vcf]'")


def _write_vcf(path: Path, store: Path, progress: Progress) -> None:  # noqa: ARG001
    """Convert through bio2zarr, which starts from the beginning."""
    shutil.rmtree(store)  # bio2zarr creates it
    checkpoint = active_checkpoint()
    assert checkpoint is not None
    convert_vcf(path, store, checkpoint.folder)
    group: Any = zarr.open_group(store, mode="r+")
    group.attrs.update(OURS)
