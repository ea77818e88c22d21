"""Dumps, stacks and logs -> one view of the job, and what each of them said; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relkit.flight_recorder.find_files import DumpFile
from relkit.flight_recorder.job_view import MAX_WORLD, job_view, world_size_of
from relkit.flight_recorder.model import FROM_LOG_ID, FlightDump, FlightEntry
from relkit.flight_recorder.stacks_and_logs import LogFile, StacksAndLogs
from relkit.flight_recorder.traceback_log import EndedBy
from relkit.hang.model import JobView, RankView
from relkit.hook.stored_state import stored_state
from relkit.stacks.model import RankDump

# torch's OpType, or a recorder's name, without its variants -> a recorder's name.
_FAMILIES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
_UNNAMED = "collective"
_KINDS: Mapping[tuple[str, ...], str] = {
    ("py-spy",): "py-spy's text",
    ("py-spy JSON",): "py-spy's JSON",
    ("faulthandler",): "faulthandler's text",
}
DEFAULT_GROUP = "0"
# Hosts and file servers need not agree on the time.
CLOCKS_DIFFER_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class SourceDispute:
    """A rank of which a dump and a log say different things.

    Args:
        rank: whose; sentence: what each of them says, and which one counts.
    """

    rank: int
    sentence: str


@dataclass(frozen=True, slots=True)
class JoinedJob:
    """The job as all sources together show it.

    Args:
        job: what is judged.
        said: by rank, what stacks and logs gave to the view, in words.
        dumps, stacks, logs: the ranks that have one.
        disputes: where sources contradict each other.
        left_out: what could not be used, and why.
        used: what each file that was used is, by its path.
        passed_over: files in which there was nothing to use.
    """

    job: JobView
    said: Mapping[int, tuple[str, ...]]
    dumps: tuple[int, ...]
    stacks: tuple[int, ...]
    logs: tuple[int, ...]
    disputes: tuple[SourceDispute, ...]
    left_out: tuple[str, ...]
    used: Mapping[Path, str] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()


def family(name: str) -> str:
    """`allreduce` for `ALLREDUCE`, `all_reduce_barrier` and `allreduce_coalesced`; "" unknown."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((each for each in _FAMILIES if letters.startswith(each)), "")


def join(
    dumps: Sequence[FlightDump],
    beside: StacksAndLogs,
    source: str,
    unusable: Mapping[DumpFile, str] | None = None,
) -> JoinedJob:
    """One view of the job.

    A rank's dump counts before a log, which fills in what it lacks: a rank without a dump, and
    operations that were called after it was written. Stacks say what a rank does now.

    Args:
        dumps: one a rank, or none at all; beside: stacks and logs.
        source: where they lie, for what is said of a rank that has none.
        unusable: files of dumps that say nothing, each with the reason.

    Raises:
        UsageProblem: the job would have more than MAX_WORLD ranks.
    """
    left_out = list(beside.left_out)
    unusable = unusable or {}
    left_out += [f"{file.path}: as a dump it {why}" for file, why in unusable.items()]
    beside = _without_older(dumps, beside, left_out)
    spoken = _by_rank(dumps, beside.logs, left_out)
    stacks = dict(beside.stacks)
    # gloo's dumps do not list the ranks of groups.
    known = world_size_of(dumps) if any(dump.groups for dump in dumps) else MAX_WORLD
    beyond = {rank: stacks.pop(rank).path for rank in sorted(stacks) if rank >= known}
    beyond |= {rank: spoken.pop(rank)[0].path for rank in sorted(spoken) if rank >= known}
    left_out += [f"{p}: of rank {r}, and the job has {known} ranks" for r, p in beyond.items()]
    joiner = _Joiner(dumps, [log for logs in spoken.values() for log in logs])
    named = {dump.rank: dump for dump in dumps}
    whole = [
        joiner.joined(rank, named.get(rank), spoken.get(rank, ()))
        for rank in sorted({*named, *spoken})
    ]
    raised = {rank: each for rank, each in beside.raised.items() if rank < known}
    others = [max(rank + 1, file.dump.world_size) for rank, file in stacks.items()]
    others += [rank + 1 for rank in raised] + [file.rank + 1 for file in unusable]
    view = job_view(
        whole,
        source,
        world_size=max(others, default=0) if known == MAX_WORLD else 0,
        now_ns=0 if dumps else max((log.written_ns for log in beside.logs), default=0),
    )
    for rank, file in stacks.items():
        kind = _KINDS.get(file.dump.engines, "stacks")
        joiner.say(rank, f"its stack is from {_name(file.path)} ({kind})")
    views = [
        _with_stack(each, stacks[each.rank].dump, with_recorder=not whole)
        if each.rank in stacks
        else each
        for each in view.ranks
    ]
    absent = {file.rank: f"its dump {file.path.name} {why}" for file, why in unusable.items()}
    views = [
        replace(each, absent_reason=absent[each.rank])
        if each.absent_reason and each.rank in absent
        else each
        for each in views
    ]
    views = [
        _with_exception(each, *raised[each.rank], joiner) if each.rank in raised else each
        for each in views
    ]
    return JoinedJob(
        job=replace(view, ranks=tuple(views), is_from_files=True),
        said={rank: tuple(said) for rank, said in joiner.said.items()},
        dumps=tuple(sorted(named)),
        stacks=tuple(sorted(stacks)),
        logs=tuple(sorted(spoken)),
        disputes=tuple(joiner.disputes),
        left_out=tuple(left_out),
        used=dict(beside.used),
        passed_over=tuple(beside.passed_over),
    )


