"""What a job's files say: who wrote a line, what it tells, and the answer that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relkit.why.rules.told import Kind


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who wrote a line, as far as its prefixes and its file show.

    Args:
        rank: the global one, None where nothing says it.
        local_rank: that on its host.
        task: number of srun, which is a rank or a node.
        host: name of the host, the pod, or an address; pid: of the process, 0 where not said.
    """

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Clock:
    """When something was written.

    Args:
        kind: "utc" or "local": times of one kind can be compared.
        at_s: since the beginning of the year, as if that were a leap year, s.
    """

    kind: str
    at_s: float


@dataclass(frozen=True, slots=True)
class JobMarks:
    """What shows of which job a file is, and when.

    Args:
        name: the job's id by name or folder, "" where these tell none.
        said: ids that its text names.
        first, last: its first and its last time, None where it has none.
    """

    name: str = ""
    said: frozenset[str] = frozenset()
    first: Clock | None = None
    last: Clock | None = None

    @property
    def job(self) -> str:
        """The id, "" where nothing tells it or its text names several."""
        return self.name or (next(iter(self.said)) if len(self.said) == 1 else "")

    @property
    def span(self) -> tuple[float, float] | None:
        """From when to when, s, as far as both times are of one kind."""
        if self.first is None or self.last is None or self.first.kind != self.last.kind:
            return None
        return self.first.at_s, self.last.at_s


@dataclass(frozen=True, slots=True)
class Sighting:
    """A line that tells of a failure.

    Args:
        cause: name in the table of causes; kind: how much it says.
        text: the line, without its prefixes.
        path: of the file; line: its number there, from 1.
        offset: of it in the (unpacked) file, bytes; 0 for a word of a launcher or a scheduler.
        speaker: who wrote it.
        clock: when, None where the line does not say.
        code: where in the program, as `w/train.py:84 step`; "" where not known.
        pid: of the process that the line is about, 0 where it names none.
        count: how often the same was said.
        step: that its log had come to before it, -1 where not known.
        blamed: ranks that the line names, where it is about others than who wrote it.
    """

    cause: str
    kind: Kind
    text: str
    path: Path
    line: int
    offset: int = 0
    speaker: Speaker = Speaker()
    clock: Clock | None = None
    code: str = ""
    pid: int = 0
    count: int = 1
    step: int = -1
    blamed: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """The place of the line, as editors open it; an object of JSON has no line."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a launcher or a scheduler says of the end of one process.

    Args:
        rank, local_rank, host, pid: whose; None, "" and 0 where not said.
        exit_code: negative for a signal; None where not said.
        is_first: the launcher holds it for the first that failed.
        clock, path, line: when it was seen, and where that is written.
    """

    rank: int | None
    local_rank: int | None
    host: str
    pid: int
    exit_code: int | None
    is_first: bool
    clock: Clock | None
    path: Path
    line: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was looked at.

    Args:
        path: of it; used_for: what it is, "" where it was not used.
        note: why not, or what of it was left out.
    """

    path: Path
    used_for: str
    note: str = ""


@dataclass(slots=True)
class LogFacts:
    """What one log says.

    Args:
        sightings: in its order; ended: what launchers say in it.
        speakers: the ranks that have written in it, tasks and local ranks apart.
        processes: which process is which rank, where the log says it.
        outlived: places in `sightings` after which the job went on.
        has_watchdog: NCCL's watchdog speaks in it.
        note: what of it was left out, "" where nothing was.
    """

    sightings: list[Sighting] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    speakers: set[Speaker] = field(default_factory=set)
    processes: set[Speaker] = field(default_factory=set)
    outlived: set[int] = field(default_factory=set)
    has_watchdog: bool = False
    note: str = ""


@dataclass(slots=True)
class FileFacts:
    """What one file says, and of which job it is.

    Args:
        source: the file; marks: what shows of its job.
        sightings, outlived, ended, speakers, processes, present: as of Evidence.
        world_size: the ranks that the job has, 0 where it does not say.
        for_hang: the analysis of hangs is to read it.
        read_as: the path under which that finds it, another one for a packed file.
        by_job: of an accounting, what it says of each job.
        word: what it says of a hang by itself.
    """

    source: SourceFile
    marks: JobMarks
    sightings: list[Sighting] = field(default_factory=list)
    outlived: list[Sighting] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    speakers: set[Speaker] = field(default_factory=set)
    processes: set[Speaker] = field(default_factory=set)
    present: set[Speaker] = field(default_factory=set)
    world_size: int = 0
    for_hang: bool = False
    read_as: Path = Path()
    by_job: Mapping[str, list[Sighting]] = field(default_factory=dict)
    word: HangWord | None = None

    @property
    def path(self) -> Path:
        """Of the file."""
        return self.source.path


@dataclass(frozen=True, slots=True)
class HangWord:
    """What the analysis of dumps, stacks and watchdogs makes of the same files.

    Args:
        culprits: ranks; sentence: the verdict in words; score: 0 to 1.
    """

    culprits: tuple[int, ...]
    sentence: str
    score: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was read.

    Args:
        sightings: those of all files that stand for a failure the job did not outlive.
        outlived: those after which it went on.
        ended: words of launchers.
        speakers: all that have written anything, as far as prefixes and names tell.
        files: each that was looked at.
        processes: which process is which rank, where anything says it.
        hang: the verdict on dumps and stacks, None where there are none.
        present: of whom there is a log, also those of whom nothing in it was of use.
        world_size: the ranks that the job has, 0 where nothing says it.
    """

    sightings: tuple[Sighting, ...]
    outlived: tuple[Sighting, ...]
    ended: tuple[Ended, ...]
    speakers: frozenset[Speaker]
    files: tuple[SourceFile, ...]
    hang: HangWord | None = None
    processes: frozenset[Speaker] = frozenset()
    present: frozenset[Speaker] = frozenset()
    world_size: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that would make the answer surer.

    Args:
        what: is missing; command: that gets it.
    """

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a job failed.

    Args:
        cause: name in the table of causes, "hang", or "" where none is known.
        culprits: global ranks; none where it was no rank's doing, or nothing says whose.
        who: in words: ranks, a host, "nobody".
        place: in the program, or on a host; "" where not known.
        reasons: strongest first, each with file and line.
        confidence: 0 to 1.
        missing: what would make it surer.
        first_of: by who wrote it, its first error.
        others: other causes that were seen, which are not the answer.
    """

    cause: str
    culprits: tuple[int, ...]
    who: str
    place: str
    reasons: tuple[str, ...]
    confidence: float
    missing: tuple[Missing, ...]
    first_of: Mapping[str, Sighting]
    others: tuple[Sighting, ...]
