"""NCCL's RAS as a source beside the hook: what it says of the local ranks when a hang is judged."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from relkit.hang.model import NCCL_RAS
from relkit.launch.hang.state_source import Occasion, RankReport, SourceReport
from relkit.launch.job.settings import LocalRank
from relkit.nccl_ras.model import MissingRank, RasAnswer
from relkit.nccl_ras.parse import parse_answer
from relkit.nccl_ras.query import NoAnswer, NobodyListens, ask, ras_address
from relkit.nccl_ras.states import has_stood, places_of, state_of, words_of
from relkit.process import procfs

# An answer comes from all processes of the job: larger jobs are not asked by each of their nodes.
MAX_RANKS = 4096
# A hung job waits anyway, but the leader waits for each node's part only so long.
_DEADLINE_S, _APART_S = 5.0, 0.5
# Several jobs of one user may share the port, and any of them answers.
_TRIES = 3
_MAX_MISSING = 8
_NO_ANSWER = "its RAS does not answer that of the other ranks"
_DEAD_BUT_RUNS = (
    "the other ranks' NCCL RAS has given the process up, and it runs: the process counts"
)


class NcclRas:
    """A StateSource; asks only when a hang is judged, as the question goes through the whole job.

    Args:
        world_size: ranks of the job.
        query: gives the JSON; deadline in s.
        clock: monotonic seconds; unix_ns: Unix time, ns; pause: waits, s.
    """

    def __init__(
        self,
        world_size: int,
        *,
        query: Callable[[float], bytes] = lambda s: ask(ras_address(os.environ), s),
        clock: Callable[[], float] = time.monotonic,
        unix_ns: Callable[[], int] = time.time_ns,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._world_size, self._query = world_size, query
        self._clock, self._unix_ns, self._pause = clock, unix_ns, pause

    @property
    def name(self) -> str:
        """See StateSource."""
        return NCCL_RAS

    def look(self, ranks: Sequence[LocalRank], occasion: Occasion = Occasion.WATCH) -> SourceReport:
        """See StateSource."""
        if occasion is not Occasion.HANG or not ranks or self._world_size > MAX_RANKS:
            return SourceReport()
        pids = {rank.rank: _own_numbers(rank.pid) for rank in ranks}
        ours = {pid for each in pids.values() for pid in each}
        end_s = self._clock() + _DEADLINE_S
        try:
            answer = self._answer_about(ours, end_s)
            if answer is None:
                return SourceReport()
            self._pause(_APART_S)
            after = self._answer_about(ours, end_s)
        except NobodyListens:
            return SourceReport()
        except (NoAnswer, ValueError) as error:
            return SourceReport(lines=(f"NCCL's RAS cannot be read ({error})",))
        if after is None or not has_stood(answer, after):
            # Who launches something is in nothing for long: the counts prove nothing then.
            return SourceReport()
        return SourceReport(self._told(after, pids), _lines(after))

    def _told(self, answer: RasAnswer, pids: Mapping[int, Sequence[int]]) -> dict[int, RankReport]:
        """By rank, what an answer says of it.

        Args:
            pids: by rank, its processes.
        """
        hosts = frozenset(host for host, _ in _processes(answer) if _is_of_this_host(host))
        given_up = _given_up(answer, hosts)
        told = {}
        for rank, own in pids.items():
            for pid in own:
                if places := places_of(answer, hosts, pid):
                    now_ns = self._unix_ns()
                    state = state_of(places, rank=rank, world_size=self._world_size, now_ns=now_ns)
                    told[rank] = RankReport(state, words_of(places), knows_ends=False)
                elif pid in given_up:
                    dead = given_up[pid]
                    disputes = (_DEAD_BUT_RUNS,) if dead else ()
                    told[rank] = RankReport(None, _NO_ANSWER, disputes=disputes)
        return told

    def _answer_about(self, pids: set[int], end_s: float) -> RasAnswer | None:
        """An answer that knows one of these processes.

        Args:
            end_s: by when, on the clock.
        """
        for _ in range(_TRIES):
            answer = parse_answer(self._query(max(0.0, end_s - self._clock())))
            if any(pid in pids and _is_of_this_host(host) for host, pid in _processes(answer)):
                return answer
        return None


def _own_numbers(pid: int) -> tuple[int, ...]:
    """The numbers by which a process and those below it know themselves, as RAS names them."""
    return tuple(procfs.own_number(each) for each in (pid, *procfs.descendants(pid)))


def _processes(answer: RasAnswer) -> set[tuple[str, int]]:
    """All processes of the job: host and pid."""
    members = [member for each in answer.communicators for member in each.members]
    return {(member.host, member.pid) for member in members}


def _given_up(answer: RasAnswer, hosts: frozenset[str]) -> dict[int, bool]:
    """Processes of this host that do not answer, and whether the others have given them up."""
    return {
        rank.pid: rank.dead
        for each in answer.communicators
        for rank in each.missing
        if rank.unresponsive and rank.host in hosts
    }


def _is_of_this_host(address: str) -> bool:
    """Only an address of this host can be bound; names are never looked up."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if ip.is_unspecified:
        return False
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True


def _lines(answer: RasAnswer) -> tuple[str, ...]:
    """Processes that NCCL itself misses, wherever they run."""
    missing: dict[tuple[str, int], tuple[str, MissingRank]] = {}
    for each in answer.communicators:
        for rank in each.missing:
            if rank.unresponsive:
                missing.setdefault((rank.host, rank.pid), (each.name.partition(":")[0], rank))
    if not missing:
        return ()
    words = [
        f"pid {rank.pid} on {rank.host} (rank {rank.rank} of communicator {name}"
        f"{', given up' if rank.dead else ''})"
        for name, rank in list(missing.values())[:_MAX_MISSING]
    ]
    rest = len(missing) - _MAX_MISSING
    more = f" and {rest} more" if rest > 0 else ""
    return (f"NCCL's RAS gets no answer from {', '.join(words)}{more}",)
