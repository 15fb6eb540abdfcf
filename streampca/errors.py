"""Errors that a user can cure: what was given, what is allowed, what to do."""

from __future__ import annotations


class InputError(ValueError):
    """Something given cannot be used; the message is one line and names the cure."""


class MemoryLimitError(InputError):
    """The work cannot be done under the memory limit; raised before any data are read."""


class MissingValuesError(InputError):
    """There are missing values where none are allowed."""
