"""The files of a timeline in folders that somebody named: one a rank, of one job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import BadInputFile, UsageProblem
from relkit.files.files_below import files_below
from relkit.timeline.dump_source import read_dump_timeline
from relkit.timeline.launcher_notes import SUFFIX as NOTES
from relkit.timeline.launcher_notes import read_launcher_notes
from relkit.timeline.model import HostEvent, RankTimeline
from relkit.timeline.recording_file import SUFFIX as RECORDING
from relkit.timeline.recording_file import read_recording
from relkit.timeline.xpu_timer_file import SUFFIX as XPU_TIMER
from relkit.timeline.xpu_timer_file import read_xpu_timer

# Of several kinds of a rank the first that is there: it says most.
_READERS: tuple[tuple[str, Callable[[Path], RankTimeline]], ...] = (
    (RECORDING, read_recording),
    (XPU_TIMER, read_xpu_timer),
    (".stacktrace", read_dump_timeline),
)
_NAME = re.compile(r"(\d{5,10})-(\d{5,10})\.[a-z]+", re.ASCII)
_MAX_RANKS = 1 << 24


@dataclass(frozen=True, slots=True)
class Source:
    """A file of one rank.

    Args:
        path: of it; rank, world_size: as its name says; read: gives its timeline.
    """

    path: Path
    rank: int
    world_size: int
    read: Callable[[Path], RankTimeline]

    def timeline(self) -> RankTimeline:
        """What is in it.

        Raises:
            BadInputFile: it cannot be read, or is of another rank than its name says.
        """
        timeline = self.read(self.path)
        if timeline.identity.rank != self.rank:
            raise BadInputFile(
                f"{self.path}: its name says rank {self.rank}, its content "
                f"{timeline.identity.rank}",
                next_step="Give the file back the name that it was written with.",
            )
        return timeline


@dataclass(frozen=True, slots=True)
class Sources:
    """What was named.

    Args:
        ranks: by rank, one a rank.
        events: what launchers noted, by begin, each by its own clock.
        left_out: (file, why).
    """

    ranks: tuple[Source, ...]
    events: tuple[HostEvent, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return max(source.world_size for source in self.ranks)


def find_sources(paths: Sequence[Path]) -> Sources:
    """The files of one job.

    Args:
        paths: of files, or folders that hold some.

    Raises:
        UsageProblem: there is no such path, or files of several jobs.
        BadInputFile: nothing there is a timeline.
    """
    files = list(dict.fromkeys(file.resolve() for path in paths for file in files_below(path)))
    chosen: dict[int, Source] = {}
    for suffix, read in _READERS:
        of_kind: dict[int, Path] = {}
        for file in files:
            match = _NAME.fullmatch(file.name)
            if match is None or not file.name.endswith(suffix):
                continue
            rank, world_size = int(match[1]), int(match[2])
            if max(rank, world_size) > _MAX_RANKS:
                raise BadInputFile(f"{file}: no job has so many ranks", next_step="Leave it out.")
            if rank in of_kind:
                raise UsageProblem(
                    f"both {of_kind[rank]} and {file} are of rank {rank}",
                    next_step="Name the folders of one recording of one job.",
                )
            of_kind[rank] = file
            chosen.setdefault(rank, Source(file, rank, world_size, read))
    if not chosen:
        raise BadInputFile(
            f"no timeline in {', '.join(map(str, paths))}",
            next_step="Record one on every node: relkit timeline record JOB --steps 20 -o FOLDER.",
        )
    events: list[HostEvent] = []
    left_out: list[tuple[str, str]] = []
    for file in files:
        if file.name.endswith(NOTES):
            try:
                events += read_launcher_notes(file)
            except BadInputFile as error:
                left_out.append((str(file), str(error)))
    events.sort(key=lambda event: event.begin_ns)
    return Sources(tuple(chosen[rank] for rank in sorted(chosen)), tuple(events), tuple(left_out))
