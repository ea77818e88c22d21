"""Brings the evidence of a hang from all nodes into one folder.

Nothing that an agent says is believed: a name that is not one of a hang's files, sizes that do not
fit, or more than there can be end that node's part, by name; the others' evidence is used.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relkit.errors import UnwritablePath, UsageProblem
from relkit.fleet.agent_rpc import AgentRpc, Message
from relkit.fleet.channel import Channel
from relkit.hang.collect.evidence_files import (
    CHUNK_BYTES,
    FILES_A_PAGE,
    LIST,
    MAX_FILE_BYTES,
    PATH,
    READ,
)
from relkit.hosts import NodeSpec
from relkit.printable import printable_line
from relkit.stacks.folder import node_folder

MAX_FILES = 65_536
MAX_BYTES = 16 << 30
_AT_ONCE = 64
_CLOSE_S = 5.0
_MAX_WORDS = 200

Progress = Callable[[int, int], None]
"""Called with the bytes that have come, and how many there are."""


class _Refused(ValueError):
    """An agent says what cannot be; the text is the reason."""


class _Failed(ValueError):
    """An agent reports an error; the text is its reason."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What came of it.

    Args:
        files: path below the folder -> size, bytes.
        folders: node -> its timeline folder.
        silent: node -> why nothing, or not all, came from it.
        refused: node -> what its agent said that cannot be.
        empty: nodes that answered, and have no evidence.
        left_out: (node, path there, why) of files that did not come.
    """

    files: Mapping[str, int]
    folders: Mapping[str, str]
    silent: Mapping[str, str]
    refused: Mapping[str, str]
    empty: tuple[str, ...]
    left_out: tuple[tuple[str, str, str], ...]


@dataclass(slots=True)
class _Transfer:
    """One file on its way.

    Args:
        path: on the nodes; size_bytes: there.
        target: below the folder here.
        holders: nodes that have this very file, the one that is asked first.
        offset: how much has come, bytes.
        why_not: what went wrong last.
    """

    path: str
    size_bytes: int
    target: str
    holders: list[str]
    offset: int = 0
    why_not: str = ""
    digest: Any = field(default_factory=hashlib.sha256)


def new_folder(path: Path) -> None:
    """Make the folder for the evidence, private; one that is there has to be empty.

    Raises:
        UsageProblem: it holds something. UnwritablePath: it cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if next(path.iterdir(), None) is not None:
            raise UsageProblem(
                f"{path} is not empty: evidence of two hangs would be mixed",
                next_step="Name a new folder with -o.",
            )
        path.chmod(0o700)
    except OSError as error:
        raise UnwritablePath(f"cannot make {path}: {error.strerror}") from error


def gather(
    channel: Channel,
    nodes: Sequence[NodeSpec],
    out: Path,
    *,
    timeline: str = "",
    step_s: float = 20.0,
    progress: Progress | None = None,
) -> Gathered:
    """Fetch all evidence. The channel is closed when this returns or raises, Ctrl-C included.

    Args:
        channel: not started yet.
        nodes: to ask.
        out: an empty folder of this user's; gets a `node-NODE` folder for each node.
        timeline: the folder on the nodes; "": where a launcher puts it by itself.
        step_s: limit for the agents to come up, and for each reply.

    Raises:
        UnwritablePath: a file cannot be written here.
    """
    try:
        answers = channel.start(nodes, step_s)
        silent = {n: a.detail for n, a in answers.items() if not a.answered}
        silent |= {node.name: "no answer" for node in nodes if node.name not in answers}
        names = [node.name for node in nodes if node.name not in silent]
        rpc = AgentRpc(channel, names)
        work = _Gathering(rpc, out, timeline, step_s, progress or (lambda _done, _all: None))
        work.list_files(names)
        work.fetch()
    except OSError as error:
        raise UnwritablePath(f"cannot write below {out}: {error.strerror}") from error
    finally:
        channel.close(_CLOSE_S)
    silent |= {node: why for node, why in rpc.lost.items() if node not in work.refused}
    return Gathered(
        files=dict(sorted(work.files.items())),
        folders=work.folders,
        silent=dict(sorted(silent.items())),
        refused=work.refused,
        empty=tuple(node for node in names if not work.rows.get(node, True)),
        left_out=tuple(work.left_out),
    )


