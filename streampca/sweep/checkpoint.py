"""What a run has found so far, kept on disk, so that a run that was killed goes on where it was.

A sweep merges the partials of its partitions in a fixed tree. A record is one node of that tree: what a range of
partitions of one sweep came to. The root of the tree is the sweep itself. Solvers need not know: a run that is begun
again asks the same questions in the same order, and sweeps that were answered before are answered from the record,
without reading. So all that is kept is what is new, and any node saves the work below it.

Records are plain: a JSON tree and NumPy arrays, never pickles. Each is written beside its name and renamed.
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

# How far a question may be from the one on record and still be the same but for rounding, as another kind of
# processor rounds: relative to the length of its columns.
SAME_QUESTION = 1e-5
SKETCH_ROWS = 4096
_NAME = re.compile(r"(\d{5})-(\d+)-(\d+)\.npz")
_active: ContextVar[Journal | None] = ContextVar("journal", default=None)


@dataclass
class Journal:
    """The records of one run, in a folder of its own.

    Parameters
    ----------
    folder : where they are.
    interval : seconds of work within a sweep that may be lost.

    Attributes
    ----------
    replayed, resumed : sweeps answered from the record, and partitions of unfinished ones that need not be done again.
    """

    folder: Path
    interval: float = 120.0
    replayed: int = 0
    resumed: int = 0
    _number: int = 0
    _saved_at: float = field(default_factory=time.monotonic)
    _rounded: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob("*.part"):
            left.unlink()

    @contextlib.contextmanager
    def active(self) -> Iterator[Journal]:
        """Record all sweeps that are run inside."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def sweep(self, question: Mapping[str, Any]) -> Records:
        """Begin the next sweep, which asks this question; returns its records."""
        self._number += 1
        self._saved_at = time.monotonic()
        records = Records(self, self._number, Question.of(question))
        for path in self.paths(self._number).values():
            if path not in records.paths.values():
                path.unlink()
        return records

    def count(self, found: Mapping[Span, Any], partitions: int) -> None:
        """Count what of a sweep need not be done again."""
        if (0, partitions) in found:
            self.replayed += 1
        else:
            self.resumed += sum(b - a for a, b in found)

    @property
    def due(self) -> bool:
        """Tell whether it is time to save."""
        return time.monotonic() - self._saved_at >= self.interval

    def keep(self, name: str, question: Any, tree: Mapping[str, Any]) -> None:
        """Keep what is no sweep, under a name, and what was asked for it."""
        write_record(self.folder / f"{name}.npz", {"question": vars(Question.of(question)), **tree})

    def recall(self, name: str, question: Any) -> dict[str, Any] | None:
        """Return what was kept under this name, if it was and the question is the same."""
        try:
            found = read_record(self.folder / f"{name}.npz")
        except InputError:
            return None
        asked = found.pop("question", None)
        same = isinstance(asked, dict) and str(asked.get("exact")) == Question.of(question).exact
        return found if same else None

    def paths(self, number: int) -> dict[Span, Path]:
        """Return the records of one sweep, by the range of partitions."""
        found = {}
        for path in self.folder.glob(f"{number:05d}-*.npz"):
            if match := _NAME.fullmatch(path.name):
                found[int(match[2]), int(match[3])] = path
        return found

    def saved(self) -> None:
        """Begin to count the seconds anew."""
        self._saved_at = time.monotonic()

    def rounded_differently(self) -> None:
        """Say once that bits may differ."""
        if not self._rounded:
            self._rounded = True
            logger.info(
                "this machine rounds differently from the one that began the run: what it found is used, the result "
                "agrees with that of an undisturbed run to rounding, not to the bit"
            )


