"""Text that got past every escape still runs nothing: the browser is told what may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from selenium import webdriver

from relkit.findings import Finding, Report, Status
from relkit.hang_picture.actions import Action
from relkit.hang_picture.model import HangPicture
from relkit.reports import recovery_page
from relkit.reports.drawing.content_policy import add_to_picture
from relkit.reports.flames import flame_svg
from relkit.reports.hangs import hang_page
from relkit.reports.networks import netcheck_html
from relkit.reports.straggler import straggler_page
from relkit.straggler.present.metrics import metrics_of
from relkit.straggler.present.report import straggler_report
from relkit.straggler.transport.history import History
from tests.browser.conftest import console
from tests.reports.straggler_jobs import job
from tests.reports.trees import hang

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
Show = Callable[..., webdriver.Chrome]


def straggler_text(history: History) -> str:
    report = straggler_report(history, argv=(), started=1.79e9)
    return straggler_page.render(report, history, metrics_of(history))


REPORT = Report("hang", (Finding("RK-HANG-001", Status.FAIL, "rank 2 waits HERE"),))
ATTACKS = (
    "<script>document.documentElement.setAttribute('data-hacked', 1)</script>"
    "<img src='x' onerror='document.documentElement.setAttribute(&quot;data-hacked&quot;, 2)'/>"
    "<g onfocus='x()' tabindex='0'/><a href='javascript:x()'>x</a>"
    "<iframe src='data:text/html,x'/><style>body, svg { opacity: 0.5 }</style>"
)
HOLES = {
    "recovery": lambda: recovery_page.render(REPORT),
    "hang": lambda: hang_page.render(
        REPORT,
        HangPicture(notes=("HERE",), actions=(Action(1.79e9, "HERE"),)),
        {v: flame_svg.render(hang(v), title=v) for v in ("mixed", "py", "cpp")},
    ),
    "straggler": lambda: straggler_text(replace(job(8, 100), job_id="HERE")),
    "netcheck": lambda: netcheck_html.render(REPORT, ()),
    "flame": lambda: flame_svg.render(hang("py"), title="HERE"),
    "graph": lambda: add_to_picture(
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><g>HERE</g></svg>'
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_what_is_put_into_a_page_does_not_run(
    browser: webdriver.Chrome, page: Show, name: str
) -> None:
    text = HOLES[name]()
    assert "HERE" in text
    driver = page(text.replace("HERE", ATTACKS), "html" if "<!doctype" in text else "svg")
    hacked = "return document.documentElement.getAttribute('data-hacked')"
    assert driver.execute_script(hacked) is None
    style = "return getComputedStyle(document.body || document.documentElement).opacity"
    assert driver.execute_script(style) == "1"
    refused = [entry["message"] for entry in console(driver)]
    assert any("Content Security Policy" in message for message in refused), refused
