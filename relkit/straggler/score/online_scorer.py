"""Scores a job while it runs: steps in; verdicts, and the history that people see, out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.history_types import History, LinkRow, RaisedVerdict
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import Verdict
from relkit.straggler.score.align import Aligner
from relkit.straggler.score.collective_matcher import CollectiveMatcher
from relkit.straggler.score.edge_rates import EdgeScorer
from relkit.straggler.score.host_verdicts import is_renamed, of_hosts
from relkit.straggler.score.links import Edge, LinkScorer, Transfer
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.score.ring_buffer import StepRingBuffer
from relkit.straggler.score.verdict_log import VerdictLog
from relkit.straggler.step_record import StepRecord, StepTable

_STEPS_OF_MEAN = 64
# A job's first steps and its last second are judged by nobody: then ranks begin and end one after
# the other, and what they do is not what they do in a step.
_WARM_UP_STEPS, _WARM_UP_NS, _LAST_NS = 8, 1_000_000_000, 1_000_000_000
# Edges that are measured at once: the scorer compares each with all others.
_MAX_EDGES = 512


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that is to be judged.

    Args:
        table: what ranks took; transfers: between hosts; begin_ns, end_ns: of all ranks, Unix time.
    """

    table: StepTable
    transfers: Sequence[Transfer]
    begin_ns: int
    end_ns: int


