"""A Chrome trace, event by event: no more of it is held in memory than a piece."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from relkit.errors import BadInputFile
from relkit.files.input_file import open_input

_PIECE_BYTES = 1 << 20
# What a packed file may unpack to: it has to end some day.
MAX_BYTES = 32 << 30
# No event is as long; a value outside of the events (all groups of a large job) may be longer.
_MAX_VALUE_CHARS = 1 << 24
_GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
# Where an event begins, behind one that is damaged.
_NEXT_EVENT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|id|args|s)")')
_NUMBERS_END = re.compile(r"[.eE+-]{0,2}")
EVENTS = "traceEvents"
_KEPT = ("distributedInfo", "deviceProperties", "host_name")


class TraceReader:
    """Iterate over it once for the events; the rest is known behind the last of them.

    Args:
        path: of a file of JSON, plain or packed by gzip: an object with `traceEvents`, or a list.

    Raises:
        BadInputFile: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # What stands beside the events: `distributedInfo` and the like.
        self.properties: dict[str, Any] = {}
        # Where the file ends before its text does, or is damaged; "" for one that is whole.
        self.cut = ""
        self.damaged = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            with open_input(self._path) as stream:
                yield from self._events(_Text(_unpacked(stream, self)))
        except OSError as error:
            raise BadInputFile(f"{self._path}: {error.strerror or error}") from error

    def _events(self, text: _Text) -> Iterator[dict[str, Any]]:
        opening = text.next_char()
        if opening == "[":
            text.skip(1)
            yield from self._list(text)
            return
        if opening != "{":
            raise BadInputFile(f"{self._path}: it is no trace: no JSON")
        text.skip(1)
        while True:
            char = text.next_char(_BETWEEN)
            if char == "}":
                return
            key = text.value() if char == '"' else None
            if not isinstance(key, str) or text.next_char() != ":":
                self._ends(text)
                return
            text.skip(1)
            if key == EVENTS and text.next_char() == "[":
                text.skip(1)
                yield from self._list(text)
                if self.cut:
                    return
                continue
            value = text.value()
            if value is _MISSING:
                self._ends(text)
                return
            if key in _KEPT:
                self.properties[key] = value

    def _list(self, text: _Text) -> Iterator[dict[str, Any]]:
        while (char := text.next_char(_BETWEEN)) != "]":
            if not char:
                # A list of events may be left open by those who write it as they go.
                self._ends(text)
                return
            event = text.value()
            if event is _MISSING:
                if not text.skip_past(_NEXT_EVENT):
                    self._ends(text)
                    return
                self.damaged += 1
            elif isinstance(event, dict):
                yield event
        text.skip(1)

    def _ends(self, text: _Text) -> None:
        if not self.cut:
            self.cut = "it is cut at its end" if text.at_end else "it is damaged"


class _Missing:
    """There is no value: the text ends, or is none of JSON."""


_MISSING = _Missing()


class _Text:
    """The part of a text that is looked at.

    Args:
        pieces: of the text, one after the other.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._held, self._at = "", 0
        self._decode = json.JSONDecoder(strict=False).raw_decode
        self.at_end = False

    def _more(self) -> bool:
        """Read on, twice as far each time that it does not suffice."""
        pieces, wanted = [self._held[self._at :]], max(1, len(self._held) - self._at)
        self._at = 0
        while wanted > 0 and (piece := next(self._pieces, "")):
            pieces.append(piece)
            wanted -= len(piece)
        self._held = "".join(pieces)
        self.at_end = len(pieces) == 1
        return not self.at_end

    def next_char(self, passed: re.Pattern[str] = _SPACE) -> str:
        """The next one behind what is passed over; "" at the end."""
        while True:
            matched = passed.match(self._held, self._at)
            self._at = matched.end() if matched else self._at
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def skip(self, chars: int) -> None:
        """Go on behind so many."""
        self._at += chars

    def value(self) -> Any:  # noqa: ANN401
        """The value that begins here; _MISSING where it is none, or the text ends in it."""
        while True:
            self.next_char()
            try:
                value, end = self._decode(self._held, self._at)
            except (ValueError, RecursionError) as error:
                is_early = isinstance(error, json.JSONDecodeError) and _is_early(
                    error, len(self._held)
                )
                if is_early and len(self._held) - self._at < _MAX_VALUE_CHARS and self._more():
                    continue
                return _MISSING
            # A number may go on in the next piece: `0` was read of `0.`, and of `0.5e`.
            is_number = self._held[end - 1] not in '}]"'
            if is_number and _NUMBERS_END.fullmatch(self._held, end) and self._more():
                continue
            self._at = end
            return value

    def skip_past(self, pattern: re.Pattern[str]) -> bool:
        """Go on behind the next place that looks so; False where there is none."""
        while True:
            matched = pattern.search(self._held, self._at)
            if matched:
                self._at = matched.end()
                return True
            # It may begin in what is held.
            self._at = max(self._at, len(self._held) - 200)
            if not self._more():
                return False


def _is_early(error: json.JSONDecodeError, held: int) -> bool:
    """More text may make a value of it."""
    return error.pos >= held - 16 or error.msg.startswith("Unterminated string")


def _unpacked(stream: BinaryIO, reader: TraceReader) -> Iterator[str]:
    """The text in pieces, as far as a damaged file goes."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    is_packed = stream.read(2) == _GZIP
    stream.seek(0)
    # What came before a damaged place is given: so read1, which asks for no more.
    read = gzip.GzipFile(fileobj=stream).read1 if is_packed else stream.read
    given = 0
    while True:
        try:
            piece = read(_PIECE_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            reader.cut = "it is cut at its end, or damaged, in its packed form"
            return
        if not piece:
            return
        given += len(piece)
        # Of a character that is in two pieces the first may give nothing.
        if text := decoder.decode(piece):
            yield text
        if given >= MAX_BYTES:
            reader.cut = f"only its first {MAX_BYTES >> 30} GiB were read"
            return
