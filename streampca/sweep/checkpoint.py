"""Checkpoints: partial results of sweeps on disk, from which a killed run resumes.

A sweep merges the partials of its partitions in a fixed tree. A record is one node of that tree: the merged partial of
a range of partitions. The root of the tree is the result of the sweep. Solvers are not aware of it: a resumed run makes
the same sweeps in the same order, and those on record are not read again.

Records are plain: a JSON tree and NumPy arrays, never pickles. Each is written to a temporary name and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.progress import logger

Span = tuple[int, int]

# Largest difference of two signatures of the same sweep on processors that round differently, relative to the length
# of its columns.
SAME_SIGNATURE = 1e-5
SKETCH_ROWS = 4096  # at a time
_NAME = re.compile(r"(\d{5})-(\d+)-(\d+)\.npz")
_active: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


@dataclass
class Checkpoint:
    """The records of one run.

    Parameters
    ----------
    folder : of the records; it contains nothing else.
    interval : seconds of work within a sweep that may be lost.

    Attributes
    ----------
    replayed, resumed : number of sweeps that were on record, and of partitions of unfinished sweeps.
    saved_at : time of the last record.
    """

    folder: Path
    interval: float = 120.0
    replayed: int = 0
    resumed: int = 0
    saved_at: float = field(default_factory=time.monotonic)
    _number: int = 0
    _rounded: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob("*.part"):
            left.unlink()

    @contextlib.contextmanager
    def active(self) -> Iterator[Checkpoint]:
        """Record all sweeps in this context."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def sweep(self, inputs: Mapping[str, Any]) -> Records:
        """Start the next sweep; return its records that have the same inputs, and delete others."""
        self._number += 1
        self.saved_at = time.monotonic()
        records = Records(self, self._number, Signature.of(inputs))
        for path in self.paths(self._number).values():
            if path not in records.paths.values():
                path.unlink()
        return records

    def count(self, recorded: Mapping[Span, Any], partitions: int) -> None:
        """Count the partitions of a sweep that are on record."""
        if (0, partitions) in recorded:
            self.replayed += 1
        else:
            self.resumed += sum(b - a for a, b in recorded)

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self.saved_at >= self.interval

    def keep(self, name: str, inputs: Any, tree: Mapping[str, Any]) -> None:
        """Save the result of work that is not a sweep, with a signature of its inputs."""
        write_record(self.folder / f"{name}.npz", {"signature": vars(Signature.of(inputs)), **tree})

    def recall(self, name: str, inputs: Any) -> dict[str, Any] | None:
        """Return the result saved under this name if its inputs are the same, else None."""
        try:
            record = read_record(self.folder / f"{name}.npz")
        except InputError:
            return None
        recorded = record.pop("signature", None)
        same = isinstance(recorded, dict) and str(recorded.get("exact")) == Signature.of(inputs).exact
        return record if same else None

    def paths(self, number: int) -> dict[Span, Path]:
        """Return the records of one sweep, by the range of partitions."""
        paths = {}
        for path in self.folder.glob(f"{number:05d}-*.npz"):
            if match := _NAME.fullmatch(path.name):
                paths[int(match[2]), int(match[3])] = path
        return paths

    def rounded_differently(self) -> None:
        """Log, once, that bits may differ."""
        if not self._rounded:
            self._rounded = True
            logger.info(
                "this machine rounds differently from the one that started the run: the result agrees with that of an "
                "uninterrupted run to rounding, not to the bit"
            )


class Records:
    """Records of one sweep."""

    def __init__(self, checkpoint: Checkpoint, number: int, signature: Signature):
        self.checkpoint, self._number, self._signature = checkpoint, number, signature
        self.paths = {span: path for span, path in checkpoint.paths(number).items() if self._answers(path)}

    def _answers(self, path: Path) -> bool:
        """Whether a record has this signature."""
        try:
            recorded = Signature(**read_record(path, only="signature")["signature"])
            same = recorded.matches(self._signature)
        except (InputError, TypeError, ValueError, AttributeError):
            # Not a record, or damaged.
            return False
        if same and recorded.exact != self._signature.exact:
            self.checkpoint.rounded_differently()
        return same

    def read(self, fits: Callable[[Span, Mapping[str, Any]], bool]) -> dict[Span, Any]:
        """Return the records, the larger of nested ranges; delete those that are damaged or of another range.

        Parameters
        ----------
        fits : whether a record can be the result of a range.
        """
        records: dict[Span, Any] = {}
        for span in sorted(self.paths, key=lambda s: s[0] - s[1]):
            if any(a <= span[0] and span[1] <= b for a, b in records):
                continue
            try:
                record = read_record(self.paths[span])
                if record.get("span") != span or not fits(span, record):
                    raise InputError(f"{self.paths[span]}: this checkpoint is of another range or shape")
                records[span] = record
            except InputError as error:
                logger.warning("%s; its work is repeated", error)
                self.paths.pop(span).unlink()
        return records

    def save(self, nodes: Mapping[Span, Any]) -> None:
        """Save ranges that are not on record yet; then delete the records inside them."""
        for span, tree in nodes.items():
            if span not in self.paths:
                path = self.checkpoint.folder / f"{self._number:05d}-{span[0]}-{span[1]}.npz"
                write_record(path, {"signature": vars(self._signature), "span": span, **tree})
                self.paths[span] = path
        self.checkpoint.saved_at = time.monotonic()
        inside = [s for s in self.paths if any(a <= s[0] and s[1] <= b and s != (a, b) for a, b in nodes)]
        for span in inside:
            self.paths.pop(span).unlink()


