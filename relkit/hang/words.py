"""How ranks, operations, groups and times read in a sentence."""

from __future__ import annotations

import signal

from relkit.hang.frames import printable
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.ranks import RankSet

# The recorder has the library's names; people know torch's.
_TORCH_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "reducescatter": "reduce_scatter",
    "connect": "the setup of a process group",
}
_LONGEST_NAME = 16
_LONGEST_FOLD = 32


def torch_name(name: str) -> str:
    """`all_reduce` for the recorder's `allreduce`."""
    return _TORCH_NAMES.get(name, name)


def of_ranks(ranks: RankSet) -> str:
    """`rank 2`, `ranks 0-1,3`; many scattered ones are counted and begun."""
    folded = ranks.fold()
    if len(folded) > _LONGEST_FOLD:
        begun = RankSet(ranks.first_intervals(3)).fold()
        return f"{len(ranks)} ranks ({begun},...)"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {folded}"


def where(host: str, pid: int) -> str:
    """` (node7, pid 4711)`, to follow the name of a rank; what is not known is left out.

    Args:
        host: "" where it is not known; pid: 0 likewise.
    """
    known = ", ".join(filter(None, (printable(host), f"pid {pid}" if pid else "")))
    return f" ({known})" if known else ""


def group_title(communicator: Communicator, world_size: int, members: RankSet | None = None) -> str:
    """`the default group`, or a group's name and ranks.

    Args:
        communicator: the group as some rank sees it.
        world_size: ranks of the job; an unnamed group of that size is taken for the default one.
        members: its ranks where they are known.
    """
    name = printable(communicator.name)
    if name == "0" or (not name and communicator.size == world_size):
        return "the default group"
    called = (
        f'group "{shortened(name, _LONGEST_NAME)}"' if name else f"a group of {communicator.size}"
    )
    if not members:
        return called
    folded = members.fold()
    return (
        f"{called} ({len(members)} ranks)"
        if len(folded) > _LONGEST_FOLD
        else (f"{called} ({of_ranks(members)})")
    )


def numbered(name: str, seq: int) -> str:
    """`all_reduce #41`."""
    return f"{torch_name(name)} #{seq}" if seq >= 0 else torch_name(name)


def operation(op: Op, state: HookState) -> str:
    """`all_reduce #41 of the default group`, from one rank's point of view."""
    group = next((c for c in state.communicators if c.index == op.communicator), None)
    if op.kind is OpKind.P2P and group is not None and op.peer >= 0:
        whole = group.size == state.world_size
        peer = f"rank {op.peer}" if whole else f"group rank {op.peer}"
        return transfer(op, peer, group_title(group, state.world_size))
    what = numbered(op.name, op.seq)
    return what if group is None else f"{what} of {group_title(group, state.world_size)}"


def transfer(op: Op, peer: str, group: str) -> str:
    """`recv #5 from rank 1 of the default group (4 KiB, tag 7)`.

    Args:
        op: a send or receive; peer: the other end, `rank 1`; group: its title, "" for none.
    """
    way = "from" if op.name == "recv" else "to"
    of = f" of {group}" if group else ""
    tag = f", tag {op.tag}" if op.tag else ""
    return f"{numbered(op.name, op.seq)} {way} {peer}{of} ({size(op.size_bytes)}{tag})"


def size(size_bytes: int) -> str:
    """`4 B`, `16 KiB`, `1.5 MiB`."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"


def shortened(text: str, longest: int) -> str:
    """The text, cut off with dots where it is longer than `longest` characters."""
    return text if len(text) <= longest else text[: longest - 3] + "..."


def for_seconds(seconds: float | None) -> str:
    """` for 9.8 s`, or nothing where the time is not known."""
    return "" if seconds is None else f" for {seconds:.1f} s"


def exit_words(exit_code: int | None) -> str:
    """`ended by signal 11 (SIGSEGV)`, `exited with code 7`, `ended, exit code unknown`."""
    if exit_code is None:
        return "ended, exit code unknown"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        name = f" ({signal.Signals(-exit_code).name})"
    except ValueError:
        name = ""
    return f"ended by signal {-exit_code}{name}"
