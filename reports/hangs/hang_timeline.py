"""The last seconds of every rank as one SVG: a lane a rank, the hang itself to the right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang_picture.model import RankTimeline, TimelineOp
from relkit.reports.drawing.chart_scale import ticks
from relkit.reports.drawing.markup import end_cut, shown, xml

WIDTH = 1130
_LABELS, _TOP, _BOTTOM = 96, 34, 26
_BREAK = 26
_HANG_SHARE = 0.46
# With no more lanes than these, each has its words, and each operation a tooltip of its own.
MAX_SPOKEN, _MAX_TITLED = 40, 64
# Lanes that are drawn large above those of a large job.
MAX_CLOSER = 14
_CLOSER_HEIGHT, _CLOSER_GAP = 22, 16
# What is as close together, in pixels, is drawn as one.
_MIN_WIDTH = 0.6
_CHAR, _BOLD_CHAR = 6.5, 7.3


@dataclass(frozen=True, slots=True)
class Window:
    """The time that is drawn, in s before the look.

    Args:
        hang_s: since the newest operation of any rank ended; before_s: how much before that.
    """

    hang_s: float
    before_s: float

    @property
    def is_broken(self) -> bool:
        """The hang is so long that it needs a scale of its own."""
        return self.hang_s > self.before_s / 2

    def x(self, age_s: float) -> float:
        """Where a time is drawn."""
        room = WIDTH - _LABELS - 8
        age_s = min(max(age_s, 0.0), self.hang_s + self.before_s)
        if not self.is_broken:
            return _LABELS + room * (1 - age_s / (self.hang_s + self.before_s))
        past = (1 - _HANG_SHARE) * room - _BREAK
        if age_s >= self.hang_s:
            return _LABELS + past * (1 - (age_s - self.hang_s) / self.before_s)
        return _LABELS + past + _BREAK + _HANG_SHARE * room * (1 - age_s / self.hang_s)


def window_of(lanes: Sequence[RankTimeline]) -> Window | None:
    """What to draw: a little of the time in which the job still moved, and the hang.

    Returns:
        None where no lane has an operation.
    """
    ends = [
        min((op.ended_s for op in lane.ops if op.ended_s is not None), default=math.inf)
        for lane in lanes
    ]
    begins = [max(op.began_s for op in lane.ops) for lane in lanes if lane.ops]
    if not begins:
        return None
    hang_s = min(ends, default=math.inf)
    if math.isinf(hang_s):
        # Nothing ever ended: the hang is all there is.
        return Window(max(*begins, 0.001), 0.001)
    middle = sorted(begins)[len(begins) // 2]
    return Window(max(hang_s, 0.0), min(30.0, max(middle - hang_s, 0.02)))


def render(
    lanes: Sequence[RankTimeline], doing: Mapping[int, str], closer: Sequence[int] = ()
) -> str:
    """The drawing, to be put into a page; "" where no rank has an operation.

    Args:
        lanes: by rank.
        doing: by rank, what those at fault do; written into their lanes.
        closer: ranks that are drawn once more, large, above the thin lanes of a large job.
    """
    window = window_of(lanes)
    if window is None:
        return ""
    by_rank = {lane.rank: lane for lane in lanes}
    large = [by_rank[rank] for rank in closer if rank in by_rank][:MAX_CLOSER]
    blocks = [(lanes, _lane_height(len(lanes)))]
    if len(lanes) > MAX_SPOKEN and large:
        blocks.insert(0, (large, _CLOSER_HEIGHT))
    body, top = "", float(_TOP)
    for block, height in blocks:
        body += _block(block, top, height, window, doing)
        top += height * len(block) + _CLOSER_GAP
    bottom = top - _CLOSER_GAP
    total = bottom + _BOTTOM
    return (
        f'<svg class="rk-lanes" role="img" width="{WIDTH}" height="{total:g}" '
        f'viewBox="0 0 {WIDTH} {total:g}">\n<title>The last seconds of every rank</title>\n'
        f"{_axis(window, bottom)}{body}</svg>\n"
    )


def _block(
    lanes: Sequence[RankTimeline],
    top: float,
    height: float,
    window: Window,
    doing: Mapping[int, str],
) -> str:
    """Lanes below one another, and their ranks."""
    drawn = [
        _lane(lane, top + height * number, height, window, len(lanes), doing)
        for number, lane in enumerate(lanes)
    ]
    return "".join([*drawn, *_labels(lanes, top, height)])


def _lane_height(count: int) -> float:
    for most, height in ((24, 24), (MAX_SPOKEN, 18), (_MAX_TITLED, 12), (160, 6), (420, 3)):
        if count <= most:
            return height
    return 2 if count <= 600 else 1


def _labels(lanes: Sequence[RankTimeline], top: float, height: float) -> Iterator[str]:
    """Every rank's number where there is room, else every so many; always of those at fault."""
    step = max(1, math.ceil(15 / height))
    step = 1 if step == 1 else 1 << (step - 1).bit_length()
    bad = [number for number, lane in enumerate(lanes) if lane.culprit]
    taken: list[int] = []
    for number in bad:
        if not taken or number - taken[-1] >= 15 / height:
            taken.append(number)
    for number in range(0, len(lanes), step):
        if all(abs(number - other) * height >= 14 for other in taken if other in bad):
            taken.append(number)
    for number in sorted(taken):
        look = "name guilty" if lanes[number].culprit else "name"
        y = top + height * (number + 0.5)
        yield (
            f'<text class="{look}" x="{_LABELS - 12}" y="{y:g}">rank {lanes[number].rank}</text>\n'
        )