def lone_rank(job: JobView) -> RankView | None:
    """The only rank of which anything is known, where nothing says how many the job has."""
    known = [view for view in job.ranks if not view.absent_reason]
    if len(known) != 1 or (known[0].dump is not None and known[0].dump.world_size):
        return None
    return known[0]


def _without_older(
    dumps: Sequence[FlightDump], beside: StacksAndLogs, left_out: list[str]
) -> StacksAndLogs:
    """Without what is older than the newest operation in dumps: it is of an earlier hang.

    A watchdog speaks when an operation has timed out, and stacks are taken when a job hangs.
    """
    newest_ns = max((e.created_ns for dump in dumps for e in dump.entries), default=0)
    oldest_ns = newest_ns - CLOCKS_DIFFER_NS
    stacks = {rank: file for rank, file in beside.stacks.items() if file.taken_ns >= oldest_ns}
    logs = [log for log in beside.logs if log.written_ns >= oldest_ns]
    old = {file.path for file in beside.stacks.values() if file.taken_ns < oldest_ns}
    old |= {log.path for log in beside.logs if log.written_ns < oldest_ns}
    left_out += [f"{path}: older than the newest operation in the dumps" for path in sorted(old)]
    kept = replace(beside, stacks=stacks, logs=logs, left_out=[])
    return replace(kept, used={path: what for path, what in beside.used.items() if path not in old})


def _with_stack(view: RankView, dump: RankDump, *, with_recorder: bool) -> RankView:
    """The rank with its stacks; with relkit's own recorder only where no rank has torch's."""
    hook = view.hook
    if with_recorder and dump.hook_json:
        try:
            hook = stored_state(dump.hook_json)
        except ValueError:
            hook = None
    return replace(
        view,
        host=dump.host,
        pid=dump.pid,
        alive=not dump.has_ended,
        process_state="" if dump.has_ended else dump.process_state[:1],
        hook=hook,
        dump=replace(dump, hook_json=""),
        absent_reason="",
    )


def _with_exception(view: RankView, raised: EndedBy, log: Path, joiner: _Joiner) -> RankView:
    """The rank, ended by its exception, where nothing shows that it lived on."""
    error = f"{raised.error} in {raised.where}" if raised.where else raised.error
    joiner.say(view.rank, f"{_name(log)} has a traceback of it: {error}")
    in_flight = view.hook is not None and bool(view.hook.in_flight)
    if in_flight or view.dump is not None:
        return view
    return replace(view, alive=False, absent_reason="", error=error)


