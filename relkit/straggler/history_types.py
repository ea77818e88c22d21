"""The newest steps of a job as the scorer saw them: what `watch` and `report` show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import PARTS, Cause, Verdict

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int32]

STILL_HOLDS = -1
"""ended_step of a verdict that was not dropped."""

_KEPT_BYTES = 20 << 20
_MAX_STEPS, _FEWEST_STEPS = 2000, 64
_NEWEST_STEPS = 64


def steps_to_keep(world_size: int) -> int:
    """How many of the newest steps a live job keeps: 2,000, or what 20 MiB hold, at least 64."""
    step_bytes = 4 * (len(PARTS) + 2) * max(1, world_size)
    return min(_MAX_STEPS, max(_FEWEST_STEPS, _KEPT_BYTES // step_bytes))


@dataclass(frozen=True, slots=True)
class RaisedVerdict:
    """A verdict, and the steps between which it was said.

    Args:
        verdict: as it was said last.
        raised_step: the step after which it was said first; at or after verdict.first_step.
        ended_step: the step after which it was dropped; -1 = it still holds.
    """

    verdict: Verdict
    raised_step: int
    ended_step: int = STILL_HOLDS

    @property
    def holds(self) -> bool:
        """It was not dropped."""
        return self.ended_step == STILL_HOLDS


@dataclass(frozen=True, slots=True)
class LinkRow:
    """Transfers from one host to another, once everybody had come.

    Args:
        source, target: host names.
        ratio: time of a transfer against what is usual; 1 = as usual, 4 = four times as long.
        evidence: evidence that it is slow as a share of what a verdict needs, 0 up; 1 = said.
        lost_s: time that the job has lost there, s.
    """

    source: str
    target: str
    ratio: float
    evidence: float
    lost_s: float


def worst_first(row: LinkRow) -> tuple[float, float, str, str]:
    """Sort key of links: by evidence, then by how slow they are."""
    return -row.evidence, -row.ratio, row.source, row.target


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The newest steps of a job, all ranks, with what was concluded from them.

    It has as many fields as the file that it mirrors, transport/history.py.

    Args:
        job_id: as the launcher knows it; world_size: ranks.
        first_step: number of the first column; steps: how many columns. A step that was left out
            has a column of NaN.
        hosts: name by rank.
        local_s, late_s: (ranks, steps), s; parts: (parts in the order of model.PARTS, ranks,
            steps), s; NaN = not known.
        step_unix_s: when each step ended, Unix time, s; NaN = not known.
        verdicts: those that hold, and are sure; past: those that were dropped, oldest first.
        links: worst first; only those that were measured.
        clock_offsets: host -> (ahead of the first host by, standard error), s.
        loads: host -> who has its cores, where that is known.
        settings: of the scorer, plain JSON values.
        notes: what was not seen, one sentence each.
        scores: by rank, recent slowdown over its peers as a share (0.1 = 10 %); NaN = not known.
        evidence: by rank, as a share of what a verdict needs, 0..1.
        peers: by rank, a number that is equal for ranks that do equal work.
        ended: the job is over.

    Raises:
        ValueError: an array of another shape.
    """

    job_id: str
    world_size: int
    first_step: int
    steps: int
    hosts: tuple[str, ...]
    local_s: Singles
    late_s: Singles
    parts: Singles
    step_unix_s: Doubles
    verdicts: tuple[RaisedVerdict, ...] = ()
    past: tuple[RaisedVerdict, ...] = ()
    links: tuple[LinkRow, ...] = ()
    clock_offsets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    loads: Mapping[str, HostLoad] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scores: Singles = field(default_factory=lambda: np.empty(0, np.float32))
    evidence: Singles = field(default_factory=lambda: np.empty(0, np.float32))
    peers: Places = field(default_factory=lambda: np.empty(0, np.int32))
    ended: bool = False

    def __post_init__(self) -> None:
        ranks = self.world_size
        for name, empty in (("scores", np.nan), ("evidence", 0.0), ("peers", 0)):
            # Left out by whoever does not know them; a whole world of nothing known.
            if len(getattr(self, name)) == 0:
                kind = np.int32 if name == "peers" else np.float32
                object.__setattr__(self, name, np.full(ranks, empty, kind))
        if len(self.hosts) != ranks:
            raise ValueError(f"{len(self.hosts)} hosts of {ranks} ranks")
        for name, shape in shapes(ranks, self.steps).items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} is {getattr(self, name).shape}, not {shape}")

    @property
    def accusations(self) -> tuple[RaisedVerdict, ...]:
        """Those that hold, then those that were dropped, newest first.

        What was not sure, or was dropped without a cause ever found, is none.
        """
        return (*self.verdicts, *self.recovered)

    @property
    def recovered(self) -> tuple[RaisedVerdict, ...]:
        """Those that were dropped, were sure, and had a cause, newest first."""
        return tuple(
            raised
            for raised in reversed(self.past)
            if raised.verdict.cause is not Cause.NOISE and raised.verdict.accuses
        )


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Who is slow now: the part of a History that does not grow with its steps.

    Args:
        hosts, scores, evidence: by rank, as in History; verdicts: those that hold.
        step_s: median time of the newest steps; step_unix_s: when the newest had ended; NaN = not
            known.
    """

    hosts: tuple[str, ...]
    scores: Singles
    evidence: Singles
    verdicts: tuple[RaisedVerdict, ...] = ()
    step_s: float = float("nan")
    step_unix_s: float = float("nan")

    @classmethod
    def of(cls, history: History) -> Standing:
        """As a history has it."""
        ends_s = history.step_unix_s[-_NEWEST_STEPS:]
        between_s = np.diff(ends_s)
        known_s = between_s[np.isfinite(between_s)]
        return cls(
            history.hosts,
            history.scores,
            history.evidence,
            history.verdicts,
            float(np.median(known_s)) if len(known_s) else float("nan"),
            float(ends_s[-1]) if len(ends_s) else float("nan"),
        )


def shapes(ranks: int, steps: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a History."""
    return {
        "local_s": (ranks, steps),
        "late_s": (ranks, steps),
        "parts": (len(PARTS), ranks, steps),
        "step_unix_s": (steps,),
        "scores": (ranks,),
        "evidence": (ranks,),
        "peers": (ranks,),
    }
