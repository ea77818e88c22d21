"""One incident: capture every rank, gather what the other nodes captured, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from relkit.errors import BadDump
from relkit.findings import Report
from relkit.hang.attribute import analyse, attribute
from relkit.hang.links.joined import with_links, with_network
from relkit.hang.links.model import LinkCheck
from relkit.hang.live_sources.contradictions import with_one_numbering
from relkit.hang.live_sources.report import by_live_sources, with_live_sources
from relkit.hang.model import HangVerdict, JobView, RankView, Suspicion
from relkit.hang.report import hang_report
from relkit.hang.waits import Wait
from relkit.hang.words import where
from relkit.launch.hang import codec
from relkit.launch.hang.observe import Observer
from relkit.launch.job.exchange import MESSAGE_BYTES, LedMailbox, Mailbox
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.process import procfs
from relkit.ranks import RankSet
from relkit.stacks.dump.capture import capture_ranks
from relkit.stacks.engines.base import Target
from relkit.stacks.model import RankDump

# A hung job waits anyway; after a failure the launcher (and torchrun's restart) waits for us.
HANG_CAPTURE_S = 10.0
FAILURE_CAPTURE_S = 1.5
# gdb takes seconds to load the libraries of torch. Nobody waits for it but the report.
CORE_STACK_S = 8.0
CORE_STACK_SHARED_S = 2.0
# Time for the other nodes' answers on top of their capture: their tick, and the store.
GATHER_MARGIN_S = 3.0
# Between two looks at which nodes have answered, s; and for each that has not, as looking takes.
_LOOK_S, _LOOK_NODE_S = 0.02, 2e-5

MeasureLinks = Callable[[HangVerdict, Sequence[Wait]], LinkCheck]


@dataclass(frozen=True, slots=True)
class IncidentResult:
    """The result of one incident."""

    job: JobView
    verdict: HangVerdict
    report: Report
    dumps: tuple[RankDump, ...]

    @property
    def sentence(self) -> str:
        """The verdict in one line, for the other nodes' logs."""
        network = f"; {self.verdict.network}" if self.verdict.network else ""
        if self.verdict.all_alike:
            return self.verdict.inconclusive
        if not self.verdict.culprits:
            return f"no rank could be identified as the cause{network}"
        first = self.verdict.culprits[0]
        return f"rank {first.rank}{where(first.host, first.pid)}: {first.sentence}{network}"


def capture_local(
    views: Sequence[RankView],
    observer: Observer,
    *,
    job_id: str,
    world_size: int,
    deadline_s: float,
) -> tuple[RankDump, ...]:
    """Stacks of the ranks that are alive; an engine that fails leaves a note in the dump."""
    targets = [
        Target(
            pid=view.pid,
            rank=view.rank,
            world_size=world_size,
            host=view.host,
            job_id=job_id,
            hook_file=observer.file_of(view.rank) if view.hook else None,
            start_ticks=view.hook.start_ticks if view.hook else procfs.start_ticks(view.pid),
        )
        for view in views
        if view.alive
    ]
    return capture_ranks(targets, deadline_s=deadline_s)


