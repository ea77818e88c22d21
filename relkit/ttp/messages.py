"""What ranks and the controller say to each other: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, get_type_hints

from relkit.errors import RelkitError
from relkit.text.foreign_json import parse_json
from relkit.ttp.plan import GroupPlan, SavePlan, Survivor
from relkit.ttp.replicas import ReplicaMap

LONGEST_LINE_BYTES = 4 << 20
_LONGEST_S = 1e9


class BadMessage(RelkitError):
    """A line on a control link that is not one of our messages."""

    next_step = "Check that all nodes run the same relkit."


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank is there.

    Args:
        rank, world_size: as torch has them.
        pid, host: where it runs.
        step: committed step it starts from.
        maps: replica maps of the groups that this rank is in.
        epoch: of the last plan that it knows, from a controller that is gone.
    """

    rank: int
    world_size: int
    pid: int
    host: str
    step: int
    maps: tuple[ReplicaMap, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A rank is alive.

    Args:
        step: committed; phase: "forward", "reduce", "ready", "update", "gather", "parked" ...
        step_s: how long its last step took, seconds.
    """

    rank: int
    step: int
    phase: str = ""
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Raised:
    """A rank's training code raised an exception; the process lives."""

    rank: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Done:
    """A rank has finished training; it stays until all have, as others may need its shards."""

    rank: int


@dataclass(frozen=True, slots=True)
class State:
    """The answer to FaultNotice and to Pause: the trainer is parked, and this is what it has."""

    rank: int
    epoch: int
    survivor: Survivor


@dataclass(frozen=True, slots=True)
class Saved:
    """A rank has done its part of an emergency save.

    Args:
        files: path relative to the iteration's folder -> (sha256, size in bytes); empty where it
            was a holder only.
    """

    rank: int
    epoch: int
    files: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A rank could not do its part.

    Args:
        refused: the state itself must not be saved (not finite), which is not a failure to write.
        peer: the cause is a rank that went away, so that planning again may help.
    """

    rank: int
    epoch: int
    sentence: str
    refused: bool = False
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """The iteration has its final name and the tracker points to it."""

    rank: int
    epoch: int
    folder: str


@dataclass(frozen=True, slots=True)
class Note:
    """What one member of an emergency save leaves for the others, passed on by the controller.

    It takes the place of a store: the job's own may have gone with a launcher.

    Args:
        key: what it is called; data: hexadecimal.
    """

    rank: int
    epoch: int
    key: str
    data: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A launcher asks for the job to be saved and ended (it got SIGTERM, or `relkit ttp save`)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """To every rank: all have finished training, and nobody needs anybody's shards any more."""

    attempt: int = 0


@dataclass(frozen=True, slots=True)
class FaultNotice:
    """To every living rank: stop communicating, park the trainer, answer with State."""

    epoch: int
    dead: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """To every rank: park at the end of this step, and answer with State."""

    epoch: int
    at_step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Save:
    """To those who take part: do what the plan says, and answer with Saved."""

    epoch: int
    plan: SavePlan


@dataclass(frozen=True, slots=True)
class Commit:
    """To one rank: check the files, write the manifest, rename, point the tracker to it."""

    epoch: int
    step: int
    files: Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Discard:
    """To one rank: remove the temporary folders of saves that will not be."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Exit:
    """To every rank: leave now, with this code."""

    code: int
    sentence: str


Message = (
    Hello
    | Heartbeat
    | Raised
    | Done
    | State
    | Saved
    | SaveFailed
    | Committed
    | Note
    | Stop
    | Finished
    | FaultNotice
    | Pause
    | Save
    | Commit
    | Discard
    | Exit
)
T = TypeVar("T")
_TO_RANKS = (FaultNotice, Pause, Save, Commit, Discard, Exit, Finished)
_FROM_RANKS = (Hello, Heartbeat, Raised, Done, State, Saved, SaveFailed, Committed, Note, Stop)
KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in _FROM_RANKS + _TO_RANKS}


def encode(message: Message) -> bytes:
    """One line, newline included."""
    body = {"kind": type(message).__name__.lower(), **asdict(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read one line.

    Raises:
        BadMessage: it is not one of our messages; nothing in it is ever run.
    """
    if len(line) > LONGEST_LINE_BYTES:
        raise BadMessage(f"a message of {len(line)} bytes is too long")
    try:
        body = parse_json(line)
        message: Message = _build(KINDS[body.pop("kind")], body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMessage(f"not a message: {line[:80]!r}") from error
    return message


_HINTS: dict[type[Any], dict[str, object]] = {
    kind: get_type_hints(kind)
    for kind in (*KINDS.values(), ReplicaMap, Survivor, SavePlan, GroupPlan)
}


def _build(kind: type[T], body: dict[str, object]) -> T:
    hints = _HINTS[kind]
    values = {}
    for name, value in body.items():
        reader = _READERS.get((kind, name))
        values[name] = reader(value) if reader else _scalar(value, hints[name])
    return kind(**values)


def _scalar(value: object, hint: object) -> object:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        # Every one is a duration. No comparison holds for NaN, which JSON of Python's has.
        if 0 <= value <= _LONGEST_S:
            return value
        raise ValueError(f"{value!r} is no duration")
    if type(value) is not hint:
        raise TypeError(f"{hint} expected, not {type(value).__name__}")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list expected")
    return value


def _numbers(value: object) -> tuple[int, ...]:
    if not all(type(number) is int for number in _list(value)):
        raise TypeError("whole numbers expected")
    return tuple(_list(value))


def _holders(value: object) -> tuple[tuple[int, ...], ...]:
    """Of the shards of a group, which has at least one."""
    holders = tuple(_numbers(each) for each in _list(value))
    if not holders:
        raise ValueError("a group without shards")
    return holders


def _files(value: object) -> dict[str, tuple[str, int]]:
    files: dict[str, tuple[str, int]] = {}
    for name, (sha, size) in dict(value).items():  # type: ignore[call-overload]
        files[str(name)] = (str(_scalar(sha, str)), int(str(_scalar(size, int))))
    return files


_READERS: dict[tuple[type[Any], str], Callable[[Any], object]] = {
    (Hello, "maps"): lambda value: tuple(_build(ReplicaMap, dict(each)) for each in _list(value)),
    (ReplicaMap, "ranks"): _numbers,
    (ReplicaMap, "holders"): _holders,
    (State, "survivor"): lambda value: _build(Survivor, dict(value)),
    (Saved, "files"): _files,
    (Commit, "files"): _files,
    (FaultNotice, "dead"): _numbers,
    (Save, "plan"): lambda value: _build(SavePlan, dict(value)),
    (SavePlan, "roll_forward"): _numbers,
    (SavePlan, "rollback"): _numbers,
    (SavePlan, "groups"): lambda value: tuple(_build(GroupPlan, dict(v)) for v in _list(value)),
    (GroupPlan, "holders"): _numbers,
}
