"""Type the examples of a Markdown page, in order, in one directory.

Shell blocks (```sh) run in bash and stop at the first command that fails. Python blocks (```python) share one
namespace; those with prompts are checked as doctests. A comment `<!-- not run: REASON -->` before a block excludes it.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The seconds that a block may take; a page takes minutes on a busy machine.
BLOCK_SECONDS = 900
BLOCK = re.compile(r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, code, line in the page, and the reason why it is not run."""

    language: str
    code: str
    line: int
    reason: str | None


def blocks_of(page: Path) -> list[Block]:
    """Return the shell and Python blocks of a page."""
    text = page.read_text()
    found = [
        Block(match["language"], match["code"], text.count("\n", 0, match.start("code")) + 1, match["reason"])
        for match in BLOCK.finditer(text)
    ]
    return [block for block in found if block.language in ("sh", "python")]


def type_page(page: Path, folder: Path) -> tuple[int, list[str]]:
    """Run the blocks of a page; return how many ran, and the reasons of those that did not."""
    for name in ("docs", "scripts", "configs"):
        (folder / name).symlink_to(ROOT / name)
    names: dict[str, object] = {}
    ran, reasons = 0, []
    for block in blocks_of(page):
        if block.reason is not None:
            reasons.append(f"{page.name}:{block.line}: {block.reason}")
            continue
        if block.language == "sh":
            _type_shell(block, page, folder)
        else:
            _type_python(block, page, folder, names)
        ran += 1
    return ran, reasons


def _type_shell(block: Block, page: Path, folder: Path) -> None:
    script = f"set -euo pipefail\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n{block.code}"
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=BLOCK_SECONDS
    )
    assert done.returncode == 0, f"{page.name}:{block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"


def _type_python(block: Block, page: Path, folder: Path, names: dict[str, object]) -> None:
    here = os.getcwd()
    os.chdir(folder)
    try:
        if ">>> " not in block.code:
            exec(compile(block.code, f"{page.name}:{block.line}", "exec"), names)
            return
        test = doctest.DocTestParser().get_doctest(block.code, names, page.name, str(page), block.line - 1)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed, _ = runner.run(test, out=said.append, clear_globs=False)
        names.update(test.globs)
        assert failed == 0, "".join(said)
    finally:
        os.chdir(here)
