"""What a finding means, in the page itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relkit.findings import DOCS_PAGES
from relkit.reports.finding_texts import meaning_of
from tests.docs.test_findings import sections


def test_every_finding_has_a_meaning_without_markup() -> None:
    for finding_id in sections():
        meaning = meaning_of(finding_id)
        assert meaning, finding_id
        for paragraph in meaning:
            assert "](" not in paragraph
            assert "**" not in paragraph
            assert "\n" not in paragraph
            assert paragraph.count("`") % 2 == 0, paragraph


def test_links_become_words_and_lists_stay_lists() -> None:
    assert any(len(meaning_of(f"RK-HANG-{n:03}")) == 3 for n in (17,))
    assert meaning_of("RK-HANG-017")[1].startswith("• From `relkit hang analyze`")


@pytest.mark.parametrize("name", ["", "RK-HANG-999", "RK-../../etc/passwd-001", "<b>", "RK-NO-001"])
def test_an_id_that_is_none_means_nothing(name: str) -> None:
    assert meaning_of(name) == ()


def test_the_pages_come_with_the_package() -> None:
    import relkit

    folder = Path(relkit.__file__).parent / "_findings"
    assert {f"{page}.md" for page in DOCS_PAGES.values()} <= {p.name for p in folder.iterdir()}
    assert re.match(r"# ", (folder / "hang.md").read_text(encoding="utf-8"))
