"""One log -> what it tells of failures, in one pass and with little memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from relkit.flight_recorder.tracebacks import (
    Raised,
    Traceback,
    begins_traceback,
    new_traceback,
)
from relkit.flight_recorder.watchdog_log import SIGNS
from relkit.text.printable import printable_line
from relkit.why.candidates import Line, Scanner, is_outlived, shape_of
from relkit.why.clocks import clock_of
from relkit.why.launcher_text import TABLE_LINES, LauncherText, begins_table
from relkit.why.model import Clock, LogFacts, Sighting, Speaker
from relkit.why.nccl_ranks import NcclRanks
from relkit.why.rules.exceptions import GENERIC, cause_of_exception
from relkit.why.rules.line_rules import is_by_number, rule_of
from relkit.why.rules.manner import (
    CONDITION,
    HARMLESS,
    LEVEL,
    NOT_THE_END,
    OF_A_SHELL,
    OFTEN_MENTIONED,
    OUTRIGHT,
)
from relkit.why.rules.told import Kind
from relkit.why.speakers import Prefixes, host_of_system_log, without_prefixes

_MAX_SIGHTINGS = 20_000
_MAX_SHAPES = 8192
_MAX_OPEN = 4096
_MAX_TRACEBACKS = 5_000
_MAX_TEXT = 400
# Of so many lines that say the same it is looked up to which step the log had come.
_MAX_STEPS = 100
# The end of a line is where errors stand that follow a progress bar.
_MAX_MATCHED = 8192
_WATCHDOG = tuple(sign.decode() for sign in SIGNS)
_NCCL_WARN = "NCCL WARN"
_ANNOUNCED_LINES = 3
_CONDITION_CHARS = 80
_BEGIN_CHARS = 600
_MAX_BLAMED = 1024
_NUMBER = re.compile(r"\d{1,7}", re.ASCII)
_XID_PROCESS = re.compile(r"\bXid\b.{0,80}\bpid='?(\d{1,9})", re.ASCII)
_BARE_EXCEPTION = re.compile(
    r"^(?:\w+\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotFound|Failed))(?:: ?(.*))?$"
    r"|^(?:[a-z_]\w*\.)+([A-Z]\w*): (.*)$"
)
_RESTARTS = re.compile(
    r"will restart worker group|restarting (?:the )?(?:worker|job|training)", re.I
)
_CODE = re.compile(
    r"^\s*(?:raise |except |assert |return |def |class |if |import |from |try:|#|//|\* |>>> )"
)
# torchrun's table, of a process that a signal has ended.
_OF_PID = re.compile(r"(?:received by PID |\(pid: )(\d{1,9})")
# Advice of relkit's own, in the output of its launcher, names what might have been.
_ADVICE = re.compile(r"^\s+(?:do|next|missing): ")


@dataclass(frozen=True, slots=True)
class _Open:
    """A traceback that is being read.

    Args:
        clock: when it began, None where nothing says it; most: what it says at most, by the line
            above it.
    """

    traceback: Traceback
    clock: Clock | None
    most: Kind


class LogReader:
    """Reads one log.

    Args:
        path: of it, for places; speaker: what its name shows of who wrote it.
        prefixes: that its lines have.
    """

    def __init__(self, path: Path, speaker: Speaker, prefixes: Prefixes) -> None:
        self._path, self._speaker, self._prefixes = path, speaker, prefixes
        self.facts = LogFacts()
        self._launcher = LauncherText(path, self.facts.ended)
        self._kept: dict[tuple[Speaker, str, Kind], list[int]] = {}
        self._open: dict[Speaker, _Open] = {}
        self._raised: dict[Speaker, int] = {}
        self._tracebacks = 0
        self._table_until = 0
        self._restarted_at = -1
        self._restarted_line = 0
        self._announced: dict[Speaker, tuple[int, Kind]] = {}
        self._scanner = Scanner(())

    def read(self, pieces: Iterable[bytes]) -> LogFacts:
        """All of it."""
        ranks = NcclRanks()
        scanner = self._scanner = Scanner(ranks.noting(pieces))
        for line in scanner:
            self._line(line)
            scanner.wants_all = self._is_listening(line)
        self._close_all()
        self._read_last()
        facts = self.facts
        facts.processes = ranks.processes
        facts.outlived = {
            place
            for place, each in enumerate(facts.sightings)
            if each.offset < self._restarted_at
            or is_outlived(each.offset, each.step, scanner.progress)
            or self._went_on(each)
        }
        facts.ended[:] = [each for each in facts.ended if each.line >= self._restarted_line]
        return facts

    def _is_listening(self, line: Line) -> bool:
        """Whether the lines about this one are read whatever they hold."""
        return bool(self._open) or line.number < self._table_until

    def _went_on(self, sighting: Sighting) -> bool:
        """Whether a script said this, and had its program run and fail behind it."""
        raised = self._raised.get(sighting.speaker, -1)
        return raised > sighting.offset and OF_A_SHELL.fullmatch(sighting.text) is not None

    def _line(self, line: Line) -> None:
        was_listening = self._is_listening(line)
        speaker, text = self._said(line)
        told = False
        for part in text.split("\n") if "\n" in text else (text,):
            told = self._part(line, speaker, part[-_MAX_MATCHED:]) or told
        is_silent = not told and not was_listening and not self._open
        if is_silent and not is_by_number(line.text):
            if len(self._scanner.known) >= _MAX_SHAPES:
                self._scanner.known.clear()
            self._scanner.known.add(shape_of(line.text.encode("utf-8", "replace")))

    def _said(self, line: Line) -> tuple[Speaker, str]:
        speaker, text = without_prefixes(line.text, self._prefixes, self._speaker)
        if line.head and speaker == self._speaker:
            speaker, _ = without_prefixes(line.head, self._prefixes, self._speaker)
        if speaker not in self.facts.speakers and len(self.facts.speakers) < _MAX_OPEN * 4:
            self.facts.speakers.add(speaker)
        return speaker, text

    def _part(self, line: Line, speaker: Speaker, text: str) -> bool:
        """Read a line without its prefixes; whether it told anything."""
        if not self.facts.has_watchdog and any(word in text for word in _WATCHDOG):
            self.facts.has_watchdog = True
        if _RESTARTS.search(text) is not None:
            self._restarted_at, self._restarted_line = line.offset, line.number
        if begins_table(text) and not self._launcher.is_full:
            self._table_until = line.number + TABLE_LINES
        before = len(self.facts.ended)
        self._launcher.line(text, line.number, line.text)
        told = len(self.facts.ended) > before or self._launcher.current is not None
        known = self._open.get(speaker)
        if known is not None:
            taken = known.traceback.add(text, line.number, line.offset)
            if known.traceback.is_done:
                self._close(speaker)
            if taken:
                return True
        if begins_traceback(text):
            return self._begin(line, speaker, text)
        if (passed := NOT_THE_END.search(text)) is not None:
            if len(self._announced) >= _MAX_OPEN:
                self._announced.clear()
            kind = Kind.MENTION if passed["ignored"] else Kind.WEAK
            self._announced[speaker] = (line.number + _ANNOUNCED_LINES, kind)
            return True
        return self._judge(line, speaker, text) or told

    def _clock(self, line: Line) -> Clock | None:
        clock = clock_of(line.text)
        return clock_of(line.text[-120:]) if clock is None and self._prefixes.is_json else clock

    def _begin(self, line: Line, speaker: Speaker, text: str) -> bool:
        self._tracebacks += 1
        if self._tracebacks > _MAX_TRACEBACKS or len(self._open) >= _MAX_OPEN:
            # Of very many the last one counts: it may be what ended the job.
            self._scanner.keeps_last_traceback = True
            self.facts.note = (
                f"of its tracebacks the first {_MAX_TRACEBACKS} and the last were read"
            )
            return True
        until, kind = self._announced.pop(speaker, (0, Kind.ROOT))
        self._open[speaker] = _Open(
            new_traceback(text), self._clock(line), kind if line.number <= until else Kind.ROOT
        )
        return True

    def _read_last(self) -> None:
        """The last traceback of very many."""
        if self._scanner.last_traceback is None:
            return
        number, offset, data = self._scanner.last_traceback
        self._tracebacks = 0
        for further, text in enumerate(data.decode("utf-8", "replace").splitlines()):
            self._line(Line(text, number + further, offset))
        self._close_all()

    def _close_all(self) -> None:
        for speaker in list(self._open):
            self._close(speaker)

    def _close(self, speaker: Speaker) -> None:
        """Of a chain of exceptions the one that tells most: of equals, the cause or the last."""
        opened = self._open.pop(speaker)
        best: Sighting | None = None
        for raised in opened.traceback.raised:
            sighting = self._of_exception(speaker, raised, opened.clock)
            if best is None or _tells_more(sighting, best, raised.chained):
                best = sighting
        if best is None:
            return
        # Another thread's failure says so little only where it names no cause.
        is_known = opened.most is Kind.WEAK and best.cause not in GENERIC
        if opened.most.value > best.kind.value and not is_known:
            best = replace(best, kind=opened.most)
        self._add(best)
        if best.kind is Kind.ROOT:
            self._raised[speaker] = best.offset

    def _of_exception(self, speaker: Speaker, raised: Raised, clock: Clock | None) -> Sighting:
        text = raised.text
        known = rule_of(text)
        cause, kind = cause_of_exception(raised.name)
        blamed: tuple[int, ...] = ()
        if known is not None:
            rule = known[0]
            # What an exception of another kind says in passing is not what it is.
            if kind is not Kind.ROOT or cause in GENERIC or rule.kind is not Kind.LAUNCHER:
                cause, kind, blamed = rule.cause, rule.kind, _blamed(known[1])
        return Sighting(
            cause=cause,
            kind=kind,
            blamed=blamed,
            text=printable_line(text)[:_MAX_TEXT],
            path=self._path,
            line=raised.line,
            offset=raised.offset,
            speaker=speaker,
            clock=clock,
            code=raised.where,
        )

    def _judge(self, line: Line, speaker: Speaker, text: str) -> bool:
        """A line outside of tracebacks; whether a rule knows it."""
        if not text or _CODE.match(text) or _ADVICE.match(text):
            return False
        known = rule_of(text)
        pid, code, blamed = 0, "", tuple[int, ...]()
        if known is not None:
            rule, match = known
            cause, kind = rule.cause, rule.kind
            of_pid = _OF_PID.search(text)
            groups = match.groupdict()
            pid = int(groups.get("pid") or (of_pid[1] if of_pid else 0))
            code = groups.get("at") or ""
            blamed = _blamed(match)
        elif (bare := _BARE_EXCEPTION.match(text.strip())) is not None:
            cause, kind = cause_of_exception(bare[1] or bare[3])
        else:
            return False
        if not pid and (xid := _XID_PROCESS.search(text)) is not None:
            pid = int(xid[1])
        if not speaker.host and (host := host_of_system_log(line.text)):
            speaker = replace(speaker, host=host)
        is_outright = OUTRIGHT.match(text, 0, _BEGIN_CHARS) is not None
        if cause in OFTEN_MENTIONED and kind is Kind.ROOT and not is_outright:
            kind = Kind.WEAK
        level = LEVEL.search(text)
        if (level is not None and _NCCL_WARN not in text) or HARMLESS.search(text) is not None:
            kind = Kind.MENTION if cause != "nan" or HARMLESS.search(text) else kind
        if known is not None and not is_outright:
            before = text[max(0, known[1].start() - _CONDITION_CHARS) : known[1].start()]
            kind = Kind.MENTION if CONDITION.search(before) is not None else kind
        self._add(
            Sighting(
                cause=cause,
                kind=kind,
                blamed=blamed,
                text=printable_line(text.strip())[:_MAX_TEXT],
                path=self._path,
                line=line.number,
                offset=line.offset,
                speaker=speaker,
                clock=self._clock(line),
                code=code,
                pid=pid,
            )
        )
        return True

    def _add(self, sighting: Sighting) -> None:
        """Keep the first and the newest of each cause and speaker, and count them."""
        key = (sighting.speaker, sighting.cause, sighting.kind)
        sightings = self.facts.sightings
        if len(sightings) >= _MAX_SIGHTINGS and key not in self._kept:
            return
        kept = self._kept.setdefault(key, [])
        newest = sightings[kept[1]] if len(kept) == 2 else None
        if newest is not None and newest.count > _MAX_STEPS:
            step = newest.step
        else:
            step = self._scanner.step_before(sighting.offset)
        if newest is not None:
            sightings[kept[1]] = replace(sighting, count=newest.count + 1, step=step)
        elif len(sightings) < _MAX_SIGHTINGS:
            kept.append(len(sightings))
            sightings.append(replace(sighting, step=step))


def _blamed(match: re.Match[str]) -> tuple[int, ...]:
    """Ranks that a line calls by number."""
    named = match.groupdict().get("ranks") or ""
    return tuple(int(number) for number in _NUMBER.findall(named)[:_MAX_BLAMED])


def _tells_more(sighting: Sighting, best: Sighting, chained: str) -> bool:
    if (sighting.cause in GENERIC) != (best.cause in GENERIC):
        return sighting.cause not in GENERIC
    if sighting.kind is not best.kind:
        return sighting.kind.value < best.kind.value
    return chained == "handling"
