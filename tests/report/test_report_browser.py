"""The report page in a browser: hover, selection, filter, keyboard, themes; and it requests nothing."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from report_helpers import HOSTILE, made_result, made_table

from streampca.report import write_report

chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
pytestmark = pytest.mark.skipif(chromium is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@contextmanager
def opened(browser, path, **options):
    """Open a page; it must request only itself and log no errors."""
    context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
    page = context.new_page()
    requested, errors = [], []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.goto(path.as_uri())
    page.evaluate("report.ready")
    yield page
    assert errors == []
    assert [url for url in requested if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    context.close()


def picture(page):
    """Return the pixels of the plot as text."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("document.getElementById('canvas').toDataURL()")


def places(page, samples):
    """Return the positions of samples on the screen, (n, 2)."""
    page.locator("#plot").scroll_into_view_if_needed()
    box = page.evaluate("(({x, y}) => [x, y])(document.getElementById('canvas').getBoundingClientRect())")
    return np.add(box, page.evaluate("(which) => which.map(report.place)", list(samples)))


def place(page, sample):
    return tuple(places(page, [sample])[0].tolist())


def coloured(page):
    """Return the number of pixels of the plot that are not grey."""
    picture(page)
    return page.evaluate(
        """() => {
          const canvas = document.getElementById("canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          let n = 0;
          for (let i = 0; i < data.length; i += 4) {
            const rgb = [data[i], data[i + 1], data[i + 2]];
            n += Math.max(...rgb) - Math.min(...rgb) > 40;
          }
          return n;
        }"""
    )


