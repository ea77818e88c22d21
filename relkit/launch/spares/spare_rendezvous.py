"""torch's rendezvous, in which members of the job go first and spares wait.

torch has a list for launchers beyond the number of nodes; who is on it sends heartbeats, and steps
in as soon as a node is missing. What is added: which nodes are members (`membership`), that only as
many spares step in as members are gone (`join_step`), and that whoever waits sees it within seconds
when a node is dead (`dead_nodes`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch.distributed.elastic.rendezvous.api import (
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    _Action,
    _RendezvousExitOp,
    _RendezvousJoinOp,
    _should_keep_alive,
)

from relkit.launch.job.settings import Log
from relkit.launch.job.store_host import holds_store, store_endpoint
from relkit.launch.spares.dead_nodes import DeadNodes
from relkit.launch.spares.first_exchange import FirstExchange
from relkit.launch.spares.host_probes import HostProbes
from relkit.launch.spares.join_step import JoinStep, Rendezvous, is_short, next_step, surplus
from relkit.launch.spares.membership import Membership, decode
from relkit.launch.spares.operations import Operation, Operations, Rule
from relkit.launch.spares.settings import (
    ROW_S,
    TORCH_LOOK_S,
    NoReplacement,
    SpareSettings,
    look_s,
    words_of,
)
from relkit.launch.spares.torch_state import (
    ATTRIBUTE,
    heartbeats_of,
    keys_of,
    leave_out,
    off_the_lists,
    present_in,
    seen,
    take_out,
)
from relkit.log_lines import warning
from relkit.process.interruptible_wait import is_set_within

# Spares look once a second or more often whether the job has ended.
_LAST_LOOK_S, _LOOK_S = 3.5, 0.2
# How long the others leave a place to the host of the store, which is there before them.
_HOST_S = 10.0
# One exchange with the store; and to end a wait in which it is looked at once a second.
_NOTE_S, _STOP_S = 5.0, 5.0
_SHOWN_NAMES = 8
_LEFT = "its launcher has ended"


@dataclass(slots=True)
class _Try:
    """One attempt of this node to come into a meeting.

    Args:
        begun_s: when, on the meeting's clock.
        short_since_s: from when on the job was seen to be short of nodes; None while it is not.
        said: what the terminal has been told already.
    """

    begun_s: float
    short_since_s: float | None = None
    said: set[object] = field(default_factory=set)


class SpareRendezvous:
    """One node's part in the meetings of a job: torch calls it in the place of its own rules.

    Args:
        settings: what the user asked for.
        log: writes one line to the terminal.
        node: this node's name.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: SpareSettings,
        log: Log,
        node: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.membership = Membership()
        # From when it waits until it is in a meeting.
        self.waits_as_spare = False
        # Why this node leaves, once it does: for good.
        self.leaving_why = ""
        self._settings, self._log, self._node, self._clock = settings, log, node, clock
        self._handler: Any = None
        self._restarts: Callable[[], int] = lambda: 0
        self._dead = DeadNodes(0.0)
        self._meetings, self._is_idle = 0, threading.Event()
        self._is_idle.set()
        self._is_host = False
        self._try = _Try(0.0)

    def attach(self, handler: RendezvousHandler, restarts: Callable[[], int]) -> None:
        """Take part from now on; nothing is changed where that is not asked for.

        Args:
            handler: of this job, before its first meeting.
            restarts: how many this node has used.
        """
        operations = getattr(handler, "_op_executor", None)
        if not self._settings.is_on:
            return
        if operations is None:
            if self._settings.is_asked:
                what = "node units" if self._settings.node_unit > 1 else "spares"
                backend = handler.get_backend()
                self._log(warning(f"rendezvous backend {backend} does not support {what}"))
            return
        self._handler, self._restarts = handler, restarts
        self._is_host = holds_store(self._handler._store)
        settings = self._handler.settings
        if (unit := self._settings.node_unit) > 1:
            most, least = settings.max_nodes, settings.min_nodes
            self._log(f"the job has {least} to {most} nodes, a multiple of {unit} (--node-unit)")
        interval_s = settings.keep_alive_interval.total_seconds()
        _, port = store_endpoint(self._handler._store)
        self._dead = DeadNodes(interval_s, HostProbes(port, self._clock) if port else None)
        rules: dict[type[Any], Rule] = {_RendezvousJoinOp: self.join, _RendezvousExitOp: self.exit}
        self._handler._op_executor = Operations(operations, rules, look_s(interval_s))
        # That of nodes that train: how old their view of who waits may be, s.
        self._handler._state_holder._cache_duration = min(2 * look_s(interval_s), TORCH_LOOK_S)
        self._handler.next_rendezvous = partial(self._meet, handler.next_rendezvous)
        get_store = self._handler._get_store
        self._handler._get_store = lambda: self.first_exchange(get_store())
        self._handler.shutdown = partial(self._shut_down, handler.shutdown)

    @property
    def is_on(self) -> bool:
        """It takes part: members go first, and the others wait."""
        return self._handler is not None

    @property
    def may_replace(self) -> bool:
        """A node that leaves now may be replaced: the job can be without it for a while."""
        if self._handler is None:
            return False
        if self._settings.replacement_timeout_s is not None:
            return True
        spares = len(self._handler._state_holder.state.redundancy_list)
        # At the first meeting, spares may still be on their way.
        return bool(spares or (self._meetings == 1 and self._settings.spares))

    @property
    def grows(self) -> bool:
        """Nodes wait to come in addition: no member is gone, and all is well."""
        if self._handler is None:
            return False
        state = self._handler._state_holder.state
        membership = decode(getattr(state, ATTRIBUTE, ""))
        new = keys_of(state.wait_list) - membership.members.keys()
        return bool(new) and not membership.gone and membership.round == state.round

    def join(self, by_torch: Operation, context: Any, deadline: float) -> _Action:  # noqa: ANN401
        """The next thing to do on the way into a meeting."""
        state, key = context.state, repr(context.node)
        before = self.membership = decode(getattr(state, ATTRIBUTE, ""))
        if self.leaving_why:
            return self._leave(context)
        if state.closed:
            return self._closed(by_torch, context, deadline)
        after = self._without_dead(context, before.named(key, self._node))
        if self._is_host and not after.host:
            after = after.hosted_by(key)
        if state.complete and context.node in state.participants and after.round != state.round:
            after = after.met(state.round, keys_of(state.participants), present_in(state))
        if after != before:
            setattr(state, ATTRIBUTE, after.encode())
            return _Action.KEEP_ALIVE
        rendezvous = self._seen(context)
        step = next_step(rendezvous, after)
        if step is JoinStep.WAIT_AS_SPARE:
            return self._wait(context)
        if step is JoinStep.STEP_IN:
            return self._step_in(context)
        if step is JoinStep.COMPLETE:
            action = _Action.MARK_RENDEZVOUS_COMPLETE
        elif after.round < 0:
            action = self._join_first(by_torch, context, deadline)
        else:
            if state.complete and context.node in state.participants:
                self._announce()
            elif why := self._why_late(rendezvous):
                return self._give_up(context, why)
            action = by_torch(context, math.inf)
        if action is _Action.MARK_RENDEZVOUS_COMPLETE:
            self._leave_surplus_out(context, after)
        return action

    def _leave_surplus_out(self, context: Any, membership: Membership) -> None:  # noqa: ANN401
        """The meeting takes place; nodes beyond a multiple of --node-unit wait as spares do."""
        left_over = surplus(self._seen(context), membership)
        if left_over:
            met = leave_out(context.state, left_over, membership, self._settings.node_unit)
            # At once, so that those who are left over see that they are no members.
            setattr(context.state, ATTRIBUTE, met.encode())

    def _join_first(
        self,
        by_torch: Operation,
        context: Any,  # noqa: ANN401
        deadline: float,
    ) -> _Action:
        """Whoever comes first is a member, and the host of the store: it cannot be lost anyway."""
        state = context.state
        if (
            not state.complete
            and not self._is_host
            and context.node not in state.participants
            and len(state.participants) + 1 == context.settings.max_nodes
            and self.membership.host not in keys_of(state.participants)
            and self._clock() - self._try.begun_s < _HOST_S
        ):
            return _Action.KEEP_ALIVE if _should_keep_alive(context) else _Action.SYNC
        return by_torch(context, deadline)

    def failed(self, trained_s: float) -> str:
        """A worker of this node failed: why the node is to be given up, "" where it is not.

        Args:
            trained_s: how long the workers have run, s.
        """
        if self._handler is None:
            return ""
        key = repr(self._handler._this_node)

        def note(context: Any, _deadline: float) -> _Action:  # noqa: ANN401
            before = decode(getattr(context.state, ATTRIBUTE, ""))
            self.membership = before.failed_first(key, anew=trained_s > ROW_S)
            if self.membership == before:
                return _Action.FINISH
            setattr(context.state, ATTRIBUTE, self.membership.encode())
            return _Action.KEEP_ALIVE

        with self._handler._heartbeat_lock:
            self._handler._op_executor.run(note, time.monotonic() + _NOTE_S)
        row, limit = self.membership.failures_in_a_row(key), self._settings.node_restarts
        if not limit or row < limit:
            return ""
        why = f"its workers failed first {row} times in a row (--node-restarts {limit})"
        if not self.may_replace and len(self.membership.members) <= self._least:
            self._log(f"this node ({self._node}) stays, although {why}: nobody can take its place")
            return ""
        if self._is_host:
            self._log(f"this node ({self._node}) stays, although {why}: the store is here")
            return ""
        return why

    @property
    def silence_limit_s(self) -> float:
        """A node that has given no sign of life for so long is dead, s."""
        return self._dead.limit_s

    @property
    def _least(self) -> int:
        return int(self._handler.settings.min_nodes)

    def exit(self, by_torch: Operation, context: Any, deadline: float) -> _Action:  # noqa: ANN401
        """The next thing to do on the way out: to meet again, or for good."""
        state = context.state
        if context.node in state.participants:
            membership = decode(getattr(state, ATTRIBUTE, ""))
            if self._is_idle.is_set():
                membership = membership.without(repr(context.node), self.leaving_why or _LEFT)
            else:
                membership = membership.restarted(self._restarts())
            setattr(state, ATTRIBUTE, membership.encode())
        return by_torch(context, deadline)

    @property
    def _join_s(self) -> float:
        return float(self._handler.settings.timeout.join.total_seconds())

    @property
    def _replacement_s(self) -> float:
        asked_s = self._settings.replacement_timeout_s
        return self._join_s if asked_s is None else asked_s

    def _meet(self, by_torch: Callable[[], Any]) -> Any:  # noqa: ANN401
        self._try = _Try(self._clock())
        self._meetings += 1
        self._is_idle.clear()
        try:
            met = by_torch()
        finally:
            self._is_idle.set()
        store = getattr(met.store, "store", met.store)
        return RendezvousInfo(store, met.rank, met.world_size, met.bootstrap_store_info)

    def first_exchange(self, store: Any) -> Any:  # noqa: ANN401
        """A store for what nodes tell each other once they have met; where it takes part."""
        if self._handler is None:
            return store
        dead = DeadNodes(self._handler.settings.keep_alive_interval.total_seconds())
        timeout_s = self._handler._store.timeout.total_seconds()
        return FirstExchange(store, partial(self._why_broken, dead), timeout_s)

    def _why_broken(self, dead: DeadNodes) -> str:
        """Why the nodes that have just met cannot start their workers, "" where they can."""
        with self._handler._heartbeat_lock:
            self._handler._state_holder.sync()
            state = self._handler._state_holder.state
            membership = decode(getattr(state, ATTRIBUTE, ""))
            others = keys_of(state.participants) - {repr(self._handler._this_node), membership.host}
            heartbeats = heartbeats_of(state)
        if why := dead.why_dead(others, {}, heartbeats, self._clock()):
            return words_of({membership.names.get(key, key): words for key, words in why.items()})
        if self._handler._this_node not in state.participants:
            return "the other nodes have met without this one"
        return "a node of this meeting is lost" if state.wait_list else ""

    def stop(self, why: str) -> bool:
        """Wait no longer for a meeting, as this node leaves; its thread ends within seconds.

        Args:
            why: for the others, in a few words.

        Returns:
            whether it has ended; where there was none, too.
        """
        self.leaving_why = why
        return is_set_within(self._is_idle, _STOP_S)

    def _leave(self, context: Any) -> _Action:  # noqa: ANN401
        after = self.membership.without(repr(context.node), self.leaving_why)
        if after != self.membership:
            setattr(context.state, ATTRIBUTE, after.encode())
            return off_the_lists(context) or _Action.KEEP_ALIVE
        if action := off_the_lists(context):
            return action
        raise RendezvousGracefulExitError(self.leaving_why)

    def _without_dead(self, context: Any, membership: Membership) -> Membership:  # noqa: ANN401
        """The membership without nodes that are dead; they are taken out of the state as well."""
        state = context.state
        nodes = {
            repr(n): n for n in (*state.participants, *state.wait_list, *state.redundancy_list)
        }
        # The host of the store lives as long as the store answers, however busy its launcher is.
        watched = (membership.expected | nodes.keys()) - {repr(context.node), membership.host}
        hosts = {key: nodes[key].addr for key in watched & nodes.keys()}
        if membership.host in nodes:
            # It is not asked: the store would take each question for a connection.
            of_store = nodes[membership.host].addr
            hosts = {key: host for key, host in hosts.items() if host != of_store}
        dead = self._dead.why_dead(watched, hosts, heartbeats_of(state), self._clock())
        for key, why in dead.items():
            membership = membership.without(key, why)
            if key in nodes:
                take_out(context, nodes[key])
        return membership

    def _wait(self, context: Any) -> _Action:  # noqa: ANN401
        if context.node not in context.state.redundancy_list:
            return _Action.ADD_TO_REDUNDANCY_LIST
        if not self.waits_as_spare:
            self.waits_as_spare = True
            self._log(f"this node ({self._node}) is a spare: {self._what_for(context)}")
        return _Action.KEEP_ALIVE if _should_keep_alive(context) else _Action.SYNC

    def _what_for(self, context: Any) -> str:  # noqa: ANN401
        names, unit = sorted(self.membership.members.values()), self._settings.node_unit
        if unit > 1 and len(names) < context.settings.max_nodes:
            return f"the job has {len(names)} nodes and grows by {unit} at a time (--node-unit)"
        whose = f"any of the job's {len(names)} nodes" if len(names) > 1 else "the job's node"
        more = ", ..." if len(names) > _SHOWN_NAMES else ""
        return f"it waits to take the place of {whose} ({', '.join(names[:_SHOWN_NAMES])}{more})"

    def _step_in(self, context: Any) -> _Action:  # noqa: ANN401
        state = context.state
        if self.waits_as_spare and self._is_new("steps in"):
            lost = words_of(self.membership.lost)
            why = f"the job has lost {lost}" if lost else "the job has a free place"
            self._log(f"this node ({self._node}) steps in: {why}")
        self._try.begun_s, self._try.short_since_s = self._clock(), None
        if state.complete:
            return _Action.ADD_TO_WAIT_LIST
        state.redundancy_list.discard(context.node)
        return _Action.ADD_TO_PARTICIPANTS

    def _announce(self) -> None:
        self.waits_as_spare = False
        if self._is_new(self.membership.round):
            for change in self.membership.changes:
                self._log(change)

    def _why_late(self, rendezvous: Rendezvous) -> str:
        """Why time is up for those who wait; "" before, when one line says whom they wait for."""
        now_s = self._clock()
        if not is_short(rendezvous, self.membership.expected):
            # All who are needed live, and may take their time.
            self._try.short_since_s = None
            is_late = now_s > self._try.begun_s + self._join_s
            return f"not all of its nodes came back within {self._join_s:g} s" if is_late else ""
        if self._try.short_since_s is None:
            self._try.short_since_s = now_s
        if self.membership.lost and not rendezvous.spares and self._is_new("short"):
            line = (
                f"the job has lost {self._lost()}; it waits {self._replacement_s:g} s for a new"
                " launcher in that place (--replacement-timeout)"
            )
            self._log(warning(line))
        is_late = now_s > self._try.short_since_s + self._replacement_s
        return self._why_short() if is_late else ""

    def _why_short(self) -> str:
        return f"nobody took that place within {self._replacement_s:g} s"

    def _give_up(self, context: Any, why: str) -> _Action:  # noqa: ANN401
        """Take this node off the list, and end."""
        if action := off_the_lists(context):
            return action
        raise NoReplacement(f"the job cannot go on without {self._lost()}: {why}")

    def _lost(self) -> str:
        """Members that are gone; where none is known to be, whoever else there was."""
        return words_of(self.membership.lost) or "its other nodes"

    def _closed(
        self,
        by_torch: Operation,
        context: Any,  # noqa: ANN401
        deadline: float,
    ) -> _Action:
        """The job has ended; who waits takes itself off the list, for the store's host to see."""
        # One that was replaced while it was cut off comes back as a spare.
        was_replaced = self._meetings > 1 and repr(context.node) not in self.membership.members
        if context.node in context.state.redundancy_list or was_replaced:
            self.waits_as_spare = True
        if self.waits_as_spare:
            if action := off_the_lists(context):
                return action
            self._log(f"the job has ended, and with it this spare ({self._node})")
            raise RendezvousGracefulExitError("the job has ended")
        expected = self.membership.expected
        if repr(context.node) in expected and is_short(self._seen(context), expected):
            return self._give_up(context, self._why_short())
        return by_torch(context, deadline)

    def _shut_down(self, by_torch: Callable[[], bool]) -> bool:
        """Close the rendezvous; the host of the store stays until those who wait have seen it."""
        is_closed = by_torch()
        if not is_closed or not self._is_host:
            return is_closed
        holder, end_s = self._handler._state_holder, self._clock() + _LAST_LOOK_S
        while self._clock() < end_s:
            holder.sync()
            state = holder.state
            waiting = state.redundancy_list | state.wait_list
            if not state.complete:
                waiting |= set(state.participants)
            if not waiting - {self._handler._this_node}:
                break
            time.sleep(_LOOK_S)
        return is_closed

    def _seen(self, context: Any) -> Rendezvous:  # noqa: ANN401
        return seen(context, self._settings.node_unit)

    def _is_new(self, what: object) -> bool:
        """Whether this was not said in this meeting."""
        is_new = what not in self._try.said
        self._try.said.add(what)
        return is_new
