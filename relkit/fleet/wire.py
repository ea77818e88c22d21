"""The lines between controller and agents: JSON, one object a line, bounded, in parts if long."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from relkit.text.foreign_json import parse_object

PROTOCOL = 1
MAX_LINE_BYTES = 1 << 20
# A part holds JSON inside JSON: quotes and backslashes double, the envelope adds its own.
_ENVELOPE_BYTES = 160


class BadLine(ValueError):
    """A line that is not a message; the text has the reason, with control characters escaped.

    Args:
        text: why.
        node: whose line it is, where many share a stream and the line has its name.
    """

    def __init__(self, text: str, node: str = "") -> None:
        super().__init__(text)
        self.node = node


def encode(message: Mapping[str, Any]) -> bytes:
    """One line for a message.

    Raises:
        BadLine: it is longer than MAX_LINE_BYTES.
    """
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise BadLine(f"a message of {len(line)} bytes; at most {MAX_LINE_BYTES} may be sent")
    return line


def in_parts(line: bytes, node: str, limit_bytes: int) -> Iterator[bytes]:
    """The line itself, or pieces of it with the node's tag on each.

    A carrier that merges the output of many tasks keeps only short lines whole (Slurm: 1024
    bytes): a long one arrives interleaved with others.

    Args:
        line: one encoded message.
        node: the sender's name.
        limit_bytes: longest line that the carrier keeps whole; 0 for any length.
    """
    if not limit_bytes or len(line) <= limit_bytes:
        yield line
        return
    step = max(1, (limit_bytes - _ENVELOPE_BYTES - len(node)) // 2)
    text = line.decode().rstrip("\n")
    for start in range(0, len(text), step):
        last = start + step >= len(text)
        yield encode({"node": node, "part": text[start : start + step], "last": last})


def decode(line: bytes) -> dict[str, Any]:
    """The message in one line.

    Raises:
        BadLine: not JSON, or not an object.
    """
    try:
        return parse_object(line)
    except ValueError as error:
        raise BadLine(f"a line that is not a JSON object: {printable(line)}") from error


def printable(raw: bytes, limit: int = 100) -> str:
    """Bytes from elsewhere as one short line that is safe to show in a terminal."""
    text = raw[: limit + 1].decode("utf-8", "replace").strip()
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:limit])
    return f"{shown}..." if len(raw) > limit else shown


class Reassembler:
    """Reassembles long messages from their parts; one bounded message a node."""

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}
        self._sizes: dict[str, int] = {}

    def feed(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The message itself, or the whole one when its last part came; None in between.

        Raises:
            BadLine: the parts are not text, are too long, or do not form a message.
        """
        if "part" not in message:
            return message
        node, part = str(message.get("node")), message["part"]
        if not isinstance(part, str):
            raise BadLine("a part that is not text", node)
        parts = self._parts.setdefault(node, [])
        parts.append(part)
        # Counted as it grows: the sum over a million short parts, at each of them, never ends.
        self._sizes[node] = self._sizes.get(node, 0) + len(part) + 1
        if self._sizes[node] > MAX_LINE_BYTES:
            raise BadLine(f"a message of more than {MAX_LINE_BYTES} bytes in parts", node)
        if not message.get("last"):
            return None
        del self._parts[node], self._sizes[node]
        try:
            return decode("".join(parts).encode())
        except UnicodeEncodeError as error:
            raise BadLine("a message in parts that is not text", node) from error
        except BadLine as error:
            raise BadLine(str(error), node) from error
