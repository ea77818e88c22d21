"""A History in a few rows: the worst ranks, the worst links, and everybody else folded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from relkit.ranks import RankSet
from relkit.straggler.history_types import History, LinkRow
from relkit.straggler.model import Subject
from relkit.straggler.present.metrics import last_step, recent, step_seconds
from relkit.straggler.present.report import plain_verdict

MAX_RANKS, MAX_LINKS = 15, 5
_SUSPECT = 0.5


@dataclass(frozen=True, slots=True)
class RankLine:
    """One rank lately.

    Args:
        rank, host: who.
        local_s, late_s: means of the last 50 steps, s; NaN = not known.
        score: slowdown over its peers lately, as a share; NaN = not known.
        evidence: share of what a verdict takes, 0..1.
        state: "slow compute since step 350", "suspect", or "".
    """

    rank: int
    host: str
    local_s: float
    late_s: float
    score: float
    evidence: float
    state: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What fits on a screen.

    Args:
        job_id: which job; step: the newest, -1 = none yet; step_s: mean time of one, s.
        world_size, hosts: how many.
        ranks: the accused first, then by evidence and slowdown.
        others: everybody else; others_score: the largest slowdown among them, NaN = not known.
        links: the worst.
        ended: the job is over.
        notes: what was not seen.
    """

    job_id: str
    step: int
    step_s: float
    world_size: int
    hosts: int
    ranks: tuple[RankLine, ...]
    others: RankSet
    others_score: float
    links: tuple[LinkRow, ...]
    ended: bool
    notes: tuple[str, ...]


def summarise(history: History, most: int = MAX_RANKS) -> Summary:
    """The summary of a history, with `most` ranks at most."""
    said = {
        raised.verdict.rank: f"{str(raised.verdict.cause).replace('-', ' ')} since step "
        f"{raised.verdict.first_step:,}"
        for raised in history.verdicts
        if raised.verdict.subject is Subject.RANK
    }
    evidence = np.nan_to_num(history.evidence)
    order = np.lexsort((-np.nan_to_num(history.scores), -evidence)).tolist()
    order.sort(key=lambda rank: rank not in said)
    local_s, late_s = recent(history, history.local_s), recent(history, history.late_s)
    rest = order[most:]
    known = [float(history.scores[rank]) for rank in rest if np.isfinite(history.scores[rank])]
    return Summary(
        job_id=history.job_id,
        step=last_step(history) if history.steps else -1,
        step_s=step_seconds(history) if history.steps else math.nan,
        world_size=history.world_size,
        hosts=len({host for host in history.hosts if host}),
        ranks=tuple(
            RankLine(
                rank, history.hosts[rank], float(local_s[rank]), float(late_s[rank]),
                float(history.scores[rank]), float(evidence[rank]),
                said.get(rank, "suspect" if evidence[rank] >= _SUSPECT else ""),
            )
            for rank in order[:most]
        ),
        others=RankSet.of(rest),
        others_score=max(known, default=math.nan),
        links=tuple(sorted(history.links, key=lambda row: -row.ratio)[:MAX_LINKS]),
        ended=history.ended,
        notes=history.notes,
    )  # fmt: skip


def plain_summary(history: History) -> dict[str, Any]:
    """The summary as JSON: one line of `relkit straggler watch --json`."""
    summary = summarise(history)
    return {
        "schema": "relkit.straggler.watch/1",
        "job_id": summary.job_id,
        "step": summary.step if summary.step >= 0 else None,
        "step_s": _known(summary.step_s),
        "world_size": summary.world_size,
        "ended": summary.ended,
        "stragglers": [plain_verdict(history, raised) for raised in history.verdicts],
        "ranks": [
            {
                "rank": line.rank, "host": line.host, "local_s": _known(line.local_s),
                "late_s": _known(line.late_s), "score": _known(line.score),
                "evidence": round(line.evidence, 4), "state": line.state,
            }
            for line in summary.ranks
        ],
        "others": {"ranks": summary.others.fold(), "worst_score": _known(summary.others_score)},
        "links": [
            {"source": row.source, "target": row.target, "ratio": round(row.ratio, 4),
             "evidence": round(row.evidence, 4), "lost_s": round(row.lost_s, 4)}
            for row in summary.links
        ],
        "notes": list(summary.notes),
    }  # fmt: skip


def _known(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
