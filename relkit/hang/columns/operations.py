"""Numbers that stand for operations, the same on every host."""

from __future__ import annotations

from functools import lru_cache

from relkit.hang.columns.ranks import digest
from relkit.hook.model import HookState, Op

# Name of the operation, name and size of its group, and its payload in powers of two.
Kind = tuple[str, str, int, int]


def key_of(op: Op) -> int:
    """Tells an operation from the others of its rank."""
    return digest(op.os_thread_id, op.start_ns, op.name)


def kind_of_operation(op: Op, state: HookState) -> Kind:
    """Operations of one kind take alike long in each step."""
    groups = state.communicators
    has_group = 0 <= op.communicator < len(groups)
    name, size = ("", 0)
    if has_group:
        name, size = groups[op.communicator].name, groups[op.communicator].size
    return (op.name, name, size, op.size_bytes.bit_length())


def kind_number(op: Op, state: HookState) -> int:
    """The same number for all operations of a kind, on every host."""
    return _kind_digest(kind_of_operation(op, state))


@lru_cache(maxsize=4096)
def _kind_digest(kind: Kind) -> int:
    return digest(*kind)
