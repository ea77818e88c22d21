"""Which notes a launcher holds, and which of them its parent does not have yet (no sockets)."""

from __future__ import annotations

from collections import deque

from relkit.launch.control.frame import Note, Shared

# Notes of one launcher that others keep: a summary, failures, and what an incident takes.
_MAX_NOTES_A_NODE = 64
# What one child has shared and could not be passed on, or was not taken: the newest of it.
_MAX_SHARED = 4


class NoteBox:
    """Notes of one launcher; used under its owner's lock.

    A note goes up to the leader, or down from it to all. One that goes up is the leader's only for
    as long as that one leads: whoever follows it is told anew.

    Args:
        node: this launcher's number; nodes: how many there are.
    """

    def __init__(self, node: int, nodes: int) -> None:
        self._node, self._max_notes = node, _MAX_NOTES_A_NODE * nodes
        self._path: tuple[int, ...] = ()
        # What others have sent up to this node, and what leaders have sent down.
        self._arrived: dict[str, bytes] = {}
        self._from_leaders: dict[tuple[int, str], Note] = {}
        # By author and key: of this node, and on their way through it.
        self._own: dict[tuple[int, str], Note] = {}
        self._unsent: dict[tuple[int, str], Note] = {}
        # What others have shared, by the child that it came from, and this node itself.
        self._shared: dict[int, deque[bytes]] = {}

    @property
    def leader(self) -> int:
        """The node that leads."""
        return self._path[0] if self._path else 0

    @property
    def leads(self) -> bool:
        """This node is the leader."""
        return self._path == (self._node,)

    def move(self, path: tuple[int, ...]) -> None:
        """This node's path from the leader has changed.

        Args:
            path: ends with this node.
        """
        if self._path[:1] != path[:1]:
            self._own.clear()
            self._unsent.clear()
            self._shared.clear()
        self._path = path
        self.send_again()

    def send_again(self) -> None:
        """What this node has sent up may be lost: its way to the leader was broken."""
        if not self.leads:
            self._unsent |= self._own

    def put(self, key: str, data: bytes) -> Note:
        """Write a note: as the leader to all, else to the leader.

        Returns:
            it; one that goes down is to be passed on at once.
        """
        leader = self.leader
        note = Note(self._node, self._node, leader, not self.leads, key, data)
        if note.is_up:
            self._own[self._node, key] = self._unsent[self._node, key] = note
        else:
            self._from_leaders[leader, key] = note
        return note

    def get(self, key: str) -> bytes | None:
        """What the others have sent up under a key where this node leads, else its leader's."""
        if self.leads:
            return self._arrived.get(key)
        note = self._from_leaders.get((self.leader, key))
        return None if note is None else note.data

    def first(self, prefix: str) -> bytes | None:
        """The note of the lowest other node under PREFIXnode, where this node leads."""
        if not self.leads:
            return None
        # Few notes wait here while a job is healthy, however many nodes it has.
        under = (key[len(prefix) :] for key in self._arrived if key.startswith(prefix))
        nodes = [int(node) for node in under if node.isascii() and node.isdigit()]
        return self._arrived[f"{prefix}{min(nodes)}"] if nodes else None

    def remove(self, key: str) -> None:
        """Forget what was sent up under a key."""
        self._arrived.pop(key, None)

    def take(self, note: Note) -> bool:
        """A note has come.

        Returns:
            True where it goes down and is new here: it is to be passed on.
        """
        if not note.is_up:
            known = self._from_leaders.get((note.leader, note.key))
            is_new = known is None or known.data != note.data
            if is_new and (known or len(self._from_leaders) < self._max_notes):
                self._from_leaders[note.leader, note.key] = note
            return is_new
        if not self.leads:
            if len(self._unsent) < self._max_notes:
                self._unsent[note.origin, note.key] = note
        elif note.leader == self._node and (
            note.key in self._arrived or len(self._arrived) < self._max_notes
        ):
            self._arrived[note.key] = note.data
        return False

    def share(self, data: bytes) -> None:
        """Tell the leader what replaces whatever this node has shared before."""
        if not self.leads:
            self._shared[self._node] = deque([data])

    def take_shared(self, shared: Shared) -> None:
        """What nodes have shared has come; where that is for another leader, it is left out."""
        if shared.leader == self.leader and shared.sender != self._node:
            self._shared.setdefault(shared.sender, deque(maxlen=_MAX_SHARED)).append(shared.data)

    def shared(self) -> list[bytes]:
        """What has been shared since the last call: to be taken, or passed on as one."""
        taken, self._shared = self._shared, {}
        return [data for of_child in taken.values() for data in of_child]

    def take_unsent(self) -> list[Note]:
        """What is to go to the parent, which may not be reached: see `put_back`."""
        notes, self._unsent = list(self._unsent.values()), {}
        return notes

    def put_back(self, note: Note) -> None:
        """It could not be sent."""
        self._unsent.setdefault((note.origin, note.key), note)

    def from_leader(self) -> list[Note]:
        """All that the present leader has sent down, for a child that has just come."""
        return [note for note in self._from_leaders.values() if note.leader == self.leader]
