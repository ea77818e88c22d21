"""Settings that change while a job runs: read back as written, refused where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relkit.errors import BadInputFile
from relkit.launch.straggler.exclusion import Exclusion, Order, decode_order, log_line
from relkit.straggler.history_types import RaisedVerdict
from relkit.straggler.model import Cause, Subject, Verdict
from relkit.straggler.transport import control
from relkit.straggler.transport.control_settings import Control, Mode


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def test_what_was_not_asked_for_stays_as_the_job_was_started(tmp_path: Path) -> None:
    started = Control(Mode.EXCLUDE, 0.1)
    assert control.read(tmp_path, started) == started
    control.write(tmp_path, {"min_slowdown": 0.2})
    assert control.read(tmp_path, started) == Control(Mode.EXCLUDE, 0.2)
    control.write(tmp_path, {"mode": "off"})
    assert control.read(tmp_path, started) == Control(Mode.OFF, 0.2)
    assert (tmp_path / control.FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"mode": "loud"}', '{"min_slowdown": 0}', '{"min_slowdown": true}',
             '{"min_slowdown": NaN}', "[" * 5000, " " * 5000]
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, text: str) -> None:
    write_private(tmp_path / control.FILE, text)
    with pytest.raises(BadInputFile):
        control.read(tmp_path, Control())


def accused(rank: int = 3, confidence: float = 0.95) -> Verdict:
    return Verdict(Subject.RANK, Cause.COMPUTE, 0.2, confidence, 40, 2.5, ("it is slow",), rank)


HOSTS = {0: "a", 3: "b"}


def nobody(_node: int) -> bool:
    """The store is elsewhere."""
    return False


def test_one_node_leaves_once_and_only_where_that_is_safe() -> None:
    nodes = {0: 0, 3: 1}

    def left(exclusion: Exclusion, verdict: Verdict) -> int:
        order, why = exclusion.decide(verdict, nodes, HOSTS, nobody)
        assert why
        return order.node if order is not None else -1

    assert left(Exclusion(1, 2), accused()) == 1
    assert left(Exclusion(1, 2), accused(0)) == 0
    assert left(Exclusion(2, 2), accused()) == -1
    assert left(Exclusion(1, 1), accused()) == -1
    assert left(Exclusion(1, 2, restarts_left=0), accused()) == -1
    assert left(Exclusion(1, 2), accused(confidence=0.8)) == -1
    assert left(Exclusion(1, 2), accused(9)) == -1
    link = Verdict(Subject.LINK, Cause.NETWORK, 2.0, 0.99, 1, 1.0, (), ends=("a", "b"))
    assert left(Exclusion(1, 2), link) == -1
    host = Verdict(Subject.HOST, Cause.NETWORK, 2.0, 0.95, 1, 1.0, (), ends=("b",))
    assert left(Exclusion(1, 2), host) == 1
    one = Exclusion(1, 3)
    assert [left(one, accused()) for _ in range(2)] == [1, -1]
    order, why = Exclusion(1, 2).decide(accused(), nodes, HOSTS, lambda node: node == 1)
    assert order is None
    assert "rendezvous store" in why


def test_an_order_is_whole_or_nothing() -> None:
    assert decode_order(Order(2, "slow").encode()) == Order(2, "slow")
    for note in (None, b"", b"[]", b'{"why": 3}', b"\xff", b'{"node": true, "why": "x"}',
                 b'{"node": 1, "why": ""}'):  # fmt: skip
        assert decode_order(note) is None


def test_a_line_names_who_why_since_when_and_how_sure() -> None:
    line = log_line(RaisedVerdict(accused(), 50), "job-1", HOSTS)
    for part in ("rank 3 (host b)", "slow-compute", "20%", "step 40", "2.5 s", "0.95", "job-1"):
        assert part in line
    over = RaisedVerdict(accused(), 50, 90)
    assert "is as fast as the others again (step 90)" in log_line(over, "j", {})
    link = Verdict(Subject.LINK, Cause.NETWORK, 2.0, 0.99, 1, 1.0, (), ends=("a", "b"))
    assert "link a -> b slow-network" in log_line(RaisedVerdict(link, 5), "j", {})


def test_a_confidence_that_misses_a_limit_does_not_look_as_if_it_reached_it() -> None:
    def line(confidence: float) -> str:
        verdict = replace(accused(), confidence=confidence)
        return log_line(RaisedVerdict(verdict, 50), "job-1", HOSTS)

    assert "(confidence 0.89)" in line(0.8996)
    for hundredths in range(101):
        assert f"(confidence {hundredths / 100:.2f})" in line(hundredths / 100)
