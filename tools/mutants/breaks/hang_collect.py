"""Breaks of `relkit hang collect`: what an agent may say, and whose evidence is named."""

from __future__ import annotations

from tools.mutants.model import Break

_ROOM = "relkit/hang/collect"
_GATHER = ("tests/unit/hang/collect/test_gather.py",)

BREAKS = (
    # An agent names a file outside of the folder, lists without end, or sends what it likes.
    Break(f"{_ROOM}/gather.py", "or not PATH.fullmatch(path)", "or not path", _GATHER),
    Break(f"{_ROOM}/gather.py", "PATH.fullmatch(path)", "PATH.match(path)", _GATHER),
    Break(f"{_ROOM}/gather.py", "self.counts[node] > MAX_FILES", "False", _GATHER),
    Break(f"{_ROOM}/gather.py", "size > MAX_FILE_BYTES:", "False:", _GATHER),
    Break(f"{_ROOM}/gather.py", "whole + size > MAX_BYTES:", "False:", _GATHER),
    Break(f"{_ROOM}/gather.py", "of_node.get(node, 0) + size > MAX", "-1 > MAX", _GATHER),
    Break(f"{_ROOM}/gather.py", "len(data) > most_bytes", "False", _GATHER),
    Break(f"{_ROOM}/gather.py", "path >= later for", "False for", _GATHER),
    Break(f"{_ROOM}/gather.py", "flags, 0o600), ", "flags, 0o644), ", _GATHER),
    # What is shared comes once for each node, or is lost with one of them.
    Break(f"{_ROOM}/gather.py", "if content in self._contents:", "if False:", _GATHER),
    Break(
        f"{_ROOM}/gather.py",
        "transfer.offset, transfer.digest = 0, hashlib.sha256()",
        "pass",
        _GATHER,
    ),
    # A file that became shorter is taken for whole.
    Break(f"{_ROOM}/gather.py", "if len(data) < expected_bytes:", "if False:", _GATHER),
    # A node gives what is no evidence, or what a link points to.
    Break(f"{_ROOM}/evidence_files.py", "if not PATH.fullmatch(path):", "if False:", _GATHER),
    Break(f"{_ROOM}/evidence_files.py", "os.O_RDONLY | os.O_NOFOLLOW |", "os.O_RDONLY |", _GATHER),
    Break(f"{_ROOM}/evidence_files.py", "if row[0] > after", "if True", _GATHER),
    Break(
        f"{_ROOM}/gathered_report.py",
        "Status.WARN if gathered.files else Status.UNKNOWN",
        "Status.WARN",
        _GATHER,
    ),
)