def _lane(
    lane: RankTimeline,
    top: float,
    height: float,
    window: Window,
    count: int,
    doing: Mapping[int, str],
) -> str:
    inner = height - (5 if height >= 12 else 1 if height > 2 else 0)
    middle = round(top + height / 2, 2)
    parts = []
    if lane.culprit:
        room = WIDTH - _LABELS - 8
        parts.append(
            f'<rect class="guilty" x="{_LABELS}" y="{top:g}" width="{room}" height="{height:g}"/>'
        )
    for look, pieces in _pieces(lane.ops, window).items():
        if count <= _MAX_TITLED and sum(map(len, pieces)) <= 400:
            parts += [_titled(look, piece, middle, inner) for piece in pieces]
        else:
            path = "".join(f"M{a:g} {middle:g}H{b:g}" for a, b, _ in pieces)
            parts.append(f'<path class="{look}" style="stroke-width:{inner:g}" d="{path}"/>')
    if count <= MAX_SPOKEN:
        parts.append(_words(lane, middle, window, doing))
    return f"<g>{''.join(parts)}</g>\n"


Piece = tuple[float, float, str]


def _pieces(ops: Sequence[TimelineOp], window: Window) -> dict[str, list[Piece]]:
    """(from, to, words) by look; what is closer than _MIN_WIDTH pixels is one piece."""
    looks: dict[str, list[Piece]] = {}
    for op in ops:
        if op.ended_s is not None and op.ended_s > window.hang_s + window.before_s:
            continue
        look = op.kind if op.ended_s is not None else f"{op.kind} flying"
        start = round(window.x(op.began_s), 1)
        end = round(max(window.x(op.ended_s or 0.0), start + _MIN_WIDTH), 1)
        looks.setdefault("failed" if op.failed else look, []).append((start, end, _title(op)))
    return {look: _joined(sorted(pieces)) for look, pieces in sorted(looks.items())}


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for start, end, words in pieces:
        if joined and start - joined[-1][1] < _MIN_WIDTH:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], end), before[2])
        else:
            joined.append((start, end, words))
    return joined


