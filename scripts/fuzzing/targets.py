"""Each reader: small valid files for it, how they are damaged, and what a run does with them."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing import binary_seeds, independent
from fuzzing.mutations import BYTES, JSON, TEXT, Mutation, flip, overwrite
from fuzzing.seeds import (
    BIM,
    CONFIGS,
    FAM,
    PSAM,
    PVAR,
    TABLES,
    checkpoints,
    images,
    npy,
    pgen,
    plain_stores,
    plink,
    results,
    vcf_stores,
    workplaces,
)  # fmt: skip
from streampca.errors import InputError
from streampca.models.pca.options import PCAOptions
from streampca.results.fit import FitJob
from streampca.results.kind import kind_of
from streampca.run.config import load as load_config
from streampca.run.config.blocks import Data, Filter
from streampca.run.convert import convert
from streampca.run.fit import open_data
from streampca.run.work_directory import WorkDirectory
from streampca.run.work_directory import status as status_of
from streampca.sources import open_genotypes
from streampca.sources.formats.plink1 import read_bim, read_fam
from streampca.sources.formats.plink2 import read_psam, read_pvar
from streampca.sources.regions import in_regions, read_regions
from streampca.sources.selection import select
from streampca.sources.tables import Ids, read_table
from streampca.sweep.checkpoint import Checkpoint, read_record

Files = Mapping[str, bytes]
# Beside what the process has already.
MEMORY = "1GB"
# Of a .npy file.
HEADER = 128
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    seeds : valid inputs, each some files by name; made in a folder that is given.
    use : what a run does with the files in a folder; the number of the input chooses where there are several ways. It
        raises if they are rejected; of several, it returns how many are.
    how : what damages a file, by the end of its name; files of other names stay as they are.
    share : inputs of this reader, of all.
    length : inputs of one process.
    batch : inputs that are tried together.
    """

    name: str
    seeds: Callable[[Path], Sequence[Files]]
    use: Callable[[Path, int], int | None]
    how: Mapping[str, Sequence[Mutation]]
    share: float
    length: int = 5000
    batch: int = 1

    def mutations(self, name: str) -> Sequence[Mutation] | None:
        """Return what damages a file of this name."""
        return next((how for end, how in self.how.items() if name.endswith(end)), None)


def use_source(path: Path, all_chromosomes: bool = False) -> Any:
    """Open data, look at labels, plan a fit, and read what one task reads first; returns the data."""
    data = open_data(Data(path=str(path)), Filter(all_chromosomes=all_chromosomes))
    data.fingerprint()
    for axis in (data.samples, data.features):
        for _, values in axis.coords.values():
            np.asarray(values).shape  # noqa: B018
    chosen = FitJob(kind_of("pca"), data, PCAOptions(), MEMORY).plan()
    chosen.lines()
    start, stop = chosen.cut.partitions[0]
    matrix = chosen.matrix(data, "mean")
    part, whole = slice(start, min(stop, start + matrix.slab_length)), slice(0, matrix.n_full)
    data.read(*((part, whole) if matrix.axis == 0 else (whole, part)))
    return data


def use_npy(folder: Path, _: int) -> None:
    independent.check_source(use_source(folder / "x.npy"), independent.npy(folder / "x.npy"))


def use_bed(folder: Path, _: int) -> None:
    data = use_source(folder / "x.bed", True)
    independent.check_source(data, independent.bed(folder / "x.bed", data))


def use_pgen(folder: Path, _: int) -> None:
    data = use_source(folder / "x.pgen", True)
    independent.check_source(data, independent.pgen(folder / "x.pgen", data))


def use_netcdf(folder: Path, _: int) -> None:
    data = use_source(folder / "x.nc")
    if data.n_bytes <= independent.MOST_COMPARED:
        # xarray decodes packed values as float32 where these are enough.
        independent.check_source(data, independent.netcdf(folder / "x.nc", data._array.name), 1e-6)


def use_zarr(folder: Path, _: int) -> None:
    independent.check_zarr(use_source(folder / "x.zarr"), folder / "x.zarr")


def use_shards(folder: Path, _: int) -> None:
    independent.check_source(use_source(folder / "x.zarr"), independent.shards(folder / "x.zarr"))


def use_vcf_zarr(folder: Path, _: int) -> None:
    data = use_source(folder / "x.zarr", True)
    if data.packed and data.n_bytes <= independent.MOST_COMPARED:
        independent.check_source(data, independent.vcf_zarr(str(folder / "x.zarr")))


def use_vcf(folder: Path, _: int) -> None:
    """Convert a file, and read the store."""
    path, store = next(path for path in folder.iterdir() if path.suffix != ".tbi"), folder.parent / "out" / "x.vcz"
    convert(path, store, overwrite=True)
    independent.check_vcf(path, open_genotypes(store, autosomes=False))


def use_columns(
    reader: Callable[[Path], Any], name: str, names: Mapping[str, str | int]
) -> Callable[[Path, int], None]:
    return lambda folder, _: independent.check_columns(folder / name, reader(folder / name), names)


