"""What sacct and `kubectl describe` print of a job -> how it ended; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from relkit.text.printable import printable_line
from relkit.why.model import Sighting, Speaker
from relkit.why.rules.exit_codes import cause_of_exit_code, cause_of_signal
from relkit.why.rules.line_rules import rule_of
from relkit.why.rules.told import Kind

_MAX_TEXT = 400
_MAX_LINE = 4096
# Slurm's state of a job -> cause, and how much it says.
_STATES = {
    "OUT_OF_MEMORY": ("oom-killer", Kind.ROOT),
    "TIMEOUT": ("time-limit", Kind.ROOT),
    "DEADLINE": ("time-limit", Kind.ROOT),
    "PREEMPTED": ("preempted", Kind.ROOT),
    "NODE_FAIL": ("node-lost", Kind.ROOT),
    "BOOT_FAIL": ("node-lost", Kind.ROOT),
    "CANCELLED": ("cancelled", Kind.WEAK),
    "FAILED": ("launcher", Kind.LAUNCHER),
}
_STATE = re.compile(r"(?<![A-Z_])(" + "|".join(_STATES) + r")(?![A-Z_])\+?")
_CODE = re.compile(r"(?<![\d:])(\d{1,3}):(\d{1,3})(?![\d:])")
_POD = re.compile(r"^Name:\s+(\S+)")
_REASON = re.compile(r"^\s+Reason:\s+(\S.*)$")
_EXIT = re.compile(r"^\s+Exit Code:\s+(\d{1,3})\s*$")
_POD_STATUS = re.compile(r"^(?:Status|Reason|Message):\s+\S")
_EVENT = re.compile(r"^\s+(?:Warning|Normal)\s+\S")
# 128 and SIGTERM: Kubernetes ended the container.
_TERMINATED = 143


def is_accounting(lines: Sequence[str]) -> bool:
    """Whether a text begins as sacct's does."""
    return any("JobID" in line and "State" in line for line in lines[:5])


def is_pod_description(lines: Sequence[str]) -> bool:
    """Whether a text is one of `kubectl describe pod`."""
    keys = {line.partition(":")[0].strip() for line in lines[:400]}
    return "Name" in keys and len(keys & {"Containers", "Namespace", "Node", "Status"}) >= 3


def read_accounting(lines: Sequence[str], path: Path) -> Iterator[Sighting]:
    """How sacct says that the steps of a job ended."""
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE]
        state = _STATE.search(line)
        if state is None:
            continue
        cause, kind = _STATES[state[1]]
        if cause == "launcher":
            causes = (cause_of_signal(int(code[2])) for code in _CODE.finditer(line))
            by_signal = next(filter(None, causes), "")
            cause, kind = (by_signal, Kind.WEAK) if by_signal else (cause, kind)
        yield _sighting(cause, kind, line, path, number, "")


def read_pod(lines: Sequence[str], path: Path) -> Iterator[Sighting]:
    """How `kubectl describe` says that a pod's containers ended, and what happened to it."""
    pod = ""
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE].rstrip()
        if (name := _POD.match(line)) is not None:
            pod = name[1]
        elif (reason := _REASON.match(line)) is not None and reason[1] == "OOMKilled":
            yield _sighting("oom-killer", Kind.ROOT, line, path, number, pod)
        elif (match := _EXIT.match(line)) is not None:
            if code := int(match[1]):
                cause, kind = cause_of_exit_code(code)
                if code == _TERMINATED:
                    cause, kind = "cancelled", Kind.WEAK
                yield _sighting(cause, kind, line, path, number, pod)
        elif _EVENT.match(line) or _POD_STATUS.match(line) or _REASON.match(line):
            known = rule_of(line)
            if known is not None and known[0].kind in (Kind.ROOT, Kind.WEAK):
                yield _sighting(known[0].cause, known[0].kind, line, path, number, pod)


def _sighting(cause: str, kind: Kind, line: str, path: Path, number: int, host: str) -> Sighting:
    text = printable_line(" ".join(line.split()))[:_MAX_TEXT]
    return Sighting(cause, kind, text, path, number, speaker=Speaker(host=host))
