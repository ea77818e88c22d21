"""What sacct, scontrol and kubectl print of a job -> how it ended; pure."""

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
_POD_KEYS = frozenset(
    ("Containers", "Namespace", "Node", "Status", "Reason", "Message", "Start Time", "Annotations")
)
_POD = re.compile(r"^Name:\s+(\S+)")
_REASON = re.compile(r"^\s+Reason:\s+(\S.*)$")
_EXIT = re.compile(r"^\s+Exit Code:\s+(\d{1,3})\s*$")
_POD_STATUS = re.compile(r"^(?:Status|Reason|Message):\s+\S")
_EVENT = re.compile(r"^\s+(?:Warning|Normal)\s+\S")
_JOB_LINE = re.compile(r"^\s*JobId=(\d{1,10})\b")
_JOB_STATE = re.compile(r"\bJobState=([A-Z_]+)(?: Reason=(\S{1,80}))?")
_JOB_CODE = re.compile(r"\bExitCode=(\d{1,3}):(\d{1,3})\b")
_ROW_JOB = re.compile(r"^\s*(\d{1,10}(?:_\d{1,7})?)(?:[.+|\s]|$)")
_EVENTS_HEAD = re.compile(r"^(?:NAMESPACE +)?LAST SEEN +(?:.* )?TYPE +REASON +.*OBJECT +")
_PODS_HEAD = re.compile(r"^(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +")
_EVENT_ROW = re.compile(
    r"^(?P<before>.{0,300}?\s)?(?P<type>Warning|Normal)\s+(?P<reason>[A-Z]\w+)\s+(?P<object>\S+)\s+"
    r"(?P<message>.*)$"
)
_POD_ROW = re.compile(r"^(?:\S+\s+)??(?P<pod>\S+)\s+\d+/\d+\s+(?P<state>[A-Z][\w:/]+)\s+\d+")
# Of an event the reason alone -> cause, where its message fits no rule.
_EVENT_REASONS = {
    "OOMKilling": "oom-killer",
    "SystemOOM": "oom-killer",
    "OOMKilled": "oom-killer",
    "NodeNotReady": "node-lost",
    "Preempted": "preempted",
    "Preempting": "preempted",
    "Evicted": "preempted",
    "DeadlineExceeded": "time-limit",
    "ImagePullBackOff": "image",
    "ErrImagePull": "image",
    "FailedScheduling": "unschedulable",
}
# 128 and SIGTERM: Kubernetes ended the container.
_TERMINATED = 143


def is_accounting(lines: Sequence[str]) -> bool:
    """Whether a text begins as sacct's does."""
    return any("JobID" in line and "State" in line for line in lines[:5])


def is_pod_description(lines: Sequence[str]) -> bool:
    """Whether a text is one of `kubectl describe pod`."""
    keys = {line.partition(":")[0].strip() for line in lines[:400]}
    return "Name" in keys and len(keys & _POD_KEYS) >= 3


def is_events(lines: Sequence[str]) -> bool:
    """Whether a text begins as `kubectl get events` or `kubectl get pods` does."""
    return any(_EVENTS_HEAD.match(line) or _PODS_HEAD.match(line) for line in lines[:5])


def is_job(lines: Sequence[str]) -> bool:
    """Whether a text begins as `scontrol show job` does."""
    return any(_JOB_LINE.match(line) for line in lines[:3])


def jobs_of_accounting(sightings: Sequence[Sighting]) -> dict[str, list[Sighting]]:
    """What an accounting says of each job; empty where it is of one, or names none."""
    by_job: dict[str, list[Sighting]] = {}
    for each in sightings:
        job = _ROW_JOB.match(each.text) or _JOB_LINE.match(each.text)
        if job is None:
            return {}
        by_job.setdefault(job[1], []).append(each)
    return by_job


def read_job(lines: Sequence[str], path: Path) -> Iterator[Sighting]:
    """How `scontrol show job` says that jobs ended."""
    job = ""
    states: dict[str, tuple[str, int]] = {}
    codes: dict[str, int] = {}
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE]
        if (named := _JOB_LINE.match(line)) is not None:
            job = named[1]
        if (state := _JOB_STATE.search(line)) is not None and state[1] in _STATES:
            states[job] = f"{state[1]} Reason={state[2] or ''}", number
        if (code := _JOB_CODE.search(line)) is not None:
            codes[job] = int(code[2])
    for job, (text, number) in states.items():
        cause, kind = _STATES[text.split()[0]]
        if cause == "launcher" and (by_signal := cause_of_signal(codes.get(job, 0))):
            cause, kind = by_signal, Kind.WEAK
        yield _sighting(cause, kind, f"JobId={job} JobState={text}", path, number, "")


def read_events(lines: Sequence[str], path: Path) -> Iterator[Sighting]:
    """What `kubectl get events` and `kubectl get pods` say of pods and nodes."""
    placed = {m["object"] for line in lines if (m := _EVENT_ROW.match(line[:_MAX_LINE]))
              and m["reason"] == "Scheduled"}  # fmt: skip
    for number, whole in enumerate(lines, start=1):
        line = whole[:_MAX_LINE].rstrip()
        event, pod = _EVENT_ROW.match(line), _POD_ROW.match(line)
        if event is not None:
            reason, about = event["reason"], event["object"]
            if reason == "FailedScheduling" and about in placed:
                continue
            known = rule_of(f"{reason}: {event['message']}")
        elif pod is not None:
            reason, about = pod["state"].removeprefix("Init:"), pod["pod"]
            known = None
        else:
            continue
        name = about.rpartition("/")[2]
        if known is not None and known[0].cause == "evicted":
            yield _sighting("evicted", Kind.ROOT, line, path, number, name)
        elif reason == "TaintManagerEviction":
            # Whatever tainted the node tells more.
            yield _sighting("preempted", Kind.WEAK, line, path, number, name)
        elif reason in _EVENT_REASONS:
            yield _sighting(_EVENT_REASONS[reason], Kind.ROOT, line, path, number, name)
        elif known is not None and known[0].kind is Kind.ROOT and event is not None:
            if event["type"] == "Warning":
                yield _sighting(known[0].cause, known[0].kind, line, path, number, name)
        elif pod is not None and reason in ("Error", "CrashLoopBackOff"):
            yield _sighting("launcher", Kind.LAUNCHER, line, path, number, name)


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
