"""Independent readers of the same bytes: other libraries, or a few lines of our own."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs
import numpy as np

Array = np.ndarray[Any, Any]
# Larger arrays are read by one task only, and not compared.
MOST_COMPARED = 1 << 22
csv.field_size_limit(1 << 30)
CALL = re.compile(r"(?:\.|\d+)(?:[/|](?:\.|\d+))?")


class DiffersError(Exception):
    """What was read is not what an independent reader reads."""


def check_same(what: str, found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Raise unless two arrays have the same shape and values; NaN is equal to NaN."""
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape:
        raise DiffersError(f"{what}: shape {a.shape}, expected {b.shape}")
    if a.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            same = np.isclose(a.astype(float), b.astype(float), rtol=tolerance, atol=0, equal_nan=True).all()
    else:
        same = (a.astype(str) == b.astype(str)).all()
    if not same:
        raise DiffersError(f"{what}: other values")


def check_source(source: Any, expected: Array | None, tolerance: float = 0.0) -> None:
    """Compare all values of a source."""
    if expected is None or source.n_bytes > MOST_COMPARED:
        return
    found, _ = source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))
    check_same("values", found, expected.reshape(source.shape), tolerance)


def decoded(raw: Array, attributes: Mapping[str, Any]) -> Array:
    """Return values as the CF conventions mean them: missing values, scale, offset, signedness."""
    plain = {name: _plain(value) for name, value in attributes.items()}
    if plain.get("_Unsigned") in ("true", "false") and raw.dtype.kind in "iu":
        raw = raw.view(f"{raw.dtype.byteorder}{'u' if plain['_Unsigned'] == 'true' else 'i'}{raw.dtype.itemsize}")
    fills = np.array([v for name in ("_FillValue", "missing_value") if name in plain for v in np.ravel(plain[name])])
    numbers = [name for name in ("scale_factor", "add_offset") if name in plain]
    if not numbers and not fills.size:
        return raw
    values = raw.astype(np.float64)
    # A fill value is of the stored type, also after its signedness changed.
    with np.errstate(all="ignore"):
        same_type = fills.astype(np.float64).astype(np.int64).astype(raw.dtype) if raw.dtype.kind in "iu" else fills
    values[np.isin(raw, same_type)] = np.nan
    values *= float(plain.get("scale_factor", 1))
    values += float(plain.get("add_offset", 0))
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, np.ndarray)):
        # Lists of JSON may be ragged.
        value = value[0] if len(value) == 1 else value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def npy(path: Path) -> Array:
    return np.load(path, allow_pickle=False)


def netcdf(path: Path, name: str) -> Array:
    if path.read_bytes()[:3] == b"CDF":
        from scipy.io import netcdf_file

        with netcdf_file(path, mmap=False) as file:
            variable = file.variables[name]
            return decoded(np.array(variable.data), dict(variable._attributes))
    import h5py

    with h5py.File(path) as file:
        return decoded(np.asarray(file[name][()]), dict(file[name].attrs))


def check_zarr(source: Any, root: Path) -> None:
    """Compare with what zarr-python reads by the metadata of the array, or those of the group if these differ."""
    if source.n_bytes > MOST_COMPARED:
        return
    try:
        check_source(source, zarr_values(root, source.name, consolidated=False), 1e-6)
    except Exception:
        check_source(source, zarr_values(root, source.name, consolidated=True), 1e-6)


def zarr_values(root: Path, place: str, consolidated: bool) -> Array:
    """Read an array of a store by zarr-python, and decode it as xarray's conventions say."""
    import zarr

    array: Any
    if consolidated and place != str(root):
        array = zarr.open_group(zarr.storage.LocalStore(root), mode="r")[place.removeprefix(f"{root}/")]
    else:
        array = zarr.open_array(zarr.storage.LocalStore(place), mode="r")
    attributes = dict(array.attrs)
    fill = attributes.get("_FillValue")
    if isinstance(fill, str):
        attributes["_FillValue"] = struct.unpack("<d", base64.b64decode(fill))[0]
    if array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes and array.fill_value is not None:
        attributes["_FillValue"] = array.fill_value
    return decoded(np.asarray(array[...]), attributes)


def allele_counts(calls: Array) -> Array:
    """Return copies of ALT, samples x variants, of alleles (variants x samples x ploidy); NaN where one is missing."""
    calls = calls.astype(np.int64)
    ploidy = (calls != -2).sum(axis=2)
    counts = np.where((calls == -1).any(axis=2) | (ploidy == 0), np.nan, (calls > 0).sum(axis=2))
    return np.where(ploidy == 1, 2 * counts, counts).T


def vcf_zarr(place: str) -> Array | None:
    import zarr

    group = zarr.open_group(zarr.storage.LocalStore(place), mode="r")
    calls = np.asarray(group["call_genotype"][...])
    # Below -2 there is nothing in the specification.
    return allele_counts(calls) if calls.min(initial=0) >= -2 else None


