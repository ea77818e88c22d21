"""What `relkit stacks merge` found, as a Report: who is absent, who stands apart, what was left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.ranks import LISTED, RankSet
from relkit.stacks.folded import safe_name
from relkit.stacks.merge import Merged, PathClass
from relkit.stacks.model import Frame

MAX_CLASSES = 10
_MAX_REASONS = 20
_SHOWN_FRAMES = 4
_PYTHON_SOURCE = re.compile(r"\.pyx?:\d+$|^<.*>:\d+$")


# Texts of a file are shown with safe_name(): a hostile one must not steer the terminal.


def _where_all_are(ranks: RankSet) -> str:
    """What the advice adds where the title leaves ranks out."""
    return " `--json` lists all of these ranks." if ranks.interval_count > LISTED else ""


def _where(frames: tuple[Frame, ...]) -> str:
    """The innermost Python frame, which people know, and the innermost native one, if any."""
    if not frames:
        return "no known function"
    python = next((frame for frame in frames if _PYTHON_SOURCE.search(frame.source)), None)
    if python is None:
        return safe_name(f"{frames[0].func} ({frames[0].source})")
    native = f", there in {frames[0].func}" if frames[0] is not python else ""
    return safe_name(f"{python.func} ({python.source}){native}")


def _path(frames: tuple[Frame, ...]) -> str:
    """The innermost Python functions; of a thread without Python frames the native ones."""
    python = [frame for frame in frames if _PYTHON_SOURCE.search(frame.source)]
    chosen = python or list(frames)
    text = " <- ".join(frame.func for frame in chosen[:_SHOWN_FRAMES])
    return safe_name(f"{text} <- ..." if len(chosen) > _SHOWN_FRAMES else text)


def _absent(merged: Merged) -> Iterator[Finding]:
    absent = merged.mixed.absent
    if not absent:
        return
    yield Finding(
        id="RK-STK-010",
        status=Status.UNKNOWN,
        title=f"{len(absent)} of {merged.world_size} ranks have no usable dump: "
        f"{absent.in_words()}",
        ranks=absent.fold(),
        reasons=("an absent rank is not innocent: the one that hangs first often cannot report",),
        evidence=(Evidence("ranks read", len(merged.present), threshold=merged.world_size),),
        advice="Look at these ranks' hosts and logs; `relkit stacks dump` captures them there."
        + _where_all_are(absent),
    )


def _outliers(merged: Merged) -> Iterator[Finding]:
    if len(merged.classes) < 2:
        return
    usual, *others = merged.classes
    others.sort(key=lambda outlier: len(outlier.ranks))
    for outlier in others[:MAX_CLASSES]:
        yield _outlier(outlier, usual, merged)
    if len(others) > MAX_CLASSES:
        yield Finding(
            id="RK-STK-012",
            status=Status.WARN,
            title=f"{len(others) - MAX_CLASSES} more groups of main threads stand apart",
            advice="mixed_stack.svg shows them all.",
        )


def _outlier(outlier: PathClass, usual: PathClass, merged: Merged) -> Finding:
    return Finding(
        id="RK-STK-012",
        status=Status.WARN,
        title=f"{outlier.ranks.in_words()}: main thread in {_where(outlier.frames)}",
        ranks=outlier.ranks.fold(),
        reasons=(
            f"call path: {_path(outlier.frames)}",
            f"{len(usual.ranks)} of {len(merged.present)} ranks are in {_where(usual.frames)}",
        ),
        evidence=(Evidence("ranks on this path", len(outlier.ranks)),),
        advice="Type the rank into the rank lens of mixed_stack.svg to see all of its threads."
        + _where_all_are(outlier.ranks),
    )


def _refused(merged: Merged) -> Iterator[Finding]:
    if not merged.refused:
        return
    reasons = [safe_name(f"{name}: {reason}") for name, reason in merged.refused[:_MAX_REASONS]]
    if len(merged.refused) > _MAX_REASONS:
        reasons.append(f"and {len(merged.refused) - _MAX_REASONS} more")
    count = len(merged.refused)
    yield Finding(
        id="RK-STK-011",
        status=Status.WARN,
        title=f"{count} file{'s were' if count > 1 else ' was'} left out",
        reasons=tuple(reasons),
        advice="Remove stale files, or choose their job with --job-id.",
    )


def _notes(merged: Merged) -> Iterator[Finding]:
    if merged.notes:
        yield Finding(
            id="RK-STK-013",
            status=Status.WARN,
            title="the capture could not read everything",
            reasons=tuple(safe_name(note) for note in merged.notes[:_MAX_REASONS]),
            advice="Run `relkit doctor` on these ranks' hosts.",
        )


def _merged(merged: Merged) -> Finding:
    job = f" of job {safe_name(merged.job_id)}" if merged.job_id else ""
    return Finding(
        id="RK-STK-014",
        status=Status.OK,
        title=f"{len(merged.present)} of {merged.world_size} ranks{job} merged",
        ranks=merged.present.fold(),
        evidence=(
            Evidence("paths of main threads", len(merged.classes)),
            Evidence(
                "frames in the mixed tree", sum(1 for r in merged.mixed.roots for _ in r.walk())
            ),
        ),
    )


def _class_json(path_class: PathClass) -> dict[str, Any]:
    return {
        "ranks": path_class.ranks.fold(),
        "count": len(path_class.ranks),
        "frames": [{"func": frame.func, "source": frame.source} for frame in path_class.frames],
    }


def merge_report(
    merged: Merged,
    files: Sequence[Path],
    *,
    argv: Sequence[str],
    started: float,
    duration_s: float,
) -> Report:
    """The report of one merge.

    Args:
        merged: what was merged; files: what was written of it.
        argv: the command line; started: Unix time, s; duration_s: how long it took.
    """
    findings = [
        *_absent(merged),
        *_outliers(merged),
        *_refused(merged),
        *_notes(merged),
        _merged(merged),
    ]
    facts = {
        "job_id": merged.job_id,
        "world_size": merged.world_size,
        "ranks": merged.present.fold(),
        "absent": merged.mixed.absent.fold(),
        "refused": [{"file": name, "reason": reason} for name, reason in merged.refused],
        "classes": [_class_json(path_class) for path_class in merged.classes],
        "files": [str(path) for path in files],
    }
    return Report("stacks", tuple(findings), facts, started, duration_s, tuple(argv))
