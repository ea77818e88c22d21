"""The last lines that a worker has left: its redirected stderr, or torch's error file."""

from __future__ import annotations

import os
from pathlib import Path

from relkit.files.input_file import open_input, read_input_text
from relkit.post_mortem.model import MAX_LINES, safe_lines
from relkit.text.foreign_json import parse_json

_TAIL_BYTES = 1 << 14
_ERROR_FILE_BYTES = 16 << 20
_SHOWN_LINES = 20


def tail(path: Path) -> tuple[str, ...]:
    """The last lines of a file, each safe to print; () where it is empty or cannot be read."""
    try:
        with open_input(path, 0) as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - _TAIL_BYTES))
            text = (stream.read(_TAIL_BYTES) or b"").decode("utf-8", "replace")
    except OSError:
        return ()
    lines = text.splitlines()
    if size > _TAIL_BYTES:
        lines = lines[1:]
    return safe_lines([line for line in lines if line.strip()][-_SHOWN_LINES:])


def traceback_of(path: Path) -> tuple[str, ...]:
    """The end of the traceback in torch's error file; () where there is none."""
    try:
        plain = parse_json(read_input_text(path, _ERROR_FILE_BYTES))
    except (OSError, ValueError):
        return ()
    message = plain.get("message") if isinstance(plain, dict) else None
    extra = message.get("extraInfo") if isinstance(message, dict) else None
    text = extra.get("py_callstack") if isinstance(extra, dict) else None
    lines = text.splitlines() if isinstance(text, str) else []
    return safe_lines([line for line in lines if line.strip()][-min(_SHOWN_LINES, MAX_LINES) :])


def last_output(stderr_file: Path | None, error_file: Path | None) -> tuple[tuple[str, ...], str]:
    """The last lines of a worker and the file that they are from; ((), "") for none.

    Args:
        stderr_file: where the launcher has sent its stderr; None where it has not.
        error_file: torch's, which holds the traceback where the script uses `record`.
    """
    for path, read in ((stderr_file, tail), (error_file, traceback_of)):
        if path is not None and (lines := read(path)):
            return lines, str(path)
    return (), ""
