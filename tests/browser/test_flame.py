"""The flame SVG in a real browser: what a person sees, clicks and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from relkit.reports.drawing.palette import Family, fill
from relkit.reports.flames import flame_svg
from relkit.reports.merged_files import TITLES
from relkit.stacks.tree import StackTree
from tests.browser.conftest import media
from tests.reports.trees import Stack, grow, hang, hostile, ranks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
Show = Callable[..., webdriver.Chrome]

OVERFLOW = """
const out = [];
for (const g of document.querySelectorAll('.rk-box')) {
  if (getComputedStyle(g).display === 'none') continue;
  const width = Number(g.querySelector('rect').getAttribute('width'));
  let left = 0, right = width;
  for (const text of g.querySelectorAll('text')) {
    const box = text.getBBox();
    if (text.classList.contains('rk-mark')) right = box.x; else left = box.x + box.width;
    if (box.x < 0 || box.x + box.width > width + 0.5) out.push(text.textContent);
  }
  if (left > right + 0.5) out.push('overlap: ' + g.textContent);
}
return out;
"""
COVERED = """
const title = document.querySelector('.rk-h1').getBoundingClientRect();
return Array.from(document.querySelector('.rk-bar').children).filter(function (tool) {
  const box = tool.getBoundingClientRect();
  return box.left < title.right + 4 && title.left < box.right
    && box.top < title.bottom && title.top < box.bottom;
}).map(tool => tool.className);
"""
SEEN = """
return Array.from(document.querySelectorAll('.rk-box'))
  .filter(g => getComputedStyle(g).display !== 'none' && !g.classList.contains('rk-dim'))
  .map(g => g.getAttribute('data-label'));