class _Gathering:
    """The state of one `gather`; arguments as there."""

    def __init__(
        self, rpc: AgentRpc, out: Path, timeline: str, step_s: float, progress: Progress
    ) -> None:
        self._rpc, self._out, self._timeline = rpc, out, timeline
        self._step_s, self._progress = step_s, progress
        self.rows: dict[str, list[tuple[str, int, int]]] = {}
        self.folders: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.left_out: list[tuple[str, str, str]] = []
        self.files: dict[str, int] = {}
        self._contents: set[tuple[str, bytes]] = set()

    def list_files(self, names: Sequence[str]) -> None:
        """Ask all nodes which files they have, page by page."""
        after = dict.fromkeys(names, "")
        while after:
            to = {node: {"folder": self._timeline, "after": last} for node, last in after.items()}
            for node, reply in self._ask(LIST, to):
                after.pop(node)
                with self._judged(node):
                    page = _page(reply, to[node]["after"])
                    self.folders[node] = printable_line(str(reply.get("folder")))[:_MAX_WORDS]
                    rows = self.rows.setdefault(node, [])
                    rows += page
                    if len(rows) > MAX_FILES:
                        raise _Refused(f"its agent lists more than {MAX_FILES:,} files")
                    if reply.get("more") is True:
                        after[node] = page[-1][0]
            after = {node: last for node, last in after.items() if node in self._rpc.live}
        for node in self.refused:
            self.rows.pop(node, None)

    def fetch(self) -> None:
        """Fetch each file once, from whichever of its nodes still answers."""
        pending = self._transfers()
        whole = sum(transfer.size_bytes for transfer in pending)
        done = 0
        self._progress(done, whole)
        while pending:
            by_node: dict[str, _Transfer] = {}
            for transfer in pending:
                self._choose_holder(transfer)
                if transfer.holders and len(by_node) < _AT_ONCE:
                    by_node.setdefault(transfer.holders[0], transfer)
            to = {
                node: {
                    "folder": self.folders[node], "path": t.path, "offset": t.offset,
                }
                for node, t in by_node.items()
                if t.offset < t.size_bytes
            }  # fmt: skip
            for node, reply in self._ask(READ, to):
                done += self._take(node, by_node[node], reply)
                self._progress(min(done, whole), whole)
            pending = [t for t in pending if t.holders and not self._is_whole(t)]

    def _transfers(self) -> list[_Transfer]:
        """What is to be fetched; a file that several nodes share is one."""
        shared: dict[tuple[str, int, int], list[str]] = {}
        for node, rows in self.rows.items():
            for row in rows:
                shared.setdefault(row, []).append(node)
        transfers: dict[str, _Transfer] = {}
        whole = 0
        for number, ((path, size, _), holders) in enumerate(shared.items()):
            node = holders[0]
            target = path if "/" in path else f"{node_folder(self._out, node).name}/{path}"
            whole += size if size <= MAX_FILE_BYTES else 0
            if target in transfers:
                self.left_out.append((node, path, "another node has another file of that name"))
            elif size > MAX_FILE_BYTES:
                self.left_out.append((node, path, f"larger than {MAX_FILE_BYTES >> 20} MiB"))
            elif whole > MAX_BYTES:
                self.left_out.append((node, path, f"more than {MAX_BYTES >> 30} GiB in all"))
            else:
                turn = number % len(holders)
                holders = [*holders[turn:], *holders[:turn]]
                transfers[target] = _Transfer(path, size, target, holders)
        return list(transfers.values())

    def _choose_holder(self, transfer: _Transfer) -> None:
        """Go on to the next node that has the file, from its beginning, where this one is lost."""
        while transfer.holders and transfer.holders[0] not in self._rpc.live:
            self._next_holder(transfer, f"its node was lost after {transfer.offset:,} bytes")

    def _next_holder(self, transfer: _Transfer, why: str) -> None:
        node = transfer.holders.pop(0)
        transfer.offset, transfer.digest = 0, hashlib.sha256()
        self._part(transfer).unlink(missing_ok=True)
        if not transfer.holders:
            self.left_out.append((node, transfer.path, why))

    def _take(self, node: str, transfer: _Transfer, reply: Message) -> int:
        """One part of a file; returns its size, bytes."""
        if reply.get("op") == "error":
            self._next_holder(transfer, _words(reply))
            return 0
        data, expected_bytes = b"", min(CHUNK_BYTES, transfer.size_bytes - transfer.offset)
        with self._judged(node):
            data = _data(reply, expected_bytes, transfer.path)
            if len(data) < expected_bytes:
                self._next_holder(transfer, "it became shorter while it was read")
            else:
                self._append(transfer, data)
        return len(data)

    def _is_whole(self, transfer: _Transfer) -> bool:
        if transfer.offset < transfer.size_bytes:
            return False
        if not transfer.size_bytes:
            self._append(transfer, b"")
        # A leader also has what the others captured: of equal files of one rank, one is enough.
        content = transfer.target.rpartition("/")[2], transfer.digest.digest()
        part, target = self._part(transfer), self._out / transfer.target
        if content in self._contents:
            part.unlink()
            return True
        self._contents.add(content)
        part.rename(target)
        self.files[transfer.target] = transfer.size_bytes
        return True

    def _append(self, transfer: _Transfer, data: bytes) -> None:
        part = self._part(transfer)
        part.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_CREAT | os.O_EXCL if not transfer.offset else 0
        with os.fdopen(os.open(part, flags, 0o600), "ab") as stream:
            stream.write(data)
        transfer.offset += len(data)
        transfer.digest.update(data)

    def _part(self, transfer: _Transfer) -> Path:
        """Where it is until it is whole: a hidden name, which no reader takes for a file."""
        folder, _, name = transfer.target.rpartition("/")
        return self._out / folder / f".{name}.part"

    def _ask(self, op: str, to: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Message]]:
        """The first reply of each node, in the order asked."""
        if not to:
            return []
        replies = self._rpc.ask(op, {}, to, from_each=dict.fromkeys(to, 1), deadline_s=self._step_s)
        return [(node, replies[node][0]) for node in to if node in replies]

    @contextlib.contextmanager
    def _judged(self, node: str) -> Iterator[None]:
        """A node that says what cannot be, or has no folder, is not asked again."""
        try:
            yield
        except _Refused as why:
            self.refused[node] = str(why)
            self._rpc.lose(node, str(why))
        except _Failed as why:
            self._rpc.lose(node, str(why))


