"""torch's rendezvous state with a proof of the operator's secret.

torch keeps it in the rendezvous store as a pickle, and unpickles what is there: whoever can write
to the store could run programs as the job's user. With a secret only what a launcher of this job
has written is handed to torch. Once the nodes have met, what somebody else does to the state is
undone: none of it ends a job that runs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token

from relkit.launch.job.mismatch_notes import HAS, MismatchNotes
from relkit.launch.job.settings import Log
from relkit.log_lines import warning
from relkit.net.operator_secret import derive

_MAGIC = b"relkit sealed state 2\n"
_MAC_BYTES = hashlib.sha256().digest_size
# Which secret the waiting nodes have, as a node that cannot join puts it.
_PEER_HAS = {**HAS, "none": HAS["one"], "one": HAS["none"]}
_DOUBT = {"another": "", "none": "", "one": ", or somebody else writes to the rendezvous"}
# Of the series that a state belongs to, and its number there.
_PLACE = struct.Struct("!16sQ")
# How often a state is put back at once, against somebody who goes on overwriting it.
_ATTEMPTS = 3


class ForeignState(RendezvousStateError):
    """The rendezvous is not one of launchers that have this one's secret."""


@dataclass(frozen=True, slots=True)
class _State:
    """A state with a good proof.

    Args:
        body: torch's; sealed: as it is in the store.
        series: made at random by who wrote the first one; number: of this one, counted from 1.
    """

    body: bytes = field(repr=False)
    sealed: bytes = field(repr=False)
    series: bytes
    number: int


