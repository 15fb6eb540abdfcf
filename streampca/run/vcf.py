"""Conversion of VCF and BCF files to VCF Zarr stores by bio2zarr, in a process of its own.

bio2zarr reads through htslib, which may crash on damaged files. The other process runs this file as a script.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

SUFFIXES = (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
# The empty block at the end of every file that bgzip writes; see the SAM specification, section 4.1.2.
LAST_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def convert_vcf(path: Path, store: Path, folder: Path) -> None:
    """Convert a file to a store that does not exist yet, with temporary files in a folder.

    Raises `InputError` if the file is damaged.
    """
    # This file is also the program of the other process, which does not need the package.
    from streampca.errors import InputError
    from streampca.sources.child_process import Child

    if _is_bgzip(path) and not _has_last_block(path):
        raise InputError(f"{path}: is truncated, the last block of bgzip is missing; copy it again")
    with tempfile.TemporaryDirectory(dir=folder) as between:
        with Child(__file__, str(path), str(store), between) as child:
            code, output, errors = child.wait()
    if code < 0:
        raise InputError(f"{path}: is damaged, htslib crashes when it reads it (signal {-code}); write it again")
    # htslib prints its errors, and bio2zarr raises less exact ones.
    reasons = [line.partition("] ")[2] for line in errors if line.startswith("[E::") and "index file" not in line]
    if code > 0 and reasons:
        raise InputError(f"{path}: is damaged, htslib ends when it reads it ({reasons[0]}); write it again")
    if code > 0:
        raise InputError(f"{path}: bio2zarr failed ({errors[-1]}); check the installation of streampca[vcf]")
    problem = json.loads(output)
    if problem:
        raise InputError(f"{path}: bio2zarr cannot convert it ({(reasons or [problem])[0]}); {_hint(path, problem)}")


def _is_bgzip(path: Path) -> bool:
    """Whether a file is compressed by bgzip, which adds a field to the header of gzip."""
    with path.open("rb") as file:
        head = file.read(16)
    return head[:4] == LAST_BLOCK[:4] and head[12:14] == b"BC"


def _has_last_block(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(LAST_BLOCK)))
        return file.read() == LAST_BLOCK


def _hint(path: Path, problem: str) -> str:
    """Return what to do, with the command."""
    if "its index" in problem:
        return f"run: bcftools index --force {path}"
    if "indexed" in problem:
        new = path if _is_bgzip(path) else "NEW.vcf.gz"
        return f"run: {'' if new is path else f'bcftools view {path} -Oz -o {new} && '}bcftools index {new}"
    if "contig" in problem:
        return f"add the missing ##contig lines: bcftools reheader --fai REFERENCE.fa.fai {path} > NEW{path.suffix}"
    return "check the file, or write it again with bcftools view"


def _main(path: str, store: str, between: str) -> None:
    """Convert, and print what is wrong with the file, if anything."""
    # Standard input ends when the process that started this one does.
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    try:
        problem = _convert(path, store, between)
    except Exception as error:
        problem = _in_words(error)
    sys.stdout.write(json.dumps(problem))


def _convert(path: str, store: str, between: str) -> str:
    # Optional packages, which only this process needs.
    import zarr
    from bio2zarr import vcf, vcf_utils

    # bio2zarr writes text in format 3 on purpose.
    warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
    with zarr.config.set({"array.write_empty_chunks": True}):
        group: Any = vcf.convert([path], store, icf_path=Path(between, "icf"), zarr_format=3)
    if not group["variant_position"].size:
        return "it has no variants"
    if (group["variant_position"][...] < 0).any():
        return "it has positions above 2,147,483,647, which the store would wrap"
    if not group["sample_id"].size:
        return "it has no samples"
    if not any(name.startswith("call_") for name in group):
        return "it has no genotypes"
    if not _is_indexed_to_the_end(path, vcf_utils):
        return "its index is of another file: records at the end are not indexed"
    return ""


def _is_indexed_to_the_end(path: str, vcf_utils: Any) -> bool:
    """Whether the index of a file, if it has one, leads to its last block; records after it would be lost."""
    with vcf_utils.VcfFile(path) as file:
        index = file.index
    if index is None:
        return True
    # The second chunk of a pseudo-bin has counts; see the SAM specification, section 5.2.
    depth = getattr(index, "depth", 5)
    pseudo = vcf_utils.bin_limit(14, depth) + 1
    chunks = [chunk for bins in index.bins for bin in bins if bin.bin != pseudo for chunk in bin.chunks]
    # An offset in the file, and one within the block that begins there.
    last, within = divmod(max(chunk.cnk_end for chunk in chunks), 1 << 16)
    if within:
        with open(path, "rb") as opened:
            opened.seek(last + 16)
            last += int.from_bytes(opened.read(2), "little") + 1
    return bool(last >= os.path.getsize(path) - len(LAST_BLOCK))


def _in_words(error: Exception) -> str:
    """Return the message of an exception; bio2zarr raises a KeyError for chromosomes without a header line."""
    if isinstance(error, KeyError):
        return f"no ##contig or other header line for {error}"
    return str(error).partition("\n")[0] or type(error).__name__


if __name__ == "__main__":
    _main(*sys.argv[1:])
