"""Small valid files of formats that libraries in C read: NetCDF, VCF, shards of Zarr."""

from __future__ import annotations

import gzip
import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

from streampca.run.vcf import LAST_BLOCK

VCF_HEAD = (
    '##fileformat=VCFv4.3\n##FILTER=<ID=PASS,Description="p">\n##contig=<ID=1,length=5000>\n##contig=<ID=2>\n'
    '##INFO=<ID=AC,Number=A,Type=Integer,Description="a">\n##FORMAT=<ID=GT,Number=1,Type=String,Description="g">\n'
    '##FORMAT=<ID=DS,Number=1,Type=Float,Description="d">\n'
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ta\tb\tc\n"
)
CALLS = ("0/0", "0/1", "1|1", "./.", "0", "0/.")


def _values() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)


def netcdf(folder: Path) -> list[dict[str, bytes]]:
    """Return files of all layouts, indices of chunks and filters; some refer to other files."""
    x = xarray.DataArray(
        _values(), dims=("time", "site"), name="x",
        coords={"time": np.arange(8.0), "site": [f"s{i}" for i in range(5)], "height": ("site", np.arange(5))},
    )  # fmt: skip
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -9}
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "deflate": {"chunksizes": (3, 2), "zlib": True, "shuffle": True, "fletcher32": True},
        "packed": packed | {"chunksizes": (4, 5), "zlib": True},
        "unsigned": {"dtype": "int8", "_FillValue": -1, "_Unsigned": "true"},
    }
    made = []
    for name, coding in cases.items():
        path = folder / f"{name}.nc"
        values = abs(x.round()) if name == "unsigned" else x
        values.to_netcdf(path, engine="h5netcdf", encoding={"x": coding})
        made.append(path.read_bytes())
    for form in ("NETCDF3_CLASSIC", "NETCDF3_64BIT"):
        path = folder / f"{form}.nc"
        x.to_netcdf(path, engine="scipy", format=form, unlimited_dims=["time"] if form.endswith("C") else [])
        made.append(path.read_bytes())
    x.to_netcdf(folder / "packed3.nc", engine="scipy", encoding={"x": packed})
    made.append((folder / "packed3.nc").read_bytes())
    plain: dict[str, dict[str, Any]] = {
        "old": {}, "lzf": {"chunks": (3, 2), "compression": "lzf"}, "scale": {"chunks": (3, 2), "scaleoffset": 3},
        "fixed": {"chunks": (3, 2), "compression": "gzip"}, "growing": {"chunks": (3, 2), "maxshape": (None, 5)},
        "both": {"chunks": (3, 2), "maxshape": (None, None), "fletcher32": True}, "compact": {},
    }  # fmt: skip
    for name, options in plain.items():
        buffer = io.BytesIO()
        with h5py.File(buffer, "w", libver="earliest" if name in ("old", "lzf") else "latest") as file:
            file.create_dataset("x", data=_values(), **options)
            file.create_group("inner")["y"] = h5py.SoftLink("/x")
            file.attrs["title"] = "t"
        made.append(buffer.getvalue())
    made.append(_outside())
    return [{"x.nc": content} for content in made]


def _outside() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "/x")
        file.create_dataset("x", shape=(8, 5), dtype="f4", external=[("/etc/passwd", 0, 160)])
        layout = h5py.VirtualLayout((8, 5), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (8, 5))
        file.create_virtual_dataset("virtual", layout)
    return buffer.getvalue()


def _records(contig: str, count: int) -> str:
    lines = []
    for i in range(count):
        name, alt, passed = f"rs{i}" if i % 3 else ".", "G,T" if i == 4 else "G", "PASS" if i % 2 else "."
        calls = "\t".join(f"{CALLS[(i + j) % 6]}:{j}.5" for j in range(3))
        lines.append(f"{contig}\t{100 * i + 1}\t{name}\tA\t{alt}\t.\t{passed}\tAC={i}\tGT:DS\t{calls}\n")
    return "".join(lines)


