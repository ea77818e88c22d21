"""Stacks of processes of which nothing says the ranks: judged by what stands apart; pure."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.flight_recorder.join_sources import JoinedJob
from relkit.flight_recorder.stacks_and_logs import StacksAndLogs, Unranked
from relkit.hang.attribute import analyse, attribute
from relkit.hang.frames import printable
from relkit.hang.model import HangVerdict, JobView, RankView

_MAX_NAMED = 4


def judged_unranked(
    processes: Sequence[Unranked], beside: StacksAndLogs
) -> tuple[JoinedJob, HangVerdict]:
    """The processes that stand apart, and no rank: none is known.

    Args:
        processes: at least one; beside: what was read with them.
    """
    views = [
        RankView(number, "", each.process.pid, alive=True, dump=each.process.dump(number))
        for number, each in enumerate(processes)
    ]
    job = JobView("", len(views), tuple(views), 0.0, has_stacks=False, is_from_files=True)
    analysis = analyse(job)
    odd = [c.rank for c in attribute(job, analysis).culprits] if len(views) > 1 else []
    # No rank is known, so that none is in the report.
    joined = JoinedJob(
        JobView("", 0, (), 0.0, has_stacks=False),
        {}, (), (), (), (), tuple(beside.left_out), dict(beside.used), tuple(beside.passed_over),
    )  # fmt: skip
    unknown = f"nothing says of which ranks the stacks of {len(views)} processes are"
    if not odd or 2 * len(odd) > len(views):
        return joined, HangVerdict((), (), f"{unknown}, and none of them stands apart")
    named = [_named(processes[n], analysis.activities[n].sentence()) for n in odd[:_MAX_NAMED]]
    more = f" and {len(odd) - _MAX_NAMED} more" if len(odd) > _MAX_NAMED else ""
    waiting = sum(1 for number in analysis.activities if number not in odd)
    return joined, HangVerdict(
        (),
        (),
        f"{'; '.join(named)}{more}: {waiting} of {len(views)} processes are in communication or "
        f"run, and {'this one is' if len(odd) == 1 else 'these are'} not with them; {unknown}",
    )


def _named(each: Unranked, doing: str) -> str:
    pid = f"process {each.process.pid}" if each.process.pid else "the process"
    return f"{pid} of {printable(each.path.name)}, {doing}"
