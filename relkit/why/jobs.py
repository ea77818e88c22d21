"""What files say -> the jobs that they are of, the newest first; pure.

Files are of several jobs where names, folders or texts have several ids, where dumps of one rank
are of different runs, or where files of the same name in two folders are of different times. Where
that cannot be seen, both readings are kept: whoever asks judges both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from relkit.why.job_marks import number_of_name
from relkit.why.kinds import FileKind
from relkit.why.model import FileFacts

# Are these two files, dumps of one rank, of one run? None where that does not show.
OneRun = Callable[[Path, Path], "bool | None"]
_OF_ALL = frozenset(
    kind.value
    for kind in (
        FileKind.KERNEL_LOG, FileKind.ACCOUNTING, FileKind.JOB, FileKind.POD, FileKind.EVENTS,
        FileKind.CRASHES,
    )
)  # fmt: skip
_OF_ARRAY = re.compile(r"(\d{1,10})_\d{1,7}", re.ASCII)
# Folders that hold parts of one job.
_PARTS = re.compile(
    r"(?:.*[-_.])?(?:std(?:out|err)|out|err|logs?|dumps?|traces?|stacks?|py-?spy|errors?|"
    r"(?:node|host|rank|worker|pod|gpu|task|n|r|local_rank|replica|shard)s?[-_.]?\d+|\d{1,5}|"
    r"[a-z-]{1,20}\d{1,5})(?:\..*)?",
    re.IGNORECASE,
)
# A kernel says it shortly before or after the job's own last word.
_BEFORE_S, _AFTER_S = 60.0, 900.0
# Between two jobs, one after the other.
_LONG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Job:
    """The files of one job.

    Args:
        name: its id, or the folder or the name that its files have in common; "" of the only one.
        facts: of each file.
    """

    name: str
    facts: tuple[FileFacts, ...]

    @property
    def last_s(self) -> tuple[str, float] | None:
        """The kind of its clocks and their last time, None where it has none."""
        lasts = [f.marks.last for f in self.facts if f.marks.last is not None]
        kinds = {clock.kind for clock in lasts}
        return (kinds.pop(), max(c.at_s for c in lasts)) if len(kinds) == 1 else None


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs that files are of.

    Args:
        jobs: the newest first, at least one.
        by: how the order is known, in words.
        is_sure: they are certainly several; else they may be one.
    """

    jobs: tuple[Job, ...]
    by: str = ""
    is_sure: bool = True


def jobs_of(facts: Sequence[FileFacts], is_one_run: OneRun) -> Jobs:
    """The jobs of these files.

    Args:
        facts: of each file; is_one_run: compares two dumps of one rank.
    """
    own = [f for f in facts if f.source.used_for not in _OF_ALL]
    parts, is_sure = _joined(_by_id(own))
    name = next(iter(parts), "")
    if len(parts) < 2:
        parts, is_sure = _by_place(own, is_one_run)
    if len(parts) < 2 and not own:
        parts = {job: [] for each in facts for job in each.by_job}
    if len(parts) < 2:
        return Jobs((Job(name, _of_only(facts, name)),))
    jobs = [Job(name, tuple(each)) for name, each in parts.items()]
    ordered, by = _newest_first(jobs)
    known = {id(f) for part in parts.values() for f in part}
    shared = [f for f in facts if id(f) not in known]
    return Jobs(tuple(_with_shared(job, shared) for job in ordered), by, is_sure)


def _of_only(facts: Sequence[FileFacts], name: str) -> tuple[FileFacts, ...]:
    """Of an accounting of several jobs what it says of this one."""
    own = set().union(*(f.marks.said for f in facts if not f.by_job)) | {name}
    return tuple(_of_job(f, own & set(f.by_job)) if len(f.by_job) > 1 else f for f in facts)


def _of_job(facts: FileFacts, jobs: Iterable[str]) -> FileFacts:
    named = [sighting for job in sorted(jobs) for sighting in facts.by_job[job]]
    return replace(facts, sightings=named) if named else facts


