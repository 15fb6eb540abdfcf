"""The README is short, its links lead somewhere, and every line works when typed in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks_of, type_page

README = ROOT / "README.md"


@pytest.mark.pages
@pytest.mark.timeout(1800)
def test_every_line_of_the_readme_works_when_typed_in_order(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("h5netcdf")
    ran, reasons = type_page(README, tmp_path)
    print(f"{ran} blocks run, {len(reasons)} not run: {reasons}")
    assert ran >= 6
    assert len(reasons) == 2


def test_the_readme_fits_on_150_lines():
    assert len(README.read_text().splitlines()) <= 150


def test_every_link_of_the_readme_leads_to_a_file():
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_commands_for_a_fresh_machine_exist():
    scripts = {
        word for line in README.read_text().splitlines() if line.startswith("bash ") for word in line.split()[1:2]
    }
    assert scripts == {"scripts/demo", "scripts/test"}
    assert all((ROOT / script).exists() for script in scripts)


def test_a_block_that_fails_fails_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\ntrue\n```\n")
    assert [block.line for block in blocks_of(page)] == [2]
    with pytest.raises(AssertionError, match="failed: false"):
        type_page(page, Path(tmp_path))


def test_a_wrong_output_fails_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: no reason -->\n```sh\nfalse\n```\n\n```python\n>>> 1 + 1\n3\n\n```\n")
    with pytest.raises(AssertionError, match="Expected"):
        type_page(page, tmp_path)