class Records:
    """The records of one sweep."""

    def __init__(self, journal: Journal, number: int, question: Question):
        self._journal, self._number, self._question = journal, number, question
        self.paths = {span: path for span, path in journal.paths(number).items() if self._answers(path)}

    @property
    def due(self) -> bool:
        """Tell whether it is time to save."""
        return self._journal.due

    def _answers(self, path: Path) -> bool:
        """Tell whether a record is of this question."""
        try:
            recorded = Question(**read_record(path, only="question")["question"])
            same = recorded.matches(self._question)
        except (InputError, TypeError, ValueError, AttributeError):
            # Not a record, or a damaged one.
            return False
        if same and recorded.exact != self._question.exact:
            self._journal.rounded_differently()
        return same

    def found(self, fits: Callable[[Span, Mapping[str, Any]], bool] = lambda *_: True) -> dict[Span, Any]:
        """Return the records, the larger of nested ranges; remove those that are damaged or of another range.

        Parameters
        ----------
        fits : whether a record can be the result of a range.
        """
        found: dict[Span, Any] = {}
        for span in sorted(self.paths, key=lambda s: s[0] - s[1]):
            if any(a <= span[0] and span[1] <= b for a, b in found):
                continue
            try:
                record = read_record(self.paths[span])
                if record.get("span") != span or not fits(span, record):
                    raise InputError(f"{self.paths[span]}: this checkpoint is of another range or shape")
                found[span] = record
            except InputError as error:
                logger.warning("%s; its work is repeated", error)
                self.paths.pop(span).unlink()
        return found

    def save(self, nodes: Mapping[Span, Any]) -> None:
        """Save what these ranges came to, those not on record yet; then drop the records within them."""
        for span, tree in nodes.items():
            if span not in self.paths:
                path = self._journal.folder / f"{self._number:05d}-{span[0]}-{span[1]}.npz"
                write_record(path, {"question": vars(self._question), "span": span, **tree})
                self.paths[span] = path
        self._journal.saved()
        inside = [s for s in self.paths if any(a <= s[0] and s[1] <= b and s != (a, b) for a, b in nodes)]
        for span in inside:
            self.paths.pop(span).unlink()


def active_journal() -> Journal | None:
    """Return the journal in force, or None."""
    return _active.get()


@dataclass(frozen=True)
class Question:
    """What a sweep is asked, in short.

    Attributes
    ----------
    exact : hash of all of it.
    shape : hash of types, sizes and whole numbers, without the values of real arrays.
    sketch : one random combination of the rows of each real array, and the lengths of its columns.
    """

    exact: str
    shape: str
    sketch: list[Any]

    @classmethod
    def of(cls, parts: Any) -> Question:
        """Summarise what is asked: dataclasses, arrays, numbers, text; functions by their names."""
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

    def matches(self, other: Question) -> bool:
        """Tell whether it is the same question, but for rounding at most."""
        if self.exact == other.exact:
            return True
        if self.shape != other.shape or len(self.sketch) != len(other.sketch):
            return False
        for (a, lengths), (b, _) in zip(self.sketch, other.sketch, strict=True):
            known, given, scale = (np.array(x, np.float64) for x in (a, b, lengths))
            if not np.allclose(known, given, rtol=0, atol=SAME_QUESTION * max(float(scale.max(initial=0.0)), 1e-300)):
                return False
        return True


def _sketch(values: Array) -> list[list[float]]:
    """Return a random combination of the rows (or columns, if these are more), and the lengths along them."""
    table = values.reshape(len(values), -1) if values.ndim > 1 and values.size else values.reshape(-1, 1)
    table = table.T if table.shape[1] > table.shape[0] else table
    signs = 2.0 * np.random.default_rng(0).integers(2, size=len(table), dtype=np.int8) - 1
    combined, squares = np.zeros((2, table.shape[1]))
    # In strips, which take little memory.
    for start in range(0, len(table), SKETCH_ROWS):
        strip = np.nan_to_num(table[start : start + SKETCH_ROWS].astype(float), posinf=0.0, neginf=0.0)
        combined += signs[start : start + SKETCH_ROWS] @ strip
        squares += np.einsum("ij,ij->j", strip, strip)
    return [combined.tolist(), np.sqrt(squares).tolist()]


