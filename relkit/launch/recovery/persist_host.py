"""One launcher's part in try-to-persist: the controller on node 0, backups on two other nodes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from relkit.errors import RelkitError
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, MemoryMailbox
from relkit.launch.job.settings import Log
from relkit.launch.recovery.activity import Activity
from relkit.launch.recovery.persist_folder import PersistFolder
from relkit.log_lines import warning
from relkit.net.file_limit import FileLimit
from relkit.net.gate import MAX_PENDING
from relkit.net.operator_secret import derive
from relkit.text.foreign_json import parse_json
from relkit.ttp.actions import Limits
from relkit.ttp.controller import Controller
from relkit.ttp.environment import to_environment
from relkit.ttp.link import Endpoint, LinkEnded, connect, parse_endpoint
from relkit.ttp.messages import Stop
from relkit.ttp.save_outcome import SaveOutcome
from relkit.ttp.server import Node, Server

BACKUPS = 2
_LOOPBACK = "127.0.0.1"
_PLACES_S = 10.0
_POLL_S = 0.05
_IDLE_S = 1.0
_STATUS_S = 0.5
_CONNECT_S = 3.0
# Beside one connection a rank: connections in the handshake, and all else that a launcher opens.
_OTHER_FILES = MAX_PENDING + 512


class PersistHost:
    """Hosts a controller (or a backup, or none) for each attempt of a job.

    Args:
        limits: see Limits.
        say: one line to the terminal.
        how_it_ended: words for a local process that is gone; None while it runs.
        ended: told how a fault ended, on the node whose controller led it, with the job's id.
    """

    def __init__(
        self,
        limits: Limits,
        say: Log,
        how_it_ended: Callable[[int], str | None],
        ended: Callable[[SaveOutcome, str], None],
    ) -> None:
        self.limits = limits
        self._say, self._how_it_ended, self._ended = say, how_it_ended, ended
        self._server: Server | None = None
        self._current: Attempt | None = None
        self._mailbox: Mailbox = MemoryMailbox()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._secret = b""
        self._pids: dict[int, int] = {}
        self._folder: PersistFolder | None = None
        self._told = False
        # When the status was made last, monotonic clock; and the one that was written last.
        self._written: tuple[float, Mapping[str, object]] = (0.0, {})
        self._activity = Activity(limits.overall_s)
        self._file_limit = FileLimit()

    def begin(self, current: Attempt) -> Mapping[str, str]:
        """Listen, and learn where the others do.

        Returns:
            what to add to the workers' environment; nothing where try-to-persist cannot be.
        """
        self._end_attempt()
        self._current, self._mailbox = current, current.mailbox("ttp")
        if self._folder is None:
            self._folder = PersistFolder(current.job_id)
        try:
            self._endpoints, self._secret = self._agree(current)
            self._folder.leave_key(self._secret)
        except (ExchangeBroken, RelkitError, OSError) as error:
            self._say(warning(f"try-to-persist is off: {error}"))
            return {}
        return to_environment(
            self._endpoints,
            current.number,
            self.limits.heartbeat_s,
            self._folder.path,
        )

    def watch(self, pids: Mapping[int, int]) -> None:
        """The workers of this node have been started: rank -> process."""
        self._pids.clear()
        self._pids.update(pids)
        for pid in pids.values():
            self._file_limit.give_back_to(pid)
        if self._server is not None:
            self._server.watch(pids)

    @property
    def engaged(self) -> bool:
        """A worker of this node runs under try-to-persist."""
        return self._folder is not None and self._folder.marked

    @property
    def leading(self) -> bool:
        """A fault, or a request to stop, is being led to its end."""
        return self._server is not None and self._server.busy

    @property
    def outcome(self) -> SaveOutcome | None:
        """How this attempt's fault ended, where this node's controller led it."""
        return None if self._server is None else self._server.outcome

    def look(self) -> None:
        """Take requests of `relkit ttp save`, and write the status; to be called now and then."""
        if self._folder is None:
            return
        if self._folder.take_requests():
            self._stop("relkit ttp save asked for it")
        now_s = time.monotonic()
        looked_s, written = self._written
        if now_s - looked_s >= _STATUS_S:
            status = self._status()
            is_new = status != written and self._folder.write_status(status)
            self._written = (now_s, status if is_new else written)

    def lost(self, rank: int, reason: str) -> None:
        """A worker of this node has ended; the controller hears it twice, and from here first
        where the kernel offers no better way."""
        if self._server is not None:
            self._server.lost(rank, reason)

    def hung(self, reason: str) -> None:
        """The monitor is sure that the job hangs."""
        if self._server is not None:
            self._server.hung(reason)

    def save(self, reason: str, all_ended: Callable[[], bool]) -> None:
        """Have the job saved at the end of a step and ended, and wait for that.

        Args:
            reason: why.
            all_ended: whether the workers of this node are gone.
        """
        self._stop(reason)
        now_s = time.monotonic()
        until_s, idle_s = now_s + self.limits.overall_s, now_s + _IDLE_S
        while not all_ended() and time.monotonic() < until_s:
            if self._server is None or self._is_backup:
                time.sleep(_POLL_S)
            elif self._server.over.wait(_POLL_S):
                break
            elif time.monotonic() > idle_s and not self._server.busy:
                # Nobody is there to be saved: all have finished, or have not begun.
                return
        self.tell()

    def tell(self) -> None:
        """Say how a fault ended, once."""
        outcome = self.outcome
        if outcome is not None and self._current is not None and not self._told:
            self._told = True
            self._ended(outcome, self._current.job_id)
            if self._folder is not None:
                self._folder.answer(json.dumps(asdict(outcome)))

    def close(self) -> None:
        """Nothing listens and nothing is left."""
        self._end_attempt()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    @property
    def _is_backup(self) -> bool:
        return self._mailbox.node > 0

    def _stop(self, reason: str) -> None:
        if self._server is not None and not self._is_backup:
            self._server.stop(reason)
            return
        # On another node: the controller is told over a link, as ranks tell it.
        for endpoint in self._endpoints[:1]:
            try:
                attempt = self._current.number if self._current else 0
                link = connect(endpoint, self._secret, attempt, _CONNECT_S)
                link.send(Stop(reason))
                link.close()
            except LinkEnded as error:
                self._say(f"ttp: {error}")

    def _status(self) -> dict[str, object]:
        current = self._current
        status: dict[str, object] = {
            "job_id": current.job_id if current else "",
            "node": self._mailbox.node,
            "world_size": current.world_size if current else 0,
            "attempt": current.number if current else 0,
            "engaged": self.engaged,
            "role": "none" if self._server is None else "backup" if self._is_backup else "active",
        }
        return status if self._server is None else {**status, **self._server.status()}

    def _end_attempt(self) -> None:
        self.tell()
        if self._server is not None:
            self._server.close()
        self._server, self._told = None, False
        if self._folder is not None:
            self._folder.clear()

    def _agree(self, current: Attempt) -> tuple[tuple[Endpoint, ...], bytes]:
        """Every node learns who listens where; the secret comes from the operator's, or node 0."""
        mailbox = self._mailbox
        if mailbox.nodes == 1:
            secret = secrets.token_bytes(32)
            return (self._listen(current, secret, _LOOPBACK),), secret
        if mailbox.node == 0:
            secret = derive(current.key, "ttp") if current.key else secrets.token_bytes(32)
            own = str(self._listen(current, secret, current.address()))
            sent = "" if current.key else secret.hex()
            mailbox.put("controller-0", json.dumps([own, sent]).encode())
        first, sent_secret = _controller_note(self._wait_for(mailbox, "controller-0"))
        secret = derive(current.key, "ttp") if current.key else sent_secret
        if 0 < mailbox.node <= BACKUPS:
            own = str(self._listen(current, secret, current.address()))
            mailbox.put(f"controller-{mailbox.node}", own.encode())
        backups = [
            self._wait_for(mailbox, f"controller-{node}").decode("utf-8", "replace")
            for node in range(1, min(mailbox.nodes, BACKUPS + 1))
        ]
        return tuple(parse_endpoint(text) for text in (first, *backups)), secret

    def _wait_for(self, mailbox: Mailbox, key: str) -> bytes:
        until_s = time.monotonic() + _PLACES_S
        while (note := mailbox.get(key)) is None:
            if time.monotonic() > until_s:
                raise ExchangeBroken(f"no node has sent {key} for {_PLACES_S:g} s")
            time.sleep(_POLL_S)
        return note

    def _listen(self, current: Attempt, secret: bytes, address: str) -> Endpoint:
        short = self._file_limit.require(current.world_size + _OTHER_FILES)
        if short:
            self._say(warning(f"ttp: {short}"))
        controller = Controller(current.world_size, self.limits, backup=self._is_backup)
        self._server = Server(
            controller,
            secret=secret,
            attempt=current.number,
            address=address,
            node=Node(self._pids, self._how_it_ended, self._say, self._activity.excuses),
        )
        self._server.start()
        return self._server.endpoint


def _controller_note(note: bytes) -> tuple[str, bytes]:
    """Where node 0's controller listens, and the secret.

    Raises:
        ExchangeBroken: it is no such note.
    """
    try:
        endpoint, secret = parse_json(note)
        return str(endpoint), bytes.fromhex(secret)
    except (ValueError, TypeError) as error:
        raise ExchangeBroken("node 0's note on its controller cannot be read") from error
