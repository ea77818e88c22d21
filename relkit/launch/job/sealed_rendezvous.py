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

from relkit.launch.job.node_name import is_node_name
from relkit.launch.job.session_key import SecretMismatch
from relkit.launch.job.settings import Log
from relkit.operator_secret import derive

_MAGIC = b"relkit sealed state 1\n"
# torch asks for the state ten times a second; the store has other things to do.
_LOOK_S = 2.0
_MAX_LINES = 8
# Which secret a node has that cannot join, as the waiting nodes put it; and which they have, as it
# puts it.
_HAS = {"another": "another secret than", "none": "no secret, unlike", "one": "a secret, unlike"}
_PEER_HAS = {**_HAS, "none": _HAS["one"], "one": _HAS["none"]}
_DOUBT = {"another": "", "none": "", "one": ", or somebody else writes to the rendezvous"}
_MAC_BYTES = hashlib.sha256().digest_size


class ForeignState(RendezvousStateError):
    """The rendezvous is not one of launchers that have this one's secret."""


class SealedBackend(RendezvousBackend):
    """A rendezvous backend whose state carries a proof.

    Args:
        inner: torch's.
        key: of the job; b"" where this node has no secret: then it refuses states with a proof.
        mismatch: what this node and others learn of each other where their secrets differ.
    """

    def __init__(self, inner: RendezvousBackend, key: bytes, mismatch: _MismatchNotes) -> None:
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
        if current is None:
            return None
        if current[2]:
            self._mismatch.sign()
        return self._open(current[0]), current[1], current[2]

    def _open(self, sealed: bytes) -> bytes:
        has_proof = sealed.startswith(_MAGIC)
        if not self._key and not has_proof:
            return sealed
        if has_proof != bool(self._key):
            raise self._foreign("none" if has_proof else "one")
        start = len(_MAGIC) + _MAC_BYTES
        mac, state = sealed[len(_MAGIC) : start], sealed[start:]
        if not hmac.compare_digest(mac, self._mac(state)):
            raise self._foreign("another")
        return state

    def _foreign(self, has: str) -> ForeignState:
        self._mismatch.leave(has)
        holder = self._mismatch.holder()
        # This node's own name may be left from an earlier attempt, before others wrote the state.
        who = f"node {holder}" if holder not in ("", self._mismatch.node) else "another node"
        return ForeignState(
            f"{who} has {_PEER_HAS[has]} this node ({self._mismatch.node}){_DOUBT[has]}"
        )

    def _mac(self, state: bytes) -> bytes:
        return hmac.new(self._key, state, hashlib.sha256).digest()


def seal(handler: RendezvousHandler, key: bytes, log: Log, node: str) -> None:
    """Have a rendezvous handler of torch's believe only what this job's launchers wrote.

    Args:
        handler: of any backend; one without such a state (static) is left as it is.
        key: of the job; b"" where this node has no secret.
        log: writes one line to the terminal.
        node: this node's name.
    """
    holder: Any = getattr(handler, "_state_holder", None)
    inner: Any = getattr(holder, "_backend", None)
    if inner is None:
        if key and handler.get_backend() != "static":
            log("this torch's rendezvous state cannot be sealed: keep its store from others")
        return
    mismatch = _MismatchNotes(getattr(inner, "_store", None), handler.get_run_id(), log, node)
    holder._backend = SealedBackend(inner, key, mismatch)


class _MismatchNotes:
    """Notes by which the nodes of a rendezvous and those that cannot join it learn of each other.

    Anybody can write them, so nothing is done about them but to log them.

        <prefix>/holder       the node that wrote the state, with which the others have to agree
        <prefix>/count        how many nodes could not join
        <prefix>/<n>          the n-th of them, and which secret it has

    Args:
        store: of the rendezvous; run_id: of the job; log: writes one line to the terminal.
        node: this node's name.
    """

    def __init__(self, store: Any, run_id: str, log: Log, node: str) -> None:  # noqa: ANN401
        self.node = node
        self._store, self._prefix, self._log = store, f"relkit/secret-mismatch/{run_id}", log
        self._next: int | None = None
        self._lines_left = _MAX_LINES
        self._over = store is None
        self._has_signed = store is None
        self._next_look_s = 0.0

    def sign(self) -> None:
        """This node has written the state."""
        if not self._has_signed:
            self._has_signed = True
            with contextlib.suppress(RuntimeError, OSError):
                self._store.set(f"{self._prefix}/holder", self.node)

    def holder(self) -> str:
        """The node that wrote the state; "" where that is not known."""
        with contextlib.suppress(RuntimeError, OSError):
            if self._store is not None and self._store.check([f"{self._prefix}/holder"]):
                return _named(self._store.get(f"{self._prefix}/holder"))
        return ""

    def leave(self, has: str) -> None:
        """This node cannot join; only the first call leaves a note, as torch tries several times.

        Args:
            has: which secret it has, one of _HAS.
        """
        if not self._over:
            self._over = True
            with contextlib.suppress(RuntimeError, OSError):
                number = self._store.add(f"{self._prefix}/count", 1)
                self._store.set(f"{self._prefix}/{number}", f"{has} {self.node}")

    def look(self) -> None:
        """Log which nodes could not join since this one came."""
        now_s = time.monotonic()
        if self._over or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        with contextlib.suppress(RuntimeError, OSError):
            if self._next is None:
                # Earlier notes do not concern this node; its own failed attempt may be among them.
                self._next = self._store.add(f"{self._prefix}/count", 0) + 1
            while self._lines_left and self._store.check([f"{self._prefix}/{self._next}"]):
                self._report(self._store.get(f"{self._prefix}/{self._next}"))
                self._next += 1

    def _report(self, note: bytes) -> None:
        has, _, name = note.partition(b" ")
        what = _HAS.get(has.decode("ascii", "replace"))
        if what is not None:
            self._lines_left -= 1
            self._log(
                f"node {_named(name) or '?'} could not join the job: it has {what} this node"
                f" ({self.node}). {SecretMismatch.next_step}"
            )


def _named(note: bytes) -> str:
    """The node's name in a note; "" where it holds something else, which is not to be shown."""
    name = note.decode("ascii", "replace")
    return name if is_node_name(name) else ""