def _by_id(facts: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    """By the ids that names, folders and texts tell."""
    names = {f.marks.name for f in facts if f.marks.name}
    said_by: dict[str, set[str]] = {}
    for each in facts:
        for said in each.marks.said:
            said_by.setdefault(said, set()).add(each.marks.name)
    # What one folder's files alone say is that folder's: of several runs in one allocation the
    # folders count.
    alias = {
        said: next(iter(by - {""}))
        for said, by in said_by.items()
        if said not in names and len(by - {""}) == 1
    }
    parts: dict[str, list[FileFacts]] = {}
    nameless = []
    for each in facts:
        job = each.marks.job
        if job:
            parts.setdefault(alias.get(job, job), []).append(each)
        else:
            nameless.append(each)
    if len(parts) > 1:
        below = _names_below(parts)
        for each in nameless:
            near = _nearest(each.path, below)
            if near:
                parts[near].append(each)
    elif parts:
        next(iter(parts.values())).extend(nameless)
    return parts


def _joined(
    parts: dict[str, list[FileFacts]],
) -> tuple[dict[str, list[FileFacts]], bool]:
    """Tasks of one Slurm job put together, and whether it is certain which are jobs of an array.

    `slurm-7_3.out` is task 3 of job 7 (`%j_%t`) or job 3 of array 7 (`%A_%a`). Several jobs have
    the same ranks; tasks of one have ranks of their own and run at one time.
    """
    by_number: dict[str, list[str]] = {}
    for name in parts:
        if (made := _OF_ARRAY.fullmatch(name)) is not None:
            by_number.setdefault(made[1], []).append(name)
    made_of, is_sure = dict(parts), True
    for number, names in by_number.items():
        ranks = [_ranks(parts[name]) for name in names]
        if len(names) < 2 or (all(ranks) and not _are_parts(ranks)):
            continue
        spans = [_span(parts[name]) for name in names]
        known = sorted(span for span in spans if span is not None)
        is_one_time = len(known) == len(spans) and all(
            right[0] <= left[1] for left, right in pairwise(known)
        )
        if _are_parts(ranks) and is_one_time:
            made_of[number] = [facts for name in names for facts in made_of.pop(name)]
        else:
            is_sure = False
    return made_of, is_sure


def _names_below(parts: Mapping[str, Sequence[FileFacts]]) -> dict[Path, set[str]]:
    """Folder -> the jobs that have files in it or below it."""
    below: dict[Path, set[str]] = {}
    for name, part in parts.items():
        for each in part:
            for folder in each.path.parents:
                below.setdefault(folder, set()).add(name)
    return below


def _nearest(file: Path, below: Mapping[Path, set[str]]) -> str:
    """The only job that has files in the file's folder or below the nearest one above it."""
    for folder in file.parents:
        if folder in below:
            return next(iter(below[folder])) if len(below[folder]) == 1 else ""
    return ""


def _by_place(
    facts: Sequence[FileFacts], is_one_run: OneRun
) -> tuple[dict[str, list[FileFacts]], bool]:
    """By folders, or by the names in one folder, and whether that is certain."""
    used = [f for f in facts if f.source.used_for]
    for split in (_folders(used), _stems(used), _numbers(used), _times(used)):
        if len(split) < 2:
            continue
        verdict = _are_apart(split, is_one_run)
        if verdict is not None:
            unused = [f for f in facts if not f.source.used_for]
            return {name: _with_unused(name, part, unused) for name, part in split.items()}, verdict
    return {"": list(facts)}, True


def _with_unused(
    name: str, part: Sequence[FileFacts], unused: Sequence[FileFacts]
) -> list[FileFacts]:
    folder = Path(name)
    return [*part, *(f for f in unused if folder in f.path.parents)]


def _folders(facts: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    """The folders that hold files of the same names, side by side."""
    by_name: dict[str, list[Path]] = {}
    for each in facts:
        by_name.setdefault(each.path.name, []).append(each.path)
    heads: set[Path] = set()
    for paths in by_name.values():
        if len(paths) > 1:
            heads |= {_below_common(paths, path) for path in paths}
    depth = min((len(head.parts) for head in heads), default=0)
    heads = {head for head in heads if len(head.parts) == depth}
    if len(heads) < 2 or len({head.parent for head in heads}) != 1:
        return {}
    if all(_PARTS.fullmatch(head.name) for head in heads):
        return {}
    split: dict[str, list[FileFacts]] = {str(head): [] for head in sorted(heads)}
    for each in facts:
        for folder in each.path.parents:
            if folder in heads:
                split[str(folder)].append(each)
                break
    return split


def _below_common(paths: Sequence[Path], path: Path) -> Path:
    """The folder in which a path parts from the others."""
    depth = 0
    while len({each.parts[:depth] for each in paths}) == 1:
        depth += 1
    return Path(*path.parts[:depth])


def _stems(facts: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    """Dumps of the same ranks in one folder, under two names."""
    split: dict[str, list[FileFacts]] = {}
    for each in facts:
        if each.source.used_for == FileKind.DUMP.value:
            stem = re.sub(r"\d+(?:\.\w+)?$", "", each.read_as.name)
            split.setdefault(str(each.path.parent / stem), []).append(each)
    return split


def _numbers(facts: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    """Logs of one folder that are called alike but for a large number."""
    split: dict[str, list[FileFacts]] = {}
    rests = set()
    for each in facts:
        made = number_of_name(each.path)
        if made is None:
            return {}
        rests.add((each.path.parent, made[1].rpartition(".")[0]))
        split.setdefault(made[0], []).append(each)
    return split if len(rests) == 1 else {}


def _times(facts: Sequence[FileFacts]) -> dict[str, list[FileFacts]]:
    """Logs in which the same rank speaks at times that are far apart."""
    timed = [(span, f) for f in facts if (span := f.marks.span) is not None]
    kinds = {f.marks.first.kind for f in facts if f.marks.first is not None}
    if len(timed) < len(facts) or len(kinds) != 1:
        return {}
    parts: list[list[FileFacts]] = []
    end_s = float("-inf")
    for span, each in sorted(timed, key=lambda pair: pair[0]):
        if not parts or span[0] - end_s > _LONG_S:
            parts.append([])
        parts[-1].append(each)
        end_s = max(end_s, span[1])
    ranks = [_ranks(part) for part in parts]
    if any(left.isdisjoint(right) for left, right in pairwise(ranks)):
        return {}
    return {str(part[0].path): part for part in parts}


def _ranks(facts: Sequence[FileFacts]) -> set[int]:
    return {s.rank for f in facts for s in f.speakers if s.rank is not None}


def _are_apart(split: Mapping[str, Sequence[FileFacts]], is_one_run: OneRun) -> bool | None:
    """Whether parts are of several jobs: None for no, False where that cannot be seen."""
    dumps = _same_ranks(list(split.values()))
    words = [is_one_run(left, right) for left, right in dumps]
    if words:
        return True if all(word is False for word in words) else None
    spans = [_span(part) for part in split.values()]
    known = sorted(span for span in spans if span is not None)
    gaps_s = [right[0] - left[1] for left, right in pairwise(known)]
    is_timed = len(known) == len(split)
    # Ranks of one job may have failed one after the other, in files with nothing else in them.
    if is_timed and all(gap_s > _LONG_S for gap_s in gaps_s):
        return True
    ranks = [_ranks(part) for part in split.values()]
    if _are_parts(ranks) or (is_timed and all(gap_s <= 0 for gap_s in gaps_s)):
        return None
    return False


def _are_parts(ranks: Sequence[set[int]]) -> bool:
    """Whether each part has ranks of its own, as the nodes of one job have."""
    return all(ranks) and sum(map(len, ranks)) == len(set().union(*ranks))


def _same_ranks(parts: Sequence[Sequence[FileFacts]]) -> list[tuple[Path, Path]]:
    """A few dumps of one rank in two parts."""
    by_number: dict[str, Path] = {}
    pairs = []
    for part in parts:
        mine: dict[str, Path] = {}
        for each in part:
            number = re.search(r"(\d+)(?:\.\w+)?$", each.read_as.name)
            if each.source.used_for == FileKind.DUMP.value and number:
                mine[number[1]] = each.read_as
        pairs += [(by_number[n], mine[n]) for n in sorted(mine.keys() & by_number.keys())[:2]]
        by_number |= mine
    return pairs


def _span(facts: Sequence[FileFacts]) -> tuple[float, float] | None:
    spans = [span for f in facts if (span := f.marks.span) is not None]
    kinds = {f.marks.first.kind for f in facts if f.marks.first is not None}
    if not spans or len(kinds) != 1:
        return None
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _newest_first(jobs: Sequence[Job]) -> tuple[list[Job], str]:
    lasts = [job.last_s for job in jobs]
    times = {last[1] for last in lasts if last is not None}
    kinds = {last[0] for last in lasts if last is not None}
    if None not in lasts and len(kinds) == 1 and len(times) == len(jobs):
        return sorted(jobs, key=lambda job: -(job.last_s or ("", 0.0))[1]), "by the times in them"
    numbers = [re.sub(r"\D.*", "", job.name) for job in jobs]
    if all(numbers) and len({*numbers}) == len(jobs):
        return sorted(jobs, key=lambda job: -int(re.sub(r"\D.*", "", job.name))), "by their numbers"
    return sorted(jobs, key=lambda job: job.name, reverse=True), "by their names alone"


def _with_shared(job: Job, shared: Sequence[FileFacts]) -> Job:
    """The job with what kernels and schedulers say of it."""
    ids = {job.name, *(said for f in job.facts for said in f.marks.said)}
    span = _span(job.facts)
    pids = {ended.pid for f in job.facts for ended in f.ended if ended.pid}
    more = []
    for each in shared:
        if each.by_job:
            if named := ids & set(each.by_job):
                more.append(_of_job(each, named))
            continue
        fitting = [
            s
            for s in each.sightings
            if s.pid in pids
            or (
                span is not None
                and s.clock is not None
                and span[0] - _BEFORE_S <= s.clock.at_s <= span[1] + _AFTER_S
            )
        ]
        more.append(replace(each, sightings=fitting, outlived=[], for_hang=False))
    return replace(job, facts=(*job.facts, *more))
