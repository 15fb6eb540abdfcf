"""Demonstrations: `streampca demo NAME` runs one; each writes pictures and a report page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from streampca.demos.base import Demo
from streampca.report import check_picture

__all__ = ["DEMOS", "Demo"]


def _run(name: str, demo: Demo) -> list[Path]:
    """Import the module of a demonstration, which others need not load, and run it; raise first if it cannot draw."""
    check_picture(demo.folder / f"{name}.png")
    pictures: list[Path] = getattr(import_module(f"{__name__}.{name}"), f"demo_{name}")(demo)
    return pictures


# Each returns its pictures and, last, its page.
DEMOS: dict[str, Callable[[Demo], list[Path]]] = {
    name: partial(_run, name) for name in ("groups", "genotypes", "digits", "faces", "missing", "kernel")
}
