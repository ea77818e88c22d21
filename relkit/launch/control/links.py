"""The notes that launchers of a job exchange over links of their own, and who leads them.

One thread joins the others, then sends a beat every second and passes notes on. Whoever puts or
reads a note never waits for the net, nor for the rendezvous store.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from relkit.launch.control.attachment import BEAT_S, SILENT_S, Attachment
from relkit.launch.control.board import Board
from relkit.launch.control.frame import (
    BadFrame,
    BeatDown,
    BeatUp,
    Frame,
    Note,
    Post,
    Shared,
    Wanted,
    decode,
    encode,
)
from relkit.launch.control.join import Joined, join
from relkit.launch.control.note_box import NoteBox
from relkit.launch.control.tree import FAN_IN
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import (
    MESSAGE_BYTES,
    ExchangeBroken,
    LauncherAddress,
    Mailbox,
)
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.net.operator_secret import derive

if TYPE_CHECKING:
    from relkit.launch.control.sockets import LinkSockets

# How long the end of the thread is waited for, s: it may be in a call to the store.
_CLOSE_S = 2.0
# A child that was not heard for this long has gone.
_CHILD_S = 2 * SILENT_S


@dataclass(slots=True)
class _Child:
    """Somebody who reports to this node.

    Args:
        heard_s: when it last sent a beat; attached: it takes this node for its parent.
        asks: it has looked for notes.
    """

    heard_s: float
    attached: bool = False
    asks: bool = False


class Links:
    """A launcher's links to the others; a mailbox, see LedMailbox, and others beside it.

    Args:
        attempt: of the launchers that it joins; mailbox: to these, in the store.
        log: writes one line to the terminal.
        fan_in: of the tree.
    """

    is_stuck = False

    def __init__(self, attempt: Attempt, mailbox: Mailbox, log: Log, fan_in: int = FAN_IN) -> None:
        self.node, self.nodes = mailbox.node, mailbox.nodes
        self._log = log
        self._attachment = Attachment(self.node, self.nodes, fan_in)
        self._box = NoteBox(self.node, self.nodes)
        self._box.move(self._attachment.path)
        self._board = Board(self.node, self.nodes)
        self._children: dict[bytes, _Child] = {}
        self._to_all: list[Note] = []
        self._broken: ExchangeBroken | None = None
        self._launcher_address: LauncherAddress | None = None
        self._complained = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(
            target=self._run,
            args=(partial(join, attempt, mailbox), fan_in),
            name="relkit-links",
            daemon=True,
        )
        self._thread.start()

    @property
    def leader(self) -> int:
        """See LedMailbox."""
        with self._lock:
            return self._box.leader

    @property
    def silent(self) -> frozenset[int]:
        """See LedMailbox."""
        return self._attachment.silent

    @property
    def launcher_address(self) -> LauncherAddress | None:
        """See LedMailbox."""
        return self._launcher_address

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox: from the leader to all, from the others to the leader.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            note = self._box.put(key, data)
            if not note.is_up:
                self._to_all.append(note)
            self._wake_up()

    def get(self, key: str) -> bytes | None:
        """See Mailbox.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            return self._box.get(key)

    def remove(self, key: str) -> None:
        """See Mailbox."""
        with self._lock:
            self._box.remove(key)

    def first(self, prefix: str) -> bytes | None:
        """See LedMailbox.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            return self._box.first(prefix)

    def share(self, data: bytes) -> None:
        """See LedMailbox.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            self._box.share(data)
            self._wake_up()

    def take_shared(self) -> list[bytes]:
        """See LedMailbox.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            return self._box.shared()

    def mailbox(self, purpose: str) -> Mailbox:
        """Notes for this purpose: whatever any of the launchers puts, all can read."""
        return _Notes(self, f"{purpose}/")

    def post(self, name: str, data: bytes) -> None:
        """Leave a note for all that look for it.

        Raises:
            ExchangeBroken: there are no links, or it is too large for them.
        """
        if len(data) > MESSAGE_BYTES:
            raise ExchangeBroken(f"a note of {len(data)} bytes is too large for the links")
        with self._lock:
            self._check()
            self._board.put(name, data)
            self._wake_up()

    def posted(self, name: str) -> bytes | None:
        """The note that one of the launchers has left, as far as it has come; it never waits.

        Raises:
            ExchangeBroken: there are no links.
        """
        with self._lock:
            self._check()
            data = self._board.get(name, time.monotonic())
            if self._board.has_questions:
                self._wake_up()
            return data

    def unpost(self, name: str) -> None:
        """Forget a note that was read."""
        with self._lock:
            self._board.remove(name)

    def close(self) -> None:
        """Leave the others."""
        with self._lock:
            if not self._closing.is_set():
                self._closing.set()
                os.eventfd_write(self._wake, 1)
        self._thread.join(_CLOSE_S)

    def _wake_up(self) -> None:
        if not self._closing.is_set():
            os.eventfd_write(self._wake, 1)

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _run(self, meet: Callable[..., Joined], fan_in: int) -> None:
        try:
            # Only here: a job of one node, and a command that starts none, load nothing of it.
            from relkit.launch.control.sockets import LinkSockets

            with contextlib.closing(LinkSockets(self._log)) as sockets:
                self._serve(sockets, meet(sockets.listen, self._closing.is_set, fan_in))
        except Exception as error:  # noqa: BLE001 (whatever it is, the job is watched without)
            broken = ExchangeBroken(f"no links to the other launchers: {error}")
            if not self._closing.is_set():
                self._log(warning(str(broken)))
            self._broken = broken
        finally:
            with self._lock:
                self._closing.set()
                os.close(self._wake)

    def _serve(self, sockets: LinkSockets, joined: Joined) -> None:
        if joined.address:
            beside = derive(joined.key, "beside the links")
            self._launcher_address = LauncherAddress(joined.address, beside)
        sockets.wake_by(self._wake)
        next_beat_s = 0.0
        while not self._closing.is_set():
            next_beat_s = self._turn(sockets, joined, next_beat_s)
        self._pass_on(sockets)

    def _turn(self, sockets: LinkSockets, joined: Joined, next_beat_s: float) -> float:
        """Wait, take what has come, pass on what is to go; returns when the next beat is due, s."""
        sockets.wait(max(0.0, min(BEAT_S, next_beat_s - time.monotonic())))
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        now_s = time.monotonic()
        for frame in sockets.from_above():
            self._take_from_above(frame, now_s)
        for child, frame in sockets.from_below():
            self._take_from_below(child, frame, now_s, sockets)
        for node in sockets.disconnected():
            self._attachment.disconnected(node, now_s)
            with self._lock:
                self._box.send_again()
                self._board.send_again()
        is_due = now_s >= next_beat_s
        self._look(now_s, sockets, joined, is_due)
        self._pass_on(sockets)
        # A node that others report to waits for theirs, so that all of it is one message.
        if is_due or not any(child.attached for child in self._children.values()):
            self._pass_on_shared(sockets)
        return now_s + BEAT_S if is_due else next_beat_s

    def _look(self, now_s: float, sockets: LinkSockets, joined: Joined, is_due: bool) -> None:
        """Choose the parent, and send beats where they are due."""
        attachment = self._attachment
        self._children = {
            each: child
            for each, child in self._children.items()
            if now_s - child.heard_s < _CHILD_S
        }
        path, parent = attachment.path, attachment.parent
        asked = attachment.look(now_s)
        for node in asked:
            if node in joined.endpoints:
                sockets.connect(node, joined.endpoints[node], joined.key)
        if attachment.path != path:
            with self._lock:
                self._box.move(attachment.path)
                self._board.move(leads=self._box.leads)
            for each in self._children:
                sockets.send_down(each, encode(BeatDown(self.node, attachment.path)))
        if is_due or attachment.parent != parent:
            for node in asked:
                sockets.send_up(node, encode(BeatUp(self.node, node == attachment.parent)))

    def _take_from_above(self, data: bytes, now_s: float) -> None:
        frame = self._decoded(data)
        if isinstance(frame, BeatDown):
            self._attachment.heard(frame.sender, frame.path, now_s)
        elif isinstance(frame, Note) and not frame.is_up:
            with self._lock:
                if self._box.take(frame):
                    self._to_all.append(frame)
        elif isinstance(frame, Post) and not frame.is_up:
            with self._lock:
                self._board.take(frame)

    def _take_from_below(
        self, sender: bytes, data: bytes, now_s: float, sockets: LinkSockets
    ) -> None:
        frame = self._decoded(data)
        if isinstance(frame, BeatUp):
            child = self._children.setdefault(sender, _Child(now_s))
            child.heard_s = now_s
            sockets.send_down(sender, encode(BeatDown(self.node, self._attachment.path)))
            if frame.attached and not child.attached:
                with self._lock:
                    notes = self._box.from_leader()
                for note in notes:
                    sockets.send_down(sender, encode(replace(note, sender=self.node)))
            child.attached = frame.attached
        elif isinstance(frame, Note) and frame.is_up:
            with self._lock:
                self._box.take(frame)
        elif isinstance(frame, Shared):
            with self._lock:
                self._box.take_shared(frame)
        elif isinstance(frame, Post) and frame.is_up:
            with self._lock:
                self._board.take(frame)
        elif isinstance(frame, Wanted):
            self._children.setdefault(sender, _Child(now_s)).asks = True
            with self._lock:
                answer = self._board.ask(frame, now_s)
            if answer is not None:
                sockets.send_down(sender, encode(answer))

    def _decoded(self, data: bytes) -> Frame | None:
        try:
            return decode(data, self.nodes)
        except BadFrame as error:
            if not self._complained:
                self._complained = True
                self._log(f"a launcher sent something that cannot be read: {error}")
        return None

    def _pass_on(self, sockets: LinkSockets) -> None:
        self._pass_on_posts(sockets)
        parent = self._attachment.parent
        with self._lock:
            down, self._to_all = self._to_all, []
            up = [] if parent is None else self._box.take_unsent()
        for note in down:
            frame = encode(replace(note, sender=self.node))
            for each, child in self._children.items():
                if child.attached:
                    sockets.send_down(each, frame)
        for number, note in enumerate(up):
            frame = encode(replace(note, sender=self.node))
            if parent is not None and not sockets.send_up(parent, frame):
                with self._lock:
                    for left in up[number:]:
                        self._box.put_back(left)
                return

    def _pass_on_posts(self, sockets: LinkSockets) -> None:
        parent = self._attachment.parent
        with self._lock:
            down = self._board.take_down()
            up = [] if parent is None else self._board.take_up()
        for post in down:
            frame = encode(post)
            for each, child in self._children.items():
                if child.asks:
                    sockets.send_down(each, frame)
        for number, each_up in enumerate(up):
            if parent is not None and not sockets.send_up(parent, encode(each_up)):
                with self._lock:
                    for left in up[number:]:
                        self._board.put_back(left)
                return

    def _pass_on_shared(self, sockets: LinkSockets) -> None:
        parent = self._attachment.parent
        if parent is None:
            return
        with self._lock:
            leader, data = self._box.leader, b"".join(self._box.shared())
        if data:
            # What cannot be sent is lost: all of it is soon shared anew.
            sockets.send_up(parent, encode(Shared(self.node, leader, data)))


class _Notes:
    """A mailbox over links; see Mailbox.

    Args:
        links: to the others; prefix: of its notes.
    """

    is_stuck = False

    def __init__(self, links: Links, prefix: str) -> None:
        self.node, self.nodes = links.node, links.nodes
        self._links, self._prefix = links, prefix

    def put(self, key: str, data: bytes) -> None:
        """See Mailbox; ExchangeBroken: there are no links."""
        self._links.post(self._prefix + key, data)

    def get(self, key: str) -> bytes | None:
        """See Mailbox; ExchangeBroken: there are no links."""
        return self._links.posted(self._prefix + key)

    def remove(self, key: str) -> None:
        """See Mailbox."""
        self._links.unpost(self._prefix + key)
