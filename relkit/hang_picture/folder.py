"""What a hang left in a folder -> its verdict and its picture, whoever made the folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.errors import BadInputFile, RelkitError, UsageProblem
from relkit.files.input_file import read_input
from relkit.findings import Report
from relkit.flight_recorder.analyze import (
    DumpFile,
    NoDumps,
    find_sources,
    judged,
)
from relkit.flight_recorder.plain_data import BadFlightDump
from relkit.flight_recorder.source_findings import with_sources
from relkit.flight_recorder.stacks_and_logs import StacksAndLogs
from relkit.hang.attribute import attribute
from relkit.hang.model import HangVerdict, JobView, RankView
from relkit.hang.report import hang_report
from relkit.hang.stored_report import (
    MAX_WORLD,
    BadReport,
    recorders_of,
    report_of,
    unknown_faults,
    verdict_of,
    views_of,
)
from relkit.hang_picture.actions import MAX_ACTIONS, Action, read_actions
from relkit.hang_picture.gone_ranks import gone_ranks
from relkit.hang_picture.model import HangPicture
from relkit.hang_picture.picture import hang_picture
from relkit.hang_picture.runbook import HangFiles
from relkit.hook.model import HookState
from relkit.hook.stored_state import stored_state
from relkit.stacks.folder import choose, list_dumps, node_folders, read_each
from relkit.stacks.merge import Merged, merge_dumps
from relkit.stacks.model import RankDump
from relkit.text.foreign_json import parse_json
from relkit.text.printable import printable_line

REPORT_LIMIT_BYTES = 64 << 20
MAX_NOTES = 20
_MAX_DUMPS = MAX_WORLD

ReadProgress = Callable[[int, int], None]
# The report of a node, the recorders in it by rank, and what could not be read of them.
NodeReport = tuple[Report, dict[int, HookState], list[str]]


@dataclass(frozen=True, slots=True)
class HangEvidence:
    """All that a folder says of a hang.

    Args:
        report: the verdict, as the monitor reached it, or as it was reached anew.
        picture: what the page shows beside it.
        merged: the stacks of all ranks; None where there are none.
    """

    report: Report
    picture: HangPicture
    merged: Merged | None


def read_hang(
    folder: Path, *, progress: ReadProgress | None = None, has_stacks: bool = False
) -> HangEvidence:
    """Read what `relkit launch` left of a hang, or the dumps of PyTorch's flight recorder.

    Args:
        folder: the timeline folder, or that of the dumps.
        progress: called with how many files have been read, and how many there are.
        has_stacks: the merged stacks are there, or will be soon.

    Raises:
        UsageProblem: there is no such folder, or it holds neither.
        BadInputFile: what it holds is of another kind, or cannot be used.
    """
    _require_folder(folder)
    report, recorders, unread, why_not = _stored(folder)
    names = _dump_names(folder)
    damaged: list[str] = []
    nodes = {} if report is not None else _node_reports(folder, damaged)
    if report is None and not nodes:
        files, beside = _flight_sources(folder)
        if not names or files:
            return _from_flight_recorder(folder, why_not, files, beside, progress)
    dumps, refused = _read_dumps(folder, names, report or _newest(nodes), progress)
    notes = [*damaged, *(f"{name}: {reason}" for name, reason in refused)]
    if why_not:
        notes.insert(0, f"report.json: {why_not}; the ranks were judged again by their stacks")
    if report is None:
        return _judged_again(folder, dumps, notes, nodes)
    facts = report.facts
    notes += [*unread, *unknown_faults(report)]
    captured = _with_recorders(dumps, recorders, notes)
    job = JobView(
        job_id=str(facts["job_id"]),
        world_size=int(facts["world_size"]),
        ranks=_views(int(facts["world_size"]), views_of(report), captured),
        hang_timeout_s=float(facts["hang_timeout_s"]),
        trigger=str(facts["trigger"]),
    )
    there = HangFiles(str(folder), True, bool(dumps), has_stacks or _has_merged_stacks(folder))
    return _evidence(folder, report, job, verdict_of(report), dumps, notes, there)


def _require_folder(folder: Path) -> None:
    try:
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise UsageProblem(f"{folder} {what}", next_step=_WHICH_FOLDER)
        next(folder.iterdir(), None)
    except OSError as error:
        raise BadInputFile(
            f"{folder} cannot be read: {error.strerror}",
            next_step="Run it as the user of the job, or on a copy of the folder.",
        ) from error


_WHICH_FOLDER = (
    "Name the folder that `relkit launch` printed when the job hung (--timeline-path), or one with "
    "dumps of PyTorch's flight recorder."
)


def _stored(folder: Path) -> tuple[Report | None, dict[int, HookState], list[str], str]:
    """What is in report.json.

    Returns:
        The report, the recorders in it, and those that cannot be read; and why there is no report
        ("": no such file).
    """
    try:
        plain = parse_json(read_input(folder / "report.json", REPORT_LIMIT_BYTES))
        return report_of(plain), *recorders_of(plain), ""
    except FileNotFoundError:
        why_not = ""
    except OSError as error:
        why_not = f"it cannot be read: {error.strerror}"
    except BadReport as error:
        why_not = str(error)
    except ValueError as error:
        why_not = f"it is damaged: {printable_line(str(error))[:200]}"
    return None, {}, [], why_not


def _dump_names(folder: Path) -> list[str]:
    try:
        names = list_dumps(folder)
    except RelkitError:
        # None there, or not to be listed: the caller says what the folder lacks.
        return []
    if len(names) > _MAX_DUMPS:
        raise BadInputFile(
            f"{folder} holds {len(names):,} .stacktrace files",
            next_step="Name a folder with the files of one job.",
        )
    return names


def _read_dumps(
    folder: Path, names: Sequence[str], report: Report | None, progress: ReadProgress | None
) -> tuple[list[RankDump], Sequence[tuple[str, str]]]:
    """The dumps of the report's job, or of the job captured last; and the files left out."""
    dumps: dict[str, RankDump] = {}
    heads = read_each(folder, names, dumps.__setitem__, progress)
    if report is not None and not dumps:
        return [], [(head.name, head.error) for head in heads]
    job_id = None if report is None else str(report.facts["job_id"])
    try:
        choice = choose(heads, job_id, folder)
    except RelkitError as error:
        if report is None:
            raise BadInputFile(str(error), next_step=_WHICH_FOLDER) from error
        return [], [("the .stacktrace files", str(error))]
    if choice.world_size > MAX_WORLD:
        raise BadInputFile(
            f"the files in {folder} are of a job of {choice.world_size:,} ranks",
            next_step=f"A page shows at most {MAX_WORLD:,}.",
        )
    return [dumps[name] for name in choice.names], choice.refused


