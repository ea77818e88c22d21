"""Every finding id of the code has a section of its own, and every section an id in the code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from relkit.findings import DOCS_PAGES, DOCS_VARIABLE, Finding, Status, docs_of
from relkit.output import as_text
from relkit.reports.html import environment

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^## (RK-[A-Z]+-\d{3}): .+ \{#(rk-[a-z]+-\d{3})\}$", re.MULTILINE)
ID = re.compile(r"RK-[A-Z]+-\d{3}")


def ids_in_code() -> set[str]:
    """Every finding id that is a string of its own somewhere in the package."""
    return {
        node.value
        for folder in ("relkit", "commands", "reports")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if ID.fullmatch(node.value)
    }


def sections() -> dict[str, str]:
    """Id -> the place of its section, as docs_of() writes it."""
    return {
        finding: f"docs/findings/{path.name}#{anchor}"
        for path in sorted((ROOT / "docs" / "findings").glob("*.md"))
        for finding, anchor in SECTION.findall(path.read_text())
    }


def test_every_id_has_a_section_and_every_section_an_id() -> None:
    assert sections().keys() == ids_in_code()


def test_no_id_has_two_sections() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "docs" / "findings").glob("*.md"))
    repeated = [name for name, n in Counter(m[0] for m in SECTION.findall(text)).items() if n > 1]
    assert not repeated


def test_every_section_says_what_to_do() -> None:
    for path in (ROOT / "docs" / "findings").glob("*.md"):
        for section in path.read_text().split("\n## ")[1:]:
            for part in ("**Means.**", "**What to do.**"):
                assert part in section, f"{path.name}: {section.splitlines()[0]} has no {part}"


def test_the_overview_lists_every_id() -> None:
    overview = (ROOT / "docs" / "reference" / "findings.md").read_text()
    linked = dict(re.findall(r"\[`(RK-[A-Z]+-\d{3})`\]\(\.\./(findings/[^)]+)\)", overview))
    assert linked == {i: place.removeprefix("docs/") for i, place in sections().items()}


def test_a_report_points_to_the_section() -> None:
    for finding, place in sections().items():
        assert docs_of(finding) == place
    assert docs_of("RK-NOSUCH-001") == ""
    assert {i.split("-")[1] for i in sections()} == set(DOCS_PAGES)


def test_with_a_site_the_id_is_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("RK-HANG-008", Status.FAIL, "rank 2 waits")
    link = environment().filters["finding_id"]
    assert str(link(finding.id)) == (
        '<code title="docs/findings/hang.md#rk-hang-008">RK-HANG-008</code>'
    )
    monkeypatch.setenv(DOCS_VARIABLE, "https://docs.example/relkit/")
    address = "https://docs.example/relkit/findings/hang.html#rk-hang-008"
    assert finding.to_json()["docs"] == address
    assert str(link(finding.id)) == f'<a href="{address}"><code>RK-HANG-008</code></a>'


@pytest.mark.parametrize("site", ["", "javascript:alert(1)//", "docs.example"])
def test_only_a_web_or_file_address_becomes_a_link(
    monkeypatch: pytest.MonkeyPatch, site: str
) -> None:
    monkeypatch.setenv(DOCS_VARIABLE, site)
    assert docs_of("RK-HANG-008") == "docs/findings/hang.md#rk-hang-008"


def test_the_table_names_the_address_only_where_it_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    from relkit.findings import Report

    report = Report(
        "hang",
        (
            Finding("RK-HANG-008", Status.FAIL, "rank 2 waits"),
            Finding("RK-STK-014", Status.OK, "merged"),
        ),
    )
    assert "see:" not in as_text(report)
    monkeypatch.setenv(DOCS_VARIABLE, "file:///srv/docs")
    lines = as_text(report).splitlines()
    assert [line for line in lines if "see:" in line] == [
        "    see: file:///srv/docs/findings/hang.html#rk-hang-008"
    ]
