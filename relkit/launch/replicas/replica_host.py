"""This launcher's replicas, over all restarts of the job."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from relkit.errors import RelkitError
from relkit.flash_checkpoint.replicas import COUNT_VARIABLE
from relkit.flash_checkpoint.replicas import origin as origin_note
from relkit.flash_checkpoint.replicas.copy_folder import CopyFolder
from relkit.flash_checkpoint.replicas.origin import Origin
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, wait_for_notes
from relkit.launch.job.node_name import node_name
from relkit.launch.job.settings import Log
from relkit.launch.replicas.peers import Doorway, Peer, ranks_of
from relkit.launch.replicas.plan import sources, targets
from relkit.launch.replicas.rank_slots import RankSlots
from relkit.launch.replicas.recovery import HELLO_S, Hello, Recovered, Recovery, own_steps_of
from relkit.launch.replicas.rounds import Rounds, Task
from relkit.launch.replicas.settings import ReplicaSettings, limit_bytes_per_s
from relkit.launch.replicas.wire import RateLimit
from relkit.log_lines import warning
from relkit.net.interface import resolve, route_to
from relkit.net.operator_secret import derive
from relkit.ranks import RankSet
from relkit.text.foreign_json import parse_json

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SECRET_BYTES = 32
_MAX_LINES = 5

# Gets what came of the replicas before workers started, on node 0.
Publish = Callable[[Origin], None]


class ReplicaHost:
    """Brings replicas in place before workers start, and keeps them up to date after.

    Args:
        settings: see there; log: writes one line to the terminal; publish: see Publish.
    """

    def __init__(
        self, settings: ReplicaSettings, log: Log, publish: Publish = lambda _origin: None
    ) -> None:
        self._settings, self._log, self._publish = settings, log, publish
        self._copies: CopyFolder | None = None
        self._door: Doorway | None = None
        self._rounds: Rounds | None = None

    @property
    def is_on(self) -> bool:
        """Replicas are asked for."""
        return self._settings.count > 0

    @property
    def environment(self) -> Mapping[str, str]:
        """What to add to the workers' environment: what was asked for, also where it cannot be."""
        return {COUNT_VARIABLE: str(self._settings.count)} if self.is_on else {}

    def begin(self, attempt: Attempt, folder: Path) -> None:
        """Begin an attempt of the job: its workers have not been started yet.

        Args:
            folder: of this node's slots.
        """
        self.end_attempt()
        origin_note.leave(folder, Origin())
        mailbox = attempt.mailbox("replicas")
        if mailbox.nodes == 1:
            self._log("flash checkpoint: no replicas: the job has one node")
            self.close()
            return
        copies = self._copies = CopyFolder(folder, attempt.world_size)
        try:
            self._begin(attempt, mailbox, folder, copies)
        # RuntimeError: no thread can be started.
        except (RelkitError, OSError, RuntimeError) as error:
            self._log(warning(f"flash checkpoint: no replicas: {error}"))
            self.end_attempt()

    def end_attempt(self) -> None:
        """Nothing is sent or taken in any more; what is whole stays."""
        if self._copies is not None:
            self._copies.close()
        if self._rounds is not None:
            self._rounds.close()
            self._rounds = None
        if self._door is not None:
            self._door.close()
            self._door = None

    def close(self) -> None:
        """The job has ended."""
        self.end_attempt()
        if self._copies is not None:
            self._copies.remove()
            self._copies = None

    def _begin(self, attempt: Attempt, mailbox: Mailbox, folder: Path, copies: CopyFolder) -> None:
        secret = _secret(mailbox, attempt.key)
        ranks = sorted(each.rank for each in attempt.ranks)
        slots = RankSlots(folder, ranks, attempt.world_size)
        address = resolve(attempt.address())
        door = self._door = Doorway(address, secret, copies, attempt.world_size, self._log)
        peer = Peer(
            mailbox.node, node_name(), _host(), door.address, door.port, tuple(slots.ranks)
        )  # fmt: skip
        whole, refused = copies.copies()
        for why in refused[:_MAX_LINES]:
            self._log(warning(f"flash checkpoint: {why}"))
        rows = tuple((copy.rank, copy.round_id, copy.header.step) for copy in whole)
        # Of an object of its own, which holds no memory of slots that are replaced.
        own = RankSlots(folder, slots.ranks, attempt.world_size).steps()
        hello = Hello(peer, self._settings.count, rows, own_steps_of(own))
        recovered = Recovery(
            mailbox, hello, attempt.world_size, folder, copies, secret, door.let_fetch,
            self._settings.timeout_s,
        ).run()  # fmt: skip
        origin_note.leave(folder, recovered.origin)
        if mailbox.node == 0:
            self._tell(recovered.origin)
        self._replicate(attempt, mailbox, recovered, slots, copies, secret)

    def _tell(self, origin: Origin) -> None:
        if origin.why_not:
            self._log(warning(f"flash checkpoint: replicas are not used: {origin.why_not}"))
        if origin != Origin():
            self._publish(origin)

    def _replicate(
        self,
        attempt: Attempt,
        mailbox: Mailbox,
        recovered: Recovered,
        slots: RankSlots,
        copies: CopyFolder,
        secret: bytes,
    ) -> None:
        assert self._door is not None
        peers = {node: hello.peer for node, hello in recovered.hellos.items()}
        node, count = mailbox.node, self._settings.count
        counts = {hello.count for hello in recovered.hellos.values()}
        if len(counts) > 1:
            raise ExchangeBroken(f"--replica-count differs between the nodes: {sorted(counts)}")
        runs = ranks_of(peers)
        copies.say_whose({rank: peers[n].name for rank, n in runs.items()}, slots.ranks)
        hosts = [peers[n].host for n in range(len(peers))]
        chosen = targets(hosts, node, count)
        ranks = RankSet.of(slots.ranks).fold()
        if len(chosen) < count:
            same = [peers[n].name for n in peers if n != node and hosts[n] == hosts[node]]
            why = f"; {', '.join(same)} shares this host" if same else ""
            self._log(
                f"flash checkpoint: ranks {ranks} have {len(chosen)} replicas instead of {count}:"
                f" the job has {len(set(hosts))} hosts{why}"
            )
        for other in sources(hosts, node, count):
            self._door.take_copies_of(peers[other], slots.slot_bytes)
        if not any(targets(hosts, n, count) for n in peers):
            return
        limit = 0.0
        if chosen:
            route = route_to(peers[chosen[0]].address)
            limit = limit_bytes_per_s(self._settings, route.speed_mbps)
            to = ", ".join(peers[other].name for other in chosen)
            at_most = f", at most {limit / 1e6:,.3g} MB/s" if limit else ""
            self._log(f"flash checkpoint: replicas of ranks {ranks} go to {to}{at_most}")
        task = Task(
            mailbox, attempt.world_size, secret, [peers[n] for n in chosen],
            RateLimit(limit, self._door.stop.wait),
        )  # fmt: skip
        self._rounds = Rounds(task, slots, copies, recovered.keep, self._door.stop, self._log)


def _host() -> str:
    """What tells this host from others: launchers in containers on one host have the same."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _secret(mailbox: Mailbox, key: bytes) -> bytes:
    """The secret of the connections: from the operator's, or node 0's, through the store.

    Raises:
        ExchangeBroken: node 0 says nothing.
    """
    if key:
        return derive(key, "replicas")
    if mailbox.node == 0:
        secret = secrets.token_bytes(_SECRET_BYTES)
        mailbox.put("secret", json.dumps(secret.hex()).encode())
        return secret
    wait_for_notes(mailbox, ["secret"], HELLO_S)
    try:
        secret = bytes.fromhex(parse_json(mailbox.get("secret") or b"null"))
    except (ValueError, TypeError) as error:
        raise ExchangeBroken("node 0 says nothing of replicas") from error
    if len(secret) != _SECRET_BYTES:
        raise ExchangeBroken("node 0's note on replicas cannot be read")
    return secret
