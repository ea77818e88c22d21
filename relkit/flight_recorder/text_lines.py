"""The bytes of a log -> its lines, whatever wrote them and however long they are; pure."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

from relkit.text.foreign_json import parse_json

# A longer piece is a progress bar of megabytes: what is of use stands at its end. Of a message of
# torch's it is the begin that counts.
LONGEST = 1 << 17
# A log of docker's or of a collector's: an object a line, with a text in it.
_OBJECT = re.compile(rb'\s*\{\s*"(log|stream|time|timestamp|@timestamp|ts|message|msg|level)"\s*:')
_TEXTS = ("log", "message", "msg", "text", "textPayload", "MESSAGE", "event")
_TEXT_MEMBER = re.compile(rf'"(?:{"|".join(_TEXTS)})"\s*:\s*"'.encode())
_OF_A_DUMP = re.compile(rb'"(?:entries|pg_config|pg_status|nccl_version|comm_lib_version)"\s*:')
# What docker itself puts into an object.
_DOCKER = frozenset(("log", "stream", "time", "attrs"))
# Whose a line is, as srun's labels and mpirun's tags say it.
_LABEL = re.compile(r"\s{0,6}(\d{1,7}): ?", re.ASCII)
_TAG = re.compile(r"\[\d{1,7},(\d{1,7})\]<std(?:out|err|diag)>:", re.ASCII)
_MOST = 0.9
_MAX_OBJECT_BYTES = 1 << 20
# What Kubernetes puts ahead of each line: `2026-01-01T00:00:00.0Z stderr F `.
CRI = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ", re.ASCII
)
# Where torch's own messages begin, wherever in a line: several writers share it.
_BEGINS = re.compile(r"(?=\[rank\d{1,7}\]:)|(?<!\]:)(?<!\]: )(?=\[[EWIF]\d{0,4} )", re.ASCII)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def is_log_of_objects(head: bytes) -> bool:
    """Whether a file begins as a log does that has a JSON object a line, such as docker's.

    Args:
        head: its first bytes.
    """
    if _OBJECT.match(head) is not None:
        return True
    first = head.lstrip().partition(b"\n")[0]
    return (
        first.startswith(b"{")
        and _TEXT_MEMBER.search(first) is not None
        and _OF_A_DUMP.search(first) is None
    )


def text_key(plain: Mapping[str, object]) -> str:
    """The key under which an object of a log holds the line; "" where none does."""
    return next((key for key in _TEXTS if isinstance(plain.get(key), str)), "")


def lines_of(data: bytes) -> Iterator[str]:
    """The lines of a log, without what collectors of logs put around them.

    A carriage return ends a line as well, and so does the begin of a message of torch's.

    Args:
        data: of the log, UTF-8 or UTF-16.
    """
    if data.startswith(_UTF_16):
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    begun = ""
    cut: dict[str, str] = {}
    # One after the other: of a file of short lines a list would take many times its size.
    for raw in io.BytesIO(data):
        text = _logged(raw)
        if text is None:
            whole = _whole_line(raw.decode("utf-8", "replace"), cut)
            if whole is None:
                continue
            text = whole
        elif not text.endswith("\n") and len(begun) < LONGEST:
            # Docker cuts long lines into several objects.
            begun += text
            continue
        yield from _pieces(begun + text)
        begun = ""
    for rest in (begun, *cut.values()):
        yield from _pieces(rest)


def _whole_line(line: str, cut: dict[str, str]) -> str | None:
    """A line of Kubernetes', with what came before it; None where it goes on (`P`).

    Args:
        line: as it stands; cut: the beginnings of lines that go on, by stream.
    """
    mark = CRI.match(line) if line[4:5] == "-" else None
    if mark is None:
        return line
    _, stream, flag = mark[0].split()
    text = cut.pop(stream, "") + line[mark.end() :]
    if flag == "F" or len(text) > LONGEST:
        return text
    cut[stream] = text.rstrip("\r\n")
    return None


def _logged(raw: bytes) -> str | None:
    """The text of one object, with a line end where its line ends; None where the line is none."""
    if len(raw) > _MAX_OBJECT_BYTES or raw.lstrip()[:1] != b"{" or not is_log_of_objects(raw):
        return None
    try:
        plain = parse_json(raw)
    except ValueError:
        return None
    if not isinstance(plain, dict):
        return None
    key = text_key(plain)
    # Docker alone cuts long lines, and leaves their ends in the text.
    if key == "log" and plain.keys() <= _DOCKER:
        return str(plain["log"])
    return f"{plain[key]}\n" if key else None


def marked_lines_of(data: bytes) -> Iterator[str]:
    """The same with the marks of srun and mpirun as torch's own: `[rank3]: `.

    Args:
        data: of a log in which stacks stand, which is small enough to be read twice.
    """
    counts = {_LABEL: 0, _TAG: 0}
    total = 0
    for line in lines_of(data):
        total += 1
        for pattern in counts:
            counts[pattern] += pattern.match(line) is not None
    mark = next((p for p, count in counts.items() if total and count >= _MOST * total), None)
    for line in lines_of(data):
        match = None if mark is None else mark.match(line)
        yield line if match is None else f"[rank{match[1]}]: {line[match.end() :]}"


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\r", start)
        end = len(text) if end < 0 else end
        if not text[start:end].isspace():
            yield from _messages(text[start:end])
        start = end + 1


def _messages(line: str) -> Iterator[str]:
    if (cri := CRI.match(line)) is not None:
        line = line[cri.end() :]
    for part in _BEGINS.split(line) if "[" in line else (line,):
        if part:
            yield part[:LONGEST] if part.startswith("[") else part[-LONGEST:]