def _words(reply: Message) -> str:
    return printable_line(str(reply.get("detail", "")))[:_MAX_WORDS] or "its agent gives no reason"


def _page(reply: Message, after: str) -> list[tuple[str, int, int]]:
    """The files of one page.

    Raises:
        _Failed: there are none to be had. _Refused: it cannot be.
    """
    if reply.get("op") == "error":
        raise _Failed(_words(reply))
    rows = reply.get("files")
    if not isinstance(rows, list) or len(rows) > FILES_A_PAGE:
        raise _Refused("its agent sent no list of files, or too long a one")
    page = [_row(row) for row in rows]
    paths = [after, *(path for path, _, _ in page)]
    if any(path >= later for path, later in itertools.pairwise(paths)):
        raise _Refused("its agent lists files twice, or in no order")
    if reply.get("more") is True and not page:
        raise _Refused("its agent promises files and lists none")
    return page


def _row(row: object) -> tuple[str, int, int]:
    if not isinstance(row, list) or len(row) != 3:
        raise _Refused("its agent lists what is no file")
    path, size, changed_ns = row
    if not isinstance(path, str) or not PATH.fullmatch(path):
        raise _Refused(f"its agent lists {printable_line(repr(path))[:100]}, no file of a hang")
    if type(size) is not int or type(changed_ns) is not int or size < 0:
        raise _Refused(f"its agent gives {path} no size")
    return path, size, changed_ns


def _data(reply: Message, most_bytes: int, path: str) -> bytes:
    text = reply.get("data")
    try:
        data = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Refused(f"its agent sent no data for {path}") from error
    if len(data) > most_bytes:
        raise _Refused(f"its agent sent {len(data):,} bytes of {path}, asked for {most_bytes:,}")
    return data
