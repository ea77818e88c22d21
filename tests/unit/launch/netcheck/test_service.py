"""What the network check has the nodes of a job do."""

from __future__ import annotations

from typing import Any

import pytest

from relkit.launch.job.attempt import Attempt
from relkit.launch.job.service import Leave, MeetAgain
from relkit.launch.netcheck.network_check import NodeFailedCheck, TooFewNodes
from relkit.launch.netcheck.service import NetcheckService

ATTEMPT = Attempt("job")


class Check:
    """A check that ends as a test wants."""

    def __init__(self, end: bool | Exception) -> None:
        self.end = end
        self.forgotten = 0

    def passed(self, attempt: Attempt) -> bool:
        assert attempt is ATTEMPT
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def forget(self) -> None:
        self.forgotten += 1


def service_of(end: bool | Exception) -> NetcheckService:
    check: Any = Check(end)
    return NetcheckService(check)


def test_workers_start_where_all_have_passed() -> None:
    assert service_of(True).nodes_met(ATTEMPT) is None


def test_a_node_that_has_failed_leaves_and_the_others_meet_again() -> None:
    why = NodeFailedCheck("this node failed")
    assert service_of(why).nodes_met(ATTEMPT) == Leave(why)
    with pytest.raises(MeetAgain) as again:
        service_of(False).nodes_met(ATTEMPT)
    # The check has said so in lines of its own.
    assert str(again.value) == ""


def test_a_job_with_too_few_nodes_left_ends_and_does_not_only_lose_this_one() -> None:
    with pytest.raises(TooFewNodes):
        service_of(TooFewNodes("h3 failed")).nodes_met(ATTEMPT)


def test_workers_that_run_have_all_nodes_measured_again_before_the_next() -> None:
    check: Any = Check(True)
    NetcheckService(check).before_workers(ATTEMPT)
    assert check.forgotten == 1
