"""When what workers have in memory is persisted, and what is said of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from relkit.commands.launch_parts.services import _saved_by
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.service import FlashService
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.phases import Phase, PhaseListener
from tests.unit.launch.elastic.bare import agent_with

ATTEMPT = Attempt("job")


class Slots:
    """Notes what is to be persisted."""

    def __init__(self, newest: int = -1) -> None:
        self.calls: list[object] = []
        self._newest = newest

    def persist(self, trigger: str, by_ttp: SavedStep | None = None) -> None:
        self.calls.append((trigger, by_ttp))

    def wait_collected(self) -> None:
        self.calls.append("wait")

    def newest(self) -> int:
        return self._newest


class Phases(PhaseListener):
    """Notes phases, and what was saved."""

    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        self.calls.append(phase)
        return nullcontext()

    def saved(self, step: int, by: str) -> None:
        self.calls.append((step, by))


def service_of(slots: Any, outcome: object = None) -> FlashService:  # noqa: ANN401
    persist: Any = SimpleNamespace(outcome=outcome)
    service = FlashService(slots, lambda: _saved_by(persist))
    agent = agent_with(service, phases=Phases(slots.calls))
    service.job_begins(agent._job)
    return service


def test_what_try_to_persist_has_saved_is_passed_on() -> None:
    slots, outcome = Slots(), SimpleNamespace(step=7, folder="/ck/iter_0000007")
    service = service_of(slots, outcome)
    service.breaks_off("rank 1 died")
    outcome.step = -1
    service.breaks_off("rank 1 died")
    assert slots.calls == [
        ("rank 1 died", SavedStep(7, "/ck/iter_0000007")),
        ("rank 1 died", None),
    ]


@pytest.mark.parametrize("newest", [-1, 4])
def test_slots_that_are_still_to_be_locked_are_part_of_saving(newest: int) -> None:
    slots = Slots(newest)
    service_of(slots).before_workers(ATTEMPT)
    assert slots.calls == [Phase.SAVE, "wait", *[(4, "memory")] * (newest >= 0)]
