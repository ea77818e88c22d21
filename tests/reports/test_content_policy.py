"""What a page's policy allows is what relkit put into it, and nothing besides."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from relkit.findings import Finding, Report, Status
from relkit.hang_picture.model import HangPicture
from relkit.reports import recovery_page
from relkit.reports.drawing.content_policy import add_to_picture, policy
from relkit.reports.flames import flame_svg
from relkit.reports.hangs import hang_page
from relkit.reports.networks import netcheck_html
from tests.reports.trees import hang

SVG, XHTML = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xhtml}"


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def allowed(value: str, directive: str) -> set[str]:
    parts = dict(part.split(" ", 1) for part in value.split("; "))
    return set(parts[directive].split())


class Page(HTMLParser):
    """The policy, and the texts of styles and scripts, as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.policy = ""
        self.order: list[str] = []
        self.texts: dict[str, set[str]] = {"style": set(), "script": set()}
        self._open = ""
        self.feed(text.replace("<![CDATA[", "").replace("]]>", ""))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.order.append(tag)
        self._open = tag
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            assert not self.policy
            self.policy = dict(attrs)["content"] or ""
            assert not {"style", "script", "link", "img"} & set(self.order)

    def handle_data(self, data: str) -> None:
        if self._open in self.texts:
            self.texts[self._open].add(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


def check(page: Page, scripts: int) -> None:
    assert allowed(page.policy, "default-src") == {"'none'"}
    wanted = {digest(text) for text in page.texts["script"]} or {"'none'"}
    assert allowed(page.policy, "script-src") == wanted
    assert allowed(page.policy, "style-src-elem") == {digest(t) for t in page.texts["style"]}
    assert len(page.texts["script"]) == scripts


def test_a_page_allows_its_own_style_and_script() -> None:
    report = Report("hang", (Finding("RK-HANG-001", Status.FAIL, "rank 2 waits"),))
    svgs = {view: flame_svg.render(hang(view), title=view) for view in ("mixed", "py", "cpp")}
    check(Page(hang_page.render(report, HangPicture(), svgs)), 1)
    check(Page(hang_page.render(report, HangPicture(), {})), 0)
    check(Page(recovery_page.render(report)), 0)
    check(Page(netcheck_html.render(report, ())), 0)


def test_a_picture_allows_its_own_style_and_script() -> None:
    root = ET.fromstring(flame_svg.render(hang("py"), title="x"))  # noqa: S314
    meta = root[0].find(f"{XHTML}head/{XHTML}meta")
    assert meta is not None
    value = meta.get("content") or ""
    for tag, directive in (("style", "style-src-elem"), ("script", "script-src")):
        (element,) = root.iter(f"{SVG}{tag}")
        assert allowed(value, directive) == {digest(element.text or "")}


def test_a_graph_of_graphviz_allows_nothing() -> None:
    text = '<?xml version="1.0"?>\n<!-- x -->\n<svg width="1"\n xmlns="http://www.w3.org/2000/svg">'
    with_policy = add_to_picture(f"{text}<g/></svg>")
    meta = ET.fromstring(with_policy)[0].find(f"{XHTML}head/{XHTML}meta")  # noqa: S314
    assert meta is not None
    assert meta.get("content") == policy()
    assert "'unsafe-inline'" not in re.sub(r"style-src-attr [^;]*", "", policy())
