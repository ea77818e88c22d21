"""All ranks' dumps -> three merged trees: Python, native and mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from relkit.ranks import RankSet
from relkit.stacks import tree_builder
from relkit.stacks.folder import Scanner, choose, list_dumps, python_scanner
from relkit.stacks.mixed import join_frames, role_frame
from relkit.stacks.model import Frame, RankDump, Role
from relkit.stacks.native_merge import native_scanner
from relkit.stacks.rank_set_union import RankSetUnion
from relkit.stacks.stack_index import RanksKey, RankTally, StackIndex
from relkit.stacks.tree import StackTree


@dataclass(frozen=True, slots=True)
class PathClass:
    """Ranks whose main thread is in the same functions, whatever the lines.

    Args:
        frames: the mixed stack that most of them have, innermost first.
        ranks: who they are.
    """

    frames: tuple[Frame, ...]
    ranks: RankSet


@dataclass(frozen=True, slots=True)
class Merged:
    """Everything that the dumps of one job say together.

    Args:
        world_size: ranks in the job.
        present: ranks whose dump was read.
        job_id: the run's id, "" for files of the original tool.
        python, native, mixed: the merged trees ("py", "cpp" and "mixed").
        refused: file name and reason of every file left out, by name.
        notes: what the capture could not read, with the ranks concerned.
        classes: the main threads by path of functions, largest class first.
    """

    world_size: int
    present: RankSet
    job_id: str
    python: StackTree
    native: StackTree
    mixed: StackTree
    refused: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    classes: tuple[PathClass, ...] = ()


def _classes(paths: Iterable[tree_builder.Path]) -> tuple[PathClass, ...]:
    groups: dict[tuple[str, ...], list[tree_builder.Path]] = {}
    main = role_frame(Role.MAIN)
    for path in paths:
        if path.frames[-1] == main:
            groups.setdefault(tuple(frame.func for frame in path.frames), []).append(path)
    classes = []
    for group in groups.values():
        usual = min(group, key=lambda path: (-len(path.ranks), _sortable(path.frames)))
        ranks = RankSet.union(path.ranks for path in group)
        classes.append(PathClass(usual.frames[:-1], ranks))
    return tuple(sorted(classes, key=lambda c: (-len(c.ranks), _sortable(c.frames))))


def _sortable(frames: tuple[Frame, ...]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((frame.func, frame.source, frame.entry) for frame in frames)


def _notes(notes: dict[str, RankTally]) -> Iterator[str]:
    for text in sorted(notes):
        ranks = notes[text].ranks()
        yield f"rank{'s' if len(ranks) > 1 else ''} {ranks.fold()}: {text}"


def _printable(name: str) -> str:
    # A file name need not be text; what cannot be printed must not stop the report.
    return name.encode("utf-8", "replace").decode()


def _finish(
    index: StackIndex,
    world_size: int,
    job_id: str,
    refused: Iterable[tuple[str, str]],
) -> Merged:
    native: list[tree_builder.Path] = []
    python: list[tree_builder.Path] = []
    mixed: list[tree_builder.Path] = []
    known: dict[RanksKey, RankSet] = {}
    for native_frames, python_frames, role, tally in index.threads():
        ranks, names = tally.ranks(known), tuple(tally.names)
        if native_frames is not None:
            native.append(tree_builder.Path(native_frames, ranks, tally.threads, names))
        if python_frames is not None:
            python.append(tree_builder.Path(python_frames, ranks, tally.threads, names))
        joined = (*join_frames(native_frames or (), python_frames or ()), role_frame(role))
        mixed.append(tree_builder.Path(joined, ranks, tally.threads, names))
    present = index.present()
    states = [(text, tally.ranks(known)) for text, tally in index.states.items()]

    unions = RankSetUnion(world_size)

    def tree(view: str, paths: list[tree_builder.Path]) -> StackTree:
        return tree_builder.build_tree(view, world_size, present, states, paths, unions)

    return Merged(
        world_size=world_size,
        present=present,
        job_id=job_id,
        python=tree("py", python),
        native=tree("cpp", native),
        mixed=tree("mixed", mixed),
        refused=tuple(sorted((_printable(name), reason) for name, reason in refused)),
        notes=tuple(_notes(index.notes)),
        classes=_classes(mixed),
    )


def merge_dumps(dumps: Iterable[RankDump], world_size: int) -> Merged:
    """Merge dumps that are in memory already.

    Args:
        dumps: one a rank, of one job, in any order; read once, none is kept.
        world_size: ranks in the job; a dump of a rank outside it is refused.
    """
    index = StackIndex()
    job_id = ""
    refused = []
    for dump in dumps:
        if not 0 <= dump.rank < world_size:
            refused.append((f"rank {dump.rank}", f"outside the world of {world_size} ranks"))
            continue
        job_id = max(job_id, dump.job_id)
        index.add(dump)
    return _finish(index, world_size, job_id, refused)


def merge_folder(
    path: Path,
    *,
    job_id: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    scanner: Scanner | None = None,
) -> Merged:
    """Merge all .stacktrace files of a folder that belong to one job.

    Args:
        path: the timeline folder.
        job_id: take the files of this job; None takes the job that was captured last.
        progress: called with (files done, files in all), from this thread.
        scanner: who reads the files; None takes the native reader where it is built, else the
            one in Python. Both give the same result.

    Raises:
        BadDump: no folder, no dump in it, or not one file that could be used.
    """
    read = scanner or native_scanner() or python_scanner
    names = list_dumps(path)
    scan = read(path, names, progress)
    choice = choose(scan.heads, job_id, path)
    if len(choice.names) < sum(not head.error for head in scan.heads):
        # Files of another job are rare, and the files are in the page cache now: reading the
        # right ones once more is simpler than keeping every job's stacks apart.
        scan = read(path, choice.names, progress)
    return _finish(scan.index, choice.world_size, choice.job_id, choice.refused)