def scrolls_sideways(page):
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A page of 90 samples in three groups, of which some are uncertain."""
    result = made_result(90, 4, deviations=True)
    # An outlier, so that nothing else is near.
    result["scores"][5] = 3 * np.abs(result["scores"].values).max()
    folder = tmp_path_factory.mktemp("page")
    return result, write_report(result, folder / "study.html")


def test_axes_hover_selection_and_filter(browser, study):
    result, path = study
    scores, label = result["scores"].values, result["label"].values
    with opened(browser, path) as page:
        first = picture(page)
        page.select_option("#axis-x", label="PC3 (12.5%)")
        assert picture(page) != first
        np.testing.assert_array_equal(np.argsort(places(page, range(90))[:, 0]), np.argsort(scores[:, 2]))
        page.click("#thumbs button >> nth=0")
        assert picture(page) == first

        page.mouse.move(*place(page, 5))
        page.wait_for_selector("#tip:visible")
        tip = page.inner_text("#tip")
        assert tip.startswith("id0005")
        assert label[5] in tip
        assert f"{scores[5, 0]:.1f}" in tip

        page.mouse.click(*place(page, 5))
        assert page.locator("#selection li").all_inner_texts() == ["id0005"]
        assert "1 of 90 samples" in page.inner_text("#selection-note")

        # Around all samples but that one.
        others = np.delete(places(page, range(90)), 5, axis=0)
        (left, top), (right, bottom) = others.min(axis=0) - 6, others.max(axis=0) + 6
        page.mouse.move(left, top)
        page.mouse.down()
        for x, y in ((right, top), (right, bottom), (left, bottom), (left, top)):
            page.mouse.move(x, y, steps=2)
        page.mouse.up()
        listed = page.locator("#selection li").all_inner_texts()
        assert listed == [f"id{i:04d}" for i in range(90) if i != 5]
        assert page.inner_text("#selection-kinds") == "north 30, south 30, west 29"
        page.keyboard.down("Shift")
        page.mouse.click(*place(page, 5))
        page.keyboard.up("Shift")
        assert page.locator("#selection li").count() == 90
        page.click("#clear-selection")
        assert page.locator("#selection li").count() == 0
        assert picture(page) == first

        # Filtered samples are not drawn, and cannot be hovered or selected.
        full = coloured(page)
        page.click(f".legend-entry:has-text('{label[5]}')")
        assert 0.5 * full < coloured(page) < 0.9 * full
        page.mouse.move(*place(page, 8))
        page.mouse.move(*place(page, 5))
        page.wait_for_selector("#tip", state="hidden")
        page.mouse.click(*place(page, 5))
        assert page.locator("#selection li").count() == 0
        page.click("#legend-none")
        assert coloured(page) == 0
        page.click("#legend-all")
        assert picture(page) == first

        # Numbers have a colour ramp.
        page.select_option("#colour", label="age")
        assert page.inner_text(".ramp-ends") == "20.00\n109.00"
        assert coloured(page) > 0.5 * full


def test_keyboard_search_zoom_and_ellipses(browser, study):
    result, path = study
    with opened(browser, path) as page:
        first = picture(page)
        page.focus(".legend-entry >> nth=1")
        page.keyboard.press("Space")
        assert page.get_attribute(".legend-entry >> nth=1", "aria-pressed") == "false"
        assert "60 of 90 samples are shown" in page.inner_text("#live")
        page.keyboard.press("Enter")
        assert picture(page) == first

        page.focus("#plot")
        page.keyboard.press("ArrowRight")
        here = page.inner_text("#live").split(":")[0]
        page.keyboard.press("ArrowRight")
        there = page.inner_text("#live").split(":")[0]
        assert there != here
        at = places(page, [int(name[2:]) for name in (here, there)])[:, 0]
        assert at[1] > at[0]
        page.keyboard.press("Enter")
        assert page.locator("#selection li").all_inner_texts() == [there]
        page.keyboard.press("Escape")
        assert "No samples" in page.inner_text("#selection-note")

        page.fill("#search", "ID001")
        page.wait_for_selector("#search-note:has-text('10 matches')")
        assert page.locator("#overlay .match").count() == 10
        page.press("#search", "Enter")
        assert page.locator("#selection li").all_inner_texts() == [f"id{i:04d}" for i in range(10, 20)]
        page.fill("#search", "")
        page.click("#clear-selection")

        # The nine that are four times as uncertain, and the one under the pointer.
        assert page.locator("#overlay .ellipse").count() == 9
        scale = np.diff(places(page, [5, 6])[:, 0])[0] / float(result["scores"][6, 0] - result["scores"][5, 0])
        widths = sorted(float(e.get_attribute("rx")) for e in page.locator("#overlay .ellipse").all())
        wanted = sorted(np.sqrt(-2 * np.log(0.05)) * result["score_deviation"].values[:9, 0] * scale)
        np.testing.assert_allclose(widths, wanted, rtol=0.03)
        page.uncheck("#ellipses")
        assert page.locator("#overlay .ellipse").count() == 0
        page.mouse.move(*place(page, 5))
        page.wait_for_selector("#overlay .ellipse.now")

        before, start, scrolled = page.evaluate("[report.place(5), report.place(6)[0], scrollY]")
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(50)
        assert page.evaluate("report.place(5)") == before
        page.evaluate(f"scrollTo(0, {scrolled})")
        page.mouse.move(*place(page, 5))
        page.keyboard.down("Control")
        page.mouse.wheel(0, -120)
        page.keyboard.up("Control")
        picture(page)
        # The point under the pointer stays, the others move away from it.
        np.testing.assert_allclose(page.evaluate("report.place(5)"), before, atol=1)
        assert page.evaluate("report.place(6)[0]") < start
        page.click("#zoom-reset")
        page.click("#zoom-in")
        assert page.evaluate("report.place(5)") != before
        page.click("#zoom-reset")
        assert page.evaluate("report.place(5)") == before

        page.keyboard.press("Escape")
        with page.expect_download() as saved:
            page.click("#save-picture")
        assert saved.value.suggested_filename == "scores-PC1-PC2.png"
        page.fill("#search", "id0042")
        page.press("#search", "Enter")
        with page.expect_download() as saved:
            page.click("#save-selection")
        with open(saved.value.path()) as file:
            assert file.read() == "id0042\n"


def test_hostile_texts_show_as_text(browser, tmp_path):
    ids = [f"{HOSTILE}{i}" for i in range(30)]
    result = made_result(30, 3, ids=ids, source=f"/data/{HOSTILE}.npy", notes=f'["{HOSTILE[:8]}"]', advice=HOSTILE)
    result = result.assign_coords(feature=[f"{HOSTILE}{j}" for j in range(12)])
    table = made_table(tmp_path / "<b>.tsv", **{HOSTILE: [HOSTILE, "<img src=x onerror=alert(1)>", ""] * 10})
    path = write_report(result, tmp_path / "x.html", table=table, title=HOSTILE)
    with opened(browser, path) as page:
        assert page.inner_text("h1") == page.title() == HOSTILE
        assert page.inner_text("#legend-title") == HOSTILE
        names = page.locator(".legend-entry > span").all_inner_texts()
        assert names == ["<img src=x onerror=alert(1)>", HOSTILE, "missing"]
        page.mouse.move(*place(page, 4))
        page.wait_for_selector("#tip:visible")
        assert HOSTILE in page.inner_text("#tip")
        page.fill("#search", "alert")
        page.press("#search", "Enter")
        assert page.locator("#selection li").all_inner_texts() == ids
        assert page.inner_text("#command").startswith("streampca pca '/data/<script>alert(")
        assert page.locator("#loading-plots rect title").first.text_content().startswith(HOSTILE)
        page.locator("#loading-plots rect").first.hover()
        assert page.locator("main script, main b > script, #tip script, img[src=x]").count() == 0


def test_dark_phone_and_paper(browser, study):
    result, path = study
    small = {"viewport": {"width": 380, "height": 760}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, path, **small) as page:
        assert not scrolls_sideways(page)
        assert page.evaluate(ground) == "rgb(16, 18, 20)"
        # A finger scrolls the page by default.
        assert page.get_attribute("button[data-mode='look']", "aria-pressed") == "true"
        dark = picture(page)
        page.tap("#theme")
        assert page.evaluate(ground) == "rgb(251, 251, 249)"
        assert picture(page) != dark
        page.touchscreen.tap(*place(page, 5))
        assert page.locator("#selection li").all_inner_texts() == ["id0005"]
    with opened(browser, path, color_scheme="dark") as page:
        assert not scrolls_sideways(page)
        corner = "(() => [...document.getElementById('canvas').getContext('2d').getImageData(2, 2, 1, 1).data])()"
        assert page.evaluate(corner)[:3] == [22, 25, 28]
        page.emulate_media(media="print")
        picture(page)
        assert page.evaluate(corner)[:3] == [255, 255, 255]
        assert page.locator(".controls").first.is_hidden()
        assert page.locator("table").first.is_visible()
        page.emulate_media(media="screen")
        picture(page)
        assert page.evaluate(corner)[:3] == [22, 25, 28]
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_times_within_a_day_and_components_of_no_numbers(browser, tmp_path):
    result = made_result(48, 3)
    result["scores"][:, 2] = np.nan
    times = np.datetime64("2001-05-06", "m") + 30 * np.arange(48)
    table = made_table(tmp_path / "t.tsv", seen=np.datetime_as_string(times))
    path = write_report(result, tmp_path / "times.html", table=table, colour="seen")
    with opened(browser, path) as page:
        assert page.locator("#legend").inner_text().split() == ["2001-05-06", "00:00", "2001-05-06", "23:30"]
        page.select_option("#axis-x", label="seen")
        picture(page)
        texts = page.locator("#overlay text").all_text_contents()
        assert {"2001-05-06", "12:00", "18:00"} <= set(texts)
        x, y = place(page, 25)
        page.mouse.move(x + 1, y)
        page.wait_for_selector("#tip:visible")
        assert "2001-05-06 12:30" in page.inner_text("#tip")
        page.select_option("#axis-y", label="PC3 (12.5%)")
        assert page.evaluate("report.plot.uy.every(Number.isNaN)")
        assert coloured(page) == 0


def test_two_hundred_thousand_samples(browser, tmp_path):
    result = made_result(200_000, 10)
    path = write_report(result, tmp_path / "large.html")
    assert path.stat().st_size < 30e6
    with opened(browser, path) as page:
        assert coloured(page) > 10_000
        page.mouse.move(*place(page, 123_456))
        page.wait_for_selector("#tip:visible")
        page.fill("#search", "id123456")
        page.press("#search", "Enter")
        assert page.locator("#selection li").all_inner_texts() == ["id123456"]
        # A lasso around all samples: a thousand are listed.
        box = page.locator("#canvas").bounding_box()
        corners = [(70, 20), (box["width"] - 20, 20), (box["width"] - 20, box["height"] - 60), (70, box["height"] - 60)]
        page.mouse.move(box["x"] + 70, box["y"] + 20)
        page.mouse.down()
        for x, y in [*corners[1:], corners[0]]:
            page.mouse.move(box["x"] + x, box["y"] + y)
        page.mouse.up()
        assert "of which the first 1,000 are listed" in page.inner_text("#selection-note")
        assert page.locator("#selection li").count() == 1000


def test_loadings_by_component_and_along_the_genome(browser, study, tmp_path):
    with opened(browser, study[1]) as page:
        assert page.locator(".top:visible caption").all_inner_texts() == ["Largest of PC1"]
        bars = page.locator("#loading-plots svg:visible rect")
        first = bars.first.get_attribute("width")
        page.select_option("#loading-component", label="PC2")
        assert page.locator(".top:visible caption").all_inner_texts() == ["Largest of PC2"]
        assert bars.first.get_attribute("width") != first
        assert bars.count() == 12
        page.click("[data-copy='command']")
        page.wait_for_selector("[data-copy='command']:has-text('Copied')")
    names = {"chromosome": [str(1 + j // 6) for j in range(12)], "variant_id": [f"rs{j}" for j in range(12)]}
    labels = {name: ("variant", np.array(values, object)) for name, values in names.items()}
    result = made_result(20, 2, genotypes=1).rename(feature="variant")
    result = result.assign_coords(labels | {"position": ("variant", 1000 * (1 + np.arange(12) % 6))})
    with opened(browser, write_report(result, tmp_path / "genome.html")) as page:
        page.evaluate("document.getElementById('loading-plots').scrollIntoView({ behavior: 'instant' })")
        dots = page.evaluate(
            """() => {
              const svg = document.querySelector("#loading-plots svg"), box = svg.getBoundingClientRect();
              const scale = box.width / svg.viewBox.baseVal.width;
              const paths = [...svg.querySelectorAll(".points")].map((path) => path.getAttribute("d")).join("");
              const places = [...paths.matchAll(/M([0-9.]+) ([0-9.]+)/g)];
              return places.map(([, x, y]) => [box.left + x * scale, box.top + y * scale]);
            }"""
        )
        assert len(dots) == 12
        highest = int(np.argmin([y for _, y in dots]))
        page.mouse.move(*dots[highest])
        page.mouse.move(dots[highest][0] + 1, dots[highest][1])
        largest = int(np.abs(result["components"].values[0]).argmax())
        assert page.inner_text("#loading-note").split()[0] == f"rs{largest}"
