"""Scores a job while it runs: steps in, verdicts and the history for people out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from relkit.straggler.history_types import STILL_HOLDS, History, LinkRow, RaisedVerdict
from relkit.straggler.model import PARTS, Cause, Floats, StepTable, Subject, Verdict
from relkit.straggler.score.align import AlignedStep, Aligner
from relkit.straggler.score.edge_rates import EdgeTraffic
from relkit.straggler.score.host_clocks import HostClocks
from relkit.straggler.score.links import Transfer
from relkit.straggler.score.matched_collectives import (
    Groups,
    lateness,
    lateness_by_step,
    meetings,
    on_one_clock,
    transfers,
)
from relkit.straggler.score.network import Wires
from relkit.straggler.score.peer_groups import Kinds
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.score.ring_buffer import StepWindow
from relkit.straggler.step_record import StepRecord

_MOST_PAST = 200
_STEPS_OF_MEAN = 64
# Collectives of all ranks that are put side by side at once.
_MOST_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Change:
    """A verdict that was raised or dropped.

    Args:
        raised: it, with its steps; began: False where it was dropped.
    """

    raised: RaisedVerdict
    began: bool


class LiveScorer:
    """Call update() with what has been collected; ask for history() when somebody wants to see.

    Args:
        job_id: as the launcher knows it; world_size: ranks.
        settings: what counts as slow.
        past: verdicts of earlier incarnations of the job, that were dropped.
    """

    def __init__(
        self,
        job_id: str,
        world_size: int,
        settings: Settings | None = None,
        past: Sequence[RaisedVerdict] = (),
    ) -> None:
        self._job_id, self._world = job_id, world_size
        self._settings = settings or Settings()
        self._aligner = Aligner(world_size)
        self._clocks, self._groups = HostClocks(), Groups()
        self._window = StepWindow(world_size)
        self._hosts = [""] * world_size
        self._kinds = Kinds(world_size)
        self._ranks: RankScorer | None = None
        self._wires = Wires()
        self._holding: dict[tuple[str, ...], RaisedVerdict] = {}
        self._past = list(past)[-_MOST_PAST:]
        self._step = -1
        self._step_s = 0.0

    @property
    def steps(self) -> int:
        """How many steps have been scored and are kept."""
        return self._window.steps

    @property
    def holding(self) -> tuple[RaisedVerdict, ...]:
        """The verdicts that hold, as the last step leaves them."""
        return tuple(self._holding.values())

    @property
    def suspicion(self) -> float:
        """How near the nearest verdict on a rank is, as a share of the evidence it takes; 1 at
        least while any verdict holds.
        """
        if self._holding:
            return 1.0
        return 0.0 if self._ranks is None else float(self._ranks.evidence.max(initial=0.0))

    def past(self) -> tuple[RaisedVerdict, ...]:
        """All verdicts that were said, those that hold as dropped with the last step."""
        return (*self._past, *self._over())[-_MOST_PAST:]

    def _over(self) -> list[RaisedVerdict]:
        return [replace(held, ended_step=self._step) for held in self._holding.values()]

    def retune(self, settings: Settings) -> None:
        """Go on with other limits; evidence is gathered anew."""
        self._settings = settings
        self._ranks = None

    def update(self, records: Iterable[StepRecord], now_s: float) -> list[Change]:
        """Take steps as they come, from any node, and say what changed.

        Args:
            records: those that are new; now_s: monotonic time, s.
        """
        self._aligner.add((one for one in records if 0 <= one.rank < self._world), now_s)
        changes: list[Change] = []
        alike: list[AlignedStep] = []
        for step in self._aligner.take(now_s):
            if self._kinds.update(step.records) or self._ranks is None:
                changes += self._score(alike)
                alike = []
                self._compare_anew()
            alike.append(step)
        return changes + self._score(alike)

    def take_traffic(self, traffic: Sequence[EdgeTraffic], elapsed_s: float) -> None:
        """What hosts have sent each other; it counts from the next step on.

        Args:
            elapsed_s: in this time.
        """
        if traffic and self._step >= 0:
            self._wires.take_traffic(self._step, traffic, elapsed_s)

    def _score(self, steps: Sequence[AlignedStep]) -> list[Change]:
        """Take steps in which the same ranks are compared."""
        if not steps:
            return []
        assert self._ranks is not None
        for step in steps:
            for one in step.records:
                self._hosts[one.rank] = one.host
        parts = self._parts(steps)
        late_s, sent = self._meet(steps)
        tables = [StepTable(step.number, parts[at], late_s[at]) for at, step in enumerate(steps)]
        changes: list[Change] = []
        for step, table, judged, between in zip(
            steps, tables, self._ranks.update(tables), sent, strict=True
        ):
            self._step = step.number
            ended_s = max(one.end_ns for one in step.records) / 1e9
            took_s = ended_s - min(one.begin_ns for one in step.records) / 1e9
            self._step_s += (took_s - self._step_s) / min(_STEPS_OF_MEAN, self._window.steps + 1)
            self._window.add(step.number, table.parts, table.late_s, ended_s)
            wires = self._wires.update(step.number, between)
            found = (*judged.accused, *judged.faded)
            changes += self._hold([*found, *(one for one in wires if self._matters(one))])
        return changes

    def _parts(self, steps: Sequence[AlignedStep]) -> Floats:
        """(steps, len(PARTS), ranks), s."""
        found = np.full((len(steps), self._world, len(PARTS)), np.nan)
        at = [(place, one.rank) for place, step in enumerate(steps) for one in step.records]
        place, rank = np.array(at).T
        found[place, rank] = [
            (one.compute_s, one.input_s, one.gap_s, one.gc_s,
             one.starved_s, one.throttled_s, one.asleep_s)
            for step in steps for one in step.records
        ]  # fmt: skip
        return np.ascontiguousarray(found.transpose(0, 2, 1))

    def _meet(self, steps: Sequence[AlignedStep]) -> tuple[Floats, list[list[Transfer]]]:
        """(by how much each rank came late, (steps, ranks); transfers between hosts)."""
        if len(set(self._hosts)) == 1:
            rows = sum(len(one.collectives) for one in steps[0].records)
            some = max(1, _MOST_ROWS // max(1, rows))
            blocks = [steps[first : first + some] for first in range(0, len(steps), some)]
            late = [
                lateness_by_step([step.records for step in block], self._groups, self._world)
                for block in blocks
            ]
            return np.concatenate(late), [[] for _ in steps]
        late_s, sent = np.empty((len(steps), self._world)), []
        for at, step in enumerate(steps):
            plain = meetings(step.records, self._groups)
            self._clocks.update(plain, self._hosts)
            seen = on_one_clock(plain, self._clocks.offset_s(self._hosts))
            late_s[at] = lateness(seen, self._world)
            sent.append(transfers(seen, self._hosts))
        return late_s, sent

    def _matters(self, verdict: Verdict) -> bool:
        """What is slow is so for a share of the step that is worth a word, or was before."""
        steps = max(1, self._step - verdict.first_step + 1)
        least_s = self._settings.min_slowdown * self._step_s * steps
        return verdict.cost_s >= least_s or _who(verdict) in self._holding

    def _compare_anew(self) -> None:
        """Others are compared from now on: evidence is gathered anew."""
        self._ranks = RankScorer(self._kinds.by_rank, self._settings)
        # Nobody has become faster: it is only that others are compared now.
        over = [one for one in self._over() if one.verdict.subject is Subject.RANK]
        self._past = [*self._past, *over][-_MOST_PAST:]
        for one in over:
            del self._holding[_who(one.verdict)]

    def _hold(self, found: Sequence[Verdict]) -> list[Change]:
        # A suspicion that came to nothing is kept for the report, and nobody is told of it.
        ended = [
            one for one in found if one.cause is Cause.NOISE and _who(one) not in self._holding
        ]
        nothing = [RaisedVerdict(one, self._step, self._step) for one in ended]
        self._past = [*self._past, *nothing][-_MOST_PAST:]
        now = {_who(one): one for one in found if one.cause is not Cause.NOISE}
        changes = []
        for who, held in list(self._holding.items()):
            if who in now:
                self._holding[who] = replace(held, verdict=now.pop(who))
                continue
            over = replace(held, ended_step=self._step)
            del self._holding[who]
            self._past = [*self._past, over][-_MOST_PAST:]
            # A host that is named in the place of its link has not become faster.
            if not any(set(over.verdict.ends) & set(one.ends) for one in found):
                changes.append(Change(over, began=False))
        for who, verdict in now.items():
            self._holding[who] = RaisedVerdict(verdict, self._step, STILL_HOLDS)
            changes.append(Change(self._holding[who], began=True))
        return changes

    def history(self, notes: Sequence[str] = (), *, ended: bool = False) -> History:
        """What watch and report show.

        Args:
            notes: what was not seen, one sentence each; ended: the job is over.
        """
        own_s, late_s, parts, unix_s = self._window.columns()
        scores = np.full(self._world, np.nan, np.float32)
        evidence = np.zeros(self._world, np.float32)
        if self._ranks is not None:
            scores[:] = self._ranks.recent_excess
            evidence[:] = np.clip(self._ranks.evidence, 0.0, 1.0)
        return History(
            job_id=self._job_id,
            world_size=self._world,
            first_step=self._window.first_step,
            steps=self._window.steps,
            hosts=tuple(self._hosts),
            own_s=own_s,
            late_s=late_s,
            parts=parts,
            step_unix_s=unix_s,
            verdicts=self.holding,
            past=tuple(self._past),
            links=self._link_rows(),
            clock_offsets=self._clocks.table(),
            settings={**asdict(self._settings), "shifts": list(self._settings.shifts)},
            notes=tuple(notes),
            scores=scores,
            evidence=evidence,
            peers=np.array(self._kinds.by_rank, dtype=np.int32),
            ended=ended,
        )

    def _link_rows(self) -> tuple[LinkRow, ...]:
        return tuple(
            LinkRow(source, target, ratio, share, lost_s)
            for source, target, ratio, share, lost_s in self._wires.rows()
        )


def _who(verdict: Verdict) -> tuple[str, ...]:
    if verdict.subject is Subject.RANK:
        return (verdict.subject.value, str(verdict.rank))
    return (verdict.subject.value, *verdict.ends)
