"""Notes that any launcher leaves for any other, by name (no sockets).

Each launcher keeps what it has written, and what has come from those below it, and sends that up to
the node that leads, which so has the notes of all. Down goes only what somebody below has looked
for, and each newer note of that name. A change of the leader, or of the way to it, loses nothing
that its author still has: all of it is sent up anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from relkit.launch.control.frame import Post, Wanted

# Of one purpose: names, by node of the job, and bytes. Beyond that the oldest are forgotten.
_MAX_NAMES_A_NODE, _MAX_PURPOSE_BYTES = 256, 256 << 20
_MAX_PURPOSES = 64
# Names that are looked for, by node of the job.
_MAX_WANTED_A_NODE = 64
# A note that is still looked for is asked for again: the question or the answer may be lost, s.
ASK_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A note.

    Args:
        origin: who wrote it; number: grows with each note of that one.
        data: what it says; None once it was removed here, so that it does not come back.
        goes_up: written here or below; else it has come from above.
    """

    origin: int
    number: int
    data: bytes | None
    goes_up: bool = True


class _Shelf:
    """The notes of one purpose; the oldest make room.

    Args:
        max_names: how many there may be.
    """

    def __init__(self, max_names: int) -> None:
        self._max_names = max_names
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def get(self, name: str) -> _Kept | None:
        """What is kept under a name."""
        return self._kept.get(name)

    def keep(self, name: str, note: _Kept) -> None:
        """Replace what is under a name."""
        self._forget(name)
        self._kept[name] = note
        self._bytes += len(note.data or b"")
        # Never the one that has just come.
        while len(self._kept) > 1 and self._is_full():
            self._forget(next(iter(self._kept)))

    def going_up(self) -> Iterator[str]:
        """The names of what was written here or below."""
        return (name for name, note in self._kept.items() if note.goes_up)

    def _is_full(self) -> bool:
        return len(self._kept) > self._max_names or self._bytes > _MAX_PURPOSE_BYTES

    def _forget(self, name: str) -> None:
        gone = self._kept.pop(name, None)
        if gone is not None:
            self._bytes -= len(gone.data or b"")


class Board:
    """The notes of one launcher; used under its owner's lock.

    Args:
        node: this launcher's number; nodes: how many there are.
    """

    def __init__(self, node: int, nodes: int) -> None:
        self._node = node
        self._leads = node == 0
        self._max_names, self._max_wanted = _MAX_NAMES_A_NODE * nodes, _MAX_WANTED_A_NODE * nodes
        self._number = 0
        self._shelves: dict[str, _Shelf] = {}
        # When each name was last asked for, s; those that were not for longest come first.
        self._wanted: dict[str, float] = {}
        # Names of what is still to be asked for, and to be sent.
        self._asks: dict[str, None] = {}
        self._up: dict[str, None] = {}
        self._down: dict[str, None] = {}

    def put(self, name: str, data: bytes) -> None:
        """Write a note.

        Args:
            name: begins with its purpose and a slash.
        """
        self._number += 1
        self._keep(name, _Kept(self._node, self._number, data))

    def get(self, name: str, now_s: float) -> bytes | None:
        """The note under a name, as far as it has come; from now on newer ones come as well.

        Args:
            now_s: monotonic time, s.
        """
        note = self._shelf(name).get(name)
        if not self._leads and (note is None or note.origin != self._node):
            self._want(name, now_s)
        return None if note is None else note.data

    def remove(self, name: str) -> None:
        """Forget a note that was read."""
        shelf = self._shelf(name)
        note = shelf.get(name)
        if note is not None:
            shelf.keep(name, replace(note, data=None))

    def move(self, *, leads: bool) -> None:
        """This node's way to the leader has changed, or it leads itself."""
        self._leads = leads
        self.send_again()

    def send_again(self) -> None:
        """What this node has sent up may be lost."""
        if self._leads:
            self._up.clear()
            self._asks.clear()
            return
        self._asks = dict.fromkeys(self._wanted)
        for shelf in self._shelves.values():
            self._up |= dict.fromkeys(shelf.going_up())

    def take(self, post: Post) -> None:
        """A note has come, from below or from above."""
        if not post.is_up and post.name not in self._wanted:
            return
        known = self._shelf(post.name).get(post.name)
        if known is None or known.origin != post.origin or known.number < post.number:
            note = _Kept(post.origin, post.number, post.data, goes_up=post.is_up)
            self._keep(post.name, note)

    def ask(self, wanted: Wanted, now_s: float) -> Post | None:
        """Somebody below looks for a note.

        Args:
            now_s: monotonic time, s.

        Returns:
            the answer, if there is one yet.
        """
        self._want(wanted.name, now_s)
        post = self._post(wanted.name, is_up=False)
        return None if post is None or post.number == wanted.known else post

    @property
    def has_questions(self) -> bool:
        """Something is to be asked for."""
        return bool(self._asks)

    def take_up(self) -> list[Post | Wanted]:
        """What is to go to the parent, which may not be reached: see `put_back`."""
        # First what is looked for: who has the answer may end soon after what else is sent.
        asks, self._asks = self._asks, {}
        up, self._up = self._up, {}
        return [*map(self._wanted_of, asks), *self._posts(up, is_up=True)]

    def put_back(self, frame: Post | Wanted) -> None:
        """It could not be sent."""
        (self._asks if isinstance(frame, Wanted) else self._up).setdefault(frame.name)

    def take_down(self) -> list[Post]:
        """What is to go to those below that have looked for something."""
        down, self._down = self._down, {}
        return self._posts(down, is_up=False)

    def _shelf(self, name: str) -> _Shelf:
        purpose = name.partition("/")[0]
        shelf = self._shelves.get(purpose)
        if shelf is None:
            while len(self._shelves) >= _MAX_PURPOSES:
                self._shelves.pop(next(iter(self._shelves)))
            shelf = self._shelves[purpose] = _Shelf(self._max_names)
        return shelf

    def _want(self, name: str, now_s: float) -> None:
        asked_s = self._wanted.get(name)
        if asked_s is not None and now_s - asked_s < ASK_AGAIN_S:
            return
        self._wanted.pop(name, None)
        self._wanted[name] = now_s
        while len(self._wanted) > self._max_wanted:
            self._wanted.pop(next(iter(self._wanted)))
        if not self._leads:
            self._asks[name] = None

    def _wanted_of(self, name: str) -> Wanted:
        note = self._shelf(name).get(name)
        return Wanted(self._node, 0 if note is None else note.number, name)

    def _keep(self, name: str, note: _Kept) -> None:
        self._shelf(name).keep(name, note)
        if name in self._wanted:
            self._down[name] = None
        if note.goes_up and not self._leads:
            self._up[name] = None

    def _posts(self, names: Iterable[str], *, is_up: bool) -> list[Post]:
        posts = (self._post(name, is_up=is_up) for name in names)
        return [post for post in posts if post is not None]

    def _post(self, name: str, *, is_up: bool) -> Post | None:
        """None where it was forgotten, or removed."""
        note = self._shelf(name).get(name)
        if note is None or note.data is None:
            return None
        return Post(self._node, note.origin, note.number, is_up, name, note.data)