def _title(op: TimelineOp) -> str:
    if op.ended_s is None:
        return f"{op.what}: in flight for {op.began_s:.3g} s"
    took_s = max(0.0, op.began_s - op.ended_s)
    return f"{op.what}: took {took_s:.3g} s, ended {op.ended_s:.4g} s before the look"


def _titled(look: str, piece: Piece, middle: float, inner: float) -> str:
    start, end, words = piece
    return (
        f'<rect class="{look}" x="{start:g}" y="{middle - inner / 2:g}" '
        f'width="{end - start:g}" height="{inner:g}" rx="1.5"><title>{xml(shown(words))}</title>'
        "</rect>"
    )


def _words(lane: RankTimeline, middle: float, window: Window, doing: Mapping[int, str]) -> str:
    """What the rank is in, written where the time of the hang is."""
    if not window.is_broken:
        return ""
    start = window.x(window.hang_s) + _BREAK
    text, look, width = doing.get(lane.rank, ""), "said guilty", _BOLD_CHAR
    flying = [op for op in lane.ops if op.ended_s is None and op.kind != "compute"]
    if not text and flying:
        text, look, width = flying[0].what, "said", _CHAR
        # Inside its bar, where that leaves enough room.
        start = min(max(start, window.x(flying[0].began_s)), WIDTH - 260)
    if not text:
        return ""
    columns = int((WIDTH - 24 - start) / width)
    words = xml(end_cut(shown(text), columns))
    return f'<text class="{look}" x="{start + 8:g}" y="{middle:g}">{words}</text>'


def _axis(window: Window, bottom: float) -> str:
    parts = []
    for age_s, text in _ticks(window):
        x = round(window.x(age_s), 1)
        parts.append(f'<path class="grid" d="M{x:g} {_TOP - 6}V{bottom + 4:g}"/>')
        look = "tick last" if x > WIDTH - 40 else "tick"
        parts.append(f'<text class="{look}" x="{x:g}" y="{bottom + 17:g}">{text}</text>')
    left = window.x(window.hang_s)
    right = WIDTH - 8
    if window.is_broken:
        start = left + _BREAK
        y = _TOP - 6
        parts.append(f'<rect class="hang" x="{start:g}" y="{y}" width="{right - start:g}" '
                     f'height="{bottom - y:g}"/>')  # fmt: skip
        parts.append(f'<path class="cut" d="M{left + 9:g} {bottom + 4:g}l4 -{bottom - y + 4:g}'
                     f'M{left + 15:g} {bottom + 4:g}l4 -{bottom - y + 4:g}"/>')  # fmt: skip
        parts.append(f'<text class="part" x="{_LABELS}" y="{_TOP - 16}">'
                     "while operations still finished</text>")  # fmt: skip
        parts.append(f'<text class="part strong" x="{start:g}" y="{_TOP - 16}">'
                     f"nothing finished since: {_seconds(window.hang_s)}</text>")  # fmt: skip
    else:
        parts.append(f'<text class="part" x="{_LABELS}" y="{_TOP - 16}">'
                     "the last seconds before the look</text>")  # fmt: skip
    return "".join(parts) + "\n"


def _ticks(window: Window) -> Iterator[tuple[float, str]]:
    """(age, label): times count from the end of the newest operation, or from the look."""
    if not window.is_broken:
        for age_s in ticks(0, window.hang_s + window.before_s, 6):
            yield age_s, f"-{_seconds(age_s)}" if age_s else "look"
        return
    for before_s in ticks(0, window.before_s, 6):
        yield window.hang_s + before_s, f"-{_seconds(before_s)}" if before_s else "0"
    for after_s in ticks(0, window.hang_s, 4)[1:]:
        yield window.hang_s - after_s, f"+{_seconds(after_s)}"


def _seconds(value_s: float) -> str:
    if value_s < 0.9995:
        return f"{1e3 * value_s:.3g} ms"
    return f"{value_s:,.3g} s" if value_s < 1000 else f"{value_s:,.0f} s"
