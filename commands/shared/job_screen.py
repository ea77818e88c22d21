"""The screen of `relkit top`: all jobs in one table, and below it what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len
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
_GAP = 2
# Left out of a narrow terminal in this order; before them what has nothing to say of any job.
_LEAST = (
    "begun", "attempt", "nodes", "ettr", "restarts", "ranks", "eta", "saved", "rate", "slow",
    "step",
)  # fmt: skip
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
        self._live.update(screen_of(report, self._console.width), refresh=True)


def screen_of(report: Report, width: int) -> Group:
    """A report of status, as one screen.

    Args:
        width: of the terminal, characters.
    """
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
    cells = [[printable_line(cell) for cell in cells_of(row)[:_SHOWN]] for row in shown]
    columns = _fitting(cells, width)
    return Group(
        head,
        Text(),
        _table(shown, cells, columns),
        *_left_out(columns),
        *_findings(shown),
        *gpus,
        *_others(facts),
    )


def _fitting(cells: list[list[str]], width: int) -> list[int]:
    """The columns that a terminal of that width has room for, each cell in one line."""
    columns = zip(HEADER[:_SHOWN], *cells, strict=True)
    widths = [max(cell_len(text) for text in column) + _GAP for column in columns]
    empty = [i for i in range(_SHOWN) if all(row[i] == "-" for row in cells)]
    kept = list(range(_SHOWN))
    for index in dict.fromkeys((*empty, *(HEADER.index(name) for name in _LEAST))):
        if sum(widths[i] for i in kept) - _GAP <= width:
            break
        kept.remove(index)
    return kept


def _left_out(columns: list[int]) -> Iterator[Text]:
    names = [name for i, name in enumerate(HEADER[:_SHOWN]) if i not in columns]
    if names:
        yield Text(f"no room for {', '.join(names)}: relkit status has all", style="dim")


def _table(rows: list[Mapping[str, Any]], cells: list[list[str]], columns: list[int]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for i in columns:
        made.add_column(HEADER[i].upper(), overflow="fold")
    slow = HEADER.index("slow")
    for row, texts in zip(rows, cells, strict=True):
        shown = [Text(text) for text in texts]
        shown[1].stylize(_STYLES.get(row["health"], ""))
        if row["slow"]:
            shown[slow].stylize("yellow")
        made.add_row(*(shown[i] for i in columns))
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
