"""PyTorch's flight recorder of the local ranks, read through torch's worker server in each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.flight_recorder.live_state import (
    FlightCounts,
    brief_state,
    flight_counts,
    live_dump,
    whole_states,
)
from relkit.flight_recorder.model import FlightDump
from relkit.flight_recorder.worker_server import Answers, ask
from relkit.hang.model import FLIGHT_RECORDER
from relkit.hang.words import of_ranks, operation
from relkit.hook.model import HookState
from relkit.launch.hang.state_source import Occasion, RankReport, SourceReport
from relkit.launch.job.settings import LocalRank
from relkit.process import procfs
from relkit.process.identity import name_of
from relkit.ranks import RankSet

# Time between two looks at a job that moves. A look takes a worker about 25 ms in a thread of its
# own, without Python's interpreter lock.
EVERY_S = 5.0
# The same where nothing has moved since the look before.
STANDING_EVERY_S = 1.0
# A look takes no more than this part of the time.
_MAX_SHARE = 0.1
_DEADLINE_S, _CLOSE_DEADLINE_S = 1.0, 3.0
# A rank that ends has no server for a moment before its process is gone.
_LOST_AFTER = 3
_NO_SOCKET = "its socket is gone"
_HANDLERS = "GET /handler/"
# NCCL's own recorder first: where torch has both, a group's NCCL part is in that one alone.
_RECORDERS = ("dump_nccl_trace_json", "fr_trace_json")


@dataclass(frozen=True, slots=True)
class _Known:
    """The newest look at a rank that gave something.

    Args:
        pid: of its process; counts: how far it has come; state: of that look.
        dump: its operations; None where they were not read, as it moves.
        is_fresh: it answered the newest look.
    """

    pid: int
    counts: FlightCounts
    state: HookState
    dump: FlightDump | None
    is_fresh: bool = True


class WorkerServers:
    """A StateSource; asks the worker servers of this node's ranks.

    Args:
        folder: their sockets, named after their processes, in a folder that only this user enters.
        world_size: ranks of the job.
        every_s: time between two looks at a job that moves, s.
        clock: monotonic seconds; unix_ns: Unix time, ns.
    """

    def __init__(
        self,
        folder: Path,
        world_size: int,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._folder, self._world_size, self._every_s = folder, world_size, every_s
        self._clock, self._unix_ns = clock, unix_ns
        self._next_s = 0.0
        self._known: dict[int, _Known] = {}
        self._handlers: dict[Path, str] = {}
        self._reported: set[str] = set()
        # In how many looks without a break a rank has not answered.
        self._failed: dict[int, int] = {}
        # Ranks whose server has ended, as it does before the process ends.
        self._ended: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """See StateSource."""
        return FLIGHT_RECORDER

    def look(self, ranks: Sequence[LocalRank], occasion: Occasion = Occasion.WATCH) -> SourceReport:
        """See StateSource."""
        closely = occasion is not Occasion.WATCH
        lines: list[str] = []
        began_s = self._clock()
        is_due = closely or began_s >= self._next_s
        sockets = self._sockets(ranks) if is_due else {}
        numbers = {rank.rank for rank in ranks}
        missing = numbers & (self._known.keys() - sockets.keys()) if is_due else set()
        if sockets or missing:
            stands = self._look(sockets, missing, lines, closely=closely)
            took_s = self._clock() - began_s
            pause_s = min(STANDING_EVERY_S, self._every_s) if stands else self._every_s
            self._next_s = self._clock() + max(pause_s, took_s / _MAX_SHARE)
        told = {
            rank: RankReport(self._state(rank, known, closely=closely), _words(known))
            for rank, known in self._known.items()
            if rank in numbers and known.counts.moves
        }
        return SourceReport(told, tuple(lines))

    def _sockets(self, ranks: Sequence[LocalRank]) -> dict[int, tuple[int, Path]]:
        """By rank, the process that answers for it and its socket."""
        try:
            named = {path.stem: path for path in self._folder.glob("[0-9]*.sock")}
        except OSError:
            return {}
        sockets = {}
        if named:
            for rank in ranks:
                # A wrapper (numactl, a shell script) was started; the rank itself is below it.
                for pid in (rank.pid, *procfs.descendants(rank.pid)):
                    name = name_of(pid)
                    if name in named:
                        sockets[rank.rank] = (pid, named[name])
                        break
        return sockets

    def _state(self, rank: int, known: _Known, *, closely: bool) -> HookState | None:
        """What a rank is judged by; None where that is not what it said."""
        if self._failed.get(rank, 0) < _LOST_AFTER:
            return known.state if known.dump or not closely else None
        # What it was in when it last answered may have ended long ago, and must not make a hang.
        # One that is about to end does nothing more, and may be stuck in that.
        is_ending = rank in self._ended and not closely
        return replace(known.state, in_flight=()) if is_ending else None

    def _look(
        self,
        sockets: Mapping[int, tuple[int, Path]],
        missing: Collection[int],
        lines: list[str],
        *,
        closely: bool,
    ) -> bool:
        """Ask them; True where no rank has moved since the look before.

        Args:
            missing: ranks that have answered, and have no socket any more.
        """
        deadline_s = _CLOSE_DEADLINE_S if closely else _DEADLINE_S
        answers = self._ask({rank: path for rank, (_, path) in sockets.items()}, deadline_s)
        counts: dict[int, FlightCounts] = {}
        failures = {**dict.fromkeys(missing, _NO_SOCKET), **answers.failures}
        self._ended = answers.ended
        for rank, body in answers.bodies.items():
            try:
                counts[rank] = flight_counts(body)
            except ValueError as error:
                failures[rank] = str(error)
        still = {rank for rank in counts if self._has_stood(rank, sockets[rank][0], counts[rank])}
        dumps: dict[int, FlightDump] = {}
        for rank in counts:
            read = self._known[rank].dump if rank in still else None
            # An operation may end without a call or a completion that is counted.
            if closely or (rank in still and read is None):
                try:
                    read = live_dump(answers.bodies[rank], rank)
                except ValueError as error:
                    failures[rank] = str(error)
            if read is not None:
                dumps[rank] = read
        self._note(sockets, counts, dumps)
        self._report(failures, lines, closely=closely)
        return bool(counts) and len(still) == len(counts)

    def _note(
        self,
        sockets: Mapping[int, tuple[int, Path]],
        counts: Mapping[int, FlightCounts],
        dumps: Mapping[int, FlightDump],
    ) -> None:
        now_ns, world_size = self._unix_ns(), self._world_size
        whole: dict[int, HookState] = {}
        if dumps:
            ordered = [dumps[rank] for rank in sorted(dumps)]
            whole = whole_states(ordered, counts, world_size=world_size, now_ns=now_ns)
        self._known = {rank: replace(known, is_fresh=False) for rank, known in self._known.items()}
        for rank, count in counts.items():
            pid = sockets[rank][0]
            state = whole.get(rank) or brief_state(
                count, rank=rank, world_size=world_size, now_ns=now_ns
            )
            state = replace(state, pid=pid, start_ticks=procfs.start_ticks(pid))
            self._known[rank] = _Known(pid, count, state, dumps.get(rank))

    def _ask(self, sockets: Mapping[int, Path], deadline_s: float) -> Answers:
        """Their recorders' dumps; which handler a server has is asked once."""
        unasked = {rank: path for rank, path in sockets.items() if path not in self._handlers}
        failures: dict[int, str] = {}
        ended: set[int] = set()
        if unasked:
            listed = ask(unasked, _HANDLERS, deadline_s)
            failures |= listed.failures
            ended |= listed.ended
            for rank, body in listed.bodies.items():
                names = body.decode("utf-8", "replace")
                handler = next((name for name in _RECORDERS if f'"{name}"' in names), "")
                if handler:
                    self._handlers[sockets[rank]] = handler
                else:
                    failures[rank] = "its torch has none to ask for"
        bodies: dict[int, bytes] = {}
        for handler in _RECORDERS:
            mine = {r: path for r, path in sockets.items() if self._handlers.get(path) == handler}
            if mine:
                told = ask(mine, f"POST /handler/{handler}", deadline_s)
                bodies |= told.bodies
                failures |= told.failures
                ended |= told.ended
        return Answers(bodies, failures, frozenset(ended))

    def _has_stood(self, rank: int, pid: int, counts: FlightCounts) -> bool:
        known = self._known.get(rank)
        return known is not None and known.pid == pid and known.counts == counts

    def _report(self, failures: Mapping[int, str], lines: list[str], *, closely: bool) -> None:
        """Say once why ranks cannot be read; not of one that is just about to end."""
        self._failed = {rank: self._failed.get(rank, 0) + 1 for rank in failures}
        lasting = {
            rank: why
            for rank, why in failures.items()
            # Of one that ends there is nothing to read, whoever looks how closely.
            if (closely and rank not in self._ended) or self._failed[rank] >= _LOST_AFTER
        }
        for why in dict.fromkeys(lasting.values()):
            if why not in self._reported:
                self._reported.add(why)
                who = of_ranks(RankSet.of(rank for rank, each in lasting.items() if each == why))
                lines.append(f"{who}: PyTorch's flight recorder cannot be read ({why})")


def _words(known: _Known) -> str:
    words = f"{known.counts.enqueued} operations called"
    if known.dump is not None:
        flying = [op for op in known.state.in_flight if op.communicates]
        words += f", {operation(flying[0], known.state) if flying else 'none'} in flight"
    return words if known.is_fresh else f"{words}, when it last answered"
