"""The straggler page in a real browser: it fits, follows the colour scheme, draws its pictures."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import pytest
from selenium import webdriver

from tests.browser.conftest import media
from tests.reports.straggler_jobs import job
from tests.reports.test_straggler_page import page as text_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
Show = Callable[..., webdriver.Chrome]


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("ranks", [8, 1024])
def test_the_page_is_no_wider_than_its_window(page: Show, ranks: int, width: int) -> None:
    driver = page(text_of(job(ranks, 100)), "html")
    before = driver.get_window_size()
    driver.set_window_size(width, 900)
    try:
        fits = "return document.documentElement.scrollWidth <= window.innerWidth"
        assert driver.execute_script(fits)
    finally:
        driver.set_window_size(before["width"], before["height"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_picture_of_each_panel_is_drawn(page: Show, scheme: str) -> None:
    driver = page(text_of(job(64, 100)), "html")
    media(driver, scheme)
    shown = driver.execute_script(
        "return [...document.querySelectorAll('.rk-slow image')]"
        ".filter(i => getComputedStyle(i).display != 'none').map(i => i.getAttribute('class'))"
    )
    assert shown == [scheme, scheme]


def test_labels_stay_inside_their_pictures(page: Show) -> None:
    driver = page(text_of(job(1024, 100)), "html")
    outside = driver.execute_script(
        "const bad = []; for (const svg of document.querySelectorAll('.canvas svg')) {"
        " const frame = svg.getBoundingClientRect();"
        " for (const text of svg.querySelectorAll('text')) {"
        "  const box = text.getBoundingClientRect();"
        "  if (box.left < frame.left - 1 || box.right > frame.right + 1)"
        "   bad.push(text.textContent); } } return bad"
    )
    assert outside == []


def test_the_picture_is_really_decoded(page: Show) -> None:
    driver = page(text_of(job(8, 100)), "html")
    size = driver.execute_async_script(
        "const done = arguments[0], image = new Image();"
        "image.onload = () => done([image.naturalWidth, image.naturalHeight]);"
        "image.onerror = () => done('broken');"
        "image.src = document.querySelector('.rk-slow image').getAttribute('href')"
    )
    href = driver.execute_script(
        "return document.querySelector('.rk-slow image').getAttribute('href')"
    )
    raw = base64.b64decode(href.partition(",")[2])
    assert size == list(struct.unpack(">II", raw[16:24])) == [100, 8]
