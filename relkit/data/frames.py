"""The protocol between a worker and its parent: frames of several byte strings over two pipes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from relkit import errors
from relkit.data.documents import Chunk
from relkit.data.encode import Encoded

_COUNT = struct.Struct("<I")
_SIZE = struct.Struct("<Q")


def write_frame(stream: IO[bytes], *parts: bytes | memoryview) -> None:
    """Send one frame."""
    stream.write(_COUNT.pack(len(parts)))
    for part in parts:
        stream.write(_SIZE.pack(len(part)))
        stream.write(part)
    stream.flush()


def read_frame(stream: IO[bytes]) -> list[bytes]:
    """Receive one frame.

    Raises:
        EOFError: the other end has closed the pipe.
    """
    (count,) = _COUNT.unpack(_exactly(stream, _COUNT.size))
    sizes = (_SIZE.unpack(_exactly(stream, _SIZE.size))[0] for _ in range(count))
    return [_exactly(stream, size) for size in sizes]


def chunk_parts(chunk: Chunk) -> tuple[bytes, bytes]:
    """A chunk as the parts of a frame."""
    place = {"where": chunk.where, "unit": chunk.unit, "first": chunk.first}
    return json.dumps(place).encode(), chunk.data


def to_chunk(parts: Sequence[bytes]) -> Chunk:
    """The chunk of a frame's parts."""
    return Chunk(data=parts[1], done_bytes=0, **json.loads(parts[0]))


def encoded_parts(encoded: Sequence[Encoded]) -> Iterator[bytes | memoryview]:
    """What was encoded under each key, as the parts of a frame."""
    for documents in encoded:
        yield documents.data
        yield documents.lengths.tobytes()
        yield documents.sequences_per_document.tobytes()


def to_encoded(parts: Sequence[bytes]) -> list[Encoded]:
    """What was encoded under each key, of a frame's parts."""
    return [
        Encoded(data, np.frombuffer(lengths, np.int32), np.frombuffer(counts, np.int64))
        for data, lengths, counts in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def error_part(error: errors.RelkitError) -> bytes:
    """An expected error, as a part of a frame."""
    plain = {"kind": type(error).__name__, "message": str(error), "next_step": error.next_step}
    return json.dumps(plain).encode()


def to_error(part: bytes) -> errors.RelkitError:
    """The error of a frame's part."""
    plain = json.loads(part)
    kind: type[errors.RelkitError] = getattr(errors, plain["kind"])
    return kind(plain["message"], next_step=plain["next_step"])


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the other end has closed the pipe")
    return data
