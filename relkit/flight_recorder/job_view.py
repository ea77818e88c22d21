"""Dumps of all ranks -> the view of the job that a hang is judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.errors import UsageProblem
from relkit.flight_recorder.model import FlightDump, FlightEntry
from relkit.hang.frames import is_user_code, place
from relkit.hang.model import JobView, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount

MAX_WORLD = 1 << 16
# The flight recorder has torch's internal names; equal ones here belong to one call of torch's.
_NAMES = {
    "all_reduce": "allreduce",
    "allreduce_coalesced": "allreduce",
    "all_reduce_barrier": "barrier",
    "all_gather": "allgather",
    "all_gather_single": "allgather",
    "_all_gather_base": "allgather",
    "all_gather_into_tensor_coalesced": "allgather",
    "ALLGATHER_coalesced": "allgather",
    "all_gather_v": "allgatherv",
    "reduce_scatter": "reducescatter",
    "reduce_scatter_single": "reducescatter",
    "_reduce_scatter_base": "reducescatter",
    "reduce_scatter_tensor_coalesced": "reducescatter",
    "REDUCE_SCATTER_coalesced": "reducescatter",
    "all_to_all": "alltoallv",
    "all_to_all_v_single": "alltoallv",
    "all_to_all_single": "alltoall",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
# Uneven parts: the sizes of ranks need not be equal.
_ANY_SIZE = frozenset({"reduce_scatter_v", "barrier", "all_reduce_barrier", "split", "new_window"})

_KEPT_SIZES = 4
# The end of an operation that has ended, nobody recorded when.
_ENDED = 1

# One group of the job: its name and its ranks.
GroupId = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Job:
    """What has to be known of all dumps to read one.

    Args:
        world_size: ranks of the job.
        now_ns: the newest time in any dump, Unix time, ns.
        used_by: of groups whose ranks no dump lists: the ranks that used them.
        mixed: groups with sends and receives, whose counts are of both kinds.
        typed: collectives whose tensors' types count: those to which members gave different ones,
            and for comparison the others of the same groups.
    """

    world_size: int
    now_ns: int
    used_by: Mapping[str, tuple[int, ...]]
    mixed: frozenset[str]
    typed: frozenset[tuple[GroupId, int]] = frozenset()

    def group(self, dump: FlightDump, name: str) -> GroupId:
        """The group that the rank calls by this name."""
        return name, dump.groups.get(name) or self.used_by.get(name, ())


def job_view(
    dumps: Sequence[FlightDump], source: str, *, world_size: int = 0, now_ns: int = 0
) -> JobView:
    """What the dumps show of the job.

    Args:
        dumps: one a rank.
        source: where they lie, for what is said of a rank that has none.
        world_size: ranks of the job, now_ns: when it was looked at, Unix time, where other sources
            know of more ranks or of a later time.

    Raises:
        UsageProblem: the job would have more than MAX_WORLD ranks.
    """
    world_size = max(world_size_of(dumps), world_size)
    if world_size > MAX_WORLD:
        raise UsageProblem(
            f"the dumps are of a job of {world_size} ranks",
            next_step="A dump's name ends with its rank, as in nccl_trace_rank_3: check the names.",
        )
    job = _Job(
        world_size=world_size,
        now_ns=max([now_ns, *(time for dump in dumps for time in _times(dump))]),
        used_by=_used_by(dumps, world_size),
        mixed=frozenset(e.group for dump in dumps for e in dump.entries if e.is_p2p),
    )
    job = replace(job, typed=_typed(dumps, job))
    views = {
        dump.rank: RankView(
            rank=dump.rank,
            host="",
            pid=0,
            alive=True,
            hook=_state(dump, job),
            called_from=_call_site(dump),
        )
        for dump in dumps
    }
    absent = f"no dump of it in {source}"
    return JobView(
        job_id="",
        world_size=world_size,
        ranks=tuple(
            views.get(rank) or RankView(rank, "", 0, alive=False, absent_reason=absent)
            for rank in range(world_size)
        ),
        hang_timeout_s=max((e.timeout_s for d in dumps for e in d.entries[-1:]), default=0.0),
        has_stacks=False,
        listed={
            (dump.rank, _title(dump, name)): ranks
            for dump in dumps
            for name, ranks in dump.groups.items()
        },
    )


def world_size_of(dumps: Sequence[FlightDump]) -> int:
    """How many ranks the job has, as far as dumps show that."""
    named = [max(ranks) + 1 for dump in dumps for ranks in dump.groups.values()]
    return max([dump.rank + 1 for dump in dumps] + named, default=0)


def _times(dump: FlightDump) -> Iterable[int]:
    for entry in dump.entries:
        yield from (entry.created_ns, entry.started_ns, entry.completed_ns)


def _used_by(dumps: Sequence[FlightDump], world_size: int) -> dict[str, tuple[int, ...]]:
    """gloo's dumps do not list the ranks of groups: those that used one were in it."""
    users: dict[str, list[int]] = {}
    for dump in sorted(dumps, key=lambda dump: dump.rank):
        for name in {*(entry.group for entry in dump.entries), *dump.enqueued}:
            users.setdefault(name, []).append(dump.rank)
    return {**{name: tuple(ranks) for name, ranks in users.items()}, "0": tuple(range(world_size))}


