"""What a finding means, in the words of its page in the documentation, for pages without a net."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import relkit
from relkit.findings import docs_of

# docs/findings: a link in a checkout, copied into the wheel.
_FOLDER = Path(relkit.__file__).parent / "_findings"
_SECTION = re.compile(r"^## (RK-[A-Z]+-\d{3}): [^\n]*$", re.MULTILINE)
_MEANS = re.compile(r"\*\*Means\.\*\*(.*?)(?=\n\*\*|\Z)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_STRESS = re.compile(r"(?<![\w*`])\*{1,2}([^*`\n]+)\*{1,2}(?![\w*])")
_ITEM = re.compile(r"^[-*] ", re.MULTILINE)


def meaning_of(finding_id: str) -> tuple[str, ...]:
    """Explain a finding, a paragraph each, with `code` between backticks.

    Args:
        finding_id: may come from a file of somebody else's.

    Returns:
        Nothing where the documentation has no such section, or is not installed.
    """
    if not docs_of(finding_id):
        return ()
    return _meanings(docs_of(finding_id).rpartition("/")[2].partition(".")[0]).get(finding_id, ())


@lru_cache
def _meanings(page: str) -> dict[str, tuple[str, ...]]:
    try:
        text = (_FOLDER / f"{page}.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    parts = _SECTION.split(text)[1:]
    sections = zip(parts[::2], parts[1::2], strict=True)
    return {
        name: _paragraphs(means[1]) for name, body in sections if (means := _MEANS.search(body))
    }


def _paragraphs(text: str) -> tuple[str, ...]:
    plain = _STRESS.sub(r"\1", _LINK.sub(r"\1", text))
    blocks = (block.strip() for block in re.split(r"\n\s*\n|\n(?=- )", plain))
    return tuple(_ITEM.sub("• ", " ".join(block.split())) for block in blocks if block)
