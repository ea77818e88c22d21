"""Sums over what the processes of a job have recorded."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.hook.model import HookState, Op, OpKind


def ops(states: Sequence[HookState], kind: OpKind) -> list[Op]:
    """The newest finished operations of a kind, of all processes."""
    return [op for state in states for op in state.recent if op.kind is kind]


def launches(states: Sequence[HookState]) -> int:
    """Hooked operations of all processes, timed or only counted."""
    return sum(state.finished for state in states)


def missing(states: Sequence[HookState], platform: str) -> list[str]:
    """Symbols of a platform whose original was not found, in any of the processes."""
    return sorted({name for state in states for name in state.missing if platform in name})
