"""MindIO's calls, one by one, on a loop that is not the trainer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.ttp import api as ttp
from tests.cluster.conftest import Start, orphans_come_to_us, start

__all__ = ["orphans_come_to_us", "start"]
JOB = Path(__file__).parent / "jobs" / "api_job.py"


@pytest.mark.long
@pytest.mark.job
@pytest.mark.timeout(120)
def test_a_loop_through_the_calls(start: Start, tmp_path: Path) -> None:
    ends = []
    for name, victim, switch in (("plain", "", "False"), ("killed", "1:30", "True")):
        done = start(
            "launch", "--nproc-per-node", "4", "--max-restarts", "1", "--no-warm-standby",
            "--timeline-path", tmp_path / "t", JOB, tmp_path / name, "50", victim,
            ENABLE_TTP=switch,
        ).wait(80)  # fmt: skip
        assert done.code == 0, done.err
        ends.append({line.split()[3] for line in done.out.splitlines() if line.startswith("rank")})
        assert all(line.split()[2] == switch for line in done.out.splitlines())
    assert "step 29 was saved" in done.err
    assert len(ends[0]) == 1
    assert ends[0] == ends[1]


def test_without_a_launcher_nothing_happens() -> None:
    assert not ttp.get_ttp_switch()
    ttp.init(0, 1, "/nowhere")
    ttp.phase("forward")
    ttp.gradients_ready()
    ttp.begin_update()
    ttp.end_update(1)
    assert ttp.persist(lambda one, *, two: one + two)(1, two=2) == 3


def test_too_little_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELKIT_TTP_CONTROLLERS", "127.0.0.1:1")
    monkeypatch.delenv("ENABLE_TTP", raising=False)
    ttp.init(0, 1, "/nowhere")
    with pytest.raises(UsageProblem, match="not set up before"):
        ttp.persist(lambda: None)()
