"""Settings that change while a job runs: read back as written, refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import BadInputFile
from relkit.launch.exclusion import Exclusion, order_of, spoken
from relkit.straggler import control
from relkit.straggler.control import Control, Mode
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.live import Change
from relkit.straggler.model import Cause, Subject, Verdict


def test_what_was_not_asked_for_stays_as_the_job_was_started(tmp_path: Path) -> None:
    started = Control(Mode.EXCLUDE, 0.1)
    assert control.read(tmp_path, started) == started
    control.write(tmp_path, {"least_slowdown": 0.2})
    assert control.read(tmp_path, started) == Control(Mode.EXCLUDE, 0.2)
    control.write(tmp_path, {"mode": "off"})
    assert control.read(tmp_path, started) == Control(Mode.OFF, 0.2)
    assert (tmp_path / control.FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"mode": "loud"}', '{"least_slowdown": 0}', '{"least_slowdown": true}',
             '{"least_slowdown": NaN}', "[" * 5000, " " * 5000]
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / control.FILE).write_text(text)
    with pytest.raises(BadInputFile):
        control.read(tmp_path, Control())


def accused(rank: int = 3, confidence: float = 0.95) -> Verdict:
    return Verdict(Subject.RANK, Cause.COMPUTE, 0.2, confidence, 40, 2.5, ("it is slow",), rank)


def test_one_node_leaves_once_and_only_where_that_is_safe() -> None:
    nodes = {0: 0, 3: 1}
    assert Exclusion(1, 2).decide(accused(), nodes)[0] == 1
    assert Exclusion(2, 2).decide(accused(), nodes)[0] == -1
    assert Exclusion(1, 2).decide(accused(0), nodes)[0] == -1
    assert Exclusion(1, 2).decide(accused(confidence=0.8), nodes)[0] == -1
    assert Exclusion(1, 2).decide(accused(9), nodes)[0] == -1
    link = Verdict(Subject.LINK, Cause.NETWORK, 2.0, 0.99, 1, 1.0, (), ends=("a", "b"))
    assert Exclusion(1, 2).decide(link, nodes)[0] == -1
    one = Exclusion(1, 3)
    assert [one.decide(accused(), nodes)[0] for _ in range(2)] == [1, -1]


def test_an_order_is_a_sentence_or_nothing() -> None:
    assert order_of(b'{"why": "slow"}') == "slow"
    for note in (b"", b"[]", b'{"why": 3}', b"\xff"):
        assert order_of(note) == ""


def test_a_line_names_who_why_since_when_and_how_sure() -> None:
    line = spoken(Change(RaisedVerdict(accused(), 50), began=True), "job-1")
    for part in ("rank 3", "slow-compute", "20%", "step 40", "2.5 s", "0.95", "watch job-1"):
        assert part in line
    over = RaisedVerdict(accused(), 50, 90)
    assert "rank 3 is as fast as the others again (step 90)" in spoken(Change(over, False), "j")
