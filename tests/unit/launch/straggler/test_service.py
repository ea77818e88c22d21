"""What the search for stragglers asks of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.launch.job.attempt import Attempt, Channels
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.service import Leave, Stop
from relkit.launch.straggler.exclusion import Excluded
from relkit.launch.straggler.service import StragglerService
from tests.unit.launch.elastic.bare import stub


@pytest.mark.parametrize("why", ["", "rank 3 is slow"])
def test_an_excluded_node_leaves(why: str) -> None:
    action = StragglerService(stub(leaves=lambda: why)).takes_over(Attempt("job"), "")
    if not why:
        assert action is None
        return
    assert isinstance(action, Leave)
    assert isinstance(action.why, Excluded)
    assert str(action.why) == "this node leaves the job: rank 3 is slow"


def test_an_attempt_is_watched_by_a_mailbox_that_was_made_before_its_workers() -> None:
    calls: list[object] = []
    stragglers = stub(
        forget_earlier_job=lambda folder, node: calls.append((folder, node)),
        begin=lambda attempt, mailbox: calls.append((attempt, mailbox)),
        pause=lambda: calls.append("pause"),
        close=lambda: calls.append("close"),
    )
    service, mailbox = StragglerService(stragglers), MemoryMailbox()

    def open_mailbox(purpose: str) -> MemoryMailbox:
        calls.append(purpose)
        return mailbox

    attempt = Attempt("job", node=1, job_dir=Path("/d"), channels=Channels(open_mailbox))
    assert service.environment(attempt) == {}
    service.workers_started(attempt)
    assert service.before_stop(attempt, Stop.RESTART) is None
    service.close()
    assert calls == [(Path("/d"), 1), "straggler", (attempt, mailbox), "pause", "close"]
