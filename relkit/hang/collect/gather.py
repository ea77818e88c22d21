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
from collections import deque
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
from relkit.stacks.folder import node_folder
from relkit.text.printable import printable_line

MAX_FILES = 65_536
# One node that lists what it does not have leaves room for the others.
MAX_NODE_BYTES, MAX_BYTES = 8 << 30, 64 << 30
_MAX_FOLDER = 4096
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
class CollectedEvidence:
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
        digest: of what has come.
    """

    path: str
    size_bytes: int
    target: str
    holders: list[str]
    offset: int = 0
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
) -> CollectedEvidence:
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
        try:
            work.fetch()
        except OSError as error:
            raise UnwritablePath(f"cannot write below {out}: {error.strerror}") from error
    finally:
        channel.close(_CLOSE_S)
    silent |= {node: why for node, why in rpc.lost.items() if node not in work.refused}
    return CollectedEvidence(
        files=dict(sorted(work.files.items())),
        folders={n: printable_line(path)[:_MAX_WORDS] for n, path in work.folders.items()},
        silent=dict(sorted(silent.items())),
        refused=work.refused,
        empty=tuple(n for n in names if work.counts.get(n) == 0 and n not in work.refused),
        left_out=tuple(work.left_out),
    )


class _Gathering:
    """The state of one `gather`; arguments as there."""

    def __init__(
        self, rpc: AgentRpc, out: Path, timeline: str, step_s: float, progress: Progress
    ) -> None:
        self._rpc, self._out, self._timeline = rpc, out, timeline
        self._step_s, self._progress = step_s, progress
        # How many files each node that has answered lists, and its folder.
        self.counts: dict[str, int] = {}
        self.folders: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.left_out: list[tuple[str, str, str]] = []
        self.files: dict[str, int] = {}
        # File -> who has it: what a thousand nodes share is one row, not a thousand.
        self._rows: dict[tuple[str, int, int], list[str]] = {}
        self._queues: dict[str, deque[_Transfer]] = {}
        self._contents: set[tuple[str, bytes]] = set()

    def list_files(self, names: Sequence[str]) -> None:
        """Ask all nodes which files they have, some nodes at a time, page by page."""
        for first in range(0, len(names), _AT_ONCE):
            after = dict.fromkeys(names[first : first + _AT_ONCE], "")
            while after:
                to = {n: {"folder": self._timeline, "after": last} for n, last in after.items()}
                for node, reply in self._ask(LIST, to):
                    page = self._take_page(node, reply, after.pop(node))
                    if page and reply.get("more") is True and node in self._rpc.live:
                        after[node] = page[-1][0]
                after = {node: last for node, last in after.items() if node in self._rpc.live}

    def _take_page(self, node: str, reply: Message, after: str) -> list[tuple[str, int, int]]:
        page: list[tuple[str, int, int]] = []
        with self._judged(node):
            page = _page(reply, after)
            folder = reply.get("folder")
            if not isinstance(folder, str) or len(folder) > _MAX_FOLDER:
                raise _Refused("its agent names no folder")
            self.folders[node] = folder
            self.counts[node] = self.counts.get(node, 0) + len(page)
            if self.counts[node] > MAX_FILES:
                raise _Refused(f"its agent lists more than {MAX_FILES:,} files")
            for row in page:
                self._rows.setdefault(row, []).append(node)
        return page

    def fetch(self) -> None:
        """Fetch each file once, from whichever of its nodes still answers."""
        transfers = self._transfers()
        whole, done = sum(transfer.size_bytes for transfer in transfers), 0
        for transfer in transfers:
            self._enqueue(transfer)
        while self._queues:
            self._progress(min(done, whole), whole)
            heads = {node: self._queues[node][0] for node in list(self._queues)[:_AT_ONCE]}
            to = {
                node: {"folder": self.folders[node], "path": t.path, "offset": t.offset}
                for node, t in heads.items()
                if t.offset < t.size_bytes
            }
            for node, reply in self._ask(READ, to):
                done += self._take(node, heads[node], reply)
            for node, transfer in heads.items():
                self._go_on(node, transfer)
        self._progress(whole, whole)

    def _go_on(self, node: str, transfer: _Transfer) -> None:
        """After a part of a file: the next part, the next file, or another node."""
        queue = self._queues[node]
        is_moved = node not in transfer.holders
        if is_moved or transfer.offset >= transfer.size_bytes:
            queue.popleft()
            if is_moved:
                self._enqueue(transfer)
            else:
                self._keep(transfer)
        if not queue or node not in self._rpc.live:
            for left in self._queues.pop(node):
                self._enqueue(left)

    def _enqueue(self, transfer: _Transfer) -> None:
        """To the first of its nodes that still answers."""
        while transfer.holders and transfer.holders[0] not in self._rpc.live:
            self._next_holder(transfer, f"its node was lost after {transfer.offset:,} bytes")
        if transfer.holders:
            self._queues.setdefault(transfer.holders[0], deque()).append(transfer)

    def _transfers(self) -> list[_Transfer]:
        """What is to be fetched; a file that several nodes share is one."""
        transfers: dict[str, _Transfer] = {}
        of_node: dict[str, int] = {}
        whole = 0
        for number, ((path, size, _), nodes) in enumerate(self._rows.items()):
            holders = [node for node in nodes if node not in self.refused]
            if not holders:
                continue
            node, why_not = holders[0], ""
            target = path if "/" in path else f"{node_folder(self._out, node).name}/{path}"
            if target in transfers:
                why_not = "another node has another file of that name"
            elif size > MAX_FILE_BYTES:
                why_not = f"larger than {MAX_FILE_BYTES >> 20} MiB"
            elif of_node.get(node, 0) + size > MAX_NODE_BYTES:
                why_not = f"more than {MAX_NODE_BYTES >> 30} GiB of one node"
            elif whole + size > MAX_BYTES:
                why_not = f"more than {MAX_BYTES >> 30} GiB in all"
            if why_not:
                self.left_out.append((node, path, why_not))
                continue
            whole, of_node[node] = whole + size, of_node.get(node, 0) + size
            turn = number % len(holders)
            transfers[target] = _Transfer(path, size, target, holders[turn:] + holders[:turn])
        return list(transfers.values())

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

    def _keep(self, transfer: _Transfer) -> None:
        """It is whole."""
        if not transfer.size_bytes:
            self._append(transfer, b"")
        # A leader also has what the others captured: of equal files of one rank, one is enough.
        content = transfer.target.rpartition("/")[2], transfer.digest.digest()
        part, target = self._part(transfer), self._out / transfer.target
        if content in self._contents:
            part.unlink()
            return
        self._contents.add(content)
        part.rename(target)
        self.files[transfer.target] = transfer.size_bytes

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
