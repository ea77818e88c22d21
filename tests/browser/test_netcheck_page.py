"""The page of a network check in a real browser: it fits, shows figures, and runs nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from relkit.findings import Report
from relkit.netcheck.model import Edge
from relkit.reports import dot
from relkit.reports.networks import netcheck_html, topology_graph
from tests.browser.conftest import media
from tests.reports.test_netcheck_page import FINDING, all_pairs, facts, names

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
Show = Callable[..., webdriver.Chrome]
BAD = "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>"


def text_of_page() -> str:
    slow = {(a, b): 0.4 for a in names(6) for b in names(6) if "node003" in (a, b)}
    rows = [*facts()["nodes"], {"node": BAD, "answered": True, "detail": BAD, "switch": ""}]
    made = facts(nodes=rows)
    edges = [*all_pairs(names(6), slow), Edge(BAD, "node001", 0, bandwidth_gbps=90.0)]
    graph = dot.picture(topology_graph.graph(made))
    return netcheck_html.render(Report("netcheck", (FINDING,), made), edges, graph_svg=graph)


@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_is_no_wider_than_its_window(page: Show, width: int) -> None:
    driver = page(text_of_page(), "html")
    before = driver.get_window_size()
    driver.set_window_size(width, 900)
    try:
        fits = "return document.documentElement.scrollWidth <= window.innerWidth"
        assert driver.execute_script(fits)
    finally:
        driver.set_window_size(before["width"], before["height"])


def test_hostile_names_run_nothing(page: Show) -> None:
    driver = page(text_of_page(), "html")
    assert driver.execute_script("return window.hacked === undefined")
    assert driver.execute_script("return document.images.length") == 0


def test_squares_and_graph_follow_the_colour_scheme(page: Show) -> None:
    driver = page(text_of_page(), "html")
    square = driver.find_element(By.CSS_SELECTOR, ".rk-heat .l0 rect")
    hub = driver.find_element(By.CSS_SELECTOR, ".graph .node.bad path")
    look = "return [getComputedStyle(arguments[0]).fill, getComputedStyle(arguments[1]).fill]"
    light = driver.execute_script(look, square, hub)
    media(driver, "dark")
    dark = driver.execute_script(look, square, hub)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    media(driver, "dark", "print")
    assert driver.execute_script(look, square, hub) == light
