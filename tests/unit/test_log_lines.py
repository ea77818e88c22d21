"""Lines of relkit's own on stderr: left out or not, for people or for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from relkit import log_lines
from relkit.findings import Finding, Report, Status
from relkit.log_lines import Level, Line, say, say_error, say_progress, say_report, warning

VERDICT = Report(
    "hang",
    (
        Finding("RK-HANG-008", Status.FAIL, "rank 2 waits", ranks="2", reasons=("a", "b")),
        Finding("RK-HANG-011", Status.WARN, "no stack of ranks 0-1", ranks="0-1", advice="look"),
    ),
)


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    yield
    log_lines.set_up(Level.INFO, is_json=False)
    log_lines._LINES.job = log_lines._LINES.node = ""


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    return err


def documents(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(capsys).splitlines()]


def say_all() -> None:
    say("watching rank 0-3")
    say(warning("suspicion: rank 2", "suspicion", 2))
    say("warning: the file does not name h5")
    say_progress("wrote x.json")
    say_report(VERDICT)
    say_error("the job hung", "See above.")


@pytest.mark.parametrize(
    ("level", "left"),
    [
        (Level.DEBUG, ["watching", "suspicion", "warning", "wrote"]),
        (Level.INFO, ["watching", "suspicion", "warning", "wrote"]),
        (Level.WARNING, ["suspicion", "warning"]),
        (Level.ERROR, []),
    ],
)
def test_lines_below_the_level_are_left_out_and_verdicts_never(
    capsys: pytest.CaptureFixture[str], level: Level, left: list[str]
) -> None:
    log_lines.set_up(level, is_json=False)
    say_all()
    text = said(capsys)
    words = ("watching", "suspicion", "warning", "wrote")
    assert [word for word in words if word in text] == left
    assert "FAIL  RK-HANG-008  rank 2 waits" in text
    assert text.endswith("relkit: the job hung\n  next: See above.\n")


def test_without_the_options_the_lines_are_as_they_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("4 of 4 ranks captured; see:", files=["/t/report.html", "/t/a\nb"])
    say_progress("wrote /t/x.json")
    assert said(capsys) == (
        "relkit: 4 of 4 ranks captured; see:\n  /t/report.html\n  /t/a\n      b\nwrote /t/x.json\n"
    )


def test_each_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.set_up(Level.INFO, is_json=True)
    log_lines.name_job("job-7", "node3")
    say_all()
    lines = documents(capsys)
    assert [line["level"] for line in lines] == [
        "info", "warning", "warning", "info", "error", "warning", "error",
    ]  # fmt: skip
    assert {(line["job"], line["node"]) for line in lines} == {("job-7", "node3")}
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["message"]
    assert lines[1] | {"event": "suspicion", "rank": 2} == lines[1]
    assert lines[4] | {"event": "RK-HANG-008", "rank": 2, "reasons": ["a", "b"]} == lines[4]
    assert "rank" not in lines[5]
    assert lines[5] | {"ranks": "0-1", "next_step": "look", "status": "warn"} == lines[5]
    assert lines[6]["next_step"] == "See above."


def test_the_files_of_a_line_are_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.set_up(Level.INFO, is_json=True)
    say("see:", files=["/t/a"])
    (line,) = documents(capsys)
    assert line["files"] == ["/t/a"]


def test_what_comes_from_elsewhere_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "x\nrelkit: the job has ended\x1b[31m\u202e"
    say(hostile)
    text = said(capsys)
    assert [line[:8] for line in text.splitlines()] == ["relkit: ", "      re"]
    assert "\x1b" not in text
    log_lines.set_up(Level.INFO, is_json=True)
    say(hostile)
    say_error(hostile, hostile)
    text = said(capsys)
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert json.loads(text.splitlines()[0])["message"] == hostile


def test_a_line_is_its_text() -> None:
    line = warning("rank 2 is slow", "straggler", 2)
    assert line == "rank 2 is slow"
    assert (line.level, line.event, line.rank) == (Level.WARNING, "straggler", 2)
    assert Line("x").level is Level.INFO


def test_a_relkit_that_is_started_by_another_speaks_like_it() -> None:
    log_lines.set_up(Level.WARNING, is_json=True)
    assert log_lines.as_variables() == {"RELKIT_LOG_LEVEL": "warning", "RELKIT_LOG_FORMAT": "json"}
