"""What a look at a Slurm node makes of its checks: a drain, its end, or nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relkit.nodes.model import NodeState
from relkit.slurm.node_check import EPILOG, HEALTH, PROLOG, SlurmCheck, check_node, runner

SCRIPT = Path(__file__).parents[3] / "deploy" / "slurm" / "relkit-node-check"


@dataclass
class FakeSlurm:
    """Nodes in memory, and what was done to them."""

    states: list[NodeState] = field(
        default_factory=lambda: [NodeState(f"h{at}", False) for at in range(12)]
    )
    done: list[tuple[str, ...]] = field(default_factory=list)

    def nodes(self) -> tuple[NodeState, ...]:
        return tuple(self.states)

    def take_out(self, node: str, reason: str) -> None:
        self.done.append(("drain", node, reason))

    def put_back(self, node: str) -> None:
        self.done.append(("resume", node))

    def drained(self, *names: str, reason: str = "relkit RK-LNK-002: slow") -> FakeSlurm:
        self.states = [
            NodeState(s.name, True, reason, time.time()) if s.name in names else s
            for s in self.states
        ]
        return self


def report(*findings: tuple[str, str], status: str = "") -> dict[str, Any]:
    plain = [{"id": name, "status": state, "title": "it is so"} for name, state in findings]
    return {"status": status or (findings[0][1] if findings else "ok"), "findings": plain}


def look(
    slurm: FakeSlurm, linkcheck: dict[str, Any] | None, when: str = HEALTH, *,
    is_real: bool = True, in_use: str = "",
) -> tuple[int, list[str]]:  # fmt: skip
    said: list[str] = []
    check = SlurmCheck(when, "h1", ("linkcheck", "doctor"), is_real)
    reports = {"linkcheck": linkcheck, "doctor": report(("RK-DOC-003", "fail"))}
    return check_node(check, slurm, lambda name: reports[name], in_use, said.append), said


@pytest.mark.parametrize(("when", "code"), [(PROLOG, 1), (EPILOG, 0), (HEALTH, 0)])
def test_a_fault_of_the_node_drains_it_and_only_a_prolog_keeps_the_job_away(
    when: str, code: int
) -> None:
    slurm = FakeSlurm()
    assert look(slurm, report(("RK-LNK-002", "fail")), when)[0] == code
    assert slurm.done == [("drain", "h1", "relkit RK-LNK-002: node_problem it is so")]


@pytest.mark.parametrize("when", [PROLOG, EPILOG, HEALTH])
@pytest.mark.parametrize(
    "linkcheck",
    [None, report(), report(("RK-LNK-002", "warn")), report(("RK-LNK-009", "unknown")),
     report(("RK-DOC-001", "fail")), {"findings": "none"}, {"findings": [3, {}]}],
)  # fmt: skip
def test_what_is_no_proof_or_a_users_problem_drains_nothing(
    when: str, linkcheck: dict[str, Any] | None
) -> None:
    slurm = FakeSlurm()
    code, said = look(slurm, linkcheck, when)
    assert (code, slurm.done) == (0, [])
    assert "user_problem RK-DOC-003: it is so" in said


def test_a_node_comes_back_when_the_check_that_drained_it_passes() -> None:
    slurm = FakeSlurm().drained("h1")
    for no_pass in (None, report(("RK-LNK-002", "fail")), report(status="unknown"), {}):
        look(slurm, no_pass)
        assert not slurm.done
    look(slurm, report(), PROLOG)
    assert not slurm.done, "only the health check puts back"
    look(slurm, report())
    assert slurm.done == [("resume", "h1")]


def test_what_others_or_another_check_have_drained_stays() -> None:
    for reason in ("bad fan", "relkit RK-NET-002: slow", ""):
        slurm = FakeSlurm().drained("h1", reason=reason)
        look(slurm, report())
        assert not slurm.done


def test_many_at_once_are_not_drained_one_after_the_other() -> None:
    slurm = FakeSlurm().drained("h7")
    code, said = look(slurm, report(("RK-LNK-002", "fail")), PROLOG)
    assert (code, slurm.done) == (0, [])
    assert "not drained, as 1 of 12 nodes were within a day" in said[-1]


def test_nothing_is_done_beside_a_job_in_a_dry_run_or_to_an_unknown_node() -> None:
    bad = report(("RK-LNK-002", "fail"))
    slurm = FakeSlurm()
    assert look(slurm, bad, PROLOG, in_use="GPU 0: 9 GiB")[0] == 0
    assert look(slurm, bad, PROLOG, is_real=False)[0] == 0
    slurm.states = slurm.states[2:]
    assert look(slurm, bad, PROLOG)[0] == 0
    assert not slurm.done


def test_checks_share_one_deadline_and_a_late_one_gives_no_report(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    begun_s = time.monotonic()
    run = runner([str(slow)], 0.3)
    assert run("linkcheck") is None
    assert run("doctor") is None
    assert time.monotonic() - begun_s < 30
    quick = [sys.executable, "-c", 'print(\'{"status": "ok"}\')']
    assert runner(quick, 60)("doctor") == {"status": "ok"}


@pytest.mark.parametrize(
    ("context", "ends", "code"),
    [
        ("prolog_slurmd", 1, 1), ("prolog_slurmd", 0, 0), ("prolog_slurmd", 3, 0),
        ("prolog_slurmd", 127, 0), ("epilog_slurmd", 1, 0), ("", 1, 0),
    ],
)  # fmt: skip
def test_the_script_fails_in_a_prolog_and_for_a_nodes_fault_only(
    tmp_path: Path, context: str, ends: int, code: int
) -> None:
    tool = tmp_path / "relkit"
    tool.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\nexit {ends}\n')
    tool.chmod(0o700)
    environ = {
        "PATH": "/usr/bin:/bin", "SLURM_SCRIPT_CONTEXT": context, "RELKIT_COMMAND": str(tool),
    }  # fmt: skip
    done = subprocess.run(["sh", str(SCRIPT)], env=environ, timeout=60, check=False)
    assert done.returncode == code
    when = context.partition("_")[0] or "health"
    said = (tmp_path / "called").read_text()
    assert said == f"slurm check-node --when {when} --drain --limit 45\n"
