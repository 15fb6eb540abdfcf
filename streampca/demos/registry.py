"""The stories by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streampca.demos.base import Teller
from streampca.demos.digits import demo_digits
from streampca.demos.faces import demo_faces
from streampca.demos.kernel import demo_kernel
from streampca.demos.missing import demo_missing
from streampca.demos.simulated import demo_genotypes, demo_groups

# Each returns its pictures and, last, its page.
STORIES: dict[str, Callable[[Teller], list[Path]]] = {
    "groups": demo_groups,
    "genotypes": demo_genotypes,
    "digits": demo_digits,
    "faces": demo_faces,
    "missing": demo_missing,
    "kernel": demo_kernel,
}