def gather(
    mailbox: LedMailbox,
    number: int,
    deadline_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[tuple[RankView, ...], tuple[RankDump, ...], tuple[int, ...]]:
    """The other nodes' views and dumps of one incident; those that are silent are not waited for.

    Args:
        number: of the incident; deadline_s: how long to wait for the slowest node, s.

    Returns:
        views, dumps, and the nodes that did not answer.

    Raises:
        ExchangeBroken: the store failed.
    """
    waiting = set(range(mailbox.nodes)) - {mailbox.node}
    views: list[RankView] = []
    dumps: list[RankDump] = []
    end = clock() + deadline_s
    while waiting:
        for node in sorted(waiting):
            note = mailbox.get(f"incident/{number}/node/{node}")
            if note is None:
                continue
            waiting.discard(node)
            try:
                node_views, node_dumps = codec.decode_capture(note)
            except BadDump:
                continue
            views += node_views
            dumps += node_dumps
        if clock() >= end or waiting <= mailbox.silent:
            break
        if waiting:
            pause(_LOOK_S + _LOOK_NODE_S * len(waiting))
    return tuple(views), tuple(dumps), tuple(sorted(waiting))


def answer(
    mailbox: Mailbox,
    number: int,
    views: Sequence[RankView],
    dumps: Sequence[RankDump],
    wanted: Callable[[int], bool] = lambda _rank: True,
    in_full: Collection[int] = (),
) -> None:
    """Send this node's part of an incident to the node that judges.

    Args:
        number: of the incident; views, dumps: of all local ranks.
        wanted: whether a rank's are to be sent; in a large job, those of the others stay here.
        in_full: see codec.encode_capture.
    """
    views = [view for view in views if wanted(view.rank)]
    dumps = [dump for dump in dumps if wanted(dump.rank)]
    note, _left_out = codec.encode_capture(views, dumps, MESSAGE_BYTES // 2, in_full)
    mailbox.put(f"incident/{number}/node/{mailbox.node}", note)


def judge(
    views: Sequence[RankView],
    dumps: Sequence[RankDump],
    *,
    job_id: str,
    world_size: int,
    trigger: str,
    settings: MonitorSettings,
    started: float,
    on_hang: OnHang | None = None,
    absent: Mapping[int, str],
    suspicions: tuple[Suspicion, ...] = (),
    sees_all: bool = True,
    is_sample: bool = False,
    measure_links: MeasureLinks | None = None,
) -> IncidentResult:
    """Decide who is at fault from everything that could be collected.

    Args:
        views: all ranks that are known, in any order, with or without their dump.
        dumps: the stacks, by their rank.
        started: Unix time of the trigger, s.
        on_hang: what is done about it; None for a failure, which is torchrun's to act on.
        absent: why nothing is known, by rank, for ranks without a view.
        suspicions: that there were before.
        sees_all: False where such ranks are watched by others, and are not to be accused.
        is_sample: only some ranks of a large job were asked; see JobView.
        measure_links: has the links between the suspects' nodes measured, and returns within its
            own deadline; None where that is not asked for.
    """
    by_rank = {dump.rank: dump for dump in dumps}
    numbered = with_one_numbering(views)
    known = {view.rank: replace(view, dump=by_rank.get(view.rank)) for view in numbered}
    if is_sample:
        known = {rank: view for rank, view in known.items() if _says_something(view)}
    for rank in () if is_sample else RankSet.world(world_size) - RankSet.of(known):
        reason = absent.get(rank, "its node sent nothing")
        known[rank] = RankView(rank=rank, host="", pid=0, alive=False, absent_reason=reason)
    job = JobView(
        job_id=job_id,
        world_size=world_size,
        ranks=tuple(known[rank] for rank in sorted(known)),
        hang_timeout_s=settings.hang_timeout_s,
        trigger=trigger,
        suspicions=suspicions,
        sees_all=sees_all,
        is_sample=is_sample,
    )
    analysis = analyse(job)
    verdict = by_live_sources(attribute(job, analysis), job)
    links = None if measure_links is None else measure_links(verdict, analysis.waits)
    verdict = verdict if links is None else with_network(verdict, links)
    report = hang_report(
        job,
        verdict,
        argv=settings.argv,
        started=started,
        duration_s=max(0.0, time.time() - started),
    )
    report = with_live_sources(report, job)
    action = on_hang.value if on_hang is not None and not verdict.is_over else ""
    report = replace(
        report, facts={**report.facts, "is_hang": on_hang is not None, "action": action}
    )
    report = report if links is None else with_links(report, links)
    return IncidentResult(job, verdict, report, tuple(dumps))


def _says_something(view: RankView) -> bool:
    """More than that the rank lives."""
    return (
        view.hook is not None or view.dump is not None or not view.alive or bool(view.absent_reason)
    )
