"""docs/reference/findings.md: every finding there is, from the pages that explain them."""

from __future__ import annotations

import re
from pathlib import Path

from relkit.findings import DOCS_PAGES

_FOLDER = Path(__file__).resolve().parents[1] / "docs" / "findings"
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SECTION = re.compile(
    r"^## (RK-[A-Z]+-\d{3}): (.+) \{#(rk-[a-z]+-\d{3})\}\n\n(\*\w+\*\{.*)$", re.MULTILINE
)


def findings_page(made: str) -> str:
    """docs/reference/findings.md as text.

    Args:
        made: the comment that says that the page is made.
    """
    parts = [
        made,
        "# All findings",
        "Every finding that a report can hold, with its status. Each leads to what it means and "
        "what to do.",
    ]
    for page in dict.fromkeys(DOCS_PAGES.values()):
        text = (_FOLDER / f"{page}.md").read_text(encoding="utf-8")
        title = _TITLE.search(text)
        assert title is not None, page
        rows = [
            f"| [`{name}`](../findings/{page}.md#{anchor}) | {status} | {what} |"
            for name, what, anchor, status in _SECTION.findall(text)
        ]
        parts.append(f"## {title[1]}")
        parts.append("\n".join(["| id | status | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"
