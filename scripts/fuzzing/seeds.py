"""Small valid inputs for every reader, and some made to do harm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

FAM = b"".join(b"f%d i%d 0 0 1 -9\n" % (i, i) for i in range(8))
BIM = b"".join(b"%d\trs%d\t0\t%d\tA\tG\n" % (1 + j % 3, j, 100 * j + 1) for j in range(12))
PVAR = (
    b"##fileformat=VCFv4.2\n##contig=<ID=1>\n#CHROM\tPOS\tID\tREF\tALT\tINFO\n"
    + b"".join(b"%d\t%d\trs%d\tA\t%s\tPR\n" % (1 + j % 2, j + 1, j, b"G,T" if j == 3 else b"G") for j in range(12))
)  # fmt: skip
PSAM = b"#FID\tIID\tSEX\n" + b"".join(b"f%d\ti%d\tNA\n" % (i, i) for i in range(8))
TABLES = (
    b"FID\tIID\tpopulation\theight\n" + b"".join(b"f%d\ti%d\tp%d\t1.%d\n" % (i, i, i % 3, i) for i in range(8)),
    b"id,group,age\n" + b"".join(b'i%d,"a, b",%d\n' % (i, 20 + i) for i in range(8)),
    b"".join(b"i%d  x%d\n" % (i, i) for i in range(8)),
)
CONFIGS = (
    b"data: {path: x.npy}\nmodel: {kind: pca, n_components: 3, scale: unit, tol: 1e-3}\noutput: {path: o.zarr}\n",
    b"data:\n  path: study.bed\nfilter:\n  maf: 0.01\n  keep: ids.txt\nmodel:\n  kind: ppca\n"
    b"  n_components: 2\noutput:\n"
    b"  path: out.zarr\n  overwrite: true\nengine:\n  kind: slurm\n  memory_limit: 2GB\n  walltime: '01:00:00'\n",
    b"a: &a [x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b]\n"
    b"d: &d [*c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e]\n"
    b"g: &g [*f, *f, *f, *f, *f, *f, *f]\nh: &h [*g, *g, *g, *g, *g, *g, *g]\ndata: {path: *h}\n",
    b"data: !!python/object/apply:os.mkdir ['run']\nmodel: !!binary aGVsbG8=\noutput: {path: &p out, <<: *p}\n",
)


class Harm:
    """Leaves a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("unpickled",)


def _numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _calls() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 3, (8, 12))


def plink(_: Path) -> list[dict[str, bytes]]:
    codes = np.array([3, 2, 0])[_calls()]
    packed = sum(codes[i::4].astype(np.uint8) << 2 * i for i in range(4))
    return [{"x.bed": b"\x6c\x1b\x01" + packed.T.astype(np.uint8).tobytes(), "x.bim": BIM, "x.fam": FAM}]


def pgen(folder: Path) -> list[dict[str, bytes]]:
    import pgenlib

    path = folder / "x.pgen"
    with pgenlib.PgenWriter(str(path).encode(), 8, variant_ct=12, nonref_flags=False) as writer:
        for row in _calls().T.astype(np.int8):
            writer.append_biallelic(np.ascontiguousarray(row))
    return [{"x.pgen": path.read_bytes(), "x.pvar": PVAR.replace(b"G,T", b"G"), "x.psam": PSAM}]


def npy(_: Path) -> list[dict[str, bytes]]:
    def saved(array: Any, **options: Any) -> dict[str, bytes]:
        buffer = io.BytesIO()
        np.save(buffer, array, **options)
        return {"x.npy": buffer.getvalue()}

    claims = saved(_numbers(8, 5))["x.npy"].replace(b"(8, 5), }           ", b"(1000000000000000, 5), }"[:24])
    return [
        saved(_numbers(8, 5)),
        saved(np.asfortranarray(_numbers(6, 4)).astype(">f8")),
        saved(np.arange(60, dtype=np.int16).reshape(5, 4, 3)),
        saved(np.array([[Harm(), 1], [2, 3]], object), allow_pickle=True),
        {"x.npy": claims},
    ]


