"""What is usual in this job: for each kind of operation, and for the time between operations."""

from __future__ import annotations

from dataclasses import dataclass, field

from relkit.hang.detect import Flight, Look
from relkit.hang.suspicion.history import FLOOR_S, History

# A job calls few kinds of operations; whatever comes after so many shares one history.
MAX_KINDS = 64

# Name of the operation, name and size of its group, and its payload in powers of two.
Kind = tuple[str, str, int, int]
_OTHER: Kind = ("", "", 0, 0)


def kind_of(flight: Flight) -> Kind:
    """Operations of one kind take alike long in each step."""
    op, groups = flight.op, flight.state.communicators
    has_group = 0 <= op.communicator < len(groups)
    name, size = ("", 0)
    if has_group:
        name, size = groups[op.communicator].name, groups[op.communicator].size
    return (op.name, name, size, op.size_bytes.bit_length())


@dataclass(frozen=True, slots=True)
class Overdue:
    """What takes longer than it ever did.

    Args:
        flights: operations beyond the limit of their kind, the oldest first; empty where it is
            that no rank finishes anything.
        age_s: of the oldest, or since anything was finished.
        longest_s: how long that took at most so far.
    """

    flights: tuple[Flight, ...]
    age_s: float
    longest_s: float


@dataclass(slots=True)
class Limits:
    """Learns from each look; says what takes too long.

    Args:
        kinds: how long operations took that were seen in flight; gaps: times between two
            finished operations.
        flying: what was in flight at the newest look: its kind, and for how long.
        tick_s: the longest time between two of the last looks; what is never seen in flight took
            less than that.
        under_way: the job was under way at the newest look.
    """

    kinds: dict[Kind, History] = field(default_factory=dict)
    gaps: History = field(default_factory=History)
    flying: dict[tuple[int, int, int, str], tuple[Kind, float]] = field(default_factory=dict)
    tick_s: float = 0.0
    under_way: bool = False

    def learn(self, look: Look) -> None:
        """Take what has ended since the look before."""
        flying = {
            (each.rank, each.op.os_thread_id, each.op.start_ns, each.op.name): (
                kind_of(each),
                each.age_s,
            )
            for each in look.flights
        }
        ended: dict[Kind, float] = {}
        for flight in self.flying.keys() - flying.keys():
            kind, age_s = self.flying[flight]
            ended[kind] = max(ended.get(kind, 0.0), age_s + look.step_s)
        for kind, age_s in ended.items():
            self._history(kind, make=True).add(age_s)
        if look.gap_s is not None:
            self.gaps.add(look.gap_s)
        if look.under_way and not self.under_way:
            for history in (self.gaps, *self.kinds.values()):
                history.forget_the_longest()
        self.flying, self.under_way = flying, look.under_way
        self.tick_s = max(look.step_s, 0.9 * self.tick_s)

    def overdue(self, look: Look, ahead_s: float = 0.0) -> Overdue | None:
        """What takes too long at this look, or would `ahead_s` later."""
        late = []
        for flight in look.flights:
            age_s = flight.age_s + ahead_s
            if age_s > FLOOR_S and age_s > self._history(kind_of(flight)).limit_s:
                late.append(flight)
        if late:
            late.sort(key=lambda each: (-each.age_s, each.rank))
            longest_s = self._history(kind_of(late[0])).longest_s
            return Overdue(tuple(late), late[0].age_s, max(longest_s, self.tick_s))
        if look.idle_s + ahead_s > self.gaps.limit_s:
            return Overdue((), look.idle_s, max(self.gaps.longest_s, self.tick_s))
        return None

    def _history(self, kind: Kind, *, make: bool = False) -> History:
        if kind not in self.kinds and len(self.kinds) >= MAX_KINDS:
            kind = _OTHER
        known = self.kinds.get(kind)
        if known is None:
            known = History()
            if make:
                self.kinds[kind] = known
        return known
