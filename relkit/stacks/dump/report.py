"""What `relkit stacks dump` saw, as a Report: one finding a rank, and what was missed and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.findings import Evidence, Finding, Report, Status
from relkit.process import procfs
from relkit.ranks import RankSet
from relkit.stacks.dump.find_jobs import FoundJobs
from relkit.stacks.dump.search_findings import search_findings
from relkit.stacks.model import RankDump, ThreadStack
from relkit.text.printable import printable_line

_DOCTOR = "Run `relkit doctor` on that host: it tests ptrace rights and every stack engine."


def _judge(dump: RankDump) -> tuple[str, Status, str, str]:
    """Finding id, status, what happened, and what to do."""
    if dump.process_state == procfs.GONE:
        advice = "Look for its exit status and core file; its recorder's state is in the dump."
        return "RK-STK-001", Status.UNKNOWN, "not captured: the process has ended", advice
    if not dump.python and not dump.native:
        return "RK-STK-002", Status.UNKNOWN, "no stack could be read", _DOCTOR
    if not dump.python or not dump.native:
        lacking = "Python" if not dump.python else "native"
        return "RK-STK-003", Status.WARN, f"captured without {lacking} stacks", _DOCTOR
    return "RK-STK-004", Status.OK, f"captured by {' and '.join(dump.engines)}", ""


def _rank_finding(dump: RankDump, path: Path) -> Finding:
    identity, status, what, advice = _judge(dump)
    return Finding(
        id=identity,
        status=status,
        title=f"rank {dump.rank} (pid {dump.pid}, {dump.process_state}): {what}",
        ranks=str(dump.rank),
        nodes=dump.host,
        reasons=dump.notes,
        evidence=(
            Evidence("Python threads", len(dump.python)),
            Evidence("native threads", len(dump.native)),
            Evidence("file", str(path)),
        ),
        advice=advice,
    )


def dump_report(
    dumps: Sequence[RankDump],
    paths: Sequence[Path],
    search: FoundJobs,
    folders: Sequence[Path],
    *,
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """The report of one capture.

    Args:
        dumps: one a rank; paths: the file of each, in the same order.
        search: whose ranks they are; folders: where those of each job are.
        argv: the command line; started: Unix time, s; duration_s: how long it took.
    """
    findings = [_rank_finding(dump, path) for dump, path in zip(dumps, paths, strict=True)]
    findings += search_findings(search, folders)
    findings.sort(key=lambda finding: finding.id)
    facts = {
        "files": [str(path) for path in paths],
        "ranks": RankSet.of(dump.rank for dump in dumps).fold(),
        "world_size": max((dump.world_size for dump in dumps), default=0),
        "jobs": [
            {"job_id": job.name, "folder": str(folder), "pids": [t.pid for t in job.targets]}
            for job, folder in zip(search.jobs, folders, strict=True)
        ],
    }
    return Report("stacks", tuple(findings), facts, started, duration_s, tuple(argv))


def _thread_text(thread: ThreadStack, view: str) -> Iterator[str]:
    kernel = f", in {thread.kernel}" if thread.kernel else ""
    gil = ", holds the GIL" if thread.owns_gil else ""
    state = f" {thread.state}" if thread.state else ""
    who = f"{thread.os_thread_id} {thread.name!r} [{thread.role}]"
    yield f"  {view} thread {who}{state}{kernel}{gil}"
    for frame in thread.frames:
        yield f"    {frame.func}  {frame.source}".rstrip()


def stacks_text(dumps: Sequence[RankDump]) -> str:
    """All stacks for reading on a terminal, innermost frame first."""
    lines: list[str] = []
    for dump in dumps:
        lines.append(
            f"rank {dump.rank}  pid {dump.pid}  {dump.process_state}  {dump.host}".rstrip()
        )
        for view, threads in (("python", dump.python), ("native", dump.native)):
            for thread in threads:
                lines += _thread_text(thread, view)
    return "".join(f"{printable_line(line)}\n" for line in lines)
