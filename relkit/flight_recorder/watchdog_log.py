"""Lines of NCCL's watchdog in a job's log -> how far each rank had come; pure.

Sources: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and TraceUtils.h, 2.0 to 2.13. The
backends of other devices (XCCL, MCCL) are copies of it and write the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from relkit.stacks.model import Frame
from relkit.text.whole_number import whole_number

# A log in which none of these is has no line of a watchdog's.
SIGNS = (b"ProcessGroup", b"atchdog", b"latest states", b"lagging ranks")
MAX_STATES = 1 << 17
_MAX_LINE = 4096
# A report of a desync lists ranks in one line.
_MAX_RANKS_LINE = 1 << 17
_MAX_FRAMES = 32
_MAX_NAME = 1024

# `[rank3]:` is torch's own mark of the global rank; torchrun's `[default3]:` is a local one.
_GLOBAL = re.compile(r"\[rank(\d{1,7})\]:", re.ASCII)
_PREFIXES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        # 2.5 and later, 2.3 and 2.4, 2.2 and before: the rank is that in the group.
        r"\[PG ID \d+ PG GUID (?P<group>[^\s(\]]{1,128})(?:\((?P<what>[^)]{0,128})\))? "
        r"Rank (?P<rank>\d{1,7})\]",
        r"\[PG (?P<group>[^\s(\]]{1,128})(?: \((?P<what>[^)]{0,128})\))? Rank (?P<rank>\d{1,7})\]",
        r"\[Rank (?P<rank>\d{1,7})\]",
    )
)
_TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: Work\w{1,16}\("
    r"SeqNum=(\d{1,18}), OpType=(\w{1,40})[^)]{0,256}?(?:, Timeout\(ms\)=(\d{1,15}))?\)"
    r"(?: ran for (\d{1,15}) milliseconds)?",
    re.ASCII,
)
_AT_WORK = re.compile(r"at (?:work|\w{1,8} work)(?: sequence id)?: (\d{1,18})\b", re.ASCII)
_ENQUEUED = re.compile(
    r"last enqueued (?:\w{1,8} )?work: (-?\d{1,18})(?!\d)", re.ASCII | re.IGNORECASE
)
_COMPLETED = re.compile(
    r"last completed (?:\w{1,8} )?work: (-?\d{1,18})(?!\d)", re.ASCII | re.IGNORECASE
)
# Of the time before the hang, where nothing else was written.
_PERIODIC = "update periodically"
_TRACE = "Stack trace of the failed collective:"
_TRACE_FRAME = re.compile(r"#\d{1,4} ", re.ASCII)
_SNAPSHOT = "Snapshot of ranks' latest states"
_SNAPSHOT_HEAD = re.compile(r"#(\d{1,18}) (started|finished) ranks:", re.ASCII)
_SNAPSHOT_ROW = re.compile(r"^\s*\[([\d, ]{1,130000})\] (started|finished) (\w{1,40})", re.ASCII)
_NEVER = re.compile(r"ranks \[([\d, ]{1,130000})\] are the lagging ranks", re.ASCII)
# What a line must hold to be looked at closely; nearly no line of a training log does.
_WORTH = ("work", "Work", "latest states", " ranks", "] started ", "] finished ", "#", _TRACE)


@dataclass(frozen=True, slots=True)
class WatchdogState:
    """How far one rank had come in one process group.

    Args:
        rank: the global one, or that in the group where `in_group`.
        group: name of the process group, "" where the lines do not say it.
        in_group: nothing but the rank in the group is known.
        enqueued, completed: numbers of the last operations; 0 for none, None where not said.
        stuck_seq: of the operation that timed out; 0 where none of this rank did.
        stuck_op: torch's OpType of that, as `ALLREDUCE`.
        timeout_s, ran_s: its limit, and how long it had run, s; 0 where not said.
        frames: where that was called, innermost first; mostly empty.
        of_others: other ranks say so (torch's report of a desync), and not the rank itself.
    """

    rank: int
    group: str = ""
    in_group: bool = False
    enqueued: int | None = None
    completed: int | None = None
    stuck_seq: int = 0
    stuck_op: str = ""
    timeout_s: float = 0.0
    ran_s: float = 0.0
    frames: tuple[Frame, ...] = ()
    of_others: bool = False

    @property
    def is_transfer(self) -> bool:
        """What timed out is a send, a receive or a batch: their numbers are other ones."""
        return self.stuck_op in ("SEND", "RECV", "RECVANYSOURCE", "COALESCED")


_Who = tuple[int, bool]
# An operation that timed out: whose it was, and its number.
_TimedOut = tuple[_Who, int]


class _Log:
    """What the lines so far have said."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._states: dict[tuple[_Who, str, bool], WatchdogState] = {}
        self._timed_out: dict[_TimedOut, WatchdogState] = {}
        # The newest of each rank, and of all ranks the newest last.
        self._newest: dict[_Who, int] = {}
        self._traced: _TimedOut | None = None
        self._traces: dict[_TimedOut, list[Frame]] = {}
        self._group = ""
        self._snapshot_seq = 0

    def line(self, whole: str) -> None:
        """Read one line: a long one is a message with its begin, or something ahead of its end."""
        text = whole[:_MAX_LINE] if whole.startswith("[") else whole[-_MAX_LINE:]
        who, group = self._who(text)
        if _PERIODIC in text:
            return
        if _TRACE in text:
            whose = who or next(reversed(self._newest), None)
            seq = None if whose is None else self._newest.get(whose)
            self._traced = None if whose is None or seq is None else (whose, seq)
            if self._traced is not None:
                self._traces[self._traced] = []
        elif self._traced is not None and (frame := _trace_frame(text)) is not None:
            if len(self._traces[self._traced]) < _MAX_FRAMES:
                self._traces[self._traced].append(frame)
        elif (timed_out := _TIMED_OUT.search(text)) is not None and who is not None:
            self._time_out(who, timed_out)
        elif (enqueued := _ENQUEUED.search(text)) is not None and who is not None:
            self._status(who, group, text, enqueued)
        else:
            self._desync(whole[:_MAX_RANKS_LINE], group if who is not None else None)

    def _who(self, text: str) -> tuple[_Who | None, str]:
        """Whose line this is, and the group it names."""
        prefix = next((match for p in _PREFIXES if (match := p.search(text)) is not None), None)
        named = _GLOBAL.search(text)
        group = ""
        if prefix is not None:
            parts = prefix.groupdict()
            group = "0" if parts.get("what") == "default_pg" else parts.get("group") or ""
        if named is not None:
            return (int(named[1]), False), group
        if self._rank is not None:
            return (self._rank, False), group
        return (None if prefix is None else (int(prefix["rank"]), True)), group

    def _time_out(self, who: _Who, match: re.Match[str]) -> None:
        seq = int(match[1])
        if len(self._timed_out) >= MAX_STATES:
            return
        self._newest.pop(who, None)
        self._newest[who] = seq
        self._timed_out[who, seq] = WatchdogState(
            rank=who[0],
            in_group=who[1],
            stuck_seq=seq,
            stuck_op=match[2],
            timeout_s=int(match[3] or 0) / 1000,
            ran_s=int(match[4] or 0) / 1000,
        )

    def _status(self, who: _Who, group: str, text: str, enqueued: re.Match[str]) -> None:
        last, completed = int(enqueued[1]), _COMPLETED.search(text)
        state = WatchdogState(
            rank=who[0],
            group=group,
            in_group=who[1],
            enqueued=max(last, 0),
            completed=None if completed is None else max(int(completed[1]), 0),
        )
        if (at := _AT_WORK.search(text)) is not None:
            timed_out = self._timed_out.pop((who, int(at[1])), None)
            if timed_out is not None:
                state = _with_stuck(state, timed_out)
            else:
                state = replace(state, stuck_seq=int(at[1]))
        known = self._states.get((who, group, False))
        if known is not None and _is_of_another_attempt(state, known):
            if group:
                # The job was started anew: what other ranks said is as old.
                self._states.clear()
        elif known is not None:
            # The first operation that timed out is the one that hangs.
            state = replace(
                _with_stuck(state, known) if known.stuck_seq else state,
                enqueued=_larger(known.enqueued, state.enqueued),
                completed=_larger(known.completed, state.completed),
            )
        self._states[who, group, False] = state

    def _desync(self, text: str, group: str | None) -> None:
        if group is not None:
            self._group = group
        if _SNAPSHOT in text:
            self._snapshot_seq = 0
        elif (never := _NEVER.search(text)) is not None:
            for rank in _ranks(never[1]):
                self._add(WatchdogState(rank, self._group, True, 0, 0, of_others=True))
        elif (head := _SNAPSHOT_HEAD.search(text)) is not None:
            self._snapshot_seq = int(head[1])
        elif self._snapshot_seq and (row := _SNAPSHOT_ROW.search(text)) is not None:
            seq, started = self._snapshot_seq, row[2] == "started"
            for rank in _ranks(row[1]):
                state = WatchdogState(rank, self._group, True, seq, seq - started, of_others=True)
                if started:
                    state = replace(state, stuck_seq=seq, stuck_op=row[3])
                self._add(state)

    def _add(self, state: WatchdogState) -> None:
        if len(self._states) < MAX_STATES:
            self._states[(state.rank, state.in_group), state.group, True] = state

    def states(self) -> list[WatchdogState]:
        """All of them; what timed out and belongs to no group that is named comes last."""
        states = list(self._states.values())
        named = {((s.rank, s.in_group), s.stuck_seq) for s in states if not s.of_others}
        unnamed: dict[_Who, WatchdogState] = {}
        for (who, seq), state in self._timed_out.items():
            # Later operations time out behind the first; a lower number is of another attempt.
            if (who, seq) not in named and (who not in unnamed or seq < unnamed[who].stuck_seq):
                unnamed[who] = state
        return [
            state
            if state.of_others or not state.stuck_seq
            else replace(state, frames=self._frames(state))
            for state in (*states, *unnamed.values())
        ]

    def _frames(self, state: WatchdogState) -> tuple[Frame, ...]:
        return tuple(self._traces.get(((state.rank, state.in_group), state.stuck_seq), ()))


def _is_of_another_attempt(state: WatchdogState, known: WatchdogState) -> bool:
    """Numbers have gone back, or an operation that had timed out has ended: neither happens."""
    completed = state.completed or 0
    return completed < (known.completed or 0) or 0 < known.stuck_seq <= completed


def _trace_frame(text: str) -> Frame | None:
    """`#1 step from /workspace/gpt/train.py:84`; None for another line."""
    begins = _TRACE_FRAME.search(text)
    if begins is None:
        return None
    function, _, source = text[begins.end() :].strip().partition(" from ")
    path, _, line = source.rpartition(":")
    is_frame = function and path and whole_number(line) is not None
    return Frame(function[:_MAX_NAME], source[:_MAX_NAME]) if is_frame else None


def _with_stuck(state: WatchdogState, other: WatchdogState) -> WatchdogState:
    return replace(
        state,
        stuck_seq=other.stuck_seq,
        stuck_op=other.stuck_op,
        timeout_s=other.timeout_s,
        ran_s=other.ran_s,
    )


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _ranks(text: str) -> Iterable[int]:
    for part in text.split(","):
        number = whole_number(part.strip())
        if number is not None and 0 <= number < MAX_STATES:
            yield number


def parse_watchdog(lines: Iterable[str], rank: int | None = None) -> list[WatchdogState]:
    """What the watchdogs of all ranks say in a log; empty where there is none of them.

    Args:
        lines: of the log, in its order.
        rank: whose log it is by its name; None where lines say that themselves.
    """
    log = _Log(rank)
    for text in lines:
        if any(word in text for word in _WORTH):
            log.line(text)
    return log.states()
