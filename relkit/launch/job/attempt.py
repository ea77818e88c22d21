"""One attempt of the job, as one node sees it: what all that runs beside it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from relkit.launch.job.exchange import LedMailbox, Mailbox, MemoryMailbox
from relkit.launch.job.settings import ExitStatus, LocalRank
from relkit.post_mortem.collector import WorkerFiles


class Workers(Protocol):
    """How this node's workers have ended, and what torch keeps of them."""

    @property
    def seen(self) -> Mapping[int, ExitStatus]:
        """How they ended, by rank, as the launcher's last poll has seen it."""

    def latest(self, ranks: Iterable[LocalRank]) -> Mapping[int, ExitStatus]:
        """The same, with what has ended since; any thread may ask."""

    def files(self) -> Mapping[int, WorkerFiles]:
        """Their files, by rank; nothing before they are started."""


class _NoWorkers:
    seen: Mapping[int, ExitStatus] = {}

    def latest(self, ranks: Iterable[LocalRank]) -> Mapping[int, ExitStatus]:
        return {}

    def files(self) -> Mapping[int, WorkerFiles]:
        return {}


NO_WORKERS: Workers = _NoWorkers()


@dataclass(frozen=True, slots=True)
class Channels:
    """The ways to the other nodes of an attempt.

    Args:
        open_mailbox: see Attempt.mailbox; open_meeting_mailbox: see Attempt.meeting_mailbox.
        led: to the other nodes, one of which leads; for the watch over the job alone.
    """

    open_mailbox: Callable[[str], Mailbox] = lambda _purpose: MemoryMailbox()
    open_meeting_mailbox: Callable[[str], Mailbox] = lambda _purpose: MemoryMailbox()
    led: LedMailbox = field(default_factory=MemoryMailbox)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of all workers of the job, after one rendezvous of its nodes.

    Args:
        job_id: the run.
        world_size: ranks of the job; 0 where that is not known.
        ranks: of this node, in the order of their local ranks; with pid 0 before they are started.
        number: restarts before it.
        node: number of this node in the rendezvous; nodes: how many there are.
        host: this node's name.
        restarts_left: how often workers may be started again.
        job_dir: folder of the recorder files; None without the hook, and before workers start.
        key: that all nodes have and that is not in the store; b"" where there is none.
        holds_store: this launcher hosts the store, and other nodes use it.
        can_meet_again: the rendezvous lets the other nodes form a smaller job.
        channels: to the other nodes; own_address: see `address`.
        workers: how those of this node have ended, and their files.
    """

    job_id: str
    world_size: int = 1
    ranks: tuple[LocalRank, ...] = ()
    number: int = 0
    node: int = 0
    nodes: int = 1
    host: str = "this host"
    restarts_left: int = 0
    job_dir: Path | None = None
    key: bytes = field(default=b"", repr=False)
    holds_store: bool = False
    can_meet_again: bool = True
    channels: Channels = field(default_factory=Channels)
    own_address: Callable[[str], str] = lambda _peer: ""
    workers: Workers = NO_WORKERS

    def mailbox(self, purpose: str) -> Mailbox:
        """A mailbox to the other nodes, over the links between launchers; no call of it waits.

        Args:
            purpose: what no other service uses; the same on all nodes.
        """
        return self.channels.open_mailbox(purpose)

    def meeting_mailbox(self, purpose: str) -> Mailbox:
        """A mailbox in the store where the nodes have met, for what decides who stays.

        It connects to the store, which may be slow. Also nodes that cannot reach each other have it
        in common, and so it is no longer there once that store has gone.

        Args:
            purpose: as of `mailbox`.
        """
        return self.channels.open_meeting_mailbox(purpose)

    def started(self, pids: Mapping[int, int]) -> Attempt:
        """The same, with the processes of the workers.

        Args:
            pids: by local rank.
        """
        ranks = tuple(LocalRank(each.rank, int(pids[i])) for i, each in enumerate(self.ranks))
        return replace(self, ranks=ranks)

    def address(self, peer: str = "") -> str:
        """This node's address on the way to a peer, or to the store's host; "" for none."""
        return self.own_address(peer)
