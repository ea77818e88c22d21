"""The lines of a log that may tell of a failure, out of gigabytes of others, fast.

A log is looked at in pieces of some MB and never line by line: one pattern, whose branches begin
with letters that are rare in logs, and two searches say where a look is worth it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relkit.flight_recorder.tracebacks import SIGN

# In lower case, what follows each first letter: abort, by peer, cancel, unreachable, such file,
# NCCL WARN, fail, found, of memory, finite, signal, segfault, kill, link down, recent call,
# time-out, limit, terminate, module named, segmentation, dumped, mismatch, preempt, permission,
# space left, quota, evict, was low on, exceed, Xid, exit, exception; and what shells say of crashes
# in other languages.
_BRANCHES = {
    "b": ("ort", "y peer", "ad_alloc"),
    "c": ("ancel", "hable", "h file", "l warn"),
    "f": ("ail", " memory", "ound", "allen off", "inite"),
    "g": ("nal ", "fault", "mentation", "mento", "etötet"),
    "j": ("ob_timedout",),
    "k": ("ill", " (most", "en pipe", " down", " is down"),
    "m": (
        "eout",
        "ed out",
        "es out",
        "e limit",
        "inat",
        "odule named",
        "entation fa",
        "ped)",
        "ped core",
        "hub0] page",
        "hub] page",
        "ismatch",
    ),
    "o": ("om-kill", "om_kill"),
    "p": ("reempt", "ermission d", "ace left", "u is lost"),
    "q": ("uota",),
    "v": ("ict",),
    "w": ("as low on",),
    "x": ("id", "it", "cept", "ceed", "hub0] page", "hub] page"),
    "z": ("ugriffsfehler",),
    "段": ("错误",),
    "已": ("杀死",),
    "強": ("制終了",),
    "違": ("反",),
}
_ANY = re.compile(
    "|".join(
        f"{first}(?:{'|'.join(map(re.escape, rest))})" for first, rest in _BRANCHES.items()
    ).encode()
)
# Their first letters are common: a search for the whole is faster.
_WORDS = (b"rror", b"nan", b"return code")
# A line, or a piece between two carriage returns, is cut there.
MAX_LINE_BYTES = 1 << 16
# A line that goes on for longer is looked at in parts.
_MAX_CARRIED_BYTES = 1 << 20
_LINE_HEAD_BYTES = 512
_SHAPE_BYTES = 8192
_TRACEBACK = SIGN.encode()
_MAX_FOLLOWING_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, or what stands between two carriage returns of it.

    Args:
        text: without its end; number: of the line in the file, from 1.
        offset: of its beginning, bytes.
        head: of the whole line where this is a later part of it, for its prefixes; else "".
    """

    text: str
    number: int
    offset: int
    head: str = ""


class _Hits:
    """The next place in a piece that is worth a look, without looking at any place twice."""

    def __init__(self, lower: bytes) -> None:
        self._lower = lower
        self._next = [-1] * (len(_WORDS) + 1)

    def after(self, place: int) -> int:
        """The first one from there on; the length of the piece where there is none."""
        for i, known in enumerate(self._next):
            if known < place:
                self._next[i] = self._search(i, place)
        return min(self._next)

    def _search(self, i: int, place: int) -> int:
        if i < len(_WORDS):
            at = self._lower.find(_WORDS[i], place)
        else:
            match = _ANY.search(self._lower, place)
            at = -1 if match is None else match.start()
        return len(self._lower) if at < 0 else at


