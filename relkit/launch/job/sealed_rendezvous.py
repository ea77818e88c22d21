"""torch's rendezvous state with a proof of the operator's secret.

torch keeps it in the rendezvous store as a pickle, and unpickles what is there: whoever can write
to the store could run programs as the job's user. With a secret only what a launcher of this job
has written is handed to torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from typing import Any

from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token

from relkit.launch.job.settings import Log
from relkit.operator_secret import derive

_MAGIC = b"relkit sealed state 1\n"
# torch asks for the state ten times a second; the store has other things to do.
_LOOK_S = 2.0
_MAC_BYTES = hashlib.sha256().digest_size


class ForeignState(RendezvousStateError):
    """The rendezvous is not one of launchers that have this one's secret."""


class SealedBackend(RendezvousBackend):
    """A rendezvous backend whose state carries a proof.

    Args:
        inner: torch's.
        key: of the job; b"" where this node has no secret: then it refuses states with a proof.
        mismatch: what other nodes learn of a state that is not the job's.
    """

    def __init__(self, inner: RendezvousBackend, key: bytes, mismatch: _MismatchNote) -> None:
        self._inner, self._mismatch = inner, mismatch
        self._key = derive(key, "rendezvous") if key else b""

    @property
    def name(self) -> str:
        """See RendezvousBackend."""
        return self._inner.name

    def get_state(self) -> tuple[bytes, Token] | None:
        """See RendezvousBackend."""
        self._mismatch.look()
        current = self._inner.get_state()
        return None if current is None else (self._open(current[0]), current[1])

    def set_state(
        self, state: bytes, token: Token | None = None
    ) -> tuple[bytes, Token, bool] | None:
        """See RendezvousBackend."""
        sealed = _MAGIC + self._mac(state) + state if self._key else state
        current = self._inner.set_state(sealed, token)
        return None if current is None else (self._open(current[0]), current[1], current[2])

    def _open(self, sealed: bytes) -> bytes:
        has_proof = sealed.startswith(_MAGIC)
        if not self._key and not has_proof:
            return sealed
        if has_proof != bool(self._key):
            self._mismatch.leave()
            raise ForeignState(
                "the nodes of this rendezvous have a secret, and this one has none"
                if has_proof
                else "this node has a secret, and the nodes of this rendezvous have none, or"
                " somebody else writes to it"
            )
        start = len(_MAGIC) + _MAC_BYTES
        mac, state = sealed[len(_MAGIC) : start], sealed[start:]
        if not hmac.compare_digest(mac, self._mac(state)):
            self._mismatch.leave()
            raise ForeignState("the nodes of this rendezvous have another secret than this one")
        return state

    def _mac(self, state: bytes) -> bytes:
        return hmac.new(self._key, state, hashlib.sha256).digest()


def seal(handler: RendezvousHandler, key: bytes, log: Log) -> None:
    """Have a rendezvous handler of torch's believe only what this job's launchers wrote.

    Args:
        handler: of any backend; one without such a state (static) is left as it is.
        key: of the job; b"" where this node has no secret.
        log: writes one line to the terminal.
    """
    holder: Any = getattr(handler, "_state_holder", None)
    inner: Any = getattr(holder, "_backend", None)
    if inner is None:
        if key and handler.get_backend() != "static":
            log("this torch's rendezvous state cannot be sealed: keep its store from others")
        return
    mismatch = _MismatchNote(getattr(inner, "_store", None), handler.get_run_id(), log)
    holder._backend = SealedBackend(inner, key, mismatch)


class _MismatchNote:
    """A note by which waiting nodes learn why another one does not come; it only makes a line.

    Args:
        store: of the rendezvous; run_id: of the job; log: writes one line to the terminal.
    """

    def __init__(self, store: Any, run_id: str, log: Log) -> None:  # noqa: ANN401 (torch's)
        self._store, self._key, self._log = store, f"relkit/secret-mismatch/{run_id}", log
        self._over = store is None
        self._next_look_s = 0.0

    def leave(self) -> None:
        """This node does not join."""
        self._over = True
        if self._store is not None:
            with contextlib.suppress(RuntimeError, OSError):
                self._store.set(self._key, "1")

    def look(self) -> None:
        """Log, once, that another node did not join."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        with contextlib.suppress(RuntimeError, OSError):
            if not self._over and self._store.check([self._key]):
                self._over = True
                self._log(
                    "a node could not join the rendezvous: it has another secret than this one, or"
                    " only one of the two has any"
                )