def _typed(dumps: Sequence[FlightDump], job: _Job) -> frozenset[tuple[GroupId, int]]:
    """Collectives to which members of a group gave different types, and the group's others."""
    seen: dict[tuple[GroupId, int], set[tuple[str, ...]]] = {}
    for dump in dumps:
        for parts in _calls(dump.entries):
            last = parts[-1]
            # The root of a gather or scatter has both sides, the others one.
            if not last.is_p2p and last.name not in ("gather", "scatter"):
                key = job.group(dump, last.group), last.seq
                seen.setdefault(key, set()).add(_dtypes(parts))
    disputed = {key for key, dtypes in seen.items() if len(dtypes - {()}) > 1}
    groups = {group for group, _ in disputed}
    alike = {key for key, dtypes in seen.items() if key[0] in groups and len(dtypes) == 1}
    return frozenset(disputed | {key for key in alike if () not in seen[key]})


def _dtypes(parts: Sequence[FlightEntry]) -> tuple[str, ...]:
    return tuple(sorted({dtype for part in parts for dtype in part.dtypes}))


def _state(dump: FlightDump, job: _Job) -> HookState:
    communicators = _communicators(dump, job)
    indices = {name: c.index for name, c in communicators.items()}
    fronts = _fronts(dump)
    ops = [
        _op(entries, dump, indices[entries[-1].group], job, fronts)
        for entries in _calls(dump.entries)
        if entries[-1].group in indices
    ]
    ops, transfers = _counted(ops, is_whole=_is_whole(dump))
    done = [op for op in ops if op.end_ns]
    return HookState(
        pid=0,
        start_ticks=0,
        rank=dump.rank,
        local_rank=-1,
        world_size=job.world_size,
        now_ns=job.now_ns,
        boot_to_unix_ns=0,
        started=len(ops),
        finished=len(done),
        last_finish_ns=max((op.end_ns for op in done if op.end_ns != _ENDED), default=0),
        in_flight=tuple(sorted((op for op in ops if not op.end_ns), key=lambda op: op.start_ns)),
        recent=tuple(done),
        communicators=tuple(communicators.values()),
        transfers=transfers,
        dropped=dump.overwritten,
    )


def _is_whole(dump: FlightDump) -> bool:
    """Nothing has been overwritten since the job began, so that counts are right."""
    return bool(dump.entries) and dump.entries[0].record_id == 0


def _counted(ops: Sequence[Op], *, is_whole: bool) -> tuple[list[Op], tuple[TransferCount, ...]]:
    """The same operations, sends and receives with their numbers, and how many there are of each.

    The recorder numbers all transfers of a group, whoever the peer is, so they are counted anew.
    """
    if not is_whole:
        return list(ops), ()
    counted: list[Op] = []
    ends: dict[tuple[int, bool, int], list[Op]] = {}
    for op in ops:
        if op.kind is OpKind.P2P and op.peer >= 0:
            of_peer = ends.setdefault((op.communicator, op.name == "recv", op.peer), [])
            counted.append(replace(op, seq=len(of_peer)))
            of_peer.append(counted[-1])
        else:
            counted.append(op)
    transfers = tuple(
        TransferCount(
            communicator=communicator,
            receives=receives,
            peer=peer,
            tag=0,
            posted=len(those),
            done=sum(1 for op in those if op.end_ns),
            sizes=tuple(op.size_bytes for op in those[-_KEPT_SIZES:]),
        )
        for (communicator, receives, peer), those in ends.items()
    )
    return counted, transfers


