"""One row a rank for the report: where it is, how far it came, what it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relkit.hang.deaths import raised_at
from relkit.hang.finding_builder import cpu_share, idle_s
from relkit.hang.frames import printable
from relkit.hang.model import JobView, RankView
from relkit.hang.stackclass import classify
from relkit.hang.words import exit_words, operation
from relkit.hook.model import Op


def oldest_in_flight(view: RankView) -> tuple[Op, float] | None:
    """The operation that has been in flight longest and its age, s; communication first."""
    if view.hook is None or not view.hook.in_flight:
        return None
    communication = [op for op in view.hook.in_flight if op.communicates]
    op = min(communication or view.hook.in_flight, key=lambda op: op.start_ns)
    return op, max(0, view.hook.now_ns - op.start_ns) / 1e9


def rank_row(view: RankView) -> dict[str, Any]:
    """Plain JSON types; a value that is not known is null, and text that is not known is "".

    Keys: rank, host, pid, alive, state, activity, last_seq, in_flight, in_flight_s, idle_s,
    cpu_share, exit_code, note.
    """
    hook = view.hook
    flight = oldest_in_flight(view)
    share, idle = cpu_share(view), idle_s(view)
    activity = classify(view.dump, hook.in_flight if hook else None)
    return {
        "rank": view.rank,
        "host": view.host,
        "pid": view.pid or None,
        "alive": view.alive,
        "state": view.process_state[:1] if view.alive else "",
        "activity": activity.sentence() if view.alive and activity.known else "",
        "last_seq": max((c.seq for c in hook.communicators if c.seq >= 0), default=None)
        if hook
        else None,
        "in_flight": operation(flight[0], hook) if flight and hook else "",
        "in_flight_s": round(flight[1], 3) if flight else None,
        "idle_s": None if idle is None else round(idle, 3),
        "cpu_share": None if share is None else round(share, 3),
        "exit_code": view.exit_code,
        "note": _note(view),
    }


def _note(view: RankView) -> str:
    if view.absent_reason:
        return printable(view.absent_reason)
    if not view.alive:
        error = f": {printable(view.error)}" if view.error else ""
        place = f" at {printable(raised_at(view))}" if raised_at(view) else ""
        return exit_words(view.exit_code) + error + place
    notes = [] if view.hook else ["no recorder"]
    if view.dump is not None:
        notes += [printable(note) for note in view.dump.notes]
    return "; ".join(notes)


def rank_rows(job: JobView) -> list[dict[str, Any]]:
    """All ranks of the world in order; one of which nothing is known is marked absent."""
    views: Mapping[int, RankView] = {view.rank: view for view in job.ranks}
    absent = "no launcher has reported it"
    return [
        rank_row(views.get(rank) or RankView(rank, "", 0, alive=False, absent_reason=absent))
        for rank in range(job.world_size)
    ]
