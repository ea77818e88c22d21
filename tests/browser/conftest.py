"""One headless Chromium for all browser tests; it is gone when the last of them is done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A 1600 x 900 window with its own profile, no network, its console kept."""
    profile = tmp_path_factory.mktemp("chromium")
    options = Options()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--window-size=1600,900",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(shutil.which("chromedriver") or "/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(20)
    driver.set_script_timeout(20)
    started = psutil.Process(service.process.pid)
    family = [started, *started.children(recursive=True)]
    yield driver
    driver.quit()
    _, alive = psutil.wait_procs(family, timeout=10)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)


@pytest.fixture(autouse=True)
def no_process_left() -> None:
    """Chromium starts and ends its own helpers between tests; `browser` sees to their end."""


@pytest.fixture
def page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Callable[..., webdriver.Chrome]]:
    """Opens text as a file of the given kind; afterwards the console must hold no error."""

    def show(text: str, kind: str = "svg", fragment: str = "") -> webdriver.Chrome:
        path = tmp_path / f"shown.{kind}"
        path.write_text(text, encoding="utf-8")
        browser.get(f"{path.as_uri()}{fragment}")
        return browser

    media(browser, "light")
    browser.get("about:blank")
    console(browser)
    yield show
    errors = [entry for entry in console(browser) if entry["level"] == "SEVERE"]
    assert not errors, json.dumps(errors)


def console(browser: webdriver.Chrome) -> list[dict[str, Any]]:
    """What the page has written to its console since the last call."""
    return list(browser.get_log("browser"))  # type: ignore[no-untyped-call]


def media(browser: webdriver.Chrome, scheme: str, kind: str = "") -> None:
    """Emulate a colour scheme ("light" or "dark") and a medium ("" or "print")."""
    features: list[dict[str, Any]] = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})