def active_checkpoint() -> Checkpoint | None:
    """Return the checkpoint that sweeps are recorded in, or None."""
    return _active.get()


@dataclass(frozen=True)
class Signature:
    """A digest of the inputs of a sweep: a resumed run uses a record only if it is the same.

    Attributes
    ----------
    exact : hash of the inputs.
    shape : hash of types, sizes and integers, without the values of real arrays.
    sketch : one random combination of the rows of each real array, and the lengths of its columns.
    """

    exact: str
    shape: str
    sketch: list[Any]

    @classmethod
    def of(cls, parts: Any) -> Signature:
        """Return the signature of dataclasses, arrays, numbers and text; functions count by their names."""
        exact, shape = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        sketch: list[Any] = []
        for part in _leaves(parts):
            if isinstance(part, np.ndarray):
                text = f"{part.dtype.str}{part.shape}{part.flags.c_contiguous}".encode()
                exact.update(text)
                shape.update(text)
                plain = np.ascontiguousarray(part if part.flags.c_contiguous else part.T)
                content = plain.reshape(-1).view(np.uint8).data
                exact.update(content)
                if part.dtype.kind == "f":
                    sketch.append(_sketch(part))
                    continue
                shape.update(content)
            else:
                text = repr(part).encode()
                exact.update(text)
                if not isinstance(part, float):
                    shape.update(text)
                else:
                    sketch.append(_sketch(np.array([part])))
        return cls(exact.hexdigest(), shape.hexdigest(), sketch)

    def matches(self, other: Signature) -> bool:
        """Whether the inputs are the same up to rounding."""
        if self.exact == other.exact:
            return True
        if self.shape != other.shape or len(self.sketch) != len(other.sketch):
            return False
        for (a, lengths), (b, _) in zip(self.sketch, other.sketch, strict=True):
            known, given, scale = (np.array(x, np.float64) for x in (a, b, lengths))
            if not np.allclose(known, given, rtol=0, atol=SAME_SIGNATURE * max(float(scale.max(initial=0.0)), 1e-300)):
                return False
        return True


def _sketch(values: Array) -> list[list[float]]:
    """Return a random combination of the rows (or columns, if these are more), and the lengths along them."""
    table = values.reshape(len(values), -1) if values.ndim > 1 and values.size else values.reshape(-1, 1)
    table = table.T if table.shape[1] > table.shape[0] else table
    signs = 2.0 * np.random.default_rng(0).integers(2, size=len(table), dtype=np.int8) - 1
    combined, squares = np.zeros((2, table.shape[1]))
    # Strips take little memory.
    for start in range(0, len(table), SKETCH_ROWS):
        strip = np.nan_to_num(table[start : start + SKETCH_ROWS].astype(float), posinf=0.0, neginf=0.0)
        combined += signs[start : start + SKETCH_ROWS] @ strip
        squares += np.einsum("ij,ij->j", strip, strip)
    return [combined.tolist(), np.sqrt(squares).tolist()]


def _leaves(part: Any) -> Iterator[Any]:
    """Yield arrays, numbers and text, in order, and the types that contain them."""
    if part is None or isinstance(part, (bool, int, float, str, np.ndarray)):
        yield part
    elif isinstance(part, (np.generic, np.dtype)):
        yield part.item() if isinstance(part, np.generic) else part.str
    elif isinstance(part, Mapping):
        for key in sorted(part):
            yield str(key)
            yield from _leaves(part[key])
    elif isinstance(part, (list, tuple)):
        yield f"{type(part).__name__} of {len(part)}"
        for item in part:
            yield from _leaves(item)
    elif isinstance(part, functools.partial):
        yield from _leaves([part.func, part.args, dict(part.keywords)])
    elif is_dataclass(part) and not isinstance(part, type):
        yield type(part).__qualname__
        for f in fields(part):
            yield f.name
            yield from _leaves(getattr(part, f.name))
    else:
        # A writer has a token that names its output; the fingerprint of the data is an input of its own. Functions
        # count by their names, other objects by their types.
        known = "data" if hasattr(part, "fingerprint") else getattr(part, "token", None)
        yield known or getattr(part, "__qualname__", type(part).__qualname__)


