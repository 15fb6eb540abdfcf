"""Errors that a user can fix: what was given, what is allowed, what to do."""

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
# Exceptions of libraries for files with damaged metadata.
DAMAGED = (
    LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError, ImportError,
    SyntaxError, TokenError, OSError, EOFError, MemoryError, struct.error, zlib.error,
)  # fmt: skip

T = TypeVar("T")

# The user in a URL: all of it for HTTP, also with slashes mistyped; with a password, which may contain a slash or an
# @, for other schemes (abfs://CONTAINER@ACCOUNT has none).
_USER = re.compile(
    r"(?<=\bhttp:)(/+)[^/\s?#]*@|(?<=\bhttps:)(/+)[^/\s?#]*@|(?<=:)(//)[^/\s?#@:]*:[^\s?#@]*(?:@[^/\s?#@]*)*@",
    re.IGNORECASE,
)
# Query and fragment of a URL, which may contain tokens and signatures, without the punctuation that ends a sentence.
_QUERY = re.compile(r"(:/+[^\s?#'\"]*)[?#][^\s'\"]*?(?=[:;,.)]*(?:[\s'\"]|$))")
# Parameters that hold secrets, wherever they are.
_SECRET = re.compile(
    r"\b((?:\w*token|sig|signature|\w*secret|password|passwd|(?:api|access|account)[_-]?key)=)[^\s&;,'\"]+",
    re.IGNORECASE,
)


def redacted(value: T) -> T:
    """Remove passwords and tokens from URLs in text, and in text in lists and mappings."""
    if isinstance(value, str):
        text = _USER.sub(lambda match: match[1] or match[2] or match[3], value)
        return _SECRET.sub(r"\1***", _QUERY.sub(r"\1", text))  # type: ignore[return-value]
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}  # type: ignore[return-value]
    if isinstance(value, (list, tuple)):
        return type(value)(redacted(item) for item in value)
    return value


class InputError(ValueError):
    """Invalid input; the message is one line with a hint and without passwords.

    Commands print it and exit with code 2. A ValueError, as scikit-learn expects of estimators.

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
    """Return printable text on one line, without the middle if it is long; it may quote any file."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    half = LONGEST_MESSAGE // 2
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:half]} ... {text[-half:]}"


class MemoryLimitError(InputError):
    """The memory limit is too low; raised before any data are read, with the amount needed.

    Attributes
    ----------
    needed_bytes : the smallest limit that is enough.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> try:
    ...     streampca.PCA(n_components=2, memory_limit="10MB").fit(np.eye(5))
    ... except streampca.MemoryLimitError as error:
    ...     print(str(error).partition(", ")[2].partition(":")[0])
    10 MB is allowed
    """

    def __init__(self, message: object = "", needed_bytes: int = 0):
        super().__init__(message)
        self.needed_bytes = needed_bytes


class MissingValuesError(InputError):
    """Missing values that a model does not allow."""

    def __init__(self, what: str, hint: str):
        super().__init__(f"{what}; {hint}")
        self.what = what


@contextmanager
def opening(where: str, what: str = "opened as Zarr", hint: str = "write the store again") -> Iterator[None]:
    """Turn errors of a library into an InputError that names the file and has a hint."""
    try:
        yield
    except InputError:
        raise
    except DAMAGED as error:
        first = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{where}: cannot be {what} ({first}); {hint}") from error


@contextmanager
def reading(path: object, hint: str) -> Iterator[None]:
    """Turn errors of reading a file into an InputError with a hint."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {hint}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text ({error.reason} at byte {error.start}); {hint}") from error


@contextmanager
def hint_for_missing(hint: str) -> Iterator[None]:
    """Replace the hint of errors about missing values by that of a model."""
    try:
        yield
    except MissingValuesError as error:
        raise MissingValuesError(error.what, hint) from None


class Stopped(BaseException):
    """A run was asked to stop, and has saved its progress."""


def listed(words: Iterable[str], last: str = "or") -> str:
    """Join words as in a sentence: a, b or c."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def nearest(word: str, words: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the word with the most similar spelling; None if none is as similar as this."""
    spelled = {each.lower().replace("-", "_"): each for each in words}
    near = get_close_matches(word.lower().replace("-", "_"), spelled, 1, similarity)
    return spelled[near[0]] if near else None
