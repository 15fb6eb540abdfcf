"""Screenshots of a report page: light, dark, phone, with a selection, and as PDF. Needs playwright and chromium.

streampca report study.pca.zarr --out study.html
python scripts/screenshots.py study.html pictures
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

# No requests of the browser itself; playwright adds a new profile.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 380, "height": 760}
CONTEXTS = {
    "light": {"viewport": DESKTOP},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "device_scale_factor": 2, "is_mobile": True, "has_touch": True},
}


def lasso(page: Page) -> None:
    """Select the left half of the samples, and hover over one of them."""
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    x, y, wide, high = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 0.1 * wide, y + 0.05 * high)
    page.mouse.down()
    for across, down in ((0.45, 0.05), (0.5, 0.5), (0.45, 0.85), (0.1, 0.85)):
        page.mouse.move(x + across * wide, y + down * high, steps=5)
    page.mouse.up()
    left, top = page.evaluate("report.place(0)")
    page.mouse.move(x + left, y + top)
    page.wait_for_timeout(200)


def main() -> None:
    source, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, options in CONTEXTS.items():
            page = browser.new_context(**options).new_page()
            page.goto(source.as_uri())
            page.evaluate("report.ready")
            page.wait_for_timeout(200)
            page.screenshot(path=folder / f"{name}.png", full_page=True)
            if name == "light":
                page.pdf(path=folder / "paper.pdf", format="A4")
                if page.locator("#canvas").count():
                    lasso(page)
                    page.screenshot(path=folder / "selection.png", full_page=True)
        browser.close()
    print(*sorted(map(str, folder.iterdir())), sep="\n")


if __name__ == "__main__":
    main()
