"""The page of a hang in a real browser: it fits, follows the colour scheme, its text its boxes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from relkit.hang.model import JobView
from relkit.reports.flames import flame_svg
from relkit.reports.hangs import hang_page
from relkit.stacks.merge import merge_dumps
from tests.browser.conftest import media
from tests.reports.test_hang_page import page_parts
from tests.unit.hang_picture.hang_folders import blocked_job, died_job, pipeline_job

pytestmark = [pytest.mark.browser, pytest.mark.timeout(90)]
Show = Callable[..., webdriver.Chrome]
JOBS = {
    "four": lambda: blocked_job(4),
    "pipeline": lambda: pipeline_job(16),
    "died": lambda: died_job(4),
    "thousand": lambda: pipeline_job(1024),
}


def text_of(hung: JobView, *, graphviz: bool = False) -> str:
    report, picture = page_parts(hung)
    dumps = [view.dump for view in hung.ranks if view.dump is not None]
    merged = merge_dumps(dumps, hung.world_size)
    svgs = {"py": flame_svg.render(merged.python, title="Python")}
    return hang_page.render(report, picture, svgs, draw_with_graphviz=graphviz)


@pytest.mark.long
@pytest.mark.parametrize("width", [1600, 1280, 400])
@pytest.mark.parametrize("graphviz", [True, False])
@pytest.mark.parametrize("name", JOBS)
def test_the_page_is_no_wider_than_its_window(
    page: Show, name: str, graphviz: bool, width: int
) -> None:
    driver = page(text_of(JOBS[name](), graphviz=graphviz), "html")
    before = driver.get_window_size()
    driver.set_window_size(width, 900)
    try:
        fits = "return document.documentElement.scrollWidth <= window.innerWidth"
        assert driver.execute_script(fits)
    finally:
        driver.set_window_size(before["width"], before["height"])


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_text_stays_inside_its_box_and_its_picture(page: Show, name: str) -> None:
    driver = page(text_of(JOBS[name]()), "html")
    outside = driver.execute_script(
        "const bad = [];"
        "for (const svg of document.querySelectorAll('.canvas svg')) {"
        " const frame = svg.getBoundingClientRect();"
        " for (const text of svg.querySelectorAll('text')) {"
        "  const box = text.getBoundingClientRect();"
        "  const node = text.closest('.node');"
        "  const own = node ? node.querySelector('rect').getBoundingClientRect() : frame;"
        "  if (box.left < own.left - 1 || box.right > own.right + 1 ||"
        "      box.top < own.top - 2 || box.bottom > own.bottom + 2) bad.push(text.textContent);"
        " }"
        "} return bad;"
    )
    assert outside == []


@pytest.mark.parametrize(("scheme", "paper"), [("light", "255, 255, 255"), ("dark", "20, 22, 27")])
def test_both_schemes_and_print(page: Show, scheme: str, paper: str) -> None:
    driver = page(text_of(blocked_job(4)), "html")
    media(driver, scheme)
    colour = "return getComputedStyle(document.body).backgroundColor"
    assert driver.execute_script(colour) == f"rgb({paper})"
    # Text of the drawings against what lies behind it: 4.5 is what WCAG asks for.
    ratios = driver.execute_script(
        "const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;"
        "const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);"
        " return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };"
        "const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);"
        " return (x + 0.05) / (y + 0.05); };"
        "return [...document.querySelectorAll('.rk-waits .node')].flatMap(node =>"
        " [...node.querySelectorAll('text')].map(text => ratio(getComputedStyle(text).fill,"
        "  getComputedStyle(node.querySelector('rect')).fill)));"
    )
    assert len(ratios) > 3
    assert min(ratios) >= 4.5
    media(driver, scheme, "print")
    assert driver.execute_script(colour) == "rgb(255, 255, 255)"


def test_the_flames_have_their_rank_lens(page: Show) -> None:
    driver = page(text_of(blocked_job(4)), "html")
    assert driver.execute_script("return document.querySelectorAll('input.rk-lens').length") == 1


def test_nothing_is_fetched(page: Show) -> None:
    driver = page(text_of(pipeline_job(16), graphviz=True), "html")
    loaded = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert driver.execute_script(loaded) == []


def test_what_scrolls_can_be_reached_and_named_by_keyboard(page: Show) -> None:
    driver = page(text_of(pipeline_job(16)), "html")
    unreachable = driver.execute_script(
        "return [...document.querySelectorAll('main *')].filter(each =>"
        " /auto|scroll/.test(getComputedStyle(each).overflowX) &&"
        " !(each.tabIndex === 0 && each.getAttribute('aria-label'))).map(each => each.outerHTML)"
    )
    assert unreachable == []
    # Each part that the page begins with a link to is there.
    missing = driver.execute_script(
        "return [...document.querySelectorAll('.contents a')].map(link => link.hash)"
        " .filter(place => !document.querySelector(`section${place} h2`))"
    )
    assert missing == []


def test_closed_stacks_are_printed(page: Show) -> None:
    driver = page(text_of(pipeline_job(16)), "html")
    height = (
        "return [...document.querySelectorAll('.class:not([open]) pre')]"
        ".map(each => each.checkVisibility({contentVisibilityAuto: true}))"
    )
    assert set(driver.execute_script(height)) == {False}
    media(driver, "light", "print")
    # The browser takes the new medium over in a frame of its own.
    WebDriverWait(driver, 20).until(lambda shown: set(shown.execute_script(height)) == {True})