def _communicators(dump: FlightDump, job: _Job) -> dict[str, Communicator]:
    """This rank's groups by their names in the dump."""
    counted = {n: c for n, c in dump.enqueued.items() if dump.is_from_log or n not in job.mixed}
    newest: dict[str, int] = dict(counted)
    for entry in dump.entries:
        if not entry.is_p2p:
            newest[entry.group] = max(newest.get(entry.group, -1), entry.seq)
    names = {*dump.groups, *(entry.group for entry in dump.entries), *counted}
    if not dump.is_from_log:
        # Of a group that a log is silent about it does not follow that the rank called nothing.
        names.add("0")
    communicators = {}
    for index, name in enumerate(sorted(names)):
        _, ranks = job.group(dump, name)
        if dump.rank in ranks:
            place_in = ranks.index(dump.rank)
            seq = newest.get(name, -1)
            title = _title(dump, name)
            done = 0 if name in job.mixed else dump.completed.get(name, 0)
            communicators[name] = Communicator(index, place_in, len(ranks), title, seq, done)
    return communicators


def _title(dump: FlightDump, name: str) -> str:
    """The group's name, after what its maker called it."""
    used = (e.description for e in dump.entries if e.group == name)
    description = dump.descriptions.get(name) or next(used, "")
    return name if description in ("", "undefined", "default_pg") else f"{description} {name}"


def _calls(entries: Sequence[FlightEntry]) -> Iterable[list[FlightEntry]]:
    """Entries of one call: the parts of a coalesced collective share their number.

    Sends and receives of one batch end together, but each is a call with a peer of its own.
    """
    calls: dict[tuple[str, bool, int], list[FlightEntry]] = {}
    batch: list[tuple[str, bool, int]] = []
    for entry in entries:
        key = entry.group, entry.is_p2p, entry.record_id if entry.is_p2p else entry.seq
        if entry.name == "coalesced" and batch:
            # Only the batch has a state that is kept up to date.
            for part in batch:
                calls[part] = [_as_ended(calls[part][0], entry)]
            batch = []
            continue
        calls.setdefault(key, []).append(entry)
        batch = [*batch, key] if entry.is_p2p else []
    return calls.values()


def _as_ended(part: FlightEntry, batch: FlightEntry) -> FlightEntry:
    return replace(
        part,
        state=batch.state,
        retired=batch.retired,
        started_ns=batch.started_ns,
        completed_ns=batch.completed_ns,
    )


def _fronts(dump: FlightDump) -> frozenset[int]:
    """Calls that the device may be in, of a recorder that sees none of them begin.

    NCCL's has no start times unless TORCH_NCCL_ENABLE_TIMING is set: a call is "scheduled" until it
    has ended. A device takes the calls of a group in turn, and transfers with each peer, so that
    the first unfinished one of them is the one to look at.
    """
    if any(entry.started_ns for entry in dump.entries):
        return frozenset()
    oldest: dict[tuple[str, str, int, int], int] = {}
    for entry in dump.entries:
        if entry.in_flight:
            way = (entry.name, entry.source, entry.destination) if entry.is_p2p else ("", -1, -1)
            oldest.setdefault((entry.group, *way), entry.record_id)
    return frozenset(oldest.values())


def _op(
    parts: Sequence[FlightEntry],
    dump: FlightDump,
    communicator: int,
    job: _Job,
    fronts: frozenset[int],
) -> Op:
    last = parts[-1]
    name = _NAMES.get(last.name, last.name)
    if not last.is_p2p and (job.group(dump, last.group), last.seq) in job.typed:
        name = f"{last.name} of {'/'.join(_dtypes(parts))}"
    peer = last.destination if last.name == "send" else last.source
    begun = next((part.started_ns for part in parts if part.started_ns), 0)
    on_device = last.backend != "gloo"
    # Of a coalesced collective only the last entry's state is kept up to date.
    end_ns = 0 if last.in_flight else last.completed_ns or _ENDED
    is_waiting = last.state == "scheduled" and last.record_id not in fronts
    return Op(
        name=name,
        kind=OpKind.P2P if last.is_p2p else OpKind.COLLECTIVE,
        seq=-1 if last.is_p2p else last.seq,
        communicator=communicator,
        size_bytes=0 if last.name in _ANY_SIZE else sum(part.size_bytes for part in parts),
        os_thread_id=0,
        start_ns=begun or parts[0].created_ns,
        end_ns=end_ns,
        peer=peer,
        enqueue_ns=parts[0].created_ns if on_device else 0,
        queued=on_device and is_waiting and not end_ns,
    )


def _call_site(dump: FlightDump) -> str:
    """Where its newest operation was called."""
    frames = dump.entries[-1].frames if dump.entries else ()
    return next((place(frame) for frame in frames if is_user_code(frame)), "")