class OnlineScorer:
    """Call update() with what has been collected; ask for history() when somebody wants to see.

    Args:
        job_id: as the launcher knows it; world_size: ranks.
        settings: what counts as slow.
        past: verdicts of earlier attempts of the job, that were dropped.
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
        self._matcher = CollectiveMatcher(world_size)
        self._ring_buffer = StepRingBuffer(world_size)
        self._peer_groups = PeerGroups(world_size)
        self._ranks: RankScorer | None = None
        self._network = Network()
        self._verdicts = VerdictLog(past)
        self._step_s = 0.0
        # Steps that may be the last ones, and where judging begins: after so many, and then.
        self._held: list[_Step] = []
        self._warm_up_steps, self._warm_until_ns = _WARM_UP_STEPS, 0

    @property
    def steps(self) -> int:
        """How many steps have been seen and are kept."""
        return self._ring_buffer.steps

    @property
    def holding(self) -> tuple[RaisedVerdict, ...]:
        """The verdicts that hold, as the last step leaves them."""
        return self._verdicts.holding

    @property
    def max_evidence(self) -> float:
        """How near the nearest verdict on a rank is, as a share of the evidence it takes; 1 at
        least while any verdict holds.
        """
        if self.holding:
            return 1.0
        return 0.0 if self._ranks is None else float(self._ranks.evidence.max(initial=0.0))

    def past(self) -> tuple[RaisedVerdict, ...]:
        """All verdicts so far, those that hold as dropped with the last step."""
        return self._verdicts.all()

    def retune(self, settings: Settings) -> None:
        """Go on with other limits; evidence is gathered anew."""
        self._settings = settings
        self._ranks = None

    def update(self, records: Iterable[StepRecord], now_s: float) -> list[RaisedVerdict]:
        """Take steps as they come, from any node.

        Args:
            records: those that are new; now_s: monotonic time, s.

        Returns:
            The verdicts that were raised or dropped.
        """
        self._aligner.add((record for record in records if 0 <= record.rank < self._world), now_s)
        self._see(self._aligner.take(now_s))
        changes: list[RaisedVerdict] = []
        batch: list[_Step] = []
        for step in self._take_settled():
            if self._peer_groups.update(step.table.records) or self._ranks is None:
                changes += self._score(batch)
                batch = []
                # Ranks are compared with others from now on: evidence is gathered anew.
                self._ranks = RankScorer(self._peer_groups.by_rank, self._settings)
                self._warm_up_steps = _WARM_UP_STEPS
                self._warm_until_ns = step.begin_ns + _WARM_UP_NS
                self._verdicts.drop_ranks()
            batch.append(step)
        return changes + self._score(batch)

    def _see(self, tables: Sequence[StepTable]) -> None:
        """Keep steps for the history; they are judged once the job has gone on for a while."""
        if not tables:
            return
        matched, between_hosts = self._matcher.take(tables)
        for table, transfers in zip(matched, between_hosts, strict=True):
            begin_ns = min(record.begin_ns for record in table.records)
            end_ns = max(record.end_ns for record in table.records)
            steps = min(_STEPS_OF_MEAN, self._ring_buffer.steps + 1)
            self._step_s += ((end_ns - begin_ns) / 1e9 - self._step_s) / steps
            self._ring_buffer.add(table.step, table.parts, table.late_s, end_ns / 1e9)
            self._held.append(_Step(table, transfers, begin_ns, end_ns))

    def _take_settled(self) -> list[_Step]:
        """Those after which the job has gone on for long enough, oldest first."""
        if not self._held:
            return []
        newest_ns = self._held[-1].end_ns
        settled = 0
        # What ends later than the newest, by a clock that was set back, waits for nothing.
        while not 0 <= newest_ns - self._held[settled].end_ns < _LAST_NS:
            settled += 1
        taken, self._held = self._held[:settled], self._held[settled:]
        return taken

    def take_traffic(self, traffic: Sequence[EdgeTraffic], elapsed_s: float) -> None:
        """What hosts have sent each other; it counts from the next step on.

        Args:
            elapsed_s: in this time.
        """
        if traffic and self._verdicts.step >= 0:
            self._network.take_traffic(self._verdicts.step, traffic, elapsed_s)

    def _score(self, steps: Sequence[_Step]) -> list[RaisedVerdict]:
        """Take steps in which the same ranks are compared."""
        if not steps:
            return []
        assert self._ranks is not None
        first = 0
        while first < len(steps) and self._is_warming_up(steps[first]):
            first += 1
        of_ranks: list[tuple[Verdict, ...]] = [()] * first
        of_ranks += self._ranks.update([step.table for step in steps[first:]])
        changes: list[RaisedVerdict] = []
        for step, judged in zip(steps, of_ranks, strict=True):
            number = step.table.step
            network = [
                verdict
                for verdict in self._network.update(number, step.transfers)
                if self._matters(verdict, number)
            ]
            mine = of_hosts(judged, self._matcher.hosts)
            changes += self._verdicts.hold((*mine, *network), number)
        return [
            change
            for change in changes
            if not is_renamed(change, self.holding, self._matcher.hosts)
        ]

    def _is_warming_up(self, step: _Step) -> bool:
        self._warm_up_steps -= 1
        if self._warm_up_steps >= 0 or step.end_ns < self._warm_until_ns:
            return True
        # It is over for good, also where the clock is set back later.
        self._warm_until_ns = 0
        return False

    def _matters(self, verdict: Verdict, step: int) -> bool:
        """What is slow costs a share of the step that is worth a verdict, or has one already."""
        steps = max(1, step - verdict.first_step + 1)
        min_s = self._settings.min_slowdown * self._step_s * steps
        return verdict.cost_s >= min_s or self._verdicts.holds(verdict)

    def history(
        self,
        notes: Sequence[str] = (),
        loads: Mapping[str, HostLoad] | None = None,
        *,
        ended: bool = False,
    ) -> History:
        """What watch and report show.

        Args:
            notes: what was not seen, one sentence each; loads: by host, who has its cores.
            ended: the job is over.
        """
        local_s, late_s, parts, unix_s = self._ring_buffer.columns()
        scores = np.full(self._world, np.nan, np.float32)
        evidence = np.zeros(self._world, np.float32)
        if self._ranks is not None:
            scores[:] = self._ranks.recent_slowdown
            evidence[:] = np.clip(self._ranks.suspicion, 0.0, 1.0)
        return History(
            job_id=self._job_id,
            world_size=self._world,
            first_step=self._ring_buffer.first_step,
            steps=self._ring_buffer.steps,
            hosts=tuple(self._matcher.hosts),
            local_s=local_s,
            late_s=late_s,
            parts=parts,
            step_unix_s=unix_s,
            verdicts=tuple(raised for raised in self.holding if raised.verdict.accuses),
            past=self._verdicts.dropped,
            links=tuple(self._network.rows()),
            clock_offsets=self._matcher.clock_offsets(),
            loads=loads or {},
            settings={**asdict(self._settings), "shifts": list(self._settings.shifts)},
            notes=tuple(notes),
            scores=scores,
            evidence=evidence,
            peers=np.array(self._peer_groups.by_rank, dtype=np.int32),
            ended=ended,
        )


class Network:
    """Counters of connections where the job talks through TCP, else times of transfers.

    Counters tell the edges of one ring apart, and what is slow from the start; where they see
    anything they alone are believed.
    """

    def __init__(self) -> None:
        self._links, self._edges = LinkScorer(), EdgeScorer()
        self._measured: set[Edge] = set()
        self._by_counters: tuple[Verdict, ...] = ()

    def take_traffic(self, step: int, traffic: Sequence[EdgeTraffic], elapsed_s: float) -> None:
        """What hosts have sent each other lately.

        Args:
            step: the job is at; elapsed_s: since the last call.
        """
        kept = []
        for sample in traffic:
            edge = (sample.source, sample.target)
            if edge in self._measured or len(self._measured) < _MAX_EDGES:
                self._measured.add(edge)
                kept.append(sample)
        if kept:
            self._by_counters = self._edges.update(step, kept, elapsed_s)

    def update(self, step: int, transfers: Sequence[Transfer]) -> tuple[Verdict, ...]:
        """Take the transfers of a step, and say which links or hosts are slow after it."""
        by_times = self._links.update(step, transfers)
        return self._by_counters if self._measured else by_times

    def rows(self) -> list[LinkRow]:
        """What is known of each edge, worst first."""
        return self._edges.rows() if self._measured else self._links.rows()


class PeerGroups:
    """Ranks of one group are compared with each other.

    What a step communicates may change (an evaluation, another number of micro-batches) while the
    ranks stay divided as before: then nothing changes here, and evidence is kept.

    Args:
        world_size: ranks; one that was not seen yet is a group of its own.
    """

    def __init__(self, world_size: int) -> None:
        self.by_rank: tuple[int, ...] = tuple(range(world_size))
        self._keys: list[tuple[int, str]] = []

    def update(self, records: Sequence[StepRecord]) -> bool:
        """Whether other ranks are to be compared from this step on.

        Args:
            records: of one step, one a rank at most.
        """
        keys = [(record.rank, record.peers_key) for record in records]
        if keys == self._keys:
            return False
        before = dict(self._keys)
        self._keys = keys
        pairs = {(self.by_rank[rank], key) for rank, key in keys}
        olds, news = {old for old, _ in pairs}, {key for _, key in pairs}
        if len(pairs) == len(olds) == len(news):
            # Who has no peers is held against its own past, of which less than this is left then.
            many = Counter(self.by_rank)
            alone = [(rank, key) for rank, key in keys if many[self.by_rank[rank]] == 1]
            if all(before.get(rank, key) == key for rank, key in alone):
                return False
        number: dict[str, int] = {}
        group_of = dict(enumerate(self.by_rank))
        free = max(self.by_rank) + 1
        for rank, key in keys:
            group_of[rank] = free + number.setdefault(key, len(number))
        # Small numbers again, in the order of ranks.
        order: dict[int, int] = {}
        self.by_rank = tuple(order.setdefault(group, len(order)) for group in group_of.values())
        return True