def shards(place: Path) -> Array:
    """Read an array of shards without zarr: the index of each, then its chunks."""
    metadata = json.loads((place / "zarr.json").read_text())
    (sharding,) = metadata["codecs"]
    config = sharding["configuration"]
    outer, inner = metadata["chunk_grid"]["configuration"]["chunk_shape"], config["chunk_shape"]
    shape, dtype = metadata["shape"], np.dtype(metadata["data_type"])
    counts = [o // i for o, i in zip(outer, inner, strict=True)]
    checked = any(codec["name"] == "crc32c" for codec in config["index_codecs"])
    length = 16 * int(np.prod(counts)) + 4 * checked
    out = np.full(shape, metadata["fill_value"], dtype)
    for index in np.ndindex(*(-(-s // o) for s, o in zip(shape, outer, strict=True))):
        packed = place.joinpath("c", *map(str, index)).read_bytes()
        table = packed[:length] if config.get("index_location") == "start" else packed[-length:]
        table = _unchecked(table) if checked else table
        places = np.frombuffer(table, "<u8").reshape(*counts, 2)
        for chunk in np.ndindex(*counts):
            offset, size = map(int, places[chunk])
            if offset == size == 2**64 - 1:
                continue
            content = _decompressed(packed[offset : offset + size], config["codecs"])
            block = np.frombuffer(content, dtype.newbyteorder("<")).reshape(inner)
            corner = [i * o + c * n for i, o, c, n in zip(index, outer, chunk, inner, strict=True)]
            where = tuple(slice(a, min(a + n, s)) for a, n, s in zip(corner, inner, shape, strict=True))
            out[where] = block[tuple(slice(0, max(0, w.stop - w.start)) for w in where)]
    return out


def _unchecked(content: bytes) -> bytes:
    if google_crc32c.value(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise ValueError("wrong checksum")
    return content[:-4]


def _decompressed(content: bytes, codecs: list[dict[str, Any]]) -> bytes:
    for codec in reversed(codecs):
        name = codec["name"]
        if name == "crc32c":
            content = _unchecked(content)
        elif name == "zstd":
            content = bytes(numcodecs.Zstd().decode(content))
        elif name == "gzip":
            content = gzip.decompress(content)
    return content


def bed(path: Path, source: Any) -> Array:
    from bed_reader import open_bed

    # Without the numbers, it counts ends of lines, which the last line of a table need not have.
    n, m = source.shape
    with open_bed(path, iid_count=n, sid_count=m, count_A1=True, num_threads=1) as file:
        return file.read(dtype="float32", num_threads=1)


def pgen(path: Path, source: Any) -> Array | None:
    import pgenlib

    if any("," in str(alleles) for alleles in source.label("allele_1")):
        return None
    n, m = source.shape
    with pgenlib.PgenReader(str(path).encode(), raw_sample_ct=n, variant_ct=m) as reader:
        calls = np.empty((m, n), np.int32)
        reader.read_range(0, m, calls)
    return np.where(calls == -9, np.nan, calls).T


def columns(path: Path, names: Mapping[str, str | int]) -> dict[str, list[str]]:
    """Read columns of a table of blanks by csv: by their place, or by their name in the header."""
    text = re.sub(r"[^\S\n]+", "\t", path.read_text())
    rows = [
        [cell for cell in row if cell] for row in csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    ]
    rows = [row for row in rows if row]
    if any(isinstance(place, str) for place in names.values()):
        header, *rows = (row for row in rows if not row[0].startswith("##"))
        header = [cell.lstrip("#") for cell in header]
        names = {name: header.index(str(place)) for name, place in names.items() if place in header}
    return {name: [row[int(place)] for row in rows] for name, place in names.items()}


def check_columns(path: Path, found: Mapping[str, Any], names: Mapping[str, str | int]) -> None:
    """Compare labels with the columns of a table of blanks."""
    for name, expected in columns(path, names).items():
        values = found[name]
        if values.dtype.kind == "i":
            check_same(name, values, [int(cell) for cell in expected])
        elif values.tolist() != expected:
            raise DiffersError(f"column {name}: other values")


def check_table(path: Path, table: Any, names: list[str]) -> None:
    """Check that the cells of each sample are in a row of the table that has its id."""
    with path.open(encoding="utf-8-sig") as file:
        lines = list(file)
    first = next(line for line in lines if line.strip())
    mark = next((mark for mark in "\t," if mark in first), None)
    rows = csv.reader(lines, delimiter=mark) if mark else (line.split() for line in lines)
    by_id: dict[str, list[set[str]]] = {}
    for row in rows:
        cells = [cell.strip() for cell in row]
        for cell in set(cells):
            by_id.setdefault(cell, []).append(set(cells))
    for i, name in enumerate(names):
        cells = {str(values[i]) for values in table.cells.values()} - {""}
        if table.found[i] and not any(cells <= row for row in by_id.get(name, ())):
            raise DiffersError("cells: not those of any row")


def check_images(folder: Path, store: Path, size: tuple[int, int]) -> None:
    """Compare images of the wanted size, and of modes that are not blended, with what Pillow decodes."""
    import zarr
    from PIL import Image, ImageOps

    group = zarr.open_group(store, mode="r")
    images, names = np.asarray(group["image"][...]), [str(name) for name in group["sample"][...]]
    for name, found in zip(names, images, strict=True):
        with Image.open(folder / name) as image:
            if image.mode not in ("1", "L", "RGB") or "transparency" in image.info or image.getexif():
                continue
            image = ImageOps.exif_transpose(image)
            if image.size == size[::-1]:
                check_same("pixels", found, np.asarray(image.convert("L" if found.ndim == 2 else "RGB")))


Record = tuple[str, int, str, tuple[str, ...], tuple[float, ...]]


def _count(call: str) -> float:
    alleles = re.split(r"[/|]", call)
    if "." in alleles:
        return float("nan")
    return float(sum(int(allele) > 0 for allele in alleles) * (2 if len(alleles) == 1 else 1))


def vcf(path: Path) -> list[Record] | None:
    """Return the records of a VCF file; None if it is not strictly one."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if content[:3] == b"BCF":
        return _bcf(content)
    lines = content.decode().split("\n")
    header = next(i for i, line in enumerate(lines) if line.startswith("#CHROM\t"))
    width = len(lines[header].split("\t"))
    records = []
    for line in lines[header + 1 :]:
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != width or cells[8].split(":")[0] != "GT" or not cells[1].isdecimal():
            return None
        calls = [cell.split(":")[0] for cell in cells[9:]]
        if not all(CALL.fullmatch(call) for call in calls):
            return None
        alleles = (cells[3], *(cells[4].split(",") if cells[4] != "." else ()))
        if not all((*cells, *alleles)) or max(map(int, re.findall(r"\d+", " ".join(calls))), default=0) >= len(alleles):
            return None
        records.append((cells[0], int(cells[1]), cells[2], alleles, tuple(map(_count, calls))))
    return records


def _bcf(content: bytes) -> list[Record] | None:
    """Return the records of a BCF file, by the specification (VCF 4.3, section 6)."""
    (length,) = struct.unpack_from("<I", content, 5)
    header = content[9 : 9 + length].rstrip(b"\0").decode().split("\n")
    contigs = [line.partition("ID=")[2].partition(",")[0].rstrip(">") for line in header if line.startswith("##contig")]
    keys = ["PASS", *(_key(line) for line in header if line.startswith(("##INFO", "##FILTER", "##FORMAT")))]
    keys = list(dict.fromkeys(key for key in keys if key))
    at, records = 9 + length, []
    while at < len(content):
        shared, single = struct.unpack_from("<II", content, at)
        chrom, pos, _, _, n_info, n_allele, n_sample = struct.unpack_from("<iiifHHI", content, at + 8)
        del n_info
        end = at + 8 + shared
        place = at + 32
        texts = []
        for _ in range(1 + n_allele):
            values, place = _typed(content, place)
            texts.append(values)
        n_sample &= 0xFFFFFF
        (key,), after = _typed(content, end)
        if keys[key] != "GT":
            return None
        calls, _ = _typed(content, after, n_sample)
        rows = np.reshape(calls, (n_sample, -1))
        counts = []
        for row in rows:
            alleles = [int(value) for value in row if value not in (-127, -32767, -2147483647)]
            known = all(value >> 1 for value in alleles) and bool(alleles)
            count = sum((value >> 1) > 1 for value in alleles) * (2 if len(alleles) == 1 else 1)
            counts.append(float(count) if known else float("nan"))
        records.append((contigs[chrom], pos + 1, texts[0] or ".", tuple(texts[1:]), tuple(counts)))
        at = end + single
    return records


def _key(line: str) -> str:
    return line.partition("ID=")[2].partition(",")[0]


def _typed(content: bytes, place: int, times: int = 1) -> tuple[Any, int]:
    """Return a typed value of BCF, and where the next one begins."""
    size, kind = content[place] >> 4, content[place] & 15
    place += 1
    if size == 15:
        (size,), place = _typed(content, place)
    if kind == 7:
        return content[place : place + size].decode(), place + size
    code = {1: "<i1", 2: "<i2", 3: "<i4", 5: "<f4", 0: "<i1"}[kind]
    values = np.frombuffer(content, code, int(size) * times, place)
    return values.tolist(), place + values.nbytes


def check_vcf(path: Path, source: Any) -> None:
    """Compare the records of a converted file, in any order."""
    try:
        expected = vcf(path)
    except (ValueError, LookupError, struct.error, StopIteration):
        expected = None
    if expected is None:
        return
    found, _ = source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))
    labels = [source.label(name).tolist() for name in ("chromosome", "position", "variant_id", "allele_2", "allele_1")]
    records = [
        (chrom, int(position), name, (ref, *(alt.split(",") if alt else ())), tuple(map(float, counts)))
        for chrom, position, name, ref, alt, counts in zip(*labels, found.T, strict=True)
    ]
    if sorted(map(repr, records)) != sorted(map(repr, expected)):
        raise DiffersError("records: other ones")
