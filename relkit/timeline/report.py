"""What a recording and a merge have to say, as findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.ranks import RankSet
from relkit.timeline.merge import Merged
from relkit.timeline.model import Lost
from relkit.timeline.record import Recording

_NAMED = 10


def record_report(
    recording: Recording,
    steps: int | None,
    folder: Path,
    *,
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """What was recorded.

    Args:
        steps: that were wanted; None = what the rings held.
        folder: of the files; argv, started, duration_s: as of Report.
    """
    ranks = RankSet.of(each.rank for each in recording.ranks)
    lost = [each for each in recording.ranks if each.lost.dropped]
    least = min(each.steps for each in recording.ranks)
    findings = [
        Finding(
            "RK-TL-001",
            Status.OK,
            f"recorded {ranks.in_words()} of this host into {folder}",
            ranks=ranks.fold(),
            nodes=recording.host,
            evidence=(
                Evidence("steps of the slowest rank", least),
                Evidence("recorded for", round(recording.seconds, 3), "s"),
            ),
            advice=f"Record on the job's other nodes too, then: relkit timeline merge {folder} "
            "-o trace.pftrace",
        )
    ]
    if lost:
        findings.append(
            _lost_finding(RankSet.of(each.rank for each in lost), [e.lost for e in lost])
        )
    short = [each.rank for each in recording.ranks if steps is not None and each.steps < steps]
    if short:
        why = "stopped by Ctrl-C" if recording.stopped else "the ranks ended, or time was over"
        findings.append(
            Finding(
                "RK-TL-003",
                Status.WARN,
                f"fewer than {steps} steps of {RankSet.of(short).in_words()} were seen",
                ranks=RankSet.of(short).fold(),
                reasons=(why,),
                evidence=(Evidence("steps of the slowest rank", least, threshold=steps or 0),),
                advice="Give it longer with --timeout; where no steps are seen, call relkit.step() "
                "at the start of each.",
            )
        )
    if recording.problems:
        bad = RankSet.of(rank for rank, _ in recording.problems)
        findings.append(
            Finding(
                "RK-TL-004",
                Status.WARN,
                f"{bad.in_words()} could not be recorded",
                ranks=bad.fold(),
                reasons=tuple(f"rank {rank}: {why}" for rank, why in recording.problems[:_NAMED]),
                advice="Look again in a moment; `relkit doctor` tests the hook.",
            )
        )
    facts = {
        "folder": str(folder),
        "host": recording.host,
        "ranks": [
            {
                "rank": each.rank,
                "file": each.path.name,
                "steps": each.steps,
                "ended": each.ended,
                **_lost_json(each.lost),
            }
            for each in recording.ranks
        ],
    }
    return Report("timeline-record", tuple(findings), facts, started, duration_s, tuple(argv))


def merge_report(
    merged: Merged, trace: Path, *, argv: Sequence[str], started: float, duration_s: float
) -> Report:
    """What is in a trace, and what is not.

    Args:
        trace: its file; argv, started, duration_s: as of Report.
    """
    findings = _merge_findings(merged, trace)
    facts: dict[str, Any] = {
        "trace": str(trace),
        "ranks": merged.ranks.fold(),
        "missing": merged.missing.fold(),
        "slices": merged.slices,
        "waits_are_sampled": merged.is_sample,
        "clocks": [
            {
                "host": clock.host,
                "ranks": clock.ranks.fold(),
                "ahead_us": clock.offset.offset_ns / 1e3,
                "error_us": clock.offset.error_ns / 1e3 if _is_known(merged, at) else None,
                "matches": clock.offset.matches,
            }
            for at, clock in enumerate(merged.clocks)
        ],
        **_lost_json(merged.lost),
    }
    return Report("timeline-merge", tuple(findings), facts, started, duration_s, tuple(argv))


def _is_known(merged: Merged, at: int) -> bool:
    """A clock that was put on the first one, or is it."""
    return at == 0 or merged.clocks[at].offset.matches > 0


def _merge_findings(merged: Merged, trace: Path) -> list[Finding]:
    several = len(merged.clocks) > 1
    known = [c for at, c in enumerate(merged.clocks) if at and _is_known(merged, at)]
    worst = max(known, key=lambda clock: clock.offset.error_ns, default=None)
    evidence = [Evidence("operations in it", merged.slices)]
    if worst is not None:
        evidence.append(
            Evidence(
                f"clock of {worst.host}",
                f"ahead by {worst.offset.offset_ns / 1e3:.1f} us, wrong by at most "
                f"{worst.offset.error_ns / 1e3:.1f}",
                "us",
                how=f"{worst.offset.matches} operations that it shared with other hosts",
            )
        )
    findings = [
        Finding(
            "RK-TL-005",
            Status.OK,
            f"wrote {merged.ranks.in_words()} into {trace}",
            ranks=merged.ranks.fold(),
            evidence=tuple(evidence),
            advice="Open it at https://ui.perfetto.dev: it stays on your machine.",
        )
    ]
    if several and not known:
        findings.append(
            Finding(
                "RK-TL-006",
                Status.WARN,
                "the clocks of the hosts are as they were: ranks of several hosts may be apart",
                advice="Leave out --clocks as-they-are where ranks of the hosts did something "
                "together.",
            )
        )
    if merged.lost.dropped:
        findings.append(_lost_finding(merged.lost_of, [merged.lost]))
    left_out = [f"{name}: {why}" for name, why in (*merged.left_out, *merged.cut)]
    if left_out:
        findings.append(
            Finding(
                "RK-TL-007",
                Status.WARN,
                f"{len(merged.left_out)} files were left out, {len(merged.cut)} used as far as "
                "they go",
                reasons=tuple(left_out[:_NAMED]),
                advice="Record those ranks again.",
            )
        )
    if merged.missing:
        findings.append(
            Finding(
                "RK-TL-008",
                Status.WARN,
                f"{merged.missing.in_words()} of the job: no file",
                ranks=merged.missing.fold(),
                advice="Run `relkit timeline record` on every node, and name all folders.",
            )
        )
    return findings


def _lost_json(lost: Lost) -> dict[str, int]:
    return {
        "dropped_events": lost.events,
        "dropped_work": lost.work,
        "unrecorded": lost.unrecorded,
        "small_products": lost.small,
    }


def _lost_finding(ranks: RankSet, lost: Sequence[Lost]) -> Finding:
    events, work = sum(each.events for each in lost), sum(each.work for each in lost)
    return Finding(
        "RK-TL-002",
        Status.WARN,
        f"not all that {ranks.in_words()} did is in it",
        ranks=ranks.fold(),
        evidence=(
            Evidence("collectives, sends and receives lost", events, how="overwritten unread"),
            Evidence("products and kernels lost", work, how="overwritten unread"),
            Evidence("found no room", sum(each.unrecorded for each in lost), how="recorder"),
        ),
        advice="What is there is right; what a rank seems to do in between may be what is missing.",
    )
