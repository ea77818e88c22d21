"""Reasons and findings of a rank that died, from what its host shows of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.findings import Status
from relkit.hang.attribute import attribute
from relkit.hang.death_cause import findings_of, hardware_findings, reasons_of
from relkit.hang.deaths import primary_deaths
from relkit.hang.model import RankView
from relkit.hang.report import hang_report
from relkit.post_mortem.model import DeathEvidence
from tests.unit.hang.hang_builders import job, op, state, view
from tests.unit.post_mortem.test_kernel import SEGFAULT, XID

WORLD = 4
OOM_LINE = "Memory cgroup out of memory: Killed process 1002 (python3) total-vm:82168kB"


def dead(code: int, evidence: DeathEvidence, rank: int = 2, in_flight: bool = False) -> RankView:
    last = op(seq=5, age_s=3, in_flight=in_flight)
    hook = state(rank, WORLD, [] if in_flight else [last], [last] if in_flight else [])
    return view(
        rank, WORLD, hook=hook, alive=False, exit_code=code, failed_unix_s=5.0, death=evidence
    )


def report_ids(*dead_views: RankView) -> list[str]:
    known = {v.rank: v for v in dead_views}
    looked_at = job([known.get(r) or view(r, WORLD) for r in range(WORLD)])
    return [f.id for f in hang_report(looked_at, attribute(looked_at)).findings]


def test_an_oom_kill_is_named_with_its_cgroup_and_limit() -> None:
    evidence = DeathEvidence(
        cgroup="/job/rank2", oom_kills=1, memory_limit_bytes=64 << 20, memory_peak_bytes=64 << 20,
        kernel_lines=(XID, OOM_LINE),
    )  # fmt: skip
    (finding,) = findings_of([dead(-9, evidence)])
    assert (finding.id, finding.status, finding.ranks) == ("RK-DEATH-001", Status.FAIL, "2")
    assert "cgroup /job/rank2, whose limit is 64 MiB" in finding.title
    assert finding.reasons == (OOM_LINE,)
    assert report_ids(dead(-9, evidence))[:2] == ["RK-HANG-002", "RK-DEATH-001"]
    reasons = " ".join(reasons_of(dead(-9, evidence)))
    assert "struck once in its memory cgroup /job/rank2" in reasons


def test_a_sigkill_that_was_no_oom_kill_says_so() -> None:
    told = dead(-9, DeathEvidence(cgroup="/job", oom_kills=0))
    assert findings_of([told]) == []
    # It moved to another cgroup and was killed there before anybody looked.
    moved = dead(-9, DeathEvidence(cgroup="/job", oom_kills=0, kernel_lines=(OOM_LINE,)))
    assert not any("no OOM kill" in reason for reason in reasons_of(moved))
    assert "no OOM kill is counted in its memory cgroup /job" in reasons_of(told)
    unknown = reasons_of(dead(-9, DeathEvidence(cgroup="/job", oom_kills=None)))
    assert not any("OOM" in reason for reason in unknown)


def test_a_crash_has_the_kernels_line_and_the_stack() -> None:
    line = SEGFAULT.replace("18912", "1002")
    evidence = DeathEvidence(
        kernel_lines=(line,), core="/tmp/core.1002", core_stack=("#0 strlen ()", "#1 string_at ()")
    )
    (finding,) = findings_of([dead(-11, evidence)])
    assert finding.id == "RK-DEATH-003"
    assert finding.reasons == (line, "#0 strlen ()", "#1 string_at ()")
    assert "/tmp/core.1002" in finding.advice
    assert "ulimit" in findings_of([dead(-11, DeathEvidence())])[0].advice
    assert any("strlen" in reason for reason in reasons_of(dead(-11, evidence)))


FRAMES = ('  File "train.py", line 3, in <module>', "    raise ValueError", "    ^^^^^^^^")
ABORT = "terminate called without an active exception"


def aborted(*output: str, code: int = -6) -> RankView:
    return dead(code, DeathEvidence(output=output))


def ids_and_title(told: RankView) -> tuple[str, str]:
    (finding,) = findings_of([told])
    return finding.id, finding.title


def test_an_exception_is_named_though_the_process_aborted_on_its_way_out() -> None:
    raised = "ValueError: bad batch"
    plain = aborted("Traceback (most recent call last):", *FRAMES, raised, ABORT)
    told = ids_and_title(plain)
    assert told[0] == "RK-DEATH-005"
    assert f"raised {raised}, and aborted while Python shut down" in told[1]
    # The beginning of a long traceback is gone; Python's own lines about the abort follow.
    long = aborted(*FRAMES, raised, ABORT, "Fatal Python error: Aborted", "<no Python frame>")
    assert ids_and_title(long) == told
    lines = [f"[rank2]: {line}" for line in (*FRAMES, raised, "  a second line", "and a third")]
    assert ids_and_title(aborted("[rank2]: half", *lines, "FATAL: exception not rethrown")) == told
    looked_at = job([plain if r == 2 else view(r, WORLD) for r in range(WORLD)])
    first, second, *_ = hang_report(looked_at, attribute(looked_at)).findings
    assert (first.id, second.id) == ("RK-HANG-002", "RK-DEATH-005")
    # Neither says that native code is broken.
    assert f"raised {raised}, and then aborted" in first.title
    assert "Look at the exception" in first.advice
    assert "native" not in first.advice + second.advice


def test_an_abort_that_is_not_seen_to_follow_an_exception_is_a_crash() -> None:
    raised = "ValueError: bad batch"
    for output in (
        (),
        (ABORT,),
        (*FRAMES, raised),
        (*FRAMES, raised, "step 17: loss 2.3", ABORT),
        (*(f"[rank2]: {line}" for line in (*FRAMES, raised)), "step 17: loss 2.3", ABORT),
        (*FRAMES, ABORT),
        (raised, ABORT),
    ):
        assert ids_and_title(aborted(*output))[0] == "RK-DEATH-003", output
    assert ids_and_title(aborted(*FRAMES, raised, ABORT, code=-11))[0] == "RK-DEATH-003"
    advice = [findings_of([aborted(*output)])[0].advice for output in (("done", ABORT), (), ("x",))]
    assert ["destroy_process_group" in text for text in advice] == [True, True, False]
    assert "destroy_process_group" not in findings_of([aborted(code=-11)])[0].advice


def test_who_lost_its_peer_and_aborted_on_its_way_out_is_not_at_fault() -> None:
    lost = "[rank1]: RuntimeError: [../gloo/pair.cc:1] Connection closed by peer [10.0.0.2]:1"
    frames = [f"[rank1]: {line}" for line in FRAMES]
    victim = dead(-6, DeathEvidence(output=(*frames, lost, ABORT)), rank=1)
    victim = replace(victim, hook=None, failed_unix_s=4.0)
    assert [v.rank for v in primary_deaths([victim, dead(1, DeathEvidence())])] == [2]


def test_the_last_operation_and_the_last_words() -> None:
    evidence = DeathEvidence(output=("Killed", "ValueError: bad\x1b batch", "[rank2]:    ^^^^^^^"))
    ended, inside = dead(1, evidence), dead(1, evidence, in_flight=True)
    assert any("all_reduce #5" in r and "had ended" in r for r in reasons_of(ended))
    assert any("all_reduce #5" in r and "was in when it died" in r for r in reasons_of(inside))
    assert reasons_of(ended)[-1] == "its last output: Killed / ValueError: bad? batch"
    assert findings_of([ended]) == []
    assert reasons_of(replace(ended, hook=None, death=None)) == ()


def test_errors_of_hardware_are_told_once_a_host_and_warn() -> None:
    hit = DeathEvidence(kernel_lines=(XID, XID, SEGFAULT))
    findings = hardware_findings([dead(1, hit), dead(1, hit, rank=3)])
    assert [(f.id, f.status, f.nodes) for f in findings] == [("RK-DEATH-002", Status.WARN, "n0")]
    assert "Xid 79 on 0000:3b:00 (GPU has fallen off the bus)" in findings[0].title
    assert findings[0].reasons == (XID,)
    assert "RK-DEATH-002" in report_ids(dead(1, hit))


def test_a_job_that_somebody_ended_accuses_nobody() -> None:
    ranks = [dead(-15, DeathEvidence(), rank) for rank in range(WORLD)]
    verdict = attribute(job(ranks))
    assert verdict.culprits == ()
    report = hang_report(job(ranks), verdict)
    assert [(f.id, f.status) for f in report.findings] == [("RK-DEATH-004", Status.UNKNOWN)]
    assert "ranks 0-3 got SIGTERM" in report.findings[0].title
    assert report.facts["verdict"] == "somebody ended the job: ranks 0-3 got SIGTERM"


@pytest.mark.parametrize("order", [(0, 1, 3), (3, 1, 0)])
def test_who_was_asked_to_end_beside_one_that_was_killed_is_no_finding(
    order: tuple[int, ...],
) -> None:
    ended = [replace(dead(-15, DeathEvidence(), rank), hook=None) for rank in order]
    killed = replace(dead(-9, DeathEvidence()), hook=None)
    looked_at = job(sorted([*ended, killed], key=lambda v: v.rank))
    verdict = attribute(looked_at)
    assert [c.rank for c in verdict.culprits] == [2]
    facts = hang_report(looked_at, verdict).facts
    assert [row["rank"] for row in facts["deaths"]] == [0, 1, 2, 3]