def text(name: str, content: bytes | Sequence[bytes]) -> Callable[[Path], Sequence[Files]]:
    contents = [content] if isinstance(content, bytes) else content
    return lambda _: [{name: content} for content in contents]


@cache
def genotypes(folder: str) -> Any:
    """Return genotypes that lists and regions choose from."""
    prefix = Path(folder, "valid")
    for name, content in plink(Path(folder))[0].items():
        prefix.with_suffix(Path(name).suffix).write_bytes(content)
    return open_genotypes(prefix.with_suffix(".bed"), autosomes=False)


def use_list(folder: Path, number: int) -> None:
    option = ("keep", "remove", "extract", "exclude")[number % 4]
    select(genotypes(str(folder.parent)), **{option: folder / "ids.txt"}).fingerprint()


def use_regions(folder: Path, _: int) -> None:
    regions = read_regions(folder / "regions.txt")
    data = genotypes(str(folder.parent))
    in_regions(data.label("chromosome"), data.label("position"), regions)


def use_table(folder: Path, number: int) -> None:
    names = [f"i{i}" for i in range(8)]
    ids = Ids(names[:7] + names[:1], [f"f{i}" for i in range(8)]) if number % 4 == 3 else Ids(names)
    table = read_table(folder / "table.tsv", ids)
    independent.check_table(folder / "table.tsv", table, ids.names)
    table.columns  # noqa: B018
    str(table.note)
    for name in table.cells:
        try:
            table.numbers(name)
        except InputError:
            table.label(name)
    table.label()


def use_config(folder: Path, number: int) -> None:
    settings = ["model.tol=1e-2"] if number % 4 == 0 else []
    config = load_config(folder / "run.yaml", settings)
    json.dumps(config.as_dict())


def use_images(folder: Path, number: int) -> int:
    """Convert the images in a folder; returns the number of those that are skipped."""
    out = folder.parent / "out"
    done = convert(folder, out / "images.zarr", overwrite=True, size=(12, 10), crop=number % 2 == 0, grey=None)
    assert done is not None
    done.lines()
    independent.check_images(folder, out / "images.zarr", (12, 10))
    return len(done.skipped)


def use_checkpoint(folder: Path, number: int) -> None:
    """Read a record on its own, or as a run that is taken up does, for which a damaged one is as good as none."""
    path = next(folder.glob("*.npz"))
    content = path.read_bytes()
    if number % 2:
        read_record(path)
        return
    checkpoint = Checkpoint(folder)
    try:
        checkpoint.recall("start", {"a": 1})
        checkpoint.sweep({"statistic": "sum", "x": np.arange(3.0)}).read(lambda *_: True)
    finally:
        path.write_bytes(content)


def use_workplace(folder: Path, _: int) -> None:
    from streampca.cli.status import _lines
    from streampca.run.record import run_differences

    place = WorkDirectory(folder / "out.zarr.unfinished")
    begun = place.record
    if begun is not None:
        run_differences(begun, {**begun, "config": {"data": {"path": "x.npy"}, "output": {"path": "out.zarr"}}})
    found = status_of(folder / "out.zarr")
    if found is not None:
        json.dumps(found)
        _lines(found)


def use_result(folder: Path, number: int) -> None:
    """Let a command read a result; all of them get their turn."""
    from streampca.cli import cli

    out, store, new = folder.parent / "out", str(folder / "result.zarr"), _data(folder)
    again = ["--overwrite", "--quiet", "--memory", MEMORY]
    commands = {
        "info": ["info", store],
        "json": ["info", "--json", store],
        "report": ["report", store, "--out", str(out / "page.html"), "--overwrite"],
        "tsv": ["export", store, "--format", "tsv", "--out", str(out / "text"), "--overwrite"],
        "plink": ["export", store, "--format", "plink", "--out", str(out / "text"), "--overwrite"],
        "status": ["status", store],
        "assign": ["assign", store, "--labels", str(folder / "labels.tsv"), "--out", str(out / "a.tsv"), "--overwrite"],
        "project": ["project", store, new, "--out", str(out / "s.zarr"), *again],
        "predict": ["predict", store, new, "--out", str(out / "p.tsv"), *again],
        "impute": ["impute", store, new, "--out", str(out / "i.zarr"), *again],
        "denoise": ["denoise", store, new, "--out", str(out / "d.zarr"), *again],
    }
    # In the order in which `results` makes them.
    own = ("denoise", "plink", "impute", "denoise", "predict")[int(folder.name.removeprefix("input"))]
    turns = ("info", "json", "report", "tsv", "info", own, "status", "project", "report", "info", "assign", "json")
    cli(commands[turns[number % len(turns)]], standalone_mode=False)


def _data(folder: Path) -> str:
    return str(next(folder.glob("data.bed"), folder / "data.npy"))


