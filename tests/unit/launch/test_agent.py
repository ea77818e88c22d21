"""The launcher's agent between two steps of torch's."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

from relkit.launch.agent import MonitoredAgent


class Recovery:
    """Notes what a launcher that is asked to end saves first."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    def save_first(self, name: str) -> None:
        self.saved.append(name)


def test_a_signal_between_the_start_of_workers_and_what_torch_notes_of_them() -> None:
    """It ended in a TypeError, before the workers were ended."""
    agent: Any = MonitoredAgent.__new__(MonitoredAgent)
    worker = SimpleNamespace(global_rank=0, local_rank=0, id=None)
    agent._worker_group = SimpleNamespace(workers=[worker])
    agent._seen_alive_unix_s, agent._recovery = {}, Recovery()
    agent._save_first(signal.SIGTERM)
    assert agent._recovery.saved == ["SIGTERM"]
    assert agent._exit_statuses == {}
    # torch has noted it: a process that is there.
    pid = os.fork()
    if not pid:
        signal.pause()
    try:
        worker.id = pid
        agent._save_first(signal.SIGINT)
        assert list(agent._seen_alive_unix_s) == [0]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
