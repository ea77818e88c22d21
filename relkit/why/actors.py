"""Who wrote what: prefixes, launchers' tables and process ids together name ranks; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.ranks import RankSet
from relkit.why.model import Ended, Evidence, Sighting, Speaker
from relkit.why.rules.exit_codes import cause_of_signal
from relkit.why.rules.told import Kind


@dataclass(frozen=True, slots=True)
class Actor:
    """A process that speaks in the files.

    Args:
        rank: the global one, None where nothing tells it.
        name: for people: `rank 3`, `local rank 2 of node7`, `pod trainer-1`, `job.log`.
    """

    rank: int | None
    name: str


def rank_actor(rank: int) -> Actor:
    """The process of a rank."""
    return Actor(rank, f"rank {rank}")


class Actors:
    """Names who wrote a line.

    Args:
        evidence: of the whole job: who is a rank shows only in all of it.
    """

    def __init__(self, evidence: Evidence) -> None:
        speakers = evidence.speakers
        self._tasks_are_nodes = _have_several(speakers) or any(
            e.local_rank is not None for e in evidence.ended
        )
        hosts = {_short(s.host) for s in speakers if s.host}
        hosts |= {_short(e.host) for e in evidence.ended if e.host}
        nodes = {s.task for s in speakers if s.task is not None and s.local_rank is not None}
        pairs = [e for e in evidence.ended if e.rank is not None and e.local_rank is not None]
        self._is_single_node = (
            len(hosts) < 2 and len(nodes) < 2 and all(e.rank == e.local_rank for e in pairs)
        )
        self._by_local = {(e.host, e.local_rank): e.rank for e in pairs}
        # A launcher's own log has its own local ranks.
        self._by_log: dict[tuple[Path, int | None], set[int | None]] = {}
        for each in pairs:
            self._by_log.setdefault((each.path, each.local_rank), set()).add(each.rank)
        self._ended_pids = [e for e in evidence.ended if e.pid]
        self._processes = [s for s in (*evidence.processes, *speakers)
                           if s.rank is not None and s.pid]  # fmt: skip
        self._of_pid: dict[tuple[int, str], int | None] = {}
        self._by_signal = _of_signals(evidence.ended)
        # That torchrun saw fail first, None where its tables do not agree.
        self.first = _first_of(evidence.ended)
        self._nameless = {s.path for s in evidence.sightings if s.speaker == Speaker()}

    def of(self, sighting: Sighting) -> Actor:
        """Who a line is about, as far as anything shows."""
        speaker = sighting.speaker
        rank = self._rank(speaker)
        if rank is None and speaker.local_rank is not None and not speaker.host:
            known = self._by_log.get((sighting.path, speaker.local_rank), set())
            rank = next(iter(known)) if len(known) == 1 else None
        if rank is None and sighting.pid:
            rank = self._of_process(sighting.pid, _short(speaker.host))
        if rank is None and speaker == Speaker() and sighting.cause in self._by_signal:
            rank = self._by_signal[sighting.cause]
        elif rank is None and speaker == Speaker() and self._is_of_first(sighting):
            rank = self.first.rank if self.first else None
        if rank is not None:
            return rank_actor(rank)
        return Actor(None, self._words(speaker, sighting))

    def _of_process(self, pid: int, host: str) -> int | None:
        """The rank of a process, None where several hosts have one of that number."""
        key = pid, host
        if key not in self._of_pid:
            told = [(_short(e.host), self._of_ended(e)) for e in self._ended_pids if e.pid == pid]
            told += [(_short(s.host), s.rank) for s in self._processes if s.pid == pid]
            known = {rank for on, rank in told if not host or not on or on == host}
            self._of_pid[key] = known.pop() if len(known) == 1 else None
        return self._of_pid[key]

    def of_speaker(self, speaker: Speaker) -> Actor | None:
        """The rank that writes with these prefixes; None where they name none."""
        rank = self._rank(speaker)
        return None if rank is None else rank_actor(rank)

    def of_ended(self, ended: Ended) -> Actor:
        """Whom a launcher speaks of."""
        rank = self._of_ended(ended)
        if rank is not None:
            return rank_actor(rank)
        return Actor(None, f"a process of {ended.host}" if ended.host else "a process")

    def _of_ended(self, ended: Ended) -> int | None:
        if ended.rank is not None:
            return ended.rank
        return self._rank(Speaker(local_rank=ended.local_rank, host=ended.host))

    def _rank(self, speaker: Speaker) -> int | None:
        if speaker.rank is not None:
            return speaker.rank
        if speaker.local_rank is not None:
            known = self._by_local.get((speaker.host, speaker.local_rank))
            if known is None and self._is_single_node:
                known = speaker.local_rank
            return known
        return None if self._tasks_are_nodes else speaker.task

    def _is_of_first(self, sighting: Sighting) -> bool:
        """Whether a line without a name can only be of the process that torchrun saw first."""
        first = self.first
        return (
            first is not None
            and sighting.kind is Kind.ROOT
            and self._nameless <= {first.path}
            and len(self._nameless) == 1
        )

    @staticmethod
    def _words(speaker: Speaker, sighting: Sighting) -> str:
        of_host = f" of {speaker.host}" if speaker.host else ""
        if speaker.local_rank is not None:
            node = f" of node {speaker.task}" if speaker.task is not None else of_host
            return f"local rank {speaker.local_rank}{node}"
        if speaker.task is not None:
            return f"task {speaker.task}"
        pid = speaker.pid or sighting.pid
        if speaker.host:
            return f"process {pid} of {speaker.host}" if pid else speaker.host
        return f"process {pid}" if pid else str(sighting.path)


def _short(host: str) -> str:
    """A host without its domain; an address as it is."""
    return host if host[:1].isdigit() else host.partition(".")[0]


def _have_several(speakers: Collection[Speaker]) -> bool:
    """Whether a task of srun may be a node with several ranks, and no rank itself.

    Rank 3 in task 3 shows that each task is one rank, as ranks are counted through all tasks.
    """
    if any(s.local_rank is not None for s in speakers):
        return True
    pairs = {(s.rank, s.task) for s in speakers if s.rank is not None}
    is_one_each = any(task for _, task in pairs) and all(rank == task for rank, task in pairs)
    return bool(pairs) and not is_one_each


def _of_signals(ended: Sequence[Ended]) -> dict[str, int]:
    """Cause -> the rank that alone was ended by a signal of that kind."""
    ranks: dict[str, set[int]] = {}
    for each in ended:
        # SIGTERM is what launchers send to those that are left: no line is about that.
        if each.rank is not None and (cause := cause_of_signal(-(each.exit_code or 0))):
            ranks.setdefault(cause, set()).add(each.rank)
    return {cause: min(those) for cause, those in ranks.items() if len(those) == 1}


def _first_of(ended: Sequence[Ended]) -> Ended | None:
    """The process that torchrun's table calls the first, where all tables agree."""
    firsts = [each for each in ended if each.is_first and each.rank is not None]
    return firsts[0] if len({each.rank for each in firsts}) == 1 else None


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0-3`."""
    return RankSet.of(ranks).in_words()


def in_words(actors: Sequence[Actor]) -> str:
    """`ranks 0-3, node7`."""
    ranks = RankSet.of(actor.rank for actor in actors if actor.rank is not None)
    names = [actor.name for actor in actors if actor.rank is None]
    shown = list(dict.fromkeys(names))
    more = [f"{len(shown) - 4} more"] if len(shown) > 4 else []
    return ", ".join([*([ranks.in_words()] if ranks else []), *shown[:4], *more])
