"""One launcher's part in try-to-persist: the controller on node 0, backups on two other nodes."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import RelkitError
from relkit.launch.exchange import ExchangeBroken, Mailbox
from relkit.launch.job import Say
from relkit.ttp.controller import Controller, Limits
from relkit.ttp.environment import MARKS, to_environment
from relkit.ttp.link import Endpoint, parse_endpoint
from relkit.ttp.outcome import Outcome
from relkit.ttp.server import Node, Server

BACKUPS = 2
REQUEST = "dump.request"
_LOOPBACK = "127.0.0.1"
_PLACES_S = 10.0
_POLL_S = 0.05
_IDLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """One incarnation of the job, as this node sees it.

    Args:
        mailbox: in the meeting's store, with a prefix of try-to-persist's own.
        world_size: ranks of the job; incarnation: restarts so far.
        address: of this node on the way to the others; "" on a job of one node.
    """

    mailbox: Mailbox
    world_size: int
    incarnation: int
    address: str = ""


class PersistHost:
    """Hosts a controller (or a backup, or none) for each incarnation of a job.

    Args:
        limits: see Limits.
        say: one line to the terminal.
        how_it_ended: words for a local process that is gone; None while it runs.
        ended: told how a fault ended, on the node whose controller led it.
    """

    def __init__(
        self,
        limits: Limits,
        say: Say,
        how_it_ended: Callable[[int], str | None],
        ended: Callable[[Outcome], None],
    ) -> None:
        self.limits = limits
        self._say, self._how_it_ended, self._ended = say, how_it_ended, ended
        self._server: Server | None = None
        self._pids: dict[int, int] = {}
        self._marks = Path(tempfile.mkdtemp(prefix="relkit-ttp-"))
        self._told = False

    def begin(self, crowd: Crowd) -> Mapping[str, str]:
        """Listen, and learn where the others do.

        Returns:
            what to add to the workers' environment; nothing where try-to-persist cannot be.
        """
        self._end_incarnation()
        try:
            endpoints, secret = self._agree(crowd)
        except (ExchangeBroken, RelkitError, OSError) as error:
            self._say(f"try-to-persist is off: {error}")
            return {}
        return to_environment(
            endpoints, secret, crowd.incarnation, self.limits.heartbeat_s, self._marks
        )

    def watch(self, pids: Mapping[int, int]) -> None:
        """The workers of this node have been started: rank -> process."""
        self._pids.clear()
        self._pids.update(pids)

    @property
    def engaged(self) -> bool:
        """A worker of this node runs under try-to-persist."""
        return any(self._marks.glob(f"{MARKS}*"))

    @property
    def leading(self) -> bool:
        """A fault, or a request to stop, is being led to its end."""
        return self._server is not None and self._server.busy

    def look(self) -> None:
        """Take a request that `relkit ttp dump` has left; to be called now and then."""
        for request in self._marks.glob(REQUEST):
            request.unlink(missing_ok=True)
            if self._server is not None:
                self._server.stop("relkit ttp dump asked for it")

    def hung(self, reason: str) -> None:
        """The monitor is sure that the job hangs."""
        if self._server is not None:
            self._server.hung(reason)

    def save(self, reason: str) -> None:
        """Have the job saved at the end of a step and ended, and wait for that."""
        if self._server is None:
            return
        self._server.stop(reason)
        until_s = time.monotonic() + self.limits.overall_s
        idle_s = time.monotonic() + _IDLE_S
        while not self._server.over.wait(_POLL_S):
            now_s = time.monotonic()
            if now_s > until_s or (now_s > idle_s and not self._server.busy):
                # Nobody is there to be saved: all have finished, or have not begun.
                return
        self.tell()

    def tell(self) -> None:
        """Say how a fault ended, once."""
        if self._server is not None and self._server.outcome is not None and not self._told:
            self._told = True
            self._ended(self._server.outcome)

    def close(self) -> None:
        """Nothing listens and nothing is left."""
        self._end_incarnation()
        shutil.rmtree(self._marks, ignore_errors=True)

    def _end_incarnation(self) -> None:
        self.tell()
        if self._server is not None:
            self._server.close()
        self._server, self._told = None, False
        for mark in self._marks.glob(f"{MARKS}*"):
            mark.unlink(missing_ok=True)

    def _agree(self, crowd: Crowd) -> tuple[tuple[Endpoint, ...], bytes]:
        """Node 0 makes the secret; every node learns who listens where."""
        mailbox = crowd.mailbox
        if mailbox.nodes == 1:
            secret = secrets.token_bytes(32)
            return (self._listen(crowd, secret, _LOOPBACK),), secret
        if mailbox.node == 0:
            secret = secrets.token_bytes(32)
            own = str(self._listen(crowd, secret, crowd.address))
            mailbox.put("controller-0", json.dumps([own, secret.hex()]).encode())
        first = json.loads(self._wait_for(mailbox, "controller-0"))
        secret = bytes.fromhex(first[1])
        if 0 < mailbox.node <= BACKUPS:
            own = str(self._listen(crowd, secret, crowd.address))
            mailbox.put(f"controller-{mailbox.node}", own.encode())
        backups = [
            self._wait_for(mailbox, f"controller-{node}").decode()
            for node in range(1, min(mailbox.nodes, BACKUPS + 1))
        ]
        return tuple(parse_endpoint(text) for text in (first[0], *backups)), secret

    def _wait_for(self, mailbox: Mailbox, key: str) -> bytes:
        until_s = time.monotonic() + _PLACES_S
        while (note := mailbox.get(key)) is None:
            if time.monotonic() > until_s:
                raise ExchangeBroken(f"no node has told {key} for {_PLACES_S:g} s")
            time.sleep(_POLL_S)
        return note

    def _listen(self, crowd: Crowd, secret: bytes, address: str) -> Endpoint:
        controller = Controller(crowd.world_size, self.limits, backup=crowd.mailbox.node > 0)
        self._server = Server(
            controller,
            secret=secret,
            incarnation=crowd.incarnation,
            address=address,
            node=Node(self._pids, self._how_it_ended, self._say),
        )
        self._server.start()
        return self._server.endpoint
