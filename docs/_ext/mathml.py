r"""Write formulas as MathML, which browsers draw without a script and without a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    self.body.append(f'<span class="formula">{convert(node.astext())}</span>')
    raise nodes.SkipNode


def display(self: Any, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def nothing(self: Any, node: nodes.Node) -> None:
    """Never called: the node is skipped."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, nothing), (display, nothing))
    app.connect("config-inited", lambda _, config: setattr(config, "html_math_renderer", "mathml"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
