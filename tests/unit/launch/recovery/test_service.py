"""What try-to-persist asks of the agent: to leave workers alone that are led through a fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.service import End, Hold, LookOnly, Service
from relkit.launch.recovery.service import RecoveryService
from tests.unit.launch.elastic.bare import job_of

Bare: TypeAlias = Any
ATTEMPT = Attempt("job")


class Kept(Service):
    """Notes what breaks the job off."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    def breaks_off(self, trigger: str) -> None:
        self.triggers.append(trigger)


def led(
    holds: list[bool], *, began: bool, action: OnHang | None = None
) -> tuple[RecoveryService, Kept]:
    """The service while workers are led, as long as it holds."""
    kept = Kept()
    persist: Bare = SimpleNamespace(lost=lambda _rank, _how: None)
    service = RecoveryService(persist, lambda: action)
    recovery: Bare = SimpleNamespace(began=began, holds=lambda *_: holds.pop(0))
    service._recovery = recovery
    job_of(service, kept)
    return service, kept


def test_before_workers_run_there_is_nothing_to_lead() -> None:
    service, kept = led([], began=False)
    service._recovery = None
    assert service.takes_over(ATTEMPT, "rank 0 died") is None
    assert kept.triggers == []


def test_workers_are_held_until_they_are_not_led_any_more() -> None:
    service, kept = led([True, True, False], began=True)
    answers = [service.takes_over(ATTEMPT, "rank 0 died") for _ in range(3)]
    assert answers == [Hold(), Hold(), LookOnly()]
    assert kept.triggers == ["rank 0 died"]


def test_a_failure_that_is_not_theirs_is_left_to_the_others() -> None:
    service, kept = led([False], began=False)
    assert service.takes_over(ATTEMPT, "rank 0 died") is None
    assert kept.triggers == []


@pytest.mark.parametrize("action", [OnHang.ABORT, OnHang.SAVE])
def test_a_hang_that_was_saved_may_end_the_job(action: OnHang) -> None:
    service, kept = led([False], began=True, action=action)
    done = service.takes_over(ATTEMPT, "")
    if action is OnHang.ABORT:
        assert isinstance(done, End)
        assert str(done.why) == "the job hung, was saved and ended (--on-hang abort)"
    else:
        assert done == LookOnly()
    assert kept.triggers == ["a fault that try-to-persist has handled"]
