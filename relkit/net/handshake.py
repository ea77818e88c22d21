"""Each end of a connection proves that it knows a shared secret, without sending the secret.

    accepting end  ->  banner (8 bytes), nonce (24)
    connecting end ->  nonce (24), label (8), HMAC-SHA256 of both nonces, round and label (32)
    accepting end  ->  confirmation: HMAC-SHA256 of the same, in the accepting role (32)

The role is part of the HMAC, so one end's message cannot be replayed as the other's; the round is
part of it, so a message of one round cannot be used in the next.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

BANNER = b"relkit/1"
NONCE_BYTES = 24
GREETING_BYTES = len(BANNER) + NONCE_BYTES
_LABEL = struct.Struct("!II")
_MAC_BYTES = hashlib.sha256().digest_size
ANSWER_BYTES = NONCE_BYTES + _LABEL.size + _MAC_BYTES
CONFIRMATION_BYTES = _MAC_BYTES


@dataclass(frozen=True, slots=True, order=True)
class Label:
    """What a connection is for: phase 0 is the control connection, others carry data.

    Args:
        phase: number of the phase within the round; stream: number of the stream in it.
    """

    phase: int = 0
    stream: int = 0


CONTROL = Label()


def greeting() -> bytes:
    """The first bytes that the accepting end sends."""
    return BANNER + secrets.token_bytes(NONCE_BYTES)


def _mac(secret: bytes, end: bytes, round_number: int, nonces: bytes, label: bytes) -> bytes:
    text = b"%s|%d|" % (end, round_number) + nonces + label
    return hmac.new(secret, text, hashlib.sha256).digest()


def answer(secret: bytes, round_number: int, greeted: bytes, label: Label) -> bytes:
    """What the connecting end replies to a greeting."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    packed = _LABEL.pack(label.phase, label.stream)
    nonces = greeted[len(BANNER) :] + nonce
    return nonce + packed + _mac(secret, b"connect", round_number, nonces, packed)


def check_answer(
    secret: bytes, round_number: int, greeted: bytes, answered: bytes
) -> tuple[Label, bytes] | None:
    """The label and the accepting end's confirmation; None if the peer does not know the secret."""
    if len(answered) != ANSWER_BYTES:
        return None
    nonce, packed = answered[:NONCE_BYTES], answered[NONCE_BYTES:-_MAC_BYTES]
    nonces = greeted[len(BANNER) :] + nonce
    expected = _mac(secret, b"connect", round_number, nonces, packed)
    if not hmac.compare_digest(expected, answered[-_MAC_BYTES:]):
        return None
    confirmation = _mac(secret, b"accept", round_number, nonces, packed)
    return Label(*_LABEL.unpack(packed)), confirmation


def check_confirmation(
    secret: bytes, round_number: int, greeted: bytes, answered: bytes, confirmation: bytes
) -> bool:
    """Whether the accepting end knows the secret as well."""
    nonces = greeted[len(BANNER) :] + answered[:NONCE_BYTES]
    packed = answered[NONCE_BYTES:-_MAC_BYTES]
    expected = _mac(secret, b"accept", round_number, nonces, packed)
    return hmac.compare_digest(expected, confirmation)
