"""What is known of one dead rank beyond its exit code, as it travels between nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relkit.text.printable import printable_line

MAX_LINES = 40
MAX_LINE_CHARS = 400
_MAX_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class DeathEvidence:
    """What the host shows of one rank's death; all text is safe to print.

    Args:
        cgroup: the memory cgroup that it ran in; "" where not known.
        oom_kills: processes of that cgroup that the kernel's OOM killer ended since the rank was
            first seen in it; None where the kernel does not count them there.
        memory_limit_bytes: of the cgroup, 0 for none; memory_peak_bytes: its highest use, 0 where
            not known.
        kernel_lines: lines of the kernel log since the rank started that are about it, or about
            an error of a device or of memory; oldest first.
        kernel_log: why the kernel log could not be read, or not for lines about the process; ""
            where it could.
        output: the last lines that it wrote to stderr, or its traceback.
        output_source: the file that they are from; "" where there is none.
        core: the core file; "" for none.
        core_stack: innermost frames of the thread that crashed, from the core file.
        raised: the exception that ended its script ("ValueError: bad batch"), where it has left
            word of that; "" otherwise. raised_at: FILE:LINE where it was raised.
        raised_unix_s: when it ended the script, Unix time, s; 0 where not known.
    """

    cgroup: str = ""
    oom_kills: int | None = None
    memory_limit_bytes: int = 0
    memory_peak_bytes: int = 0
    kernel_lines: tuple[str, ...] = ()
    kernel_log: str = ""
    output: tuple[str, ...] = ()
    output_source: str = ""
    core: str = ""
    core_stack: tuple[str, ...] = ()
    raised: str = ""
    raised_at: str = ""
    raised_unix_s: float = 0.0


def safe_line(text: str) -> str:
    """One bounded line without characters that a terminal would act upon."""
    line = printable_line(text.rstrip())
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 3]}..."


def safe_lines(lines: object) -> tuple[str, ...]:
    """The last of these lines, each safe; () where these are no lines."""
    if not isinstance(lines, (list, tuple)):
        return ()
    return tuple(safe_line(line) for line in lines[-MAX_LINES:] if isinstance(line, str))


def evidence_from_json(plain: object) -> DeathEvidence | None:
    """The inverse of `dataclasses.asdict`, of what another node says; None where it is none."""
    if not isinstance(plain, Mapping):
        return None
    return DeathEvidence(
        cgroup=_text(plain, "cgroup"),
        oom_kills=_number(plain, "oom_kills"),
        memory_limit_bytes=_number(plain, "memory_limit_bytes") or 0,
        memory_peak_bytes=_number(plain, "memory_peak_bytes") or 0,
        kernel_lines=safe_lines(plain.get("kernel_lines")),
        kernel_log=_text(plain, "kernel_log"),
        output=safe_lines(plain.get("output")),
        output_source=_text(plain, "output_source"),
        raised=_text(plain, "raised"),
        raised_at=_text(plain, "raised_at"),
        raised_unix_s=_seconds(plain, "raised_unix_s"),
        core=_text(plain, "core"),
        core_stack=safe_lines(plain.get("core_stack")),
    )


def _text(plain: Mapping[str, Any], name: str) -> str:
    value = plain.get(name)
    return safe_line(value) if isinstance(value, str) else ""


def _seconds(plain: Mapping[str, Any], name: str) -> float:
    value = plain.get(name)
    return value if isinstance(value, float) and 0 <= value < _MAX_BYTES else 0.0


def _number(plain: Mapping[str, Any], name: str) -> int | None:
    value = plain.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return min(max(0, value), _MAX_BYTES)