def plain_stores(folder: Path) -> list[dict[str, bytes]]:
    """Return arrays of both formats, alone and in groups with labels, in all ways that chunks are packed."""
    x, made = _numbers(8, 5), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, form in enumerate((2, 3)):
            store = folder / f"array{number}.zarr"
            zarr.create_array(store, data=x, chunks=(4, 5), zarr_format=form)
            made.append(_files(store, "x.zarr"))
            store = folder / f"group{number}.zarr"
            import xarray

            labels = {
                "sample": [f"s{i}" for i in range(8)],
                "year": ("sample", np.arange(8)),
                "feature": np.arange(5.0),
            }
            array = xarray.DataArray(x, dims=("sample", "feature"), coords=labels, name="values")
            array.to_dataset().to_zarr(store, zarr_format=form, consolidated=bool(number))
            made.append(_files(store, "x.zarr"))
        store = folder / "shards.zarr"
        zarr.create_array(store, data=x, chunks=(2, 5), shards=(4, 5), zarr_format=3)
        made.append(_files(store, "x.zarr"))
        store = folder / "packed.zarr"
        packed = xarray.DataArray(
            x.reshape(8, 5, 1), dims=("time", "lat", "lon"), coords={"time": np.arange(8)}, name="t"
        )
        coding = {"t": {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -1}}
        packed.to_dataset().to_zarr(store, encoding=coding, zarr_format=2)
        made.append(_files(store, "x.zarr"))
    harm = pickle.dumps(Harm())
    head = {"zarr_format": 2, "shape": [8, 5], "chunks": [8, 5], "compressor": None, "fill_value": 0, "order": "C"}
    objects = head | {"dtype": "|O", "filters": [{"id": "pickle"}]}
    floats = head | {"dtype": "<f4", "filters": [{"id": "pickle"}]}
    for metadata in (objects, floats):
        made.append({"x.zarr/.zarray": json.dumps(metadata).encode(), "x.zarr/0.0": harm})
    return made