class SealedBackend(RendezvousBackend):
    """A rendezvous backend whose state carries a proof.

    Args:
        inner: torch's.
        key: of the job; b"" where this node has no secret: then it refuses states with a proof.
        mismatch: what this node and others learn of each other where their secrets differ.
        log: gets one line, once, where somebody else has changed the state.
    """

    def __init__(
        self, inner: RendezvousBackend, key: bytes, mismatch: MismatchNotes, log: Log
    ) -> None:
        self._inner, self._mismatch, self._log = inner, mismatch, log
        self._key = derive(key, "rendezvous") if key else b""
        # What was last read or written.
        self._newest: _State | None = None
        self._holds = False
        self._complained = False

    @property
    def name(self) -> str:
        """See RendezvousBackend."""
        return self._inner.name

    def hold(self) -> None:
        """The nodes have met: from now on only a newer state of theirs counts.

        Anything else, such as one of an earlier run or an older one of this, is replaced by what
        this node knows. Nothing is held without a secret.
        """
        self._holds = self._newest is not None

    @property
    def _held(self) -> _State | None:
        return self._newest if self._holds else None

    def get_state(self) -> tuple[bytes, Token] | None:
        """See RendezvousBackend."""
        self._mismatch.look()
        if self._held is not None:
            return self._defended()
        current = self._inner.get_state()
        if current is None:
            self._newest = None
            return None
        return self._open(current[0]), current[1]

    def set_state(
        self, state: bytes, token: Token | None = None
    ) -> tuple[bytes, Token, bool] | None:
        """See RendezvousBackend."""
        if self._held is not None:
            return self._set_defended(state, token)
        current = self._inner.set_state(self._seal(state), token)
        if current is None:
            return None
        if current[2]:
            self._mismatch.sign()
        return self._open(current[0]), current[1], current[2]

    def _set_defended(self, state: bytes, token: Token) -> tuple[bytes, Token, bool]:
        # First, as nothing can be written in the place of a state that is gone.
        self._defended()
        sealed = self._seal(state)
        stored, token = self._swap(token, sealed)
        if stored is None or not self._is_newer(stored):
            return *self._defended(), False
        return self._open(stored), token, stored == sealed

    def _defended(self) -> tuple[bytes, Token]:
        """The state in the store, after this node has put back what somebody else took away."""
        assert self._held is not None
        token: Token = None
        for _ in range(_ATTEMPTS):
            stored, token = self._read(self._held.sealed)
            if stored is not None and self._is_newer(stored):
                return self._open(stored), token
            self._complain()
            self._swap(token, self._held.sealed)
        return self._held.body, token

    def _is_newer(self, sealed: bytes) -> bool:
        """Whether a launcher of this job has written it, after what is held or as that."""
        if self._why_foreign(sealed):
            return False
        state, held = self._parse(sealed), self._held
        return held is not None and state.series == held.series and state.number >= held.number

    def _read(self, held: bytes) -> tuple[bytes | None, Token]:
        """What the store has, None for what torch cannot decode, and the token to replace it."""
        inner = self._inner
        if not isinstance(inner, C10dRendezvousBackend):
            current = inner.get_state()
            return (None, None) if current is None else current
        if not inner._call_store("check", [inner._key]):
            return None, b""
        # Unlike get(), this does not wait where the key is removed at this moment.
        return self._swap(b64encode(held), held)

    def _swap(self, token: Token, sealed: bytes) -> tuple[bytes | None, Token]:
        """Write a state where the token is still that of what is there; as `_read`."""
        inner = self._inner
        if not isinstance(inner, C10dRendezvousBackend):
            current = inner.set_state(sealed, token)
            return (None, None) if current is None else current[:2]
        raw: bytes = inner._call_store("compare_set", inner._key, token, b64encode(sealed))
        try:
            return b64decode(raw, validate=True), raw
        except ValueError:
            return None, raw

    def _seal(self, body: bytes) -> bytes:
        if not self._key:
            return body
        newest = self._newest
        series, number = (newest.series, newest.number) if newest else (secrets.token_bytes(16), 0)
        content = _PLACE.pack(series, number + 1) + body
        return _MAGIC + self._mac(content) + content

    def _open(self, sealed: bytes) -> bytes:
        """torch's part of a state.

        Raises:
            ForeignState: no launcher of this job has written it.
        """
        why = self._why_foreign(sealed)
        if why:
            raise self._foreign(why)
        if not self._key:
            return sealed
        self._newest = self._parse(sealed)
        return self._newest.body

    def _why_foreign(self, sealed: bytes) -> str:
        """Which secret whoever wrote it has, one of HAS; "" for this node's."""
        has_proof = sealed.startswith(_MAGIC)
        if has_proof != bool(self._key):
            return "none" if has_proof else "one"
        mac, content = sealed[len(_MAGIC) :][:_MAC_BYTES], sealed[len(_MAGIC) + _MAC_BYTES :]
        if has_proof and not hmac.compare_digest(mac, self._mac(content)):
            return "another"
        return ""

    def _parse(self, sealed: bytes) -> _State:
        content = sealed[len(_MAGIC) + _MAC_BYTES :]
        series, number = _PLACE.unpack_from(content)
        return _State(content[_PLACE.size :], sealed, series, number)

    def _foreign(self, has: str) -> ForeignState:
        self._mismatch.leave(has)
        holder = self._mismatch.holder()
        # This node's own name may be left from an earlier attempt, before others wrote the state.
        who = f"node {holder}" if holder not in ("", self._mismatch.node) else "another node"
        return ForeignState(
            f"{who} has {_PEER_HAS[has]} this node ({self._mismatch.node}){_DOUBT[has]}"
        )

    def _mac(self, content: bytes) -> bytes:
        return hmac.new(self._key, content, hashlib.sha256).digest()

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            line = (
                "the rendezvous state was overwritten or removed by somebody else, and is put"
                " back: keep the port of the rendezvous store from others"
            )
            self._log(warning(line))


def seal(handler: RendezvousHandler, key: bytes, log: Log, node: str) -> SealedBackend | None:
    """Have a rendezvous handler of torch's believe only what this job's launchers wrote.

    Args:
        handler: of any backend; one without such a state (static) is left as it is.
        key: of the job; b"" where this node has no secret.
        log: writes one line to the terminal.
        node: this node's name.

    Returns:
        what the handler's state goes through from now on; None where it has none.
    """
    holder: Any = getattr(handler, "_state_holder", None)
    inner: Any = getattr(holder, "_backend", None)
    if inner is None:
        if key and handler.get_backend() != "static":
            line = "this torch's rendezvous state cannot be sealed: keep its store from others"
            log(warning(line))
        return None
    mismatch = MismatchNotes(getattr(inner, "_store", None), handler.get_run_id(), log, node)
    backend = SealedBackend(inner, key, mismatch, log)
    holder._backend = backend
    return backend
