"""What goes over a link between two launchers, as bytes.

Each frame begins with what it is; numbers are in network byte order. Links are encrypted, and only
launchers of the job have their keys; still, bytes that are no frame are an error and nothing more.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from relkit.errors import RelkitError

_MAGIC, _VERSION = b"RL", 1
_HEAD = struct.Struct("!2sBBI")
_NODE = struct.Struct("!I")
_NOTE = struct.Struct("!IIH")
_POST, _WANTED = struct.Struct("!IQH"), struct.Struct("!Q")
_UP, _DOWN, _NOTE_UP, _NOTE_DOWN, _SHARED, _POST_UP, _POST_DOWN, _ASK = range(8)
# Nodes from the leader to a leaf, and bytes of a note's key.
MAX_PATH, MAX_KEY_BYTES = 64, 200


class BadFrame(RelkitError):
    """Bytes that are no frame of this version."""

    next_step = "Run the same version of relkit on all nodes."


@dataclass(frozen=True, slots=True)
class BeatUp:
    """A node lives.

    Args:
        sender: its number; attached: it takes the receiver for its parent.
    """

    sender: int
    attached: bool


@dataclass(frozen=True, slots=True)
class BeatDown:
    """A parent, or one that may become it, lives.

    Args:
        sender: its number; path: from the node that leads to the sender.
    """

    sender: int
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A note on its way.

    Args:
        sender: who passes it on; origin: who wrote it; leader: who led when it was written.
        is_up: to the leader; else from it, to all.
        key: its name; data: what it says.
    """

    sender: int
    origin: int
    leader: int
    is_up: bool
    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """What nodes share with the leader, on its way up: that of several in one frame.

    Args:
        sender: who passes it on; leader: who led when it was written.
        data: of one node behind that of another.
    """

    sender: int
    leader: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Post:
    """A note that any launcher may read, on its way; see `board.py`.

    Args:
        sender: who passes it on; origin: who wrote it; number: grows with each note of that one.
        is_up: to the leader; else to those that look for it.
        name: purpose and key; data: what it says.
    """

    sender: int
    origin: int
    number: int
    is_up: bool
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A note is looked for, and each newer one of that name.

    Args:
        sender: who looks for it, or somebody below; known: the number of what it has, 0 for none.
        name: purpose and key.
    """

    sender: int
    known: int
    name: str


Frame = BeatUp | BeatDown | Note | Shared | Post | Wanted


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    if isinstance(frame, BeatUp):
        return _head(_UP, frame.sender) + bytes([frame.attached])
    if isinstance(frame, BeatDown):
        return _head(_DOWN, frame.sender) + b"".join(_NODE.pack(each) for each in frame.path)
    if isinstance(frame, Shared):
        return _head(_SHARED, frame.sender) + _NODE.pack(frame.leader) + frame.data
    if isinstance(frame, Wanted):
        return _head(_ASK, frame.sender) + _WANTED.pack(frame.known) + frame.name.encode()
    if isinstance(frame, Post):
        name = frame.name.encode()
        head = _POST.pack(frame.origin, frame.number, len(name))
        return (
            _head(_POST_UP if frame.is_up else _POST_DOWN, frame.sender) + head + name + frame.data
        )
    key = frame.key.encode()
    kind = _NOTE_UP if frame.is_up else _NOTE_DOWN
    body = _NOTE.pack(frame.origin, frame.leader, len(key))
    return _head(kind, frame.sender) + body + key + frame.data


def _head(kind: int, sender: int) -> bytes:
    return _HEAD.pack(_MAGIC, _VERSION, kind, sender)


def decode(data: bytes, nodes: int) -> Frame:
    """The inverse of encode.

    Args:
        nodes: of the job.

    Raises:
        BadFrame: it is none, or names a node that the job does not have.
    """
    if len(data) < _HEAD.size:
        raise BadFrame(f"a frame of {len(data)} bytes")
    magic, version, kind, sender = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if (magic, version) != (_MAGIC, _VERSION):
        raise BadFrame(f"not a frame of version {_VERSION}")
    frame: Frame
    if kind == _UP and body in (b"\0", b"\1"):
        frame, named = BeatUp(sender, body == b"\1"), {sender}
    elif kind == _DOWN and 0 < len(body) <= MAX_PATH * _NODE.size and not len(body) % _NODE.size:
        path = tuple(each for (each,) in _NODE.iter_unpack(body))
        if path[-1] != sender:
            raise BadFrame("a path that does not end with its sender")
        frame, named = BeatDown(sender, path), set(path)
    elif kind in (_NOTE_UP, _NOTE_DOWN) and len(body) >= _NOTE.size:
        frame = _note(kind, sender, body)
        named = {sender, frame.origin, frame.leader}
    elif kind == _SHARED and len(body) >= _NODE.size:
        (leader,) = _NODE.unpack_from(body)
        frame, named = Shared(sender, leader, body[_NODE.size :]), {sender, leader}
    elif kind in (_POST_UP, _POST_DOWN) and len(body) >= _POST.size:
        frame = _post(kind, sender, body)
        named = {sender, frame.origin}
    elif kind == _ASK and len(body) > _WANTED.size:
        (known,) = _WANTED.unpack_from(body)
        frame, named = (
            Wanted(sender, known, _name(body[_WANTED.size :], len(body) - _WANTED.size)),
            {sender},
        )
    else:
        raise BadFrame(f"a frame of kind {kind} with {len(body)} bytes")
    if max(named) >= nodes:
        raise BadFrame(f"node {max(named)} of a job of {nodes}")
    return frame


def _note(kind: int, sender: int, body: bytes) -> Note:
    origin, leader, key_bytes = _NOTE.unpack_from(body)
    rest = body[_NOTE.size :]
    key = _name(rest, key_bytes)
    return Note(sender, origin, leader, kind == _NOTE_UP, key, rest[key_bytes:])


def _post(kind: int, sender: int, body: bytes) -> Post:
    origin, number, name_bytes = _POST.unpack_from(body)
    rest = body[_POST.size :]
    name = _name(rest, name_bytes)
    return Post(sender, origin, number, kind == _POST_UP, name, rest[name_bytes:])


def _name(data: bytes, size: int) -> str:
    if len(data) < size or size > MAX_KEY_BYTES:
        raise BadFrame(f"a note whose key has {size} bytes")
    try:
        return data[:size].decode()
    except UnicodeDecodeError as error:
        raise BadFrame("a note whose key is no text") from error