def _rezipped(data: bytes, rng: Any, others: Sequence[bytes]) -> bytes:
    """Damage what is in an archive, and pack it again so that its checksums are right."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return data
    if not parts:
        return data
    name = rng.choice(list(parts))
    head, body = parts[name][:HEADER], parts[name][HEADER:]
    if name == "tree.npy" and rng.random() < 0.8:
        body = rng.choice(JSON)(body, rng, others)
        buffer = io.BytesIO()
        np.save(buffer, np.frombuffer(body, np.uint8))
        parts[name] = buffer.getvalue()
    else:
        parts[name] = rng.choice(BYTES)(head, rng, others) + body
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _regzipped(data: bytes, rng: Any, others: Sequence[bytes]) -> bytes:
    """Damage what is compressed, and compress it again as bgzip does."""
    try:
        content = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return data
    how = TEXT if content[:2] == b"##" else BYTES
    return binary_seeds.bgzipped(rng.choice(how)(content, rng, others), 60_000)


def _reindexed(data: bytes, rng: Any, _: Sequence[bytes]) -> bytes:
    """Change the index of a shard, and one byte of its checksum now and then."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        at = (
            8 * rng.randrange(max(1, len(data) // 8))
            if rng.random() < 0.5
            else max(0, len(data) - 8 * rng.randrange(1, 9))
        )
        value = rng.choice((0, 8, 16, 24, len(data), max(0, len(data) - 24), 2**63, 2**64 - 1, rng.getrandbits(64)))
        changed[at : at + 8] = value.to_bytes(8, "little")
    return bytes(changed[: len(data)])


BIM_COLUMNS = {"chromosome": 0, "variant_id": 1, "position": 3, "allele_1": 4, "allele_2": 5}
PVAR_COLUMNS = {"chromosome": "CHROM", "position": "POS", "variant_id": "ID", "allele_2": "REF", "allele_1": "ALT"}
SHARDS = (*BYTES, _reindexed, _reindexed, _reindexed)
GZIPPED = (*BYTES, *[_regzipped] * 12)
VCF_FILES = {".vcf": TEXT, ".vcf.gz": GZIPPED, ".bcf": GZIPPED, ".tbi": GZIPPED}
LISTS = (b"f0 i0\nf1 i1\nf2\ti2\n", b"#FID IID\nf0 i0\n", b"rs0\nrs1\nrs2\n", b"i0\r\ni1\r\n")
REGIONS = (b"1 100 200 a name\nchr2\t5\t7\n# none\n\nX 1 1\n", b"1 0 100000\n")

TARGETS = {
    target.name: target
    for target in (
        Target(".bim", text("x.bim", BIM), use_columns(read_bim, "x.bim", BIM_COLUMNS), {".bim": TEXT}, 0.14, 20_000),
        Target(".fam", text("x.fam", FAM), use_columns(read_fam, "x.fam", {"fid": 0, "iid": 1}), {".fam": TEXT}, 0.14,
               20_000),
        Target(".pvar", text("x.pvar", PVAR), use_columns(read_pvar, "x.pvar", PVAR_COLUMNS), {".pvar": TEXT}, 0.13,
               20_000),
        Target(".psam", text("x.psam", PSAM), use_columns(read_psam, "x.psam", {"fid": "FID", "iid": "IID"}),
               {".psam": TEXT}, 0.13, 20_000),
        Target("lists", text("ids.txt", LISTS), use_list, {".txt": TEXT}, 0.06, 20_000),
        Target("regions", text("regions.txt", REGIONS), use_regions, {".txt": TEXT}, 0.14, 20_000),
        Target("tables", text("table.tsv", TABLES), use_table, {".tsv": TEXT}, 0.03, 5000),
        Target("config", text("run.yaml", CONFIGS), use_config, {".yaml": TEXT}, 0.01),
        Target(".bed", plink, use_bed, {".bed": BYTES, ".bim": TEXT, ".fam": TEXT}, 0.025),
        Target(".pgen", pgen, use_pgen, {".pgen": BYTES, ".pvar": TEXT, ".psam": TEXT}, 0.02, 1000),
        Target(".npy", npy, use_npy, {".npy": (*BYTES, *TEXT)}, 0.03),
        Target("NetCDF", binary_seeds.netcdf, use_netcdf, {".nc": (*BYTES, *[flip, overwrite] * 8)}, 0.01, 500),
        Target("VCF", binary_seeds.vcf, use_vcf, VCF_FILES, 0.006, 200),
        Target("Zarr", plain_stores, use_zarr, dict.fromkeys(METADATA, JSON), 0.015, 1000),
        Target("shards", binary_seeds.shards, use_shards, {"/0": SHARDS, "/1": SHARDS}, 0.01, 1000),
        Target("VCF Zarr", vcf_stores, use_vcf_zarr, dict.fromkeys(METADATA, JSON), 0.008, 500),
        Target("images", images, use_images, {"": BYTES}, 0.02, 2000, 50),
        Target("results", results, use_result, dict.fromkeys(METADATA, JSON), 0.004, 500),
        Target("checkpoints", checkpoints, use_checkpoint, {".npz": (*BYTES, *[_rezipped] * 12)}, 0.02),
        Target("unfinished runs", workplaces, use_workplace, {".json": JSON}, 0.01),
    )
}  # fmt: skip