def _by_rank(
    dumps: Sequence[FlightDump], logs: Iterable[LogFile], left_out: list[str]
) -> dict[int, list[LogFile]]:
    """What logs say, by global rank; of one group the rank's own newest word."""
    groups = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
    newest: dict[tuple[int, str], LogFile] = {}
    lost: Counter[Path] = Counter()
    for log in logs:
        state = log.state
        group = state.group or _group_of(log, dumps)
        ranks = () if group is None else groups.get(group, ())
        if group is None or (state.in_group and group != DEFAULT_GROUP and not ranks):
            lost[log.path] += 1
            continue
        rank = state.rank
        if state.in_group and ranks:
            if rank >= len(ranks):
                lost[log.path] += 1
                continue
            rank = ranks[rank]
        if rank >= MAX_WORLD:
            lost[log.path] += 1
            continue
        known = newest.get((rank, group))
        if known is None or _weight(log) >= _weight(known):
            newest[rank, group] = replace(log, state=replace(state, group=group, rank=rank))
    for path, count in lost.items():
        left_out.append(
            f"{path}: {count} reports of the watchdog do not say of which rank they are"
        )
    by_rank: dict[int, list[LogFile]] = {}
    for (rank, _), log in newest.items():
        by_rank.setdefault(rank, []).append(log)
    return by_rank


def _weight(log: LogFile) -> tuple[bool, bool]:
    """What a rank says itself counts before what others say of it, and numbers before none."""
    return not log.state.of_others, log.state.enqueued is not None


def _group_of(log: LogFile, dumps: Sequence[FlightDump]) -> str | None:
    """The group of lines that do not name one: where such an operation hangs, else the default."""
    hanging = {
        entry.group
        for dump in dumps
        for entry in dump.entries
        if entry.in_flight
        and not entry.is_p2p
        and entry.seq == log.state.stuck_seq
        and family(entry.name) == family(log.state.stuck_op)
    }
    if len(hanging) == 1:
        return next(iter(hanging))
    used = {entry.group for dump in dumps for entry in dump.entries}
    return DEFAULT_GROUP if used <= {DEFAULT_GROUP} else None


