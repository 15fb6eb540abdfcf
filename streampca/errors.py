"""Errors that a user can cure: what was given, what is allowed, what to do."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from tokenize import TokenError
from typing import TypeVar

LONGEST_MESSAGE = 800
# What libraries raise for files whose description of themselves is damaged, each in its own way.
DAMAGED = (
    LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError, ImportError,
    SyntaxError, TokenError, OSError, EOFError, MemoryError, struct.error, zlib.error,
)  # fmt: skip

T = TypeVar("T")

# In a URL, who asks: of HTTP all of it, of other schemes what has a password (abfs://CONTAINER@ACCOUNT has none).
_USER = re.compile(r"(?<=\bhttp://)[^/\s?#]*@|(?<=\bhttps://)[^/\s?#]*@|(?<=://)[^/\s?#@]*:[^/\s?#]*@", re.IGNORECASE)
# In a URL, all after the question mark: tokens and signatures are there. What ends a sentence is not part of it.
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*?(?=[:;,.)]*(?:[\s'\"]|$))")


def redacted(value: T) -> T:
    """Return text, and text in lists and mappings, with no password or token in the URLs that are in it."""
    if isinstance(value, str):
        return _QUERY.sub(r"\1", _USER.sub("", value))  # type: ignore[return-value]
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}  # type: ignore[return-value]
    if isinstance(value, (list, tuple)):
        return type(value)(redacted(item) for item in value)
    return value


class InputError(ValueError):
    """Something given cannot be used; the message is one line, names the cure, and holds no password.

    Commands print it and exit with code 2. It is a ValueError, which scikit-learn expects of its estimators.

    Examples
    --------
    >>> import streampca
    >>> try:
    ...     streampca.open_source("no-such.zarr")
    ... except streampca.InputError as error:
    ...     print(error)
    no-such.zarr: does not exist; check the path
    """

    def __init__(self, message: object = ""):
        super().__init__(one_line(redacted(str(message))))


def one_line(text: str) -> str:
    """Return a text that a terminal shows in one line, without its middle if it is long: it may quote any file."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} ... {text[-half:]}"


class MemoryLimitError(InputError):
    """The work cannot be done under the memory limit; raised before any data are read, with the number it needs.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> try:
    ...     streampca.PCA(n_components=2, memory_limit="10MB").fit(np.eye(5))
    ... except streampca.MemoryLimitError as error:
    ...     print(str(error).partition(", ")[2].partition(":")[0])
    10 MB is allowed
    """


class MissingValuesError(InputError):
    """There are missing values where none are allowed.

    Attributes
    ----------
    seconds, bytes_read : what the sweeps took that found them.
    """

    def __init__(self, what: str, cure: str):
        super().__init__(f"{what}; {cure}")
        self.what = what
        self.seconds: list[float] = []
        self.bytes_read = 0


@contextmanager
def opening(where: str, what: str = "opened as Zarr", cure: str = "write the store again") -> Iterator[None]:
    """Say of a file that a library cannot read which one it is, and what to do."""
    try:
        yield
    except InputError:
        raise
    except DAMAGED as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{where}: cannot be {what} ({first}); {cure}") from error


@contextmanager
def curing_gaps(cure: str) -> Iterator[None]:
    """Name the cure that a model has for missing values."""
    try:
        yield
    except MissingValuesError as error:
        raise MissingValuesError(error.what, cure) from None


class Stopped(BaseException):
    """A run was told to stop, and has saved what it has done."""


def listed(words: Iterable[str], last: str = "or") -> str:
    """Return words as a sentence lists them: a, b or c."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word that is spelled most alike, if one is."""
    return next(iter(get_close_matches(word.lower().replace("-", "_"), list(words), 1)), None)
