"""What `relkit straggler watch` shows: a table refreshed in place, lines, or JSON lines."""

from __future__ import annotations

import json
import math
import sys
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from relkit.output import table, use_colour
from relkit.reports.drawing.markup import middle_cut, shown
from relkit.straggler.present.metrics import breakdown, main_part
from relkit.straggler.present.report import straggler_report, what, who
from relkit.straggler.present.summary import MAX_RANKS, RankLine, Summary, plain_summary, summarise
from relkit.straggler.transport.history import History, RaisedVerdict
from relkit.text.printable import printable_json

_FULL, _EMPTY = "█", "░"
_BAR = 10
_FOLD_LIMIT = 48


class Sink(Protocol):
    """Where updates go."""

    def __enter__(self) -> Sink:
        """Begin."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and leave the terminal as it was."""
        ...

    def show(self, history: History) -> None:
        """One update."""
        ...


class _Plain:
    """A sink that needs no beginning and no end."""

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, history: History) -> None:
        """One update."""
        raise NotImplementedError


class JsonLines(_Plain):
    """One object an update, written at once: a program may wait for it."""

    def show(self, history: History) -> None:
        """One line."""
        line = json.dumps(plain_summary(history), ensure_ascii=False)
        sys.stdout.write(printable_json(line) + "\n")
        sys.stdout.flush()


class Lines(_Plain):
    """Plain lines: what was raised or dropped, and where the job stands.

    Args:
        whole: the table too, for one look.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._last = ""
        self._said: dict[tuple[str, int], RaisedVerdict] = {}

    def show(self, history: History) -> None:
        """Changes first, then one line; or the table."""
        summary = summarise(history)
        lines = []
        now = {_key(history, raised): raised for raised in history.verdicts}
        for key, raised in now.items():
            if key not in self._said:
                lines.append(f"SLOW  {sentence(history, raised)}")
                lines += [f"      because {why}" for why in raised.verdict.reasons]
        lines += [f"over  {key[0]}" for key in self._said if key not in now]
        self._said = now
        if lines or self._whole or head(summary) != self._last:
            self._last = head(summary)
            lines.append(self._last)
        if self._whole:
            lines += ["", _plain_table(summary)]
        if lines:
            sys.stdout.write("\n".join(map(shown_lines, lines)) + "\n")
        sys.stdout.flush()


class Screen:
    """A table in place."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, no_color=not use_colour(sys.stdout))
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Sink:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, history: History) -> None:
        """Draw it anew, with as many ranks as the window has room for."""
        room = self._console.size.height - 9 - 2 * len(history.verdicts)
        room -= len(history.links[:5]) + 3 if history.links else 0
        summary = summarise(history, max(3, min(MAX_RANKS, room)))
        self._live.update(picture(history, summary), refresh=True)


def picture(history: History, summary: Summary) -> Group:
    """The whole screen."""
    parts: list[Text | Table] = [Text(shown(head(summary, worst=False)), style="bold")]
    for raised in history.verdicts:
        parts += [Text(f"  {shown(sentence(history, raised))}", style="bold red")]
        parts += [
            Text(f"    because {shown(why)}", style="red") for why in raised.verdict.reasons[:1]
        ]
    if not history.verdicts:
        status = straggler_report(history).findings[0]
        parts.append(Text(f"  {shown(status.title)}", style="green"))
    parts += [Text(""), _rank_table(summary)]
    if summary.others:
        parts.append(Text(_others(summary), style="dim"))
    if summary.links:
        parts += [Text(""), _link_table(summary)]
    parts += [Text(f"  not seen: {shown(note)}", style="dim") for note in summary.notes[:3]]
    return Group(*parts)