class _Joiner:
    """Completes dumps by logs, and keeps what was said."""

    def __init__(self, dumps: Sequence[FlightDump], logs: Sequence[LogFile]) -> None:
        self.said: dict[int, list[str]] = {}
        self._groups = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
        self._described = {n: text for dump in dumps for n, text in dump.descriptions.items()}
        self.disputes: list[SourceDispute] = []
        self._now_ns = max(
            [t for d in dumps for e in d.entries for t in (e.created_ns, e.completed_ns)]
            or [log.written_ns for log in logs]
            or [0]
        )
        wanted = {(log.state.group, log.state.stuck_seq) for log in logs if log.state.stuck_seq}
        self._alike: dict[tuple[str, int], list[FlightEntry]] = {}
        for dump in dumps:
            for entry in dump.entries:
                key = entry.group, entry.seq
                if key in wanted and not entry.is_p2p:
                    self._alike.setdefault(key, []).append(entry)
        self._ops: dict[tuple[str, int], Counter[str]] = {}
        for log in logs:
            if log.state.stuck_op:
                key = log.state.group, log.state.stuck_seq
                self._ops.setdefault(key, Counter())[log.state.stuck_op] += 1

    def say(self, rank: int, sentence: str) -> None:
        """Note what a source gave."""
        self.said.setdefault(rank, []).append(sentence)

    def joined(self, rank: int, dump: FlightDump | None, logs: Sequence[LogFile]) -> FlightDump:
        """The rank's dump with what logs add to it."""
        made = dump or self._from_logs(rank, {log.state.group for log in logs})
        for log in logs:
            made = self._add(made, log, is_dumped=dump is not None)
        return made

    def _from_logs(self, rank: int, spoken: Collection[str]) -> FlightDump:
        """A dump without entries, with the groups of which logs speak as other dumps list them."""
        groups = {name: self._groups[name] for name in spoken if rank in self._groups.get(name, ())}
        described = {name: self._described.get(name, "") for name in groups}
        return FlightDump(rank, "", groups, described, (), is_from_log=True)

    def _add(self, dump: FlightDump, log: LogFile, *, is_dumped: bool) -> FlightDump:
        state = log.state
        mine = [e for e in dump.entries if e.group == state.group and not e.is_p2p]
        transfers = any(e.is_p2p for e in dump.entries if e.group == state.group)
        newest = max((e.seq for e in mine), default=0)
        # Of a send or a batch the numbers are others, and they are mixed up in such groups.
        counts = not state.is_transfer and not transfers
        if not is_dumped:
            self.say(dump.rank, f"no dump of it: {_status(log)}")
        elif counts and (state.enqueued or 0) > newest:
            self._dispute(
                dump.rank,
                f"its dump ends with #{newest} of {_group(state.group)}, but {_status(log)}: the "
                "dump is older, and the log counts",
            )
        at = next((e for e in mine if e.seq == state.stuck_seq), None)
        if at is not None and counts and state.stuck_op and family(at.name) and (
            family(at.name) != family(state.stuck_op)
            or (at.state == "completed" and not state.of_others)
        ):  # fmt: skip
            self._dispute(
                dump.rank,
                f"{_name(log.path)} says that {state.stuck_op} #{state.stuck_seq} of "
                f"{_group(state.group)} timed out, its dump has {at.name} there, {at.state}: the "
                "dump counts",
            )
        entries = list(dump.entries)
        is_new = at is None and (state.stuck_seq > newest or not counts)
        if state.stuck_seq and is_new and not (state.is_transfer and is_dumped):
            entries.append(self._entry(log))
        if not counts:
            return replace(dump, entries=tuple(entries))
        enqueued = max(state.enqueued or 0, state.stuck_seq)
        completed = state.completed or 0
        return replace(
            dump,
            entries=tuple(_completed(entry, log) for entry in entries),
            enqueued={**dump.enqueued, state.group: enqueued},
            completed={
                **dump.completed,
                state.group: max(dump.completed.get(state.group, 0), completed),
            },
        )

    def _dispute(self, rank: int, sentence: str) -> None:
        self.disputes.append(SourceDispute(rank, sentence))
        self.say(rank, sentence)

    def _entry(self, log: LogFile) -> FlightEntry:
        """The operation that timed out, as far as a log knows it."""
        state = log.state
        key = state.group, state.stuck_seq
        alike = self._alike.get(key, [])
        op = state.stuck_op or next(
            (n for n, _ in self._ops.get(key, Counter()).most_common(1)), ""
        )
        same = next((e for e in alike if not op or family(e.name) == family(op)), None)
        name = same.name if same else _FAMILIES.get(family(op), op.lower() or _UNNAMED)
        started_ns = max(1, self._now_ns - int(state.ran_s * 1e9))
        return FlightEntry(
            record_id=FROM_LOG_ID,
            group=state.group,
            description="",
            backend="nccl",
            name=name,
            source=-1,
            destination=-1,
            seq=state.stuck_seq,
            is_p2p=state.is_transfer,
            size_bytes=same.size_bytes if same else 0,
            dtypes=same.dtypes if same else (),
            state="started",
            retired=False,
            created_ns=started_ns,
            started_ns=started_ns,
            completed_ns=0,
            timeout_s=state.timeout_s,
            frames=state.frames,
        )


def _completed(entry: FlightEntry, log: LogFile) -> FlightEntry:
    """What was in flight when the dump was written may have ended before the log was."""
    state = log.state
    ended = (
        entry.group == state.group
        and not entry.is_p2p
        and entry.in_flight
        and entry.seq <= (state.completed or 0)
    )
    return replace(entry, retired=True) if ended else entry


def _status(log: LogFile) -> str:
    """`train.log says that it had enqueued #42 of the default group and completed #40`."""
    state = log.state
    parts = []
    if state.enqueued is not None:
        parts.append(
            f"its last enqueued operation of {_group(state.group)} is {_at(state.enqueued)}"
        )
    if state.completed is not None:
        parts.append(f"the last completed one {_at(state.completed)}")
    if state.stuck_seq:
        of = "" if parts else f" of {_group(state.group)}"
        parts.append(f"{state.stuck_op or 'operation'} #{state.stuck_seq}{of} timed out")
    who = "torch's desync report" if state.of_others else "the watchdog"
    return f"{who} in {_name(log.path)} says that {', '.join(parts)}"


def _at(number: int) -> str:
    return f"#{number}" if number else "none"


def _group(name: str) -> str:
    return "the default group" if name == DEFAULT_GROUP else f'group "{name[:16]}"'


def _name(path: Path) -> str:
    """`node1/rank3.txt`: the last two parts say enough of a place."""
    return "/".join(path.parts[-2:]) if len(path.parts) > 1 else path.name
