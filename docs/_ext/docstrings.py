"""Docstrings for reStructuredText: escape `||x||` and names such as components_; skip methods of scikit-learn."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

SKLEARN = ("set_output", "set_params", "get_params", "get_metadata_routing")
CODE = re.compile(r"(`+[^`]*`+)")


def escape(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Escape lines of text; examples and code in backquotes stay as they are."""
    example = False
    for i, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[i] = "".join(part if part.startswith("`") else _escaped(part) for part in CODE.split(line))


def _escaped(text: str) -> str:
    # The name of an entry, as "components_ : (k, d)", is read by numpydoc.
    head, colon, rest = text.partition(" : ") if re.match(r"\s*[\w, *]+ : ", text) else ("", "", text)
    rest = rest.replace("|", r"\|")
    rest = re.sub(r"(?<=\w)_(?!\w)", r"\\_", rest)
    return head + colon + re.sub(r"(?<![\w*])\*(?=\w)", r"\\*", rest)


def signature(app: Sphinx, what: str, name: str, thing: Any, *rest: Any) -> tuple[str, None] | None:  # noqa: ARG001
    """Return the parameters of `__init__` of a class: estimators define `__new__`, too."""
    if what != "class":
        return None
    parameters = list(inspect.signature(thing.__init__).parameters.values())[1:]
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain)), None


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:  # noqa: ARG001
    """Skip methods that scikit-learn gives every estimator and describes on its own site."""
    return True if name in SKLEARN or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Run before numpydoc."""
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", escape, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
