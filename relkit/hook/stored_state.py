"""A recorder's state as a file holds it, which anybody may have written: types are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache

from relkit.hook.model import Communicator, HookState, Op, TransferCount
from relkit.text.foreign_json import parse_json

MAX_OPS = 65_536
_LARGEST = 1 << 63
_LISTS = ("in_flight", "recent", "communicators", "transfers")
_TEXTS = ("missing", "platforms", "notes")


def state_text(state: HookState, recent: int) -> str:
    """The state as JSON, with at most so many of the operations that finished last."""
    kept = replace(state, recent=state.recent[-recent:] if recent > 0 else ())
    return json.dumps(kept.to_json(), separators=(",", ":"))


def stored_state(text: str) -> HookState:
    """The inverse of `state_text`, and of the `hook_json` in a .stacktrace file.

    Raises:
        ValueError: it is no such document, or a value in it cannot be true.
    """
    plain = parse_json(text)
    if not isinstance(plain, Mapping):
        raise ValueError("it is not a JSON object")
    try:
        state = HookState.from_json(plain)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it has not the form of a recorder's state: {error!r}") from error
    _check(state, skipped=(*_LISTS, *_TEXTS))
    for name in _LISTS:
        parts: Sequence[Op | Communicator | TransferCount] = getattr(state, name)
        if len(parts) > MAX_OPS:
            raise ValueError(f"{name} has more than {MAX_OPS} entries")
        for part in parts:
            _check(part, skipped=("kind", "sizes"))
    if any(type(size) is not int for count in state.transfers for size in count.sizes):
        raise ValueError("a size is no number")
    if any(not isinstance(word, str) for name in _TEXTS for word in getattr(state, name)):
        raise ValueError("a note is no text")
    return state


# Annotations are text in this package; only int, str and bool are left after what is skipped.
_RECORDS = (HookState, Op, Communicator, TransferCount)
_TYPES = {"int": int, "str": str, "bool": bool}


@lru_cache
def _declared(name: str, skipped: tuple[str, ...]) -> tuple[tuple[str, type], ...]:
    """The fields of a class by its name, and their types."""
    kind = next(kind for kind in _RECORDS if kind.__name__ == name)
    return tuple((f.name, _TYPES[str(f.type)]) for f in fields(kind) if f.name not in skipped)


def _check(record: HookState | Op | Communicator | TransferCount, skipped: tuple[str, ...]) -> None:
    """Each field holds what its class declares."""
    for name, declared in _declared(type(record).__name__, skipped):
        value = getattr(record, name)
        kind = type(value)
        if kind is not declared:
            raise ValueError(f"{name} is {kind.__name__}, not {declared.__name__}")
        if declared is int and not -_LARGEST <= value < _LARGEST:
            raise ValueError(f"{name} is larger than any number of a recorder")
