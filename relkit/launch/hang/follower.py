"""Every node's own part in the watch: look at its ranks, share what it sees, capture on request.

The leader asks for a capture through the mailbox. Each leader counts its own incidents:
    (shared)               node n -> leader: summary of its ranks, every share_every_s()
    details                leader -> all: of which ranks it wants to know all
    details/<n>            node n -> leader: views of those of them that are here
    failure/<n>            node n -> leader: one of its workers failed
    incident/<i>           leader -> all: capture your ranks
    incident/<i>/node/<n>  node n -> leader: views and stacks
    incident/<i>/links...  measuring links between the suspects' nodes: see `links.notes`
    incident/<i>/result    leader -> all: the verdict in one line, and what to do with the job
    incident/<i>/seen/<n>  node n -> leader: the result was read
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relkit.errors import BadDump
from relkit.hang.model import RankView
from relkit.launch.hang import codec, incident
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.links.checks import CHECK_S, LinkChecks
from relkit.launch.hang.remote_views import (
    REQUEST_KEY,
    asked_ranks,
    decode_request,
    details_key,
    share_every_s,
)
from relkit.launch.hang.state_source import Occasion
from relkit.launch.hang.summary import encode_summary
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import Log
from relkit.log_lines import Level, Line
from relkit.stacks.model import RankDump

# How long a node that reported a failure waits for the leader to handle it: longer than it takes
# until one that is silent is succeeded.
FAILURE_PATIENCE_S = 6.0


class WatchFollower:
    """One node's part; called by the monitor's thread only.

    Args:
        watched: what to look at.
        state: shared with the launcher's thread.
        checks: takes part in measuring links after a hang.
        write_dumps: writes this node's dumps to its own disk as well.
        log: writes one line to the terminal.
    """

    def __init__(
        self,
        watched: WatchedRanks,
        state: WatchState,
        *,
        checks: LinkChecks,
        write_dumps: Callable[[Sequence[RankDump]], None],
        log: Log,
    ) -> None:
        self._watched, self._state, self._checks = watched, state, checks
        self._write_dumps, self._log = write_dumps, log
        # By leader: the number of the next incident, and of the newest that was answered.
        self._incidents: dict[int, int] = {}
        self._answered: dict[int, int] = {}
        self._leader = 0
        self._next_share_s = 0.0
        # Ranks of which the leader wants to know all.
        self._asked: frozenset[int] = frozenset()
        self._failure_sent_s: float | None = None
        self._leader_measures = False

    def share(self, now_s: float, local: Sequence[RankView]) -> bool:
        """Send this node's summary to the leader where it is time to.

        Returns:
            True where it could be sent.

        Raises:
            ExchangeBroken: the leader cannot be reached.
        """
        mailbox = self._watched.mailbox
        asked = self._asked_for(local)
        has_time = now_s < self._next_share_s and self._leader == mailbox.leader
        if has_time and asked == self._asked:
            return False
        self._next_share_s, self._asked = now_s + share_every_s(mailbox.nodes), asked
        # The time makes every summary differ from the last one: one that does not is a silent node.
        mailbox.share(encode_summary(mailbox.node, now_s, local))
        if asked:
            told = [view for view in local if view.rank in asked]
            mailbox.put(details_key(mailbox.node), codec.encode_views(told, {"at": now_s}))
        return True

    def _asked_for(self, local: Sequence[RankView]) -> frozenset[int]:
        """Those of this node's ranks of which the leader wants to know all."""
        try:
            note = self._watched.mailbox.get(REQUEST_KEY)
            return decode_request(note, [view.rank for view in local])
        except BadDump:
            return frozenset()

    def follow(self, now_s: float, local: Sequence[RankView]) -> None:
        """Report a failure of this node, answer the leader's request, and take its verdict over.

        Raises:
            ExchangeBroken: the leader cannot be reached.
        """
        state, mailbox = self._state, self._watched.mailbox
        leader = mailbox.leader
        if leader != self._leader:
            self._leader, self._failure_sent_s = leader, None
        if state.failure and self._failure_sent_s is None:
            self._failure_sent_s = now_s
            mailbox.put(f"failure/{mailbox.node}", state.failure.encode())
        number = self._incidents.get(leader, 0)
        self._leader_measures = False
        request = mailbox.get(f"incident/{number}")
        if request is None:
            return
        if self._answered.get(leader, -1) < number:
            self._answer(leader, number, request, local)
            self._answered[leader] = number
        self._leader_measures = self._checks.follow(number)
        result = mailbox.get(f"incident/{number}/result")
        if result is not None:
            mailbox.put(f"incident/{number}/seen/{mailbox.node}", b"")
            self._incidents[leader] = number + 1
            self._take_over(leader, result)

    def is_abandoned(self, now_s: float) -> bool:
        """The leader has not handled this node's failure in time: it is probably gone itself."""
        sent_s = self._failure_sent_s
        waited_s = 0.0 if sent_s is None else now_s - sent_s
        # One that has links measured handles nothing else meanwhile.
        patience_s = FAILURE_PATIENCE_S + (CHECK_S if self._leader_measures else 0.0)
        return waited_s > patience_s and not self._state.failure_handled

    def _answer(self, leader: int, number: int, request: bytes, local: Sequence[RankView]) -> None:
        fields = codec.unpack(request)
        deadline_s = min(float(fields.get("deadline_s", 1.0)), incident.HANG_CAPTURE_S)
        # The leader gives a hang more time than a failure, which a restart waits for.
        is_hang = deadline_s > incident.FAILURE_CAPTURE_S
        local = self._watched.closer_views(local, Occasion.HANG if is_hang else Occasion.FAILURE)
        if not is_hang:
            local = self._watched.with_others_that_fail(local)
        dumps = self._watched.capture(
            local,
            deadline_s,
            world_size=self._watched.world_size_of(local),
            job_id=str(fields.get("job_id", self._watched.job_id)),
        )
        views = self._watched.with_deaths(self._watched.with_ends(local))
        self._state.captured.set()
        # First of all: once all nodes have answered, the leader may have the job ended.
        self._write_dumps(dumps)
        views = self._watched.with_core_stacks(views, incident.CORE_STACK_SHARED_S)
        if self._watched.mailbox.leader == leader:
            asked = _asked_in(fields, views)
            wanted = self._wanted(asked, views)
            in_full = asked or ()
            incident.answer(self._watched.mailbox, number, views, dumps, wanted, in_full)
        self._state.failure_handled = self._state.failure_handled or bool(self._state.failure)

    def _wanted(
        self, asked: frozenset[int] | None, views: Sequence[RankView]
    ) -> Callable[[int], bool]:
        """Of which ranks the leader gets anything: in a large job of few, and of the failed."""
        if asked is None:
            return lambda _rank: True
        wanted = asked
        if self._state.failure:
            wanted |= {view.rank for view in views if not view.alive}
        return wanted.__contains__

    def _take_over(self, leader: int, result: bytes) -> None:
        fields = codec.unpack(result)
        sentence = f"node {leader} judged: {fields.get('sentence', '')}"
        self._log(Line(sentence, Level.ERROR, "verdict"))
        self._state.judged.set()
        action = fields.get("action")
        if action in {choice.value for choice in OnHang}:
            self._state.action, self._state.hung = OnHang(action), True


def _asked_in(fields: Mapping[str, Any], views: Sequence[RankView]) -> frozenset[int] | None:
    """The ranks of this node of which the leader of a large job wants all; None: it is small."""
    if "ranks" not in fields:
        return None
    return asked_ranks(fields, [view.rank for view in views])
