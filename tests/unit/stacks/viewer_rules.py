"""What the original viewer prints, from a description of its behaviour: a brute-force oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relkit.stacks.model import RankDump, ThreadStack

Path = tuple[str, ...]


def _fold(ranks: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return "/".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _stacks(dump: RankDump, threads: Sequence[ThreadStack]) -> list[Path]:
    named = [tuple(f"{f.func}@{f.source}" for f in reversed(thread.frames)) for thread in threads]
    return [(f"State@{dump.process_state}",), *named]


def viewer_lines(dumps: Sequence[RankDump], python: bool) -> list[str]:
    """The sorted lines of py_stack or cpp_stack; every rank of 0..len(dumps)-1 must be there."""
    everyone = set(range(len(dumps)))
    having: dict[Path, set[int]] = {}
    ends: set[Path] = set()
    for dump in dumps:
        for stack in _stacks(dump, dump.python if python else dump.native):
            ends.add(stack)
            for depth in range(1, len(stack) + 1):
                having.setdefault(stack[:depth], set()).add(dump.rank)
    lines = []
    for path in ends - {()}:
        words = []
        for depth in range(1, len(path) + 1):
            ranks = having[path[:depth]]
            words.append(f"{path[depth - 1]}@{_fold(ranks)}|{_fold(everyone - ranks)}")
        lines.append(";".join(words) + " 1")
    return sorted(lines)