def write_record(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, numbers, text, arrays and our dataclasses, atomically."""
    arrays: list[Array] = []
    plain = json.dumps({key: _encoded(value, arrays) for key, value in tree.items()}).encode()
    unfinished = path.with_suffix(".part")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, tree=np.frombuffer(plain, np.uint8), **{f"a{i}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"{path.parent}: no space left for a checkpoint; earlier ones are complete: free some space and run "
                "the same command again"
            ) from error
        raise


def read_record(path: Path, only: str | None = None) -> dict[str, Any]:
    """Read a record, or one entry of it; raise `InputError` if it is damaged."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            tree = json.loads(bytes(file["tree"]))
            return {key: _decoded(tree[key], file) for key in ([only] if only else tree)}
    except Exception as error:
        # zipfile, NumPy and json raise different errors for damaged files.
        raise InputError(f"{path}: this checkpoint is damaged ({error})") from error


def _encoded(part: Any, arrays: list[Array]) -> Any:
    """Return a part of a tree as JSON, with its arrays appended to the list."""
    if part is None or isinstance(part, (bool, int, str)):
        return part
    if isinstance(part, float):
        return {"float": part.hex()}
    if isinstance(part, (np.ndarray, np.generic)):
        arrays.append(np.asarray(part))
        return {"array" if isinstance(part, np.ndarray) else "scalar": len(arrays) - 1}
    if isinstance(part, list) and _are_rows(part):
        # Pieces of one array: a file of hundreds of small ones takes longer than the sweep.
        arrays.append(np.concatenate(part))
        return {"rows": len(arrays) - 1, "lengths": [len(piece) for piece in part]}
    if isinstance(part, (list, tuple)):
        return {type(part).__name__: [_encoded(item, arrays) for item in part]}
    if isinstance(part, dict):
        return {"dict": {str(key): _encoded(value, arrays) for key, value in part.items()}}
    return _encoded_record(part, arrays)


def _encoded_record(part: Any, arrays: list[Array]) -> dict[str, Any]:
    """Return a dataclass as JSON."""
    if isinstance(part, type) or not is_dataclass(part):
        raise TypeError(f"{type(part).__name__} cannot be saved in a checkpoint")
    name = f"{type(part).__module__}:{type(part).__qualname__}"
    return {"record": name, "fields": {f.name: _encoded(getattr(part, f.name), arrays) for f in fields(part)}}


def _are_rows(pieces: list[Any]) -> bool:
    """Whether the pieces are rows of one array."""
    if len(pieces) < 2 or not all(isinstance(piece, np.ndarray) and piece.ndim for piece in pieces):
        return False
    kinds = {(piece.dtype, piece.shape[1:], piece.flags.c_contiguous) for piece in pieces}
    return len(kinds) == 1 and kinds.pop()[2]


def _decoded(part: Any, file: Mapping[str, Any]) -> Any:
    """Return a part of a tree from its JSON."""
    if not isinstance(part, dict):
        return part
    if "record" in part:
        kind = _our_dataclass(part["record"])
        return kind(**{name: _decoded(value, file) for name, value in part["fields"].items()})
    if "rows" in part:
        return np.split(file[f"a{part['rows']}"], np.cumsum(part["lengths"])[:-1])
    ((name, value),) = part.items()
    if name == "array":
        return file[f"a{value}"]
    if name == "scalar":
        return file[f"a{value}"][()]
    if name == "float":
        return float.fromhex(value)
    if name == "dict":
        return {key: _decoded(item, file) for key, item in value.items()}
    items = [_decoded(item, file) for item in value]
    return items if name == "list" else tuple(items)


def _our_dataclass(name: str) -> Any:
    """Return a dataclass of this package by its name; records never create anything else."""
    module, _, qualname = name.partition(":")
    if not re.fullmatch(r"streampca(\.[a-z][a-z_]*)*", module) or not qualname.isidentifier():
        raise ValueError(f"{name!r} is not a record of streampca")
    kind = getattr(importlib.import_module(module), qualname)
    if not is_dataclass(kind):
        raise ValueError(f"{name!r} is not a record of streampca")
    return kind
