"""Lines of relkit's own on stderr: left out or not, for people or for machines."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from relkit import log_lines
from relkit.findings import Finding, Report, Status
from relkit.log_lines import (
    Level,
    Line,
    say,
    say_as_it_is,
    say_error,
    say_progress,
    say_report,
    warning,
)

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


def test_what_torch_says_of_a_failure_is_one_object_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "train.py FAILED\n---\n  rank : 1 \x1b[31m"
    log_lines.set_up(Level.ERROR, is_json=False)
    say_as_it_is(text)
    assert said(capsys) == "train.py FAILED\n---\n  rank : 1 \u241b[31m\n"
    log_lines.set_up(Level.ERROR, is_json=True)
    say_as_it_is(text)
    (line,) = documents(capsys)
    assert (line["level"], line["message"]) == ("error", text)


def test_a_line_is_its_text() -> None:
    line = warning("rank 2 is slow", "straggler", 2)
    assert line == "rank 2 is slow"
    assert (line.level, line.event, line.rank) == (Level.WARNING, "straggler", 2)
    assert Line("x").level is Level.INFO


def test_a_relkit_that_is_started_by_another_speaks_like_it() -> None:
    log_lines.set_up(Level.WARNING, is_json=True)
    assert log_lines.as_variables() == {"RELKIT_LOG_LEVEL": "warning", "RELKIT_LOG_FORMAT": "json"}


class Broken(io.RawIOBase):
    """A stream whose reader has gone, or whose disk is full."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def writable(self) -> bool:
        return True

    def write(self, _data: object) -> int:
        raise OSError(self.number, os.strerror(self.number))


def stderr_of(raw: Any, encoding: str = "utf-8") -> io.TextIOWrapper:  # noqa: ANN401
    """As Python makes it: by line, and with what cannot be encoded escaped."""
    return io.TextIOWrapper(
        raw, encoding, "backslashreplace", line_buffering=True, write_through=True
    )


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EAGAIN])
@pytest.mark.parametrize("is_json", [False, True])
def test_lines_that_nobody_can_read_are_nothing_to_the_job(
    monkeypatch: pytest.MonkeyPatch, number: int, is_json: bool
) -> None:
    log_lines.set_up(Level.INFO, is_json=is_json)
    monkeypatch.setattr(sys, "stderr", stderr_of(Broken(number)))
    say_all()


def test_lines_of_a_closed_stream_are_nothing_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = stderr_of(io.BytesIO())
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    say_all()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252"])
@pytest.mark.parametrize("hostile", ["\xe9\xff", "\u20ac", "\U0001f525", "\ud800", "\x85\u2028\n"])
def test_json_is_json_whatever_the_terminal_can_show(
    monkeypatch: pytest.MonkeyPatch, encoding: str, hostile: str
) -> None:
    log_lines.set_up(Level.INFO, is_json=True)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", stderr_of(raw, encoding))
    say(hostile, files=[hostile])
    (line,) = raw.getvalue().splitlines()
    plain = json.loads(line)
    assert (plain["message"], plain["files"]) == (hostile, [hostile])
