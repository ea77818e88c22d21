"""What a merge keeps of all ranks: each distinct stack once, with the ranks that have it.

Adding a rank costs one look-up a thread, the memory grows with the number of distinct stacks
and not with that of ranks, and two indices add up to the same one in any order.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from relkit.ranks import RankSet
from relkit.stacks.mixed import pair_role, pair_threads
from relkit.stacks.model import Frame, RankDump, Role

MAX_NAMES = 8
_MAX_RECENT = 20_000

Frames: TypeAlias = tuple[Frame, ...]
RanksKey: TypeAlias = tuple[bytes, bytes, int]


class RankTally:
    """Who has one thing: rank intervals, number of threads, up to eight thread names."""

    __slots__ = ("_bits", "_highs", "_lows", "names", "threads")

    def __init__(self) -> None:
        # Arrays, because every second of 100,000 ranks is 50,000 intervals.
        self._lows = array("i")
        self._highs = array("i")
        self._bits = 0
        self.threads = 0
        self.names: list[str] = []

    def add_rank(self, rank: int) -> None:
        """Take in one rank; cheap where it follows or repeats the newest one."""
        if self._highs and self._lows[-1] <= rank <= self._highs[-1] + 1:
            self._highs[-1] = max(self._highs[-1], rank)
        else:
            self._lows.append(rank)
            self._highs.append(rank)

    def add_intervals(self, flat: array[int]) -> None:
        """Take in inclusive intervals: low, high, low, high, ..."""
        self._lows.extend(flat[0::2])
        self._highs.extend(flat[1::2])

    def add_bits(self, bits: int) -> None:
        """Take in the ranks whose bits are 1; for many ranks faster than their intervals."""
        self._bits |= bits

    def add_names(self, names: Iterable[str]) -> None:
        """Keep the alphabetically first names: the same eight for any order of adding."""
        new = {name for name in names if name}.difference(self.names)
        if new:
            self.names = sorted(new.union(self.names))[:MAX_NAMES]

    def ranks(self, known: dict[RanksKey, RankSet] | None = None) -> RankSet:
        """The ranks taken in.

        Args:
            known: sets made before; tallies of the same ranks then share one.
        """
        key = self._lows.tobytes(), self._highs.tobytes(), self._bits
        ranks = None if known is None else known.get(key)
        if ranks is None:
            ranks = RankSet.from_ends(self._lows, self._highs)
            if self._bits:
                ranks = RankSet.from_bits(self._bits | ranks.bits())
            if known is not None:
                known[key] = ranks
        return ranks


def _bare(frames: Frames) -> Frames:
    # Build ids and offsets serve symbolising; two hosts with equal names merge without them.
    return tuple(
        Frame(frame.func, frame.source, entry=frame.entry)
        if frame.build_id or frame.offset or frame.module
        else frame
        for frame in frames
    )


class StackIndex:
    """All distinct stacks, process states and notes of the ranks added so far."""

    def __init__(self) -> None:
        self.states: dict[str, RankTally] = {}
        self.notes: dict[str, RankTally] = {}
        self._threads: dict[tuple[int | None, int | None, Role], RankTally] = {}
        self._numbers: dict[Frames, int] = {}
        self._stacks: list[Frames] = []
        self._recent: dict[int, tuple[Frames, int]] = {}

    def number(self, frames: Frames) -> int:
        """The number of a distinct stack; equal frames have equal numbers."""
        # A reader with a memo hands out one object again and again, and hashing 20 frames costs
        # more than all the rest; the entry keeps the object alive, so its id stays its own.
        known = self._recent.get(id(frames))
        if known is not None:
            return known[1]
        bare = _bare(frames)
        number = self._numbers.setdefault(bare, len(self._stacks))
        if number == len(self._stacks):
            self._stacks.append(bare)
        if len(self._recent) >= _MAX_RECENT:
            self._recent.clear()
        self._recent[id(frames)] = frames, number
        return number

    def thread(self, native: int | None, python: int | None, role: Role) -> RankTally:
        """The tally of one distinct pair of stack numbers, None for a stack that is not there."""
        return self._threads.setdefault((native, python, role), RankTally())

    def threads(self) -> Iterator[tuple[Frames | None, Frames | None, Role, RankTally]]:
        """Every distinct (native frames, Python frames, role) with who has it."""
        for (native, python, role), tally in self._threads.items():
            yield (
                None if native is None else self._stacks[native],
                None if python is None else self._stacks[python],
                role,
                tally,
            )

    def state(self, text: str) -> RankTally:
        """The tally of one process state."""
        return self.states.setdefault(text, RankTally())

    def note(self, text: str) -> RankTally:
        """The tally of one capture note."""
        return self.notes.setdefault(text, RankTally())

    def add(self, dump: RankDump) -> None:
        """Take in one rank."""
        rank = dump.rank
        self.state(dump.process_state).add_rank(rank)
        for note in dump.notes:
            self.note(note).add_rank(rank)
        for native, python in pair_threads(dump):
            tally = self.thread(
                None if native is None else self.number(native.frames),
                None if python is None else self.number(python.frames),
                pair_role(native.role if native else None, python.role if python else None),
            )
            tally.add_rank(rank)
            tally.threads += 1
            tally.add_names(thread.name for thread in (native, python) if thread is not None)

    def present(self) -> RankSet:
        """Every rank added: each has exactly one process state, if only an empty one."""
        return RankSet.union(tally.ranks() for tally in self.states.values())
