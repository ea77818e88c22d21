"""The protobuf wire format, strict and bounded: what a .stacktrace file is made of.

Written here because protobuf is no dependency of relkit, and because a dump comes from a host
that is already in trouble: every length is checked before it is used, groups are refused, and
nothing recurses. The encoding is the one of https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_MASK_64 = (1 << 64) - 1
_FIXED_SIZE = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """The bytes are not a well-formed message; says what is wrong and at which byte."""


def varint(value: int) -> bytes:
    """A number as a varint; negative ones as 64-bit two's complement, as protobuf does."""
    value &= _MASK_64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    """One integer field; nothing at all for 0, which proto3 leaves out."""
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """One length-delimited field, also when it is empty (a submessage, a repeated string)."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    """One string field; nothing for "". What UTF-8 cannot hold (lone surrogates) becomes "?"."""
    return bytes_field(number, value.encode("utf-8", "replace")) if value else b""


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The varint at a position, and the position behind it.

    Raises:
        WireError: it runs past `end`, or does not fit 64 bits.
    """
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MASK_64:
                raise WireError(f"a number longer than 64 bits before byte {at}")
            return value, at
        shift += 7
        if shift == 70:
            raise WireError(f"a number longer than 64 bits before byte {at}")
    raise WireError(f"cut off in the middle of a number at byte {end}")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """All fields of the message in data[at:end], one after the other.

    Yields:
        (number, wire type, a, b): for VARINT a is the value; otherwise data[a:b] is the content.
        b is the position behind the field in every case.

    Raises:
        WireError: cut off, a length beyond the end, a group, or field number 0.
    """
    while at < end:
        tag, at = read_varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < tag >> 3 < 1 << 29:
            raise WireError(f"field number {number} before byte {at}")
        if wire == VARINT:
            value, at = read_varint(data, at, end)
            yield number, wire, value, at
            continue
        if wire == BYTES:
            size, at = read_varint(data, at, end)
        elif wire in _FIXED_SIZE:
            size = _FIXED_SIZE[wire]
        else:
            raise WireError(f"field {number} has wire type {wire} before byte {at}")
        if size > end - at:
            raise WireError(
                f"field {number} wants {size} bytes at byte {at}, but only {end - at} are there"
            )
        yield number, wire, at, at + size
        at += size


def expect(number: int, wire: int, wanted: int) -> None:
    """Hold a known field's wire type against its definition.

    Raises:
        WireError: they differ, so this is no file of ours or the bytes are damaged.
    """
    if wire != wanted:
        raise WireError(f"field {number} has wire type {wire} instead of {wanted}")


def int32(value: int) -> int:
    """A varint's value as protobuf reads an int32: the low 32 bits, signed."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def int64(value: int) -> int:
    """A varint's value as a signed 64-bit number."""
    return value - (1 << 64) if value >> 63 else value
