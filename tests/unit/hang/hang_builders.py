"""Synthetic jobs for the tests of detection and attribution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from relkit.hang.model import Category, CpuUse, HangVerdict, JobView, RankView
from relkit.hook.model import Communicator, HookState, Op, OpKind
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

SECOND = 1_000_000_000
NOW = 1_000 * SECOND
TIMEOUT_S = 10.0
SITE = "/opt/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"

Frames = tuple[tuple[str, str], ...]

TRAIN = ("train", "/home/user/examples/train.py:130")
# What py-spy shows of a main thread, innermost first; taken from real jobs.
STACKS: dict[str, tuple[Frames, str, str]] = {
    "all_reduce": (
        (
            ("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py:3252"),
            (
                "_exception_logger.<locals>.wrapper",
                f"{SITE}/torch/distributed/c10d_logger.py:83",
            ),
            TRAIN,
        ),
        "S",
        "futex_do_wait",
    ),
    "recv": (
        (
            ("recv", f"{SITE}/torch/distributed/distributed_c10d.py:2799"),
            TRAIN,
        ),
        "S",
        "futex_do_wait",
    ),
    "ddp": (
        (
            (
                "DistributedDataParallel._pre_forward",
                f"{SITE}/torch/nn/parallel/distributed.py:1775",
            ),
            ("Module._call_impl", f"{SITE}/torch/nn/modules/module.py:1789"),
            TRAIN,
        ),
        "S",
        "futex_do_wait",
    ),
    "backward": (
        (
            ("_engine_run_backward", f"{SITE}/torch/autograd/graph.py:869"),
            ("backward", f"{SITE}/torch/_tensor.py:630"),
            TRAIN,
        ),
        "S",
        "futex_do_wait",
    ),
    "lock": (
        (("Loader.next_batch", "/home/user/examples/train.py:88"), TRAIN),
        "S",
        "futex_do_wait",
    ),
    "queue": (
        (
            ("Condition.wait", f"{STDLIB}/threading.py:327"),
            ("Queue.get", f"{STDLIB}/queue.py:171"),
            TRAIN,
        ),
        "S",
        "futex_do_wait",
    ),
    "dataloader": (
        (
            ("_PollLikeSelector.select", f"{STDLIB}/selectors.py:415"),
            ("Queue.get", f"{STDLIB}/multiprocessing/queues.py:113"),
            ("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py:1291"),
            TRAIN,
        ),
        "S",
        "poll_schedule_timeout.constprop.0",
    ),
    "sleep": (((TRAIN),), "S", "hrtimer_nanosleep"),
    "exit": (
        (
            ("Thread.join", f"{STDLIB}/threading.py:1119"),
            ("_python_exit", f"{STDLIB}/concurrent/futures/thread.py:31"),
            ("_shutdown", f"{STDLIB}/threading.py:1553"),
        ),
        "S",
        "futex_do_wait",
    ),
    "spin": (
        (("train", "/home/user/examples/train.py:120"),),
        "R",
        "",
    ),
    "file": ((("save", "/home/user/examples/train.py:140"), TRAIN), "D", "nfs_wait_bit_killable"),
}


def op(
    name: str = "allreduce",
    seq: int = 0,
    *,
    group: int = 0,
    size: int = 1024,
    age_s: float = 0.0,
    took_s: float = 0.01,
    in_flight: bool = False,
    failed: bool = False,
    kind: OpKind = OpKind.COLLECTIVE,
    thread: int = 7,
) -> Op:
    """An operation that began age_s ago."""
    start = NOW - int(age_s * SECOND)
    end = 0 if in_flight else start + int(took_s * SECOND)
    return Op(name, kind, seq, group, size, thread, start, end, failed)


def state(
    rank: int,
    world: int,
    done: Sequence[Op] = (),
    flying: Sequence[Op] = (),
    groups: Sequence[Communicator] = (),
) -> HookState:
    """A recorder; the newest number of each group follows from the operations."""
    everything = [*done, *flying]
    communicators = []
    for c in groups or (Communicator(0, rank, world, "0"),):
        collectives = [o for o in everything if o.kind is OpKind.COLLECTIVE]
        numbers = [o.seq for o in collectives if o.communicator == c.index]
        communicators.append(replace(c, seq=max([c.seq, *numbers])))
    return HookState(
        pid=1000 + rank,
        start_ticks=5,
        rank=rank,
        local_rank=rank,
        world_size=world,
        now_ns=NOW,
        boot_to_unix_ns=0,
        started=len(everything),
        finished=len(done),
        last_finish_ns=max((o.end_ns for o in done), default=0),
        in_flight=tuple(sorted(flying, key=lambda o: o.start_ns)),
        recent=tuple(sorted(done, key=lambda o: o.end_ns)),
        communicators=tuple(communicators),
    )


def dump(rank: int, world: int, stack: str, extra: Iterable[ThreadStack] = ()) -> RankDump:
    """Python stacks of one rank whose main thread stands in STACKS[stack]."""
    frames, letter, kernel = STACKS[stack]
    main = ThreadStack(
        os_thread_id=1000 + rank,
        name="MainThread",
        frames=tuple(Frame(func, source) for func, source in frames),
        role=Role.MAIN,
        state=letter,
        kernel=kernel,
    )
    return RankDump(rank, world, 1000 + rank, letter, python=(main, *extra))


def view(
    rank: int,
    world: int,
    *,
    stack: str = "",
    hook: HookState | None = None,
    **fields: object,
) -> RankView:
    """A live rank on host n<rank // 4>, unless `fields` say otherwise."""
    base = RankView(
        rank=rank,
        host=f"n{rank // 4}",
        pid=1000 + rank,
        alive=True,
        process_state=STACKS[stack][1] if stack else "S",
        hook=hook,
        dump=dump(rank, world, stack) if stack else None,
        cpu=CpuUse(0.99 if stack == "spin" else 0.0, 1.0 if stack else 0.0),
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def job(views: Sequence[RankView], world: int | None = None) -> JobView:
    """A job of these ranks."""
    return JobView("job-1", world or len(views), tuple(views), TIMEOUT_S, "a test")


# One step of the example: two gradient buckets, then the loss on a group of its own.
BUCKETS = (4096, 2048)
PER_STEP = len(BUCKETS)


def two_groups(rank: int, world: int) -> tuple[Communicator, Communicator]:
    """The default group and one of the same ranks for metrics."""
    return Communicator(0, rank, world, "0"), Communicator(1, rank, world, "1")


def steps(count: int, *, until_s: float = 12.0) -> list[Op]:
    """`count` finished steps of the example, the last of which ended until_s ago."""
    found = []
    for step in range(count):
        age_s = until_s + 0.1 * (count - step)
        for bucket, size in enumerate(BUCKETS):
            seq = step * PER_STEP + bucket
            found.append(op(seq=seq, size=size, age_s=age_s - 0.02 * bucket))
        found.append(op(seq=step, group=1, size=4, age_s=age_s - 0.05))
    return found


def trained(
    rank: int, world: int, count: int = 6, flying: Sequence[Op] = (), more: Sequence[Op] = ()
) -> HookState:
    """A rank of the example after `count` steps."""
    return state(rank, world, [*steps(count), *more], flying, two_groups(rank, world))


def waiting_for_buckets(count: int = 6) -> list[Op]:
    """In flight: both buckets of the next step, in gloo's two worker threads."""
    return [
        op(seq=count * PER_STEP + i, size=size, age_s=11.0, in_flight=True, thread=8 + i)
        for i, size in enumerate(BUCKETS)
    ]


def waiting_around(culprit: RankView, *, world: int = 4, stack: str = "ddp") -> list[RankView]:
    """All ranks of a job in which every other rank waits in the buckets of step 6."""
    return [
        culprit
        if rank == culprit.rank
        else view(rank, world, stack=stack, hook=trained(rank, world, 6, waiting_for_buckets()))
        for rank in range(world)
    ]


def others_wait(culprit: RankView, *, stack: str = "ddp") -> JobView:
    """The job of these ranks."""
    return job(waiting_around(culprit, stack=stack))


def named(verdict: HangVerdict) -> list[tuple[int, Category]]:
    """The ranks that a verdict accuses, and of what."""
    return [(culprit.rank, culprit.category) for culprit in verdict.culprits]