def _with_recorders(
    dumps: Sequence[RankDump], kept: dict[int, HookState], notes: list[str]
) -> dict[int, tuple[RankDump | None, HookState | None]]:
    """By rank, its stacks and its recorder."""
    both: dict[int, tuple[RankDump | None, HookState | None]] = {
        rank: (None, state) for rank, state in kept.items()
    }
    for dump in dumps:
        state = kept.get(dump.rank)
        if dump.hook_json:
            try:
                state = stored_state(dump.hook_json)
            except ValueError as error:
                notes.append(f"rank {dump.rank}: its recorder cannot be read: {error}")
        # Its text would only take room from here on.
        both[dump.rank] = replace(dump, hook_json=""), state
    return both


def _views(
    world_size: int,
    rows: Mapping[int, RankView],
    captured: Mapping[int, tuple[RankDump | None, HookState | None]],
) -> tuple[RankView, ...]:
    """Each rank as it was looked at, as far as the folder still shows that.

    Args:
        world_size: ranks of the job.
        rows: what a report says of ranks; captured: the stacks and recorders of ranks.
    """
    views = []
    for rank in range(world_size):
        dump, state = captured.get(rank, (None, None))
        view = rows.get(rank) or (_unknown(rank) if dump is None else _from_dump(dump))
        views.append(replace(view, dump=dump, hook=state))
    return tuple(views)


def _unknown(rank: int) -> RankView:
    return RankView(rank, "", 0, alive=False, absent_reason="no file of it in the folder")


def _from_dump(dump: RankDump) -> RankView:
    return RankView(
        rank=dump.rank,
        host=dump.host,
        pid=dump.pid,
        alive=not dump.has_ended,
        process_state="" if dump.has_ended else dump.process_state[:1],
    )