class Scanner:
    """Goes over a log once.

    Args:
        pieces: of it, of any size.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        # Set by whoever reads: the lines that come next are wanted, whatever they hold.
        self.wants_all = False
        # Lines that have said nothing before, without digits: the same with other numbers is not
        # given again.
        self.known: set[bytes] = set()
        self._lines = 0
        self.progress: list[Progress] = []
        # Set where there are too many tracebacks: of all that come the last is kept.
        self.keeps_last_traceback = False
        self.last_traceback: tuple[int, int, bytes] | None = None
        self._data, self._at = b"", 0
        # The last progress before a line, and up to where it was searched.
        self._near, self._searched = _NOWHERE, -1

    def __iter__(self) -> Iterator[Line]:
        carried = b""
        offset = 0
        for piece in self._pieces:
            data = carried + piece
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if end == 0:
                end = len(data) if len(data) > _MAX_CARRIED_BYTES else 0
            whole, carried = data[:end], data[end:]
            yield from self._of_piece(whole, offset)
            offset += len(whole)
        yield from self._of_piece(carried, offset)

    def _of_piece(self, data: bytes, offset: int) -> Iterator[Line]:
        if not data:
            return
        self._data, self._at = data, offset
        hits = _Hits(data.lower())
        place, counted = 0, 0
        number = self._lines + 1
        while place < len(data):
            if not self.wants_all:
                hit = hits.after(place)
                if hit >= len(data):
                    break
                place = max(data.rfind(b"\n", place, hit), data.rfind(b"\r", place, hit), place - 1)
                place += 1
            end = _end_of_line(data, place)
            if place < end and (self.wants_all or shape_of(data[place:end]) not in self.known):
                number += data.count(b"\n", counted, place)
                counted = place
                yield Line(
                    data[place : min(end, place + MAX_LINE_BYTES)].decode("utf-8", "replace"),
                    number,
                    offset + place,
                    _head_of(data, place),
                )
            place = end + 1
        self._note_progress(data, offset)
        if self.keeps_last_traceback:
            self._note_last_traceback(data, offset)
        self._lines += data.count(b"\n")

    def step_before(self, offset: int) -> int:
        """The step that the log had come to before a line just read; -1 where none is near.

        Args:
            offset: of that line, bytes.
        """
        end = max(0, offset - self._at)
        begin = max(0, end - _LAST_BYTES)
        # Many ranks fail at once: what was searched for the line before is not searched again.
        start = max(begin, self._searched - self._at)
        start = start if start <= end else begin
        steps = progress_in(self._data[start:end])
        if steps:
            self._near = Progress(self._at + start + steps[-1].offset, steps[-1].step)
        elif start == begin or self._near.offset < self._at + begin:
            self._near = _NOWHERE
        self._searched = offset
        return self._near.step

    def _note_last_traceback(self, data: bytes, offset: int) -> None:
        """Number and offset of the line that the last traceback begins with, and some KB of it."""
        place = data.rfind(_TRACEBACK)
        if place >= 0:
            begin = data.rfind(b"\n", 0, place) + 1
            number = self._lines + 1 + data.count(b"\n", 0, begin)
            self.last_traceback = (
                number,
                offset + begin,
                data[begin : begin + _MAX_FOLLOWING_BYTES],
            )

    def _note_progress(self, data: bytes, offset: int) -> None:
        new = [Progress(offset + each.offset, each.step) for each in progress_in(data)]
        self.progress = [*self.progress, *new][-_LAST_PROGRESS:]


def shape_of(line: bytes) -> bytes:
    """A line without its numbers, also those of base 16.

    Args:
        line: of it the end counts, where errors stand behind a progress bar.
    """
    return line[-_SHAPE_BYTES:].translate(None, b"0123456789abcdefABCDEF")


def _end_of_line(data: bytes, place: int) -> int:
    line = data.find(b"\n", place)
    line = len(data) if line < 0 else line
    returned = data.find(b"\r", place, line)
    return line if returned < 0 else returned


def _head_of(data: bytes, place: int) -> str:
    """The beginning of the line that holds this part of it; "" for a part that is the first."""
    if place == 0 or data[place - 1] != 0x0D:
        return ""
    begin = data.rfind(b"\n", max(0, place - MAX_LINE_BYTES), place) + 1
    return data[begin : begin + _LINE_HEAD_BYTES].split(b"\r")[0].decode("utf-8", "replace")


# So many lines of progress behind a failure show that the job has outlived it: a rank may write
# one or two more while another one fails.
_LAST_PROGRESS = 4
_LAST_BYTES = 1 << 13
_PROGRESS = re.compile(
    rb"\b(?:step|iter(?:ation)?|it|epoch|batch|global_step|train(?:ing)?)s?\b"
    rb"[\]'\": =#]{0,6}\s{0,8}(\d{1,12})|\b(\d{1,12})/\d{1,12} \[|"
    rb"\d(?:\.\d+)? ?(?:it/s|s/it|tokens/s|samples/s)|\bloss\b[^\w\n]{1,8}\d",
    re.IGNORECASE,
)
_NO_PROGRESS = re.compile(
    rb"\bnan\b|\binf\b|error|exception|resum|restor|load|watchdog|abort", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Progress:
    """A line that tells how far a training has come.

    Args:
        offset: of it, bytes; step: the last number that counts something in it, -1 for none.
    """

    offset: int
    step: int


_NOWHERE = Progress(-1, -1)


def progress_in(data: bytes) -> list[Progress]:
    """The last lines of a piece that tell of steps, at most four.

    Args:
        data: a piece; only its end is looked at.
    """
    place = start = max(0, len(data) - _LAST_BYTES)
    told: list[Progress] = []
    for part in re.split(rb"[\r\n]", data[start:]):
        if _PROGRESS.search(part) is not None and _NO_PROGRESS.search(part) is None:
            numbers = [int(m[1] or m[2]) for m in _PROGRESS.finditer(part) if m[1] or m[2]]
            told.append(Progress(place, numbers[-1] if numbers else -1))
        place += len(part) + 1
    return told[-_LAST_PROGRESS:]


def is_outlived(offset: int, step: int, progress: list[Progress]) -> bool:
    """Whether a training has gone on for some steps after a line.

    Args:
        offset: of the line, bytes; step: that the log had come to before it, -1 where not known.
        progress: the last in the log.
    """
    after = [each for each in progress if each.offset > offset]
    # Logs that were joined one behind the other begin anew, and tell nothing of what comes later.
    return len(after) == _LAST_PROGRESS and all(each.step > step or step < 0 for each in after)
