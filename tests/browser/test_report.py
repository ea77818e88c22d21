"""Pictures of stacks in the page of a hang, in a real browser: tabs, both schemes, no script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from relkit.findings import Finding, Report, Status
from relkit.hang_picture.model import HangPicture
from relkit.reports.flames import flame_svg
from relkit.reports.hangs import hang_page
from tests.browser.conftest import media
from tests.reports.trees import hang, hostile

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
Show = Callable[..., webdriver.Chrome]


def text_of_page(hostile_view: bool = False) -> str:
    bad = "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>"
    finding = Finding("RK-HANG-001", Status.FAIL, f"rank 2 waits {bad}", reasons=(bad,))
    facts: dict[str, Any] = {
        "culprits": [2],
        "ranks": [{"rank": r, "host": bad, "pid": r, "state": "S"} for r in range(8)],
    }
    trees = {v: hostile() if hostile_view else hang(v) for v in ("mixed", "py", "cpp")}
    svgs = {v: flame_svg.render(t, title=f"View {v} {bad}") for v, t in trees.items()}
    return hang_page.render(Report("hang", (finding,), facts), HangPicture(), svgs)


def js(driver: webdriver.Chrome, code: str, *values: object) -> Any:  # noqa: ANN401
    return driver.execute_script(code, *values)


def picture(driver: webdriver.Chrome, number: int) -> Any:  # noqa: ANN401
    return driver.find_element(By.CSS_SELECTOR, f"#picture-{number} svg.rk-flame")


def open_tab(driver: webdriver.Chrome, number: int) -> None:
    driver.find_element(By.CSS_SELECTOR, f'label[for="tab-{number}"]').click()
    WebDriverWait(driver, 5).until(
        lambda d: js(d, "return arguments[0].getAttribute('width') == "
                        "arguments[0].parentElement.clientWidth", picture(d, number))
    )  # fmt: skip


def test_every_picture_works_by_itself(page: Show) -> None:
    driver = page(text_of_page(), "html")
    assert [picture(driver, n).is_displayed() for n in (1, 2, 3)] == [True, False, False]
    open_tab(driver, 2)
    assert [picture(driver, n).is_displayed() for n in (1, 2, 3)] == [False, True, False]
    lens = picture(driver, 2).find_element(By.CSS_SELECTOR, "input.rk-lens")
    lens.send_keys("2")
    dim = "return arguments[0].querySelectorAll('.rk-dim').length"
    assert js(driver, dim, picture(driver, 2)) > 0
    assert js(driver, dim, picture(driver, 1)) == 0
    open_tab(driver, 3)
    rect = picture(driver, 3).find_element(By.CSS_SELECTOR, ".rk-box rect")
    rect.click()
    assert "zoom" not in driver.current_url
    open_tab(driver, 1)
    assert picture(driver, 1).find_element(By.CSS_SELECTOR, ".rk-bar").is_displayed()


def test_the_page_is_no_wider_than_its_window(page: Show) -> None:
    driver = page(text_of_page(), "html")
    assert js(driver, "return document.documentElement.scrollWidth <= window.innerWidth")


def test_hostile_text_runs_nothing(page: Show) -> None:
    driver = page(text_of_page(hostile_view=True), "html")
    assert js(driver, "return window.hacked === undefined")
    assert js(driver, "return document.images.length") == 0
    assert js(driver, "return document.querySelectorAll('script').length") == 1


def test_dark_mode_and_print(page: Show) -> None:
    driver = page(text_of_page(), "html")
    code = "return getComputedStyle(document.body).backgroundColor"
    assert js(driver, code) == "rgb(255, 255, 255)"
    media(driver, "dark")
    assert js(driver, code) == "rgb(20, 22, 27)"
    media(driver, "dark", "print")
    assert js(driver, code) == "rgb(255, 255, 255)"
    assert [picture(driver, n).is_displayed() for n in (1, 2, 3)] == [True, True, True]