def bgzipped(data: bytes, length: int = 600) -> bytes:
    """Compress as bgzip does: blocks of gzip that know their own length, and an empty one."""
    blocks = []
    for start in range(0, len(data), length):
        part = data[start : start + length]
        squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = squeeze.compress(part) + squeeze.flush()
        head = bytes.fromhex("1f8b08040000000000ff060042430200") + struct.pack("<H", len(packed) + 25)
        blocks.append(head + packed + struct.pack("<II", zlib.crc32(part), len(part)))
    return b"".join(blocks) + LAST_BLOCK


def _tabix(text: str, packed: bytes, names: tuple[str, ...]) -> bytes:
    """Return the index of a file of one block, records of all contigs within the first 16 kilobases."""
    body = b"TBI\1" + struct.pack("<8i", len(names), 2, 1, 2, 0, ord("#"), 0, sum(len(name) + 1 for name in names))
    body += b"".join(name.encode() + b"\0" for name in names)
    end = (len(packed) - len(LAST_BLOCK)) << 16
    for name in names:
        lines = text.split("\n")
        first = next(i for i, line in enumerate(lines) if line.startswith(f"{name}\t"))
        offset = len("\n".join(lines[:first])) + 1
        count = sum(line.startswith(f"{name}\t") for line in lines)
        last = offset + sum(len(line) + 1 for line in lines if line.startswith(f"{name}\t"))
        after = end if last >= len(text) else last
        body += struct.pack("<i", 2) + struct.pack("<IiQQ", 4681, 1, offset, after)
        body += struct.pack("<IiQQQQ", 37450, 2, offset, after, count, 0)
        body += struct.pack("<iQ", 1, offset)
    return bgzipped(body + struct.pack("<Q", 0), 60_000)


def vcf(folder: Path) -> list[dict[str, bytes]]:
    """Return text, gzip, bgzip with an index of two contigs, and BCF."""
    from cyvcf2 import VCF, Writer

    one, both = VCF_HEAD + _records("1", 9), VCF_HEAD + _records("1", 6) + _records("2", 5)
    path = folder / "x.vcf"
    path.write_text(one)
    reader = VCF(str(path))
    writer = Writer(str(folder / "x.bcf"), reader, mode="wb")
    for record in reader:
        writer.write_record(record)
    writer.close()
    packed = bgzipped(both.encode(), 60_000)
    return [
        {"x.vcf": one.encode()},
        {"x.vcf.gz": gzip.compress(one.encode())},
        {"x.vcf.gz": bgzipped(one.encode())},
        {"x.vcf.gz": packed, "x.vcf.gz.tbi": _tabix(both, packed, ("1", "2"))},
        {"x.bcf": (folder / "x.bcf").read_bytes()},
    ]


def shards(folder: Path) -> list[dict[str, bytes]]:
    """Return arrays of shards: with and without checksums, compressed, with the index first."""
    little, made = BytesCodec(endian="little"), []
    cases: list[dict[str, Any]] = [
        {"codecs": (little,)},
        {"codecs": (little, ZstdCodec())},
        {"codecs": (little,), "index_codecs": (little,)},
        {"codecs": (little, ZstdCodec(), Crc32cCodec()), "index_location": "start"},
        {"codecs": (little, ZstdCodec()), "index_codecs": (little,), "index_location": "start"},
    ]
    for number, options in enumerate(cases):
        store = folder / f"{number}.zarr"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array: Any = zarr.create(
                store=store, shape=(8, 5), chunks=(4, 6), dtype="f4", zarr_format=3,
                config={"write_empty_chunks": True}, codecs=[ShardingCodec(chunk_shape=(2, 3), **options)],
            )  # fmt: skip
            array[...] = _values()
        files = {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}
        made.append({f"x.zarr/{name}": content for name, content in files.items()})
    return made
