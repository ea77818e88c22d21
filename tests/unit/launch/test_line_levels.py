"""Lines that somebody must see are not left out with those that only tell how it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_plan import Verdict
from relkit.launch.job.attempt import Attempt, Channels
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.job.sealed_mailbox import SealedMailbox
from relkit.launch.netcheck.network_check import CheckSettings, NetworkCheck, NodeFailedCheck
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.straggler.verdict_announcer import VerdictAnnouncer
from relkit.log_lines import Level, Line
from relkit.ttp.actions import Limits
from tests.unit.launch.straggler.test_verdict_announcer import straggler


def level_of(line: str) -> Level:
    return line.level if isinstance(line, Line) else Level.INFO


@pytest.mark.parametrize(
    ("verdict", "level"),
    [
        ({"lines": ["8 nodes, no fault"], "is_well": True}, Level.INFO),
        ({"lines": ["node 3 did not take part"], "is_well": False}, Level.WARNING),
        ({"lines": ["could not be done: no memory"]}, Level.WARNING),
        ({"lines": ["node3 leaves the job: dead"], "leave": {"3": "dead"}}, Level.ERROR),
        ({"lines": ["node0 leaves the job: dead"], "leave": {"0": "dead"}}, Level.ERROR),
    ],
)
def test_the_verdict_of_the_network_check(verdict: dict[str, Any], level: Level) -> None:
    said: list[str] = []
    check = NetworkCheck(CheckSettings(), said.append, lambda _report: None)
    try:
        check._follow(Attempt("job"), MemoryMailbox(), verdict)
    except NodeFailedCheck:
        assert "0" in verdict["leave"]
    assert level_of(said[0]) == level


def test_a_straggler() -> None:
    said: list[str] = []
    announcer = VerdictAnnouncer("j", {6: "h1"}, said.append)
    raised = straggler(1.0)
    over = replace(raised, ended_step=2)
    announcer.announce([raised], [raised], 0.0)
    announcer.announce([over], [], 5.0)
    announcer.end()
    assert [level_of(line) for line in said] == [Level.ERROR, Level.WARNING]


@pytest.mark.parametrize(
    ("step", "next_step", "level"),
    [(-1, "", Level.WARNING), (7, "Free space.", Level.WARNING), (7, "", Level.INFO)],
)
def test_what_was_not_persisted(step: int, next_step: str, level: Level) -> None:
    outcome = PersistOutcome(
        Verdict.NOTHING, step, "/ck", "the disk is full", "a fault", 2, next_step=next_step
    )
    assert level_of(outcome.line) is level


class Gone(MemoryMailbox):
    """Links that are broken."""

    def get(self, key: str) -> bytes | None:
        raise ExchangeBroken("no links to the other launchers")


def test_try_to_persist_that_is_off() -> None:
    said: list[str] = []
    host = PersistHost(Limits(), said.append, lambda _pid: None, lambda _outcome, _job: None)
    attempt = Attempt("levels", nodes=2, node=1, channels=Channels(lambda _purpose: Gone(1, 2)))
    try:
        assert host.begin(attempt) == {}
    finally:
        host.close()
    assert said == ["try-to-persist is off: no links to the other launchers"]
    assert level_of(said[0]) is Level.WARNING


def test_somebody_else_writes_to_the_store() -> None:
    said: list[str] = []
    notes = {"key": b"of somebody else"}
    assert SealedMailbox(MemoryMailbox(0, 2, notes), b"k", said.append).get("key") is None
    assert "somebody else can write" in said[0]
    assert level_of(said[0]) is Level.WARNING
