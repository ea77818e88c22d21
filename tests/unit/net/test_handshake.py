"""Each end's proof: good for one connection, one round, one role and one label."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading

import pytest

from relkit.net import handshake
from relkit.net.dial import dial
from relkit.net.handshake import CONTROL, Label

SECRET = bytes(range(32))
ROUND = 3
DATA = Label(2, 7)


def proven(secret: bytes = SECRET, label: Label = DATA) -> tuple[bytes, bytes]:
    """(greeting, the answer to it)."""
    greeted = handshake.greeting()
    return greeted, handshake.answer(secret, ROUND, greeted, label)


def test_both_ends_prove_themselves_and_agree_on_the_label() -> None:
    greeted, answered = proven()
    accepted = handshake.check_answer(SECRET, ROUND, greeted, answered)
    assert accepted is not None
    label, confirmation = accepted
    assert label == DATA
    assert handshake.check_confirmation(SECRET, ROUND, greeted, answered, confirmation)


def test_a_label_that_was_changed_on_the_way_is_refused() -> None:
    greeted, answered = proven()
    at = handshake.NONCE_BYTES
    other = handshake.answer(SECRET, ROUND, greeted, Label(2, 8))
    changed = answered[:at] + other[at : at + 8] + answered[at + 8 :]
    assert changed != answered
    assert handshake.check_answer(SECRET, ROUND, greeted, changed) is None


def test_every_byte_of_an_answer_counts() -> None:
    greeted, answered = proven()
    for place in range(handshake.ANSWER_BYTES):
        changed = bytearray(answered)
        changed[place] ^= 1
        assert handshake.check_answer(SECRET, ROUND, greeted, bytes(changed)) is None, place


@pytest.mark.parametrize("size", [0, handshake.ANSWER_BYTES - 1, handshake.ANSWER_BYTES + 1])
def test_an_answer_of_another_length_is_refused(size: int) -> None:
    greeted, answered = proven()
    assert handshake.check_answer(SECRET, ROUND, greeted, (answered + b"x")[:size]) is None


def test_who_knows_the_secret_cannot_send_a_label_of_another_size() -> None:
    greeted, answered = proven()
    nonce = answered[: handshake.NONCE_BYTES]
    for packed in (b"", bytes(7), bytes(9)):
        text = b"connect|%d|" % ROUND + greeted[len(handshake.BANNER) :] + nonce + packed
        proof = hmac.new(SECRET, text, hashlib.sha256).digest()
        assert handshake.check_answer(SECRET, ROUND, greeted, nonce + packed + proof) is None


def test_an_answer_is_good_for_one_greeting_one_round_and_one_secret() -> None:
    greeted, answered = proven()
    assert handshake.check_answer(SECRET, ROUND, handshake.greeting(), answered) is None
    assert handshake.check_answer(SECRET, ROUND + 1, greeted, answered) is None
    assert handshake.check_answer(bytes(32), ROUND, greeted, answered) is None


def test_the_proof_of_one_end_is_none_of_the_other() -> None:
    greeted, answered = proven()
    mirrored = answered[-handshake.CONFIRMATION_BYTES :]
    assert not handshake.check_confirmation(SECRET, ROUND, greeted, answered, mirrored)
    assert not handshake.check_confirmation(SECRET, ROUND, greeted, answered, bytes(32))


def test_who_does_not_know_the_secret_is_not_taken_for_the_listener() -> None:
    """It greets like relkit, and confirms with whatever it has."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(handshake.greeting())
                answered = b""
                while len(answered) < handshake.ANSWER_BYTES:
                    answered += connection.recv(handshake.ANSWER_BYTES)
                connection.sendall(bytes(handshake.CONFIRMATION_BYTES))
                connection.recv(1)

        pretender = threading.Thread(target=pretend)
        pretender.start()
        with pytest.raises(PermissionError, match="does not know the secret"):
            dial("127.0.0.1", server.getsockname()[1], ROUND, SECRET, CONTROL, 20)
        pretender.join()
