"""What a file is, by its content; its name is a hint at most. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from relkit.text.foreign_json import parse_json
from relkit.why.crash_lists import is_crash_list
from relkit.why.error_file import is_error_file
from relkit.why.packed.unpacking import packing_of
from relkit.why.ras_text import is_ras_json, is_ras_text
from relkit.why.scheduler_text import is_accounting, is_events, is_job, is_pod_description


class FileKind(Enum):
    """The value is what the list of files calls it."""

    LOG = "log"
    KERNEL_LOG = "log of a kernel"
    DUMP = "dump of the flight recorder"
    STACKS = "stacks"
    ERROR_FILE = "torchelastic's error file"
    ACCOUNTING = "sacct's accounting"
    JOB = "scontrol's description of a job"
    POD = "description of a pod"
    EVENTS = "events of Kubernetes"
    CRASHES = "list of crashes"
    RAS = "what NCCL's RAS says"
    NONE = ""


# What the files are called that only the analysis of hangs reads.
FOR_HANG = (FileKind.DUMP.value, FileKind.STACKS.value)


@dataclass(frozen=True, slots=True)
class Sorted:
    """What a file is.

    Args:
        kind: NONE for one that cannot be used; why: the reason for that.
        has_stacks: a log in which stacks stand as well.
    """

    kind: FileKind
    why: str = ""
    has_stacks: bool = False


_MAGIC = (
    (b"\x7fELF", "a core file or a program: `gdb PROGRAM FILE -batch -ex bt` shows a core's stack"),
    (b"PK\x03\x04", "a checkpoint, an archive in an archive, or one that cannot be read"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF"),
    (b"\x93NUMPY", "an array of numpy"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format", "a data base"),
)
# relkit's own pages quote what was seen, also where it was nothing.
_MARKUP = (b"<!doctype html", b"<html", b"<svg", b"<?xml", b"digraph ")
# Whose a line is.
_MARK = r"(?:\[[\w,]{1,20}\][^ ]{0,12} ?|\s{0,6}\d{1,7}: ?)?"
_STACKS = (
    re.compile(
        rf"^[ \t]*{_MARK}Thread (?:0x)?[0-9A-Fa-f]+.{{0,40}}\((?:active|idle)",
        re.M,
    ),
    re.compile(
        rf"^{_MARK}(?:Current thread|Thread) 0x[0-9a-f]+ .{{0,40}}"
        r"\(most recent call first\)",
        re.M,
    ),
    re.compile(rf"^{_MARK}Traceback for thread \d+", re.M),
    re.compile(
        rf"^{_MARK}#\d+ +(?:0x[0-9a-f]+ in )?\S+ \(.{{0,200}}\)"
        r"(?: (?:at|from) \S+)?$",
        re.M,
    ),
)
_OF_STACKS = re.compile(
    r"\s{2,}\S|Thread |Current thread|Process \d|Python v|#\d+ |Traceback for|Timeout \(|"
    r"\[(?:New )?(?:LWP|Thread)|\W*rank\W*\d+\W*$",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"Fatal Python error|\(most recent call last\)|ProcessGroup\w+\.cpp")
_KERNEL = re.compile(r"^(?:<\d>)?\[ *\d+\.\d{6}\] |^\[\w{3} \w{3} [ \d]\d \d\d:|\bkernel: ", re.M)
_SOURCE = re.compile(
    r"^(?:from [\w.]+ import |import \w|def \w+\(|class \w+[(:]|@\w|#!|# ?include <|"
    r"#SBATCH |export \w+=|set -[euxo])",
    re.M,
)
_MARKDOWN = re.compile(r"^#{1,4} \w|^```|^\[.{1,60}\]\(|^\|.*\|$", re.M)
_DUMP_KEYS = frozenset(("entries", "pg_config", "pg_status", "nccl_version", "comm_lib_version"))


def sort_file(head: bytes, text: bytes) -> Sorted:
    """What a file is.

    Args:
        head: its first bytes, unpacked; text: the same as UTF-8.
    """
    if not head:
        return Sorted(FileKind.NONE, "it is empty")
    if (packing := packing_of(head)) is not None:
        return Sorted(FileKind.NONE, f"packed with {packing.name} twice")
    for magic, why in _MAGIC:
        if head.startswith(magic):
            return Sorted(FileKind.NONE, why)
    if text.lstrip()[:14].lower().startswith(_MARKUP):
        return Sorted(FileKind.NONE, "a page or a picture, no log")
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return Sorted(FileKind.DUMP)
    if head[:1] == b"\x80" or text.count(0) > len(text) // 64 + 8:
        return Sorted(FileKind.NONE, "binary data of a kind that is not read")
    shown = text.decode("utf-8", "replace")
    if not shown.strip():
        return Sorted(FileKind.NONE, "it holds nothing but blanks")
    if shown.lstrip()[:1] in "{[" and (made := _json(shown)) is not None:
        return made
    return _sort_text(shown)


def _json(shown: str) -> Sorted | None:
    """What a document of JSON is; None for text that only begins like one."""
    try:
        plain = parse_json(shown)
    except ValueError:
        cut = shown[:4096]
        if '"communicators' in cut and '"nccl_version"' in cut:
            return Sorted(FileKind.RAS)
        if any(f'"{key}"' in cut for key in _DUMP_KEYS):
            return Sorted(FileKind.DUMP)
        if re.match(r'\s*\[\s*\{\s*"pid"', cut) and "thread" in cut:
            return Sorted(FileKind.STACKS)
        first = shown.lstrip().partition("\n")[0]
        if first.startswith("{") and not first.rstrip().endswith("}") and "\n" in shown:
            return Sorted(FileKind.NONE, "damaged JSON, or of a kind that is not read")
        return None
    if isinstance(plain, dict):
        if is_ras_json(plain):
            return Sorted(FileKind.RAS)
        if plain.keys() & _DUMP_KEYS:
            return Sorted(FileKind.DUMP)
        if is_error_file(plain):
            return Sorted(FileKind.ERROR_FILE)
        if plain.keys() & {"log", "msg", "textPayload", "MESSAGE"}:
            return None
    begin = plain[0] if isinstance(plain, list) and plain else None
    if isinstance(begin, dict) and {"frames", "pid"} <= begin.keys():
        return Sorted(FileKind.STACKS)
    return Sorted(FileKind.NONE, "JSON of a kind that is not read")


def _sort_text(shown: str) -> Sorted:
    lines = shown.splitlines()
    if is_accounting(lines):
        return Sorted(FileKind.ACCOUNTING)
    if is_job(lines):
        return Sorted(FileKind.JOB)
    if is_pod_description(lines):
        return Sorted(FileKind.POD)
    if is_events(lines):
        return Sorted(FileKind.EVENTS)
    if is_ras_text(lines):
        return Sorted(FileKind.RAS)
    if is_crash_list(lines):
        return Sorted(FileKind.CRASHES)
    filled = sum(bool(line.strip()) for line in lines)
    if any(pattern.search(shown) for pattern in _STACKS):
        in_stacks = sum(_OF_STACKS.match(line) is not None for line in lines)
        is_all = in_stacks > 0.7 * filled and not _SPOKEN.search(shown)
        return Sorted(FileKind.STACKS if is_all else FileKind.LOG, has_stacks=True)
    if len(_SOURCE.findall(shown)) > max(1, filled // 12):
        return Sorted(FileKind.NONE, "source code or a script, no log")
    if len(_MARKDOWN.findall(shown)) > max(2, filled // 6):
        return Sorted(FileKind.NONE, "a document, no log")
    if len(_KERNEL.findall(shown)) > filled // 2:
        return Sorted(FileKind.KERNEL_LOG)
    return Sorted(FileKind.LOG)
