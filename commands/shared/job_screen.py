"""The screen of `relkit top`: all jobs in one table, and below it what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relkit.findings import Report
from relkit.live_job.gpus import Gpu, gpu_words
from relkit.live_job.report import HEADER, cells_of
from relkit.text.printable import printable_line

_STYLES = {
    "ok": "green", "succeeded": "green", "starting": "cyan", "suspect": "yellow",
    "restarting": "yellow", "hung": "bold red", "failed": "bold red", "ended": "red",
    "gone": "magenta", "unreadable": "magenta",
}  # fmt: skip
# The finding has a line of its own, below.
_SHOWN = len(HEADER) - 1
# Those that have ended are of less interest than those that run.
_MOST_ENDED = 8
_RUNS = ("running", "recovering")


class JobScreen:
    """A context: the terminal is left as it was.

    Args:
        console: where it is shown.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=True)

    def __enter__(self) -> JobScreen:
        self._live.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._live.stop()

    def show(self, report: Report) -> None:
        """Replace what is shown."""
        self._live.update(screen_of(report), refresh=True)


def screen_of(report: Report) -> Group:
    """A report of status, as one screen."""
    facts = report.facts
    rows = facts["jobs"] if "jobs" in facts else [facts["live"]]
    running = [row for row in rows if row["state"] in _RUNS]
    ended = [row for row in rows if row["state"] not in _RUNS]
    head = Text.assemble(
        ("relkit top", "bold"),
        f"  {time.strftime('%H:%M:%S', time.localtime(report.started))}  {len(running)} running,"
        f" {len(ended)} ended",
    )
    shown = [*running, *ended[:_MOST_ENDED]]
    gpus = [Text(gpu_words(Gpu(**gpu))) for gpu in facts["gpus"]]
    return Group(head, Text(), _table(shown), *_findings(shown), *gpus, *_others(facts))


def _table(rows: list[Mapping[str, Any]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in HEADER[:_SHOWN]:
        made.add_column(name.upper(), overflow="fold")
    for row in rows:
        cells = [Text(printable_line(cell)) for cell in cells_of(row)[:_SHOWN]]
        cells[1].stylize(_STYLES.get(row["health"], ""))
        if row["slow"]:
            cells[HEADER.index("slow")].stylize("yellow")
        made.add_row(*cells)
    return made


def _findings(rows: list[Mapping[str, Any]]) -> Iterator[Text]:
    for row in rows:
        if row["last_finding"]:
            yield Text()
            yield Text.assemble(
                (printable_line(row["job_id"]), "bold"), "  ", printable_line(row["last_finding"])
            )


def _others(facts: Mapping[str, Any]) -> Iterator[Text]:
    if others := facts.get("other_users"):
        users = ", ".join(map(str, others))
        yield Text()
        yield Text(f"jobs of other users are not looked at: user {users}", style="dim")
