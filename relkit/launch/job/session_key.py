"""The nodes of a rendezvous find out that they have the same secret, and agree on a key of it.

    hello/<n>   node n > 0 -> node 0: a nonce, and a proof of the secret where it has one
    session     node 0 -> all: all nonces, or why there is no session, with a proof
    read/<n>    node n -> the host of the store: it may go

The key depends on the nonces of all nodes. So notes of another rendezvous, even of a job with the
same name and secret, are worth nothing in this one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from relkit.errors import EXIT_USAGE, RelkitError
from relkit.launch.job.exchange import Mailbox, wait_for_notes
from relkit.net.operator_secret import derive
from relkit.text.foreign_json import parse_json

AGREE_S = 60.0
# How long a node that refuses stays, so that all can read why: it may host the store.
READ_S = 10.0
_MIN_POLL_S = 0.02
# What all nodes together ask of the store at most, and what node 0 does while it collects.
_MAX_READS_PER_S = 2_000
_MAX_LEADER_READS_PER_S = 20_000
_NONCE_BYTES = 16


class SecretMismatch(RelkitError):
    """The nodes of a job were not started with the same secret."""

    exit_code = EXIT_USAGE
    next_step = (
        "Give all nodes the same secret: --secret-file PATH (or RELKIT_SECRET) with the same"
        " content on each, or none on any."
    )


def agree(
    mailbox: Mailbox, key: bytes, timeout_s: float = AGREE_S, *, holds_store: bool = True
) -> bytes:
    """Have all nodes of a rendezvous agree; all of them call this, with or without a secret.

    Args:
        mailbox: in the rendezvous store, with a prefix of its own.
        key: of the job, from the operator's secret; b"" where this node has none.
        timeout_s: how long another node may take to come.
        holds_store: this node hosts the store, and stays until all know why there is no session.

    Returns:
        the key of this rendezvous, 32 bytes; b"" where no node has a secret.

    Raises:
        SecretMismatch: not all have the same secret; on each node that can still be told.
        ExchangeBroken: the store does not answer.
    """
    if mailbox.nodes == 1:
        return derive(key, "session", secrets.token_bytes(32)) if key else b""
    nonce = secrets.token_hex(_NONCE_BYTES)
    try:
        if mailbox.node == 0:
            nonces = _lead(mailbox, key, nonce, timeout_s)
        else:
            note = _seal(key, f"hello {mailbox.node}", {"nonce": nonce})
            mailbox.put(f"hello/{mailbox.node}", note)
            nonces = _follow(mailbox, key, nonce, timeout_s)
    except SecretMismatch:
        mailbox.put(f"read/{mailbox.node}", b"1")
        if holds_store:
            readers = [f"read/{node}" for node in range(mailbox.nodes)]
            wait_for_notes(mailbox, readers, READ_S)
        raise
    return derive(key, "session", json.dumps(nonces).encode()) if key else b""


def _lead(mailbox: Mailbox, key: bytes, nonce: str, timeout_s: float) -> Sequence[str]:
    until_s = time.monotonic() + timeout_s
    # Its own never comes from the store: an old one, put back, would bring an old key back.
    nonces = {0: nonce}
    refused = ""
    while len(nonces) < mailbox.nodes and not refused:
        for node in sorted(set(range(mailbox.nodes)) - nonces.keys()):
            note = mailbox.get(f"hello/{node}")
            if note is not None:
                fields, why = _open(key, f"hello {node}", note)
                nonces[node] = str(fields.get("nonce", ""))
                refused = refused or (f"node {node} {why}, unlike node 0" if why else "")
        if time.monotonic() > until_s:
            missing = sorted(set(range(mailbox.nodes)) - nonces.keys())
            if key and missing:
                refused = (
                    refused or f"node {missing[0]} sent no proof of the secret for {timeout_s:g} s"
                )
            break
        time.sleep(max(_MIN_POLL_S, mailbox.nodes / _MAX_LEADER_READS_PER_S))
    ordered = [nonces.get(node, "") for node in range(mailbox.nodes)]
    mailbox.put("session", _seal(key, "session", {"nonces": ordered, "refused": refused}))
    if refused:
        raise SecretMismatch(f"the nodes do not share one secret: {refused}")
    return ordered


def _follow(mailbox: Mailbox, key: bytes, nonce: str, timeout_s: float) -> Sequence[str]:
    # Longer than node 0 waits, so that its sentence is heard.
    until_s = time.monotonic() + 1.25 * timeout_s
    while time.monotonic() < until_s:
        note = mailbox.get("session")
        if note is not None:
            fields, why = _open(key, "session", note)
            if why:
                raise SecretMismatch(
                    f"the nodes do not share one secret: node 0 {why}, unlike"
                    f" this one (node {mailbox.node})"
                )
            if fields.get("refused"):
                raise SecretMismatch(f"the nodes do not share one secret: {fields['refused']}")
            nonces = fields.get("nonces")
            if (
                isinstance(nonces, list)
                and len(nonces) == mailbox.nodes
                and nonces[mailbox.node] == nonce
            ):
                return nonces
            if not key:
                return ()
        time.sleep(max(_MIN_POLL_S, mailbox.nodes / _MAX_READS_PER_S))
    if key:
        raise SecretMismatch(f"node 0 sent no proof of the secret for {1.25 * timeout_s:g} s")
    return ()


def _seal(key: bytes, name: str, fields: dict[str, Any]) -> bytes:
    body = json.dumps(fields)
    return json.dumps({"body": body, "proof": _proof(key, name, body)}).encode()


def _open(key: bytes, name: str, note: bytes) -> tuple[dict[str, Any], str]:
    """What a note says, and what is wrong with its proof ("" for nothing)."""
    try:
        outer = parse_json(note)
        body, proof = str(outer["body"]), str(outer["proof"])
        fields = parse_json(body)
        # A lone surrogate, which JSON can name and UTF-8 cannot hold, is a ValueError.
        is_right = hmac.compare_digest(proof.encode(), _proof(key, name, body).encode())
        if not isinstance(fields, dict):
            raise TypeError
    except (ValueError, LookupError, TypeError):
        return {}, "sent something else than a proof"
    if bool(proof) != bool(key):
        return fields, "has a secret" if proof else "has no secret"
    if not is_right:
        return fields, "has another secret"
    return fields, ""


def _proof(key: bytes, name: str, body: str) -> str:
    if not key:
        return ""
    return hmac.new(derive(key, "agree"), f"{name}\n{body}".encode(), hashlib.sha256).hexdigest()
