"""The page in a real browser: fits a phone, loads nothing, complains about nothing, works by keyboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.assessments import assessment, comparison, estimate, unlearned
from tests.footprints import calibrated, checkpoint, record

from vestige.contracts import Undefined
from vestige.footprint.records import FootprintSettings
from vestige.report.footprint.page import write_footprint_report
from vestige.report.html import write_report

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def _browser_path() -> str | None:
    given = os.environ.get("VESTIGE_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = _browser_path()
    if path is None:
        pytest.skip("no Chromium found: install it or set VESTIGE_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of usual records, one of awkward ones, one of a footprint, one of two with long names."""
    folder = tmp_path_factory.mktemp("pages")
    none = Undefined(undefined="no retrained model")
    usual = [
        assessment(
            unlearned("simnpo"),
            unlearned("gradascent", decision="infeasible", accuracy=-0.1),
            comparisons=(comparison("simnpo", "gradascent"),),
        ),
        assessment(unlearned(decision=none), has_oracle=False, name="no oracle", gate="gate not run"),
    ]
    options = tuple(f"option_{number}_{'long_' * 12}" for number in range(8))
    awkward = [
        assessment(
            *(unlearned(f"method-{number}", decision="no benefit", intents=options) for number in range(8)),
            unlearned("<script>document.title='x'</script>\n🧹", unstable=True, intents=options),
            unlearned("x" * 10_000, decision=Undefined(undefined="y" * 300), intents=options),
            intents=options,
            options=150,
            name="n" * 300,
            noise={"noise_full.F": estimate("one seed"), "noise_oracle.F": estimate("one seed")},
            caveats=("z" * 400,),
        )
    ]
    measured = record(checkpoint("RMU", calibrated=calibrated()), settings=FootprintSettings(calibrate=True))
    long = {f"{role}_{'corpus' * 12}": role for role in ("forget", "adjacent", "generic")}
    shifts = dict(zip(long, (30.0, 8.0, 0.4), strict=True))
    several = [
        record(checkpoint("m" * 200, shifts, roles=long), name="n" * 300),
        record(checkpoint("m" * 200 + "+noise", shifts, roles=long, half=9.0)),
    ]
    return {
        "footprint": write_footprint_report([measured], folder / "footprint.html"),
        "footprints": write_footprint_report(several, folder / "footprints.html"),
        "usual": write_report(usual, folder / "usual.html"),
        "awkward": write_report(awkward, folder / "awkward.html"),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["usual", "awkward", "footprint", "footprints"])
def test_it_fits_and_is_silent(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        """width => [...document.querySelectorAll('body *')]
            .filter(item => !item.closest('.scroll') && !item.closest('svg') && !item.closest('.skip'))
            .filter(item => item.getBoundingClientRect().right > width + 1)
            .map(item => item.outerHTML.slice(0, 80))""",
        width,
    )
    assert outside == []
    assert page.title() != "x"
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["usual", "footprint"])
def test_text_stands_out_from_its_background(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(pages[name].as_uri())
    ratios = page.evaluate(
        """() => {
            const shade = text => {
                const parts = text.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
                    .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
                return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
            };
            const paper = shade(getComputedStyle(document.body).backgroundColor);
            const found = {};
            const kinds = 'p, td, th, dd, dt, a, .chip, .note, summary, svg text';
            for (const item of document.querySelectorAll(kinds)) {
                const style = getComputedStyle(item);
                const ink = shade(item.closest('svg') ? style.fill : style.color);
                const pair = [ink, paper].sort((a, b) => b - a);
                found[item.tagName + '.' + item.className] = (pair[0] + 0.05) / (pair[1] + 0.05);
            }
            return found;
        }"""
    )
    assert len(ratios) > 8
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}
    page.close()


def test_wide_tables_scroll_by_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages["usual"].as_uri())
    region = page.locator(".scroll:has(table.data)").first
    region.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("item => item.scrollLeft > 0", arg=region.element_handle())
    assert region.get_attribute("aria-labelledby")
    page.close()


def test_the_tree_for_screen_readers_names_figures_and_headings(browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["usual"].as_uri())
    assert page.get_by_role("heading", level=1).count() == 1
    figures = page.get_by_role("img", name="Remaining distance on deleted training rows")
    assert figures.count() == 1
    assert page.get_by_role("table").count() > 4
    page.close()


def test_printing_shows_what_is_folded(browser: Any, pages: dict[str, Path]) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(pages["usual"].as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    hidden = page.evaluate(
        """() => [...document.querySelectorAll('details:not([open]) table')]
            .filter(item => !item.checkVisibility({contentVisibilityAuto: true})).length"""
    )
    assert hidden == 0
    page.close()
