"""The site builds without a warning, and works in a browser from the disk, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import browser, no_process_left

__all__ = ["browser", "no_process_left"]  # fixtures: one headless Chromium, and its helpers' leave

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ("file:", "data:", "blob:", "about:")
VISIBLE = """
return Array.from(document.querySelectorAll('.rk-box'))
  .filter(box => getComputedStyle(box).display !== 'none').length;
"""


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning, such as a link to nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.timeout(180)
def test_every_page_is_there_and_names_no_host_but_its_own(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    sources = [p for p in (ROOT / "docs").rglob("*.md") if "theme" not in p.parts]
    assert len(pages) >= len(sources)
    for page in pages:
        text = page.read_text()
        for attribute in ('src="http', 'src="//', 'rel="preconnect"', "fonts.googleapis"):
            assert attribute not in text, f"{page.name} fetches something: {attribute}"


@pytest.fixture
def driver(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser with its network log on; afterwards no request has left the machine."""
    browser.execute_cdp_cmd("Network.enable", {})
    requests(browser)
    yield browser
    asked = requests(browser)
    browser.get("about:blank")
    assert asked, "the log of requests is empty: nothing was looked at"
    assert not [url for url in asked if not url.startswith(LOCAL)]


def requests(browser: webdriver.Chrome) -> list[str]:
    """Addresses that were asked for since the last call."""
    log: list[dict[str, Any]] = browser.get_log("performance")  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in log]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_the_flame_picture_is_live_on_the_page(site: Path, driver: webdriver.Chrome) -> None:
    driver.get((site / "first-hang.html").as_uri())
    frame = driver.find_element(By.CSS_SELECTOR, ".flame iframe")
    driver.execute_script("arguments[0].scrollIntoView()", frame)
    driver.switch_to.frame(frame)
    wait = WebDriverWait(driver, 20)
    wait.until(lambda d: d.execute_script(VISIBLE) > 5)
    before = driver.execute_script(VISIBLE)
    suspect = driver.find_element(By.CSS_SELECTOR, '.rk-box[data-label^="Loader.next_batch@"]')
    suspect.find_element(By.CSS_SELECTOR, "rect").click()
    wait.until(lambda d: d.execute_script(VISIBLE) < before)
    ActionChains(driver).send_keys(Keys.ESCAPE).perform()
    wait.until(lambda d: d.execute_script(VISIBLE) == before)
    driver.switch_to.default_content()


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.timeout(120)
def test_the_search_works_from_the_disk(site: Path, driver: webdriver.Chrome) -> None:
    driver.get((site / "index.html").as_uri())
    field = driver.find_element(By.CSS_SELECTOR, "input[data-md-component=search-query]")
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys("RK-HANG-008")
    found = ".md-search-result__item a[href*='rk-hang-008']"
    WebDriverWait(driver, 20).until(lambda d: d.find_elements(By.CSS_SELECTOR, found))


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_the_theme_switch_takes_the_flame_picture_along(
    site: Path, driver: webdriver.Chrome
) -> None:
    driver.get((site / "first-hang.html").as_uri())
    assert paper(driver, "default") != paper(driver, "slate")


def paper(driver: webdriver.Chrome, scheme: str) -> str:
    """The colour behind the flame picture, once the page has switched to a colour scheme."""
    driver.execute_script(
        "document.querySelector(`input[data-md-color-scheme=${arguments[0]}]`).click()", scheme
    )
    wait = WebDriverWait(driver, 20)
    wait.until(lambda d: d.execute_script("return document.body.dataset.mdColorScheme") == scheme)
    frame = driver.find_element(By.CSS_SELECTOR, ".flame iframe")
    driver.execute_script("arguments[0].scrollIntoView()", frame)
    driver.switch_to.frame(frame)
    wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, ".rk-paper"))
    fill = driver.execute_script(
        "return getComputedStyle(document.querySelector('.rk-paper')).fill"
    )
    driver.switch_to.default_content()
    return str(fill)


SIDEWAYS = """
return [document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth];
"""


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.timeout(400)
@pytest.mark.parametrize("width_px", [400, 1280])
def test_no_page_scrolls_sideways(site: Path, driver: webdriver.Chrome, width_px: int) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    too_wide = {}
    try:
        for page in sorted(site.rglob("*.html")):
            if "outputs" in page.parts or "pictures" in page.parts:
                continue
            driver.get(page.as_uri())
            html, body, window = driver.execute_script(SIDEWAYS)
            if max(html, body) > window:
                too_wide[str(page.relative_to(site))] = max(html, body)
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert too_wide == {}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("upgrade", "quickstart.html"),
        ("uninstall", "quickstart.html"),
        ("notify", "metrics.html"),
        ("dashboard", "metrics.html"),
        ("slack", "metrics.html"),
        ("NCCL_DEBUG", "troubleshooting.html"),
    ],
)
def test_what_people_search_for_stands_in_a_heading(site: Path, word: str, page: str) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    named = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if word.lower() in entry["title"].lower()
    }
    assert page in named