def _leaves(part: Any) -> Iterator[Any]:
    """Yield arrays, numbers and text, in order, with what holds them."""
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
        # What writes rows somewhere says where; data are asked about by their fingerprint; functions go by their name,
        # other objects by their kind.
        known = "data" if hasattr(part, "fingerprint") else getattr(part, "token", None)
        yield known or getattr(part, "__qualname__", type(part).__qualname__)


def write_record(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of dicts, lists, tuples, numbers, text, arrays and our dataclasses: beside, flushed, renamed."""
    arrays: list[Array] = []
    plain = json.dumps({key: _encoded(value, arrays) for key, value in tree.items()}).encode()
    beside = path.with_suffix(".part")
    try:
        with beside.open("wb") as file:
            np.savez(file, tree=np.frombuffer(plain, np.uint8), **{f"a{i}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"{path.parent}: no space left for a checkpoint; what was saved before is whole: free some space and "
                "run the same command again"
            ) from error
        raise


def read_record(path: Path, only: str | None = None) -> dict[str, Any]:
    """Read what `write_record` wrote, or one entry of it; refuses what is damaged."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            tree = json.loads(bytes(file["tree"]))
            return {key: _decoded(tree[key], file) for key in ([only] if only else tree)}
    except Exception as error:
        # Whatever damage does to a file, zipfile, NumPy and json each have their own ways to say so.
        raise InputError(f"{path}: this checkpoint is damaged ({error})") from error


def _encoded(part: Any, arrays: list[Array]) -> Any:
    if part is None or isinstance(part, (bool, int, str)):
        return part
    if isinstance(part, float):
        return {"float": part.hex()}
    if isinstance(part, np.ndarray):
        arrays.append(part)
        return {"array": len(arrays) - 1}
    if isinstance(part, np.generic):
        arrays.append(np.asarray(part))
        return {"scalar": len(arrays) - 1}
    if isinstance(part, list) and _are_rows(part):
        # Pieces of one array: a file of hundreds of small ones takes longer than the sweep.
        arrays.append(np.concatenate(part))
        return {"rows": len(arrays) - 1, "lengths": [len(piece) for piece in part]}
    if isinstance(part, (list, tuple)):
        return {type(part).__name__: [_encoded(item, arrays) for item in part]}
    if isinstance(part, dict):
        return {"dict": {str(key): _encoded(value, arrays) for key, value in part.items()}}
    if is_dataclass(part) and not isinstance(part, type):
        name = f"{type(part).__module__}:{type(part).__qualname__}"
        return {"record": name, "fields": {f.name: _encoded(getattr(part, f.name), arrays) for f in fields(part)}}
    raise TypeError(f"{type(part).__name__} cannot be kept in a checkpoint")


def _are_rows(pieces: list[Any]) -> bool:
    """Tell whether these are rows of the same kind, piece by piece."""
    if len(pieces) < 2 or not all(isinstance(piece, np.ndarray) and piece.ndim for piece in pieces):
        return False
    kinds = {(piece.dtype, piece.shape[1:], piece.flags.c_contiguous) for piece in pieces}
    return len(kinds) == 1 and kinds.pop()[2]


def _decoded(part: Any, file: Mapping[str, Any]) -> Any:
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
    """Return a dataclass of this package by its name; nothing else is ever made from a file."""
    module, _, qualname = name.partition(":")
    if not re.fullmatch(r"streampca(\.[a-z][a-z_]*)*", module) or not qualname.isidentifier():
        raise ValueError(f"{name!r} is not a record of streampca")
    kind = getattr(importlib.import_module(module), qualname)
    if not is_dataclass(kind):
        raise ValueError(f"{name!r} is not a record of streampca")
    return kind