def vcf_stores(folder: Path) -> list[dict[str, bytes]]:
    made = []
    calls = np.stack([_calls().T > 0, _calls().T > 1], axis=2).astype(np.int8)
    for form in (2, 3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = zarr.open_group(folder / f"v{form}.vcz", mode="w", zarr_format=form)
            group.create_array("call_genotype", data=calls, chunks=(5, 3, 2))
            text = np.dtypes.StringDType()
            group.create_array("sample_id", data=np.array([f"i{i}" for i in range(8)], text))
            group.create_array("contig_id", data=np.array(["1", "2"], text))
            group.create_array("variant_contig", data=np.arange(12, dtype=np.int32) % 2)
            group.create_array("variant_position", data=np.arange(12, dtype=np.int32))
            group.create_array("variant_id", data=np.array([f"rs{i}" for i in range(12)], text))
            group.create_array("variant_allele", data=np.array([["A", "G"]] * 12, text))
        made.append(_files(folder / f"v{form}.vcz", "x.zarr"))
    return made


def images(_: Path) -> list[dict[str, bytes]]:
    from PIL import Image

    made = []
    grey = (np.arange(12 * 10).reshape(12, 10) * 2).astype(np.uint8)
    modes = {"L": grey, "RGB": np.stack([grey] * 3, 2), "RGBA": np.stack([grey] * 4, 2)}
    kinds = {"png": "L RGB RGBA", "jpg": "L RGB", "gif": "L", "bmp": "RGB", "tif": "L RGB", "ppm": "RGB", "webp": "RGB",
             "ico": "RGB", "tga": "RGB", "pcx": "L", "sgi": "RGB", "jp2": "RGB", "dds": "RGB"}  # fmt: skip
    for suffix, listed in kinds.items():
        for mode in listed.split():
            buffer = io.BytesIO()
            image = Image.fromarray(modes[mode])
            try:
                image.save(buffer, {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}.get(suffix, suffix.upper()))
            except (KeyError, OSError):
                continue
            made.append({f"x.{suffix}": buffer.getvalue()})
    return [*made, {"x.png": _bomb(60_000)}, {"x.png": _bomb(12_000)}]


def _bomb(side: int) -> bytes:
    """Return a PNG that claims a large square and holds little."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")


def results(folder: Path) -> list[dict[str, bytes]]:
    """Return results of every kind, with the data that they are of."""
    from streampca.cli import cli

    data, bed = folder / "data.npy", folder / "data.bed"
    np.save(data, _numbers(16, 5))
    for name, content in plink(folder)[0].items():
        bed.with_suffix(Path(name).suffix).write_bytes(content)
    labels = folder / "labels.tsv"
    labels.write_text("id\tgroup\ty\n" + "".join(f"{i}\tg{i % 2}\t{i}.5\n" for i in range(16)))
    few = ["-k", "2", "--quiet"]
    commands = {
        "pca": ["pca", str(data), *few],
        "genotypes": ["pca", str(bed), *few],
        "ppca": ["ppca", str(data), *few],
        "kpca": ["kpca", str(data), *few, "--n-landmarks", "6"],
        "pcr": ["pcr", str(data), "--target", f"{labels}:y", *few],
    }
    made = []
    for name, command in commands.items():
        store = folder / f"{name}.zarr"
        with contextlib.redirect_stdout(io.StringIO()):
            cli([*command, "--out", str(store)], standalone_mode=False)
        beside = [bed, bed.with_suffix(".bim"), bed.with_suffix(".fam")] if name == "genotypes" else [data]
        others = {path.name: path.read_bytes() for path in (*beside, labels)}
        made.append(_files(store, "result.zarr") | others)
    return made


def checkpoints(folder: Path) -> list[dict[str, bytes]]:
    from streampca.sweep.checkpoint import Checkpoint
    from streampca.sweep.matrix import Defects
    from streampca.sweep.merge_tree import Partial
    from streampca.sweep.statistics import Moments

    checkpoint = Checkpoint(folder / "checkpoint")
    a = np.arange(3.0)
    moments = Moments(a, a, a, a)
    partial = Partial({"x": [a, a], "y": (1, 2.5, None, "text", np.float32(3))}, (moments,), Defects(), 7)
    signature = {"statistic": "sum", "x": a}
    checkpoint.sweep(signature).save({(0, 2): {"partial": partial, "seconds": 1.5}})
    checkpoint.keep("start", {"a": 1}, {"value": a})
    (sweep,) = checkpoint.folder.glob("0*.npz")
    harm = io.BytesIO()
    tree = np.frombuffer(b'{"signature": {"array": 0}}', np.uint8)
    np.savez(harm, tree=tree, a0=np.array([Harm()], object), allow_pickle=True)
    return [
        {sweep.name: sweep.read_bytes()},
        {"start.npz": (checkpoint.folder / "start.npz").read_bytes()},
        {sweep.name: harm.getvalue()},
    ]


def workplaces(_: Path) -> list[dict[str, bytes]]:
    config = {"data": {"path": "x.npy"}, "output": {"path": "out.zarr"}, "model": {"kind": "pca"}}
    run = {"id": "a", "config": config, "fingerprint": "b", "streampca": "0.6.0", "begun": "c", "memory": 10**9,
           "attempts": 1, "exporting": False, "placing": False}  # fmt: skip
    status = {"state": "running", "output": "out.zarr", "started": "d", "begun": "c", "attempts": 1, "pid": 3,
              "host": "h", "expected_sweeps": 5, "limit_bytes": 10**9, "sweep": 2, "label": "l", "done": 3,
              "partitions": 4, "sweep_seconds": 1.5, "eta_seconds": 3.5, "note": "n", "memory_bytes": 10**8,
              "updated": "u", "reason": "r", "workers": "w"}  # fmt: skip
    place = "out.zarr.unfinished"
    return [{f"{place}/run.json": json.dumps(run).encode(), f"{place}/status.json": json.dumps(status).encode()}]


def _files(store: Path, name: str) -> dict[str, bytes]:
    return dict(_walk(store, name))


def _walk(store: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(store.rglob("*")):
        if path.is_file():
            yield f"{name}/{path.relative_to(store).as_posix()}", path.read_bytes()