def head(summary: Summary, *, worst: bool = True) -> str:
    """Where the job stands, in one line, with its worst rank or without."""
    if summary.step < 0:
        return f"job {summary.job_id}: no step yet"
    text = f"job {summary.job_id}, step {summary.step:,}: {summary.world_size:,} ranks"
    text += f" on {summary.hosts:,} host{'s' if summary.hosts != 1 else ''}"
    if math.isfinite(summary.step_s):
        text += f", {1e3 * summary.step_s:,.3g} ms a step"
    if worst and summary.ranks and math.isfinite(summary.ranks[0].score):
        slowest = summary.ranks[0]
        text += f"; worst rank {slowest.rank}, {percent(slowest.score)} over its peers, "
        text += f"evidence {100 * min(1.0, slowest.evidence):.0f} %"
    return text


def sentence(history: History, raised: RaisedVerdict) -> str:
    """Who does what since when, how sure that is, and what it cost so far."""
    verdict = raised.verdict
    part = main_part(breakdown(history, verdict.rank), verdict.cause)
    cost = f", cost {verdict.cost_s:,.3g} s" if verdict.cost_s > 0 else ""
    return (
        f"{who(history, raised)} {what(raised, part)} since step {verdict.first_step:,} "
        f"({verdict.cause}, {100 * verdict.confidence:.0f} % sure{cost})"
    )


def percent(share: float) -> str:
    """An slowdown with its sign."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %" if math.isfinite(share) else "?"


def shown_lines(text: str) -> str:
    """Safe for a terminal; line breaks of our own stay."""
    return "\n".join(shown(line) for line in text.split("\n"))


def _key(history: History, raised: RaisedVerdict) -> tuple[str, int]:
    return f"{who(history, raised)}, since step {raised.verdict.first_step:,}", raised.raised_step


def _cells(line: RankLine) -> list[str]:
    return [
        f"{line.rank}",
        shown(middle_cut(line.host, 24)),
        _ms(line.local_s),
        percent(line.score),
        _ms(line.late_s),
        _bar(line.evidence),
        line.state,
    ]


_HEADER = ("rank", "host", "local ms", "over peers", "late ms", "evidence", "")


def _others(summary: Summary) -> str:
    """Everybody without a row in one line; "" where everybody has one."""
    count = len(summary.others)
    if not count:
        return ""
    names = middle_cut(summary.others.fold(), _FOLD_LIMIT)
    which = f"the {count:,} other ranks" if count > 1 else "the other rank"
    return f"{which}: {percent(summary.others_score)} at most  ({names})"


def _rank_table(summary: Summary) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for i, name in enumerate(_HEADER):
        drawn.add_column(name, justify="right" if i in (2, 3, 4) else "left", no_wrap=True)
    for line in summary.ranks:
        accused = line.state not in ("", "suspect")
        style = "red" if accused else ("yellow" if line.state else "")
        drawn.add_row(*(Text(cell) for cell in _cells(line)), style=style)
    return drawn


def _link_table(summary: Summary) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for i, name in enumerate(("link", "times as long", "evidence")):
        drawn.add_column(name, justify="right" if i == 1 else "left", no_wrap=True)
    for row in summary.links:
        name = f"{shown(middle_cut(row.source, 24))} → {shown(middle_cut(row.target, 24))}"
        cells = (name, f"{row.ratio:,.2f}", _bar(row.evidence))
        drawn.add_row(*(Text(cell) for cell in cells), style="red" if row.evidence >= 1 else "")
    return drawn


def _plain_table(summary: Summary) -> str:
    text = table([_cells(line) for line in summary.ranks], [*_HEADER[:-1], "state"])
    if summary.others:
        text += f"\n{_others(summary)}"
    if summary.links:
        links = [
            [
                f"{shown(row.source)} → {shown(row.target)}",
                f"{row.ratio:,.2f}",
                _bar(row.evidence),
            ]
            for row in summary.links
        ]
        text += "\n\n" + table(links, ["link", "times as long", "evidence"])
    return text


def _ms(value_s: float) -> str:
    return f"{round(1e3 * value_s, 1) + 0.0:,.1f}" if math.isfinite(value_s) else "?"


def _bar(share: float) -> str:
    whole = round(_BAR * min(1.0, max(0.0, share)))
    return _FULL * whole + _EMPTY * (_BAR - whole)
