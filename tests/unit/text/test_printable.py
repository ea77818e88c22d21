"""Text from elsewhere, on its way to a terminal or into JSON."""

from __future__ import annotations

import json

import pytest

from relkit.findings import Evidence, Finding, Report, Status
from relkit.output import as_json, as_jsonl, as_text, table
from relkit.text.printable import UNSAFE, printable, printable_json

HOSTILE = "a\x1b]0;owned\x07b\x9b2J\u202ec\ud800d\r\x00\u2028\ne\tf"


def report() -> Report:
    finding = Finding(
        HOSTILE,
        Status.FAIL,
        HOSTILE,
        nodes=HOSTILE,
        reasons=(HOSTILE,),
        evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        advice=HOSTILE,
    )
    return Report("test", (finding,), {"more": HOSTILE, HOSTILE: 1}, argv=(HOSTILE,))


def test_no_unsafe_character_reaches_a_terminal() -> None:
    text = as_text(report())
    assert UNSAFE.sub("", text.replace("\n", "").replace("\t", "")) == text.replace(
        "\n", ""
    ).replace("\t", "")
    text.encode()
    # Only the first line starts at the margin: no other can pass for a finding.
    assert [line for line in text.splitlines()[1:] if not line.startswith("    ")] == []


@pytest.mark.parametrize("make", [as_json, as_jsonl])
def test_json_means_the_same_without_unsafe_characters(make: object) -> None:
    assert callable(make)
    text = make(report())
    assert not UNSAFE.search(text.replace("\n", ""))
    text.encode()
    plain = json.loads(text)
    assert plain.get("more", HOSTILE) == HOSTILE
    assert plain.get("findings", [plain])[0]["title"] == HOSTILE


def test_a_table_has_one_line_a_row() -> None:
    text = table([[HOSTILE, HOSTILE], ["a", "b"]], ("one", "two"))
    lines = text.split("\n")
    assert len(lines) == 3
    assert not any(UNSAFE.search(line) for line in lines)


def test_stand_ins_are_visible() -> None:
    assert printable("\x1b[31m \x7f\x85ok\n") == "\u241b[31m \ufffd\ufffdok\n"
    assert printable_json(json.dumps("\x1b\u202e\u00fc", ensure_ascii=False)) == (
        '"\\u001b\\u202e\u00fc"'
    )
