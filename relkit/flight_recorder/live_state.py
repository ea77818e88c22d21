"""What a running rank's flight recorder says -> the state that hangs are judged by; pure.

A whole dump is long, and its end says how far each group has come: a rank that moves is known by
that alone, and only of one that stands still are the operations read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relkit.flight_recorder.job_view import job_view
from relkit.flight_recorder.model import FlightDump
from relkit.flight_recorder.parse import parse_dump
from relkit.hook.model import HookState
from relkit.text.foreign_json import parse_json
from relkit.text.whole_number import whole_number

_STATUS = b'"pg_status":'
_MAX_STATUS_BYTES = 1 << 20
_MAX_COUNT = 1 << 62
_DEFAULT_GROUP = "0"
# Finished operations that a state holds, as many as those of the hook about do.
_RECENT = 512


@dataclass(frozen=True, slots=True)
class FlightCounts:
    """How far a rank has come.

    Args:
        by_group: of each process group by its id, the number of the operation that was enqueued
            last and of the one that completed last, which torch (2.13, gloo) may set too low.
    """

    by_group: Mapping[str, tuple[int, int]]

    @property
    def enqueued(self) -> int:
        """Operations called in all groups."""
        return sum(enqueued for enqueued, _ in self.by_group.values())

    @property
    def moves(self) -> int:
        """Grows whenever an operation is called or completes."""
        return self.enqueued + sum(completed for _, completed in self.by_group.values())


def flight_counts(body: bytes) -> FlightCounts:
    """How far a rank has come, from the end of its dump.

    Args:
        body: the dump, JSON.

    Raises:
        ValueError: it does not end as a dump does.
    """
    at = body.rfind(_STATUS)
    tail = body[at + len(_STATUS) :]
    if at < 0 or len(tail) > _MAX_STATUS_BYTES:
        raise ValueError("a dump without pg_status")
    try:
        status, _ = json.JSONDecoder().raw_decode(tail.decode("utf-8").lstrip())
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(status, dict):
        raise ValueError("pg_status is not a dictionary")
    return FlightCounts({group: _counts(numbers) for group, numbers in status.items()})


def _counts(numbers: object) -> tuple[int, int]:
    if not isinstance(numbers, dict):
        raise ValueError("a group of pg_status is not a dictionary")
    return _count(numbers, "last_enqueued_collective"), _count(numbers, "last_completed_collective")


def _count(numbers: Mapping[str, Any], name: str) -> int:
    """A number, mostly as text; 0 for none, which is -1 there."""
    given = numbers.get(name, -1)
    number = whole_number(given.removeprefix("-")) if isinstance(given, str) else given
    if isinstance(number, bool) or not isinstance(number, int) or number >= _MAX_COUNT:
        raise ValueError(f"{name} is {str(given)[:40]!r}")
    return 0 if number < 0 or str(given).startswith("-") else number


def live_dump(body: bytes, rank: int) -> FlightDump:
    """The whole dump of a rank.

    Raises:
        ValueError: it is none.
    """
    return parse_dump(parse_json(body), rank)


def brief_state(counts: FlightCounts, *, rank: int, world_size: int, now_ns: int) -> HookState:
    """A rank that moves: how much it has done, and no operations.

    Args:
        counts: of the rank; world_size: ranks of the job; now_ns: Unix time of the look, ns.
    """
    return HookState(
        pid=0,
        start_ticks=0,
        rank=rank,
        local_rank=-1,
        world_size=world_size,
        now_ns=now_ns,
        boot_to_unix_ns=0,
        started=counts.moves,
        finished=counts.moves,
        last_finish_ns=0,
    )


def whole_states(
    dumps: Sequence[FlightDump],
    counts: Mapping[int, FlightCounts],
    *,
    world_size: int,
    now_ns: int,
) -> dict[int, HookState]:
    """Ranks that stand still, with their operations; by rank.

    Args:
        dumps: of ranks of this node; counts: of each of them.
        world_size: ranks of the job; now_ns: Unix time of the look, ns.
    """
    if world_size > len(dumps):
        dumps = [_in_known_groups(dump) for dump in dumps]
    view = job_view(dumps, "", world_size=world_size, now_ns=now_ns)
    states = {}
    for each in view.ranks:
        if each.hook is None or each.rank not in counts:
            continue
        moves = counts[each.rank].moves
        states[each.rank] = replace(
            each.hook,
            # What has been overwritten in the recorder counts as well.
            started=moves + len(each.hook.in_flight),
            finished=moves,
            now_ns=now_ns,
            recent=each.hook.recent[-_RECENT:],
        )
    return states


def _in_known_groups(dump: FlightDump) -> FlightDump:
    """Without groups of which nobody knows the ranks: gloo lists none, and others are elsewhere."""
    entries = tuple(
        entry
        for entry in dump.entries
        if entry.group in dump.groups or entry.group == _DEFAULT_GROUP
    )
    named = {*dump.groups, _DEFAULT_GROUP}
    enqueued = {name: count for name, count in dump.enqueued.items() if name in named}
    return replace(dump, entries=entries, enqueued=enqueued)