def _judged_again(
    folder: Path,
    dumps: Sequence[RankDump],
    notes: list[str],
    nodes: Mapping[Path, NodeReport],
) -> HangEvidence:
    """The verdict from stacks and recorders, and from what each node said of its own ranks.

    report.json is on another host, or gone; or each node of the job has one (`relkit run`).
    """
    newest = _newest(nodes)
    job_id = str(newest.facts["job_id"]) if newest else dumps[0].job_id
    rows: dict[int, RankView] = {}
    kept: dict[int, HookState] = {}
    world_size = max((dump.world_size or dump.rank + 1 for dump in dumps), default=0)
    for path, (report, recorders, unread) in nodes.items():
        if report.facts["job_id"] != job_id:
            notes.append(f"{path.name}/report.json: of job {report.facts['job_id']}")
            continue
        world_size = max(world_size, int(report.facts["world_size"]))
        views = views_of(report)
        rows |= {rank: view for rank, view in views.items() if not view.absent_reason}
        kept |= recorders
        notes += [f"{path.name}/{text}" for text in unread]
    views_now = _views(world_size, rows, _with_recorders(dumps, kept, notes))
    timeout_s = 0.0 if newest is None else float(newest.facts["hang_timeout_s"])
    trigger = "" if newest is None else str(newest.facts["trigger"])
    job = JobView(job_id, world_size, views_now, timeout_s, trigger, is_from_files=True)
    verdict = attribute(job)
    captured_s = max((dump.captured_unix_ns for dump in dumps), default=0) / 1e9
    report = hang_report(
        job,
        verdict,
        argv=() if newest is None else newest.argv,
        started=captured_s or (newest.started if newest else 0.0),
    )
    return _evidence(folder, report, job, verdict, dumps, notes)


def _node_reports(folder: Path, damaged: list[str]) -> dict[Path, NodeReport]:
    """The reports of nodes that each have a folder of their own.

    A node's report says most of the ranks that died there: they left no stacks.

    Args:
        folder: of all nodes.
        damaged: gets a sentence for each report that is left out.
    """
    reports: dict[Path, NodeReport] = {}
    for node in node_folders(folder):
        report, recorders, unread, why_not = _stored(node)
        if report is not None:
            reports[node] = report, recorders, unread
        elif why_not:
            damaged.append(f"{node.name}/report.json: {why_not}")
    return reports


def _newest(nodes: Mapping[Path, NodeReport]) -> Report | None:
    """The report that was written last."""
    reports = [report for report, _, _ in nodes.values()]
    return max(reports, key=lambda report: report.started, default=None)


def _evidence(
    folder: Path,
    report: Report,
    job: JobView,
    verdict: HangVerdict,
    dumps: Sequence[RankDump],
    notes: Sequence[str],
    files: HangFiles | None = None,
) -> HangEvidence:
    merged = merge_dumps(dumps, job.world_size) if dumps else None
    shown = [printable_line(note)[:400] for note in notes[:MAX_NOTES]]
    if len(notes) > len(shown):
        shown.append(f"and {len(notes) - len(shown):,} more files that could not be used")
    actions = _actions(folder)
    picture = hang_picture(
        job,
        verdict,
        merged.classes if merged else (),
        files=files or HangFiles(str(folder), False, bool(dumps), _has_merged_stacks(folder)),
        gone=gone_ranks(report, job.ranks, actions),
        actions=actions,
        notes=shown,
    )
    return HangEvidence(report, picture, merged)


def _actions(folder: Path) -> tuple[Action, ...]:
    """What the launchers did that have noted it here; each node may have a folder of its own."""
    try:
        folders = [folder, *node_folders(folder)]
    except OSError:
        folders = [folder]
    actions = (action for each in folders for action in read_actions(each))
    return tuple(sorted(actions, key=lambda action: action.unix_s)[:MAX_ACTIONS])


def _has_merged_stacks(folder: Path) -> bool:
    try:
        return (folder / "py_stack").is_file()
    except OSError:
        return False


def _flight_sources(folder: Path) -> tuple[list[DumpFile], StacksAndLogs]:
    try:
        return find_sources([folder])
    except NoDumps:
        return [], StacksAndLogs()


def _from_flight_recorder(
    folder: Path,
    why_not: str,
    files: Sequence[DumpFile],
    beside: StacksAndLogs,
    progress: ReadProgress | None,
) -> HangEvidence:
    if not files and not beside:
        if why_not:
            raise BadInputFile(f"{folder / 'report.json'}: {why_not}", next_step=_WHICH_FOLDER)
        raise UsageProblem(
            f"{folder} holds neither what a hang leaves nor dumps of PyTorch's flight recorder",
            next_step=_WHICH_FOLDER,
        )
    try:
        joined, verdict = judged(files, beside, progress=progress)
    except BadFlightDump as error:
        raise BadInputFile(str(error), next_step=error.next_step) from error
    # Dumps do not say when they were written; this is the newest time in any of them, Unix time.
    newest_s = max((view.hook.now_ns for view in joined.job.ranks if view.hook), default=0) / 1e9
    report = with_sources(hang_report(joined.job, verdict, started=newest_s), joined)
    dumps = [view.dump for view in joined.job.ranks if view.dump is not None]
    return _evidence(folder, report, joined.job, verdict, dumps, joined.left_out)