"""


def draw(tree: StackTree) -> str:
    return flame_svg.render(tree, title="Stacks of all ranks", subtitle="job 41")


def js(driver: webdriver.Chrome, code: str, *values: object) -> Any:  # noqa: ANN401
    return driver.execute_script(code, *values)


def box(driver: webdriver.Chrome, func: str) -> Any:  # noqa: ANN401
    return driver.find_element(By.CSS_SELECTOR, f'.rk-box[data-label^="{func}@"]')


def seen(driver: webdriver.Chrome) -> set[str]:
    return {label.split("@")[0] for label in js(driver, SEEN)}


def said(driver: webdriver.Chrome) -> str:
    return str(driver.find_element(By.CSS_SELECTOR, ".rk-said").get_attribute("textContent"))


def press(driver: webdriver.Chrome, *keys: str) -> None:
    ActionChains(driver).send_keys(*keys).perform()


def type_into(driver: webdriver.Chrome, name: str, text: str) -> None:
    driver.find_element(By.CSS_SELECTOR, f"input.rk-{name}").click()
    everything = ActionChains(driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL)
    everything.send_keys(text or Keys.BACKSPACE).perform()


def test_a_click_zooms_escape_goes_back_and_the_address_remembers(page: Show) -> None:
    driver = page(draw(hang("py")))
    full = js(driver, "return document.querySelector('.rk-paper').getBBox().width") - 32
    assert seen(driver) >= {"next_batch", "backward", "_beat"}
    box(driver, "next_batch").find_element(By.CSS_SELECTOR, "rect").click()
    assert seen(driver) == {"<module>", "main", "train", "next_batch", "acquire"}
    width = float(box(driver, "next_batch").find_element(By.CSS_SELECTOR, "rect")
                  .get_attribute("width") or 0)  # fmt: skip
    assert width == pytest.approx(full - 1, abs=1)
    assert " \u203a ".join(("all", "<module>", "main", "train", "next_batch")) in str(
        driver.find_element(By.CSS_SELECTOR, ".rk-detail").text
    )
    address = driver.current_url
    assert "#zoom=" in address
    press(driver, Keys.ESCAPE)
    assert "backward" in seen(driver)
    driver.get("about:blank")
    driver.get(address)
    assert "backward" not in seen(driver)
    driver.find_element(By.CSS_SELECTOR, ".rk-reset").click()
    assert "backward" in seen(driver)


def test_search_counts_and_marks_what_it_finds(page: Show) -> None:
    driver = page(draw(hang("cpp")))
    type_into(driver, "search", "^Py(Eval|Object)_")
    assert said(driver) == "6 matches"
    # All six are inside the folded interpreter chain, so that box is the one to light up.
    found = driver.find_elements(By.CSS_SELECTOR, ".rk-fold.rk-found")
    assert len(found) == 1
    type_into(driver, "search", "gloo(")
    assert "(plain text)" in said(driver)
    type_into(driver, "search", "")
    assert said(driver) == ""


def test_the_lens_lights_one_ranks_path_and_dims_the_rest(page: Show) -> None:
    driver = page(draw(hang("py", 100_000, "31337")))
    type_into(driver, "lens", "31337")
    assert seen(driver) >= {"next_batch", "acquire", "main"}
    assert said(driver) == "rank 31337: 10 frames"
    assert "backward" not in seen(driver)
    opacity = js(driver, "return getComputedStyle(arguments[0]).opacity", box(driver, "backward"))
    assert float(opacity) < 0.3
    type_into(driver, "lens", "0-3,70000")
    assert "backward" in seen(driver)
    assert "next_batch" not in seen(driver)
    type_into(driver, "lens", "31335-31339:2")
    assert "next_batch" in seen(driver)
    type_into(driver, "lens", "31336-31340:2")
    assert "next_batch" not in seen(driver)
    type_into(driver, "lens", "100000")
    assert said(driver) == "no such rank of 100,000"
    type_into(driver, "lens", "x")
    assert said(driver) == "no rank list"


def test_the_lens_knows_absent_ranks(page: Show) -> None:
    driver = page(draw(hang("py", 16, present=ranks("0-4,8-15"))))
    type_into(driver, "lens", "6")
    assert said(driver) == "absent: no dump"
    assert driver.find_element(By.CSS_SELECTOR, ".rk-absent").is_displayed()


def test_the_keyboard_alone_is_enough(page: Show) -> None:
    driver = page(draw(hang("py")))
    press(driver, "/")
    assert js(driver, "return document.activeElement.className") == "rk-search"
    press(driver, "beat", Keys.ESCAPE, Keys.ESCAPE)
    assert said(driver) == ""
    press(driver, "r")
    assert js(driver, "return document.activeElement.className") == "rk-lens"
    press(driver, Keys.ESCAPE)
    press(driver, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    here = driver.find_element(By.CSS_SELECTOR, ".rk-here").get_attribute("data-label")
    assert (here or "").startswith("train@/home/ada/gpt/examples/train.py:97@")
    press(driver, Keys.ENTER)
    assert "next_batch" not in seen(driver)


def test_interpreter_chains_unfold_on_a_click(page: Show) -> None:
    driver = page(draw(hang("cpp")))
    assert "_PyEval_Vector" not in seen(driver)
    driver.find_element(By.CSS_SELECTOR, ".rk-fold rect").click()
    assert "_PyEval_Vector" in seen(driver)
    assert js(driver, OVERFLOW) == []
    driver.find_element(By.CSS_SELECTOR, ".rk-fold rect").click()
    assert "_PyEval_Vector" not in seen(driver)


@pytest.mark.parametrize("width", [700, 1600, 2400])
@pytest.mark.parametrize("name", ["py", "cpp", "mixed", "hostile", "many"])
def test_no_label_leaves_its_box(page: Show, name: str, width: int) -> None:
    many = [
        Stack((("main", "m.c:1"), (f"namespace_{i % 9}::function_{i}(int)", "/a/m.c:2")),
              ranks(str(i % 64)))
        for i in range(300)
    ]  # fmt: skip
    trees: dict[str, Callable[[], StackTree]] = {
        "hostile": hostile,
        "many": lambda: grow("cpp", 64, many),
    }
    tree = trees[name]() if name in trees else hang(name)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver = page("<svg xmlns='http://www.w3.org/2000/svg'/>")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        driver = page(draw(tree))
        assert js(driver, OVERFLOW) == []
        for tool in ("linear", "flip"):
            driver.find_element(By.CSS_SELECTOR, f".rk-{tool}").click()
            assert js(driver, OVERFLOW) == []
            tops = js(
                driver,
                """return Array.from(document.querySelectorAll('.rk-box'))
                .filter(g => getComputedStyle(g).display !== 'none')
                .map(g => Number(/ ([-.0-9]+)\\)/.exec(g.getAttribute('transform'))[1]))""",
            )
            assert min(tops) >= 0
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [700, 1179, 1200, 1340, 1400])
def test_the_tools_leave_the_title_free(page: Show, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver = page("<svg xmlns='http://www.w3.org/2000/svg'/>")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        driver = page(flame_svg.render(hang("mixed"), title=TITLES["mixed"], subtitle="job 41"))
        type_into(driver, "search", "(")
        assert "(plain text)" in said(driver)
        assert js(driver, COVERED) == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_scripts_the_labels_fit_as_well(page: Show) -> None:
    for tree in (hang("mixed"), hostile()):
        driver = page(draw(tree).replace(flame_svg.script_block(), ""))
        assert not driver.find_elements(By.CSS_SELECTOR, ".rk-bar")
        assert js(driver, OVERFLOW) == []


def test_scripts_lay_out_what_python_laid_out(page: Show) -> None:
    places = """return Array.from(document.querySelectorAll('.rk-box')).map(g => [
        g.getAttribute('transform'), g.querySelector('rect').getAttribute('width'),
        Array.from(g.querySelectorAll('text')).map(t => t.textContent).join('|')])"""
    text = draw(hang("mixed"))
    plain = js(page(text.replace(flame_svg.script_block(), "")), places)
    size = {"width": 1600, "height": 2000, "deviceScaleFactor": 1, "mobile": False}
    driver = page("<svg xmlns='http://www.w3.org/2000/svg'/>")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert js(page(text), places) == plain
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_mode_and_print_change_the_colours(page: Show) -> None:
    driver = page(draw(hang("py")))
    code = "return getComputedStyle(arguments[0].querySelector('rect')).fill"

    def colour() -> str:
        parts = js(driver, code, box(driver, "next_batch")).removeprefix("rgb(").rstrip(")")
        return "#" + "".join(f"{int(part):02x}" for part in parts.split(","))

    assert colour() == fill(Family.PYTHON, 4, dark=False)
    media(driver, "dark")
    assert colour() == fill(Family.PYTHON, 4, dark=True)
    media(driver, "dark", "print")
    assert colour() == fill(Family.PYTHON, 4, dark=False)
    assert not driver.find_element(By.CSS_SELECTOR, ".rk-bar").is_displayed()


def test_hostile_names_run_nothing(page: Show) -> None:
    driver = page(draw(hostile()))
    type_into(driver, "search", "script")
    for index in range(4):
        rects = driver.find_elements(By.CSS_SELECTOR, ".rk-box rect")
        js(driver, "arguments[0].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))",
           rects[index])  # fmt: skip
        js(driver, "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
           rects[index])  # fmt: skip
    assert js(driver, "return window.hacked === undefined")
    assert js(driver, "return document.querySelectorAll('script, img').length") == 1


def test_the_heading_stays_in_sight(page: Show) -> None:
    deep = grow("py", 4, [Stack(tuple((f"f{i}", "a.py:1") for i in range(120)), ranks("0-3"))])
    driver = page(draw(deep))
    js(driver, "window.scrollTo(0, 1200)")
    top = "return document.querySelector('.rk-h1').getBoundingClientRect().top"
    WebDriverWait(driver, 5).until(lambda _: 0 < js(driver, top) < 60)
