"""How a file is damaged: by bytes, by lines and numbers of text, by values of JSON."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]

NUMBERS = (
    b"0", b"-1", b"1", b"2", b"255", b"65536", b"2147483648", b"-9223372036854775808", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"1000000000000", b"1000000000000000", b"1e15", b"1e400", b"NaN",
    b"Infinity", b"-Infinity", b"0.5", b"1_000", b"\xd9\xa3", b"\xc2\xb2", b"9" * 5000,
)  # fmt: skip
PIECES = (
    b"\x00", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\n\n", b" ", b"\t", b",", b";", b"#",
    b"##", b'"', b"'", b":", b"..", b"../../x", b"/etc/passwd", b"\x1b[2J", b"\xe2\x80\xa8", b"\xc2\x85", b"\xc2\xa0",
    b"\x0b", b"\x1c", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"%s", b"{}", b"[]", b"\\", b"NA", b"nan", b".", b"*",
    b"&a", b"!", b"[" * 2000, b"{" * 2000, b"[{" * 1000,
)  # fmt: skip
# What a value of JSON becomes.
VALUES = (
    None, True, False, 0, -1, 1, 2, 3, 7, 255, 2**31, 2**63 - 1, 2**63, 2**64, 10**12, 10**15, 10**30, 10**400, 0.5,
    -0.5, 1e15, 1e308, float("nan"), float("inf"), "", "x", "0", "-1", "NaN", "..", "../../x", "/", "a/b", "\x00",
    "\ud800", "\n", "a" * 5000, [], {}, [[]], [0], [0, 0], [-1, 5], [10**15, 4], [10**15, 10**15], [1, 1, 1, 1],
    [None], ["x", "x"], {"x": 1}, {"name": "x"}, {"id": "pickle"}, {"id": "json2"}, {"id": "zlib", "level": 1},
    {"name": "numcodecs.pickle"}, "|O", "<f8", "<f4", ">f4", "<i8", "|b1", "<c16", "<M8[ns]", "<M8", "|V8", "<U10",
    "|S0", "<U1000000000", "float64", "int8", "object", "string", "complex64", "r8", "r1000000000000",
    [["a", "<f4"], ["b", "|O"]], "array", "group", "default", "v2", "vlen-utf8", "bytes", "zstd", "gzip", "blosc",
    "sharding_indexed", "transpose", "crc32c", "base64",
)  # fmt: skip
DEEP = 3000
# Lines without end are long enough at this.
LARGEST = 8 << 20


def flip(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def remove(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    a, b = _span(data, rng)
    return data[:a] + data[b:]


def double(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    a, b = _span(data, rng)
    times = rng.choice((2, 2, 2, 3, 50, 1000))
    return data[:a] + data[a:b] * (times if (b - a) * times < 1 << 18 else 2) + data[b:]


def splice(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others) if others else data
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def insert(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(PIECES) + data[at + rng.choice((0, 1)) :]


def overwrite(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Put a number of 1 to 8 bytes somewhere, as headers of binary files have them."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice((0, 1, 127, 255, (1 << 8 * size) - 1, 1 << (8 * size - 1), rng.getrandbits(8 * size)))
    at = rng.randrange(max(1, min(len(data), rng.choice((32, 1 << 20)))))
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]


def number(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data))
    if not found:
        return insert(data, rng, ())
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(NUMBERS) + data[match.end() :]


def line(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Remove, repeat, move or join lines, or make one endless."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(6)
    if how == 0:
        del lines[i]
    elif how == 1:
        lines.insert(j, lines[i])
    elif how == 2:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 3:
        lines[i] = lines[i] * min(rng.choice((2, 100, 5000)), LARGEST // max(1, len(lines[i])) + 1)
    elif how == 4:
        lines[i] = lines[i] + b"x" * rng.choice((1, 1000, 200_000))
    else:
        return b" ".join(lines)
    return b"\n".join(lines)


def field(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Replace one field by another, or by nothing."""
    found = list(re.finditer(rb"[^\s,:]+", data))
    if not found:
        return insert(data, rng, ())
    match = rng.choice(found)
    return data[: match.start()] + rng.choice((rng.choice(found)[0], rng.choice(PIECES), b"")) + data[match.end() :]


def noise(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Give bytes that are wholly random, now and then after a true beginning."""
    head = data[: rng.choice((0, 0, 3, 8, 64))]
    return head + rng.randbytes(rng.choice((0, 1, 7, 64, 1000)))


def value(data: bytes, rng: random.Random, _: Sequence[bytes]) -> bytes:
    """Change one value of JSON: another, none, a copy of another, or one nested deep."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return flip(data, rng, ())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return rng.choice((b"[]", b"null", b"1", b'""', b"[" * 100_000))
        holder, key = rng.choice(places)
        how = rng.randrange(8)
        if how == 0:
            del holder[key]
        elif how == 1:
            other, source = rng.choice(places)
            if _holds(other, source):
                holder[key] = json.loads(json.dumps(other[source]))
        elif how == 2 and isinstance(holder, dict):
            holder[rng.choice(("x", "", "..", "shape", "../../x", key.upper()))] = holder.pop(key)
        elif how == 3 and isinstance(holder[key], list):
            holder[key] = holder[key] * rng.choice((0, 2, 40))
        elif how == 4 and isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * rng.choice((-1, 2, 10**3, 10**9, 10**12)) + rng.choice((-1, 0, 1))
        else:
            holder[key] = json.loads(json.dumps(rng.choice(VALUES)))
    text = json.dumps(tree)
    if rng.random() < 0.01:
        # What json itself would not write.
        text = text.replace("[", "[" * DEEP, 1).replace("]", "]" * DEEP, 1)
    return text.encode("utf-8", "replace")


def _places(tree: object) -> object:
    stack = [tree]
    while stack:
        holder = stack.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            stack.append(holder[key])


def _holds(holder: object, key: object) -> bool:
    return key in holder if isinstance(holder, dict) else isinstance(key, int) and key < len(holder)


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    a = rng.randrange(len(data) + 1)
    return a, min(len(data), a + rng.choice((1, 1, 2, 4, 16, 64, 1024)))


BYTES: tuple[Mutation, ...] = (flip, cut, remove, double, splice, insert, overwrite, noise)
TEXT: tuple[Mutation, ...] = (flip, cut, remove, double, splice, insert, number, line, field, noise)
JSON: tuple[Mutation, ...] = (value, value, value, value, value, value, flip, cut, insert, number, double, noise)


def mutated(data: bytes, how: Sequence[Mutation], rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Damage a file once, or a few times."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(how)(data, rng, others)[:LARGEST]
    return data
