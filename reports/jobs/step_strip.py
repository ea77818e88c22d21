"""The newest steps of a job as a strip: what each rank did with them, rank below rank, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relkit.reports.drawing.chart_scale import GUTTER, PLOT, WIDTH
from relkit.reports.drawing.markup import middle_cut, shown, xml
from relkit.reports.straggler.straggler_heat import by_host, spread
from relkit.straggler.history_types import History
from relkit.straggler.model import COMPUTE, GC, INPUT, UNATTRIBUTED, Subject

Doubles = NDArray[np.float64]

MAX_STEPS = 24
KINDS = ("input", "compute", "gc", "other", "wait")
"""What a step is made of, in the order in which it is drawn."""

NAMES = {
    "input": "waits for input",
    "compute": "computes",
    "gc": "collects garbage",
    "other": "other work of the host",
    "wait": "waits for others, communicates",
}
_BIG, _MAX_ROWS, _MAX_CLOSER = 32, 128, 6
_LINE = 14.0


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the strip.

    Args:
        rank: whose; label: beside it; top, height: px; title: for the pointer.
    """

    rank: int
    label: str
    top: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The steps that are drawn.

    Args:
        numbers: of them; begin_s, end_s: of each, from the begin of the first.
        shares: (KINDS, ranks, steps), s; NaN where nothing is known.
    """

    numbers: NDArray[np.int64]
    begin_s: Doubles
    end_s: Doubles
    shares: Doubles

    def x(self, at_s: Doubles) -> Doubles:
        """Where a time is, px."""
        places: Doubles = GUTTER + PLOT * np.clip(at_s / self.end_s[-1], 0.0, 1.0)
        return places


def render(history: History) -> str:
    """The picture, for a page that has job.css in its style; "" where no step has times.

    Args:
        history: the newest steps of all ranks.
    """
    steps = _newest(history)
    if steps is None:
        return ""
    rows, notes, bottom = _rows(history, steps)
    slow = ", ".join(f"rank {rank}" for rank in _accused(history)) or "no rank"
    height = bottom + 30
    return (
        f'<svg class="rk-strip" xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="what each rank did with the steps {steps.numbers[0]} to '
        f'{steps.numbers[-1]}; accused: {slow}">\n'
        + "\n".join((*_bars(rows, steps), *notes, *_axis(steps, rows, bottom), *_touches(rows)))
        + "\n</svg>\n"
    )


def _newest(history: History) -> _Steps | None:
    """The last steps whose ends are known, in a row."""
    ends = np.asarray(history.step_unix_s, np.float64)
    known = np.flatnonzero(np.isfinite(ends))[-MAX_STEPS - 1 :]
    if not len(known):
        return None
    local = np.asarray(history.local_s, np.float64)[:, known]
    longest = np.nanmax(np.where(np.isfinite(local), local, 0.0), axis=0)
    took = np.diff(ends[known], prepend=np.nan)
    # Of the first one only what the ranks themselves have taken is known, and so after a gap.
    follows = np.diff(known, prepend=known[0] - 2) == 1
    took = np.where(follows & (took > 0), np.maximum(took, 0.0), longest)
    known, took, local = known[-MAX_STEPS:], took[-MAX_STEPS:], local[:, -MAX_STEPS:]
    took = np.maximum(took, 1e-9)
    parts = np.asarray(history.parts, np.float64)[:, :, known]
    end_s = np.cumsum(took)
    return _Steps(known + history.first_step, end_s - took, end_s, _shares(parts, local, took))


def _shares(parts: Doubles, local: Doubles, took: Doubles) -> Doubles:
    """What each rank did for how long; together no longer than the step."""
    known = np.isfinite(local)

    def of(part: int) -> Doubles:
        seconds: Doubles = np.nan_to_num(np.maximum(parts[part], 0.0), nan=0.0, posinf=0.0)
        return seconds

    gc = of(GC)
    named = {"input": of(INPUT), "compute": of(COMPUTE), "gc": gc}
    rest = np.maximum(of(UNATTRIBUTED) - gc, 0.0)
    # Where parts are not known, the time that the rank has taken is.
    unnamed = np.where(known, local, 0.0) - sum(named.values()) - rest
    named["other"] = rest + np.maximum(unnamed, 0.0)
    whole = sum(named.values())
    scale = np.minimum(1.0, took / np.maximum(whole, 1e-12))
    named = {kind: seconds * scale for kind, seconds in named.items()}
    named["wait"] = np.maximum(took - sum(named.values()), 0.0)
    shares: Doubles = np.stack([named[kind] for kind in KINDS])
    shares[:, ~known] = np.nan
    return shares


def _accused(history: History) -> list[int]:
    ranks = (
        raised.verdict.rank for raised in history.verdicts if raised.verdict.subject is Subject.RANK
    )
    return [rank for rank in dict.fromkeys(ranks) if 0 <= rank < history.world_size]


def _rows(history: History, steps: _Steps) -> tuple[list[_Row], list[str], float]:
    """The lines, what is written beside them, and where they end."""
    order = by_host(history.hosts)
    accused = _accused(history)
    if len(order) <= _BIG:
        height = 20.0 if len(order) <= 16 else 14.0
        rows = [
            _row(history, steps, (rank,), 6 + i * height, height) for i, rank in enumerate(order)
        ]
        return rows, _labels(rows, accused), 6 + height * len(rows)
    rows = [
        _row(history, steps, (rank,), 6 + i * 20.0, 20.0)
        for i, rank in enumerate(accused[:_MAX_CLOSER])
    ]
    notes = _labels(rows, accused)
    top = 6 + 20.0 * len(rows) + 24.0
    share = math.ceil(len(order) / _MAX_ROWS)
    bins = [tuple(order[i : i + share]) for i in range(0, len(order), share)]
    height = float(max(2, 320 // len(bins)))
    all_rows = [_row(history, steps, b, top + i * height, height) for i, b in enumerate(bins)]
    text = f"all {history.world_size:,} ranks"
    text += f", {share} a row: the one that waited least shows" if share > 1 else ""
    notes.append(f'<text class="soft" x="{GUTTER:.0f}" y="{top - 8:.1f}">{text}</text>')
    notes += _hosts(history, all_rows)
    notes += _leaders(accused, bins, all_rows)
    return rows + all_rows, notes, top + height * len(bins)


def _row(history: History, steps: _Steps, ranks: Sequence[int], top: float, height: float) -> _Row:
    """The line of a rank, or of the one of several that waited least."""
    waited = np.nansum(steps.shares[KINDS.index("wait"), list(ranks)], axis=1)
    is_known = np.isfinite(steps.shares[0, list(ranks)]).any(axis=1)
    rank = ranks[int(np.argmin(np.where(is_known, waited, np.inf)))]
    spent = np.nansum(steps.shares[:, rank], axis=1)
    whole = max(float(spent.sum()), 1e-12)
    figures = ", ".join(
        f"{NAMES[kind]} {100 * part / whole:.0f} %"
        for kind, part in zip(KINDS, spent.tolist(), strict=True)
        if part >= 0.005 * whole
    )
    host = shown(history.hosts[rank])
    title = f"rank {rank}{f' on {host}' if host else ''}: {figures or 'nothing is known'}"
    label = f"{rank} · {middle_cut(host, 12)}" if host else f"rank {rank}"
    return _Row(rank, label, top, height, title)


def _bars(rows: Sequence[_Row], steps: _Steps) -> Iterator[str]:
    """One path for each kind: thousands of bars are then no thousands of elements."""
    shares = steps.shares[:, [row.rank for row in rows]]
    begins = steps.begin_s + np.cumsum(shares, axis=0) - shares
    left, right = steps.x(begins), steps.x(begins + shares)
    for number, kind in enumerate(KINDS):
        drawn = []
        for row, starts, ends in zip(
            rows, left[number].tolist(), right[number].tolist(), strict=True
        ):
            gap = 3.0 if row.height >= 12 else 0.0
            deep = row.height - gap
            drawn += [
                f"M{x:.1f} {row.top + gap / 2:.1f}h{to - x:.1f}v{deep:.1f}h{x - to:.1f}z"
                for x, to in zip(starts, ends, strict=True)
                if to - x >= 0.05
            ]
        if drawn:
            yield f'<path class="{kind}" d="{"".join(drawn)}"/>'


def _axis(steps: _Steps, rows: Sequence[_Row], bottom: float) -> Iterator[str]:
    """Where steps begin, and the numbers of as many as there is room for."""
    at = steps.x(steps.begin_s).tolist()
    panels: list[tuple[float, float]] = []
    for row in rows:
        top = panels.pop()[0] if panels and panels[-1][1] >= row.top else row.top
        panels.append((top, row.top + row.height))
    lines = "".join(f"M{x:.1f} {top:.1f}V{end:.1f}" for x in at for top, end in panels)
    yield f'<path class="step" d="{lines}"/>'
    last = -math.inf
    for number, x in zip(steps.numbers.tolist(), at, strict=True):
        if x - last >= 70 and x < GUTTER + PLOT - 20:
            yield f'<text class="soft" x="{x:.1f}" y="{bottom + 18:.1f}">{number:,}</text>'
            last = x
    whole_s = float(steps.end_s[-1])
    words = f"{whole_s:.3g} s" if whole_s < 1000 else f"{whole_s:,.0f} s"
    x = GUTTER + PLOT + 17
    yield f'<text x="{x:.0f}" y="{bottom + 18:.1f}">step ({words})</text>'


def _labels(rows: Sequence[_Row], accused: Sequence[int]) -> list[str]:
    return [
        f'<text class="right{" guilty" if row.rank in accused else ""}" x="{GUTTER - 8:.0f}" '
        f'y="{row.top + row.height / 2 + 4:.1f}">{xml(row.label)}</text>'
        for row in rows
    ]


def _hosts(history: History, rows: Sequence[_Row]) -> Iterator[str]:
    """Names of hosts at their first rows, as far as there is room."""
    last, name = -math.inf, ""
    for row in rows:
        host = shown(history.hosts[row.rank])
        if host and host != name and row.top - last >= 3 * _LINE:
            words = xml(middle_cut(host, 18))
            at = f'x="{GUTTER - 8:.0f}" y="{row.top + 10:.1f}"'
            yield f'<text class="right soft" {at}>{words}</text>'
            last = row.top
        name = host


def _leaders(
    accused: Sequence[int], bins: Sequence[Sequence[int]], rows: Sequence[_Row]
) -> Iterator[str]:
    """Names of the accused on the right of their rows."""
    place = {
        rank: row.top + row.height / 2
        for ranks, row in zip(bins, rows, strict=True)
        for rank in ranks
        if rank in accused
    }
    top, bottom = rows[0].top, rows[-1].top + rows[-1].height
    named = sorted(place, key=lambda rank: place[rank])[: int((bottom - top) // _LINE)]
    spots = spread([place[rank] for rank in named], top + 4, bottom - 4, _LINE)
    for rank, at in zip(named, spots, strict=True):
        x = GUTTER + PLOT
        yield (
            f'<path class="leader" d="M{x + 1:.0f} {place[rank]:.1f}L{x + 14:.0f} {at:.1f}"/>'
            f'<text class="guilty" x="{x + 17:.0f}" y="{at + 4:.1f}">rank {rank}</text>'
        )


def _touches(rows: Sequence[_Row]) -> Iterator[str]:
    for row in rows:
        yield (
            f'<rect class="touch" x="{GUTTER:.0f}" y="{row.top:.1f}" width="{PLOT:.0f}" '
            f'height="{row.height:.1f}"><title>{xml(row.title)}</title></rect>'
        )
