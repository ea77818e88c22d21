"""The Python snippets of the pages, each section's in the order in which it stands there."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"
_HEADING = re.compile(r"#+ (.*?)( \{#.*\})?$")
_TAB = re.compile(r'=== "(.*)"$')
_FENCE = re.compile(r"( *)```python")
# What is to be replaced by relkit's.
_OTHERS = "DLRover"


def sections() -> dict[tuple[str, str], str]:
    """All Python of a section, by page and heading."""
    found: dict[tuple[str, str], str] = {}
    for path in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        for heading, text in _snippets(path.read_text(encoding="utf-8").splitlines()):
            key = (path.relative_to(DOCS.parent).as_posix(), heading)
            found[key] = found.get(key, "") + text + "\n"
    return found


def _snippets(lines: list[str]) -> Iterator[tuple[str, str]]:
    heading = tab = ""
    rest = iter(lines)
    for line in rest:
        if fence := _FENCE.match(line):
            indent = fence[1]
            code = list(iter(lambda: next(rest), f"{indent}```"))
            if not (indent and tab == _OTHERS):
                yield heading, textwrap.dedent("\n".join(code))
        elif match := _HEADING.match(line):
            heading, tab = match[1], ""
        elif match := _TAB.match(line):
            tab = match[1]


def run(code: str, names: dict[str, Any], train: str = "train()") -> dict[str, Any] | None:
    """Run a section as the body of a function.

    Args:
        names: that it takes for granted.
        train: what stands where the section leaves out the training.

    Returns:
        the names that it has made; None where it has returned.
    """
    code = re.sub(r"\.\.\.(?=  # )", train, code)
    body = textwrap.indent(f"{code}\nreturn locals()", "    ")
    space = dict(names)
    exec(compile(f"def section():\n{body}", "section", "exec"), space)  # noqa: S102
    made: dict[str, Any] | None = space["section"]()
    return made
