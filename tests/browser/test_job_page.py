"""The page of a job in a real browser: it fits, in both schemes, with 8 and 1,024 ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium import webdriver

from relkit.reports.jobs import job_page
from tests.browser.conftest import media
from tests.reports.job_parts import whole

pytestmark = [pytest.mark.browser, pytest.mark.timeout(90)]
Show = Callable[..., webdriver.Chrome]
RANKS = [8, pytest.param(1024, marks=pytest.mark.long)]


@pytest.mark.parametrize("ranks", RANKS)
def test_the_page_is_no_wider_than_its_window_and_follows_the_scheme(
    page: Show, ranks: int
) -> None:
    driver = page(job_page.render(whole(ranks), draw_with_graphviz=False), "html")
    before = driver.get_window_size()
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 22, 27)"}
    try:
        for width in (1280, 400):
            driver.set_window_size(width, 900)
            fits = "return document.documentElement.scrollWidth <= window.innerWidth"
            assert driver.execute_script(fits), width
        for scheme, paper in papers.items():
            media(driver, scheme)
            colour = "return getComputedStyle(document.body).backgroundColor"
            assert driver.execute_script(colour) == paper
    finally:
        driver.set_window_size(before["width"], before["height"])
