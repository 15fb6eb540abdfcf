"""Injects faults, many times at random places, and counts how runs end: refused, with the right bits, or unnoticed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import xarray
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from streampca import InputError, load
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.models.pca.fit import project
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit
from streampca.report import write_report
from streampca.results.export import export
from streampca.results.fit import FitJob
from streampca.results.kind import kind_of
from streampca.results.store import check_whole
from streampca.run.config.blocks import Data, Filter
from streampca.run.fit import open_data
from streampca.sources import open_source
from streampca.sweep.checkpoint import Checkpoint

Rng = np.random.Generator
MODEL = PCAOptions(n_components=3, solver="krylov", tol=1e-7)
WHOLE = {"config": {"write_empty_chunks": True}}
CODECS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": ZstdCodec()},
    "blosc": {"compressors": BloscCodec(cname="lz4")},
    "not compressed": {"compressors": None},
    "gzip": {"compressors": GzipCodec()},
    "zstd with checksum": {"compressors": ZstdCodec(checksum=True)},
    "zstd, crc32c": {"compressors": (ZstdCodec(), Crc32cCodec())},
    "crc32c": {"compressors": Crc32cCodec()},
    "shards": {"shards": (100, 40), "chunks": (50, 20), "compressors": ZstdCodec()},
    "format 2": {"zarr_format": 2},
}


class Interrupted(BaseException):
    """Ends a run in its middle, as a kill does."""


# ---------------------------------------------------------------- data, and what is sound of them


def matrix() -> Any:
    rng = np.random.default_rng(1)
    strengths = 3.0 * 0.9 ** np.arange(8)
    return rng.standard_normal((600, 8)) * strengths @ rng.standard_normal((8, 40)) + rng.standard_normal((600, 40))


def make(kind: str, folder: Path) -> Path:
    """Write the same data in one of many forms; returns the path."""
    x = matrix().astype("f4")
    if kind == ".bed":
        simulate_genotypes(folder / "x", 120, 2000)
        return folder / "x.bed"
    if kind == ".npy":
        np.save(folder / "x.npy", x)
        return folder / "x.npy"
    if kind == "packed by xarray":
        packing = {"x": {"scale_factor": 0.01, "dtype": "int16", "_FillValue": -9999, "chunks": (50, 40)}}
        data = xarray.DataArray(x, dims=("time", "place"), name="x").to_dataset()
        data.to_zarr(folder / "x.zarr", encoding=packing, consolidated=False, write_empty_chunks=True)
        return folder / "x.zarr"
    options = {"chunks": (50, 40), **CODECS[kind], **WHOLE}
    zarr.create_array(folder / "x.zarr", shape=x.shape, dtype=x.dtype, **options)[...] = x
    return folder / "x.zarr"


def fit(path: Path, store: Path, progress: Callable[[Any], None] = lambda _: None) -> dict[str, bytes]:
    """Fit, reading the data in each sweep; returns the bytes of what was found."""
    store.mkdir(exist_ok=True)
    source = open_data(Data(path=str(path)), Filter())
    source.costly = False
    FitJob(kind_of("pca"), source, MODEL, "4GB", progress).fit(store)
    return found_in(store)


def found_in(store: Path) -> dict[str, bytes]:
    result = load(store)
    return {name: result[name].values.tobytes() for name in ("components", "scores", "explained_variance", "mean")}


# ---------------------------------------------------------------- faults


def chunks_of(folder: Path) -> list[Path]:
    names = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in names)


def remove(path: Path, _: Rng) -> None:
    path.unlink()


def empty(path: Path, _: Rng) -> None:
    path.write_bytes(b"")


def cut(path: Path, rng: Rng) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(1, len(content)))])


def lengthen(path: Path, rng: Rng) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 50))))


def flip(path: Path, rng: Rng) -> None:
    content = bytearray(path.read_bytes())
    content[int(rng.integers(3 if path.suffix == ".bed" else 0, len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def folder_instead(path: Path, _: Rng) -> None:
    path.unlink()
    path.mkdir()


def other(path: Path, rng: Rng) -> None:
    """Put another sound chunk in its place."""
    others = [p for p in path.parent.parent.rglob(path.name) if p != path and p.is_file()]
    path.write_bytes(others[int(rng.integers(len(others)))].read_bytes())


def values(path: Path, rng: Rng) -> None:
    """Change values of the same length, as another program that writes to the file does."""
    content = bytearray(path.read_bytes())
    start = int(rng.integers(len(content) // 2, len(content) - 64))
    content[start : start + 32] = bytes(32)
    path.write_bytes(content)


def keeping_time(harm: Callable[[Path, Rng], None]) -> Callable[[Path, Rng], None]:
    def kept(path: Path, rng: Rng) -> None:
        before = path.stat()
        harm(path, rng)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return kept


@dataclass(frozen=True)
class Fault:
    """A fault: in which data, how it is made, when, and whether it is known that it may not be noticed."""

    what: str
    kind: str
    harm: Callable[[Path, Rng], None]
    when: str
    file: str = ""
    blind: bool = False


def faults() -> Iterator[Fault]:
    for kind in ("zstd", "shards", "format 2", "packed by xarray"):
        yield Fault("chunk missing", kind, remove, "before")
    for kind in ("zstd", "blosc", "not compressed", "zstd, crc32c", "shards", "packed by xarray"):
        yield Fault("chunk cut short", kind, cut, "before")
    for kind in ("zstd", "shards", "packed by xarray"):
        yield Fault("chunk an empty file", kind, empty, "before")
    for kind in ("zstd", "shards"):
        yield Fault("folder in place of a chunk", kind, folder_instead, "before")
    for kind in CODECS:
        blind = kind in ("zstd", "blosc", "not compressed", "shards", "format 2")
        yield Fault("byte flipped in a chunk", kind, flip, "before", blind=blind)
    yield Fault("byte flipped", ".bed", flip, "before", ".bed", blind=True)
    yield Fault("cut short", ".bed", cut, "before", ".bed")
    yield Fault("too long", ".bed", lengthen, "before", ".bed")
    yield Fault("cut short", ".npy", cut, "before", ".npy")
    for kind in ("zstd", "shards", "packed by xarray"):
        yield Fault("chunk replaced by another", kind, other, "during")
    yield Fault("chunk removed", "zstd", remove, "during")
    yield Fault("chunk replaced, its time kept", "zstd", keeping_time(other), "during", blind=True)
    for harm, what in ((cut, "cut short"), (lengthen, "appended to"), (values, "values changed")):
        yield Fault(what, ".bed", harm, "during", ".bed")
        yield Fault(what, ".npy", harm, "during", ".npy")
    yield Fault("values changed, its time kept", ".bed", keeping_time(values), "during", ".bed", blind=True)
    yield Fault("samples changed", ".bed", lengthen, "during", ".fam")
    yield Fault("variants changed", ".bed", lengthen, "during", ".bim")
    for harm, what in ((remove, "chunk missing"), (flip, "byte flipped in a chunk"), (cut, "chunk cut short")):
        yield Fault(what, "result", harm, "result")
    yield Fault("metadata cut short", "result", cut, "result", "zarr.json")
    yield Fault("metadata missing", "result", remove, "result", "zarr.json")
    for harm, what in ((flip, "byte flipped"), (cut, "cut short"), (empty, "emptied"), (remove, "missing")):
        yield Fault(f"checkpoint: {what}", "zstd", harm, "resumed", "checkpoint")
    for harm, what in ((flip, "byte flipped"), (remove, "missing")):
        yield Fault(f"scores of the attempt before: {what}", "zstd", harm, "resumed", "store")


# ---------------------------------------------------------------- one run with a fault


def chosen(fault: Fault, path: Path, rng: Rng) -> Path:
    files = (
        [path.with_suffix(fault.file)]
        if fault.file
        else chunks_of(path / "x" if fault.kind.startswith("pack") else path)
    )
    return files[int(rng.integers(len(files)))]


def spoilt(fault: Fault, folder: Path, rng: Rng) -> dict[str, bytes]:
    """Run with a fault; returns what was found."""
    path, store = make(fault.kind if fault.when != "result" else "zstd", folder), folder / "out.zarr"
    if fault.when == "before":
        fault.harm(chosen(fault, path, rng), rng)
        return fit(path, store)
    if fault.when == "during":
        return during(fault, path, store, rng)
    if fault.when == "resumed":
        return resumed(fault, path, store, folder / "checkpoint", rng)
    fit(path, store)
    files = sorted(store.rglob(fault.file)) if fault.file else chunks_of(store)
    fault.harm(files[int(rng.integers(len(files)))], rng)
    used(store, path, folder, int(rng.integers(3)))
    load(store)
    return found_in(store)


def during(fault: Fault, path: Path, store: Path, rng: Rng) -> dict[str, bytes]:
    """Make the fault at the end of a partition of the second sweep, or within it."""
    wanted, left = chosen(fault, path, rng), int(rng.integers(1, 8))

    def strike(step: Any) -> None:
        nonlocal left
        left -= step.sweep >= 2
        if left == 0:
            fault.harm(wanted, rng)

    return fit(path, store, strike)


def resumed(fault: Fault, path: Path, store: Path, checkpoint: Path, rng: Rng) -> dict[str, bytes]:
    """End a run in its middle, damage what it has left, and go on with it."""
    # Scores are written in the last sweep.
    left = int(rng.integers(2, 60)) if fault.file == "checkpoint" else 10**9

    def stop(step: Any) -> None:
        nonlocal left
        left -= 1
        late = fault.file == "store" and step.label == "scores" and step.done >= 4
        if left == 0 or late:
            raise Interrupted

    try:
        with Checkpoint(checkpoint, 0.0).active():
            fit(path, store, stop)
    except Interrupted:
        pass
    files = sorted(checkpoint.glob("*.npz")) if fault.file == "checkpoint" else chunks_of(store)
    if files:
        fault.harm(files[int(rng.integers(len(files)))], rng)
    with Checkpoint(checkpoint, 0.0).active():
        found = fit(path, store)
    check_whole(store, "remove it")
    return found


def used(store: Path, path: Path, folder: Path, how: int) -> None:
    """Use a result as commands do."""
    if how == 0:
        export(store, folder / "text", form="tsv")
    elif how == 1:
        write_report(load(store), folder / "page.html")
    else:
        project(open_source(str(path)), PCAFit.from_dataset(load(store)), "error")


def outcome(fault: Fault, seed: int, sound: dict[str, dict[str, bytes]]) -> str:
    """Tell how a run with a fault ended."""
    with tempfile.TemporaryDirectory() as name:
        try:
            found = spoilt(fault, Path(name), np.random.default_rng(seed))
        except InputError as error:
            return "refused" if "\n" not in str(error) else "other error"
        except Exception as error:  # whatever else a fault brings about is what is looked for here
            print(f"{fault.what}, {fault.kind}, seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
            return "other error"
    return "same bits" if found == sound[fault.kind] else "unnoticed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Few times.")
    parser.add_argument("--times", type=int, default=12, help="Of each fault.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="Faults whose name has these words.")
    asked = parser.parse_args()
    times = 2 if asked.quick else asked.times
    todo = [fault for fault in faults() if asked.only in f"{fault.what}, {fault.kind}, {fault.when}"]
    with ExitStack() as stack:
        # Small partitions, and data that are read in each sweep.
        for where, value in (
            ("streampca.sources.base.SLAB_BYTES", 1 << 12), ("streampca.sources.base.PARTITION_BYTES", 1 << 14),
        ):  # fmt: skip
            stack.enter_context(patch(where, value))
        sound = {}
        for kind in {fault.kind for fault in todo}:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            sound[kind] = fit(make(kind if kind != "result" else "zstd", folder), folder / "out.zarr")
        wrong, total = 0, Counter[str]()
        names = ("refused", "same bits", "unnoticed", "other error")
        print("| fault | data | when | times | refused | same bits | unnoticed | other error | |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for fault in todo:
            counts = Counter(outcome(fault, asked.seed + i, sound) for i in range(times))
            total += counts
            bad = counts["unnoticed"] * (not fault.blind) + counts["other error"]
            wrong += bad
            remark = "**wrong**" if bad else "known, see README" if fault.blind else ""
            row = " | ".join(str(counts[name]) for name in names)
            print(f"| {fault.what} | {fault.kind} | {fault.when} | {times} | {row} | {remark} |", flush=True)
        row = " | ".join(str(total[name]) for name in names)
        print(f"| all | | | {total.total()} | {row} | |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
