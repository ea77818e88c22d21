"""The history as a Report, as rows for the terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relkit.findings import Evidence, Finding, Report, Status
from relkit.history.counting import DAY_S, OFTEN_DAYS, OFTEN_TIMES, Named, count_named
from relkit.history.csv_cells import cell
from relkit.history.database import MAX_READ, mentions, read
from relkit.history.model import Event
from relkit.text.local_time import local_time

NODES_HEADER = ("node", "named", "alone", "last", "findings")
EVENTS_HEADER = ("time", "what", "job", "host", "nodes", "finding", "text")
CSV_HEADER = (
    "time", "unix_s", "what", "job", "run", "host", "nodes", "of_nodes", "ranks", "finding",
    "status", "step", "seconds", "text",
)  # fmt: skip
_ADVICE = (
    "That is evidence, and no verdict: see what it was named for (relkit history --node NAME),"
    " then measure it alone, or leave it out (-x)."
)


def history_report(
    folder: Path,
    since_s: float,
    *,
    node: str = "",
    job: str = "",
    argv: tuple[str, ...] = (),
    started: float | None = None,
) -> Report:
    """What the history of this host holds.

    Args:
        folder: of the history; since_s: Unix time.
        node, job: only what is about it; "" for all.

    Raises:
        NoHistory: it cannot be read.
    """
    started = time.time() if started is None else started
    events = read(folder, since_s, node=node, job=job)
    named = count_named(each for each in mentions(folder, since_s, started) if _is(each.node, node))
    if job:
        names = {name for event in events for name in event.nodes}
        named = tuple(each for each in named if each.node in names)
    findings = [_held(events, since_s, started)]
    findings += often_findings(folder, started, node)
    facts = {
        "folder": str(folder),
        "since_unix_s": round(since_s, 3),
        "nodes": [asdict(each) for each in named],
        "events": [{**asdict(event), "what": event.what.value} for event in events],
        "is_cut": len(events) >= MAX_READ,
    }
    return Report("history", tuple(findings), facts, started=started, argv=argv)


def often_findings(folder: Path, now_s: float, *nodes: str) -> list[Finding]:
    """One finding for the nodes that were named often of late; none where there are none.

    Args:
        now_s: Unix time; nodes: only these; without any, or with "", all.

    Raises:
        NoHistory: the history cannot be read.
    """
    wanted = {name for name in nodes if name}
    of_late = count_named(mentions(folder, now_s - OFTEN_DAYS * DAY_S, now_s))
    often = [each for each in of_late if each.is_often and (not wanted or each.node in wanted)]
    if not often:
        return []
    return [_often(often)]


def _often(often: Sequence[Named]) -> Finding:
    title = often[0].sentence
    if len(often) > 1:
        title = f"{len(often)} nodes were named {OFTEN_TIMES} times or more in {OFTEN_DAYS} days"
    return Finding(
        "RK-HIST-002",
        Status.WARN,
        title,
        nodes=",".join(each.node for each in often),
        reasons=tuple(each.sentence for each in often) if len(often) > 1 else (),
        evidence=tuple(
            Evidence(each.node, each.times, "times", OFTEN_TIMES, "history of this host")
            for each in often
        ),
        advice=_ADVICE,
    )


def _held(events: Sequence[Event], since_s: float, now_s: float) -> Finding:
    jobs = {event.job for event in events if event.job}
    days = max(0.0, now_s - since_s) / DAY_S
    count = f"{len(events):,} event{'' if len(events) == 1 else 's'}"
    return Finding(
        "RK-HIST-001",
        Status.OK,
        f"{count} of {len(jobs):,} job{'' if len(jobs) == 1 else 's'} in {days:.4g} days",
    )


def _is(name: str, wanted: str) -> bool:
    return not wanted or name == wanted


def node_rows(facts: Mapping[str, Any]) -> list[list[str]]:
    """The cells of `NODES_HEADER`."""
    return [
        [
            row["node"],
            str(row["times"]),
            str(row["alone"]),
            local_time(row["last_unix_s"]),
            ", ".join(f"{name}: {count}" for name, count in row["findings"].items()),
        ]
        for row in facts["nodes"]
    ]


def event_rows(facts: Mapping[str, Any], most: int) -> list[list[str]]:
    """The cells of `EVENTS_HEADER`; only the newest events."""
    return [
        [
            local_time(row["at_unix_s"]),
            row["what"],
            row["job"] or "-",
            row["host"] or "-",
            ",".join(row["nodes"]) or "-",
            row["finding"] or row["status"] or "-",
            row["text"],
        ]
        for row in facts["events"][-most:]
    ]


def as_csv(facts: Mapping[str, Any]) -> str:
    """All events, one a row, as CSV for spreadsheets and pandas."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    writer.writerows(_csv_rows(facts["events"]))
    return made.getvalue()


def _csv_rows(events: Sequence[Mapping[str, Any]]) -> Iterator[list[object]]:
    for row in events:
        cells: list[object] = []
        for name in CSV_HEADER:
            if name == "time":
                cells.append(local_time(row["at_unix_s"]))
            elif name == "unix_s":
                cells.append(round(row["at_unix_s"], 3))
            elif name == "nodes":
                cells.append(cell(" ".join(row["nodes"])))
            else:
                value = row[name]
                cells.append(cell(value) if isinstance(value, str) else value)
        yield cells
