"""Demonstrations: `streampca demo NAME` runs one; each writes pictures and a report page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streampca.demos.base import Demo
from streampca.demos.digits import demo_digits
from streampca.demos.faces import demo_faces
from streampca.demos.genotypes import demo_genotypes
from streampca.demos.groups import demo_groups
from streampca.demos.kernel import demo_kernel
from streampca.demos.missing import demo_missing

__all__ = ["DEMOS", "Demo"]

# Each returns its pictures and, last, its page.
DEMOS: dict[str, Callable[[Demo], list[Path]]] = {
    "groups": demo_groups,
    "genotypes": demo_genotypes,
    "digits": demo_digits,
    "faces": demo_faces,
    "missing": demo_missing,
    "kernel": demo_kernel,
}
