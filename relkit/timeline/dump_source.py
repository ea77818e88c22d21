"""What the recorder of a rank held at a hang, from its .stacktrace file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relkit.errors import BadDump, BadInputFile
from relkit.hook import layout
from relkit.hook.model import Op, OpKind
from relkit.hook.stored_state import stored_state
from relkit.stacks.dumpfile import read_dump
from relkit.timeline.model import Hook, Lost, RankIdentity, RankTimeline

_MAX_WORD = (1 << 64) - 1


def read_dump_timeline(path: Path) -> RankTimeline:
    """A rank's last operations, and those in flight.

    Raises:
        BadInputFile: it cannot be read, or has nothing of a recorder.
    """
    try:
        dump = read_dump(path)
        if not dump.hook_json:
            raise ValueError("the rank had no recorder when its stacks were captured")
        state = stored_state(dump.hook_json)
        hooks: dict[tuple[str, OpKind], int] = {}
        rows = np.zeros(len(state.recent) + len(state.in_flight), layout.OP)
        for place, op in enumerate((*state.recent, *state.in_flight)):
            hook = hooks.setdefault((op.name[:100], op.kind), len(hooks))
            rows[place] = _row(op, hook)
    except (BadDump, ValueError, OverflowError) as error:
        raise BadInputFile(f"{path}: {error}", next_step="Leave the file out.") from error
    return RankTimeline(
        # Each process has read both clocks once, so it is its own offset.
        RankIdentity(
            dump.rank, dump.world_size, dump.host, dump.pid, dump.host or path.name,
            state.boot_to_unix_ns,
        ),
        tuple(Hook(name, kind) for name, kind in hooks),
        state.communicators,
        rows,
        end_ns=state.now_ns,
        lost=Lost(unrecorded=max(0, state.dropped), small=max(0, state.counted)),
    )  # fmt: skip


def _row(op: Op, hook: int) -> tuple[int, ...]:
    flags = op.failed * layout.OP_FAILED + op.queued * layout.OP_QUEUED
    flags |= (op.kind is OpKind.P2P and "recv" in op.name) * layout.OP_RECEIVES
    row = (
        op.start_ns, op.end_ns, op.seq, op.size_bytes, op.os_thread_id, hook, op.communicator,
        flags, op.peer, op.tag if op.kind is OpKind.P2P else op.flops, op.enqueue_ns,
    )  # fmt: skip
    if any(not 0 <= value <= _MAX_WORD for value in (op.start_ns, op.end_ns, op.enqueue_ns)):
        raise ValueError("a time in it cannot be")
    return row
